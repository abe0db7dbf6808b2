"""An answer's rows as bytes of one format, batch by batch: JSON, Arrow, CSV or Parquet.

Each is a head, a piece for every batch, and a tail; nothing holds more than one batch. What a format can't say is
refused before its head is sent.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from lakemill.api import plain
from lakemill.errors import BadArgument

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
MEDIA: Mapping[str, str] = {"json": "application/json", "arrow": ARROW, "csv": "text/csv", "parquet": PARQUET}


class Format(Protocol):
    def head(self) -> bytes: ...

    def piece(self, batch: pa.RecordBatch) -> bytes: ...

    def tail(self, statistics: Mapping[str, Any]) -> bytes: ...


class Json:
    """One object: what ``about`` says, ``rows`` as lists in the order of the columns, then ``statistics``.

    Decimals and integers beyond 64 bits are texts, so that no reader rounds them; times are ISO 8601, bytes base64;
    what JSON has no number for, such as NaN, is a text (``api/plain``). A map is a list of pairs.
    """

    def __init__(self, about: Mapping[str, Any]) -> None:
        self._about, self._first = about, True
        self._encode = msgspec.json.Encoder(decimal_format="string", enc_hook=_text).encode

    def head(self) -> bytes:
        return self._encode(self._about)[:-1] + b',"rows":['

    def piece(self, batch: pa.RecordBatch) -> bytes:
        if batch.num_rows == 0:
            return b""
        rows = list(zip(*map(plain.values, batch.columns), strict=True)) if batch.num_columns else []
        text = self._encode(rows)[1:-1]
        text, self._first = text if self._first else b"," + text, False
        return text

    def tail(self, statistics: Mapping[str, Any]) -> bytes:
        return b'],"statistics":' + self._encode(statistics) + b"}"


def _text(value: Any) -> str:
    return str(value.isoformat() if hasattr(value, "isoformat") else value)  # nanoseconds are pandas' own


class _Taken(io.RawIOBase):
    """A file that only grows, and whose new bytes are taken away."""

    def __init__(self) -> None:
        self._bytes, self._at = bytearray(), 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._bytes += data
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at

    def take(self) -> bytes:
        taken, self._bytes = bytes(self._bytes), bytearray()
        return taken


class Written:
    """What pyarrow writes into a file: Arrow's stream, Parquet. Their metadata `lakemill` has the statistics, too."""

    def __init__(self, schema: pa.Schema, open_: Callable[[Any, pa.Schema], Any]) -> None:
        self._file = _Taken()
        self._last: pa.RecordBatch
        """There is one, if of no rows."""
        with _held():
            self._writer = open_(self._file, schema)

    def head(self) -> bytes:
        return self._file.take()

    def piece(self, batch: pa.RecordBatch) -> bytes:
        self._writer.write_batch(batch)
        self._last = batch
        return self._file.take()

    def tail(self, statistics: Mapping[str, Any]) -> bytes:
        told = {"lakemill": json.dumps({"statistics": statistics}, default=str)}
        if isinstance(self._writer, pq.ParquetWriter):
            self._writer.add_key_value_metadata(told)
        else:  # with a batch of no rows: those that are sent can't be told any more
            self._writer.write_batch(self._last.slice(0, 0), custom_metadata=told)
        self._writer.close()
        return self._file.take()


class Csv:
    """Bytes are base64, intervals ISO 8601, and times that are beyond Arrow's words as JSON has them."""

    def __init__(self, schema: pa.Schema) -> None:
        self._head = io.BytesIO()
        with _held():
            pcsv.write_csv(pa.schema([_in_csv(field) for field in schema]).empty_table(), self._head)

    def head(self) -> bytes:
        return self._head.getvalue()

    def piece(self, batch: pa.RecordBatch) -> bytes:
        out = io.BytesIO()
        columns = [_csv_column(column) for column in batch.columns]
        names = [str(number) for number in range(len(columns))]  # a name may be there twice
        pcsv.write_csv(pa.table(columns, names), out, pcsv.WriteOptions(include_header=False))
        return out.getvalue()

    def tail(self, statistics: Mapping[str, Any]) -> bytes:
        return b""


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _in_csv(field: pa.Field) -> pa.Field:
    return field.with_type(pa.string()) if _is_bytes(field.type) or pa.types.is_interval(field.type) else field


def _csv_column(column: pa.Array) -> pa.Array:
    if _is_bytes(column.type):
        encoded = (None if value is None else base64.b64encode(value).decode() for value in column.to_pylist())
        return pa.array(encoded, pa.string())
    if (pa.types.is_temporal(column.type) or pa.types.is_interval(column.type)) and plain.odd(column):
        space = " " if pa.types.is_timestamp(column.type) else "T"  # as Arrow writes the others
        told = (None if v is None else str(v).replace("T", space) for v in plain.values(column))
        return pa.array(told, pa.string())
    return column


@contextmanager
def _held() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        told = str(error).splitlines()[0]
        raise BadArgument(f"this format can't hold the columns: {told}", remedy="ask for Arrow or JSON") from error


def writer(name: str, schema: pa.Schema, about: Mapping[str, Any]) -> Format:
    match name:
        case "arrow":
            described = schema.with_metadata({"lakemill": json.dumps(about, default=str)})
            return Written(described, pa.ipc.new_stream)
        case "csv":
            return Csv(schema)
        case "parquet":
            return Written(schema, pq.ParquetWriter)
    return Json(about)


def chosen(asked: str | None, accept: str) -> str:
    """The format that a request wants: its own word first, then what it accepts; JSON where it says nothing."""
    if asked is not None:
        return asked
    wanted = []
    for part in accept.split(","):
        kind, *parameters = (word.strip().lower() for word in part.split(";"))
        found = next((name for name, media in MEDIA.items() if media == kind), None)
        if found is not None and (weight := _weight(parameters)) > 0:
            wanted.append((weight, found))
    return max(wanted, key=lambda one: one[0])[1] if wanted else "json"


def _weight(parameters: list[str]) -> float:
    """How much it is wanted (RFC 9110): ``q=0.5``, by default 1."""
    try:
        return next((float(word[2:]) for word in parameters if word.startswith("q=")), 1.0)
    except ValueError:
        return 1.0
