"""Connections to PostgreSQL, and why there is none."""

from __future__ import annotations

import os
import socket
import time
from contextlib import closing

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from lakemill.errors import BadSettings, DefinitionChanged, StoreUnavailable, UnsupportedVersion
from lakemill.store import db
from tests.wire import cut_wire


def test_connects_and_commits_by_itself(database: str) -> None:
    with db.connect(database) as connection:
        assert connection.autocommit
        assert connection.execute("SHOW application_name").fetchone() == ("lakemill",)
    with db.connect(database, autocommit=False, options="-c statement_timeout=1234") as connection:
        assert not connection.autocommit
        assert connection.execute("SHOW statement_timeout").fetchone() == ("1234ms",)


def test_several_hosts_are_tried_in_turn(database: str) -> None:
    parts = db.parse(database)
    dsn = psycopg.conninfo.make_conninfo(
        database, host=f"127.0.0.1,{parts['host']}", port=f"1,{parts.get('port', 5432)}"
    )
    with db.connect(dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize(
    ("dsn", "told"),
    [
        ("host=127.0.0.1 port=1 user=u password=geheim dbname=d", r"PostgreSQL at 127.0.0.1:1 \(database d\)"),
        ("postgresql://u:geheim@127.0.0.1:1,127.0.0.1:2/d", r"at 127.0.0.1:1, 127.0.0.1:2 \(database d\)"),
        ("host=/nowhere dbname=d password=geheim", r"at /nowhere \(database d\)"),
    ],
)
def test_a_server_that_is_not_there_is_named_without_the_password(dsn: str, told: str) -> None:
    with pytest.raises(StoreUnavailable, match=told) as caught:
        db.connect(dsn)
    assert "geheim" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_server_that_answers_nothing_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        with pytest.raises(StoreUnavailable):
            db.connect(f"host=127.0.0.1 port={silent.getsockname()[1]}", connect_timeout=2)
        assert time.monotonic() - started < 10


def test_a_wrong_database_is_told(database: str) -> None:
    with pytest.raises(StoreUnavailable, match="does not exist"):
        db.connect(psycopg.conninfo.make_conninfo(database, dbname="nope"))


@pytest.mark.parametrize("dsn", ["nonsense", "host=h nosuch=1"])
def test_what_is_no_dsn(dsn: str) -> None:
    with pytest.raises(BadSettings, match=r"lake\.postgres: not a DSN"):
        db.connect(dsn)


def test_an_old_server_is_refused(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(db, "OLDEST_SERVER", 990000)
    with pytest.raises(UnsupportedVersion, match="not 99 or newer"):
        db.connect(database)


def test_whoever_changes_the_same_row_meanwhile_is_first(database: str) -> None:
    with db.connect(database) as one, db.connect(database) as other:
        one.execute("CREATE TABLE t AS SELECT 1 AS x")
        with pytest.raises(DefinitionChanged), db.repeatable(one):  # noqa: PT012
            one.execute("SELECT x FROM t")
            other.execute("UPDATE t SET x = 2")
            one.execute("UPDATE t SET x = 3")
        assert one.execute("SELECT x FROM t").fetchone() == (2,)
        with db.repeatable(one), db.repeatable(one):
            one.execute("UPDATE t SET x = 4")
        assert other.execute("SELECT x FROM t").fetchone() == (4,)


# ---------------------------------------------------------------- servers that vanish, and take each other's place
def test_a_server_that_vanishes_is_noticed(database: str) -> None:
    with (
        cut_wire(database) as wire,
        closing(db.connect(wire.dsn)) as conn,
        socket.socket(fileno=os.dup(conn.pgconn.socket)) as ours,
    ):
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
    given = db.parameters_of("host=a keepalives_idle=7 tcp_user_timeout=1")
    assert (given["keepalives_idle"], given["tcp_user_timeout"], given["keepalives"]) == ("7", "1", 1)


def test_of_several_hosts_the_one_that_can_be_written_is_meant(database: str) -> None:
    """A standby refuses to write as this database does."""
    with cut_wire(database) as one, cut_wire(database) as other:
        ports = [str(db.parse(wire.dsn)["port"]) for wire in (one, other)]
        several = make_conninfo(one.dsn, host="127.0.0.1,127.0.0.1", port=",".join(ports))
        one.close()  # the first does not answer: the next is tried
        with closing(db.connect(several)) as conn:
            assert str(conn.info.port) == ports[1]
            name = conn.info.dbname
            conn.execute(
                sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(sql.Identifier(name))
            )
        with pytest.raises(StoreUnavailable, match="read-only"):
            db.connect(several)
        db.connect(make_conninfo(several, target_session_attrs="any")).close()
        db.connect(other.dsn).close()
