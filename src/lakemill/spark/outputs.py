"""A DataFrame → staged Parquet files of a lake table, by Spark's own writer.

Line 8 of a refresh. The table's types and field ids are put on, rows are counted on their way (``observe``), files land
in a folder of this job below the table's, and those of partitioned tables move from there to ``key=value/``, as DuckDB
wants them. Nothing is visible until a publish names the files. No row passes through Python.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from lakemill.core.commit import Partition
from lakemill.core.engine import explain_stopped
from lakemill.core.partition import PartitionSpec, folder
from lakemill.core.schema import ROW_ID_FIELD, ROW_ID_NAME, SNAPSHOT_FIELD, SNAPSHOT_NAME, quote_spark
from lakemill.errors import (
    EngineLost,
    InternalError,
    LakemillError,
    StorageUnavailable,
    StoreUnavailable,
    Unwritable,
    WrongType,
)
from lakemill.lake import s3_errors
from lakemill.lake.gone import gone_for_spark
from lakemill.lake.staging import JOB_FOLDER, Staged, StagedFile, Storage
from lakemill.lake.target import WriteOptions, WriteTarget
from lakemill.spark import types
from lakemill.spark.casting import REFUSED, fit
from lakemill.spark.partitions import partition_text

_SURROGATE = "__lakemill_p"
_CODECS = {"lz4": "lz4_raw", "none": "uncompressed"}
_ROWS = "rows"


def write_files(
    frame: DataFrame,
    target: WriteTarget,
    storage: Storage,
    *,
    row_ids: str | None = None,
    snapshot_ids: str | None = None,
) -> Staged:
    """Write the frame's rows as new files of the table; they belong to no snapshot yet.

    ``row_ids`` names a column of the frame whose values the rows keep as their row ids, ``snapshot_ids`` one with the
    snapshots that a merge must remember; a file with either holds only such rows.
    """
    also = [name for name in (row_ids, snapshot_ids) if name is not None]
    columns = fit(frame, target.columns, also=also)
    mapping = target.mapping
    for name, known, field_id in ((row_ids, ROW_ID_NAME, ROW_ID_FIELD), (snapshot_ids, SNAPSHOT_NAME, SNAPSHOT_FIELD)):
        if name is not None:
            value = F.col(quote_spark(name)).cast("bigint")
            # in a file that is read by names DuckDB looks for these two under their ids
            written = known if mapping is None else str(field_id)
            columns.append(value.alias(written, metadata={types.FIELD_ID: field_id}))
    fitted = frame.select(*columns)
    keys: Sequence[str] = ()
    if target.partition is not None:
        fitted, keys = _with_keys(fitted, target.partition)
    job = f"{JOB_FOLDER}{uuid.uuid4()}/"
    observation = Observation(job.strip("/"))
    with explained_write():
        writer = fitted.observe(observation, F.count(F.lit(1)).alias(_ROWS)).write.options(
            **write_options(target.options)
        )
        (writer.partitionBy(*keys) if keys else writer).parquet(writer_path(target.path + job))
        rows = int(observation.get[_ROWS])
    found = storage.list(target.path + job)
    if target.partition is None:
        files = [StagedFile(path, path.removeprefix(target.path)) for path in found]
    else:
        files = _into_partitions(found, target, storage, target.partition)
    storage.sweep(target.path + job)
    return Staged(tuple(files), rows, mapping, keeps_row_ids=row_ids is not None)


def _with_keys(frame: DataFrame, spec: PartitionSpec) -> tuple[DataFrame, list[str]]:
    """The frame with one text column per partition key, its rows brought together by them.

    Texts begin with a letter, because Spark takes an empty text for NULL when it names a folder.
    """
    keys = []
    for index, key in enumerate(spec.keys):
        text = partition_text(key, F.col(quote_spark(key.column.name)))
        keys.append(f"{_SURROGATE}{index}")
        frame = frame.withColumn(keys[-1], F.coalesce(F.concat(F.lit("v"), text), F.lit("n")))
    return frame.hint("rebalance", *keys), keys


def _into_partitions(
    found: Sequence[str], target: WriteTarget, storage: Storage, spec: PartitionSpec
) -> list[StagedFile]:
    files, moves = [], []
    for path in found:
        values = _values(path, len(spec.keys))
        relative = f"{folder(spec, values)}{JOB_FOLDER}{uuid.uuid4()}.parquet"
        files.append(StagedFile(target.path + relative, relative, Partition(spec.id, values)))
        moves.append((path, target.path + relative))
    storage.move(moves)
    return files


def _values(path: str, count: int) -> tuple[str | None, ...]:
    """The partition values that Spark put into a staged file's folders."""
    texts = [unquote(part.partition("=")[2]) for part in path.split("/")[:-1] if part.startswith(_SURROGATE)]
    if len(texts) < count:
        raise InternalError(f"{path} lies in no folder of {count} partition keys")
    return tuple(text[1:] if text.startswith("v") else None for text in texts[-count:])


