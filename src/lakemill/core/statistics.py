"""Statistics of files and of tables, and how a publish changes them. Pure.

DuckDB answers MIN and MAX from the table's statistics and prunes with them, so they are *exact or absent*; absent means
no row for that column, for ever: a NULL bound would be replaced by the bounds of DuckDB's next file alone.
Values are text in DuckLake's own form; they are compared here by type, because text order is not value order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import TypeAlias

FLOATS = frozenset({"float32", "float64"})
_WHOLE = re.compile(r"u?int\d+|decimal\(.*\)")
_DATE = r"(?P<year>\d+)-(?P<month>\d\d)-(?P<day>\d\d)"
_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d+))?"
_MOMENT = re.compile(rf"(?:{_DATE})?(?: ?{_TIME})?(?:\+00(?::00)?)?(?P<bc> \(BC\))?")

SortKey: TypeAlias = Decimal | str | bool | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FileColumn:
    """What a file's footer says of one leaf column; a bound that is None although there are values is unknown."""

    column_id: int
    type: str
    size_bytes: int | None = None
    value_count: int | None = None
    null_count: int | None = None
    min: str | None = None
    max: str | None = None
    contains_nan: bool | None = None


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One row of ``ducklake_table_column_stats``."""

    column_id: int
    contains_null: bool | None
    contains_nan: bool | None
    min: str | None
    max: str | None


@dataclass(frozen=True, slots=True)
class StatisticsChange:
    """What becomes of a table's column statistics: rows to insert, to overwrite, and to remove for ever."""

    inserted: tuple[TableColumn, ...] = ()
    updated: tuple[TableColumn, ...] = ()
    removed: tuple[int, ...] = ()


def merge_statistics(
    before: Mapping[int, TableColumn] | None, added: Sequence[Sequence[FileColumn]]
) -> StatisticsChange:
    """The change that adding these files makes. ``before`` is None when the table never had statistics.

    A column without a row in a table that has statistics stays without one: its older values are unknown.
    """
    known: dict[int, list[FileColumn]] = {}
    for columns in added:
        for column in columns:
            known.setdefault(column.column_id, []).append(column)
    inserted, updated, removed = [], [], []
    for column_id, columns in known.items():
        new = _combine(columns) if len(columns) == len(added) else None
        if before is None:
            if new is not None:
                inserted.append(new)
            continue
        old = before.get(column_id)
        if old is None:
            continue
        merged = _extend(old, new, columns[0].type)
        if merged is None:
            removed.append(column_id)
        elif merged != old:
            updated.append(merged)
    if before is not None and added:
        removed.extend(column_id for column_id in before if column_id not in known)
    return StatisticsChange(tuple(inserted), tuple(updated), tuple(removed))


def _combine(columns: Sequence[FileColumn]) -> TableColumn | None:
    """One column over all new files; None when its bounds are not known exactly."""
    contains_null = _any_true([None if c.null_count is None else c.null_count > 0 for c in columns])
    contains_nan = _any_true([c.contains_nan for c in columns])
    with_values = [c for c in columns if c.value_count != 0]
    head = columns[0]
    if not with_values:
        return TableColumn(head.column_id, contains_null, contains_nan, None, None)
    low = extreme(head.type, [c.min for c in with_values], largest=False)
    high = extreme(head.type, [c.max for c in with_values], largest=True)
    if low is None or high is None:
        return None
    return TableColumn(head.column_id, contains_null, contains_nan, low, high)


def _extend(old: TableColumn, new: TableColumn | None, type_: str) -> TableColumn | None:
    if new is None:
        return None
    contains_null = _any_true([old.contains_null, new.contains_null])
    contains_nan = _any_true([old.contains_nan, new.contains_nan])
    if new.min is None or new.max is None:
        return TableColumn(old.column_id, contains_null, contains_nan, old.min, old.max)
    if old.min is None or old.max is None:
        # either every value so far was NULL, or DuckDB lost the bounds: the row does not say which
        return None
    low = extreme(type_, [old.min, new.min], largest=False)
    high = extreme(type_, [old.max, new.max], largest=True)
    if low is None or high is None:
        return None
    return TableColumn(old.column_id, contains_null, contains_nan, low, high)


def _any_true(flags: Sequence[bool | None]) -> bool | None:
    """True, False, or None as soon as one is not known (that is how DuckDB merges them)."""
    return None if None in flags else any(flags)


def extreme(type_: str, texts: Sequence[str | None], *, largest: bool) -> str | None:
    """The smallest or largest text by value; None when one is missing or can't be compared."""
    best: tuple[SortKey, str] | None = None
    for text in texts:
        key = sort_key(type_, text) if text is not None else None
        if text is None or key is None:
            return None
        if best is None or (key > best[0] if largest else key < best[0]):  # type: ignore[operator]
            best = (key, text)
    return best[1] if best else None


@lru_cache(maxsize=4096)  # each bound is compared in its file, in its commit, and with the table's
def sort_key(type_: str, text: str) -> SortKey | None:
    """A value that orders as DuckDB orders the type; None for text that this version can't place."""
    if type_ == "boolean":
        return text.lower() in ("true", "1", "t")
    if type_ in FLOATS or _WHOLE.fullmatch(type_):
        try:
            number = Decimal(text)
        except InvalidOperation:
            return None
        return None if number.is_nan() else number
    if type_ == "date" or type_.startswith("time"):
        return _moment_key(text)
    return text


def _moment_key(text: str) -> tuple[int, ...] | None:
    if text in ("infinity", "-infinity"):
        return (-1,) if text.startswith("-") else (1,)
    match = _MOMENT.fullmatch(text)
    if match is None:
        return None
    part = match.groupdict()
    year = int(part["year"] or 0)
    if part["bc"]:
        year = 1 - year
    rest = (int(part[name] or 0) for name in ("month", "day", "hour", "minute", "second"))
    return (0, year, *rest, int((part["fraction"] or "").ljust(9, "0")))
