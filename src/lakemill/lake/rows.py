"""The catalog rows of an intent, laid out before the commit lock is taken, and where they wait.

Ids are places: what needs an id of the lake (mappings, data files, delete files) is numbered from 0, and the
transaction adds the first free id. Few rows travel as JSON inside the statements; many wait in temporary tables, so
that nothing long runs under the lock. Used by ``lake/publish``; it decides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from lakemill.core.commit import (
    AddFiles,
    DeletePositions,
    EndFiles,
    FilesUnchanged,
    Intent,
    MergeFiles,
    NewFile,
)
from lakemill.core.schema import NameMap

INLINE_ROWS = 4000
"""Up to so many rows (a row of statistics per file and column, mostly) travel inside the statements."""

_SHAPES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "files": (
        ("place", "bigint"),
        ("table_id", "bigint"),
        ("begin_snapshot", "bigint"),
        ("path", "text"),
        ("path_is_relative", "boolean"),
        ("record_count", "bigint"),
        ("file_size_bytes", "bigint"),
        ("footer_size", "bigint"),
        ("row_offset", "bigint"),
        ("partition_id", "bigint"),
        ("mapping", "int"),
        ("partial_max", "bigint"),
    ),
    "file_columns": (
        ("place", "bigint"),
        ("table_id", "bigint"),
        ("column_id", "bigint"),
        ("column_size_bytes", "bigint"),
        ("value_count", "bigint"),
        ("null_count", "bigint"),
        ("min_value", "text"),
        ("max_value", "text"),
        ("contains_nan", "boolean"),
    ),
    "partition_values": (("place", "bigint"), ("table_id", "bigint"), ("key_index", "bigint"), ("value", "text")),
    "deletes": (
        ("place", "bigint"),
        ("table_id", "bigint"),
        ("data_file_id", "bigint"),
        ("file_place", "bigint"),
        ("replaces", "bigint"),
        ("begin_snapshot", "bigint"),
        ("path", "text"),
        ("path_is_relative", "boolean"),
        ("delete_count", "bigint"),
        ("file_size_bytes", "bigint"),
        ("footer_size", "bigint"),
    ),
    "ended": (("table_id", "bigint"), ("data_file_id", "bigint")),
    "merged": (("table_id", "bigint"), ("data_file_id", "bigint")),
    "expected": (
        ("table_id", "bigint"),
        ("data_file_id", "bigint"),
        ("delete_file_id", "bigint"),
        ("exact", "boolean"),
    ),
}


@dataclass(frozen=True, slots=True)
class Totals:
    """What the new files add to a table's totals."""

    records: int = 0
    row_ids: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class Rows:
    relations: dict[str, list[tuple[Any, ...]]] = field(default_factory=lambda: {name: [] for name in _SHAPES})
    mappings: list[tuple[int, tuple[NameMap, ...]]] = field(default_factory=list)
    """Wanted name mappings: (table id, names); the place of a mapping is its index."""
    totals: dict[int, Totals] = field(default_factory=dict)
    added: dict[int, list[NewFile]] = field(default_factory=dict)
    file_ids: int = 1
    """How many ids the commit takes; never 0, because DuckDB caches by the next one."""

    def __getitem__(self, name: str) -> list[tuple[Any, ...]]:
        return self.relations[name]

    @property
    def count(self) -> int:
        return sum(len(rows) for rows in self.relations.values())


def lay_out(intent: Intent) -> Rows:
    """All rows that the intent will write, with places instead of ids."""
    rows = Rows()
    for table_id, file in _files(intent):
        if file.mapping is not None and (table_id, file.mapping) not in rows.mappings:
            rows.mappings.append((table_id, file.mapping))
    place = len(rows.mappings)
    for update in intent.updates:
        match update:
            case AddFiles(table_id, files):
                rows.added.setdefault(table_id, []).extend(files)
                place = _lay_files(rows, table_id, files, place, merged=False)
            case MergeFiles(table_id, sources, files, delete_files):
                first = place
                rows["merged"].extend((table_id, source) for source in sources)
                rows["expected"].extend((table_id, source, None, False) for source in sources)
                place = _lay_files(rows, table_id, files, place, merged=True)
                for merged in delete_files:
                    whose = (place, table_id, None, first + merged.file, None, merged.begin)
                    rows["deletes"].append((*whose, *_delete_tail(merged)))
                    place += 1
            case DeletePositions(table_id, deletes):
                for delete in deletes:
                    head = (place, table_id, delete.data_file_id, None, delete.replaces, None)
                    rows["deletes"].append((*head, *_delete_tail(delete)))
                    rows["expected"].append((table_id, delete.data_file_id, delete.replaces, True))
                    place += 1
            case EndFiles(table_id, data_file_ids):
                rows["ended"].extend((table_id, id_) for id_ in data_file_ids)
                rows["expected"].extend((table_id, id_, None, False) for id_ in data_file_ids)
            case _:
                pass
    for requirement in intent.requirements:
        if isinstance(requirement, FilesUnchanged):
            rows["expected"].extend((requirement.table_id, file, delete, True) for file, delete in requirement.files)
    rows.file_ids = max(1, place)
    return rows


