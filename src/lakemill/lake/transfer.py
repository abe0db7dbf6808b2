"""Moves a lake whose catalog is a DuckDB or SQLite file into PostgreSQL, with every snapshot; its data files stay.

The copy is built in a schema of its own (tables made by the extension, so that they are what it expects), compared with
the source (`lake/comparison.py`), and then given its place by one PostgreSQL transaction: until then the target has no
lake, and a failure leaves nothing. Called by `runtime/create.py`. The source is only read.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from lakemill.errors import BadArgument, ForeignLock, LakeExists, LakemillError, UnsupportedLake
from lakemill.lake import duck
from lakemill.lake.catalog import FORMAT
from lakemill.lake.comparison import (
    NEW,
    OLD,
    OLD_CATALOG,
    PG,
    CopiedTable,
    query,
    require_equal_reads,
    require_equal_rows,
)
from lakemill.settings import Settings
from lakemill.store import db

# How the extension keeps an inlined value in PostgreSQL, by DuckDB type; what is not here is text. PostgreSQL's text
# can't hold NUL and its dates end earlier, hence bytes for strings and text for dates.
POSTGRES_TYPES = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INTEGER": "integer",
    "BIGINT": "bigint",
    "UTINYINT": "integer",
    "USMALLINT": "integer",
    "UINTEGER": "bigint",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "VARCHAR": "bytea",
    "JSON": "bytea",
    "BLOB": "bytea",
    "UUID": "uuid",
    "TIME": "time",
    "TIME WITH TIME ZONE": "timetz",
    "INTERVAL": "interval",
}
_ROW_COLUMNS = (("row_id", "BIGINT"), ("begin_snapshot", "BIGINT"), ("end_snapshot", "BIGINT"))
_DELETE_COLUMNS = (("file_id", "BIGINT"), ("row_id", "BIGINT"), ("begin_snapshot", "BIGINT"))


@dataclass(frozen=True, slots=True)
class Moved:
    """What was moved; `compared` of `reads` (a table at a snapshot) were read in full on both sides and were equal."""

    kind: str
    data_path: str
    snapshots: int
    tables: int
    reads: int
    compared: int


def move_catalog(settings: Settings, dsn: str, source: Path) -> Moved:
    """Copy the catalog in `source` to the database of `dsn`, into the schema of the settings."""
    kind = _kind(source)
    staging = f"lakemill_move_{secrets.token_hex(4)}"
    extensions = ("ducklake", "postgres_scanner", *(("sqlite_scanner",) if kind == "sqlite" else ()))
    with _reasons(source), duck.connect(settings, dsn, attach=False) as connection:
        names, data_path = _peek(connection, kind, source)
    # the lake's own data path decides whether DuckDB needs S3
    there = settings.model_copy(update={"lake": settings.lake.model_copy(update={"data_path": data_path})})
    with duck.connect(there, dsn, attach=False) as connection, db.connect(dsn) as conn:
        for name in extensions:
            duck.load_extension(connection, name)
        with _reasons(source):
            _attach_source(connection, kind, source, data_path)
            tables = [_table(connection, name) for name in names]
        with duck.explained(), _removed_on_failure(conn, connection, staging):
            _attach(connection, dsn, staging, data_path)
            connection.execute(f"DETACH {NEW}")
            quoted = _words(connection)
            for table in tables:
                if table.inlined:
                    _create(conn, staging, table, quoted)
            connection.execute(duck.attach_postgres_statement(dsn, staging, PG))
            _copy(connection, staging, tables, data_path)
            require_equal_rows(connection, staging, tables)
            _attach(connection, dsn, staging, None)
            reads, compared = require_equal_reads(connection)
            live = query(
                "SELECT count(*) FROM {} WHERE end_snapshot IS NULL", sql.Identifier(OLD_CATALOG, "ducklake_table")
            )
            all_snapshots = query("SELECT count(*) FROM {}", sql.Identifier(OLD_CATALOG, "ducklake_snapshot"))
            counts = [connection.execute(text).fetchall()[0][0] for text in (all_snapshots, live)]
            connection.execute(f"DETACH {NEW}; DETACH {PG}")
            _give_place(conn, staging, settings.lake.catalog_schema)
    return Moved(kind, data_path, counts[0], counts[1], reads, compared)


# ---------------------------------------------------------------- the source
def _kind(source: Path) -> str:
    wanted = "name the DuckDB or SQLite file of the catalog"
    try:
        with source.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise BadArgument(f"{source} can't be read: {error.strerror}", place="--from", remedy=wanted) from error
    if head.startswith(b"SQLite format 3"):
        return "sqlite"
    if head[8:12] == b"DUCK":
        return "duckdb"
    raise BadArgument(f"{source} is neither a DuckDB nor an SQLite file", place="--from", remedy=wanted)


def _peek(connection: duck.Connection, kind: str, source: Path) -> tuple[list[str], str]:
    """The tables of the old catalog, and its data path, made absolute; a lake that can't be moved is refused."""
    if kind == "sqlite":
        duck.load_extension(connection, "sqlite_scanner")
    option = "READ_ONLY, TYPE sqlite" if kind == "sqlite" else "READ_ONLY"
    connection.execute(f"ATTACH {duck.literal(str(source.resolve()))} AS peek ({option})")
    listed = connection.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'peek'").fetchall()
    tables = sorted(row[0] for row in listed if row[0].startswith("ducklake_"))
    if "ducklake_metadata" not in tables:
        raise UnsupportedLake(f"{source} holds no DuckLake catalog", place="--from", remedy="name a catalog's file")
    about = dict(connection.execute("SELECT key, value FROM peek.ducklake_metadata WHERE scope IS NULL").fetchall())
    if about.get("version") != FORMAT:
        raise UnsupportedLake(
            f"the lake has DuckLake format {about.get('version')}, Lakemill moves {FORMAT}",
            place="--from",
            remedy=f"attach it once with a DuckDB whose ducklake extension migrates it to {FORMAT}",
        )
    if about.get("encrypted") == "true":
        raise UnsupportedLake("the lake is encrypted, Spark can't read it", place="--from", remedy="use it with DuckDB")
    return tables, _absolute(about["data_path"], source)


