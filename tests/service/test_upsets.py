"""Upsets between two looks of the scheduler: what must not be lost, passed over for ever, or held to be right.

Tables are dropped, replaced, mended or suspended, and snapshots expired, at the worst moment. No worker, no Spark.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from lakemill.core.ddl import parse_definition
from lakemill.core.lag import Commit
from lakemill.core.names import parse_name
from lakemill.core.refresh import State
from lakemill.core.retry import suspends
from lakemill.errors import (
    EngineLost,
    EngineUnreachable,
    LakemillError,
    PublishConflict,
    RefreshTimedOut,
    SqlFailed,
    StorageUnavailable,
)
from lakemill.runtime import dynamic, halting
from lakemill.runtime.scheduler import Scheduler
from lakemill.runtime.standings import Look, Looks
from lakemill.store import db, definitions, publishes, work
from lakemill.store.work import Kind, Work
from tests.service.conftest import expire, id_of, running, until, version_of
from tests.service.test_scheduler import LONG, Service


def declare_anew(service: Service, name: str, query: str) -> None:
    text = f"CREATE OR REPLACE DYNAMIC TABLE {name} TARGET_LAG = '1 minute' INITIALIZE = ON_SCHEDULE AS {query}"
    dynamic.create(service.lake, parse_definition(text))


def take(service: Service, kind: Kind = Kind.REFRESH) -> Work | None:
    return work.take(service.lake.conn, "w", (kind,), LONG)


def fail_for_good(service: Service, found: Work) -> None:
    assert found.dynamic_id is not None
    assert found.b is not None
    work.failed(service.lake.conn, found.dynamic_id, found.b, SqlFailed)
    work.done(service.lake.conn, "w", [found.id])


# ---------------------------------------------------------------- dropped
def test_a_table_dropped_between_look_and_tick_is_no_error(service: Service) -> None:
    service.create("a", "SELECT k FROM r")
    look = service.looks.look()
    service.lake.execute("DROP DYNAMIC TABLE a")
    service.scheduler.tick(service.lake, look, service.now)
    assert take(service) is None


def test_a_dropped_table_does_not_end_the_scheduler(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.create("a", "SELECT k FROM r")
    service.create("b", "SELECT k FROM s")
    look = Looks.look
    looked: list[Look] = []

    def look_and_drop(looks: Looks) -> Look:
        found = look(looks)
        if not looked:
            service.lake.execute("DROP DYNAMIC TABLE a")
        looked.append(found)
        return found

    monkeypatch.setattr(Looks, "look", look_and_drop)
    with running(Scheduler(service.lake.settings)) as (thread, _):
        until(lambda: len(looked) > 1 or not thread.is_alive())
        assert thread.is_alive()


# ---------------------------------------------------------------- replaced
def test_a_consumer_follows_a_supplier_that_is_declared_anew(service: Service) -> None:
    """No base table changed, and yet its content is no longer right."""
    service.create("a", "SELECT k FROM r")
    service.create("c", "SELECT k FROM a")
    service.tick()
    service.work()
    before = version_of(service, "c")
    declare_anew(service, "a", "SELECT id AS k FROM r")
    service.lake.sql("CREATE TABLE unrelated AS SELECT 1 AS x")
    assert service.due() == ["a", "c"]
    assert version_of(service, "c") == before, "it must not be widened over its supplier's new content"
    assert service.work() == ["a", "c"]


def test_a_consumer_follows_a_supplier_that_was_loaded_anew_without_it(service: Service) -> None:
    service.create("a", "SELECT k FROM r")
    service.create("c", "SELECT k FROM a")
    service.tick()
    service.work()
    before = version_of(service, "c")
    declare_anew(service, "a", "SELECT id AS k FROM r")
    service.lake.sql("CREATE TABLE unrelated AS SELECT 1 AS x")
    service.publish(id_of(service, "a"), service.lake.snapshot().id)
    assert service.due() == ["c"]
    assert version_of(service, "c") == before, "it must not be widened over its supplier's new content"


def test_a_consumer_follows_a_supplier_whose_view_is_another(service: Service) -> None:
    service.lake.sql("CREATE VIEW v AS SELECT k FROM r")
    service.create("a", "SELECT k FROM v")
    service.create("c", "SELECT k FROM a")
    service.tick()
    service.work()
    before = version_of(service, "c")
    service.lake.sql("CREATE OR REPLACE VIEW v AS SELECT id AS k FROM r")
    assert service.due() == ["a", "c"]
    assert version_of(service, "c").b_hi == before.b_hi, "it must not be widened over its supplier's new view"


def test_a_version_that_came_after_the_look_is_not_widened(service: Service) -> None:
    """The look says that nothing happened to the table; what was published since is of another definition."""
    service.create("a", "SELECT k FROM r")
    service.create("idle", "SELECT k FROM r")
    service.tick()
    service.work()
    look = service.looks.look()
    declare_anew(service, "a", "SELECT k FROM s")
    b = service.lake.snapshot().id
    service.lake.sql("INSERT INTO s VALUES (9)")
    service.publish(id_of(service, "a"), b)
    head = service.lake.snapshot()
    service.scheduler.tick(service.lake, replace(look, head=Commit(head.id, head.time)), service.now + 2 * LONG)
    assert version_of(service, "idle").b_hi == head.id
    assert version_of(service, "a").b_hi == b


def test_the_lag_behind_a_replaced_source_begins_with_the_replacement(service: Service) -> None:
    """Whatever was committed since."""
    service.create("a", "SELECT k FROM s")
    service.create("c", "SELECT k FROM a")
    service.tick()
    service.work()
    service.lake.sql("ALTER TABLE s RENAME TO was_s")
    replaced = service.lake.snapshot()
    service.lake.sql("CREATE TABLE s AS SELECT 2 AS k")
    service.lake.sql("INSERT INTO r VALUES (100, 1)")
    assert service.lake.snapshot().time > replaced.time
    changes = [standing.change for standing in service.looks.look().standings.values()]
    assert changes == [Commit(replaced.id, replaced.time)] * 2


# ---------------------------------------------------------------- failed
def test_a_table_that_failed_for_good_is_tried_once_it_is_mended(service: Service) -> None:
    service.create("a", "SELECT k / 0 AS k FROM r")
    service.tick()
    found = take(service)
    assert found is not None
    fail_for_good(service, found)
    assert service.due() == []
    declare_anew(service, "a", "SELECT k FROM r")
    assert service.due() == ["a"]


def test_a_first_load_that_failed_is_tried_after_a_change_by_a_new_scheduler_too(service: Service) -> None:
    """The change came before all that a scheduler started anew would read by itself."""
    service.create("a", "SELECT k FROM r")
    service.create("z", "SELECT k FROM s")
    service.tick()
    failing = id_of(service, "a")
    while (found := take(service)) is not None:
        if found.dynamic_id == failing:
            fail_for_good(service, found)
        else:
            assert found.dynamic_id is not None
            assert found.b is not None
            service.publish(found.dynamic_id, found.b)
            work.done(service.lake.conn, "w", [found.id])
    service.lake.sql("INSERT INTO r VALUES (100, 1)")
    service.lake.sql("INSERT INTO s VALUES (100)")
    service.publish(id_of(service, "z"), service.lake.snapshot().id)
    service.scheduler = Scheduler(service.lake.settings)
    service.looks = Looks(service.lake)
    assert service.due() == ["a"]


def test_an_outage_does_not_count_towards_suspension(service: Service) -> None:
    service.create("a", "SELECT k FROM r")
    for error in (*[StorageUnavailable] * 10, PublishConflict):
        failure = work.failed(service.lake.conn, id_of(service, "a"), 1, error)
        assert failure is not None
        assert not suspends(failure, error, 5)


def lose(service: Service, name: str, error: type[LakemillError], times: int) -> bool:
    """Whether the table is suspended after so many more failures of this kind."""
    table = id_of(service, name)
    for _ in range(times):
        failure = work.failed(service.lake.conn, table, 1, error)
    assert failure is not None
    return suspends(failure, error, 5, work.most_lost(service.lake.conn, table, error.code))


def test_a_table_that_always_takes_too_long_is_suspended(service: Service) -> None:
    service.create("a", "SELECT k FROM r")
    assert not lose(service, "a", RefreshTimedOut, 4)
    assert lose(service, "a", RefreshTimedOut, 1)
    assert lose(service, "a", SqlFailed, 1), "one row of its own failures, of whatever kind"


def test_a_table_that_takes_the_engine_down_is_suspended_and_not_those_beside_it(service: Service) -> None:
    for name in ("cause", "beside"):
        service.create(name, "SELECT k FROM r")
    assert not lose(service, "beside", EngineLost, 1)
    assert not lose(service, "cause", EngineLost, 4)
    assert lose(service, "cause", EngineLost, 1)
    work.recovered(service.lake.conn, [id_of(service, "cause")])
    assert not lose(service, "beside", EngineLost, 1)


def test_an_engine_that_can_t_be_reached_is_not_the_table_s_fault(service: Service) -> None:
    """Also where it is the only table that wants it: nothing of it was begun."""
    service.create("a", "SELECT k FROM r")
    assert not lose(service, "a", EngineUnreachable, 50)
    assert not lose(service, "a", EngineLost, 1), "and that one begins to count"
    assert not lose(service, "a", EngineLost, 3)
    assert lose(service, "a", EngineLost, 1)


def test_an_engine_that_nobody_can_use_suspends_nobody(service: Service) -> None:
    for name in ("a", "b"):
        service.create(name, "SELECT k FROM r")
    assert not lose(service, "a", EngineLost, 4)
    assert not lose(service, "b", EngineLost, 6)
    assert not lose(service, "a", EngineLost, 6)


# ---------------------------------------------------------------- expired
def test_a_supplier_whose_commit_was_expired_is_loaded_again(service: Service) -> None:
    """Its consumer can't read it: that must not be passed over for ever, look after look."""
    service.create("a", "SELECT k FROM r")
    service.create("c", "SELECT a.k FROM a JOIN s ON a.k = s.k")
    service.tick()
    service.work()
    service.lake.sql("INSERT INTO s VALUES (5)")
    service.tick()
    service.work()
    commit = version_of(service, "a").commit
    service.tick()  # which raises those that are idle: nothing holds the commit back
    expire(service, commit)
    service.lake.sql("INSERT INTO s VALUES (6)")
    assert service.due(0.2) == ["a", "c"]
    assert service.work() == ["a", "c"]


