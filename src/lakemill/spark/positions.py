"""Deleted positions, from delete files and inlined deletes, in the form that a reader of rows joins.

A position is one bit in a word of 64, and a word's key is one long, ``crc32(path) << 32 | position >> 6``; that is
exact because data files whose paths have the same checksum are read apart. Rows come in the order of their positions,
so 64 of them look up the same word one after the other, which costs a fraction of a key per position. Positions travel
as files, never as literals.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (everybody's name for it)
from pyspark.sql import types as t

from lakemill.core.scan import DataFile, ReadPlan
from lakemill.core.schema import SNAPSHOT_NAME
from lakemill.spark.columns import STAMP
from lakemill.spark.paths import reader_path, spark_uri

FILE_ID, POSITION, WORD, BITS_A, BITS_B = "__file_id", "__position", "__word", "__bits_a", "__bits_b"
BROADCAST_POSITIONS = 2_000_000
_ONE_TASK_FILES = 16
_CRC, _CUT_A, _CUT_B, _PATH = "__crc", "__cut_a", "__cut_b", "__path"


def checksum(spark: SparkSession, path: str) -> int:
    """What tells a data file from the others that are read with it."""
    return zlib.crc32(spark_uri(spark, path).encode())


def word_of(path: str, position: str) -> str:
    """The key of a row's word, in SQL; ``path`` as ``_metadata.file_path`` spells it."""
    return f"shiftleft(crc32({path}), 32) | shiftright({position}, 6)"


def is_set(bits: str, position: str) -> str:
    """Whether a row's bit is set, in SQL; not where there is no word."""
    return f"(shiftright(coalesce({bits}, 0L), CAST({position} & 63 AS INT)) & 1) = 1"


def deleted_words(spark: SparkSession, plan: ReadPlan, files: Sequence[DataFile], *, a: bool, b: bool) -> DataFrame:
    """One row per word of these files that has deleted positions at the ends asked for: its key, and its bits there."""
    owners = {file.id: checksum(spark, file.path) for file in files}
    parts = []
    if reads := [read for read in plan.deletes if read.file.data_file_id in owners]:
        # The catalog says which data file a delete file belongs to; the path inside the file is not trusted.
        facts = {
            _CRC: pa.array([owners[read.file.data_file_id] for read in reads], pa.int64()),
            _CUT_A: pa.array([read.cut_a for read in reads], pa.int64()),
            _CUT_B: pa.array([read.cut_b for read in reads], pa.int64()),
        }
        parts.append(in_delete_files(spark, [read.file.path for read in reads], facts))
    if inlined := [delete for delete in plan.inlined_deletes if delete.data_file_id in owners]:
        table = {
            POSITION: pa.array([delete.position for delete in inlined], pa.int64()),
            STAMP: pa.array([delete.begin for delete in inlined], pa.int64()),
            _CRC: pa.array([owners[delete.data_file_id] for delete in inlined], pa.int64()),
            _CUT_A: pa.array([plan.a] * len(inlined), pa.int64()),
            _CUT_B: pa.array([plan.b] * len(inlined), pa.int64()),
        }
        parts.append(spark.createDataFrame(pa.table(table)))
    found = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    few = plan.positions <= BROADCAST_POSITIONS
    if few and len(reads) <= _ONE_TASK_FILES:
        found = found.coalesce(1)  # the words are put together where they are read: no shuffle
    ends = [(bits, f"{STAMP} <= {cut}") for bits, cut, asked in ((BITS_A, _CUT_A, a), (BITS_B, _CUT_B, b)) if asked]
    found = found.where(" OR ".join(gone for _, gone in ends))
    bit = f"shiftleft(1L, CAST({POSITION} & 63 AS INT))"
    key = F.expr(f"shiftleft({_CRC}, 32) | shiftright({POSITION}, 6)").alias(WORD)
    words = found.groupBy(key).agg(
        *(F.expr(f"bit_or(CASE WHEN {gone} THEN {bit} ELSE 0L END)").alias(bits) for bits, gone in ends)
    )
    return F.broadcast(words) if few else words


def in_delete_files(spark: SparkSession, paths: Sequence[str], facts: Mapping[str, pa.Array]) -> DataFrame:
    """Every position in these delete files with its snapshot (0 where the file has none) and the facts of its file.

    ``facts`` has one value per path; a path that comes twice gives its positions twice.
    """
    schema = t.StructType([t.StructField("pos", t.LongType()), t.StructField(SNAPSHOT_NAME, t.LongType())])
    frame = spark.read.schema(schema).parquet(*[reader_path(path) for path in dict.fromkeys(paths)])
    frame = frame.selectExpr(
        f"pos AS {POSITION}", f"coalesce({SNAPSHOT_NAME}, 0L) AS {STAMP}", f"_metadata.file_path AS {_PATH}"
    )
    known = pa.table({_PATH: pa.array([spark_uri(spark, path) for path in paths], pa.string()), **facts})
    return frame.join(F.broadcast(spark.createDataFrame(known)), _PATH).drop(_PATH)