def _attach_source(connection: duck.Connection, kind: str, source: Path, data_path: str) -> None:
    place = duck.literal(("ducklake:sqlite:" if kind == "sqlite" else "ducklake:") + str(source.resolve()))
    options = f"READ_ONLY, DATA_PATH {duck.literal(data_path)}, OVERRIDE_DATA_PATH true"
    connection.execute(f"ATTACH {place} AS {OLD} ({options})")


def _absolute(data_path: str, source: Path) -> str:
    """A relative path meant the folder that its maker worked in: this one, or that of the file."""
    if "://" in data_path or Path(data_path).is_absolute():
        return data_path
    here = Path(data_path).absolute()
    return str(here if here.is_dir() else (source.resolve().parent / data_path)) + "/"


def _table(connection: duck.Connection, name: str) -> CopiedTable:
    if name.startswith("ducklake_inlined_delete_"):
        return CopiedTable(name, _DELETE_COLUMNS, inlined=True)
    if name.startswith("ducklake_inlined_data_") and name != "ducklake_inlined_data_tables":
        return CopiedTable(name, (*_ROW_COLUMNS, *_inlined_columns(connection, name)), inlined=True)
    described = connection.execute(query("DESCRIBE {}", sql.Identifier(OLD_CATALOG, name))).fetchall()
    return CopiedTable(name, tuple((row[0], row[1]) for row in described))


def _inlined_columns(connection: duck.Connection, name: str) -> tuple[tuple[str, str], ...]:
    """Names and DuckDB types of the columns that a table of inlined rows was made for, as the extension tells them."""
    catalog = {key: sql.Identifier(OLD_CATALOG, f"ducklake_{key}") for key in _FIRST_SNAPSHOT_TABLES}
    row = connection.execute(query(_FIRST_SNAPSHOT, **catalog), [name]).fetchone()
    if row is None:
        raise UnsupportedLake(
            f"the catalog does not say when {name} was made",
            place="--from",
            remedy="flush the lake's inlined rows first, with DuckDB: CALL ducklake_flush_inlined_data('<lake>')",
        )
    schema, table, at = row
    statement = query(
        "DESCRIBE SELECT * FROM {} AT (VERSION => {})", sql.Identifier(OLD, schema, table), sql.SQL(str(int(at)))
    )
    return tuple((found[0], found[1]) for found in connection.execute(statement).fetchall())


_FIRST_SNAPSHOT_TABLES = ("inlined_data_tables", "schema_versions", "table", "schema")
_FIRST_SNAPSHOT = """
SELECT s.schema_name, t.table_name, v.begin_snapshot
FROM {inlined_data_tables} i
JOIN {schema_versions} v ON v.table_id = i.table_id AND v.schema_version = i.schema_version
JOIN {table} t ON t.table_id = i.table_id AND t.begin_snapshot <= v.begin_snapshot
  AND (t.end_snapshot IS NULL OR t.end_snapshot > v.begin_snapshot)
JOIN {schema} s ON s.schema_id = t.schema_id AND s.begin_snapshot <= v.begin_snapshot
  AND (s.end_snapshot IS NULL OR s.end_snapshot > v.begin_snapshot)
WHERE i.table_name = ? ORDER BY v.begin_snapshot LIMIT 1
"""


