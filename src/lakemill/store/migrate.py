"""Brings a database to what this version needs: our schema, by numbered migrations, and the catalog's missing indexes.

Runs when a lake is created or opened, before anything else writes. Migrations are plain SQL files, applied once each in
order, one transaction for all, under an advisory lock so that two processes can't both do it. It never touches a row of
the DuckLake catalog, only adds indexes to it, a trigger that tells of commits, and views of ours that read it.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import psycopg
from psycopg import sql

from lakemill.errors import UnsupportedVersion
from lakemill.store.queries import load_queries

# any constant will do, as long as nobody else in this database uses it
_LOCK = 0x6C616B656D696C6C
_NUMBERED = re.compile(r"(\d{4})_\w+\.sql")


def migrations() -> list[tuple[int, str, str]]:
    """(number, file name, SQL) of every migration, in order."""
    found = []
    for file in (resources.files("lakemill.store") / "sql").iterdir():
        match = _NUMBERED.fullmatch(file.name)
        if match:
            found.append((int(match[1]), file.name, file.read_text("utf-8")))
    return sorted(found)


def migrate(conn: psycopg.Connection[Any], catalog_schema: str = "public") -> list[str]:
    """Apply what is missing; the names of what was applied. A database of a newer Lakemill is refused."""
    applied: list[str] = []
    if _up_to_date(conn, catalog_schema):
        return applied
    with conn.transaction():
        conn.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        conn.execute("CREATE SCHEMA IF NOT EXISTS lakemill")
        conn.execute(
            "CREATE TABLE IF NOT EXISTS lakemill.migrations ("
            "number int PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        done = {row[0] for row in conn.execute("SELECT number FROM lakemill.migrations")}
        known = migrations()
        if done and max(done) > known[-1][0]:
            raise UnsupportedVersion(
                f"this database was made by a newer Lakemill (migration {max(done)}, this one knows {known[-1][0]})",
                remedy="use a Lakemill at least as new as the one that made it",
            )
        for number, name, text in known:
            if number not in done:
                conn.execute(text)
                conn.execute("INSERT INTO lakemill.migrations (number, name) VALUES (%s, %s)", (number, name))
                applied.append(name)
        applied += _index_catalog(conn, catalog_schema)
    return applied


def _up_to_date(conn: psycopg.Connection[Any], catalog_schema: str) -> bool:
    """The common case in one round trip, without a lock."""
    try:
        with conn.transaction():
            row = conn.execute(
                "SELECT (SELECT max(number) FROM lakemill.migrations), (SELECT count(*) FROM pg_indexes"
                " WHERE schemaname = %s AND indexname LIKE 'lakemill\\_%%')",
                (catalog_schema,),
            ).fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return False
    return row is not None and row[0] == migrations()[-1][0] and row[1] >= len(load_queries("catalog_indexes"))


def _index_catalog(conn: psycopg.Connection[Any], catalog_schema: str) -> list[str]:
    """DuckLake makes no index but its few primary keys. Where there is no catalog yet, there is nothing to do."""
    row = conn.execute(
        "SELECT count(*) FROM pg_tables WHERE schemaname = %s AND tablename = 'ducklake_snapshot'", (catalog_schema,)
    ).fetchone()
    if row is None or row[0] == 0:
        return []
    conn.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(catalog_schema)))
    queries = load_queries("catalog_indexes")
    for file in ("catalog_indexes", "catalog_triggers", "catalog_views"):
        for query in load_queries(file).values():
            conn.execute(query.compose())
    return [f"index {name}" for name in queries]
