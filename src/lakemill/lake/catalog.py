"""Typed reads of the DuckLake catalog, all inside one REPEATABLE READ transaction.

``reading(conn, schema)`` opens the transaction and yields a ``Catalog``; every answer inside it belongs to one state of
the database, so that a plan never mixes two commits. It only reads; writing is ``lake/publish.py``, DDL is DuckDB's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from lakemill.core.changes import kinds_for, parse_changes
from lakemill.core.prune import Condition
from lakemill.core.scan import DataFile, DeleteFile, InlinedDelete, InlinedRows, Snapshot, TableAt
from lakemill.core.schema import Column, NameMap, build_columns, build_name_map
from lakemill.core.timing import Labels, WrittenBy
from lakemill.errors import NoLake, SnapshotGone, UnknownSnapshot, UnknownTable, UnsupportedLake
from lakemill.lake.pruning import excluded_files

FORMAT = "1.0"

_FILE_COLUMNS = """d.data_file_id, d.path, d.path_is_relative, d.begin_snapshot, d.end_snapshot, d.partial_max,
  d.record_count, d.file_size_bytes, d.row_id_start, d.mapping_id, d.partition_id, d.encryption_key IS NOT NULL,
  d.file_format"""
_DELETE_COLUMNS = """x.delete_file_id, x.data_file_id, x.path, x.path_is_relative, x.begin_snapshot, x.end_snapshot,
  x.delete_count, x.file_size_bytes, x.partial_max, x.encryption_key IS NOT NULL, x.format"""

FILES_AT = f"""SELECT {_FILE_COLUMNS} FROM ducklake_data_file d
WHERE d.table_id = %(table)s AND d.begin_snapshot <= %(at)s AND (d.end_snapshot IS NULL OR d.end_snapshot > %(at)s)
ORDER BY d.data_file_id"""
FILES_AT_EXCEPT = f"""SELECT {_FILE_COLUMNS} FROM ducklake_data_file d
WHERE d.table_id = %(table)s AND d.begin_snapshot <= %(at)s AND (d.end_snapshot IS NULL OR d.end_snapshot > %(at)s)
  AND NOT EXISTS (SELECT FROM ({{excluded}}) e WHERE e.data_file_id = d.data_file_id)
ORDER BY d.data_file_id"""
# Only files that can differ between the two ends: three index ranges, not the whole table.
FILES_CHANGED = f"""WITH touched AS (
  SELECT data_file_id FROM ducklake_data_file WHERE table_id = %(table)s AND begin_snapshot > %(a)s AND begin_snapshot <= %(b)s
  UNION SELECT data_file_id FROM ducklake_data_file WHERE table_id = %(table)s AND end_snapshot > %(a)s AND end_snapshot <= %(b)s
  UNION SELECT data_file_id FROM ducklake_data_file WHERE table_id = %(table)s AND partial_max > %(a)s
  UNION SELECT data_file_id FROM ducklake_delete_file WHERE table_id = %(table)s AND delete_file_id >= %(next_file_id)s
  UNION SELECT data_file_id FROM ducklake_delete_file WHERE table_id = %(table)s AND end_snapshot > %(a)s AND end_snapshot <= %(b)s
  UNION SELECT unnest(%(inlined)s::bigint[]))
SELECT {_FILE_COLUMNS} FROM ducklake_data_file d JOIN touched USING (data_file_id)
WHERE d.table_id = %(table)s AND ((d.begin_snapshot <= %(a)s AND (d.end_snapshot IS NULL OR d.end_snapshot > %(a)s))
   OR (d.begin_snapshot <= %(b)s AND (d.end_snapshot IS NULL OR d.end_snapshot > %(b)s)))
