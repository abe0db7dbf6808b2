"""Upsets of workers and of refreshes: what must not be done twice, counted wrongly, or left in the queue for ever.

Leases pass to others, snapshots expire, engines are lost, and a refresh meets the scheduler on the same rows. No Spark:
what would ask for it is a stand-in.
"""

from __future__ import annotations

import socket
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

import lakemill
from lakemill.core.names import parse_name
from lakemill.core.refresh import Outcome, State, Trigger
from lakemill.core.scan import Snapshot
from lakemill.errors import ClaimLost, EngineLost, RefreshTimedOut, SnapshotGone, SqlFailed
from lakemill.runtime import refresh as refreshing
from lakemill.runtime import tending, upkeep
from lakemill.runtime import worker as working
from lakemill.runtime.asking import ask_for_refresh
from lakemill.runtime.claiming import free_the_dead
from lakemill.runtime.refresh import Refresh, refresh, refresh_at
from lakemill.runtime.upkeep import UpkeepReport
from lakemill.runtime.worker import Doing, Worker
from lakemill.spark import session, usage
from lakemill.spark.session import Own
from lakemill.store import db, definitions, history, pins, versions, work
from lakemill.store.definitions import DynamicTable
from lakemill.store.history import RefreshRecord
from lakemill.store.work import Kind
from tests.conftest import MakeLake
from tests.service.conftest import QUICK, SECONDS, expire, id_of, running, until, version_of
from tests.service.test_scheduler import LONG, Service


def queued(service: Service, kind: Kind) -> list[tuple[str, str | None]]:
    """What is due, done by whom."""
    query = "SELECT subject, worker FROM lakemill.work WHERE kind = %s ORDER BY work_id"
    return [(subject, worker) for subject, worker in service.lake.conn.execute(query, (kind.value,)).fetchall()]


# ---------------------------------------------------------------- workers
def test_work_at_a_snapshot_that_is_gone_does_not_stay_for_ever(service: Service) -> None:
    service.create("a", "SELECT k FROM r")
    service.create("z", "SELECT k FROM s")
    service.tick()
    b = service.lake.snapshot().id
    service.lake.sql("INSERT INTO s VALUES (5)")
    service.lake.sql("INSERT INTO s VALUES (5)")
    expire(service, b)
    with pytest.raises(SnapshotGone):
        service.lake.snapshot(b)
    assert len(queued(service, Kind.REFRESH)) == 2
    with running(Worker(service.lake.settings, "w", 1, (Kind.REFRESH,))):
        until(lambda: not queued(service, Kind.REFRESH))


