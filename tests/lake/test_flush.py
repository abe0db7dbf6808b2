"""Inlined rows become files, and no lock or timeout of others can make the extension remove them again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import lakemill
from lakemill.errors import ForeignLock, PublishConflict, UnknownTable, UnsupportedLake
from lakemill.lake import duck, flush
from lakemill.runtime import upkeep, write
from tests.conftest import MakeLake, TestLake

OLDER = "SELECT * FROM ducklake_inlined_data_1_1"
STOCK = "CALL ducklake_flush_inlined_data('lake', table_name => 't')"


@pytest.fixture
def inlined(make_lake: MakeLake) -> TestLake:
    """A lake with inlined rows of two versions of the columns: a flush drops the table of the older one."""
    lake = make_lake(inline=50)
    with lake.duck() as stock:
        stock.execute("CREATE TABLE t (id INT)")
        stock.execute("INSERT INTO t SELECT * FROM range(9)")
        stock.execute("ALTER TABLE t ADD COLUMN v INT")
        stock.execute("INSERT INTO t VALUES (9, 9)")
        stock.execute("DELETE FROM t WHERE id = 3")
    return lake


@pytest.fixture
def reader(inlined: TestLake) -> Iterator[psycopg.Connection[Any]]:
    """Somebody who has read the older rows, and whose transaction is still open."""
    with psycopg.connect(inlined.dsn, application_name="slow reader") as other:
        other.execute(OLDER)
        yield other
        other.rollback()


def rows(lake: TestLake) -> int:
    with lake.duck() as fresh:
        found = fresh.execute("SELECT count(*) FROM (SELECT id + coalesce(v, 0) FROM t)").fetchone()
    return int(found[0]) if found else 0


def lost(lake: TestLake) -> int:
    """How many files the catalog names that are not there."""
    with psycopg.connect(lake.dsn) as conn:
        named = [row[0] for row in conn.execute("SELECT path FROM ducklake_data_file")]
    there = {file.name for file in Path(lake.data_path).rglob("*.parquet")}
    return len(set(named) - there)


def snapshot(lake: TestLake) -> int:
    with psycopg.connect(lake.dsn) as conn:
        return int(conn.execute("SELECT max(snapshot_id) FROM ducklake_snapshot").fetchone()[0])  # type: ignore[index]


def impatient(lake: TestLake) -> str:
    return make_conninfo(lake.dsn, options="-c lock_timeout=300")


def test_stock_loses_rows(inlined: TestLake, reader: Any) -> None:
    """Why there is a way of our own: when this fails, the extension has learned better, and it may go."""
    with duck.connect(inlined.settings, impatient(inlined)) as stock, pytest.raises(duck.DuckError, match="lock"):
        stock.execute(STOCK)
    assert lost(inlined) == 2


def test_a_drop_that_fails_loses_nothing(inlined: TestLake, reader: Any) -> None:
    with lakemill.open(inlined.settings) as lake:
        table = lake.table("t").describe()
        with pytest.raises(PublishConflict):
            flush.flush(inlined.settings, impatient(inlined), table)
    assert lost(inlined) == 0
    assert rows(inlined) == 9


def test_a_write_goes_on_after_such_a_drop(inlined: TestLake, reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody took the lock after it was looked at, and PostgreSQL waits for no lock."""
    monkeypatch.setattr(write, "check_locks", lambda *_: None)
    monkeypatch.setattr(write, "flush", lambda settings, _, table: flush.flush(settings, impatient(inlined), table))
    with lakemill.open(inlined.settings) as lake:
        state = write.files_only(lake.table("t"))
        assert lake.table("t").count() == 9
    assert not state.inlined
    assert len(state.plan.files) == 2
    assert lost(inlined) == 0


def test_who_holds_the_lock_is_named_and_nothing_is_changed(
    inlined: TestLake, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush, "PATIENCE", flush.PATIENCE / 20)
    before = snapshot(inlined)
    with lakemill.open(inlined.settings) as lake:
        with pytest.raises(ForeignLock, match=r"ducklake_inlined_data_1_1.*slow reader, idle in transaction") as raised:
            write.files_only(lake.table("t"))
        assert "end that transaction" in raised.value.remedy
        assert snapshot(inlined) == before
        reader.rollback()
        assert not write.files_only(lake.table("t")).inlined
        assert lake.sql("SELECT count(*) FROM t").fetchall() == [(9,)]
    assert rows(inlined) == 9