ORDER BY d.data_file_id"""
DELETES_AT = f"""SELECT {_DELETE_COLUMNS} FROM ducklake_delete_file x
WHERE x.table_id = %(table)s AND x.begin_snapshot <= %(at)s AND (x.end_snapshot IS NULL OR x.end_snapshot > %(at)s)
  AND x.data_file_id IN (SELECT data_file_id FROM ducklake_data_file d WHERE d.table_id = %(table)s
    AND d.begin_snapshot <= %(at)s AND (d.end_snapshot IS NULL OR d.end_snapshot > %(at)s))"""
DELETES_OF = f"""SELECT {_DELETE_COLUMNS} FROM ducklake_delete_file x
WHERE x.table_id = %(table)s AND x.data_file_id = ANY(%(files)s)
  AND ((x.begin_snapshot <= %(a)s AND (x.end_snapshot IS NULL OR x.end_snapshot > %(a)s))
    OR (x.begin_snapshot <= %(b)s AND (x.end_snapshot IS NULL OR x.end_snapshot > %(b)s)))"""
COLUMNS_AT = """SELECT column_id, column_name, column_type, initial_default, default_value, nulls_allowed, parent_column
FROM ducklake_column WHERE table_id = %(table)s AND begin_snapshot <= %(at)s
  AND (end_snapshot IS NULL OR end_snapshot > %(at)s) ORDER BY column_order"""
TABLE_AT = """SELECT t.table_id, t.table_uuid::text, t.schema_id, s.schema_name, t.table_name,
  CASE WHEN t.path_is_relative THEN CASE WHEN s.path_is_relative THEN %(root)s ELSE '' END || s.path ELSE '' END || t.path