@contextmanager
def _reasons(source: Path) -> Iterator[None]:
    try:
        with duck.explained():
            yield
    except LakemillError as error:
        if "lock" not in error.message.lower():
            raise
        raise ForeignLock(
            f"another program has {source} open", place="--from", remedy="close it there, then try again"
        ) from error


# ---------------------------------------------------------------- the copy
def _attach(connection: duck.Connection, dsn: str, schema: str, data_path: str | None) -> None:
    """Attach the copy: made anew at a data path, or as it is, for reading."""
    statement = duck.attach_statement(dsn, schema, data_path, create=data_path is not None, read_only=data_path is None)
    connection.execute(statement.replace(f" AS {duck.LAKE} (", f" AS {NEW} ("))


def _words(connection: duck.Connection) -> frozenset[str]:
    """The words that DuckDB puts in quotes where they are names."""
    found = connection.execute("SELECT keyword_name FROM duckdb_keywords()").fetchall()
    return frozenset(word for (word,) in found)


def _stored_name(name: str, quoted: frozenset[str]) -> str:
    """A column's name as PostgreSQL has it: what the extension writes without quotes is in lower case there."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name.lower() not in quoted
    return name.lower() if plain else name


def _create(conn: psycopg.Connection[Any], schema: str, table: CopiedTable, quoted: frozenset[str]) -> None:
    columns = [
        sql.SQL("{} {}").format(sql.Identifier(_stored_name(name, quoted)), sql.SQL(_postgres_type(type_)))
        for name, type_ in table.columns
    ]
    statement = sql.SQL("CREATE TABLE {} ({})")
    conn.execute(statement.format(sql.Identifier(schema, table.name), sql.SQL(", ").join(columns)))


def _postgres_type(type_: str) -> str:
    if type_.startswith("DECIMAL(") and type_.endswith(")"):
        return "numeric" + type_.removeprefix("DECIMAL")
    return POSTGRES_TYPES.get(type_, "varchar")


def _copy(connection: duck.Connection, schema: str, tables: Sequence[CopiedTable], data_path: str) -> None:
    """All rows of all tables in one transaction, each table through PostgreSQL's COPY."""
    connection.execute("BEGIN")
    for table in tables:
        target = sql.Identifier(PG, schema, table.name)
        connection.execute(query("DELETE FROM {}", target))
        names = sql.SQL(", ").join(sql.Identifier(name) for name, _ in table.columns)
        values = sql.SQL(", ").join(
            _stored(name, type_) if table.inlined else sql.Identifier(name) for name, type_ in table.columns
        )
        source = sql.Identifier(OLD_CATALOG, table.name)
        connection.execute(query("INSERT INTO {} ({}) SELECT {} FROM {}", target, names, values, source))
    connection.execute(
        query(
            "UPDATE {} SET value = ? WHERE key = 'data_path' AND scope IS NULL",
            sql.Identifier(PG, schema, "ducklake_metadata"),
        ),
        [data_path],
    )
    connection.execute("COMMIT")


def _stored(name: str, type_: str) -> sql.Composable:
    """An inlined value of the source in the form that PostgreSQL keeps."""
    value = sql.SQL("CAST({} AS {})").format(sql.Identifier(name), sql.SQL(type_))
    kept = _postgres_type(type_)
    if kept == "bytea" and type_ != "BLOB":
        return sql.SQL("encode(CAST({} AS VARCHAR))").format(sql.Identifier(name))
    return sql.SQL("CAST({} AS VARCHAR)").format(value) if kept == "varchar" else value


# ---------------------------------------------------------------- the end
def _give_place(conn: psycopg.Connection[Any], staging: str, schema: str) -> None:
    with conn.transaction():
        conn.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
        taken = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'ducklake_metadata'"
        if conn.execute(taken, (schema,)).fetchone() is not None:
            raise LakeExists("this database got a lake while another one was being moved to it")
        for (name,) in conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (staging,)).fetchall():
            statement = sql.SQL("ALTER TABLE {} SET SCHEMA {}")
            conn.execute(statement.format(sql.Identifier(staging, name), sql.Identifier(schema)))
        conn.execute(sql.SQL("DROP SCHEMA {}").format(sql.Identifier(staging)))


@contextmanager
def _removed_on_failure(conn: psycopg.Connection[Any], connection: duck.Connection, schema: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()  # its open transaction would hold what is removed here
        conn.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
        raise
