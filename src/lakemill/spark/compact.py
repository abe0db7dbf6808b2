"""The compaction job: the files of each group become one, with every row's id and snapshot in it, by Spark.

Rows pass in stored form, so nothing is converted; they lie in the order of the table's sort keys, then of their
sources. A deleted row that a readable snapshot shows stays, and goes into the merged file's delete file with the
snapshot that deleted it; one that no snapshot shows is dropped. Positions in the merged file follow from that order,
and are checked against what was written before anybody may publish it. No row passes through Python.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from lakemill.core.compact import CompactPlan, Group, SortKey
from lakemill.core.schema import ROW_ID_FIELD, ROW_ID_NAME, SNAPSHOT_FIELD, SNAPSHOT_NAME, Column
from lakemill.errors import InternalError, LakemillError
from lakemill.lake.compaction import MergedFile
from lakemill.lake.staging import JOB_FOLDER, StagedDeletes, Storage
from lakemill.lake.target import WriteTarget
from lakemill.spark import types
from lakemill.spark.changes import read_diff, stage_diff
from lakemill.spark.columns import OWN_ROW_ID, STAMP, by_id
from lakemill.spark.deletes import write_deletes
from lakemill.spark.outputs import explained_write, write_options, writer_path
from lakemill.spark.paths import read_parquet, spark_uri
from lakemill.spark.positions import BROADCAST_POSITIONS, FILE_ID, POSITION, in_delete_files

_GROUP, _ORDER, _FILE, _PATH, _INDEX = "__lakemill_group", "__order", "__file", "__path", "__index"
_ROW_ID, _AT, _LAST_SEEN, _PLACE, _WRITTEN = "__row_id", "__deleted_at", "__last_seen", "__place", "__written"


@dataclass(frozen=True, slots=True)
class _Sum:
    """What a merged file must hold: how many rows, which, where; and what is deleted of it."""

    rows: int
    checksum: int
    last_stamp: int
    deletes: int = 0
    first_delete: int = 0


def write_merged(
    spark: SparkSession, plan: CompactPlan, groups: Sequence[Group], target: WriteTarget, storage: Storage
) -> Iterator[MergedFile]:
    """Write the merged files and their delete files of these groups, all of one version of the columns."""
    columns = groups[0].columns
    sort = [key for key in plan.sort if any(column.id == key.column.id for column in columns)]
    kept = _kept_rows(spark, groups, [key.column for key in sort])
    order = Window.partitionBy(_GROUP).orderBy(*_order(sort))
    place = F.row_number().over(order).cast("bigint") - 1
    with _once(spark, kept.select(_GROUP, _ROW_ID, STAMP, _AT, place.alias(_PLACE)), groups, target, storage) as placed:
        with explained_write():
            expected = _sums(placed, _GROUP, deletes=True)
            paths = _write(spark, plan, groups, columns, sort, target, storage)
        try:
            with explained_write():
                _check(spark, paths, expected)
            deletes = _write_deletes(placed, expected, paths, target, storage)
        except BaseException:
            with suppress(LakemillError, OSError):
                storage.remove(paths.values())
            raise
    for number, group in enumerate(groups):
        found = expected.get(number, _Sum(0, 0, group.begin))
        delete = deletes.get(number)
        if found.deletes != (delete.positions if delete else 0):
            raise InternalError(f"{found.deletes} positions were to be written, not {delete and delete.positions}")
        path = delete.file.path if delete else None
        yield MergedFile(
            group, paths.get(number), found.rows, found.last_stamp, path, found.deletes, found.first_delete
        )


@contextmanager
def _once(
    spark: SparkSession, placed: DataFrame, groups: Sequence[Group], target: WriteTarget, storage: Storage
) -> Iterator[DataFrame]:
    """Every kept row's place, computed once where several things derive from it: where there are deletes."""
    if not any(source.deleted for group in groups for source in group.sources):
        yield placed
        return
    with _job(target, storage) as folder:
        schema = stage_diff(placed, folder)
        yield read_diff(spark, folder, schema)


@contextmanager
def _job(target: WriteTarget, storage: Storage) -> Iterator[str]:
    """A folder of its own below the table's; what is still in it at the end goes."""
    folder = f"{target.path}{JOB_FOLDER}{uuid.uuid4()}/"
    try:
        yield folder
    finally:
        with suppress(LakemillError, OSError):  # else upkeep removes them as orphans
            storage.remove(storage.list(folder))
            storage.sweep(folder)


