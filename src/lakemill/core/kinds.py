"""What a JSON value must be to become a value of a column, and how it is then written: one type a DuckLake type.

msgspec knows most of it at C speed: numbers in their ranges, text, dates, bytes, UUIDs. What it would take too
generously (digits behind the point that a DECIMAL has no room for, nanoseconds, a zone too many) is checked here by a
hook, which gives the canonical text. Nothing is rounded, nothing is guessed, and what Spark or a file can't hold is
refused: years outside 1 to 9999, HUGEINT beyond 2^53, infinite times.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lakemill.core.schema import Column, duck_type

_BOUNDS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint8": (0, 2**8 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
}
_EXACT = 2**53  # HUGEINT is a DOUBLE in the files of a DuckLake
_WIDE = {"uint64": (0, 2**64 - 1), "int128": (-_EXACT, _EXACT), "uint128": (0, _EXACT)}
_LARGEST_FLOAT = 3.4028235677973366e38  # the first double that a cast to FLOAT would make infinite
_NAMED = Literal["NaN", "Infinity", "-Infinity"]
_NATIVE: dict[str, Any] = {
    "boolean": bool,
    "varchar": str,
    "date": date,
    "blob": bytes,
    "uuid": UUID,
    "float64": float | _NAMED,
    "float32": Annotated[float, Meta(gt=-_LARGEST_FLOAT, lt=_LARGEST_FLOAT)] | _NAMED,
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_DIGITS = re.compile(r"-?\d{1,40}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_CLOCK = r"\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?"
_TIME = re.compile(_CLOCK, re.ASCII)
_TIMESTAMP = re.compile(rf"\d{{4}}-\d\d-\d\d[T ]{_CLOCK}", re.ASCII)
_ZONED = re.compile(rf"\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(?:Z|[+-]\d\d(?::?\d\d)?)", re.ASCII)

_CANONICAL = (len("2026-01-31T12:00:00Z"), len("2026-01-31T12:00:00.000000Z"))

Check = Callable[[Any], Any]


class _Checked(type):
    """Whatever the check gives belongs to the type: msgspec asks."""

    check: Check

    def __instancecheck__(cls, value: object) -> bool:
        return True


def hook(kind: Any, value: Any) -> Any:
    """msgspec's ``dec_hook``: what it raises gets the path of the field."""
    return kind.check(value)


def exact(text: str) -> Decimal:
    """msgspec's ``float_hook``: a number with a point, as it is written."""
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError("the number is out of range") from None


def kind_of(column: Column, *, forbid: bool) -> Any:
    """The type that msgspec decodes a value of this column to; ``forbid``: structs refuse fields that they lack."""
    type_ = column.type
    if type_ == "struct":
        return struct_of(column.name, column.children, forbid=forbid)
    if type_ == "list":
        return list[kind_of(column.children[0], forbid=forbid) | None]  # type: ignore[misc]
    if type_ == "map":
        key, value = (kind_of(child, forbid=forbid) for child in column.children)
        return _checked(column, _map(column, key, value))
    if type_ in _NATIVE:
        return _NATIVE[type_]
    if type_ in _BOUNDS:
        low, high = _BOUNDS[type_]
        return Annotated[int, Meta(ge=low, le=high)]
    if type_ in _WIDE:
        return _checked(column, _wide(*_WIDE[type_]))
    if match := _DECIMAL.fullmatch(type_):
        return _checked(column, _decimal(int(match[1]), int(match[2])))
    if type_ in _TIMES:
        return _checked(column, _TIMES[type_])
    if type_ == "json":
        return _checked(column, _document)
    duck_type(column)  # raises: a type that we can't hold
    raise AssertionError(type_)


def struct_of(
    name: str, columns: tuple[Column, ...], *, forbid: bool, required: frozenset[str] = frozenset()
) -> type[msgspec.Struct]:
    """An object with these fields, in this order; ``required`` are neither NULL nor missing."""
    fields: list[tuple[str, Any, Any]] = []
    for number, column in enumerate(columns):
        kind = kind_of(column, forbid=forbid)
        if column.name in required:
            fields.append((f"f{number}", kind, msgspec.NODEFAULT))
        else:
            fields.append((f"f{number}", kind | None | UnsetType, UNSET))
    names = {f"f{number}": column.name for number, column in enumerate(columns)}
    return msgspec.defstruct(name or "row", fields, rename=names, forbid_unknown_fields=forbid, kw_only=True, gc=False)


