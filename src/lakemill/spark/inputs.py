"""A ``ReadPlan`` becomes a DataFrame: Spark's own vectorised Parquet reader on the files that the catalog names.

Files are matched by Parquet field id, under alias names, so that a reused column name never matches by accident.
Files that need the same treatment are read together; deletes are a join with the words of ``positions``. Only the
DataFrame API is used, so classic sessions and Spark Connect run the same code.
"""

from __future__ import annotations

import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (everybody's name for it)
from pyspark.sql import types as t

from lakemill.core.scan import DataFile, FileRead, ReadPlan
from lakemill.core.schema import Column, quote_spark
from lakemill.errors import BadArgument, CatalogInconsistent, UnknownColumn
from lakemill.spark import types
from lakemill.spark.columns import OWN_ROW_ID, STAMP, by_id, by_name, comparable, has_map
from lakemill.spark.paths import read_parquet, spark_uri
from lakemill.spark.positions import (
    BITS_A,
    BITS_B,
    CASE_FILES,
    CHECKSUM,
    CHECKSUM_OF_ROW,
    FILE_ID,
    POSITION,
    case,
    checksum,
    is_set,
    with_words,
)
from lakemill.spark.profiles import in_one_piece

WEIGHT, ROW_ID = "__weight", "__row_id"
_PATH, _INDEX, _ROW_ID_START = "__path", "__index", "__row_id_start"
_CONDITION = re.compile(r"^\[[\w.]+\] *")  # what Spark's messages begin with
_HIVE_NULL, _TEXTS = "__HIVE_DEFAULT_PARTITION__", ("varchar", "json")


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
    place = (ROW_ID, FILE_ID, POSITION) if located else ()
    if taken := [column.name for column in plan.table.columns if column.name.lower() in place]:
        raise BadArgument(
            f"{plan.table.full_name} has a column named {taken[0]}, which a delete or a merge needs for itself",
            remedy="rename the column, or change these rows with DuckDB",
        )
    return _rows(spark, plan, inlined, place)


def matching(frame: DataFrame, where: str) -> DataFrame:
    """The rows that meet a condition in Spark's SQL; what Spark does not take for one is refused."""
    try:
        found = frame.where(where)
        found.schema  # noqa: B018 - Spark Connect looks at it only then
    except PySparkException as error:
        told = (str(error.getMessage() or error).strip().splitlines() or [type(error).__name__])[0]
        message = _CONDITION.sub("", told).partition(" SQLSTATE")[0].rstrip(" ;")
        kind = UnknownColumn if str(error.getCondition()).startswith("UNRESOLVED_COLUMN") else BadArgument
        raise kind(message, place=where, remedy="correct the condition") from error
    return found


def delta_frame(spark: SparkSession, plan: ReadPlan, inlined: Sequence[pa.Table] = ()) -> DataFrame:
    """The signed bag over (a, b]: the columns and ``__weight``, one row per distinct row, none with weight 0."""
    if any(column.name.lower() == WEIGHT for column in plan.table.columns):
        raise BadArgument(f"{plan.table.full_name} has a column named {WEIGHT}, which a delta needs for itself")
    columns = plan.table.columns
    names = [quote_spark(column.name) for column in columns]
    rows, total = _rows(spark, plan, inlined, (WEIGHT,)), F.sum(WEIGHT).alias(WEIGHT)
    if not any(map(has_map, columns)):
        return rows.groupBy(*names).agg(total).where(f"{WEIGHT} <> 0")
    # A column with maps is grouped by its comparable form and comes back as it was.
    keys = [comparable(F.col(name), c).alias(f"__k{i}") for i, (name, c) in enumerate(zip(names, columns, strict=True))]
    maps = [F.first(names[i]).alias(f"__m{i}") for i, c in enumerate(columns) if has_map(c)]
    weighed = rows.groupBy(*keys).agg(total, *maps).where(f"{WEIGHT} <> 0")
    values = [f"__m{i}" if has_map(c) else f"__k{i}" for i, c in enumerate(columns)]
    return _select(weighed, [*zip(values, (c.name for c in columns), strict=True), (WEIGHT, WEIGHT)])


def observed_weights(delta: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
    """The delta, watched on its way; after an action on it the function tells what its weights added up to."""
    observation = Observation(f"delta-{uuid.uuid4()}")
    watched = delta.observe(observation, F.coalesce(F.sum(WEIGHT), F.lit(0)).alias("sum"))
    return watched, lambda: int(observation.get["sum"])


def _rows(spark: SparkSession, plan: ReadPlan, inlined: Sequence[pa.Table], extra: tuple[str, ...]) -> DataFrame:
    """The plan's rows with these columns of ours after their own; a row counts as often as its weight says."""
    whole = in_one_piece(spark, plan.bytes_to_read + sum(table.nbytes for table in inlined))
    frames = [_read_kind(spark, plan, kind, files, extra, whole=whole) for kind, files in _kinds(spark, plan).items()]
    frames += [_inlined_frame(spark, plan, table, extra) for table in inlined]
    if not frames:
        ours = [t.StructField(name, t.LongType()) for name in extra]
        return types.no_rows(spark, t.StructType([*types.shown_schema(plan.table.columns).fields, *ours]))
    result = frames[0]
    for frame in frames[1:]:
        result = result.unionAll(frame)
    return result.coalesce(1) if whole else result


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
        told_by = checksum(spark, file.path) if deletes else file.path
        copy = copies[told_by]
        older = plan.stored_as.get(file.path, ())
        kind = _Kind(file.mapping_id, read.at_a, read.at_b, stamped, deletes, absent, older, copy)
        copies[told_by] += 1
        kinds[kind].append(read)
    return kinds


def _read_kind(
    spark: SparkSession, plan: ReadPlan, kind: _Kind, reads: list[FileRead], extra: tuple[str, ...], *, whole: bool
) -> DataFrame:
    files = [read.file for read in reads]
    columns = plan.table.columns
    located = ROW_ID in extra
    values: list[str | Expr]
    constants: list[tuple[Column, str]] = []
    if kind.mapping is None:
        schema, values = by_id(
            columns, stamped=kind.stamped, row_ids=located, absent=kind.absent, stored_as=kind.stored_as
        )
    else:
        schema, named, constants = by_name(columns, plan.mappings[kind.mapping], kind.stored_as)
        values = [f"__v{i}" for i in range(len(named))]
    frame = read_parquet(spark, schema, [file.path for file in files])
    place = [f"_metadata.row_index AS {_INDEX}"] if kind.deletes or located else []
    told = _told_by_case(spark, files) if located and not constants else None
    joined = (located or constants) and told is None
    place += [f"_metadata.file_path AS {_PATH}"] if joined else []
    place += [f"{CHECKSUM_OF_ROW} AS {CHECKSUM}"] if kind.deletes or told is not None else []
    if kind.mapping is not None:  # the file's own names could be ours
        aliased = [value.alias(f"__v{i}") for i, value in enumerate(named)]
        frame = frame.select(*aliased, *map(F.expr, place))
    elif place:
        frame = frame.selectExpr("*", *place)
    if joined:
        frame = frame.join(F.broadcast(_facts(spark, files, constants)), _PATH)
    elif told is not None:
        frame = frame.selectExpr("*", *told)
    frame, weight = _visible(plan, kind, files, frame.coalesce(1) if whole else frame, whole)
    for i, (column, _) in enumerate(constants):
        values[columns.index(column)] = F.col(f"__h{i}").cast(types.shown(column))
    own = OWN_ROW_ID if OWN_ROW_ID in schema.names else "NULL"
    ours = {
        WEIGHT: weight,
        ROW_ID: f"coalesce({own}, {_ROW_ID_START} + {_INDEX})",
        FILE_ID: FILE_ID,
        POSITION: _INDEX,
    }
    return _select(
        frame, [*zip(values, (column.name for column in columns), strict=True), *((ours[n], n) for n in extra)]
    )


def _select(frame: DataFrame, columns: Iterable[tuple[str | Expr, str]]) -> DataFrame:
    """Values, as SQL or as expressions, under their names; SQL spares Python many small talks with the JVM."""
    pairs = list(columns)
    if all(isinstance(value, str) for value, _ in pairs):
        return frame.selectExpr(*(f"{value} AS {quote_spark(name)}" for value, name in pairs))
    return frame.select(*((F.expr(v) if isinstance(v, str) else v).alias(name) for v, name in pairs))


# ---------------------------------------------------------------- visibility
def _visible(
    plan: ReadPlan, kind: _Kind, files: list[DataFile], frame: DataFrame, whole: bool
) -> tuple[DataFrame, str]:
    """The rows whose visibility counts, and the weight of each in SQL."""
    if kind.deletes:
        # in a file live at both ends, only rows that were deleted or stamped in between have a weight
        changed = kind.at_a and kind.at_b and not kind.stamped
        frame = with_words(frame, plan, files, _INDEX, a=kind.at_a, b=kind.at_b, changed=changed, whole=whole)
    seen_a, seen_b = (
        _seen(kind, live, end, bits) for live, end, bits in ((kind.at_a, plan.a, BITS_A), (kind.at_b, plan.b, BITS_B))
    )
    if not kind.at_a:
        return (frame.where(seen_b) if seen_b != "true" else frame), "1L"
    if not kind.at_b:
        return (frame.where(seen_a) if seen_a != "true" else frame), "-1L"
    return frame.where(f"({seen_a}) <> ({seen_b})"), f"CAST({seen_b} AS BIGINT) - CAST({seen_a} AS BIGINT)"


def _seen(kind: _Kind, live: bool, end: int | None, bits: str) -> str:
    """Whether a row of these files is visible at an end, in SQL."""
    if not live:
        return "false"
    conditions = [f"coalesce({STAMP}, 0L) <= {end}"] if kind.stamped else []
    conditions += [f"NOT ({is_set(bits, _INDEX)})"] if kind.deletes else []
    return " AND ".join(conditions) or "true"


# ---------------------------------------------------------------- files
def _told_by_case(spark: SparkSession, files: Sequence[DataFile]) -> list[str] | None:
    """The same as ``_facts`` without a join, which would cost a job; None where files are many, or look alike."""
    sums = [checksum(spark, file.path) for file in files]
    if len(files) > CASE_FILES or len(set(sums)) < len(files):
        return None
    ids = case({told_by: file.id for told_by, file in zip(sums, files, strict=True)})
    starts = case({told_by: file.row_id_start for told_by, file in zip(sums, files, strict=True)})
    return [f"{ids} AS {FILE_ID}", f"{starts} AS {_ROW_ID_START}"]


def _facts(spark: SparkSession, files: Sequence[DataFile], constants: Sequence[tuple[Column, str]]) -> DataFrame:
    """Per-file facts that rows need: the file's id, where its row ids start, and values that only its path holds."""
    columns: dict[str, pa.Array] = {
        _PATH: pa.array([spark_uri(spark, file.path) for file in files], pa.string()),
        FILE_ID: pa.array([file.id for file in files], pa.int64()),
        _ROW_ID_START: pa.array([file.row_id_start for file in files], pa.int64()),
    }
    for index, (column, source) in enumerate(constants):
        columns[f"__h{index}"] = pa.array([_hive_value(file.path, source, column) for file in files], pa.string())
    return spark.createDataFrame(pa.table(columns))


def _hive_value(path: str, name: str, column: Column) -> str | None:
    """What the path says of a column, by DuckDB's rules: ``NULL`` is no text, and nothing is one only as text."""
    for folder in path.replace("\\", "/").split("/")[:-1]:
        key, _, value = folder.partition("=")
        if key != name or folder.count("=") != 1:
            continue
        if value == _HIVE_NULL or value.upper() == "NULL" or (not value and column.type not in _TEXTS):
            return None
        return unquote(value)
    raise CatalogInconsistent(f"the path {path} has no value for its partition column {name!r}")


def _inlined_frame(spark: SparkSession, plan: ReadPlan, table: pa.Table, extra: tuple[str, ...]) -> DataFrame:
    fields = [t.StructField(WEIGHT, t.LongType()), t.StructField(ROW_ID, t.LongType())]
    fields += [t.StructField(column.name, types.shown(column)) for column in plan.table.columns]
    frame = spark.createDataFrame(table, t.StructType(fields))
    ours = {WEIGHT: WEIGHT, ROW_ID: ROW_ID, FILE_ID: "CAST(NULL AS BIGINT)", POSITION: "CAST(NULL AS BIGINT)"}
    own = [(quote_spark(column.name), column.name) for column in plan.table.columns]
    return _select(frame, [*own, *((ours[name], name) for name in extra)])
