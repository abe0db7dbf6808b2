"""A ``ReadPlan`` becomes a DataFrame: Spark's own vectorised Parquet reader on the files that the catalog names.

Files are matched by Parquet field id, under alias names, so that a reused column name never matches by accident.
Files that need the same treatment are read together. Deletes are joins on one long, ``crc32(path) << 32 | position``,
exact because paths with the same checksum are read apart; positions travel as files, never as literals. Only the
DataFrame API is used, so classic sessions and Spark Connect run the same code.
"""

from __future__ import annotations

import uuid
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (everybody's name for it)
from pyspark.sql import types as t

from lakemill.core.scan import DataFile, DeleteRead, FileRead, ReadPlan
from lakemill.core.schema import SNAPSHOT_NAME, Column, quote_spark
from lakemill.errors import BadArgument, CatalogInconsistent
from lakemill.spark import types
from lakemill.spark.columns import OWN_ROW_ID, STAMP, by_id, by_name, comparable, has_map
from lakemill.spark.paths import reader_path, spark_uri

WEIGHT, ROW_ID, FILE_ID, POSITION = "__weight", "__row_id", "__file_id", "__position"
_PATH, _INDEX, _KEY = "__path", "__index", "__key"
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
BROADCAST_POSITIONS = 2_000_000


@dataclass(frozen=True, slots=True)
class _Kind:
    """Files of one kind are read by one Parquet scan."""

    mapping: int | None
    at_a: bool
    at_b: bool
    stamped: bool
    deletes: bool
    absent: frozenset[int]  # columns that the files lack and whose default the reader can't fill
    stored_as: tuple[tuple[int, str], ...]  # columns that the files hold in an older type
    copy: int  # one scan reads a path once, and no two files with deletes whose paths have the same checksum


def scan_frame(
    spark: SparkSession, plan: ReadPlan, inlined: Sequence[pa.Table] = (), *, located: bool = False
) -> DataFrame:
    """The rows visible at ``b``. ``located`` adds ``__row_id``, ``__file_id``, ``__position`` (NULL where inlined)."""
    extra = [ROW_ID, FILE_ID, POSITION] if located else []
    return _signed(spark, plan, inlined, located).select(*_names(plan.table.columns), *extra)


def delta_frame(spark: SparkSession, plan: ReadPlan, inlined: Sequence[pa.Table] = ()) -> DataFrame:
    """The signed bag over (a, b]: the columns and ``__weight``, one row per distinct row, none with weight 0."""
    if any(column.name.lower() == WEIGHT for column in plan.table.columns):
        raise BadArgument(f"{plan.table.full_name} has a column named {WEIGHT}, which a delta needs for itself")
    columns = plan.table.columns
    # A column with maps is grouped by its comparable form and comes back as it was.
    keys = [
        comparable(name, c).alias(f"__k{i}") for i, (name, c) in enumerate(zip(_names(columns), columns, strict=True))
    ]
    maps = [F.first(quote_spark(c.name)).alias(f"__m{i}") for i, c in enumerate(columns) if has_map(c)]
    weighed = _signed(spark, plan, inlined, located=False).groupBy(*keys).agg(F.sum(WEIGHT).alias(WEIGHT), *maps)
    shown = [F.col(f"__m{i}" if has_map(c) else f"__k{i}").alias(c.name) for i, c in enumerate(columns)]
    return weighed.where(F.col(WEIGHT) != 0).select(*shown, WEIGHT)


def observed_weights(delta: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
    """The delta, watched on its way; after an action on it the function tells what its weights added up to."""
    observation = Observation(f"delta-{uuid.uuid4()}")
    watched = delta.observe(observation, F.coalesce(F.sum(WEIGHT), F.lit(0)).alias("sum"))
    return watched, lambda: int(observation.get["sum"])


def _names(columns: Iterable[Column]) -> list[Expr]:
    return [F.col(quote_spark(column.name)) for column in columns]


def _signed(spark: SparkSession, plan: ReadPlan, inlined: Sequence[pa.Table], located: bool) -> DataFrame:
    frames = [_read_kind(spark, plan, kind, files, located) for kind, files in _kinds(spark, plan).items()]
    frames += [_inlined_frame(spark, plan, table, located) for table in inlined]
    if not frames:
        # not createDataFrame([]): that starts Python workers for a frame without rows
        fields = _result_schema(plan, located).fields
        return spark.range(0).select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in fields))
    result = frames[0]
    for frame in frames[1:]:
        result = result.unionAll(frame)
    return result


