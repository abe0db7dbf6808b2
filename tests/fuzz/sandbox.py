"""One lake of its own per history: a PostgreSQL database, a data folder, and stock DuckDB connections to both.

Everything here is the stock extension and psycopg; Lakemill only enters in ``check`` and ``mixed``.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow.parquet as pq
from psycopg import sql

from tests.fuzz.truth import Bag, Column, State, build_columns, canonical_rows
from tests.fuzz.values import quote

Place = tuple[int, int]
"""A data file and a position in it."""
_COLUMNS = """
SELECT column_id, column_name, column_type, initial_default, parent_column FROM ducklake_column
WHERE table_id = %s AND end_snapshot IS NULL ORDER BY column_order, column_id
"""
_connect = duckdb.connect  # a run puts `unchecked` in its place
_TABLES = "SELECT table_name, table_id FROM ducklake_table WHERE end_snapshot IS NULL ORDER BY table_id"
_FLUSHES = """
SELECT snapshot_id FROM ducklake_snapshot_changes
WHERE snapshot_id > %s AND author IS NULL AND changes_made ~ 'flush|deleted_from_table'
"""
_DOUBLY_DELETED = """
SELECT DISTINCT one.table_id FROM ducklake_delete_file one JOIN ducklake_delete_file other USING (data_file_id)
WHERE one.delete_file_id < other.delete_file_id
  AND one.begin_snapshot < coalesce(other.end_snapshot, 'infinity'::float8)
  AND other.begin_snapshot < coalesce(one.end_snapshot, 'infinity'::float8)
"""
_INLINED_DELETES = (
    "SELECT table_name FROM information_schema.tables WHERE table_name ~ '^ducklake_inlined_delete_[0-9]+$'"
)
_DELETE_FILES = """
SELECT f.data_file_id, f.begin_snapshot, f.end_snapshot, t.path || f.path
FROM ducklake_delete_file f JOIN ducklake_table t USING (table_id)
WHERE t.table_id = %s AND t.end_snapshot IS NULL AND f.format = 'parquet' AND f.path_is_relative
"""
_STAMP = "_ducklake_internal_snapshot_id"
_BLIND = """
SELECT DISTINCT p.table_id, c.column_id
FROM ducklake_partition_info p JOIN ducklake_partition_column c USING (partition_id)
WHERE p.end_snapshot IS NULL AND c.transform LIKE 'bucket%' AND EXISTS (SELECT FROM ducklake_data_file f
  WHERE f.table_id = p.table_id AND f.end_snapshot IS NULL AND f.partition_id IS DISTINCT FROM p.partition_id)
