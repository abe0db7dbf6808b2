"""An excerpt of the catalog: what a DuckLake must hold so that DuckDB reads just these tables, at these snapshots.

Read plans in, plain rows out; nothing is read here. The executor makes a lake in memory of them, so the extension that
wrote the files also reads them: renamed and added columns, defaults, nested fields, name-mapped and merged files are
its own business. Where stock history is wrong, the excerpt says what is right: no table-wide bounds of another time,
and deletes whose stamps lie become positions. Must not hold an address, a password or a table that is not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakemill.core.names import MAIN, fold
from lakemill.core.scan import ALL_DELETED, ReadPlan, Snapshot, View
from lakemill.core.schema import SNAPSHOT_NAME, Column, NameMap, quote_identifier
from lakemill.gateway.executor import CATALOG
from lakemill.lake.inlined import column_definitions, inlined_select

_META = f"__ducklake_metadata_{CATALOG}"
_BIG = 1 << 40
_SCHEMA_VERSION = 1
Bounds = Sequence[tuple[Any, ...]]
"""Rows of ``ducklake_file_column_stats`` without the table."""

_SNAPSHOT = ("snapshot_id", "snapshot_time", "schema_version", "next_catalog_id", "next_file_id")
_SCHEMA = ("schema_id", "begin_snapshot", "schema_name", "path", "path_is_relative")
_TABLE = ("table_id", "table_uuid", "begin_snapshot", "schema_id", "table_name", "path", "path_is_relative")
_VIEW = ("view_id", "begin_snapshot", "schema_id", "view_name", "dialect", "sql", "column_aliases")
_COLUMN = (
    *("column_id", "begin_snapshot", "table_id", "column_order", "column_name", "column_type", "initial_default"),
    *("default_value", "nulls_allowed", "parent_column", "default_value_type", "default_value_dialect"),
)
_FILE = (
    *("data_file_id", "table_id", "begin_snapshot", "path", "path_is_relative", "file_format", "record_count"),
    *("file_size_bytes", "row_id_start", "mapping_id", "partial_max"),
)
_DELETE = (
    *("delete_file_id", "table_id", "begin_snapshot", "data_file_id", "path", "path_is_relative", "format"),
    *("delete_count", "file_size_bytes"),
)
_BOUNDS = (
    *("data_file_id", "table_id", "column_id", "column_size_bytes", "value_count", "null_count", "min_value"),
    *("max_value", "contains_nan", "extra_stats"),
)
_MAPPED = ("mapping_id", "column_id", "source_name", "target_field_id", "parent_column", "is_partition")


@dataclass(slots=True)
class Excerpt:
    """What ``executor.fill`` takes; values that JSON can hold."""

    rows: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    tables: list[str] = field(default_factory=list)
    """Tables of the catalog that a table of the lake brings with it."""
    inlined: list[tuple[str, dict[str, tuple[str, list[Any]]]]] = field(default_factory=list)
    positions: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    def add(self, table: str, columns: Sequence[str], *rows: Sequence[Any]) -> None:
        into = self.rows.setdefault(f"ducklake_{table}", {column: [] for column in columns})
        for row in rows:
            for column, value in zip(columns, row, strict=True):
                into[column].append(value)

    @property
    def message(self) -> dict[str, Any]:
        return {"rows": self.rows, "tables": self.tables, "inlined": self.inlined, "positions": self.positions}


def excerpt(
    at: Snapshot, plans: Sequence[ReadPlan], views: Sequence[View], bounds: Mapping[int, Bounds] | None = None
) -> Excerpt:
    """All of it as of one snapshot, the newest of those that the plans are for."""
    out = Excerpt()
    out.add("snapshot", _SNAPSHOT, (at.id, at.time.isoformat(), _SCHEMA_VERSION, _BIG, _BIG))
    schemas = _schemas([MAIN, *(plan.table.schema for plan in plans), *(view.schema for view in views)])
    out.add("schema", _SCHEMA, *((number, 0, name, f"{number}/", True) for name, number in schemas.values()))
    for view in views:
        number = schemas[fold(view.schema)][1]
        out.add("view", _VIEW, (view.id, 0, number, view.name, "duckdb", view.sql, view.aliases))
    for plan in plans:
        _add_table(out, plan, schemas[fold(plan.table.schema)][1])
        _add_files(out, plan)
        _add_inlined(out, plan)
        found = (bounds or {}).get(plan.table.id)
        if found:
            out.add("file_column_stats", _BOUNDS, *((row[0], plan.table.id, *row[1:]) for row in found))
    return out


def _schemas(names: Iterable[str]) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for name in names:
        found.setdefault(fold(name), (name, _BIG + len(found)))
    return found


def _add_table(out: Excerpt, plan: ReadPlan, schema: int) -> None:
    table = plan.table
    out.add("table", _TABLE, (table.id, table.uuid, 0, schema, table.name, f"{table.id}/", True))
    out.add("schema_versions", ("begin_snapshot", "schema_version", "table_id"), (0, _SCHEMA_VERSION, table.id))
    rows, size = plan.rows_to_read, sum(read.file.bytes for read in plan.files)
    # no bounds of the whole table: those in the catalog are of its newest snapshot, and stock DuckDB believes them
    out.add("table_stats", ("table_id", "record_count", "next_row_id", "file_size_bytes"), (table.id, rows, _BIG, size))
    for order, (column, parent) in enumerate(_flat(table.columns), 1):
        kind = "" if column.nested else "literal"
        default = "NULL" if column.default is None else column.default
        names = (column.name, column.type, column.initial_default, default, column.nulls_allowed, parent)
        out.add("column", _COLUMN, (column.id, 0, table.id, order, *names, kind, "duckdb"))
    for number, mapping in plan.mappings.items():
        out.add("column_mapping", ("mapping_id", "table_id", "type"), (number, table.id, "map_by_name"))
        out.add("name_mapping", _MAPPED, *_mapped(number, mapping))


def _flat(columns: Iterable[Column], parent: int | None = None) -> Iterator[tuple[Column, int | None]]:
    for column in columns:
        yield column, parent
        yield from _flat(column.children, column.id)


def _mapped(number: int, mapping: Sequence[NameMap]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []

    def walk(entries: Sequence[NameMap], parent: int | None) -> None:
        for entry in entries:
            local = len(rows)
            rows.append((number, local, entry.source, entry.target, parent, entry.is_partition))
            walk(entry.children, local)

    walk(mapping, None)
    return rows


def _add_files(out: Excerpt, plan: ReadPlan) -> None:
    table = plan.table.id
    again: list[tuple[str, dict[str, Any]]] = []
    name = f"ducklake_inlined_delete_{table}"
    insert = f"INSERT INTO {_META}.{name} SELECT $file"
    for read in plan.files:
        file, partial = read.file, read.file.partial_max
        out.files.append(file.path)
        if partial is not None and partial > plan.b:
            # a merged file holds rows of later snapshots; the extension's count(*) forgets to leave them out
            later = (
                f", file_row_number, 0 FROM read_parquet($path, file_row_number = true) WHERE {SNAPSHOT_NAME} > $cut"
            )
            again.append((insert + later, {"file": file.id, "path": file.path, "cut": plan.b}))
            partial = None
        facts = (file.rows, file.bytes, file.row_id_start, file.mapping_id, partial)
        out.add("data_file", _FILE, (file.id, table, file.begin, file.path, False, file.format, *facts))
    for delete in plan.deletes:
        gone = delete.file
        out.files.append(gone.path)
        if delete.cut_b == ALL_DELETED:
            place = (gone.path, False, gone.format, gone.positions, gone.bytes)
            out.add("delete_file", _DELETE, (gone.id, table, gone.begin, gone.data_file_id, *place))
        else:
            dated = f", pos, 0 FROM read_parquet($path) WHERE coalesce({SNAPSHOT_NAME}, 0) <= $cut"
            values = {"file": gone.data_file_id, "path": gone.path, "cut": delete.cut_b}
            again.append((insert + dated, values))
    if again or plan.inlined_deletes:
        out.tables.append(f"CREATE TABLE {_META}.{name} (file_id BIGINT, row_id BIGINT, begin_snapshot BIGINT)")
    if plan.inlined_deletes:
        out.add(f"inlined_delete_{table}", ("file_id", "row_id", "begin_snapshot"), *plan.inlined_deletes)
    out.positions += again


def _add_inlined(out: Excerpt, plan: ReadPlan) -> None:
    if not any(inlined.rows for inlined in plan.inlined_rows):
        return
    table, columns = plan.table.id, plan.table.columns
    name = f"ducklake_inlined_data_{table}_{_SCHEMA_VERSION}"
    head = "row_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT"
    out.tables.append(f"CREATE TABLE {_META}.{name} ({head}, {column_definitions(columns)})")
    out.add("inlined_data_tables", ("table_id", "table_name", "schema_version"), (table, name, _SCHEMA_VERSION))
    for inlined in plan.inlined_rows:
        query, given = inlined_select(inlined, columns)
        out.inlined.append((f"INSERT INTO {_META}.{quote_identifier(name)} {query}", given))
