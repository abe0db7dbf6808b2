"""What tests of the store share: a migrated database, dynamic tables in it, and both ways to reach it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from lakemill.core.definition import Definition, RefreshMode, TargetLag
from lakemill.core.names import parse_name
from lakemill.core.refresh import State
from lakemill.store import db, definitions
from lakemill.store.definitions import DynamicTable, OutputColumn, Resolved, Source, SourceKind
from lakemill.store.migrate import migrate
from tests.conftest import new_database

RESOLVED = Resolved("SELECT k FROM main.x", RefreshMode.INCREMENTAL, "a filter", (OutputColumn("k", "INTEGER"),))


@pytest.fixture(scope="module")
def migrated(postgres: str) -> Iterator[str]:
    """DSN of a database with our schema; one for a module, because making it takes longer than most tests."""
    with new_database(postgres) as dsn:
        with db.connect(dsn) as connection:
            migrate(connection)
        yield dsn


@pytest.fixture
def conn(migrated: str) -> Iterator[db.Connection]:
    """A connection to it; what the test wrote is removed."""
    with db.connect(migrated) as connection:
        yield connection
        connection.execute("TRUNCATE lakemill.dynamic_tables, lakemill.refreshes RESTART IDENTITY CASCADE")


@pytest.fixture(params=["connection", "cursor of a publish"])
def where(request: pytest.FixtureRequest, conn: db.Connection) -> Iterator[db.Executor]:
    """A connection that commits by itself; or a cursor that writes values into its statements, in a transaction."""
    if request.param == "connection":
        yield conn
    else:
        with conn.transaction():
            yield psycopg.ClientCursor(conn)


Make = Callable[..., DynamicTable]


@pytest.fixture
def make(where: db.Executor) -> Make:
    """``make("b", "a x")``: a dynamic table b that reads a, which is dynamic, and x, which is not."""

    def make(name: str, reads: str = "x", **options: Any) -> DynamicTable:
        found = []
        for source in map(parse_name, reads.split()):
            supplier = definitions.find(where, source)
            if supplier is None:
                found.append(Source(SourceKind.TABLE, source, ("k",), table_id=sum(map(ord, source.name))))
            else:
                found.append(Source(SourceKind.DYNAMIC, source, ("k",), supplier_id=supplier.id))
        state = options.pop("state", State.PENDING_INIT)
        lag = options.pop("target_lag", TargetLag(timedelta(minutes=5)))
        definition = Definition(parse_name(name), f"SELECT k FROM {reads}", lag, **options)
        return definitions.create(where, definition, RESOLVED, found, state)

    return make
