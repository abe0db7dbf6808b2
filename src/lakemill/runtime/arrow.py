"""Bodies in Arrow: an IPC stream of anybody's → a checked table → rows in JSON.

A stream of a few bytes can stand for gigabytes (compressed buffers, columns of nothing but NULL, a dictionary whose one
long value is used by every row), and its offsets can point anywhere. So sizes are told before anything is unpacked, and
every buffer is checked before it is read. What the rows hold is not looked at here.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from lakemill.core.schema import Column
from lakemill.errors import BadBody, RequestTooLarge

_DICTIONARY, _BATCH = 2, 3
"""Kinds of messages that hold rows."""


def read_arrow(body: bytes, most: int) -> pa.Table:
    """The table of a stream that is, with its rows written in JSON, not certainly larger than ``most``."""
    try:
        if sum(_unpacked_sizes(body)) > most:
            raise _too_large()
        with pa.ipc.open_stream(body) as stream:
            table = stream.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, struct.error, IndexError) as error:
        raise BadBody(f"the body is not an Arrow stream: {error}") from error
    names = table.column_names
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadBody(f"the stream has two columns {twice}", place=twice, remedy="give each column a name of its own")
    for name, column in zip(names, table.columns, strict=True):
        most -= sum(_least(name, chunk) for chunk in column.chunks)
        if most < 0:
            raise _too_large()
    return table


def arrow_rows(table: pa.Table, columns: Sequence[Column]) -> list[bytes]:
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
    if not cells:
        return [b"{}"] * table.num_rows
    return [encode(dict(zip(names, row, strict=True))) for row in zip(*cells, strict=True)]


def _too_large() -> RequestTooLarge:
    return RequestTooLarge("the body would be larger than a request may be", remedy="send fewer rows at a time")


# ---------------------------------------------------------------- sizes
def _least(name: str, array: pa.Array) -> int:
    """The fewest bytes that its values take in JSON."""
    kind, count = array.type, len(array)
    if isinstance(array, pa.ExtensionArray):
        return _least(name, array.storage)
    if pa.types.is_struct(kind):
        return count + sum(_least(name, child) for child in array.flatten())
    if pa.types.is_map(kind):
        return count + _least(name, array.keys) + _least(name, array.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return count + _least(name, array.flatten())
    if pa.types.is_dictionary(kind):
        if not (_is_text(kind.value_type) or pa.types.is_primitive(kind.value_type)):
            raise _plainly(name, kind)
        lengths = pc.binary_length(array.dictionary).take(array.indices) if _is_text(kind.value_type) else None
        return count + (int(pc.sum(lengths).as_py() or 0) if lengths is not None else 0)
    if _is_text(kind):
        return count + int(pc.sum(pc.binary_length(array)).as_py() or 0)
    if pa.types.is_null(kind) or pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind):
        return count
    if pa.types.is_decimal(kind):
        return count
    raise _plainly(name, kind)


def _is_text(kind: pa.DataType) -> bool:
    return any(
        known(kind) for known in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    ) or pa.types.is_large_binary(kind)


def _plainly(name: str, kind: pa.DataType) -> BadBody:
    return BadBody(f"column {name} can't be sent as {kind}", place=name, remedy="cast it to a plain type")


def _unpacked_sizes(body: bytes) -> Iterator[int]:
    """Of each buffer that is compressed, as it says itself: eight bytes before its content."""
    for message in pa.ipc.MessageReader.open_stream(body):
        head = _Flat(message.metadata.to_pybytes())
        kind, header = head.number(head.root, 1, "<B"), head.table(head.root, 2)
        if kind == _DICTIONARY and header is not None:
            header = head.table(header, 1)
        if kind not in (_DICTIONARY, _BATCH) or header is None or head.table(header, 3) is None:
            continue
        for offset, length in head.pairs(header, 2):
            if length >= 8:
                yield max(0, struct.unpack_from("<q", message.body, offset)[0])


class _Flat:
    """As much of Flatbuffers as the head of a message needs: tables, numbers, and a vector of pairs."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.root = self._at("<I", 0)

    def _at(self, form: str, place: int) -> int:
        return int(struct.unpack_from(form, self.data, place)[0])

    def _field(self, table: int, number: int) -> int | None:
        known = table - self._at("<i", table)
        if 4 + 2 * number >= self._at("<H", known):
            return None
        offset = self._at("<H", known + 4 + 2 * number)
        return table + offset if offset else None

    def number(self, table: int, number: int, form: str) -> int:
        place = self._field(table, number)
        return 0 if place is None else self._at(form, place)

    def table(self, table: int, number: int) -> int | None:
        place = self._field(table, number)
        return None if place is None else place + self._at("<I", place)

    def pairs(self, table: int, number: int) -> Iterable[tuple[int, int]]:
        vector = self.table(table, number)
        if vector is None:
            return ()
        return [struct.unpack_from("<qq", self.data, vector + 4 + 16 * i) for i in range(self._at("<I", vector))]


# ---------------------------------------------------------------- values
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
        case list() if value and all(isinstance(one, tuple) and len(one) == 2 for one in value):
            return [{"key": _plain(key), "value": _plain(inner)} for key, inner in value]
        case list():
            return [_plain(inner) for inner in value]
    raise BadBody(f"a value of type {type(value).__name__} can't be sent")