def test_nothing_is_due_at_a_snapshot_that_was_expired(service: Service) -> None:
    """The last one at which a supplier that nobody schedules would still be right."""
    service.create("a", "SELECT k FROM r")
    service.tick()
    service.work()
    service.lake.execute("ALTER DYNAMIC TABLE a SET SCHEDULER = DISABLE")
    service.lake.sql("INSERT INTO s VALUES (7)")
    between = service.lake.snapshot().id
    service.lake.sql("INSERT INTO r VALUES (100, 1)")
    service.looks.look()
    expire(service, between)
    service.create("c", "SELECT a.k FROM a JOIN s ON a.k = s.k")
    assert service.due() == ["c"]
    found = take(service)
    assert found is not None
    assert found.b != between


# ---------------------------------------------------------------- suspended
def test_those_that_wait_on_say_for_whom(service: Service) -> None:
    service.create("a", "SELECT k FROM r")
    service.create("b", "SELECT k FROM s")
    service.create("c", "SELECT a.k FROM a JOIN b ON a.k = b.k")

    def standing() -> tuple[State, str | None]:
        table = definitions.get(service.lake.conn, parse_name("c"))
        return table.state, table.state_reason

    halting.suspend_failing(service.lake, id_of(service, "a"), "5 refreshes failed in a row")
    assert standing() == (State.UPSTREAM_FAILED, "main.a keeps failing")
    halting.suspend(service.lake, [parse_name("b")])
    assert halting.resume(service.lake, [parse_name("a")]) == (parse_name("a"),)
    assert standing() == (State.UPSTREAM_SUSPENDED, "main.b is suspended")
    halting.suspend(service.lake, [parse_name("a")])
    halting.resume(service.lake, [parse_name("b")])
    assert standing() == (State.UPSTREAM_SUSPENDED, "main.a is suspended"), "the same state, for another"
    assert halting.resume(service.lake, [parse_name("a")]) == (parse_name("a"), parse_name("c"))
    assert standing() == (State.PENDING_INIT, None)


