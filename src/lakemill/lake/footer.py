"""Parquet footers → what the catalog must know of a file: rows, sizes, and statistics in DuckLake's own text form.

Between the executor, which wrote the files, and the intent. Every file is read back: that proves that it is there and
whole before it enters a publish. Small local footers are read by ``lake/parquet``, all others by DuckDB, in one query
and in parallel, wherever they are. Statistics are exact or absent: bounds of floats only where the footer shows that
there is no NaN, none that PostgreSQL can't hold. It reads no row, and it is meant for files of our own writing (whose
writer does not truncate bounds).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from lakemill.core.commit import DeleteFile, NewFile
from lakemill.core.names import quote
from lakemill.core.schema import Column
from lakemill.core.statistics import FLOATS, FileColumn, extreme
from lakemill.errors import InternalError, SqlFailed, StorageUnavailable, WrongType
from lakemill.lake.bounds import from_duckdb
from lakemill.lake.duck import Connection, explained
from lakemill.lake.parquet import Chunk, Contents, read_local
from lakemill.lake.staging import Staged, StagedDeletes
from lakemill.lake.target import WriteTarget

_SIZES = "SELECT file_name, file_size_bytes, footer_size FROM parquet_file_metadata(?)"
# One row per file, column and row group. A bound that was cut off is none; an old-style bound (stats_min) is one only
# for types whose order never was in doubt, and there DuckDB repeats it as stats_min_value.
_CHUNKS = """
SELECT file_name, column_id, path_in_schema, row_group_num_rows, num_values, stats_null_count, total_compressed_size,
  CASE WHEN min_is_exact IS NOT FALSE THEN stats_min_value END,
  CASE WHEN max_is_exact IS NOT FALSE THEN stats_max_value END
