"""The ranges that the values of columns lie in, and the condition that all their rows meet: it spares reading others.

Only for whole numbers: their order is the same in Spark, in the catalog's statistics and in Parquet, and Python holds
them all, which it does not do with far dates. A column in which NULL occurs tells nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from lakemill.core.schema import quote_spark

ORDERED = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"})
Ends = tuple[tuple[Any, Any], ...] | None
"""Ranges, each with its smallest and its largest value; None where nothing can be said."""
BUCKETS = 64
DRIVER_KEYS = 10_000


def ends_of(values: Sequence[Expr], rows: Expr | None = None) -> list[Expr]:
    """Three aggregates per value; ``rows``: only those count."""
    counted = F.lit(True) if rows is None else rows
    return [
        aggregate
        for value in values
        for aggregate in (F.min(value), F.max(value), F.count(F.when(counted & value.isNull(), 1)))
    ]


def read_ends(row: Sequence[Any]) -> list[Ends]:
    """What ``ends_of`` gave, value by value."""
    threes = [row[i : i + 3] for i in range(0, len(row), 3)]
    return [None if nulls else () if low is None else ((low, high),) for low, high, nulls in threes]


def few_ends(frame: DataFrame, names: Sequence[str]) -> dict[str, Ends] | None:
    """The ranges of columns that few rows have, as the driver finds them: one job; None where there are many rows."""
    found = frame.select(*map(quote_spark, names)).coalesce(1).limit(DRIVER_KEYS + 1).toArrow()
    if found.num_rows > DRIVER_KEYS:
        return None
    ends: dict[str, Ends] = {}
    for name, values in zip(names, found.columns, strict=True):
        keys = sorted(set(values.to_pylist())) if values.null_count == 0 else None
        if keys is None:
            ends[name] = None
            continue
        gaps = sorted((high - low for low, high in pairwise(keys)), reverse=True)
        ends[name] = joined(((key, key) for key in keys), nearer=max(2, gaps[BUCKETS] if len(gaps) > BUCKETS else 2))
    return ends


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
    for low, high in sorted(ranges):
        if found and low - found[-1][1] < nearer:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return tuple(found)


def within(ends: Mapping[str, Ends]) -> str | None:
    """A condition in Spark SQL, by column; None where it would say nothing."""
    parts = []
    for name, found in ends.items():
        if found is not None:
            ranges = [f"{quote_spark(name)} BETWEEN {low} AND {high}" for low, high in found] or ["1 = 0"]
            parts.append(ranges[0] if len(ranges) == 1 else f"({' OR '.join(ranges)})")
    return " AND ".join(parts) or None
