"""A table's inlined rows and deletes become files, by the stock extension, and nothing can be lost on the way.

Before a write that names rows by file and position. ducklake 1.5.5 commits a flush, and only then drops the tables of
older columns that are empty by now, of every table of the lake, each in a transaction of its own. Where that fails (a
timeout, a lost connection, another flush that drops the same), it takes the flush for failed and removes the files that
it has committed. So here a DuckDB of its own flushes and, when the files are written, gives up the right to touch any
file before it commits. What is left behind where the commit itself failed are orphans, which upkeep removes.

It also forgets the deletes of inlined rows whose partition's name is not ASCII: they would be back. So rows are counted
before and after, and such a flush does not happen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import sql

from lakemill.core.scan import TableAt
from lakemill.core.schema import quote_identifier
from lakemill.errors import ForeignLock, PublishConflict, UnsupportedLake
from lakemill.lake import duck
from lakemill.settings import Settings
from lakemill.store.queries import load_queries

QUERIES = load_queries("flush")
PATIENCE = timedelta(seconds=5)  # others who want to read the same rows queue up behind us for so long at most
_FLUSH = "CALL ducklake_flush_inlined_data('lake', schema_name => $schema, table_name => $name)"
_KEPT_FROM_REMOVING = "disabled by configuration"


def to_be_dropped(conn: psycopg.Connection[Any], schema: str, table: TableAt) -> tuple[str, ...]:
    """The tables of inlined rows that a flush of this table will drop."""
    with _prepared(conn, schema):
        found = conn.execute(QUERIES["superseded"].compose(), {"table": table.id}).fetchall()
    return tuple(name for name, own in found if own or _may_be_empty(conn, schema, name))


def check_locks(conn: psycopg.Connection[Any], schema: str, names: tuple[str, ...]) -> None:
    """Refuse, before anything is done, a flush that would wait for somebody who holds what it must drop.

    Who comes after this check makes the drop wait, or fail where PostgreSQL's ``lock_timeout`` is set. Both are after
    the commit: they cost time, or leave an empty table in the catalog's schema, and no row.
    """
    for name in names:
        try:
            with _prepared(conn, schema):
                conn.execute(QUERIES["lock_to_drop"].compose({"table": sql.Identifier(name)}))
        except psycopg.errors.UndefinedTable:
            continue  # somebody else dropped it: so much the better
        except psycopg.errors.LockNotAvailable as error:
            held = _holders(conn, schema, name)
            raise ForeignLock(
                f"the catalog's {name}, whose rows must become files first, is locked by {held}",
                remedy="end that transaction, or wait for it, and try again; nothing was changed",
            ) from error


def flush(settings: Settings, dsn: str, table: TableAt) -> None:
    """Write the table's inlined rows and deletes to files, and commit that.

    An error does not mean that it did not happen: a drop may have failed after the commit. The catalog knows.
    """
    named = {"schema": table.schema, "name": table.name}
    connection = duck.connect(settings, dsn)
    try:
        with duck.explained():
            connection.execute("BEGIN")
            before = _count(connection, table)
            connection.execute(_FLUSH, named).fetchall()
            if (after := _count(connection, table)) != before:
                connection.execute("ROLLBACK")
                raise UnsupportedLake(
                    f"DuckDB's extension would make {after} rows of {table.full_name}'s {before} as it writes inlined"
                    " rows to files",
                    remedy="write the table anew: CREATE OR REPLACE TABLE … AS SELECT; nothing was changed",
                )
            connection.execute("SET enable_external_access = false")  # for good: from here it can remove no file
        try:
            connection.execute("COMMIT")
        except duck.DuckError as error:
            if _KEPT_FROM_REMOVING not in str(error):
                raise duck.explain(error) from error
            # DuckDB tells only of the files that it could not remove; what comes before a removal is a lost race
            raise PublishConflict(f"the inlined rows of {table.full_name} could not be written to files") from error
    finally:
        connection.close()


def _count(connection: duck.Connection, table: TableAt) -> int:
    name = f"{quote_identifier(table.schema)}.{quote_identifier(table.name)}"
    row = connection.execute(f"SELECT count(*) FROM {name}").fetchone()  # noqa: S608
    return int(row[0]) if row else 0


@contextmanager
def _prepared(conn: psycopg.Connection[Any], schema: str) -> Iterator[None]:
    """A transaction in the catalog's schema that does not wait long for a lock."""
    with conn.transaction():
        conn.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(schema)))
        conn.execute(QUERIES["lock_timeout"].compose(), {"milliseconds": str(round(PATIENCE.total_seconds() * 1000))})
        yield


def _may_be_empty(conn: psycopg.Connection[Any], schema: str, name: str) -> bool:
    try:
        with _prepared(conn, schema):
            row = conn.execute(QUERIES["has_rows"].compose({"table": sql.Identifier(name)})).fetchone()
    except psycopg.errors.UndefinedTable:
        return False
    except psycopg.errors.LockNotAvailable:
        return True  # nobody can say, and whoever asks for its lock will be told who has it
    return not (row and row[0])


def _holders(conn: psycopg.Connection[Any], schema: str, name: str) -> str:
    with _prepared(conn, schema):
        found = conn.execute(QUERIES["holders"].compose(), {"name": name}).fetchall()
    told = [f"PostgreSQL session {pid} ({program}, {state})" for pid, program, state in found]
    return ", ".join(told) or "a session that has ended meanwhile"
