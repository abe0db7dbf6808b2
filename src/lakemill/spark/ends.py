"""The ranges that the values of columns lie in, and the condition that all their rows meet: it spares reading others.

For whole numbers, texts and days: their order is the same in Spark, in the catalog's statistics and in Parquet. Days
travel as texts, because Python has none before the year 1. A column in which NULL occurs tells nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from lakemill.core.schema import quote_spark

NUMBERS = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)
ORDERED = (*NUMBERS, t.StringType, t.DateType)
Ends = tuple[tuple[Any, Any], ...] | None
"""Ranges, each with its smallest and its largest value: numbers, or texts and days as SQL spells them (``Word``).

None where nothing can be said.
"""
BUCKETS = 64
DRIVER_KEYS = 10_000
LONGEST = 200
NOTHING = "1 = 0"
"""The condition that no row meets."""
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Word(str):
    """A text or a day, as a literal of Spark SQL."""

    __slots__ = ()


def plain(name: str, type_: t.DataType) -> str:
    """A column, in SQL, as the driver can hold its values."""
    value = quote_spark(name)
    return f"CAST({value} AS STRING)" if isinstance(type_, t.DateType) else value


def spelled(value: Any, type_: t.DataType) -> Any:
    """Such a value in a condition; None where it is not plainly the same in all parsers."""
    if isinstance(type_, t.DateType):
        return Word(f"DATE '{value}'") if _DAY.fullmatch(value) else None
    if isinstance(type_, t.StringType):
        strange = len(value) > LONGEST or not value.isprintable() or "'" in value or "\\" in value
        return None if strange else Word(f"'{value}'")
    return value


def ends_of(values: Sequence[str], rows: str = "true") -> list[str]:
    """Three aggregates per value, in SQL; ``rows``: only those count. (What is observed may have no FILTER.)"""
    counted = [
        (f"CASE WHEN {rows} THEN {value} END", f"CASE WHEN {rows} AND {value} IS NULL THEN 1 END") for value in values
    ]
    return [
        aggregate for value, missing in counted for aggregate in (f"min({value})", f"max({value})", f"count({missing})")
    ]


def read_ends(row: Sequence[Any], kinds: Sequence[t.DataType]) -> list[Ends]:
    """What ``ends_of`` gave, value by value."""
    threes = [row[i : i + 3] for i in range(0, len(row), 3)]
    found: list[Ends] = []
    for (low, high, nulls), type_ in zip(threes, kinds, strict=True):
        if nulls or low is None:
            found.append(None if nulls else ())
            continue
        pair = (spelled(low, type_), spelled(high, type_))
        found.append(None if None in pair else (pair,))
    return found


def few_ends(frame: DataFrame, kinds: Mapping[str, t.DataType]) -> dict[str, Ends] | None:
    """The ranges of columns that few rows have, as the driver finds them: one job; None where there are many rows."""
    values = [f"{plain(name, type_)} AS k{i}" for i, (name, type_) in enumerate(kinds.items())]
    found = frame.selectExpr(*values).coalesce(1).limit(DRIVER_KEYS + 1).toArrow()
    if found.num_rows > DRIVER_KEYS:
        return None
    return {name: _of_few(column, kinds[name]) for name, column in zip(kinds, found.columns, strict=True)}


def stated(found: Iterable[tuple[int | None, int | None, str | None, str | None]], type_: t.DataType) -> Ends:
    """What the catalog knows of a column in some files, of each: how many values and NULLs, and the bounds as text."""
    pairs = []
    for values, nulls, low, high in found:
        if nulls != 0 or (values != 0 and (low is None or high is None)):
            return None
        if low is not None and high is not None:
            whole = isinstance(type_, NUMBERS)
            pairs.append((int(low), int(high)) if whole else (spelled(low, type_), spelled(high, type_)))
    if any(None in pair for pair in pairs):
        return None
    ranges = joined(pairs) or ()
    if len(ranges) <= BUCKETS:
        return ranges
    return joined(ranges, nearer=_nearer(ranges)) if isinstance(type_, NUMBERS) else None


def _nearer(ranges: Sequence[tuple[int, int]]) -> int:
    """Ranges that are nearer than this to each other are put together, so that ``BUCKETS`` are left at most."""
    gaps = sorted((low - high for (_, high), (low, _) in pairwise(ranges)), reverse=True)
    return gaps[BUCKETS - 1] + 1 if len(gaps) >= BUCKETS else 2


def _of_few(values: pa.ChunkedArray, type_: t.DataType) -> Ends:
    if values.null_count:
        return None
    keys = sorted(set(values.to_pylist()))
    if isinstance(type_, NUMBERS):
        ranges = [(key, key) for key in keys]
        return joined(ranges, nearer=_nearer(ranges))
    words = [spelled(key, type_) for key in keys]
    return None if None in words or len(words) > BUCKETS else tuple((word, word) for word in words)


def apart(frame: DataFrame, name: str, ends: Ends) -> Ends:
    """Several ranges instead of a wide one, where there is nothing in between: one job."""
    if not ends or ends[-1][1] - ends[0][0] < BUCKETS:
        return ends
    (low, high), value = (ends[0][0], ends[-1][1]), F.col(quote_spark(name)).cast("decimal(38,0)")
    width = (high - low) // BUCKETS + 1
    buckets = frame.groupBy(F.floor((value - F.lit(low)) / F.lit(width)).alias("bucket"))
    found = buckets.agg(F.min(quote_spark(name)), F.max(quote_spark(name))).collect()
    return joined([(first, last) for _, first, last in found], nearer=width)


def joined(ranges: Iterable[tuple[Any, Any]], nearer: int = 2) -> Ends:
    """Ranges in order, those that overlap or are nearer than this put together."""
    found: list[tuple[Any, Any]] = []
    for low, high in sorted(set(ranges)):
        if found and not isinstance(low, Word) and low - found[-1][1] < nearer:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return tuple(found)


def together(parts: Iterable[Ends]) -> Ends:
    """What holds for all parts of the rows."""
    found = list(parts)
    return None if None in found else joined(pair for ends in found for pair in ends or ())


def within(ends: Mapping[str, Ends]) -> str | None:
    """A condition in Spark SQL, by column; None where it would say nothing."""
    if () in ends.values():
        return NOTHING
    parts = []
    for name, found in ends.items():
        if found is not None:
            column = quote_spark(name)
            if all(isinstance(low, Word) and low == high for low, high in found):
                parts.append(f"{column} IN ({', '.join(low for low, _ in found)})")
                continue
            ranges = [f"{column} BETWEEN {low} AND {high}" for low, high in found]
            parts.append(ranges[0] if len(ranges) == 1 else f"({' OR '.join(ranges)})")
    return " AND ".join(parts) or None
