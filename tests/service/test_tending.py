"""Upkeep by policy: what becomes due of which table, what is remembered of what could not be done. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import lakemill
from lakemill.core.names import parse_name
from lakemill.errors import PublishConflict
from lakemill.runtime import tending, upkeep
from lakemill.runtime.facts import upkeep_status
from lakemill.runtime.scheduler import Scheduler
from lakemill.store import tended, work
from lakemill.store.work import Kind, Work
from tests.conftest import MakeLake
from tests.service.test_scheduler import LONG, Service

POLICIES = {
    "quick": {"interval": "10 minutes", "small_files": 3},
    "quick.off": {"auto": "flush"},
    "quick.slow": {"interval": "2 hours"},
    "quick.big": {"small_size": 1},
    "gone": {"window": "01:00-02:00"},
}
HOUR = 3601
NEVER = {"upkeep.small_age": "9999 days"}  # the scheduler's clock is in the future


@pytest.fixture
def service(make_lake: MakeLake) -> Iterator[Service]:
    flags = {**NEVER, "upkeep.auto": "flush, compact", "upkeep.policies": POLICIES}
    with lakemill.open(make_lake(flags=flags).settings) as lake:
        yield Service(lake)


def crowd(service: Service, *tables: str, files: int = 3, columns: str = "i BIGINT") -> None:
    service.lake.sql("CREATE SCHEMA IF NOT EXISTS quick")
    for table in tables:
        service.lake.sql(f"CREATE TABLE {table} ({columns})")
        for _ in range(files):
            service.lake.sql(f"INSERT INTO {table} SELECT i FROM range(3) r(i)")


def taken(service: Service) -> list[Work]:
    found = []
    while (one := work.take(service.lake.conn, "w", (Kind.UPKEEP,), LONG)) is not None:
        found.append(one)
        work.done(service.lake.conn, "w", [one.id])
    return found


def due(service: Service, later: float) -> list[str]:
    service.tick(later)
    return [one.subject for one in taken(service)]


def test_every_policy_has_its_own_cadence_and_measure(service: Service) -> None:
    crowd(service, "quick.t", "quick.off", "quick.slow", "quick.big", "plain")
    assert due(service, 0) == []
    assert due(service, 599) == []
    assert due(service, 2) == ["compact quick.t"]
    assert due(service, 300) == []
    assert due(service, 300) == ["compact quick.t"], "nobody did it"
    assert due(service, 3600 - 1201) == ["compact quick.t"], "plain has fewer than 16 files"
    assert due(service, 3601) == ["compact quick.slow", "compact quick.t"], "equal, so by name"
    # the rest: off has no compact, big has no file below a byte
    found = {one.crowd.table: one for one in tending.status(service.lake, now=service.now).tables}
    assert "leaves compacting out" in found["quick.off"].verdict.why
    assert found["quick.big"].verdict.why.startswith("0 small files of 3")
    assert found["main.plain"].verdict.why.startswith("3 small files of 16")


def test_the_next_scheduler_goes_on_where_the_last_one_ended(service: Service) -> None:
    """One that is started anew each half an hour still tends the lake."""
    crowd(service, "t", files=16)
    found = []
    for _ in range(6):
        service.scheduler = Scheduler(service.lake.settings)
        found += due(service, 1790)
    assert found == ["compact main.t"]


def test_a_table_is_flushed_by_its_policy_and_only_where_there_is_something(make_lake: MakeLake) -> None:
    flags = {"upkeep.auto": "flush", "upkeep.policies": {"main.never": {"auto": ""}}}
    with lakemill.open(make_lake(flags=flags, inline=10).settings) as lake:
        service = Service(lake)
        for table in ("rows", "never", "empty", "deletes", "files"):
            lake.sql(f"CREATE TABLE {table} (i INT)")
        for table in ("rows", "never"):
            lake.sql(f"INSERT INTO {table} VALUES (1)")
        lake.sql("INSERT INTO empty VALUES (1)")
        lake.sql("DELETE FROM empty")
        lake.sql("INSERT INTO deletes SELECT i FROM range(1000) r(i)")
        lake.sql("DELETE FROM deletes WHERE i = 1")
        service.tick(0)
        service.tick(HOUR)
        todo = [one for one in taken(service) if one.subject not in ("flush main.r", "flush main.s")]
        assert [one.subject for one in todo] == ["flush main.deletes", "flush main.rows"]
        for one in todo:
            assert tending.tend(lake, one) is None
        assert [one for one in due(service, HOUR) if one in ("flush main.deletes", "flush main.rows")] == []
        assert lake.sql("SELECT count(*) FROM deletes").fetchall() == [(999,)]


def test_what_cannot_be_compacted_waits_until_the_table_has_changed(service: Service) -> None:
    """A file in each of 16 partitions: no two can become one, and Spark is not asked."""
    lake = service.lake
    lake.sql("CREATE TABLE p (i BIGINT)")
    lake.sql("ALTER TABLE p SET PARTITIONED BY (i)")
    lake.sql("INSERT INTO p SELECT i FROM range(16) r(i)")
    service.tick(0)
    service.tick(HOUR)
    (one,) = taken(service)
    assert one.subject == "compact main.p"
    assert tending.tend(lake, one) is None
    assert due(service, HOUR) == []
    assert due(service, HOUR) == []
    shown = upkeep_status(tending.status(lake, parse_name("p"), service.now))["tables"][0]
    assert not shown["due"]
    assert shown["last"]["outcome"] == "kept"
    assert "no two of its files can become one" in shown["last"]["reason"]
    assert shown["last"]["reason"] in shown["why"]
    lake.sql("CREATE TABLE another (i INT)")
    assert due(service, HOUR) == [], "another table"
    lake.sql("INSERT INTO p VALUES (1)")
    assert due(service, HOUR) == ["compact main.p"]


def test_deleted_rows_that_are_kept_for_old_snapshots_are_tried_again_when_those_are_gone(make_lake: MakeLake) -> None:
    flags = {**NEVER, "upkeep.auto": "compact", "upkeep.retention": "0s"}
    with lakemill.open(make_lake(flags=flags).settings) as lake:
        service = Service(lake)
        lake.sql("CREATE TABLE d AS SELECT i FROM range(100) r(i)")
        lake.sql("DELETE FROM d WHERE i < 50")
        service.tick(0)
        service.tick(HOUR)
        (one,) = taken(service)
        tending.tend(lake, one)
        assert due(service, HOUR) == []
        last = next(t for t in tending.status(lake, now=service.now).tables if t.crowd.table == "main.d").last
        assert last is not None
        assert "shown by snapshots that are kept" in last.reason
        assert upkeep.expire(lake).snapshots
        assert due(service, HOUR) == ["compact main.d"]


def test_a_conflict_is_remembered_and_tried_again_ever_later(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd(service, "t", files=16)
    service.tick(0)
    service.tick(HOUR)
    (one,) = taken(service)

    def merge(*_: Any) -> int:
        service.lake.sql("DELETE FROM t WHERE i = 0")
        raise PublishConflict("others have changed main.t")

    monkeypatch.setattr(upkeep, "_merge", merge)
    for failures in (1, 2):
        assert tending.tend(service.lake, one) is None
        last = tended.tended(service.lake.conn)["compact", table_id(service, "t")]
        assert (last.outcome.value, last.count, last.reason) == ("failed", failures, "others have changed main.t")
    shown = tending.status(service.lake, parse_name("t"), last.at).tables[0]
    assert "2 failed in a row: others have changed main.t" in shown.verdict.why


def test_what_is_forgotten_of_a_dropped_table(service: Service) -> None:
    crowd(service, "t", files=2)
    tended.remember(service.lake.conn, "compact", table_id(service, "t"), tended.Outcome.KEPT, "x", "y")
    tended.remember(service.lake.conn, "orphans", tended.LAKE, tended.Outcome.DONE)
    service.lake.sql("DROP TABLE t")
    service.tick(0)
    service.tick(HOUR)
    assert list(tended.tended(service.lake.conn)) == [("orphans", tended.LAKE)]
    work.add(service.lake.conn, Kind.UPKEEP, "compact main.t", "it was there")
    (one,) = taken(service)
    assert tending.tend(service.lake, one) is not None
    assert list(tended.tended(service.lake.conn)) == [("orphans", tended.LAKE)]


def test_a_policy_of_nothing_is_told(service: Service) -> None:
    assert tending.status(service.lake).nowhere == tuple(POLICIES)
    crowd(service, "quick.off", files=1)
    assert tending.status(service.lake).nowhere == ("quick.slow", "quick.big", "gone")


def table_id(service: Service, name: str) -> int:
    return service.lake.table(name).describe().id
