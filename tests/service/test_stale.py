"""Expiry beside dynamic tables: it comes on under a stream of refreshes, and no table holds a lake for ever."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakemill.core.names import parse_name
from lakemill.core.refresh import Action, State, Trigger
from lakemill.errors import PublishConflict
from lakemill.lake import expiry
from lakemill.runtime import halting, show, upkeep
from lakemill.runtime.refresh import Refresh, explain
from lakemill.store import claims, definitions, pins, work
from tests.service.conftest import id_of, version_of
from tests.service.test_scheduler import LONG, Service

DAYS = timedelta(days=3)


def hold(service: Service, *names: str) -> None:
    """The positions that a real refresh would have recorded."""
    for name in names:
        table = definitions.get(service.lake.conn, parse_name(name))
        version = version_of(service, name)
        reads = [s.table_id for s in definitions.sources(service.lake.conn, table) if s.table_id is not None]
        positions = {**dict.fromkeys(reads, version.b_hi), version.table_id: version.commit}
        pins.move_positions(service.lake.conn, pins.dynamic(table.id), positions)


def age(service: Service, by: timedelta = DAYS) -> None:
    """All that was committed up to now was so long ago."""
    service.lake.conn.execute("UPDATE ducklake_snapshot SET snapshot_time = snapshot_time - %s", (by,))


def snapshots(service: Service) -> list[int]:
    rows = service.lake.conn.execute("SELECT snapshot_id FROM ducklake_snapshot ORDER BY 1").fetchall()
    return [row[0] for row in rows]


def standing(service: Service, name: str) -> State:
    return definitions.get(service.lake.conn, parse_name(name)).standing[0]


@pytest.fixture
def loaded(service: Service) -> Service:
    """A table that follows, and one that is suspended: both were loaded, then their sources changed."""
    for name in ("follows", "rests", "reads"):
        service.create(name, "SELECT k FROM rests" if name == "reads" else "SELECT k FROM r")
    service.tick()
    service.work()
    hold(service, "follows", "rests", "reads")
    halting.suspend(service.lake, [parse_name("rests")])
    service.lake.sql("INSERT INTO r VALUES (100, 1)")
    return service


def test_expiry_comes_on_while_positions_move(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh a second: between any plan and its end somebody has moved."""
    service.create("a", "SELECT k FROM r")
    service.tick()
    service.work()
    hold(service, "a")
    age(service)
    plan, number = expiry.plan_expire, itertools.count(200)

    def plan_and_move(*words: Any, **more: Any) -> Any:
        found = plan(*words, **more)
        service.lake.sql(f"INSERT INTO r VALUES ({next(number)}, 1)")
        service.publish(id_of(service, "a"), service.lake.snapshot().id)
        hold(service, "a")
        return found

    service.lake.sql("INSERT INTO r VALUES (100, 1)")
    monkeypatch.setattr(expiry, "plan_expire", plan_and_move)
    before = snapshots(service)
    report = upkeep.expire(service.lake)
    assert report.snapshots
    assert set(snapshots(service)) >= set(before) - set(report.snapshots)
    assert next(number) == 201, "one plan was enough"
    needed = {position.snapshot_id for position in pins.needed_snapshots(service.lake.conn).positions}
    assert needed <= set(snapshots(service))


def test_a_table_that_is_left_behind_holds_nothing_and_is_stale(loaded: Service) -> None:
    lake = loaded.lake
    held = version_of(loaded, "rests").b_hi
    assert held not in upkeep.expire(lake).snapshots
    assert standing(loaded, "rests") is State.SUSPENDED
    age(loaded)
    loaded.publish(id_of(loaded, "follows"), lake.snapshot().id)
    hold(loaded, "follows")
    dry = upkeep.expire(lake, dry_run=True)
    assert standing(loaded, "rests") is State.SUSPENDED
    report = upkeep.expire(lake)
    assert held in report.snapshots
    told = [item.what for item in report.done if item.why.startswith("STALE")]
    assert told == ["main.rests", "main.reads"] == [item.what for item in dry.done if item.why.startswith("STALE")]
    assert [standing(loaded, name) for name in ("follows", "rests", "reads")] == [State.ACTIVE, *[State.STALE] * 2]
    described = show.describe(lake, parse_name("rests")).shown
    assert described.lag >= DAYS - LONG
    assert loaded.due() == [], "it is suspended still"

    halting.resume(lake, [parse_name("rests")])
    assert loaded.due() == ["rests", "reads"]
    plan, _, _ = explain(lake, parse_name("rests"))
    assert (plan.action, plan.reason.code) == (Action.REINITIALIZE, "STALE")
    loaded.work()
    assert {standing(loaded, name) for name in ("rests", "reads")} == {State.ACTIVE}


def test_a_table_at_work_is_not_given_up(loaded: Service) -> None:
    claim = claims.claim(loaded.lake.conn, id_of(loaded, "rests"), "elsewhere:1:1", LONG)
    assert claim is not None
    age(loaded)
    upkeep.expire(loaded.lake)
    assert version_of(loaded, "rests").b_hi in snapshots(loaded)
    assert standing(loaded, "rests") is State.SUSPENDED


def test_a_table_that_is_refreshed_between_plan_and_end_is_not_given_up(loaded: Service) -> None:
    lake = loaded.lake
    age(loaded)
    late = pins.dynamic(id_of(loaded, "rests"))
    plan = expiry.plan_expire(lake.front, lake.settings.upkeep.retention, left_behind=[late])
    assert late in plan.let_go
    loaded.publish(id_of(loaded, "rests"), lake.snapshot().id)
    hold(loaded, "rests")
    with pytest.raises(PublishConflict):
        expiry.expire(lake.front, lake.duck, plan)
    assert standing(loaded, "rests") is State.SUSPENDED


def test_a_table_that_lags_for_a_moment_is_not_stale(service: Service) -> None:
    """Nobody looked for days, and the lake went on without it: what it does not hold yet is new."""
    service.create("a", "SELECT k FROM s")
    service.tick()
    service.work()
    hold(service, "a")
    service.lake.sql("INSERT INTO r VALUES (100, 1)")
    age(service)
    service.lake.sql("INSERT INTO s VALUES (7)")
    upkeep.expire(service.lake)
    assert standing(service, "a") is State.ACTIVE
    assert version_of(service, "a").b_hi in snapshots(service)


def test_a_table_that_nothing_happened_to_is_not_stale(service: Service) -> None:
    service.create("idle", "SELECT k FROM s")
    service.tick()
    service.work()
    hold(service, "idle")
    service.lake.sql("INSERT INTO r VALUES (100, 1)")
    age(service)
    service.lake.sql("INSERT INTO r VALUES (101, 1)")
    upkeep.expire(service.lake)
    assert standing(service, "idle") is State.ACTIVE
    assert version_of(service, "idle").b_hi == service.lake.snapshot().id


def test_a_stale_table_is_not_held_to_be_current(loaded: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where nothing that can still be seen has changed."""
    conn, table_id = loaded.lake.conn, id_of(loaded, "follows")
    conn.execute("UPDATE lakemill.dynamic_tables SET stale_since = now()")
    table = definitions.by_id(conn, table_id)
    refresh = Refresh(
        loaded.lake, table, definitions.sources(conn, table), loaded.lake.snapshot(), datetime.now(UTC), Trigger.MANUAL
    )
    monkeypatch.setattr("lakemill.runtime.refresh.unchanged", lambda *_: True)
    assert not refresh.hold()
    (known,) = (one for one in work.known(conn) if one.id == table_id)
    assert known.stale