def _result_schema(plan: ReadPlan, located: bool) -> t.StructType:
    extra = [WEIGHT, *((ROW_ID, FILE_ID, POSITION) if located else ())]
    return t.StructType(
        [t.StructField(column.name, types.shown(column)) for column in plan.table.columns]
        + [t.StructField(name, t.LongType()) for name in extra]
    )


def _kinds(spark: SparkSession, plan: ReadPlan) -> dict[_Kind, list[FileRead]]:
    with_deletes = {read.file.data_file_id for read in plan.deletes} | {d.data_file_id for d in plan.inlined_deletes}
    copies: dict[str | int, int] = defaultdict(int)
    kinds: dict[_Kind, list[FileRead]] = defaultdict(list)
    for read in plan.files:
        file = read.file
        ends = [end for live, end in ((read.at_a, plan.a), (read.at_b, plan.b)) if live and end is not None]
        stamped = file.partial_max is not None and any(file.partial_max > end for end in ends)
        absent = plan.absent.get(file.path, frozenset()) if file.mapping_id is None else frozenset()
        deletes = file.id in with_deletes
        told_by = zlib.crc32(spark_uri(spark, file.path).encode()) if deletes else file.path
        copy = copies[told_by]
        older = plan.stored_as.get(file.path, ()) if file.mapping_id is None else ()
        kind = _Kind(file.mapping_id, read.at_a, read.at_b, stamped, deletes, absent, older, copy)
        copies[told_by] += 1
        kinds[kind].append(read)
    return kinds


def _read_kind(spark: SparkSession, plan: ReadPlan, kind: _Kind, reads: list[FileRead], located: bool) -> DataFrame:
    files = [read.file for read in reads]
    columns = plan.table.columns
    if kind.mapping is None:
        schema, values = by_id(
            columns, stamped=kind.stamped, row_ids=located, absent=kind.absent, stored_as=kind.stored_as
        )
        constants: list[tuple[Column, str]] = []
    else:
        schema, values, constants = by_name(columns, plan.mappings[kind.mapping])
    frame = spark.read.schema(schema).parquet(*[reader_path(file.path) for file in files])
    needs_place = kind.deletes or located or bool(constants)
    place = (
        [F.col("_metadata.file_path").alias(_PATH), F.col("_metadata.row_index").alias(_INDEX)] if needs_place else []
    )
    hidden = [name for name in (STAMP, OWN_ROW_ID) if name in schema.names]
    frame = frame.select(*(value.alias(f"__v{i}") for i, value in enumerate(values)), *hidden, *place)
    if located or constants:
        frame = frame.join(F.broadcast(_facts(spark, files, constants)), _PATH)
    frame = _weigh(spark, plan, kind, files, frame)
    hive = {column.id: f"__h{i}" for i, (column, _) in enumerate(constants)}
    out = [
        (F.col(hive[column.id]).cast(types.shown(column)) if column.id in hive else F.col(f"__v{i}")).alias(column.name)
        for i, column in enumerate(columns)
    ]
    if located:
        own = F.col(OWN_ROW_ID) if OWN_ROW_ID in hidden else F.lit(None).cast("bigint")
        row_id = F.coalesce(own, F.col("__row_id_start") + F.col(_INDEX))
        out += [row_id.alias(ROW_ID), F.col(FILE_ID), F.col(_INDEX).alias(POSITION)]
    return frame.select(*out[: len(columns)], F.col(WEIGHT), *out[len(columns) :])