def _write_deletes(
    placed: DataFrame, expected: dict[int, _Sum], paths: dict[int, str], target: WriteTarget, storage: Storage
) -> dict[int, StagedDeletes]:
    """The delete files of the merged files, by group."""
    deleted = {group: paths[group] for group, found in expected.items() if found.deletes}
    if not deleted:
        return {}
    positions = placed.where(F.col(_AT).isNotNull()).select(
        F.col(_GROUP).alias(FILE_ID), F.col(_PLACE).alias(POSITION), F.col(_AT).alias(STAMP)
    )
    written = write_deletes(positions, target, deleted, storage, stamped=True)
    return {found.data_file_id: found for found in written}


# ---------------------------------------------------------------- reading
def _kept_rows(spark: SparkSession, groups: Sequence[Group], columns: Sequence[Column]) -> DataFrame:
    """The rows of all groups that a readable snapshot shows: these columns in stored form, and where each row is from.

    ``__deleted_at`` is the snapshot that deleted the row, NULL for a live one.
    """
    sources = [source for group in groups for source in group.sources]
    schema, _ = by_id(columns, stamped=True, row_ids=True)
    paths = dict.fromkeys(source.file.path for source in sources)  # a path that is registered twice is read once
    frame = read_parquet(spark, schema, paths)
    frame = frame.select(
        *schema.names, F.col("_metadata.file_path").alias(_PATH), F.col("_metadata.row_index").alias(_INDEX)
    )
    frame = frame.join(F.broadcast(_source_facts(spark, groups)), _PATH)  # and its rows are doubled here
    row_id = F.coalesce(F.col(OWN_ROW_ID), F.col("__row_id_start") + F.col(_INDEX))
    stamp = F.when(F.col("__partial"), F.coalesce(F.col(STAMP), F.col("__begin"))).otherwise(F.col("__begin"))
    frame = frame.withColumns({_ROW_ID: row_id, STAMP: stamp})
    names = [types.by_id_name(column) for column in columns]
    place = [_GROUP, _ORDER, _INDEX, _ROW_ID, STAMP]
    if not any(source.deleted for source in sources):
        return frame.select(*names, *place, F.lit(None).cast("bigint").alias(_AT))
    deletes = _deletes(spark, groups)
    positions = sum(group.count for source in sources for group in source.deleted)
    if positions <= BROADCAST_POSITIONS:
        deletes = F.broadcast(deletes)
    frame = frame.join(deletes, [_FILE, _INDEX], "left")
    frame = frame.where(F.col(_AT).isNull() | (F.col(STAMP) <= F.col(_LAST_SEEN)))
    return frame.select(*names, *place, _AT)


def _source_facts(spark: SparkSession, groups: Sequence[Group]) -> DataFrame:
    rows: list[dict[str, Any]] = []
    for number, group in enumerate(groups):
        for order, source in enumerate(group.sources):
            file = source.file
            rows.append(
                {
                    _PATH: spark_uri(spark, file.path),
                    _FILE: file.id,
                    _GROUP: number,
                    _ORDER: order,
                    "__begin": file.begin,
                    "__partial": file.partial_max is not None,
                    "__row_id_start": file.row_id_start,
                }
            )
    kinds = {_PATH: pa.string(), "__partial": pa.bool_()}
    return spark.createDataFrame(
        pa.table({name: pa.array([row[name] for row in rows], kinds.get(name, pa.int64())) for name in rows[0]})
    )


def _deletes(spark: SparkSession, groups: Sequence[Group]) -> DataFrame:
    """Every position that was ever deleted from the sources: the first snapshot without it, and the last with it."""
    known = [(source.file.id, found) for group in groups for source in group.sources for found in source.deleted]
    facts = {
        _FILE: [file_id for file_id, _ in known],
        _WRITTEN: [found.stamp for _, found in known],
        _AT: [found.at for _, found in known],
        _LAST_SEEN: [found.last_seen for _, found in known],
    }
    frame = in_delete_files(spark, [found.path for _, found in known], facts).where(f"{STAMP} = {_WRITTEN}")
    frame = frame.withColumnRenamed(POSITION, _INDEX)
    # a position is in every later delete file of its data file: the first one counts
    return frame.groupBy(_FILE, _INDEX).agg(F.min(_AT).alias(_AT), F.min(_LAST_SEEN).alias(_LAST_SEEN))


