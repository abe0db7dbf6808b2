"""What a merge, or a batch of writes by key, changes, as one DataFrame that is computed once.

The diff holds, per changed row, the operation, the place of the row that goes (file id, position, row id)
and the values of the row that comes. ``stage_diff`` writes it to a scratch folder; deletes, updates and inserts all
derive from that file, never from a second evaluation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  (everybody's name for it)
from pyspark.sql import types as t

from lakemill.core.schema import Column, quote_spark
from lakemill.core.writes import COMES
from lakemill.errors import BadArgument
from lakemill.spark import types
from lakemill.spark.casting import fit
from lakemill.spark.columns import comparable, has_map, show
from lakemill.spark.inputs import ROW_ID
from lakemill.spark.outputs import explained_write, writer_path
from lakemill.spark.positions import FILE_ID, POSITION

OPERATION = "__operation"
UPDATE, INSERT, DELETE = "update", "insert", "delete"
GONE = "__lakemill_gone"
"""Whether a write of a batch takes the row away."""
_TWICE = "LAKEMILL_KEY_TWICE"


def merge_diff(
    current: DataFrame, source: DataFrame, columns: Sequence[Column], on: Sequence[str], matched: str, unmatched: str
) -> DataFrame:
    """Changed rows of a merge: ``current`` is the table with places, ``source`` has exactly its columns."""
    fitted = fit(source, columns)  # refuses what does not fit before anything is computed
    keys = [name.lower() for name in on]
    for column in columns:
        if column.name.lower() == OPERATION:
            raise BadArgument(f"the table has a column named {column.name}, which a merge needs for itself")
        if column.name.lower() in keys and has_map(column):
            raise BadArgument(f"column {column.name!r} holds a map, which has no order and can't be a key")
    place = [ROW_ID, FILE_ID, POSITION]
    kept = [F.col(quote_spark(c.name)).alias(f"o{i}") for i, c in enumerate(columns)]
    old = current.select(*kept, *place, F.lit(True).alias("__old"))
    # by way of the stored form, which has the table's order of struct fields and one text for each UUID
    new = source.select(*fitted).select(
        *(show(F.col(quote_spark(c.name)), c).cast(types.shown(c)).alias(f"n{i}") for i, c in enumerate(columns)),
    )
    key_places = [i for i, column in enumerate(columns) if column.name.lower() in keys]
    counted = new.withColumn("__times", _times(new, [f"n{i}" for i in key_places]))
    same_key = reduce(lambda a, b: a & b, (F.col(f"o{i}") == F.col(f"n{i}") for i in key_places))
    joined = counted.join(old, same_key, "left" if unmatched == "insert" else "inner")
    equal = reduce(
        lambda a, b: a & b,
        (comparable(F.col(f"o{i}"), c).eqNullSafe(comparable(F.col(f"n{i}"), c)) for i, c in enumerate(columns)),
    )
    found = F.col("__old").isNotNull()
    on_match = {"update": F.when(~equal, UPDATE), "delete": F.lit(DELETE), "ignore": F.lit(None)}[matched]
    operation = F.when(found, on_match).otherwise(F.lit(INSERT))
    checked = F.when(F.col("__times") > 1, F.raise_error(F.lit(_TWICE))).otherwise(operation)
    values = [F.col(f"n{i}").alias(column.name) for i, column in enumerate(columns)]
    return joined.select(checked.alias(OPERATION), *place, *values).where(F.col(OPERATION).isNotNull())


def keyed_diff(current: DataFrame, writes: DataFrame, columns: Sequence[Column], key: Sequence[str]) -> DataFrame:
    """Changed rows of a batch: ``writes`` has the columns as ``n0``, ``n1`` … in shown form, one row a key, and whether
    the row goes (GONE). A key that the table has twice, by another's doing, has one row afterwards, or none.
    """
    keys = [i for i, column in enumerate(columns) if column.name.lower() in {name.lower() for name in key}]
    place = [ROW_ID, FILE_ID, POSITION]
    kept = [F.col(quote_spark(c.name)).alias(f"o{i}") for i, c in enumerate(columns)]
    same_key = reduce(lambda a, b: a & b, (F.col(f"o{i}") == F.col(f"n{i}") for i in keys))
    # the table, which may be large, is read once and not moved: only rows of these keys go on
    wanted = F.broadcast(writes.select(*(f"n{i}" for i in keys)))
    old = current.select(*kept, *place, F.lit(True).alias("__old")).join(wanted, same_key, "left_semi")
    first = Window.partitionBy(*(f"n{i}" for i in keys)).orderBy(FILE_ID, POSITION)
    joined = writes.join(old, same_key, "left").withColumn("__nth", F.row_number().over(first))
    equal = reduce(
        lambda a, b: a & b,
        (comparable(F.col(f"o{i}"), c).eqNullSafe(comparable(F.col(f"n{i}"), c)) for i, c in enumerate(columns)),
    )
    found, gone = F.col("__old").isNotNull(), F.col(GONE)
    operation = (
        F.when(found & (gone | (F.col("__nth") > 1)), DELETE).when(found & ~equal, UPDATE).when(~found & ~gone, INSERT)
    )
    values = [F.col(f"n{i}").alias(column.name) for i, column in enumerate(columns)]
    return joined.select(operation.alias(OPERATION), *place, *values).where(F.col(OPERATION).isNotNull())


def told_diff(writes: DataFrame, columns: Sequence[Column], told: Sequence[int]) -> DataFrame:
    """The same of a few writes, staged in one file, where somebody else has looked for their keys.

    ``told`` (``core/writes``) is in the order of that file. It travels as one literal, which costs no job.
    """
    texts = F.split(F.lit(",".join(map(str, told))), ",")
    found = F.element_at(texts.cast("array<bigint>"), (F.col("_metadata.row_index") + 1).cast("int"))
    numbered = writes.select("*", found.alias(ROW_ID))
    operation = F.when(F.col(ROW_ID) >= 0, UPDATE).when(F.col(ROW_ID) == COMES, INSERT)
    nowhere = (F.lit(None).cast("bigint").alias(name) for name in (FILE_ID, POSITION))
    values = (F.col(f"n{i}").alias(column.name) for i, column in enumerate(columns))
    return numbered.select(operation.alias(OPERATION), ROW_ID, *nowhere, *values)


def counted(frame: DataFrame, counts: Observation) -> DataFrame:
    """The diff, which tells how many rows of each operation it has when it is computed."""
    each = (F.count(F.when(F.col(OPERATION) == name, 1)).alias(name) for name in (INSERT, UPDATE, DELETE))
    return frame.observe(counts, *each)


def _times(frame: DataFrame, keys: Sequence[str]) -> Expr:
    """How often a row's key occurs in the source; NULL keys match nothing and may repeat."""
    no_null = reduce(lambda a, b: a & b, (F.col(key).isNotNull() for key in keys))
    return F.when(no_null, F.count(F.lit(1)).over(Window.partitionBy(*keys))).otherwise(F.lit(1))


def stage_diff(frame: DataFrame, folder: str) -> t.StructType:
    """Compute the frame once, into Parquet files of a scratch folder, beside those of its other parts."""
    try:
        with explained_write():
            frame.write.mode("append").option("compression", "snappy").parquet(writer_path(folder))
    except Exception as error:
        if _TWICE in str(error):
            raise BadArgument(
                "the source of the merge has the same key twice",
                remedy="leave one row per key, for example with dropDuplicates",
            ) from error
        raise
    return frame.schema


def read_diff(spark: SparkSession, folder: str, schema: t.StructType) -> DataFrame:
    return spark.read.schema(schema).parquet(writer_path(folder))


def count_by_file(hits: DataFrame | pa.Table) -> dict[int, int]:
    """How many positions of each data file."""
    if isinstance(hits, pa.Table):
        return Counter(hits.column(FILE_ID).to_pylist())
    return {row[0]: row[1] for row in hits.groupBy(FILE_ID).count().collect()}