# ---------------------------------------------------------------- the queue
def test_a_suspended_table_is_not_worked_on(service: Service) -> None:
    """Not even when its work was due before."""
    service.create("a", "SELECT k FROM r")
    service.tick()
    halting.suspend(service.lake, [parse_name("a")])
    assert take(service) is None


def test_work_that_somebody_has_does_not_count_as_waiting(service: Service) -> None:
    work.add(service.lake.conn, Kind.UPKEEP, "compact main.r", "x")
    assert work.depth(service.lake.conn)["upkeep"][0] == 1
    assert take(service, Kind.UPKEEP) is not None
    assert work.depth(service.lake.conn)["upkeep"][0] == 0


# ---------------------------------------------------------------- ids of publishes
def test_ids_of_publishes_are_forgotten_when_nobody_can_ask(service: Service) -> None:
    conn, old, void, young = service.lake.conn, uuid4(), uuid4(), uuid4()
    add = "INSERT INTO lakemill.publishes VALUES (%s, %s, now() - %s)"
    for values in ((old, 1, timedelta(days=8)), (void, None, timedelta(days=9)), (young, 2, timedelta(days=6))):
        conn.execute(add, values)
    service.tick(3601)
    assert conn.execute("SELECT publish_id FROM lakemill.publishes").fetchall() == [(young,)]


def test_an_id_that_an_open_transaction_may_still_meet_stays(service: Service) -> None:
    """One that began before it was given up would publish after all."""
    given_up = uuid4()
    with db.connect(service.lake.dsn, autocommit=False) as other:
        other.execute("SELECT 1")
        service.lake.conn.execute("INSERT INTO lakemill.publishes VALUES (%s, NULL)", (given_up,))
        assert publishes.forget_publishes(service.lake.conn, timedelta(0)) == 0
    assert publishes.forget_publishes(service.lake.conn, timedelta(0)) == 1
