"""What is lent to requests: one each, no more than there may be, and none that is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemill.api import pool
from lakemill.api.desk import Desk
from lakemill.errors import Busy, MissingPart
from lakemill.settings import Settings
from lakemill.spark import session, usage
from lakemill.store import db
from tests.conftest import TestLake


def backend(conn: db.Connection) -> int:
    return conn.info.backend_pid


@pytest.fixture
def settings(database: str, tmp_path: Path) -> Settings:
    return Settings.load(tmp_path, {"lake.postgres": database})


def test_one_at_a_time_and_the_same_again(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "PATIENCE", 0.05)
    some = pool.connections(settings, 1)
    with some.lent() as first:
        own = backend(first)
        with pytest.raises(Busy), some.lent():
            pytest.fail("a second")
    with some.lent() as again:
        assert backend(again) == own
    some.close()
    assert first.closed


def test_one_that_was_lost_while_it_was_idle_is_replaced(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "FRESH", 0.0)
    some = pool.connections(settings, 2)
    with some.lent() as first, some.lent() as second:
        lost = backend(first)
        second.execute("SELECT pg_terminate_backend(%s)", (lost,))
    for _ in range(2):
        with some.lent() as conn:
            assert backend(conn) != lost
            assert conn.execute("SELECT 1").fetchone() == (1,)
    some.close()


def test_one_that_was_left_in_a_transaction_is_not_lent_again(settings: Settings) -> None:
    some = pool.connections(settings, 1)
    with some.lent() as left:
        left.execute("BEGIN")
    assert left.closed
    some.close()


def test_work_that_needs_spark(made_lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "PATIENCE", 0.05)
    flags = {"service.slots": 1}
    without = Desk(Settings.load(made_lake.settings.root, flags), "127.0.0.1")
    with pytest.raises(MissingPart, match="a refresh needs Spark"), without.working("a refresh"):
        pytest.fail("it has none")
    desk = Desk(Settings.load(made_lake.settings.root, flags), "127.0.0.1", works=True)
    with desk.working("a refresh"), pytest.raises(Busy), desk.working("another"):
        pytest.fail("a second")
    monkeypatch.setattr(session, "recycle", lambda: None)
    with desk.working("a refresh"):
        assert not usage.recycle_when_idle(), "the worker beside it must not take the JVM away"
    assert usage.recycle_when_idle()