def test_a_worker_that_lost_its_work_counts_nothing(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.create("a", "SELECT k FROM r")
    service.create("c", "SELECT k FROM a")
    service.tick()
    conn = service.lake.conn
    found = work.take(conn, "w1", (Kind.REFRESH,), timedelta(seconds=-1))
    other = work.take(conn, "w2", (Kind.REFRESH,), LONG)
    assert found is not None
    assert other is not None
    assert found.id == other.id
    assert found.dynamic_id is not None
    table, now = definitions.by_id(conn, found.dynamic_id), datetime.now(UTC)
    record = RefreshRecord(
        uuid.uuid4(),
        table.id,
        table.name,
        1,
        Trigger.SCHEDULED,
        now,
        outcome=Outcome.FAILED,
        b=found.b,
        ended_at=now,
        error_code=ClaimLost.code,
        error_text="passed",
    )
    monkeypatch.setattr(working, "refresh_at", lambda *_: record)
    Worker(service.lake.settings, "w1", 1)._refresh(service.lake, Doing(found, Own("test")))
    assert {one.failure for one in work.known(conn)} == {None}
    a, c = str(table.id), str(id_of(service, "c"))
    assert queued(service, Kind.REFRESH) == [(a, "w2"), (c, None)], "c's work must not go with what it had lost"


def test_a_table_that_always_takes_too_long_is_suspended(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """After as many times as any other failure of its own."""
    service.create("a", "SELECT k FROM r")
    conn, a = service.lake.conn, id_of(service, "a")
    table, now, head = definitions.by_id(conn, a), datetime.now(UTC), service.lake.snapshot().id
    late = {"error_code": RefreshTimedOut.code, "error_text": "it took longer than 3600 s"}
    begun = RefreshRecord(uuid.uuid4(), a, table.name, 1, Trigger.SCHEDULED, now, b=head)
    monkeypatch.setattr(working, "refresh_at", lambda *_: replace(begun, outcome=Outcome.FAILED, ended_at=now, **late))
    worker = Worker(service.lake.settings, "w", 1)
    states = []
    for _ in range(service.lake.settings.service.suspend_after):
        work.add(conn, Kind.REFRESH, str(a), "due", dynamic_id=a, b=head, t=now)
        found = work.take(conn, "w", (Kind.REFRESH,), LONG)
        assert found is not None
        worker._refresh(service.lake, Doing(found, Own("test")))
        states.append(definitions.by_id(conn, a).state)
    assert states == [*[State.PENDING_INIT] * 4, State.SUSPENDED_DUE_TO_ERRORS]
    assert definitions.by_id(conn, a).state_reason == "5 refreshes failed in a row: REFRESH_TIMED_OUT"


def test_what_somebody_asked_for_is_remembered_as_that_and_counts_towards_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, query in {"a": "SELECT k FROM r", "b": "SELECT k FROM a"}.items():
        service.create(name, query)
    service.tick()
    ask_for_refresh(service.lake, parse_name("b"))

    def fail(*_: Any) -> None:
        raise RuntimeError("whatever nobody foresaw")

    monkeypatch.setattr(refreshing, "carry_out", fail)
    monkeypatch.setattr(type(service.lake), "spark", property(lambda _: None))
    with running(Worker(service.lake.settings, "w", 1, (Kind.REFRESH,))):
        until(lambda: not queued(service, Kind.REFRESH))
    conn = service.lake.conn
    found = [history.history(conn, id_of(service, name), 10) for name in ("a", "b")]
    told = [[(record.outcome, record.trigger) for record in records] for records in found]
    assert told == [[(Outcome.FAILED, Trigger.MANUAL)], [(Outcome.UPSTREAM_FAILED, Trigger.MANUAL)]]
    assert {one.failure for one in work.known(conn)} == {None}


def test_a_table_is_compacted_within_its_own_window(make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    policies = {"main.r": {"window": "00:00-12:00"}, "main.s": {"auto": ""}}
    flags = {**QUICK, "upkeep.auto": "compact", "upkeep.small_files": 2, "upkeep.policies": policies}
    done: list[str] = []
    monkeypatch.setattr(upkeep, "compact", lambda _, table: done.append(table) or UpkeepReport("compact", False, ()))
    with lakemill.open(make_lake(flags=flags).settings) as lake:
        service = Service(lake)
        lake.sql("CREATE TABLE other AS FROM s")
        for table in ("r", "s", "other"):
            lake.sql(f"INSERT INTO {table} FROM {table}")
        service.now = service.now.replace(hour=11)
        service.tick(0)
        assert queued(service, Kind.UPKEEP) == [], "one interval after it was first heard of"
        service.tick(2 * 3600)
        assert queued(service, Kind.UPKEEP) == [("compact main.other", None)]
        service.now = (service.now + timedelta(days=1)).replace(hour=11)
        service.tick(0)
        assert queued(service, Kind.UPKEEP) == [("compact main.other", None), ("compact main.r", None)]

        class Noon(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> datetime:
                return service.now.replace(hour=12)

        monkeypatch.setattr(tending, "datetime", Noon)
        with running(Worker(lake.settings, "w", 1, (Kind.UPKEEP,))):
            until(lambda: not queued(service, Kind.UPKEEP))
    assert done == ["main.other"], "the other one's window was over when its turn came"


def test_upkeep_that_fails_is_not_done_again_at_once(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it raises, an error of ours or not."""
    work.add(service.lake.conn, Kind.UPKEEP, "compact main.r", "x")
    tries = []

    def fail(*_: Any) -> None:
        tries.append(True)
        raise RuntimeError("py4j")

    monkeypatch.setattr(upkeep, "compact", fail)
    with running(Worker(service.lake.settings, "w", 1)):
        until(lambda: not queued(service, Kind.UPKEEP))
    assert len(tries) == 1


def test_an_engine_lost_in_upkeep_is_started_anew(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    work.add(service.lake.conn, Kind.UPKEEP, "compact main.r", "x")
    found = work.take(service.lake.conn, "w", (Kind.UPKEEP,), LONG)
    assert found is not None

    def fail(*_: Any) -> None:
        raise EngineLost("Spark's JVM is gone")

    monkeypatch.setattr(upkeep, "compact", fail)
    worker = Worker(service.lake.settings, "w", 1)
    worker._tend(service.lake, found)
    assert worker._pause.is_set()


def test_a_worker_that_was_killed_is_missed_until_another_takes_its_place(service: Service) -> None:
    """Its work goes on at once, but somebody should look: `worker_up` is 0 as long as it is known."""
    conn = service.lake.conn
    with subprocess.Popen(["true"]) as gone:
        pass
    name = f"{socket.gethostname()}:{gone.pid}"
    work.add(conn, Kind.UPKEEP, "orphans", "x")
    assert work.take(conn, name, (Kind.UPKEEP,), LONG) is not None
    work.extend(conn, name, 1, (Kind.UPKEEP,), (), LONG)
    free_the_dead(conn, service.lake.consumer)
    assert queued(service, Kind.UPKEEP) == [("orphans", None)]
    assert [one.name for one in work.workers(conn)] == [name]
    with running(Worker(service.lake.settings, "w", 1, (Kind.REFRESH,))):
        until(lambda: [one.name for one in work.workers(conn)] == ["w"])


def test_only_the_work_that_was_lost_is_stopped(service: Service) -> None:
    """Its slot may be at another by the time that somebody finds out."""
    stopped: list[str] = []
    context = SimpleNamespace(cancelJobsWithTag=stopped.append)
    spark = Own("slot", _mine=cast("Any", SimpleNamespace(sparkContext=context)))
    for subject in ("first", "second"):
        work.add(service.lake.conn, Kind.UPKEEP, subject, "x")
    first, second = (work.take(service.lake.conn, "w", (Kind.UPKEEP,), LONG) for _ in range(2))
    assert first is not None
    assert second is not None
    doing = Doing(first, spark)
    spark.tag = Doing(second, spark).tag
    doing.cancel(ClaimLost("passed to another"))
    assert stopped == [f"lakemill-work-{first.id}"]


def test_one_long_refresh_does_not_hold_up_all_others_for_a_fresh_jvm(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After so many refreshes the JVM is to be another one, but it is not so urgent; a dead one is."""
    recycled: list[bool] = []
    monkeypatch.setattr(session, "recycle", lambda: recycled.append(True))
    monkeypatch.setattr(working, "DRAIN", 0.0)
    monkeypatch.setattr(usage, "_done", 10**6)
    worker = Worker(service.lake.settings, "w", 1)
    with usage.used():
        worker._recycle()
        assert not worker._pause.is_set()
        worker._lose_engine()
        worker._recycle()
        assert worker._pause.is_set()
    assert recycled == []
    worker._recycle()
    assert recycled == [True]
    assert not worker._pause.is_set()
    assert usage.done() == 0
    worker._pause.set()
    worker._recycle()
    assert not worker._pause.is_set(), "somebody else has started it anew"
    assert recycled == [True]


def test_slots_that_are_stuck_do_not_keep_a_worker_from_its_goodbye(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are: the service waits for its grace and 5 seconds, not for each of them."""
    for number in range(6):
        service.create(f"a{number}", "SELECT k FROM r")
    service.tick()
    go_on = Event()

    def hang(*_: Any) -> None:
        go_on.wait(SECONDS)

    monkeypatch.setattr(working, "refresh_at", hang)
    worker = Worker(service.lake.settings, "w", 6, (Kind.REFRESH,))
    with running(worker) as (thread, stop):
        until(lambda: len(worker.doing) == 6)
        stop.set()
        thread.join(service.lake.settings.service.stop_grace.total_seconds() + 5)
        holders = {name for _, name in queued(service, Kind.REFRESH)}
        go_on.set()
        until(lambda: not worker.doing)
    assert holders == {None}


# ---------------------------------------------------------------- refreshes
def test_a_refresh_that_was_stopped_before_spark_was_asked_does_not_go_on(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.create("a", "SELECT k FROM r")
    begun = []

    def begin(*_: Any) -> None:
        begun.append(True)
        raise RuntimeError("Spark was asked")

    monkeypatch.setattr(refreshing, "carry_out", begin)
    monkeypatch.setattr(type(service.lake), "spark", property(lambda _: None))
    now, stopped = datetime.now(UTC), RefreshTimedOut("too long")
    record = refresh_at(service.lake, id_of(service, "a"), service.lake.snapshot(), now, lambda: stopped)
    assert not begun
    assert record is not None
    assert record.error_code == RefreshTimedOut.code


def test_a_success_that_somebody_asked_for_ends_the_row_of_failures(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.create("a", "SELECT k FROM r")
    service.tick()
    service.work()
    for _ in range(4):
        work.failed(service.lake.conn, id_of(service, "a"), 1, SqlFailed)
    monkeypatch.setattr(Refresh, "_is_current", lambda _: True)
    (record,) = refresh(service.lake, [parse_name("a")])
    assert record.outcome is Outcome.SUCCEEDED
    (known,) = work.known(service.lake.conn)
    assert known.failure is None


# ---------------------------------------------------------------- a refresh and the scheduler on the same rows
@pytest.fixture
def idle(service: Service, monkeypatch: pytest.MonkeyPatch) -> DynamicTable:
    """A loaded table that nothing happened to, though the lake has a newer snapshot."""
    service.create("a", "SELECT k FROM r")
    service.tick()
    service.work()
    table = definitions.get(service.lake.conn, parse_name("a"))
    service.lake.sql("INSERT INTO s VALUES (5)")
    own = version_of(service, "a")
    pins.move_positions(service.lake.conn, f"dynamic:{table.id}", {own.table_id: own.commit})
    monkeypatch.setattr(Refresh, "_is_current", lambda _: True)  # what stands for its table was not made by a refresh
    return table


def refresh_idle(service: Service, table: DynamicTable, b: Snapshot) -> RefreshRecord:
    sources = definitions.sources(service.lake.conn, table)
    return Refresh(service.lake, table, sources, b, datetime.now(UTC), Trigger.SCHEDULED).run()


def raise_idle(service: Service, table: DynamicTable, b: Snapshot) -> None:
    """As the scheduler does it, on a connection of its own."""
    with db.connect(service.lake.dsn) as conn:
        frontier = versions.frontier(conn, table.id)
        assert frontier is not None
        versions.raise_idle(conn, [frontier.version_id], b.id, b.time)


def somebody_waits_for_a_lock(service: Service) -> bool:
    query = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with db.connect(service.lake.dsn) as conn:
        return conn.execute(query).fetchone() is not None


def test_a_refresh_does_not_deadlock_with_a_scheduler_that_comes_second(
    service: Service, idle: DynamicTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = service.lake.snapshot()
    raise_b_hi = versions.raise_b_hi
    locked, raised = Event(), Event()

    def slow(*words: Any) -> Any:
        found = raise_b_hi(*words)
        locked.set()
        until(lambda: raised.is_set() or somebody_waits_for_a_lock(service))
        return found

    def second() -> None:
        try:
            assert locked.wait(SECONDS)
            raise_idle(service, idle, head)
        finally:
            raised.set()

    monkeypatch.setattr(versions, "raise_b_hi", slow)
    with ThreadPoolExecutor(1) as pool:
        scheduler = pool.submit(second)
        record = refresh_idle(service, idle, head)
        scheduler.result()
    assert record.outcome is Outcome.SUCCEEDED


def test_a_refresh_does_not_deadlock_with_a_scheduler_that_came_first(
    service: Service, idle: DynamicTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = service.lake.snapshot()
    lock_usable = pins.lock_usable
    locked, ended = Event(), Event()

    def slow(*words: Any) -> None:
        lock_usable(*words)
        locked.set()
        until(lambda: ended.is_set() or somebody_waits_for_a_lock(service))

    monkeypatch.setattr(pins, "lock_usable", slow)
    with ThreadPoolExecutor(1) as pool:
        scheduler = pool.submit(raise_idle, service, idle, head)
        assert locked.wait(SECONDS)
        try:
            record = refresh_idle(service, idle, head)
        finally:
            ended.set()
        scheduler.result()
    assert record.outcome is Outcome.SUCCEEDED
