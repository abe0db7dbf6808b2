"""Which bus a lake has: the one place that knows an implementation; others know ``core/bus`` and ``core/batch``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakemill.core.batch import Consumer
from lakemill.core.bus import Bus
from lakemill.store import db
from lakemill.store.bus import PostgresBus
from lakemill.store.consumer import PostgresConsumer


def bus(dsn: str, connect_seconds: float | None) -> Bus:
    """To accept requests by; it opens its connections itself."""
    return PostgresBus(lambda: db.connect(dsn, connect_timeout=connect_seconds))


def consumer(conn: db.Connection, dsn: str) -> Consumer:
    """To make batches by, on this connection; executors reach the same place by the DSN."""
    return PostgresConsumer(conn, dsn)


@contextmanager
def consuming(dsn: str) -> Iterator[Consumer]:
    """The same, on a connection of its own."""
    with db.connect(dsn) as conn:
        yield consumer(conn, dsn)
