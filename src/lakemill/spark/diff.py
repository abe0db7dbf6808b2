"""From signed rows to what is written: which rows of the table go, and which come.

A refresh's signed rows are staged once (``spark/changes``); everything here reads that file. A row that goes is found
in the table by its values, as many copies of it as its weight says and never more: bit by bit, or, where that does not
find them all, with a tolerance for floats, because a sum that is computed again in another order need not have the same
last bit. As many rows must be found as were looked for; where they are not, the caller computes the table whole.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass

import pyarrow as pa
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
_ID, _TIMES, _RANK, _SAME = "__diff_id", "__times", "__rank", "__same"


@dataclass(frozen=True, slots=True)
class Size:
    """How many rows come and go, and a condition, in Spark SQL, that every row that goes meets."""

    inserted: int
    deleted: int
    where: str | None


def parts_of(frame: DataFrame, columns: Sequence[Column], places: Sequence[int], count: int) -> list[DataFrame]:
    """The rows in this many parts, by a hash of the columns at these places; one part where none can be hashed."""
    chosen = [columns[place] for place in places]
    keys = [quote_spark(column.name) for column in chosen if isinstance(types.shown(column), _HASHED)]
    if count == 1 or not keys:
        return [frame]
    number = F.pmod(F.xxhash64(*keys), F.lit(count))
    return [frame.where(number == part) for part in range(count)]


def measured(parts: Sequence[DataFrame], columns: Sequence[Column]) -> tuple[list[DataFrame], Callable[[], Size]]:
    """The signed rows, watched on their way to the staging files; once all are there, what they come to."""
    gone = f"{WEIGHT} < 0"
    kinds = {column.name: types.shown(column) for column in columns}
    kinds = {name: type_ for name, type_ in kinds.items() if isinstance(type_, ORDERED)}
    measures = [
        f"coalesce(sum(CASE WHEN NOT {gone} THEN {WEIGHT} END), 0L)",
        f"coalesce(sum(CASE WHEN {gone} THEN -{WEIGHT} END), 0L)",
        *ends_of([plain(name, type_) for name, type_ in kinds.items()], gone),
    ]
    named = [F.expr(f"{measure} AS m{i}") for i, measure in enumerate(measures)]
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
    return copies(diff.where(f"{WEIGHT} > 0"))


def copies(weighed: DataFrame) -> DataFrame:
    names = [quote_spark(name) for name in weighed.columns if name != WEIGHT]
    return weighed.selectExpr(*names, f"explode(sequence(1L, {WEIGHT})) AS __copy").drop("__copy")


def has_floats(columns: Sequence[Column]) -> bool:
    return any(is_float(column) for column in columns)


def is_float(column: Column) -> bool:
    return column.type in _FLOATS


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
    names = [quote_spark(column.name) for column in columns]
    gone = diff.where(f"{WEIGHT} < 0").selectExpr(
        f"monotonically_increasing_id() AS {_ID}",
        f"-{WEIGHT} AS {_TIMES}",
        *(f"{name} AS n{i}" for i, name in enumerate(names)),
    )
    have = current.selectExpr(FILE_ID, POSITION, *(f"{name} AS o{i}" for i, name in enumerate(names)))
    same = F.expr(" AND ".join(_same(i, column, near) for i, column in enumerate(columns)))
    if how == "shuffle_hash":
        gone = gone.coalesce(1)  # where the table's rows are in one partition, too, nothing is shuffled
    return have.join(gone.hint(how) if how else gone, same)


def _same(place: int, column: Column, near: bool) -> str:
    one, other = f"o{place}", f"n{place}"
    if column.type not in _FLOATS or not near:
        return f"{one} <=> {other}"
    return _near(one, other)


def _near(one: str, other: str) -> str:
    size = f"greatest(abs({one}), abs({other}))"  # of infinities and NaN nothing is near
    close = f"{size} < double('Infinity') AND abs({one} - {other}) <= {TOLERANCE!r}D * {size}"
    return f"({one} <=> {other} OR coalesce({close}, false))"


def difference(
    new: DataFrame, current: DataFrame, columns: Sequence[Column], inexact: Collection[str] = ()
) -> DataFrame:
    """The signed rows between the table as it is and as it should be.

    ``inexact``: floats without which no two rows are equal. Where they alone differ, and by next to nothing, from those
    of the stored row, it is the stored row; else bits decide.
    """
    names = [quote_spark(column.name) for column in columns]
    both = new.selectExpr(*names, f"1L AS {WEIGHT}").unionAll(current.selectExpr(*names, f"-1L AS {WEIGHT}"))
    signed = added_up(both, columns)
    floats = [name for name, column in zip(names, columns, strict=True) if column.name in inexact]
    if not floats:
        return signed
    others = [name for name in names if name not in floats]
    by = f"PARTITION BY {', '.join(others)}" if others else ""
    over = f"OVER ({by})"
    pair = [f"count(*) {over} = 2", f"sum({WEIGHT}) {over} = 0"]
    pair += [f"count({name}) {over} IN (0, 2)" for name in floats]
    pair += [_near(f"min({name}) {over}", f"max({name}) {over}") for name in floats]
    return signed.selectExpr("*", f"{' AND '.join(pair)} AS {_SAME}").where(f"NOT {_SAME}").drop(_SAME)


def changed(current: DataFrame, diff: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """The whole content after the diff, one weighed row per distinct row."""
    names = [quote_spark(column.name) for column in columns]
    now = current.selectExpr(*names, f"1L AS {WEIGHT}")
    return added_up(now.unionAll(diff.selectExpr(*names, WEIGHT)), columns).where(f"{WEIGHT} > 0")


def added_up(signed: DataFrame, columns: Sequence[Column]) -> DataFrame:
    keys = [quote_spark(column.name) for column in columns]
    return signed.groupBy(*keys).agg(F.sum(WEIGHT).alias(WEIGHT)).where(f"{WEIGHT} <> 0")