"""
_DUCK_TYPES = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "int128": "HUGEINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
}


def extension(name: str) -> str:
    """The path of an extension in its wheel, or its name where the wheel is missing."""
    found = find_spec(f"duckdb_extension_{name}")
    if found is None or found.origin is None:
        return name
    files = sorted(Path(found.origin).parent.glob(f"extensions/*/{name}.duckdb_extension"))
    return f"'{files[-1]}'" if files else name


def unchecked(config: Mapping[str, Any] | None = None) -> duckdb.DuckDBPyConnection:
    """A new DuckDB that loads extensions unseen: to check their signatures takes it 0.4 s of CPU every time."""
    return _connect(config={**(config or {}), "allow_unsigned_extensions": True, "threads": 1})


@dataclass(slots=True)
class Sandbox:
    """``server`` is a libpq DSN of a database where databases may be created."""

    server: str
    name: str
    root: Path
    catalog: psycopg.Connection[Any]

    @classmethod
    def create(cls, server: str, name: str, root: Path) -> Sandbox:
        with psycopg.connect(server, autocommit=True) as admin:
            admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
            admin.execute(sql.SQL("CREATE DATABASE {} STRATEGY file_copy").format(sql.Identifier(name)))
            # A wait in one thread with two open transactions would last for ever; the extension then refuses.
            admin.execute(sql.SQL("ALTER DATABASE {} SET lock_timeout = '1s'").format(sql.Identifier(name)))
        folder = root / name
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "data").mkdir(parents=True)
        (folder / "given").mkdir()
        catalog = psycopg.connect(psycopg.conninfo.make_conninfo(server, dbname=name), autocommit=True)
        return cls(server, name, folder, catalog)

    @property
    def dsn(self) -> str:
        return psycopg.conninfo.make_conninfo(self.server, dbname=self.name)

    @property
    def data_path(self) -> str:
        return f"{self.root}/data/"

    def connect(self, who: str, inline_rows: int | None = None) -> duckdb.DuckDBPyConnection:
        """A new DuckDB instance, as another process would have; ``inline_rows`` where it creates the lake."""
        connection = unchecked()
        connection.execute(f"LOAD {extension('postgres_scanner')}; LOAD {extension('ducklake')}")
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET ducklake_retry_wait_ms = 1; SET enable_progress_bar = false")
        options = [f"DATA_PATH '{self.data_path}'"]
        if inline_rows is not None:
            options.append(f"DATA_INLINING_ROW_LIMIT {inline_rows}")
        connection.execute(
            f"ATTACH 'ducklake:postgres:{self.dsn} application_name={who}' AS lake ({', '.join(options)})"
        )
        connection.execute("USE lake")
        if inline_rows is not None:
            connection.execute(f"CALL lake.set_option('data_inlining_row_limit', {inline_rows})")
        return connection

    def end_sessions(self, who: str) -> None:
        """Cut a client's PostgreSQL sessions, as the death of its process would."""
        self.catalog.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = %s",
            (who,),
        )

    def head(self) -> int:
        row = self.catalog.execute("SELECT max(snapshot_id) FROM ducklake_snapshot").fetchone()
        return int(row[0]) if row else -1

    def readable(self) -> list[int]:
        return [int(r[0]) for r in self.catalog.execute("SELECT snapshot_id FROM ducklake_snapshot ORDER BY 1")]

    def tables(self) -> dict[str, int]:
        return {str(name): int(table_id) for name, table_id in self.catalog.execute(_TABLES)}

    def columns(self, table_id: int) -> tuple[Column, ...]:
        return build_columns(self.catalog.execute(_COLUMNS, (table_id,)).fetchall())

    def blind_columns(self) -> dict[int, frozenset[int]]:
        """Table → columns that it is partitioned by in buckets while some of its files are not.

        Stock DuckDB leaves those files out when a row is looked up by such a column.
        """
        found = self.catalog.execute(_BLIND).fetchall()
        return {table: frozenset(column for one, column in found if one == table) for table, _ in found}

    def states(self, reader: duckdb.DuckDBPyConnection) -> dict[str, State]:
        """Every table at the head, by plain SELECTs."""
        out = {}
        for name, table_id in self.tables().items():
            columns = self.columns(table_id)
            out[name] = State(name, table_id, columns, read_rows(reader, name, columns))
        return out

    def flushes(self, since: int) -> list[int]:
        return [int(snapshot) for (snapshot,) in self.catalog.execute(_FLUSHES, (since,))]

    def doubly_deleted(self) -> set[int]:
        """Tables with two delete files for one data file at the same time: nobody can read those rightly."""
        return {int(table_id) for (table_id,) in self.catalog.execute(_DOUBLY_DELETED)}

    def inlined_deletes(self) -> dict[int, set[Place]]:
        """Table → what is deleted by a row of the catalog."""
        out = {}
        for (name,) in self.catalog.execute(_INLINED_DELETES).fetchall():
            found = self.catalog.execute(sql.SQL("SELECT file_id, row_id FROM {}").format(sql.Identifier(name)))
            out[int(name.rsplit("_", 1)[1])] = {(int(file), int(position)) for file, position in found}
        return out

    def dead(self, table_id: int) -> dict[Place, set[int]]:
        """What delete files delete, and the snapshots up to the head at which they do."""
        out: dict[Place, set[int]] = defaultdict(set)
        head = self.head()
        for file, begin, end, path in self.catalog.execute(_DELETE_FILES, (table_id,)).fetchall():
            if not (there := Path(f"{self.data_path}main/{path}")).exists():
                continue  # removed by the extension after it had committed it: the table is lost, or soon found to be
            read = pq.ParquetFile(there).read()
            stamps = read.column(_STAMP).to_pylist() if _STAMP in read.column_names else [begin] * read.num_rows
            last = head + 1 if end is None else end
            for position, stamp in zip(read.column("pos").to_pylist(), stamps, strict=True):
                out[file, position].update(range(max(begin, stamp or 0), last))
        return out

    def drop(self) -> None:
        """Remove the database, whoever still uses it, and the files."""
        self.catalog.close()
        with psycopg.connect(self.server, autocommit=True) as admin:
            admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(self.name)))
        shutil.rmtree(self.root, ignore_errors=True)


def read_rows(reader: duckdb.DuckDBPyConnection, table: str, columns: Sequence[Column], at: int | None = None) -> Bag:
    version = "" if at is None else f" AT (VERSION => {at})"
    names = ", ".join(quote(column.name) for column in columns)
    return canonical_rows(columns, fetch(reader, f"SELECT {names} FROM lake.main.{quote(table)}{version}"))


def fetch(reader: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    """Rows through Arrow, where maps, decimals and times come as both engines give them."""
    table = reader.execute(query).to_arrow_table()
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def fetch_by_rows(reader: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    """The same where a condition must be held against each row.

    By statistics stock DuckDB takes a column for one without NULLs when a file that lacks it was added.
    """
    reader.execute("SET disabled_optimizers = 'statistics_propagation'")
    try:
        return fetch(reader, query)
    finally:
        reader.execute("SET disabled_optimizers = ''")


def parse_default(reader: duckdb.DuckDBPyConnection, type_: str, text: str) -> Any:
    value = reader.execute(f"SELECT CAST(? AS {_DUCK_TYPES.get(type_, type_)}) AS v", [text]).to_arrow_table()
    return value.column(0).to_pylist()[0]
