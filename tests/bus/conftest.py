"""The buses that the contract is held against: a new one is a line in ``BUSES``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from lakemill.core.batch import Consumer
from lakemill.core.bus import Accepted, Bus, Request
from lakemill.store import db
from lakemill.store.bus import PostgresBus
from lakemill.store.consumer import PostgresConsumer
from lakemill.store.migrate import migrate
from tests.conftest import new_database
from tests.ingest.requests import take

PLAIN, OTHER, KEYED = 1, 2, 3
"""Tables that take requests; the last one has the key ``k``."""


@dataclass(frozen=True, slots=True)
class Line:
    """Both ends of a bus; and the lake, which keeps what was passed whichever bus it came by."""

    bus: Bus
    consumer: Consumer
    another: Callable[[], AbstractContextManager[Consumer]]
    """As another process has it."""
    lake: db.Connection
    transaction: Callable[[], AbstractContextManager[Any]]
    """By which batches become visible."""

    def send(self, table_id: int, *requests: Sequence[str], columns: str = "v1") -> list[int]:
        """Requests of these lines, at once; their tokens."""
        key = ("k",) if table_id == KEYED else ()
        asked = [
            Request(table_id, columns, [line.encode() for line in lines], range(len(lines)), table_key=key)
            for lines in requests
        ]
        outcomes = self.bus.publish(asked)
        assert all(isinstance(one, Accepted) for one in outcomes), outcomes
        return [one.token for one in outcomes if isinstance(one, Accepted)]


@contextmanager
def postgres_line(dsn: str, kind: type[PostgresConsumer] = PostgresConsumer) -> Iterator[Line]:
    bus = PostgresBus(lambda: db.connect(dsn))

    @contextmanager
    def consumer() -> Iterator[Consumer]:
        with db.connect(dsn) as conn:
            yield kind(conn, dsn)

    @contextmanager
    def transaction() -> Iterator[Any]:
        with db.connect(dsn) as publishing, publishing.transaction():
            yield psycopg.ClientCursor(publishing)  # as a publish has it

    with consumer() as own, db.connect(dsn) as lake:
        yield Line(bus, own, consumer, lake, transaction)
    bus.close()


BUSES = {"postgres": postgres_line}


@pytest.fixture(scope="module")
def catalog(postgres: str) -> Iterator[str]:
    with new_database(postgres) as dsn:
        with db.connect(dsn) as conn:
            migrate(conn)
        yield dsn


@pytest.fixture
def tables(catalog: str) -> Iterator[str]:
    """The DSN, where tables take requests."""
    with db.connect(catalog) as conn:
        for table_id in (PLAIN, OTHER, KEYED):
            take(conn, table_id, ["k"] if table_id == KEYED else [])
        try:
            yield catalog
        finally:
            kept = ("ingest_tables", "dead_letters", "batches", "request_keys", "record_keys")
            conn.execute(f"TRUNCATE {', '.join(f'lakemill.{table}' for table in kept)} CASCADE")
            conn.execute("UPDATE lakemill.bus_head SET token = 0, watermark = 0")


@pytest.fixture(params=BUSES)
def line(request: pytest.FixtureRequest, tables: str) -> Iterator[Line]:
    with BUSES[request.param](tables) as made:
        yield made