FROM ducklake_table t JOIN ducklake_schema s USING (schema_id)
WHERE {which} AND t.begin_snapshot <= %(at)s AND (t.end_snapshot IS NULL OR t.end_snapshot > %(at)s)
  AND s.begin_snapshot <= %(at)s AND (s.end_snapshot IS NULL OR s.end_snapshot > %(at)s)"""
BY_NAME = "lower(s.schema_name) = lower(%(schema)s) AND lower(t.table_name) = lower(%(name)s)"
BY_ID = "t.table_id = %(id)s"


class Catalog:
    """Reads of one lake's catalog inside one transaction."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn = conn
        try:
            rows = dict(
                conn.execute(
                    "SELECT key, value FROM ducklake_metadata WHERE scope IS NULL AND key IN ('version', 'data_path', 'encrypted')"
                ).fetchall()
            )
        except psycopg.errors.UndefinedTable as error:
            raise NoLake("this database holds no DuckLake catalog") from error
        if rows.get("version") != FORMAT:
            raise UnsupportedLake(
                f"the lake has DuckLake format {rows.get('version')}, Lakemill reads and writes {FORMAT}",
                remedy=f"attach it once with a DuckDB whose ducklake extension migrates it to {FORMAT}",
            )
        path: str = rows["data_path"]
        # A lake made with a relative path means the folder its maker worked in; ours is the best guess there is.
        self.data_path = path if "://" in path else os.path.abspath(path) + "/"

    # ------------------------------------------------------------ snapshots
    def head(self) -> Snapshot:
        row = self._conn.execute(
            "SELECT snapshot_id, snapshot_time, schema_version, next_file_id FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1"
        ).fetchone()
        assert row is not None  # noqa: S101  (a catalog always has a snapshot)
        return Snapshot(*row)

    def snapshot(self, snapshot_id: int) -> Snapshot:
        row = self._conn.execute(
            "SELECT snapshot_id, snapshot_time, schema_version, next_file_id FROM ducklake_snapshot WHERE snapshot_id = %s",
            (snapshot_id,),
        ).fetchone()
        if row is not None:
            return Snapshot(*row)
        if snapshot_id < 0 or snapshot_id > self.head().id:
            raise UnknownSnapshot(f"there is no snapshot {snapshot_id}; the newest is {self.head().id}")
        raise SnapshotGone(f"snapshot {snapshot_id} was expired")

    def labels(self, table_id: int, first: int, last: int) -> Labels:
        """What the commits first..last did to the table, as far as they are still recorded."""
        rows = self._conn.execute(
            "SELECT snapshot_id, changes_made FROM ducklake_snapshot JOIN ducklake_snapshot_changes USING (snapshot_id)"
            " WHERE snapshot_id BETWEEN %s AND %s",
            (first, last),
        ).fetchall()
        return Labels({snapshot: kinds_for(parse_changes(text), table_id) for snapshot, text in rows})

    def written_by(self, file_id: int) -> WrittenBy:
        """The commit that wrote a file: the first snapshot whose next_file_id exceeds its id."""
        row = self._conn.execute(
            "SELECT 1 + coalesce((SELECT snapshot_id FROM ducklake_snapshot WHERE next_file_id <= %(file)s"
            "  ORDER BY next_file_id DESC, snapshot_id DESC LIMIT 1), -1),"
            " (SELECT snapshot_id FROM ducklake_snapshot WHERE next_file_id > %(file)s"
            "  ORDER BY next_file_id, snapshot_id LIMIT 1)",
            {"file": file_id},
        ).fetchone()
        assert row is not None  # noqa: S101  (an aggregate always has a row)
        return WrittenBy(*row)

    # ------------------------------------------------------------ tables
    def table(self, schema: str, name: str, at: int) -> TableAt:
        found = self._table(BY_NAME, {"schema": schema, "name": name, "at": at})
        if found is None:
            raise UnknownTable(f"there is no table {schema}.{name} at snapshot {at}")
        return found

    def table_by_id(self, table_id: int, at: int) -> TableAt | None:
        return self._table(BY_ID, {"id": table_id, "at": at})

    def _table(self, which: str, values: dict[str, Any]) -> TableAt | None:
        query = sql.SQL(TABLE_AT).format(which=sql.SQL(which))
        row = self._conn.execute(query, {**values, "root": self.data_path}).fetchone()
        if row is None:
            return None
        version = self._conn.execute(
            "SELECT max(begin_snapshot) FROM ducklake_schema_versions WHERE table_id = %s AND begin_snapshot <= %s",
            (row[0], values["at"]),
        ).fetchone()
        return TableAt(*row[:6], self.columns(row[0], values["at"]), (version and version[0]) or 0)

    def columns(self, table_id: int, at: int) -> tuple[Column, ...]:
        return build_columns(self._conn.execute(COLUMNS_AT, {"table": table_id, "at": at}).fetchall())

    # ------------------------------------------------------------ files
    def files(self, table: TableAt, at: int, conditions: Sequence[Condition] = ()) -> list[DataFile]:
        values = {"table": table.id, "at": at}
        if not conditions:
            return self._files(sql.SQL(FILES_AT), values, table)
        excluded, more = excluded_files(conditions)
        return self._files(sql.SQL(FILES_AT_EXCEPT).format(excluded=excluded), values | more, table)

    def file_count(self, table: TableAt, at: int) -> int:
        row = self._conn.execute(
            "SELECT count(*) FROM ducklake_data_file d WHERE d.table_id = %(table)s AND d.begin_snapshot <= %(at)s"
            " AND (d.end_snapshot IS NULL OR d.end_snapshot > %(at)s)",
            {"table": table.id, "at": at},
        ).fetchone()
        return int(row[0]) if row else 0

    def changed_files(self, table: TableAt, a: Snapshot, b: int, inlined: Sequence[int]) -> list[DataFile]:
        """Files live at either end that can differ between them; ``inlined`` are files with inlined deletes since a."""
        values = {"table": table.id, "a": a.id, "b": b, "next_file_id": a.next_file_id, "inlined": list(inlined)}
        return self._files(sql.SQL(FILES_CHANGED), values, table)

    def _files(self, query: sql.SQL | sql.Composed, values: dict[str, Any], table: TableAt) -> list[DataFile]:
        base = table.path
        return [
            DataFile(id_, base + path if relative else path, *rest)
            for id_, path, relative, *rest in self._conn.execute(query, values)
        ]

    def deletes_at(self, table: TableAt, at: int) -> list[DeleteFile]:
        return self._deletes(sql.SQL(DELETES_AT), {"table": table.id, "at": at}, table)

    def deletes_of(self, table: TableAt, files: Sequence[int], a: int, b: int) -> list[DeleteFile]:
        return self._deletes(sql.SQL(DELETES_OF), {"table": table.id, "files": list(files), "a": a, "b": b}, table)

    def _deletes(self, query: sql.SQL | sql.Composed, values: dict[str, Any], table: TableAt) -> list[DeleteFile]:
        return [
            DeleteFile(id_, data_file, table.path + path if relative else path, *rest)
            for id_, data_file, path, relative, *rest in self._conn.execute(query, values)
        ]

    def mapping(self, mapping_id: int) -> tuple[NameMap, ...]:
        return build_name_map(
            self._conn.execute(
                "SELECT column_id, source_name, target_field_id, parent_column, is_partition FROM ducklake_name_mapping"
                " WHERE mapping_id = %s ORDER BY column_id",
                (mapping_id,),
            ).fetchall()
        )

    # ------------------------------------------------------------ inlined data
    def inlined_deletes(self, table_id: int, up_to: int) -> list[InlinedDelete]:
        name = f"ducklake_inlined_delete_{table_id}"
        if not self._exists(name):
            return []
        query = sql.SQL("SELECT file_id, row_id, begin_snapshot FROM {} WHERE begin_snapshot <= %s").format(
            sql.Identifier(name)
        )
        return [InlinedDelete(*row) for row in self._conn.execute(query, (up_to,))]

    def inlined_rows(self, table: TableAt, a: int | None, b: int) -> list[InlinedRows]:
        """Inlined rows visible at b (for a delta: at exactly one of the two ends), as text for DuckDB to cast."""
        found = []
        tables = self._conn.execute(
            "SELECT i.table_name, (SELECT min(v.begin_snapshot) FROM ducklake_schema_versions v"
            "  WHERE v.table_id = i.table_id AND v.schema_version = i.schema_version)"
            " FROM ducklake_inlined_data_tables i WHERE i.table_id = %s ORDER BY i.schema_version",
            (table.id,),
        ).fetchall()
        for name, since in tables:
            if since is None or not self._exists(name):
                continue
            columns = self.columns(table.id, since)
            values = [_as_text(column) for column in columns]
            query = sql.SQL(
                "SELECT {columns} FROM (SELECT *, begin_snapshot <= %(b)s AND (end_snapshot IS NULL OR end_snapshot > %(b)s) AS at_b,"
                " begin_snapshot <= %(a)s AND (end_snapshot IS NULL OR end_snapshot > %(a)s) AS at_a FROM {table}) x"
                " WHERE at_a <> at_b"
            ).format(
                columns=sql.SQL(", ").join([sql.SQL("row_id, begin_snapshot, end_snapshot"), *values]),
                table=sql.Identifier(name),
            )
            rows = self._conn.execute(query, {"a": -1 if a is None else a, "b": b}).fetchall()
            if rows:
                found.append(InlinedRows(columns, tuple(rows)))
        return found

    def has_inlined(self, table_id: int) -> bool:
        """Whether any row or delete of the table lives in the catalog, at any snapshot."""
        names = [f"ducklake_inlined_delete_{table_id}"]
        names += [
            row[0]
            for row in self._conn.execute(
                "SELECT table_name FROM ducklake_inlined_data_tables WHERE table_id = %s", (table_id,)
            )
        ]
        for name in names:
            if self._exists(name):
                row = self._conn.execute(
                    sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(name))
                ).fetchone()
                if row and row[0]:
                    return True
        return False

    def _exists(self, name: str) -> bool:
        row = self._conn.execute("SELECT to_regclass(quote_ident(%s)) IS NOT NULL", (name,)).fetchone()
        return bool(row and row[0])


def _as_text(column: Column) -> sql.Composable:
    """What PostgreSQL holds as bytes or text stays so; the rest has a text form that DuckDB parses exactly."""
    name = sql.Identifier(column.name)
    if column.nested or column.type in ("varchar", "json", "blob"):
        return name
    return sql.SQL("{}::text").format(name)


@contextmanager
def reading(conn: psycopg.Connection[Any], schema: str = "public") -> Iterator[Catalog]:
    """One REPEATABLE READ, READ ONLY transaction over the catalog in this schema."""
    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        conn.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(schema)))
        yield Catalog(conn)
