"""An answer's rows as bytes of one format, batch by batch: JSON, Arrow, CSV or Parquet.

Each is a head, a piece for every batch, and a tail; nothing holds more than one batch. What a format can't say is
refused before its head is sent.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

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

    Decimals and integers beyond 64 bits are texts, so that no reader rounds them; times are ISO 8601, bytes base64.
    """

    def __init__(self, about: Mapping[str, Any]) -> None:
        self._about, self._first = about, True
        self._encode = msgspec.json.Encoder(decimal_format="string", enc_hook=str).encode

    def head(self) -> bytes:
        return self._encode(self._about)[:-1] + b',"rows":['

    def piece(self, batch: pa.RecordBatch) -> bytes:
        if batch.num_rows == 0:
            return b""
        rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True)) if batch.num_columns else []
        text = self._encode(rows)[1:-1]
        text, self._first = text if self._first else b"," + text, False
        return text

    def tail(self, statistics: Mapping[str, Any]) -> bytes:
        return b'],"statistics":' + self._encode(statistics) + b"}"


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
    """What pyarrow writes into a file: Arrow's stream, CSV, Parquet."""

    def __init__(self, schema: pa.Schema, open_: Callable[[Any, pa.Schema], Any]) -> None:
        self._file = _Taken()
        try:
            self._writer = open_(self._file, schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            told = str(error).splitlines()[0]
            raise BadArgument(f"this format can't hold the columns: {told}", remedy="ask for Arrow or JSON") from error

    def head(self) -> bytes:
        return self._file.take()

    def piece(self, batch: pa.RecordBatch) -> bytes:
        self._writer.write_batch(batch)
        return self._file.take()

    def tail(self, statistics: Mapping[str, Any]) -> bytes:
        self._writer.close()
        return self._file.take()


def _csv(file: Any, schema: pa.Schema) -> pcsv.CSVWriter:
    pcsv.write_csv(schema.empty_table(), pa.BufferOutputStream())  # refuses what it can't write
    return pcsv.CSVWriter(file, schema)


def writer(name: str, schema: pa.Schema, about: Mapping[str, Any]) -> Format:
    match name:
        case "arrow":
            described = schema.with_metadata({"lakemill": json.dumps(about, default=str)})
            return Written(described, pa.ipc.new_stream)
        case "csv":
            return Written(schema, _csv)
        case "parquet":
            return Written(schema, pq.ParquetWriter)
    return Json(about)


def chosen(asked: str | None, accept: str) -> str:
    """The format that a request wants: its own word first, then what it accepts; JSON where it says nothing."""
    if asked is not None:
        return asked
    accepted = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    return next((name for kind in accepted for name, media in MEDIA.items() if media == kind), "json")
