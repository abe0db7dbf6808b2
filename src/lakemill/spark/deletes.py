"""Deleted positions → staged delete files, one per data file, as DuckLake reads them.

Beside ``spark/outputs``, for publishes that take rows out. A delete file holds *all* deleted positions of its data
file, strictly increasing. Few positions are written by the driver; many travel through Spark as files, never as
literals. They must come from something that was written once: they may be read twice here.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from lakemill.core.schema import (
    DELETE_PATH_FIELD,
    DELETE_POSITION_FIELD,
    SNAPSHOT_FIELD,
    SNAPSHOT_NAME,
)
from lakemill.errors import InternalError
from lakemill.lake.staging import JOB_FOLDER, StagedDeletes, StagedFile, Storage
from lakemill.lake.target import WriteTarget
from lakemill.spark import types
from lakemill.spark.columns import STAMP
from lakemill.spark.outputs import explained_write, write_options, writer_path
from lakemill.spark.positions import FILE_ID, POSITION

DRIVER_POSITIONS = 10_000
_FOLDER = "__lakemill_file"


def few_places(hits: DataFrame) -> pa.Table | None:
    """The places (``__file_id`` and ``__position``) as the driver holds them; None where they are too many for it."""
    with explained_write():
        places = hits.select(FILE_ID, POSITION).limit(DRIVER_POSITIONS + 1).toArrow()
    return places if places.num_rows <= DRIVER_POSITIONS else None


def write_deletes(
    positions: DataFrame | pa.Table,
    target: WriteTarget,
    paths: Mapping[int, str],
    storage: Storage,
    *,
    stamped: bool = False,
    driver_positions: int = DRIVER_POSITIONS,
) -> list[StagedDeletes]:
    """Write the positions (``__file_id`` and ``__position``) of each data file; ``paths`` are the files'.

    ``stamped``: each position also carries the snapshot that deleted it (``__stamp``), for merged files.
    """
    if isinstance(positions, pa.Table):
        return _by_driver(positions, target, paths, storage)
    names = [FILE_ID, POSITION, *([STAMP] if stamped else [])]
    chosen = positions.select(*[F.col(name).cast("bigint").alias(name) for name in names])
    chosen = chosen.groupBy(FILE_ID, POSITION).agg(F.min(STAMP).alias(STAMP)) if stamped else chosen.distinct()
    with explained_write():
        few = chosen.limit(driver_positions + 1).toArrow()
    if few.num_rows <= driver_positions:
        return _by_driver(few, target, paths, storage)
    return _by_spark(chosen, target, paths, storage)


def _by_driver(
    positions: pa.Table, target: WriteTarget, paths: Mapping[int, str], storage: Storage
) -> list[StagedDeletes]:
    written = []
    ordered = positions.sort_by([(FILE_ID, "ascending"), (POSITION, "ascending")])
    ids: Sequence[int] = ordered.column(FILE_ID).to_pylist()
    start = 0
    while start < len(ids):
        end = start
        while end < len(ids) and ids[end] == ids[start]:
            end += 1
        part = ordered.slice(start, end - start)
        relative = f"{JOB_FOLDER}{uuid.uuid4()}-delete.parquet"
        storage.write(target.path + relative, _delete_bytes(part, _path(paths, ids[start])))
        written.append(StagedDeletes(ids[start], StagedFile(target.path + relative, relative), end - start))
        start = end
    return written


def _delete_bytes(part: pa.Table, path: str) -> bytes:
    fields = [_field("file_path", pa.string(), DELETE_PATH_FIELD), _field("pos", pa.int64(), DELETE_POSITION_FIELD)]
    columns = [pa.array([path] * part.num_rows, pa.string()), part.column(POSITION).combine_chunks()]
    if STAMP in part.column_names:
        fields.append(_field(SNAPSHOT_NAME, pa.int64(), SNAPSHOT_FIELD))
        columns.append(part.column(STAMP).combine_chunks())
    out = io.BytesIO()
    pq.write_table(pa.table(columns, schema=pa.schema(fields)), out)
    return out.getvalue()


def _field(name: str, type_: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, type_, nullable=False, metadata={"PARQUET:field_id": str(field_id)})


def _by_spark(
    positions: DataFrame, target: WriteTarget, paths: Mapping[int, str], storage: Storage
) -> list[StagedDeletes]:
    """One file per data file: its positions meet in one task, in order, and a folder is named for it."""
    job = f"{JOB_FOLDER}{uuid.uuid4()}/"
    session = positions.sparkSession
    known = session.createDataFrame(
        pa.table({FILE_ID: pa.array(paths.keys(), pa.int64()), "file_path": pa.array(paths.values(), pa.string())})
    )
    columns = [
        F.col("file_path").alias("file_path", metadata={types.FIELD_ID: DELETE_PATH_FIELD}),
        F.col(POSITION).alias("pos", metadata={types.FIELD_ID: DELETE_POSITION_FIELD}),
    ]
    if STAMP in positions.columns:
        columns.append(F.col(STAMP).alias(SNAPSHOT_NAME, metadata={types.FIELD_ID: SNAPSHOT_FIELD}))
    laid = positions.join(F.broadcast(known), FILE_ID).repartition(FILE_ID)
    laid = laid.select(*columns, F.col(FILE_ID).alias(_FOLDER)).sortWithinPartitions(_FOLDER, "pos")
    options = {**write_options(target.options), "maxRecordsPerFile": "0"}
    with explained_write():
        laid.write.options(**options).partitionBy(_FOLDER).parquet(writer_path(target.path + job))
        counts = {row[0]: row[1] for row in positions.groupBy(FILE_ID).count().collect()}
    written: dict[int, StagedDeletes] = {}
    for path in storage.list(target.path + job):
        data_file_id = int(path.split(f"/{_FOLDER}=")[1].split("/")[0])
        if data_file_id in written:
            raise InternalError(f"Spark wrote two delete files for data file {data_file_id}")
        file = StagedFile(path, path.removeprefix(target.path))
        written[data_file_id] = StagedDeletes(data_file_id, file, counts[data_file_id])
    storage.sweep(target.path + job)
    if written.keys() != counts.keys():
        raise InternalError("positions of a data file that is not named")
    return list(written.values())


def _path(paths: Mapping[int, str], data_file_id: int) -> str:
    if data_file_id not in paths:
        raise InternalError(f"positions of data file {data_file_id}, which is not named")
    return paths[data_file_id]