def write_options(options: WriteOptions) -> Mapping[str, str]:
    """The lake's options in the words of Spark's Parquet writer."""
    words = {
        "compression": _CODECS.get(options.compression, options.compression),
        "parquet.writer.version": "v2" if options.parquet_version == "V2" else "v1",
        "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "parquet.statistics.truncate.length": str(2**31 - 1),  # a cut bound is no bound
        "parquet.summary.metadata.level": "NONE",
        "maxRecordsPerFile": str(options.rows_per_file),
    }
    if options.compression_level is not None and options.compression == "zstd":
        words["parquet.compression.codec.zstd.level"] = str(options.compression_level)
    if options.row_group_rows is not None:
        words["parquet.block.row.count.limit"] = str(options.row_group_rows)
    if options.row_group_bytes is not None:
        words["parquet.block.size"] = str(options.row_group_bytes)
    return words


def writer_path(path: str) -> str:
    return "s3a://" + path.removeprefix("s3://") if path.startswith("s3://") else path


@contextmanager
def explained_write() -> Iterator[None]:
    """Raise a failed write job as one of our errors."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:  # the JVM's own errors, such as those of S3, come as the second
        raise _explained(error) from error
    except (Py4JNetworkError, ConnectionError) as error:
        raise EngineLost("Spark's JVM is gone", remedy="start this process again") from error


_IN_A_QUERY = "LAKEMILL_VALUE: "
"""Marks what a query itself refuses to compute, as DuckDB would (``core/value``)."""
_VALUE_ERRORS = ("CAST_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE", "CAST_INVALID_INPUT", "ARITHMETIC_OVERFLOW")
_QUERY_ERRORS = re.compile(
    r"\[((?:DIVIDE|REMAINDER)_BY_ZERO|DATETIME_OVERFLOW|CANNOT_PARSE_\w+|INVALID_ARRAY_INDEX\w*|INVALID_INDEX_\w+"
    r"|SCALAR_SUBQUERY_TOO_MANY_ROWS|USER_RAISED_EXCEPTION|INVALID_PARAMETER_VALUE[\w.]*|DUPLICATED_MAP_KEY)\] *(.*)"
)
"""What a query in Spark's own SQL can fail by, over some values."""

_IN_AN_EXECUTOR = re.compile(
    r"^psycopg\.(?:errors\.)?(?:\w*Shutdown|OperationalError|InterfaceError): *(.*)", re.MULTILINE
)
"""An executor reads the bus by itself. Spark is well then, and need not be started anew."""


def _explained(error: PySparkException | Py4JJavaError) -> LakemillError:
    text = str(error)
    if REFUSED in text:
        told = text[text.index(REFUSED) + len(REFUSED) + 2 :].splitlines()[0].partition(" SQLSTATE")[0]
        return WrongType(told, remedy="change these values, or the column's type")
    if _IN_A_QUERY in text:
        told = text[text.index(_IN_A_QUERY) + len(_IN_A_QUERY) :].splitlines()[0].partition(" SQLSTATE")[0]
        return WrongType(f"a value of the query can't be computed: {told}", remedy="change the value, or try_cast it")
    for condition in _VALUE_ERRORS:
        if condition in text:
            line = next(line for line in text.splitlines() if condition in line)
            return WrongType(line.strip(), remedy="change these values, or the column's type")
    if found := _QUERY_ERRORS.search(text):
        told = found[2].partition(" SQLSTATE")[0]
        return WrongType(f"a value of the query can't be computed: {told}", remedy="change the value, or the query")
    if gone := explain_stopped(text) or gone_for_spark(error):
        return gone
    if found := _IN_AN_EXECUTOR.search(text):
        return StoreUnavailable(f"an executor has no PostgreSQL: {found[1]}")
    if of_s3 := s3_errors.explain_spark(text):
        return of_s3
    lines = [line.strip(": ") for line in text.splitlines() if not line.startswith("An error occurred while calling")]
    line = next((line for line in lines if line), type(error).__name__)
    if "Permission denied" in text or "Mkdirs failed" in text:
        return Unwritable(line)
    if "No space left" in text or "IOException" in text:
        return StorageUnavailable(line)
    return EngineLost(f"the write job failed: {line}", remedy="see the Spark log; nothing was published")