def test_a_lock_that_comes_after_the_check_is_waited_for(
    inlined: TestLake, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "check_locks", lambda *_: None)
    threading.Timer(1.5, reader.rollback).start()
    begun = time.monotonic()
    with lakemill.open(inlined.settings) as lake:
        assert not write.files_only(lake.table("t")).inlined
    assert time.monotonic() - begun > 1
    assert lost(inlined) == 0
    assert rows(inlined) == 9


def test_another_tables_leftovers_are_looked_at_too(inlined: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush drops what is empty in the whole lake: somebody reads what another table left behind."""
    monkeypatch.setattr(flush, "PATIENCE", flush.PATIENCE / 20)
    with lakemill.open(inlined.settings) as lake:
        lake.sql("CREATE TABLE u (id INT)")
        lake.sql("INSERT INTO u VALUES (1)")
        table = lake.table("u").describe()
        assert flush.to_be_dropped(lake.conn, "public", table) == ()  # t's older rows are still there, so they stay
        with psycopg.connect(inlined.dsn) as other:
            other.execute("DELETE FROM ducklake_inlined_data_1_1")
            other.commit()
            other.execute(OLDER)
            with pytest.raises(ForeignLock, match="ducklake_inlined_data_1_1"):
                write.files_only(lake.table("u"))
            other.rollback()
        assert not write.files_only(lake.table("u")).inlined


def test_our_own_duckdb_is_in_nobodys_way(inlined: TestLake) -> None:
    with lakemill.open(inlined.settings) as lake:
        assert lake.sql("BEGIN; SELECT id FROM t ORDER BY id").fetchone() == (0,)  # and the rest is never asked for
        assert not write.files_only(lake.table("t")).inlined


def test_deletes_that_the_extension_would_forget_are_not_flushed(make_lake: MakeLake) -> None:
    """Of inlined rows in a partition whose name is not ASCII: a stock flush brings them back."""
    given = make_lake(inline=50)
    with given.duck() as stock:
        stock.execute("CREATE TABLE t (id INT, v INT, k VARCHAR)")
        stock.execute("ALTER TABLE t SET PARTITIONED BY (k)")
        stock.execute("INSERT INTO t SELECT i, i, ['é', 'e'][1 + i % 2] FROM range(10) r(i)")
        stock.execute("DELETE FROM t WHERE id >= 4")
    with lakemill.open(given.settings) as lake:
        before = lake.snapshot()
        with pytest.raises(UnsupportedLake, match="would make 7 rows"):
            write.files_only(lake.table("t"))
        assert lake.snapshot() == before
        lake.sql("DELETE FROM t WHERE id = 0")
    assert rows(given) == 3
    with given.duck() as stock:  # the day this is mended, so is our refusal
        stock.execute(STOCK)
    assert rows(given) == 7


# ---------------------------------------------------------------- as a job of upkeep
def test_upkeep_flushes_what_is_inlined_and_nothing_else(inlined: TestLake) -> None:
    with inlined.duck() as stock:
        stock.execute("CREATE TABLE big AS SELECT * FROM range(100)")
        stock.execute("CREATE TABLE emptied (id INT)")
        stock.execute("INSERT INTO emptied VALUES (1)")
        stock.execute("CALL ducklake_flush_inlined_data('lake', table_name => 'emptied')")
    with lakemill.open(inlined.settings) as lake:
        plan = upkeep.flush(lake, dry_run=True)
        assert [item.what for item in plan.done] == ["9 rows, 0 deletes of main.t"]
        assert plan.snapshots == ()
        report = upkeep.flush(lake)
        assert (report.done, report.kept, report.snapshots) == (plan.done, (), (lake.snapshot().id,))
        assert upkeep.flush(lake).done == ()
        assert not write.state_of(lake.table("t")).inlined
        with pytest.raises(UnknownTable):
            upkeep.flush(lake, "nobody")
    assert (rows(inlined), lost(inlined)) == (9, 0)


def test_a_table_that_somebody_holds_is_kept_and_told(inlined: TestLake, reader: Any) -> None:
    with lakemill.open(inlined.settings) as lake:
        report = upkeep.flush(lake)
    assert (report.done, [item.what for item in report.kept]) == ((), ["main.t"])
    assert "slow reader" in report.kept[0].why
