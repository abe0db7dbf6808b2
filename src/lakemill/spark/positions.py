"""Deleted positions, from delete files and inlined deletes, in the form that a reader of rows joins.

A position is one bit in a word of 64, and a word's key is one long: where the words of its file begin, plus
``position >> 6``. Rows come in the order of their positions, so 64 of them look up the same word one after the other,
which costs a fraction of a key per position. A row knows its file by the checksum of its path, which is exact because
data files whose paths have the same checksum are read apart. Positions travel as files, never as literals.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from itertools import accumulate

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (everybody's name for it)
from pyspark.sql import types as t

from lakemill.core.scan import DataFile, ReadPlan
from lakemill.core.schema import SNAPSHOT_NAME
from lakemill.spark.columns import STAMP
from lakemill.spark.paths import read_parquet, spark_uri

FILE_ID, POSITION, CHECKSUM, BITS_A, BITS_B = "__file_id", "__position", "__checksum", "__bits_a", "__bits_b"
BROADCAST_POSITIONS = 2_000_000
_ONE_TASK_FILES = 16
CASE_FILES = 32  # so many comparisons for each row are cheaper than what they spare
_WORD, _BEGIN, _CUT_A, _CUT_B, _PATH = "__word", "__begin", "__cut_a", "__cut_b", "__path"


def checksum(spark: SparkSession, path: str) -> int:
    """What tells a data file from the others that are read with it; ``CHECKSUM_OF_ROW`` in a row of it."""
    return zlib.crc32(spark_uri(spark, path).encode())


CHECKSUM_OF_ROW = "crc32(_metadata.file_path)"


def with_words(
    rows: DataFrame,
    plan: ReadPlan,
    files: Sequence[DataFile],
    position: str,
    *,
    a: bool,
    b: bool,
    changed: bool,
    whole: bool,
) -> DataFrame:
    """The rows of these files, which know their ``CHECKSUM``, with the bits of their words at the ends asked for.

    ``changed``: only rows in whose word some position is deleted at one end and not at the other. ``whole``: the rows
    are in one partition, and so are the words then.
    """
    spark = rows.sparkSession
    sums = {file.id: checksum(spark, file.path) for file in files}
    if len(files) <= CASE_FILES:
        # Without gaps between the files: where deletes are not rare, Spark's hash table becomes a plain array.
        sizes = accumulate((-(-file.rows // 64) for file in files), initial=0)
        begins = {file.id: begin for file, begin in zip(files, sizes, strict=False)}
        begin = case({sums[file_id]: begin for file_id, begin in begins.items()})
    else:
        begins = {file_id: told_by << 31 for file_id, told_by in sums.items()}  # no file has 2³⁷ rows
        begin = f"shiftleft({CHECKSUM}, 31)"
    words = _deleted_words(spark, plan, begins, a=a, b=b, whole=whole)
    if changed:
        words = words.where(f"{BITS_A} <> {BITS_B}")
    found = rows.withColumn(_WORD, F.expr(_word(begin, position)))
    return found.join(words, _WORD, "inner" if changed else "left")


def is_set(bits: str, position: str) -> str:
    """Whether a row's bit is set, in SQL; not where there is no word."""
    return f"(shiftright(coalesce({bits}, 0L), CAST({position} & 63 AS INT)) & 1) = 1"


def _word(begin: str, position: str) -> str:
    """The key of a position's word, in SQL."""
    return f"{begin} + shiftright({position}, 6)"


def _deleted_words(
    spark: SparkSession, plan: ReadPlan, begins: Mapping[int, int], *, a: bool, b: bool, whole: bool
) -> DataFrame:
    """One row per word of these files that has deleted positions at the ends asked for: its key, and its bits there."""
    parts = []
    if reads := [read for read in plan.deletes if read.file.data_file_id in begins]:
        # The catalog says which data file a delete file belongs to; the path inside the file is not trusted.
        facts = {
            _BEGIN: [begins[read.file.data_file_id] for read in reads],
            _CUT_A: [read.cut_a for read in reads],
            _CUT_B: [read.cut_b for read in reads],
        }
        parts.append(in_delete_files(spark, [read.file.path for read in reads], facts))
    if inlined := [delete for delete in plan.inlined_deletes if delete.data_file_id in begins]:
        table = {
            POSITION: pa.array([delete.position for delete in inlined], pa.int64()),
            STAMP: pa.array([delete.begin for delete in inlined], pa.int64()),
            _BEGIN: pa.array([begins[delete.data_file_id] for delete in inlined], pa.int64()),
            _CUT_A: pa.array([plan.a] * len(inlined), pa.int64()),
            _CUT_B: pa.array([plan.b] * len(inlined), pa.int64()),
        }
        parts.append(spark.createDataFrame(pa.table(table)))
    found = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    few = plan.positions <= BROADCAST_POSITIONS
    if whole or (few and len(reads) <= _ONE_TASK_FILES):
        found = found.coalesce(1)  # the words are put together where they are read: no shuffle
    ends = [(bits, f"{STAMP} <= {cut}") for bits, cut, asked in ((BITS_A, _CUT_A, a), (BITS_B, _CUT_B, b)) if asked]
    found = found.where(" OR ".join(gone for _, gone in ends))
    bit = f"shiftleft(1L, CAST({POSITION} & 63 AS INT))"
    words = found.groupBy(F.expr(_word(_BEGIN, POSITION)).alias(_WORD)).agg(
        *(F.expr(f"bit_or(CASE WHEN {gone} THEN {bit} ELSE 0L END)").alias(bits) for bits, gone in ends)
    )
    if whole:
        return words.hint("shuffle_hash")  # which moves nothing, and a broadcast would be a job
    return F.broadcast(words) if few else words


def in_delete_files(spark: SparkSession, paths: Sequence[str], facts: Mapping[str, Sequence[int | None]]) -> DataFrame:
    """Every position in these delete files with its snapshot (0 where the file has none) and the facts of its file.

    ``facts`` has one value per path; a path that comes twice gives its positions twice.
    """
    schema = t.StructType([t.StructField("pos", t.LongType()), t.StructField(SNAPSHOT_NAME, t.LongType())])
    frame = read_parquet(spark, schema, dict.fromkeys(paths))
    plain = [f"pos AS {POSITION}", f"coalesce({SNAPSHOT_NAME}, 0L) AS {STAMP}"]
    sums = [checksum(spark, path) for path in paths]
    if len(paths) <= CASE_FILES and len(set(sums)) == len(paths):  # a join would cost a job of its own
        frame = frame.selectExpr(*plain, f"{CHECKSUM_OF_ROW} AS {CHECKSUM}")
        told = (f"{case(dict(zip(sums, values, strict=True)))} AS {name}" for name, values in facts.items())
        return frame.selectExpr(POSITION, STAMP, *told)
    frame = frame.selectExpr(*plain, f"_metadata.file_path AS {_PATH}")
    known = {name: pa.array(values, pa.int64()) for name, values in facts.items()}
    known |= {_PATH: pa.array([spark_uri(spark, path) for path in paths], pa.string())}
    return frame.join(F.broadcast(spark.createDataFrame(pa.table(known))), _PATH).drop(_PATH)


def case(values: Mapping[int, int | None]) -> str:
    """The value that belongs to a row's ``CHECKSUM``, in SQL."""
    shown = {told_by: "CAST(NULL AS BIGINT)" if value is None else f"{value}L" for told_by, value in values.items()}
    if len(set(shown.values())) == 1:
        return next(iter(shown.values()))
    return f"CASE {CHECKSUM} {' '.join(f'WHEN {told_by}L THEN {value}' for told_by, value in shown.items())} END"