# ---------------------------------------------------------------- visibility
def _weigh(spark: SparkSession, plan: ReadPlan, kind: _Kind, files: list[DataFile], frame: DataFrame) -> DataFrame:
    """Keep the rows whose visibility counts and give each its weight."""
    if kind.at_a and kind.at_b:
        return _weigh_both(spark, plan, kind, files, frame)
    end, weight, deleted = (plan.b, 1, "at_b") if kind.at_b else (plan.a, -1, "at_a")
    if kind.stamped:
        frame = frame.where(F.col(STAMP).isNull() | (F.col(STAMP) <= F.lit(end)))
    if kind.deletes:
        gone = _positions(spark, plan, files).where(deleted).select(_KEY)
        frame = frame.withColumn(_KEY, _key(F.col(_PATH), F.col(_INDEX)))
        frame = frame.join(_hint(gone, plan), _KEY, "left_anti")
    return frame.withColumn(WEIGHT, F.lit(weight).cast("bigint"))


def _weigh_both(spark: SparkSession, plan: ReadPlan, kind: _Kind, files: list[DataFile], frame: DataFrame) -> DataFrame:
    """Files live at both ends: only positions deleted in between, and rows stamped in between, have a weight."""
    visible = [F.lit(True), F.lit(True)]
    if kind.deletes:
        ends = (
            _positions(spark, plan, files)
            .groupBy(_KEY)
            .agg(F.bool_or("at_a").alias("at_a"), F.bool_or("at_b").alias("at_b"))
        )
        if not kind.stamped:
            ends = ends.where("at_a <> at_b")
        frame = frame.withColumn(_KEY, _key(F.col(_PATH), F.col(_INDEX)))
        frame = frame.join(_hint(ends, plan), _KEY, "left" if kind.stamped else "inner")
        visible = [~F.coalesce(F.col(end), F.lit(False)) for end in ("at_a", "at_b")]
    if kind.stamped:
        stamp = F.coalesce(F.col(STAMP), F.lit(0))
        visible = [seen & (stamp <= F.lit(end)) for seen, end in zip(visible, (plan.a, plan.b), strict=True)]
    weight = visible[1].cast("bigint") - visible[0].cast("bigint")
    return frame.withColumn(WEIGHT, weight).where(F.col(WEIGHT) != 0)


def _key(path: Expr, position: Expr) -> Expr:
    return F.shiftleft(F.crc32(path), 32).bitwiseOR(position)


def _positions(spark: SparkSession, plan: ReadPlan, files: list[DataFile]) -> DataFrame:
    """Deleted positions of these files: ``__key`` and whether deleted at each end. A position may come twice."""
    owners = {file.id: spark_uri(spark, file.path) for file in files}
    parts = []
    if reads := [read for read in plan.deletes if read.file.data_file_id in owners]:
        parts.append(_positions_in_files(spark, reads, owners))
    if inlined := [delete for delete in plan.inlined_deletes if delete.data_file_id in owners]:
        a = -1 if plan.a is None else plan.a
        table = pa.table(
            {
                _KEY: pa.array([_key_of(owners[d.data_file_id], d.position) for d in inlined], pa.int64()),
                "at_a": pa.array([d.begin <= a for d in inlined], pa.bool_()),
                "at_b": pa.array([d.begin <= plan.b for d in inlined], pa.bool_()),
            }
        )
        parts.append(spark.createDataFrame(table))
    return parts[0] if len(parts) == 1 else parts[0].unionAll(parts[1])


