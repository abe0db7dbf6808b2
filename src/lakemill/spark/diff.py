"""From signed rows to what is written: which rows of the table go, and which come.

A refresh's signed rows are staged once (``spark/changes``); everything here reads that file. A row that goes is found
in the table by its values, as many copies of it as its weight says and never more: bit by bit, or, where that does not
find them all, with a tolerance for floats, because a sum that is computed again in another order need not have the same
last bit. As many rows must be found as were looked for; where they are not, the caller computes the table whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from lakemill.core.algebra import WEIGHT
from lakemill.core.schema import Column, quote_spark
from lakemill.spark.ends import ORDERED, ends_of, read_ends, within
from lakemill.spark.positions import FILE_ID, POSITION

TOLERANCE = 1e-9
_FLOATS = ("float32", "float64")
_ID, _RANK = "__diff_id", "__rank"


@dataclass(frozen=True, slots=True)
class Size:
    """How many rows come and go, and a condition, in Spark SQL, that every row that goes meets."""

    inserted: int
    deleted: int
    where: str | None


def measured(diff: DataFrame, columns: Sequence[Column]) -> Size:
    """One job over the staged diff."""
    gone = F.col(WEIGHT) < 0
    counts = [
        F.coalesce(F.sum(F.when(~gone, F.col(WEIGHT))), F.lit(0)).cast("bigint"),
        F.coalesce(F.sum(F.when(gone, -F.col(WEIGHT))), F.lit(0)).cast("bigint"),
    ]
    names = [column.name for column in columns if column.type in ORDERED]
    row = diff.agg(*counts, *ends_of([F.when(gone, _named(name)) for name in names], gone)).collect()[0]
    return Size(row[0], row[1], within(dict(zip(names, read_ends(row[2:]), strict=True))))


def inserted(diff: DataFrame) -> DataFrame:
    """The rows that come, each as often as its weight says."""
    return copies(diff.where(F.col(WEIGHT) > 0))


def copies(weighed: DataFrame) -> DataFrame:
    names = [name for name in weighed.columns if name != WEIGHT]
    times = F.explode(F.sequence(F.lit(1), F.col(WEIGHT))).alias("__copy")
    return weighed.select(*map(_named, names), times).drop("__copy")


def has_floats(columns: Sequence[Column]) -> bool:
    return any(column.type in _FLOATS for column in columns)


def located(
    diff: DataFrame, current: DataFrame, columns: Sequence[Column], *, few: bool, near: bool = False
) -> DataFrame:
    """The places of the rows that go, in the table as it is (``current``, with places).

    ``near``: floats may differ by next to nothing, but only where exactly the rows that are looked for are so near.
    """
    gone = diff.where(F.col(WEIGHT) < 0).withColumn(_ID, F.monotonically_increasing_id())
    gone = gone.select(
        _ID, (-F.col(WEIGHT)).alias("__times"), *(_named(c.name).alias(f"n{i}") for i, c in enumerate(columns))
    )
    have = current.select(FILE_ID, POSITION, *(_named(c.name).alias(f"o{i}") for i, c in enumerate(columns)))
    same = reduce(lambda one, other: one & other, (_same(i, column, near) for i, column in enumerate(columns)))
    joined = have.join(F.broadcast(gone) if few else gone, same)
    if near:
        alone = F.count(F.lit(1)).over(Window.partitionBy(_ID)) == F.col("__times")
        chosen = joined.withColumn(_RANK, alone).where(_RANK)
    else:
        ranked = Window.partitionBy(_ID).orderBy(FILE_ID, POSITION)
        chosen = joined.withColumn(_RANK, F.row_number().over(ranked)).where(f"{_RANK} <= __times")
    return chosen.select(FILE_ID, POSITION).distinct()


def _same(place: int, column: Column, near: bool) -> Expr:
    one, other = F.col(f"o{place}"), F.col(f"n{place}")
    if column.type not in _FLOATS or not near:
        return one.eqNullSafe(other)
    size = F.greatest(F.abs(one), F.abs(other))  # of infinities and NaN nothing is near
    close = (size < F.lit(float("inf"))) & (F.abs(one - other) <= TOLERANCE * size)
    return one.eqNullSafe(other) | F.coalesce(close, F.lit(False))


def difference(new: DataFrame, current: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """The signed rows between the table as it is and as it should be."""
    names = [_named(column.name) for column in columns]
    both = new.select(*names, F.lit(1).cast("bigint").alias(WEIGHT)).unionAll(
        current.select(*names, F.lit(-1).cast("bigint").alias(WEIGHT))
    )
    return added_up(both, columns)


def changed(current: DataFrame, diff: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """The whole content after the diff, one weighed row per distinct row."""
    names = [_named(column.name) for column in columns]
    now = current.select(*names, F.lit(1).cast("bigint").alias(WEIGHT))
    return added_up(now.unionAll(diff.select(*names, WEIGHT)), columns).where(F.col(WEIGHT) > 0)


def added_up(signed: DataFrame, columns: Sequence[Column]) -> DataFrame:
    keys = [_named(column.name) for column in columns]
    return signed.groupBy(*keys).agg(F.sum(WEIGHT).alias(WEIGHT)).where(F.col(WEIGHT) != 0)


def _named(name: str) -> Expr:
    return F.col(quote_spark(name))
