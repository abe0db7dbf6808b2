"""Smallest and largest values in a Parquet footer → the text that the catalog has for them, as DuckDB writes it. Pure.

For ``lake/footer``, from both of its sources: DuckDB gives a bound as text already, a footer that we read ourselves as
bytes. Exact or absent: what is not a finite value, or can't be held by PostgreSQL, is None; a type or a value that this
module does not know for certain raises ``Unknown``, and then DuckDB is asked.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, timedelta
from functools import partial
from math import isfinite
from typing import TypeAlias
from uuid import UUID

from lakemill.core.schema import blob_bytes
from lakemill.lake.thrift import Struct

Decoder: TypeAlias = Callable[[bytes], str | None]

_NO_BOUNDS = frozenset({"int128", "uint128"})  # DOUBLE in the file; DuckDB keeps no bounds for them either
_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAY = 86_400_000_000


class Unknown(Exception):
    """Nothing to guess at."""


# ---------------------------------------------------------------- as DuckDB tells it
def from_duckdb(type_: str, item: str | None) -> str | None:
    """A bound as ``parquet_metadata`` shows it, in the form of the catalog."""
    if item is None or "\x00" in item or type_ in _NO_BOUNDS:
        return None
    match type_:
        case "boolean":
            return "1" if item == "true" else "0"
        case "blob":
            return blob_bytes(item).hex().upper()
        case "uuid":
            return _uuid(blob_bytes(item))
    return item


# ---------------------------------------------------------------- as the file has it
# Numbers of parquet.thrift: physical types, and what an element of the schema says a value means. Old-style meanings
# (converted types) count where they are the only ones; times don't, because there they don't say whether it is in UTC.
_BOOLEAN, _INT32, _INT64, _FLOAT, _DOUBLE, _BYTES, _FIXED = 0, 1, 2, 4, 5, 6, 7
_MEANINGS = {1: "text", 5: "decimal", 6: "date", 7: "time", 8: "timestamp", 10: "integer", 12: "text"}
_OLD_MEANINGS = {0: "text", 5: "decimal", 6: "date", 19: "text"} | dict.fromkeys((15, 16, 17, 18), "integer")

_ONLY_AS_THEMSELVES = frozenset({"boolean", "blob", "uuid"})


def decoder(type_: str, element: Struct) -> Decoder:
    """How to read bounds of a DuckLake type from a file whose schema has this element for the column."""
    if type_ in _NO_BOUNDS:
        return _none
    physical = element.get(1, -1)
    meaning, details = _meaning(element)
    if meaning == "plain" and (physical in (_BYTES, _BOOLEAN) or type_ == "boolean"):
        meaning = type_  # bytes alone don't say what they are
    found = _DECODERS.get((physical, meaning))
    if found is None or (meaning != type_ and not {meaning, type_}.isdisjoint(_ONLY_AS_THEMSELVES)):
        raise Unknown(f"{type_} as {element}")
    match meaning:
        case "integer" if details and not details.get(2):  # unsigned
            raise Unknown(f"{type_} as {element}")
        case "time" | "timestamp" if 2 not in details.get(2, ()):  # not in microseconds
            raise Unknown(f"{type_} as {element}")
        case "timestamp" if details[1]:
            return lambda raw: _timestamp(raw) + "+00"
        case "decimal":
            scale = details[1] if details else element.get(7) or 0
            return partial(_decimal, scale=scale, whole=physical in (_INT32, _INT64))
    return found


def _meaning(element: Struct) -> tuple[str, Struct]:
    """What a value is, as far as it is known here, and the details of a logical type."""
    if logical := element.get(10):
        number, details = next(iter(logical.items()))
        return _MEANINGS.get(number, "?"), details
    if (converted := element.get(6)) is not None:
        return _OLD_MEANINGS.get(converted, "?"), {}
    return "plain", {}


def _none(_: bytes) -> None:
    return None


def _boolean(raw: bytes) -> str:
    return "1" if raw[0] else "0"


def _number(raw: bytes) -> int:
    if len(raw) not in (4, 8):
        raise Unknown(f"{len(raw)} bytes")
    return int.from_bytes(raw, "little", signed=True)


def _integer(raw: bytes) -> str:
    return str(_number(raw))


def _decimal(raw: bytes, scale: int = 0, *, whole: bool = True) -> str:
    number = _number(raw) if whole else int.from_bytes(raw, "big", signed=True)
    digits = str(abs(number)).rjust(scale + 1, "0")
    sign = "-" if number < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else sign + digits


def _real(form: str, raw: bytes) -> float:
    try:
        return float(struct.unpack(form, raw)[0])
    except struct.error as error:
        raise Unknown(f"{len(raw)} bytes") from error


def _double(raw: bytes) -> str | None:
    number = _real("<d", raw)
    return repr(number) if isfinite(number) else None


def _float(raw: bytes) -> str | None:
    number = _real("<f", raw)
    if not isfinite(number):
        return None
    for digits in range(1, 9):
        short = float(f"{number:.{digits}g}")
        with suppress(OverflowError):
            if struct.pack("<f", short) == raw:
                return repr(short)  # the shortest text that is this number
    return repr(float(f"{number:.9g}"))


def _date(raw: bytes) -> str:
    try:
        return date.fromordinal(_EPOCH_DAY + _number(raw)).isoformat()
    except (ValueError, OverflowError) as error:  # before year 1, after 9999, infinite
        raise Unknown("a date beyond Python's") from error


def _timestamp(raw: bytes) -> str:
    try:
        return _trimmed((_EPOCH + timedelta(microseconds=_number(raw))).isoformat(" "))
    except OverflowError as error:
        raise Unknown("a timestamp beyond Python's") from error


def _time(raw: bytes) -> str:
    micros = _number(raw)
    if not 0 <= micros < _DAY:
        raise Unknown("24:00:00")
    return _trimmed((_EPOCH + timedelta(microseconds=micros)).time().isoformat())


def _trimmed(text: str) -> str:
    return text.rstrip("0") if "." in text else text


def _text(raw: bytes) -> str | None:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else text


def _blob(raw: bytes) -> str:
    return raw.hex().upper()


def _uuid(raw: bytes) -> str | None:
    return str(UUID(bytes=raw)) if len(raw) == 16 else None


_DECODERS: dict[tuple[int, str], Decoder] = {
    (_BOOLEAN, "boolean"): _boolean,
    (_INT32, "plain"): _integer,
    (_INT64, "plain"): _integer,
    (_INT32, "integer"): _integer,
    (_INT64, "integer"): _integer,
    (_FLOAT, "plain"): _float,
    (_DOUBLE, "plain"): _double,
    (_INT32, "decimal"): _decimal,
    (_INT64, "decimal"): _decimal,
    (_BYTES, "decimal"): _decimal,
    (_FIXED, "decimal"): _decimal,
    (_INT32, "date"): _date,
    (_INT64, "time"): _time,
    (_INT64, "timestamp"): _timestamp,
    (_BYTES, "text"): _text,
    (_BYTES, "blob"): _blob,
    (_BYTES, "uuid"): _uuid,
}
