"""Typed reads of the DuckLake catalog, all inside one REPEATABLE READ transaction.

``reading(conn, schema)`` opens the transaction and yields a ``Catalog``; every answer inside it belongs to one state of
the database, so that a plan never mixes two commits. It only reads; writing is ``lake/publish.py``, DDL is DuckDB's.
The queries stand in ``store/sql/catalog.sql``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from lakemill.core.changes import kinds_for, parse_changes
from lakemill.core.names import fold
from lakemill.core.prune import Condition
from lakemill.core.scan import DataFile, DeleteFile, InlinedDelete, InlinedRows, Snapshot, TableAt, View
from lakemill.core.schema import Column, NameMap, build_columns, build_name_map
from lakemill.core.timing import Labels, WrittenBy
from lakemill.errors import CatalogInconsistent, NoLake, SnapshotGone, UnknownSnapshot, UnknownTable, UnsupportedLake
from lakemill.lake.pruning import excluded_files
from lakemill.store.db import reason
from lakemill.store.queries import load_queries

_ANY_CATALOG = "{DUCKLAKE_CATALOG}"
FORMAT = "1.0"
QUERIES = load_queries("catalog")


@contextmanager
def reading(conn: psycopg.Connection[Any], schema: str = "public") -> Iterator[Catalog]:
    """One REPEATABLE READ transaction over the catalog in this schema."""
    try:
        with conn.transaction():
            conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            conn.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(schema)))
            yield Catalog(conn)
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
        raise incomplete(error) from error


def incomplete(error: Exception | str) -> CatalogInconsistent:
    """What it means that a table or a column of the catalog is not there."""
    told = error if isinstance(error, str) else reason(error).partition("; LINE")[0]
    return CatalogInconsistent(
        f"the catalog is not complete: {told}", remedy="restore the PostgreSQL database from a backup"
    )


class Catalog:
    """Reads of one lake's catalog inside one transaction."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn = conn
        try:
            found = dict(self._all("metadata"))
        except psycopg.errors.UndefinedTable as error:
            raise NoLake("this database holds no DuckLake catalog") from error
        if found.get("version") != FORMAT:
            version = str(found.get("version"))
            newer = re.match(r"[1-9]", version)
            raise UnsupportedLake(
                f"the lake has DuckLake format {version}, Lakemill reads and writes {FORMAT}",
                remedy="use a Lakemill that knows this format"
                if newer
                else f"attach it once with a DuckDB whose ducklake extension migrates it to {FORMAT}",
            )
        path: str = found["data_path"]
        # A lake made with a relative path means the folder its maker worked in; ours is the best guess there is.
        self.data_path = path if "://" in path else str(Path(path).absolute()) + "/"

    def _all(self, query: str, parts: Mapping[str, sql.Composable] | None = None, **values: Any) -> list[Any]:
        return self._conn.execute(QUERIES[query].compose(parts), values).fetchall()

    def _one(self, query: str, parts: Mapping[str, sql.Composable] | None = None, **values: Any) -> Any:
        return self._conn.execute(QUERIES[query].compose(parts), values).fetchone()

    # ------------------------------------------------------------ snapshots
    def head(self) -> Snapshot:
        return Snapshot(*self._one("head"))

    def oldest(self) -> int:
        """The oldest snapshot that can still be read."""
        return int(self._one("oldest")[0])

    def snapshot(self, snapshot_id: int) -> Snapshot:
        row = self._one("snapshot", id=snapshot_id)
        if row is not None:
            return Snapshot(*row)
        newest = self.head().id
        if 0 <= snapshot_id <= newest:
            raise SnapshotGone(f"snapshot {snapshot_id} was expired")
        raise UnknownSnapshot(f"there is no snapshot {snapshot_id}; the newest is {newest}")

    def snapshot_at(self, time: datetime) -> Snapshot:
        """The newest snapshot that was there at a time; as DuckDB has it, a commit counts from its start."""
        row = self._one("snapshot_at", time=time)
        if row is None:
            raise UnknownSnapshot(f"there was no snapshot yet, or there is none left, of {time.isoformat()}")
        return Snapshot(*row)

    def labels(self, table_id: int, first: int, last: int) -> Labels:
        """What the commits first..last did to the table, as far as they are still recorded."""
        rows = self._all("labels", first=first, last=last)
        return Labels({snapshot: kinds_for(parse_changes(text), table_id) for snapshot, text in rows})

    def untouched(self, table_id: int, since: int, last: int, kinds: frozenset[str]) -> bool:
        """Whether no commit of (since, last] did such a thing to the table; ``since`` must still be kept.

        The labels say it. Where some of them were expired, the table's files do, as long as none is younger.
        """
        labels = self.labels(table_id, since + 1, last)
        if any(found & kinds for found in labels.kinds.values()):
            return False
        complete = len(labels.kinds) == last - since
        return complete or not self._one("written_since", table=table_id, since=since)[0]

    def touched(self, a: int, b: int) -> frozenset[int] | None:
        """The tables that the commits of (a, b] name; None where one of them no longer says what it did."""
        rows = self._all("changes_since", a=a, b=b)
        if len(rows) != b - a or any(text is None for _, text in rows):
            return None
        return frozenset(c.table_id for _, text in rows for c in parse_changes(text) if c.table_id is not None)

    def written_by(self, file_id: int) -> WrittenBy:
        """The commit that wrote a file: the first snapshot whose next_file_id exceeds its id."""
        return WrittenBy(*self._one("written_by", file=file_id))

    # ------------------------------------------------------------ tables
    def table(self, schema: str, name: str, at: int) -> TableAt:
        found = self._table(self._one("table_by_name", schema=schema, name=name, at=at, root=self.data_path), at)
        if found is None:
            raise UnknownTable(f"there is no table {schema}.{name} at snapshot {at}")
        return found

    def table_id(self, schema: str, name: str, at: int) -> int | None:
        """Which table has the name; nothing else is asked."""
        row = self._one("table_by_name", schema=schema, name=name, at=at, root=self.data_path)
        return None if row is None else int(row[0])

    def tables_called(self, schema: str, prefix: str, at: int) -> list[str]:
        """The tables of a schema whose names begin so."""
        return [name for (name,) in self._all("tables_called", schema=schema, prefix=prefix, at=at)]

    def table_by_id(self, table_id: int, at: int) -> TableAt | None:
        return self._table(self._one("table_by_id", id=table_id, at=at, root=self.data_path), at)

    def _table(self, row: Any, at: int) -> TableAt | None:
        if row is None:
            return None
        table_id, uuid, schema_id, schema, name, path = row
        (version,) = self._one("columns_version", table=table_id, at=at)
        return TableAt(table_id, uuid, schema_id, schema, name, path, self.columns(table_id, at), version)

    def schema_id(self, schema: str, at: int) -> int:
        row = self._one("schema_by_name", schema=schema, at=at)
        if row is None:
            raise UnknownTable(f"there is no schema {schema}", remedy="make it with CREATE SCHEMA")
        return int(row[0])

    def view(self, schema: str, name: str, at: int) -> View | None:
        row = self._one("view_by_name", schema=schema, name=name, at=at)
        if row is None:
            return None
        found = View(*row)  # the extension writes its mark where somebody wrote the name that the lake was attached by
        return replace(found, sql=found.sql.replace(f"{_ANY_CATALOG}.", ""))

    def columns(self, table_id: int, at: int) -> tuple[Column, ...]:
        return build_columns(self._all("columns", table=table_id, at=at))

    def retyped(self, table_id: int) -> dict[int, tuple[str, ...]]:
        """Columns whose type has changed: all the types that they have had."""
        return {column: tuple(types) for column, types in self._all("retyped", table=table_id)}

    def old_names(self, table_id: int) -> dict[str, int]:
        """Names that live columns of a table had before, and the columns."""
        return dict(self._all("old_names", table=table_id))

    def reused_names(self, table_id: int) -> dict[tuple[int, str], frozenset[int]]:
        """Names that several columns have had, in one place (0: the table), in lower case."""
        rows = self._all("reused_names", table=table_id)
        return {(place, name): frozenset(columns) for place, name, columns in rows}

    def column_changes(self, table_id: int) -> list[int]:
        """The snapshots since which a table has had other columns, the newest first."""
        return [row[0] for row in self._all("column_changes", table=table_id)]

    def options(self, table: TableAt) -> dict[str, str]:
        """The lake's options as they hold for a table: its own win over its schema's, those over the lake's."""
        return dict(self._all("options", schema=table.schema_id, table=table.id))

    # ------------------------------------------------------------ files
    def files(self, table: TableAt, at: int, conditions: Sequence[Condition] = ()) -> list[DataFile]:
        """The data files at a snapshot that can hold a row which meets all conditions."""
        kept: sql.Composable = sql.SQL("TRUE")
        values: dict[str, Any] = {}
        if conditions:
            excluded, values = excluded_files(conditions)
            kept = sql.SQL("NOT EXISTS (SELECT FROM ({}) e WHERE e.data_file_id = d.data_file_id)").format(excluded)
        return self._files("files_at", table, {"kept": kept}, at=at, **values)

    def bounds(self, table: TableAt, files: Sequence[int], columns: Sequence[int]) -> list[tuple[Any, ...]]:
        """What is known of these columns in these files: file, column, size, counts, bounds."""
        return self._all("file_bounds", table=table.id, files=list(files), columns=list(columns))

    def file_count(self, table: TableAt, at: int) -> int:
        return int(self._one("file_count", table=table.id, at=at)[0])

    def changed_files(self, table: TableAt, a: Snapshot, b: int, inlined: Sequence[int]) -> list[DataFile]:
        """Files live at either end that can differ between them; ``inlined`` are files with inlined deletes since a."""
        return self._files(
            "files_changed", table, None, a=a.id, b=b, next_file_id=a.next_file_id, inlined=list(inlined)
        )

    def _files(
        self, query: str, table: TableAt, parts: Mapping[str, sql.Composable] | None, **values: Any
    ) -> list[DataFile]:
        rows = self._conn.execute(QUERIES[query].compose(parts), {"table": table.id, **values})
        base = table.path
        return [DataFile(id_, base + path if relative else path, *rest) for id_, path, relative, *rest in rows]

    def deletes_at(self, table: TableAt, at: int) -> list[DeleteFile]:
        return self._deletes("deletes_at", table, at=at)

    def deletes_of(self, table: TableAt, files: Sequence[int], a: int, b: int) -> list[DeleteFile]:
        return self._deletes("deletes_of", table, files=list(files), a=a, b=b)

    def _deletes(self, query: str, table: TableAt, **values: Any) -> list[DeleteFile]:
        base = table.path
        return [
            DeleteFile(id_, data_file, base + path if relative else path, *rest)
            for id_, data_file, path, relative, *rest in self._all(query, table=table.id, **values)
        ]

    def mapping(self, mapping_id: int) -> tuple[NameMap, ...]:
        return build_name_map(self._all("mapping", mapping=mapping_id))

    # ------------------------------------------------------------ inlined data
    def inlined_deletes(self, table_id: int, up_to: int) -> list[InlinedDelete]:
        name = _inlined_delete_table(table_id)
        if not self._exists(name):
            return []
        rows = self._all("inlined_deletes", {"table": sql.Identifier(name)}, up_to=up_to)
        return [InlinedDelete(*row) for row in rows]

    def inlined_rows(self, table: TableAt, a: int | None, b: int) -> list[InlinedRows]:
        """Inlined rows visible at b (for a delta: at exactly one of the two ends), as text for DuckDB to cast."""
        found = []
        for name, since in self._all("inlined_tables", table=table.id):
            there = [column for (column,) in self._all("inlined_columns", name=name)]
            if since is None or not there:
                continue
            columns = self.columns(table.id, since)
            selected = [sql.SQL("row_id, begin_snapshot, end_snapshot"), *_values(name, there, columns)]
            parts = {"columns": sql.SQL(", ").join(selected), "table": sql.Identifier(name)}
            rows = self._all("inlined_rows", parts, a=-1 if a is None else a, b=b)
            if rows:
                found.append(InlinedRows(columns, tuple(rows)))
        return found

    def _exists(self, name: str) -> bool:
        return bool(self._one("relation_exists", name=name)[0])


def _inlined_delete_table(table_id: int) -> str:
    return f"ducklake_inlined_delete_{table_id}"


def _values(table: str, there: Sequence[str], columns: Sequence[Column]) -> list[sql.Composable]:
    """The columns of a table of inlined rows, by the names that PostgreSQL has for them.

    The extension writes a name without quotes where DuckDB needs none, and PostgreSQL takes that in lower case.
    """
    names = {fold(name): name for name in there}
    if lost := [column.name for column in columns if fold(column.name) not in names]:
        raise incomplete(f"{table} has no column {', '.join(lost)}")
    return [_as_text(names[fold(column.name)], column) for column in columns]


def _as_text(name: str, column: Column) -> sql.Composable:
    """What PostgreSQL holds as bytes or text stays so; the rest has a text form that DuckDB parses exactly."""
    value = sql.Identifier(name.replace("%", "%%"))  # psycopg reads the whole statement for parameters
    if column.nested or column.type in ("varchar", "json", "blob"):
        return value
    return sql.SQL("{}::text").format(value)
