"""From signed rows to what is written: which rows of the table go, and which come.

A refresh's signed rows are staged once (``spark/changes``); everything here reads that file. A row that goes is found
in the table by its values, as many copies of it as its weight says and never more: bit by bit, or, where that does not
find them all, with a tolerance for floats, because a sum that is computed again in another order need not have the same
last bit. As many rows must be found as were looked for; where they are not, the caller computes the table whole.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame, Observation, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from lakemill.core.algebra import WEIGHT
from lakemill.core.schema import Column, quote_spark
from lakemill.spark import types
from lakemill.spark.ends import ORDERED, ends_of, plain, read_ends, together, within
from lakemill.spark.positions import FILE_ID, POSITION

TOLERANCE = 1e-9
_FLOATS = ("float32", "float64")
_HASHED = (*ORDERED, t.BooleanType, t.DecimalType, t.TimestampType, t.TimestampNTZType)
_ID, _TIMES, _RANK = "__diff_id", "__times", "__rank"


@dataclass(frozen=True, slots=True)
class Size:
    """How many rows come and go, and a condition, in Spark SQL, that every row that goes meets."""

    inserted: int
    deleted: int
    where: str | None


def parts_of(frame: DataFrame, columns: Sequence[Column], places: Sequence[int], count: int) -> list[DataFrame]:
    """The rows in this many parts, by a hash of the columns at these places; one part where none can be hashed."""
    chosen = [columns[place] for place in places]
    keys = [_named(column.name) for column in chosen if isinstance(types.shown(column), _HASHED)]
    if count == 1 or not keys:
        return [frame]
    number = F.pmod(F.xxhash64(*keys), F.lit(count))
    return [frame.where(number == part) for part in range(count)]


def measured(parts: Sequence[DataFrame], columns: Sequence[Column]) -> tuple[list[DataFrame], Callable[[], Size]]:
    """The signed rows, watched on their way to the staging files; once all are there, what they come to."""
    gone = F.col(WEIGHT) < 0
    kinds = {column.name: types.shown(column) for column in columns}
    kinds = {name: type_ for name, type_ in kinds.items() if isinstance(type_, ORDERED)}
    measures = [
        F.coalesce(F.sum(F.when(~gone, F.col(WEIGHT))), F.lit(0)).cast("bigint"),
        F.coalesce(F.sum(F.when(gone, -F.col(WEIGHT))), F.lit(0)).cast("bigint"),
        *ends_of([F.when(gone, plain(name, type_)) for name, type_ in kinds.items()], gone),
    ]
    named = [measure.alias(f"m{i}") for i, measure in enumerate(measures)]
    observations = [Observation(f"diff-{uuid.uuid4()}") for _ in parts]
    watched = [part.observe(seen, *named) for part, seen in zip(parts, observations, strict=True)]

    def size() -> Size:
        rows = [[seen.get[f"m{i}"] for i in range(len(measures))] for seen in observations]
        ends = zip(*(read_ends(row[2:], list(kinds.values())) for row in rows), strict=True)
        known = {name: together(found) for name, found in zip(kinds, ends, strict=True)}
        return Size(sum(row[0] for row in rows), sum(row[1] for row in rows), within(known))

    return watched, size


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
    joined = _equal_rows(diff, current, columns, "broadcast" if few else None, near)
    if near:
        alone = F.count(F.lit(1)).over(Window.partitionBy(_ID)) == F.col(_TIMES)
        chosen = joined.withColumn(_RANK, alone).where(_RANK)
    else:
        ranked = Window.partitionBy(_ID).orderBy(FILE_ID, POSITION)
        chosen = joined.withColumn(_RANK, F.row_number().over(ranked)).where(f"{_RANK} <= {_TIMES}")
    return chosen.select(FILE_ID, POSITION).distinct()


def candidates(
    diff: DataFrame, raw: DataFrame, columns: Sequence[Column], *, most: int, small: bool
) -> pa.Table | None:
    """Every row that is equal to one that goes, as the driver holds them; None where they are more than ``most``.

    ``raw`` are the rows of the files, deleted ones too: which of those are gone already is for ``chosen`` to say. One
    job; where the files are ``small`` they are shuffled, because a broadcast would be another one.
    """
    joined = _equal_rows(diff, raw, columns, "shuffle_hash" if small else "broadcast")
    found = joined.select(_ID, _TIMES, FILE_ID, POSITION).coalesce(1).limit(most + 1).toArrow()
    return found if found.num_rows <= most else None


def chosen(found: pa.Table, gone: Mapping[int, Set[int]]) -> pa.Table:
    """Of the candidates as many places as should go, the first ones; ``gone``: positions that went before, by file."""
    left: dict[int, int] = {}
    places = []
    rows = zip(*(found.column(name).to_pylist() for name in (FILE_ID, POSITION, _ID, _TIMES)), strict=True)
    for file_id, position, row, times in sorted(rows):
        if position not in gone.get(file_id, ()) and left.setdefault(row, times) > 0:
            left[row] -= 1
            places.append((file_id, position))
    columns = list(zip(*places, strict=True)) or [(), ()]
    return pa.table({FILE_ID: pa.array(columns[0], pa.int64()), POSITION: pa.array(columns[1], pa.int64())})


def _equal_rows(
    diff: DataFrame, current: DataFrame, columns: Sequence[Column], how: str | None, near: bool = False
) -> DataFrame:
    """Rows of the table with the rows of the diff that go and are equal to them."""
    gone = diff.where(F.col(WEIGHT) < 0).withColumn(_ID, F.monotonically_increasing_id())
    gone = gone.select(
        _ID, (-F.col(WEIGHT)).alias(_TIMES), *(_named(c.name).alias(f"n{i}") for i, c in enumerate(columns))
    )
    have = current.select(FILE_ID, POSITION, *(_named(c.name).alias(f"o{i}") for i, c in enumerate(columns)))
    same = reduce(lambda one, other: one & other, (_same(i, column, near) for i, column in enumerate(columns)))
    if how == "shuffle_hash":
        gone = gone.coalesce(1)  # where the table's rows are in one partition, too, nothing is shuffled
    return have.join(gone.hint(how) if how else gone, same)


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
