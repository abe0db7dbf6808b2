"""Frames over a socket between the gateway and its executors: a kind, a length, a payload.

What crosses is JSON, and Arrow IPC for rows; never pickle, because an executor that a query got hold of must not be
able to run anything in the process that holds the catalog's password. Both ends import this and nothing above it.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

_HEAD = struct.Struct(">cQ")
LONGEST = 1 << 32


class Kind(Enum):
    """What a frame is; to the executor, then from it."""

    PARSE = b"P"
    RUN = b"R"
    CANCEL = b"C"
    READY = b"r"
    PARSED = b"p"
    COLUMNS = b"c"
    BATCH = b"b"
    DONE = b"d"
    FAILED = b"f"


class Closed(Exception):
    """The other end is gone."""


def send(sock: socket.socket, kind: Kind, payload: bytes | memoryview = b"") -> None:
    try:
        sock.sendall(_HEAD.pack(kind.value, len(payload)))
        if len(payload):
            sock.sendall(payload)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise Closed from error


def send_json(sock: socket.socket, kind: Kind, value: Any) -> None:
    send(sock, kind, encode(value))


def encode(value: Any) -> bytes:
    return json.dumps(value, default=_tagged).encode()


def receive(sock: socket.socket) -> tuple[Kind, bytearray]:
    kind, length = _HEAD.unpack(_exactly(sock, _HEAD.size))
    if length > LONGEST:
        raise Closed(f"a frame of {length} bytes")
    return Kind(kind), _exactly(sock, length)


def decode(payload: bytes | bytearray) -> Any:
    return json.loads(payload, object_hook=_untagged)


def _exactly(sock: socket.socket, length: int) -> bytearray:
    buffer = bytearray(length)
    view = memoryview(buffer)
    while view:
        try:
            got = sock.recv_into(view)
        except ConnectionResetError as error:
            raise Closed from error
        if not got:
            raise Closed
        view = view[got:]
    return buffer


# ---------------------------------------------------------------- values of parameters
_TAG = "__lakemill"


def _tagged(value: Any) -> Any:
    match value:
        case datetime() | date() | time():
            return {_TAG: type(value).__name__, "value": value.isoformat()}
        case timedelta():
            return {_TAG: "timedelta", "value": [value.days, value.seconds, value.microseconds]}
        case Decimal() | UUID():
            return {_TAG: type(value).__name__, "value": str(value)}
        case bytes() | bytearray():
            return {_TAG: "bytes", "value": value.hex()}
    raise TypeError(f"{type(value).__name__} can't be a parameter")


def _untagged(value: Mapping[str, Any]) -> Any:
    """A caller may send what only looks like one of ours: that stays what it is."""
    if value.keys() != {_TAG, "value"}:
        return value
    try:
        found = _meant(value[_TAG], value["value"])
    except (TypeError, ValueError, ArithmeticError):
        return value
    return value if found is None else found


def _meant(tag: Any, inner: Any) -> Any:
    match tag:
        case "datetime":
            return datetime.fromisoformat(inner)
        case "date":
            return date.fromisoformat(inner)
        case "time":
            return time.fromisoformat(inner)
        case "timedelta":
            return timedelta(*inner)
        case "Decimal":
            return Decimal(inner)
        case "UUID":
            return UUID(inner)
        case "bytes":
            return bytes.fromhex(inner)
    return None
