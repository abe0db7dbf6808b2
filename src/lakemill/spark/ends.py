"""The smallest and the largest value of columns, and the condition that all their rows meet: it spares reading others.

Only for whole numbers: their order is the same in Spark, in the catalog's statistics and in Parquet, and Python holds
them all, which it does not do with far dates. A column in which NULL occurs tells nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column as Expr
from pyspark.sql import functions as F  # noqa: N812

from lakemill.core.schema import quote_spark

ORDERED = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"})
Ends = tuple[Any, Any] | None
"""Smallest and largest; None where nothing can be said."""


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
    return [None if low is None or nulls else (low, high) for low, high, nulls in threes]


def within(ends: Mapping[str, Ends]) -> str | None:
    """A condition in Spark SQL, by column; None where it would say nothing."""
    parts = [
        f"{quote_spark(name)} {sign} {end}"
        for name, found in ends.items()
        if found is not None
        for sign, end in zip((">=", "<="), found, strict=True)
    ]
    return " AND ".join(parts) or None