def _order(sort: Sequence[SortKey]) -> list[Expr]:
    keys = []
    for key in sort:
        value = F.col(types.by_id_name(key.column))
        if key.ascending:
            keys.append(value.asc_nulls_first() if key.nulls_first else value.asc_nulls_last())
        else:
            keys.append(value.desc_nulls_first() if key.nulls_first else value.desc_nulls_last())
    return [*keys, F.col(_ORDER), F.col(_INDEX)]


# ---------------------------------------------------------------- writing
def _write(
    spark: SparkSession,
    plan: CompactPlan,
    groups: Sequence[Group],
    columns: Sequence[Column],
    sort: Sequence[SortKey],
    target: WriteTarget,
    storage: Storage,
) -> dict[int, str]:
    """One file per group; the path by the group's number. A group without rows has none."""
    rows = _kept_rows(spark, groups, columns).repartition(len(groups), _GROUP)
    rows = rows.sortWithinPartitions(_GROUP, *_order(sort))
    internal = ((_ROW_ID, ROW_ID_NAME, ROW_ID_FIELD), (STAMP, SNAPSHOT_NAME, SNAPSHOT_FIELD))
    named = [F.col(types.by_id_name(c)).cast(types.stored(c, ids=True)) for c in columns]  # a struct's fields, too
    out = [value.alias(c.name, metadata={types.FIELD_ID: c.id}) for value, c in zip(named, columns, strict=True)]
    out += [F.col(name).alias(known, metadata={types.FIELD_ID: field_id}) for name, known, field_id in internal]
    options = {**write_options(target.options), "maxRecordsPerFile": "0"}
    laid = rows.select(*out, F.col(_GROUP))
    moves, paths = [], dict[int, str]()
    with _job(target, storage) as job:
        laid.write.options(**options).partitionBy(_GROUP).parquet(writer_path(job))
        for path in storage.list(job):
            number = int(path.split(f"/{_GROUP}=")[1].split("/")[0])
            if number in paths:
                raise InternalError(f"Spark wrote two files for one group of {plan.table.full_name}")
            paths[number] = f"{_folder(groups[number], target)}{JOB_FOLDER}{uuid.uuid4()}.parquet"
            moves.append((path, paths[number]))
        storage.move(moves)
    return paths


def _folder(group: Group, target: WriteTarget) -> str:
    """Stock DuckDB merges a partition's files only when they lie in one folder."""
    first = group.sources[0].file
    if first.partition_id is None or not first.path.startswith(target.path):
        return target.path
    return first.path.rpartition("/")[0] + "/"


# ---------------------------------------------------------------- checking
def _sums(frame: DataFrame, by: str, *, deletes: bool = False) -> dict[Any, _Sum]:
    wanted = [
        F.count(F.lit(1)),
        F.bit_xor(F.xxhash64(_ROW_ID, STAMP, _PLACE)),
        F.max(STAMP),
        *([F.count(_AT), F.coalesce(F.min(_AT), F.lit(0))] if deletes else []),
    ]
    found = frame.groupBy(by).agg(*[value.alias(f"__s{i}") for i, value in enumerate(wanted)])
    return {row[0]: _Sum(*row[1:]) for row in found.collect()}


def _check(spark: SparkSession, paths: dict[int, str], expected: dict[int, _Sum]) -> None:
    """The merged files hold the right rows at the right places: else a delete would hit another row."""
    if paths.keys() != expected.keys():
        raise InternalError(f"{len(expected)} merged files were to be written, but there are {len(paths)}")
    if not paths:
        return
    schema = t.StructType(
        [
            t.StructField(_ROW_ID, t.LongType(), True, {types.FIELD_ID: ROW_ID_FIELD}),
            t.StructField(STAMP, t.LongType(), True, {types.FIELD_ID: SNAPSHOT_FIELD}),
        ]
    )
    frame = read_parquet(spark, schema, paths.values())
    frame = frame.select(
        _ROW_ID, STAMP, F.col("_metadata.file_path").alias(_PATH), F.col("_metadata.row_index").alias(_PLACE)
    )
    found = _sums(frame, _PATH)
    for number, path in paths.items():
        want, have = expected[number], found[spark_uri(spark, path)]
        if (have.rows, have.checksum, have.last_stamp) != (want.rows, want.checksum, want.last_stamp):
            raise InternalError(f"{path} does not hold the rows of its sources in their order")