def _checked(column: Column, check: Check) -> Any:
    return _Checked(column.type, (), {"check": staticmethod(check)})


# ---------------------------------------------------------------- numbers
def _wide(low: int, high: int) -> Check:
    def check(value: Any) -> str:
        if type(value) is str and _DIGITS.fullmatch(value):
            value = int(value)
        if type(value) is not int:
            raise ValueError("")
        if not low <= value <= high:
            raise ValueError("out of range")
        return str(value)

    return check


def _decimal(width: int, scale: int) -> Check:
    step = Decimal((0, (1,), -scale))
    context = Context(prec=width, traps=[Inexact, InvalidOperation])
    zero = format(step - step, "f")
    behind = rf"\.\d{{{scale}}}" if scale else ""
    before = rf"[1-9]\d{{0,{width - scale - 1}}}" if width > scale else "0"
    as_is = re.compile(before + behind, re.ASCII).fullmatch  # the usual case, in a third of the time

    def check(value: Any) -> str:
        kind = type(value)
        if kind is str:
            if as_is(value):
                return str(value)
            if not _NUMBER.fullmatch(value):
                raise ValueError("")
            value = Decimal(value)
        elif kind is int:
            value = Decimal(value)
        elif kind is not Decimal:
            raise ValueError("")
        try:
            fixed = value.quantize(step, context=context)
        except Inexact:
            raise ValueError(f"more than {scale} digits behind the point") from None
        except InvalidOperation:
            raise ValueError(f"more than {width - scale} digits before the point") from None
        return format(fixed, "f") if fixed else zero

    return check


# ---------------------------------------------------------------- times
def _timestamp(resolution: int) -> Check:
    def check(value: Any) -> str:
        if type(value) is not str or not _TIMESTAMP.fullmatch(value):
            raise ValueError("it has a zone" if type(value) is str and _ZONED.fullmatch(value) else "")
        found = datetime.fromisoformat(value)
        if found.microsecond % resolution:
            raise ValueError("finer than the column")
        return found.isoformat()

    return check


def _timestamptz(value: Any) -> str:
    if type(value) is not str or not _ZONED.fullmatch(value):
        raise ValueError("it has no zone" if type(value) is str and _TIMESTAMP.fullmatch(value) else "")
    found = datetime.fromisoformat(value)
    if len(value) in _CANONICAL and value[-1] == "Z" and value[10] == "T" and (len(value) == 20 or found.microsecond):
        return value
    try:
        return found.astimezone(UTC).isoformat()[:-6] + "Z"
    except OverflowError:
        raise ValueError("out of range") from None


def _time(value: Any) -> str:
    if type(value) is not str or not _TIME.fullmatch(value):
        raise ValueError("")
    return time.fromisoformat(value).isoformat()


_TIMES: dict[str, Check] = {
    "timestamp": _timestamp(1),
    "timestamp_us": _timestamp(1),
    "timestamp_ms": _timestamp(1000),
    "timestamp_s": _timestamp(1_000_000),
    "timestamptz": _timestamptz,
    "time": _time,
}


# ---------------------------------------------------------------- what holds others
_documents = msgspec.json.Encoder(decimal_format="number")


def _document(value: Any) -> str:
    """A JSON column holds the document as text, its numbers as they were written."""
    if value is None:
        raise ValueError("")
    return _documents.encode(value).decode()


def _map(column: Column, key: Any, value: Any) -> Check:
    """A map is an array of keys and values; an object too, where the keys are text."""
    entry = msgspec.defstruct(
        "entry", [("key", key), ("value", value | None, None)], forbid_unknown_fields=True, gc=False
    )
    decoder = msgspec.json.Decoder(list[entry], dec_hook=hook, float_hook=exact)  # type: ignore[valid-type]
    texts = column.children[0].type == "varchar"

    def check(given: Any) -> Any:
        if type(given) is dict and texts:
            given = [{"key": name, "value": inner} for name, inner in given.items()]
        if type(given) is not list:
            raise ValueError("")
        entries: list[Any] = decoder.decode(_documents.encode(given))
        if len({_documents.encode(one.key) for one in entries}) < len(entries):
            raise ValueError("a key occurs twice")
        return entries

    return check