def _positions_in_files(spark: SparkSession, reads: list[DeleteRead], owners: dict[int, str]) -> DataFrame:
    # The catalog says which data file a delete file belongs to; the path inside the file is not trusted.
    facts = pa.table(
        {
            _PATH: pa.array([spark_uri(spark, read.file.path) for read in reads], pa.string()),
            "__crc": pa.array([zlib.crc32(owners[read.file.data_file_id].encode()) for read in reads], pa.int64()),
            "cut_a": pa.array([read.cut_a for read in reads], pa.int64()),
            "cut_b": pa.array([read.cut_b for read in reads], pa.int64()),
        }
    )
    schema = t.StructType([t.StructField("pos", t.LongType()), t.StructField(SNAPSHOT_NAME, t.LongType())])
    frame = spark.read.schema(schema).parquet(*[reader_path(read.file.path) for read in reads])
    frame = frame.select(
        "pos", F.coalesce(SNAPSHOT_NAME, F.lit(0)).alias(STAMP), F.col("_metadata.file_path").alias(_PATH)
    )
    frame = frame.join(F.broadcast(spark.createDataFrame(facts)), _PATH)
    key = F.shiftleft(F.col("__crc"), 32).bitwiseOR(F.col("pos"))
    return frame.select(
        key.alias(_KEY),
        (F.col(STAMP) <= F.col("cut_a")).alias("at_a"),
        (F.col(STAMP) <= F.col("cut_b")).alias("at_b"),
    )


def deleted_positions(spark: SparkSession, reads: Sequence[DeleteRead]) -> DataFrame:
    """``__file_id`` and ``__position`` of everything that these delete files hold."""
    facts = pa.table(
        {
            _PATH: pa.array([spark_uri(spark, read.file.path) for read in reads], pa.string()),
            FILE_ID: pa.array([read.file.data_file_id for read in reads], pa.int64()),
        }
    )
    schema = t.StructType([t.StructField("pos", t.LongType())])
    frame = spark.read.schema(schema).parquet(*[reader_path(read.file.path) for read in reads])
    frame = frame.select(F.col("pos").alias(POSITION), F.col("_metadata.file_path").alias(_PATH))
    return frame.join(F.broadcast(spark.createDataFrame(facts)), _PATH).select(FILE_ID, POSITION)


def _key_of(uri: str, position: int) -> int:
    key = zlib.crc32(uri.encode()) << 32 | position
    return key - 2**64 if key >= 2**63 else key


def _hint(positions: DataFrame, plan: ReadPlan) -> DataFrame:
    return F.broadcast(positions) if plan.positions <= BROADCAST_POSITIONS else positions


# ---------------------------------------------------------------- files
def _facts(spark: SparkSession, files: Sequence[DataFile], constants: Sequence[tuple[Column, str]]) -> DataFrame:
    """Per-file facts that rows need: the file's id, where its row ids start, and values that only its path holds."""
    columns: dict[str, pa.Array] = {
        _PATH: pa.array([spark_uri(spark, file.path) for file in files], pa.string()),
        FILE_ID: pa.array([file.id for file in files], pa.int64()),
        "__row_id_start": pa.array([file.row_id_start for file in files], pa.int64()),
    }
    for index, (_, source) in enumerate(constants):
        columns[f"__h{index}"] = pa.array([_hive_value(file.path, source) for file in files], pa.string())
    return spark.createDataFrame(pa.table(columns))


def _hive_value(path: str, name: str) -> str | None:
    for part in path.split("/"):
        key, equals, value = part.partition("=")
        if equals and key.lower() == name.lower():
            return None if value == _HIVE_NULL else unquote(value)
    raise CatalogInconsistent(f"the path {path} has no value for its partition column {name!r}")


def _inlined_frame(spark: SparkSession, plan: ReadPlan, table: pa.Table, located: bool) -> DataFrame:
    fields = [t.StructField(WEIGHT, t.LongType()), t.StructField(ROW_ID, t.LongType())]
    fields += [t.StructField(column.name, types.shown(column)) for column in plan.table.columns]
    frame = spark.createDataFrame(table, t.StructType(fields))
    extra = (
        [F.col(ROW_ID), *(F.lit(None).cast("bigint").alias(name) for name in (FILE_ID, POSITION))] if located else []
    )
    return frame.select(*_names(plan.table.columns), WEIGHT, *extra)
