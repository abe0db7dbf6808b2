"""Bodies of requests: compressed or not, JSON, a row a line, or Arrow; each becomes a list of records in JSON.

The first step of a request, before its table is known to fit. Sizes are checked while it is unpacked, so that a small
body can't become a large one unseen. What the records hold is not looked at here.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import zstandard
from msgspec import Raw

from lakemill.core.records import LONGEST_KEY, Op, read_body, read_lines
from lakemill.core.schema import Column
from lakemill.errors import BadArgument, BadBody, RequestTooLarge

JSON, NDJSON, ARROW = "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"
_LINES = (NDJSON, "application/ndjson", "application/jsonl", "application/json-lines")
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Given:
    """What was asked: records in JSON, each in an envelope or a bare row, and how."""

    records: Sequence[bytes | Raw]
    enveloped: bool = False
    op: Op = "insert"
    key: str | None = None
    wait: bool = False
    timeout: float | None = None
    """Seconds."""
    arrow: Any = None
    """A table of Arrow that became the records; its texts may be documents of JSON columns."""

    def under(self, key: str | None) -> Given:
        if key is not None and not (0 < len(key) <= LONGEST_KEY and key.isprintable()):
            raise BadArgument(
                f"a key has 1 to {LONGEST_KEY} printable characters", place="Idempotency-Key", remedy="such as a UUID"
            )
        return replace(self, key=key)


def parse(
    body: bytes, media: str = JSON, encoding: str = "", *, most: int, op: Op = "insert", enveloped: bool = False
) -> Given:
    """By its media type and encoding; ``enveloped``: lines are records with ``payload``, not rows."""
    body = unpacked(body, encoding, most)
    kind = media.partition(";")[0].strip().lower() or JSON
    if kind == JSON:
        if op != "insert" or enveloped:
            raise BadArgument("records in JSON say by themselves what they are", remedy="leave op and envelope out")
        read = read_body(body)
        timeout = None if read.visibility_timeout_ms is None else read.visibility_timeout_ms / 1000
        return Given(read.records, True, wait=read.wait_for_visibility, timeout=timeout)
    if kind in _LINES:
        return Given(read_lines(body), enveloped, op)
    if kind == ARROW:
        table = read_arrow(body)
        return Given([b""] * table.num_rows, False, op, arrow=table)
    raise BadBody(f"a body can't be {media}", remedy=f"send {JSON}, {NDJSON} or {ARROW}")


def unpacked(body: bytes, encoding: str, most: int) -> bytes:
    """Refuses what is, or would become, larger than ``most``."""
    for one in reversed([word.strip().lower() for word in encoding.split(",") if word.strip()]):
        if one == "identity":
            continue
        if one not in ("gzip", "zstd"):
            raise BadBody(f"a body can't be compressed by {one}", remedy="use gzip or zstd")
        body = b"".join(_bounded(_gunzip(body, most) if one == "gzip" else _unzstd(body), most))
    if len(body) > most:
        raise too_large(most)
    return body


def too_large(most: int) -> RequestTooLarge:
    return RequestTooLarge(f"the body has more than {most:,} bytes")


def _bounded(chunks: Iterable[bytes], most: int) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > most:
            raise too_large(most)
        yield chunk


def _gunzip(body: bytes, most: int) -> Iterator[bytes]:
    try:
        while body:  # members, one after the other
            stream = zlib.decompressobj(wbits=31)
            yield stream.decompress(body, most + 1)
            if stream.unconsumed_tail:
                raise too_large(most)
            if not stream.eof:
                raise BadBody("the body is not gzip: it ends too early")
            body = stream.unused_data
    except zlib.error as error:
        raise BadBody(f"the body is not gzip: {error}") from error


def _unzstd(body: bytes) -> Iterator[bytes]:
    try:
        with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(body, read_across_frames=True) as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk
    except zstandard.ZstdError as error:
        raise BadBody(f"the body is not zstd: {error}") from error


# ---------------------------------------------------------------- Arrow
def read_arrow(body: bytes) -> Any:
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(body) as stream:
            return stream.read_all()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, ValueError) as error:
        raise BadBody(f"the body is not an Arrow stream: {error}") from error


def arrow_rows(table: Any, columns: Sequence[Column]) -> list[bytes]:
    """Rows in JSON; a text in a JSON column is the document, since Arrow has no other way to say it."""
    documents = {column.name for column in columns if column.type == "json"}
    names = table.column_names
    cells = []
    for name, column in zip(names, table.columns, strict=True):
        try:
            values = column.to_pylist()
        except (ValueError, NotImplementedError, ArithmeticError) as error:
            raise BadBody(f"column {name} can't be read: {error}", place=name) from error
        cells.append([_document(v) for v in values] if name in documents else [_plain(v) for v in values])
    encode = msgspec.json.Encoder().encode
    return [encode(dict(zip(names, row, strict=True))) for row in zip(*cells, strict=True)]


def _document(value: Any) -> Any:
    return Raw(value.encode()) if isinstance(value, str) else _plain(value)


def _plain(value: Any) -> Any:
    """A value of Arrow as a client would write it in JSON."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
        case Decimal():
            return format(value, "f")
        case bytes():
            return base64.b64encode(value).decode()
        case datetime() | date() | time():
            return value.isoformat()
        case UUID():
            return str(value)
        case dict():
            return {name: _plain(inner) for name, inner in value.items()}
        case list() if value and all(isinstance(one, tuple) for one in value):
            return [{"key": _plain(key), "value": _plain(inner)} for key, inner in value]
        case list():
            return [_plain(inner) for inner in value]
    raise BadBody(f"a value of type {type(value).__name__} can't be sent")
