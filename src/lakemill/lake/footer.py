"""Parquet footers → what the catalog must know of a file: rows, sizes, and statistics in DuckLake's own text form.

Between the executor, which wrote the files, and the intent. DuckDB reads all footers in one query, in parallel,
wherever the files are; that also proves that every file is there and whole before it enters a publish. Statistics are
exact or absent: bounds of floats only where the footer shows that there is no NaN, none that PostgreSQL can't hold. It
reads no row, and it is meant for files of our own writing (whose writer does not truncate bounds).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from lakemill.core.commit import DeleteFile, NewFile
from lakemill.core.schema import Column, blob_bytes
from lakemill.core.statistics import FLOATS, FileColumn, extreme
from lakemill.errors import InternalError, SqlFailed, StorageUnavailable, WrongType
from lakemill.lake.duck import Connection, explained
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
_FIELD_IDS = "SELECT name, field_id FROM parquet_schema(?)"


@dataclass(frozen=True, slots=True)
class Footer:
    path: str
    rows: int
    size_bytes: int
    footer_size: int
    columns: tuple[FileColumn, ...]


class Chunk(NamedTuple):
    """A column in one row group."""

    values: int
    nulls: int | None
    size_bytes: int
    min: str | None
    max: str | None


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
    # a cursor is not in the lake: there, every statement would first ask PostgreSQL which snapshot it reads
    with _read_back(), connection.cursor() as reader:
        chunks: dict[tuple[str, int], list[Chunk]] = {}
        rows = dict.fromkeys(paths, 0)
        for name, index, place, group_rows, *figures in reader.execute(_CHUNKS, [list(paths)]).fetchall():
            if index == 0:
                rows[name] += group_rows
            if index < len(leaves):
                if place != ", ".join(leaves[index][0]):
                    raise InternalError(f"{name} holds {place!r} where {leaves[index][0]!r} was written")
                chunks.setdefault((name, index), []).append(Chunk(*figures))
        if check_ids:
            _check_ids(reader, paths[0], columns)
        sizes = _sizes(reader, paths)
    footers = []
    for path in paths:
        found = [
            _statistics(column, chunks[path, index])
            for index, (_, column) in enumerate(leaves)
            if (path, index) in chunks
        ]
        footers.append(Footer(path, rows[path], *sizes[path], tuple(found)))
    return _checked(footers, expected_rows)


def _sizes(reader: Connection, paths: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Size of each file and of its footer; a local file says both at its end, which is faster than a query."""
    if any("://" in path for path in paths):
        return {name: (size, footer) for name, size, footer in reader.execute(_SIZES, [list(paths)]).fetchall()}
    sizes = {}
    for path in paths:
        try:
            with Path(path).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(-8, os.SEEK_END)
                sizes[path] = size, int.from_bytes(file.read(4), "little")
        except OSError as error:
            raise StorageUnavailable(f"{path} was written but can't be read back: {error.strerror}") from error
    return sizes


@contextmanager
def _read_back() -> Iterator[None]:
    try:
        with explained():
            yield
    except SqlFailed as error:  # not what DuckDB takes for a Parquet file
        raise StorageUnavailable(f"a new file could not be read back: {error.message}") from error


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
            if column.column_id in required and column.null_count != 0:
                raise WrongType(
                    f"column {required[column.column_id]!r} is NOT NULL, but {column.null_count} rows have no value",
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


def _check_ids(connection: Connection, path: str, columns: Sequence[Column]) -> None:
    ids = {field_id for _, field_id in connection.execute(_FIELD_IDS, [path]).fetchall()}
    missing = [column.name for column in columns if column.id not in ids]
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
    low = extreme(column.type, [_text(column.type, chunk.min) for chunk in filled], largest=False)
    high = extreme(column.type, [_text(column.type, chunk.max) for chunk in filled], largest=True)
    if low is None or high is None:  # one alone is of no use to DuckDB, and may hide a NaN or an infinity
        low = high = None
    # the writer's maximum is NaN as soon as there is one, and DuckDB shows no bound then: both bounds mean no NaN
    nan = False if column.type in FLOATS and (low is not None or values == nulls) else None
    return FileColumn(column.id, column.type, size, values - nulls, nulls, low, high, nan)


def _text(type_: str, item: str | None) -> str | None:
    """A bound in the form of the catalog; None for one that it can't hold."""
    if item is None or "\x00" in item:
        return None
    match type_:
        case "boolean":
            return "1" if item == "true" else "0"
        case "blob":
            return blob_bytes(item).hex().upper()
        case "uuid":
            found = blob_bytes(item)
            return str(UUID(bytes=found)) if len(found) == 16 else None
        case "int128" | "uint128":  # DOUBLE in the file; DuckDB keeps no bounds for them either
            return None
    return item
