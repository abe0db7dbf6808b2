"""Connections to PostgreSQL: the only place that opens one, and the only one that words why it could not.

Everything in `store` and `lake` gets its connection from here. A connection commits each statement by itself unless
`autocommit=False` is asked for or a `transaction()` block is open. No pool, no retry, no password in any message.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import psycopg
from psycopg import conninfo

from lakemill.errors import BadSettings, DefinitionChanged, StoreUnavailable, UnsupportedVersion
from lakemill.settings import without_password

OLDEST_SERVER = 150000
CONNECT_SECONDS = 10

# a server that vanished is noticed within half a minute, whether we wait for its answer (keepalives) or send
_VANISHED = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}

LOST = (psycopg.OperationalError, psycopg.InterfaceError)
"""What a connection that is no more raises."""

Connection = psycopg.Connection[tuple[Any, ...]]
Executor: TypeAlias = psycopg.Connection[Any] | psycopg.Cursor[Any]
"""A connection, or the cursor of a transaction that somebody else began and will commit: a publish's own."""


def connect(dsn: str, *, autocommit: bool = True, connect_timeout: float | None = None, **options: Any) -> Connection:
    """Open a connection to `dsn`, several hosts included; further options are libpq's or psycopg's."""
    parameters = parameters_of(dsn)
    if connect_timeout is not None:
        parameters["connect_timeout"] = max(2, round(connect_timeout))
    parameters.setdefault("application_name", "lakemill")
    try:
        connection = psycopg.connect(autocommit=autocommit, **(parameters | options))
    except psycopg.OperationalError as error:
        raise StoreUnavailable(f"PostgreSQL at {where(dsn)} does not answer: {reason(error)}") from error
    except psycopg.ProgrammingError as error:
        raise BadSettings(f"not a DSN: {reason(error)}", place="lake.postgres") from error
    version = connection.info.server_version
    if version < OLDEST_SERVER:
        connection.close()
        raise UnsupportedVersion(
            f"PostgreSQL at {where(dsn)} is version {version // 10000}, not {OLDEST_SERVER // 10000} or newer",
            remedy="use a newer server, or leave lake.postgres empty for the embedded one",
        )
    return connection


@contextmanager
def transaction(where: Executor) -> Iterator[None]:
    """All of the body or nothing: a transaction of its own on a connection, part of the caller's on a cursor."""
    if isinstance(where, psycopg.Connection):
        with where.transaction():
            yield
    else:
        yield


@contextmanager
def repeatable(conn: Connection) -> Iterator[None]:
    """All of the body or nothing, on one state of the database; whoever changes the same rows meanwhile is first."""
    try:
        with conn.transaction():
            conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            yield
    except psycopg.errors.SerializationFailure as error:
        raise DefinitionChanged("the dynamic table was altered meanwhile") from error


@contextmanager
def rolled_back(conn: Connection) -> Iterator[None]:
    """A dry run: the body sees one state of the database, and what it did to it; afterwards nothing has happened."""
    with conn.transaction(force_rollback=True):
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield


def parse(dsn: str) -> dict[str, Any]:
    """A DSN, as URL or as words, taken apart."""
    try:
        return conninfo.conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        raise BadSettings(f"not a DSN: {reason(error)}", place="lake.postgres") from error


def parameters_of(dsn: str) -> dict[str, Any]:
    """A DSN taken apart, with what it leaves open: libpq by itself waits for ever, for a server that is gone too.

    Of several hosts the one that can be written to is meant: after a failover that is another.
    """
    given = parse(dsn)
    hosts = str(given.get("host") or given.get("hostaddr") or "")
    found: dict[str, Any] = {"connect_timeout": CONNECT_SECONDS}
    found |= {} if hosts in ("", "localhost") or hosts.startswith("/") else _VANISHED
    found |= {"target_session_attrs": "read-write"} if "," in hosts else {}
    return found | given


def where(dsn: str) -> str:
    """The hosts and the database of a DSN, for people."""
    parts = parse(dsn)
    hosts = str(parts.get("host") or parts.get("hostaddr") or "the local socket").split(",")
    ports = str(parts.get("port") or "5432").split(",")
    named = [f"{h}:{ports[min(i, len(ports) - 1)]}" if not h.startswith("/") else h for i, h in enumerate(hosts)]
    return ", ".join(named) + f" (database {parts.get('dbname') or parts.get('user') or 'by default'})"


def unavailable(error: BaseException) -> StoreUnavailable:
    """What a connection that is LOST means."""
    return StoreUnavailable(reason(error))


def reason(error: BaseException) -> str:
    """A driver's message in one line without secrets."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    noise = ("Is the server running", "Multiple connection attempts", "- host:")
    told = [line for line in lines if not line.startswith(noise)]
    return without_password("; ".join(told)) or type(error).__name__
