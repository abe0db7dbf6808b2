"""Values as a text says them: what JSON and CSV have no word for, and what Python's own dates can't hold.

A column that has nothing of the kind is left to whoever is quickest. Infinity, NaN, years beyond 9999 or before 1, a
day's 24:00 and intervals are texts here; none of them may become NULL, or another value, on the way.
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_DAY = 86_400
_DAYS = (-719_162, 2_932_896)
"""Python's: 0001-01-01 to 9999-12-31, counted from 1970."""
_PARTS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_ENDLESS = {2**63 - 1: "infinity", 1 - 2**63: "-infinity"}
_ENDLESS_DAYS = {2**31 - 1: "infinity", 1 - 2**31: "-infinity"}


def values(column: pa.Array) -> list[Any]:
    """For JSON: Python's values, and texts for the rest."""
    return [_value(one) for one in column] if odd(column) else column.to_pylist()


def odd(column: pa.Array) -> bool:
    """Whether there is a value in it that needs care."""
    kind = column.type
    if pa.types.is_floating(kind):
        return pc.all(pc.is_finite(column)).as_py() is False
    if pa.types.is_date32(kind):
        return _outside(column.cast(pa.int32()), *_DAYS)
    if pa.types.is_timestamp(kind):
        part = _PARTS[kind.unit] * _DAY
        return kind.unit != "ns" and _outside(column.cast(pa.int64()), _DAYS[0] * part, (_DAYS[1] + 1) * part - 1)
    if pa.types.is_time64(kind):
        return _outside(column.cast(pa.int64()), 0, _DAY * _PARTS[kind.unit] - 1)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return odd(column.flatten())
    if pa.types.is_struct(kind):
        return any(map(odd, column.flatten()))
    if pa.types.is_map(kind):
        return odd(column.keys) or odd(column.items)
    return bool(pa.types.is_interval(kind) or pa.types.is_union(kind))


def _outside(numbers: pa.Array, least: int, most: int) -> bool:
    found = pc.min_max(numbers).as_py()
    return found["min"] is not None and (found["min"] < least or found["max"] > most)


def _value(one: pa.Scalar) -> Any:
    if not one.is_valid:
        return None
    kind = one.type
    if pa.types.is_floating(kind):
        found = one.as_py()
        return found if math.isfinite(found) else "NaN" if math.isnan(found) else f"{'-' * (found < 0)}Infinity"
    if pa.types.is_date32(kind):
        return _ENDLESS_DAYS.get(one.value) or _date(one.value)
    if pa.types.is_timestamp(kind):
        return _ENDLESS.get(one.value) or _moment(one.value, _PARTS[kind.unit]) + ("Z" if kind.tz else "")
    if pa.types.is_time64(kind):
        return _time(one.value, _PARTS[kind.unit])
    if pa.types.is_interval(kind):
        return interval(*one.as_py())
    if pa.types.is_struct(kind):
        return {name: _value(part) for name, part in one.items()}
    if pa.types.is_map(kind):
        return [[_value(pair["key"]), _value(pair["value"])] for pair in one.values]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_value(part) for part in one.values]
    if pa.types.is_union(kind):
        return _value(one.value)
    return one.as_py()


def interval(months: int, days: int, nanoseconds: int) -> str:
    """ISO 8601: ``P1M2DT3S``. Months, days and seconds stay apart, because none is a number of another."""
    told = (f"{months}M" if months else "") + (f"{days}D" if days else "")
    if nanoseconds or not told:
        seconds, rest = divmod(abs(nanoseconds), 10**9)
        told += f"T{'-' * (nanoseconds < 0)}{seconds}{f'.{rest:09d}'.rstrip('0') if rest else ''}S"
    return f"P{told}"


def _moment(value: int, parts: int) -> str:
    days, rest = divmod(value, _DAY * parts)
    return f"{_date(days)}T{_time(rest, parts)}"


def _time(value: int, parts: int) -> str:
    seconds, rest = divmod(value, parts)
    told = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{told}.{rest * 10**6 // parts:06d}" if rest else told


def _date(days: int) -> str:
    """A day of the Gregorian calendar, in whatever year; that before the year 1 is 0."""
    era, day = divmod(days + 719_468, 146_097)  # eras of 400 years, which begin in March
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    year += era * 400 + (month >= 10)
    told = f"{year:04d}" if year >= 0 else f"-{-year:04d}"
    return f"{told}-{month + (3 if month < 10 else -9):02d}-{day - (153 * month + 2) // 5 + 1:02d}"