def _files(intent: Intent) -> Iterator[tuple[int, NewFile]]:
    for update in intent.updates:
        if isinstance(update, AddFiles | MergeFiles):
            for file in update.files:
                yield update.table_id, file


def _delete_tail(delete: Any) -> tuple[Any, ...]:
    return (delete.path, delete.relative, delete.delete_count, delete.size_bytes, delete.footer_size)


def _lay_files(rows: Rows, table_id: int, files: tuple[NewFile, ...], place: int, *, merged: bool) -> int:
    before = rows.totals.get(table_id, Totals())
    records, row_ids, size = before.records, before.row_ids, before.size_bytes
    for file in files:
        offset = None if file.keeps_row_ids else row_ids
        mapping = None if file.mapping is None else rows.mappings.index((table_id, file.mapping)) + 1
        partition_id = file.partition.partition_id if file.partition else None
        counts = (file.record_count, file.size_bytes, file.footer_size)
        head = (place, table_id, file.begin, file.path, file.relative)
        rows["files"].append((*head, *counts, offset, partition_id, mapping, file.partial_max))
        for column in file.columns:
            known = (column.size_bytes, column.value_count, column.null_count, column.min, column.max)
            rows["file_columns"].append((place, table_id, column.column_id, *known, column.contains_nan))
        values = file.partition.values if file.partition else ()
        rows["partition_values"].extend((place, table_id, index, value) for index, value in enumerate(values))
        if not file.keeps_row_ids:
            row_ids += file.record_count
        records, size = records + file.record_count, size + file.size_bytes
        place += 1
    if not merged and files:  # compaction leaves the totals as they are: they count what was ever inserted
        rows.totals[table_id] = Totals(records, row_ids, size)
    return place


def _without_nulls(names: list[str], row: tuple[Any, ...]) -> dict[str, Any]:
    return {name: value for name, value in zip(names, row, strict=True) if value is not None}


class Staging:
    """Where the rows wait during the attempts on one connection."""

    def __init__(self, conn: psycopg.Connection[Any], rows: Rows) -> None:
        self._conn = conn
        self._temporary = rows.count > INLINE_ROWS
        self._rows = rows
        self.values: dict[str, str] = {}
        if not self._temporary:
            for name, shape in _SHAPES.items():
                if rows[name]:
                    names = [column for column, _ in shape]
                    self.values[name] = json.dumps([_without_nulls(names, row) for row in rows[name]])

    def __enter__(self) -> Staging:
        if self._temporary:
            for name in self._filled():
                columns = sql.SQL(", ").join(
                    sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(type_)) for column, type_ in _SHAPES[name]
                )
                table = sql.Identifier(f"lakemill_{name}")
                self._conn.execute(sql.SQL("CREATE TEMP TABLE {} ({})").format(table, columns))
                with self._conn.cursor().copy(sql.SQL("COPY pg_temp.{} FROM STDIN").format(table)) as copy:
                    for row in self._rows[name]:
                        copy.write_row(row)
                self._conn.execute(sql.SQL("ANALYZE pg_temp.{}").format(table))
        return self

    def __exit__(self, *_: object) -> None:
        if self._temporary and not self._conn.closed:
            for name in self._filled():
                table = sql.Identifier(f"lakemill_{name}")
                self._conn.execute(sql.SQL("DROP TABLE IF EXISTS pg_temp.{}").format(table))

    def _filled(self) -> list[str]:
        return [name for name in _SHAPES if self._rows[name]]

    def relation(self, name: str) -> str:
        """The rows as something to select from: a temporary table, or one JSON value."""
        if self._temporary:
            return f"pg_temp.lakemill_{name}"
        shape = ", ".join(f"{column} {type_}" for column, type_ in _SHAPES[name])
        return f"(SELECT * FROM json_to_recordset(%({name})s::json) AS rows ({shape}))"  # noqa: S608  (our own names)