FROM parquet_metadata(?)"""
_FIELD_IDS = "SELECT field_id FROM parquet_schema(?) WHERE field_id IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Footer:
    path: str
    rows: int
    size_bytes: int
    footer_size: int
    columns: tuple[FileColumn, ...]


def read_footers(
    connection: Connection,
    paths: Sequence[str],
    columns: Sequence[Column],
    *,
    expected_rows: int | None = None,
    check_ids: bool = False,
) -> list[Footer]:
    """The footers of these files, in their order. The row total must be the one that Spark observed.

    ``check_ids``: they must carry the columns' field ids; without ids and a mapping DuckDB would read by position.
    """
    if not paths:
        return _checked([], expected_rows)
    leaves = [leaf for column in columns for leaf in parquet_leaves(column)]
    places = [", ".join(names) for names, _ in leaves]
    types = [column for _, column in leaves]
    found = read_local(paths, types)
    if found is None:
        found = _read_through_duckdb(connection, paths, types, check_ids=check_ids)
    if check_ids:
        _check_ids(found[0], columns)
    footers = []
    for path, contents in zip(paths, found, strict=True):
        for place, written in zip(contents.places, places, strict=False):
            if place != written:
                raise InternalError(f"{path} holds {place!r} where {written!r} was written")
        known = tuple(
            _statistics(column, chunks) for column, chunks in zip(types, contents.chunks, strict=False) if chunks
        )
        footers.append(Footer(path, contents.rows, contents.size_bytes, contents.footer_size, known))
    return _checked(footers, expected_rows)


def _read_through_duckdb(
    connection: Connection, paths: Sequence[str], leaves: Sequence[Column], *, check_ids: bool
) -> list[Contents]:
    chunks: dict[str, list[list[Chunk]]] = {path: [[] for _ in leaves] for path in paths}
    places: dict[str, dict[int, str]] = {path: {} for path in paths}
    rows = dict.fromkeys(paths, 0)
    # a cursor is not in the lake: there, every statement would first ask PostgreSQL which snapshot it reads
    with _read_back(), connection.cursor() as reader:
        for path, index, place, group, values, nulls, size, low, high in reader.execute(
            _CHUNKS, [list(paths)]
        ).fetchall():
            places[path][index] = place
            if index == 0:
                rows[path] += group
            if index < len(leaves):
                bounds = (from_duckdb(leaves[index].type, bound) for bound in (low, high))
                chunks[path][index].append(Chunk(values, nulls, size, *bounds))
        sizes = {path: (size, footer) for path, size, footer in reader.execute(_SIZES, [list(paths)]).fetchall()}
        ids = reader.execute(_FIELD_IDS, [paths[0]]).fetchall() if check_ids else ()
    return [
        Contents(
            rows[path],
            size_bytes=sizes[path][0],
            footer_size=sizes[path][1],
            places=tuple(place for _, place in sorted(places[path].items())),
            chunks=tuple(tuple(found) for found in chunks[path]),
            field_ids=frozenset(row[0] for row in ids),
        )
        for path in paths
    ]


@contextmanager
def _read_back() -> Iterator[None]:
    try:
        with explained():
            yield
    except SqlFailed as error:  # not what DuckDB takes for a Parquet file
        raise StorageUnavailable(f"a new file could not be read back: {error.message}") from error


def _count_nulls(connection: Connection, path: str, column: str) -> int:
    """Rows without a value, counted in the file itself."""
    query = f"SELECT count(*) - count({quote(column)}) FROM read_parquet($1)"  # noqa: S608  (a quoted name)
    with _read_back(), connection.cursor() as reader:
        found = reader.execute(query, [[path]]).fetchone()
    return int(found[0]) if found else 0


def new_files(connection: Connection, staged: Staged, target: WriteTarget) -> tuple[NewFile, ...]:
    """The staged files as a commit knows them; empty ones are left out. Refuses NULL in a column that allows none."""
    footers = read_footers(
        connection,
        [file.path for file in staged.files],
        target.columns,
        expected_rows=staged.rows,
        check_ids=staged.mapping is None,
    )
    required = {column.id: column.name for column in target.columns if not column.nulls_allowed}
    files = []
    for file, footer in zip(staged.files, footers, strict=True):
        for column in footer.columns:
            if (name := required.get(column.column_id)) is None:
                continue
            # Parquet's writer leaves all statistics of a column out when its bounds are long texts
            nulls = _count_nulls(connection, file.path, name) if column.null_count is None else column.null_count
            if nulls:
                raise WrongType(
                    f"column {name!r} is NOT NULL, but {nulls} rows have no value",
                    remedy="leave these rows out, or drop the constraint",
                )
        if footer.rows:
            files.append(
                NewFile(
                    file.relative,
                    footer.rows,
                    footer.size_bytes,
                    footer.footer_size,
                    footer.columns,
                    partition=file.partition,
                    mapping=staged.mapping,
                    keeps_row_ids=staged.keeps_row_ids,
                )
            )
    return tuple(files)


def new_deletes(
    connection: Connection, staged: Sequence[StagedDeletes], replaces: Mapping[int, int]
) -> tuple[DeleteFile, ...]:
    """The staged delete files as a commit knows them; ``replaces`` is the live delete file by data file."""
    total = sum(delete.positions for delete in staged)
    footers = read_footers(connection, [d.file.path for d in staged], (), expected_rows=total)
    return tuple(
        DeleteFile(
            delete.data_file_id,
            replaces.get(delete.data_file_id),
            delete.file.relative,
            footer.rows,
            footer.size_bytes,
            footer.footer_size,
        )
        for delete, footer in zip(staged, footers, strict=True)
    )


def _checked(footers: list[Footer], expected_rows: int | None) -> list[Footer]:
    total = sum(footer.rows for footer in footers)
    if expected_rows is not None and total != expected_rows:
        raise StorageUnavailable(
            f"Spark wrote {expected_rows} rows, but the files hold {total}",
            remedy="try again; nothing was published",
        )
    return footers


def _check_ids(file: Contents, columns: Sequence[Column]) -> None:
    missing = [column.name for column in columns if column.id not in file.field_ids]
    if missing:
        raise InternalError(
            f"Spark wrote no field ids for {', '.join(missing)}",
            remedy="set spark.sql.parquet.fieldId.write.enabled=true in the session that writes",
        )


def parquet_leaves(
    column: Column, prefix: tuple[str, ...] = (), name: str | None = None
) -> Iterator[tuple[tuple[str, ...], Column]]:
    """Leaves in file order, each with its path of names as Spark writes them."""
    path = (*prefix, name or column.name)
    match column.type:
        case "struct":
            for child in column.children:
                yield from parquet_leaves(child, path)
        case "list":
            yield from parquet_leaves(column.children[0], (*path, "list"), "element")
        case "map":
            for child, part in zip(column.children, ("key", "value"), strict=True):
                yield from parquet_leaves(child, (*path, "key_value"), part)
        case _:
            yield path, column


def _statistics(column: Column, chunks: Sequence[Chunk]) -> FileColumn:
    size = sum(chunk.size_bytes for chunk in chunks)
    values = sum(chunk.values for chunk in chunks)
    nulls = 0
    for chunk in chunks:
        if chunk.nulls is None:
            return FileColumn(column.id, column.type, size)
        nulls += chunk.nulls
    filled = [chunk for chunk in chunks if chunk.nulls != chunk.values]
    low = extreme(column.type, [chunk.min for chunk in filled], largest=False)
    high = extreme(column.type, [chunk.max for chunk in filled], largest=True)
    if low is None or high is None:  # one alone is of no use to DuckDB, and may hide a NaN or an infinity
        low = high = None
    # the writer's maximum is NaN as soon as there is one, and DuckDB shows no bound then: both bounds mean no NaN
    nan = False if column.type in FLOATS and (low is not None or values == nulls) else None
    return FileColumn(column.id, column.type, size, values - nulls, nulls, low, high, nan)
