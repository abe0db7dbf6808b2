"""Slots that do not come back: what a worker does about a thread that waits for something that never comes.

What they wait for is real: a lock in PostgreSQL that another session holds, a pipe that nobody writes. No Spark.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import lakemill
from lakemill.core.refresh import Outcome
from lakemill.errors import ClaimLost, RefreshTimedOut, UnavailableError
from lakemill.runtime import upkeep
from lakemill.runtime.claiming import claimed, holder
from lakemill.runtime.slots import Doing, Slot, leave_behind
from lakemill.runtime.upkeep import UpkeepReport
from lakemill.runtime.worker import Worker
from lakemill.spark.session import Own
from lakemill.store import claims, db, definitions, history, work
from lakemill.store.work import Kind
from lakemill.telemetry import metrics
from tests.conftest import MakeLake
from tests.service.conftest import QUICK, id_of, running, until
from tests.service.test_scheduler import LONG, Service

HASTY = {**QUICK, "service.refresh_timeout": "1s", "service.hang_grace": "1s", "service.left_behind": 2}

CLAIM = "INSERT INTO lakemill.claims (dynamic_id, fence, holder, expires_at) VALUES (%s, 1, 'nobody', now())"
"""Until it is committed, nobody else can claim the table, or give up."""


@pytest.fixture
def service(make_lake: MakeLake) -> Iterator[Service]:
    with lakemill.open(make_lake(flags=HASTY).settings) as lake:
        yield Service(lake)


def left_behind() -> float:
    return metrics.REGISTRY.get_sample_value("lakemill_slots_left_behind_total") or 0.0


@contextmanager
def locked(service: Service, statement: str, *values: Any) -> Iterator[None]:
    """Another session holds what this locks, for the body."""
    with db.connect(service.lake.dsn, autocommit=False) as other:
        other.execute(statement, values)
        yield
        other.rollback()


def slots() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("lakemill-slot")]


def test_a_slot_that_waits_for_a_lock_is_replaced(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    service.create("a", "SELECT k FROM r")
    service.create("b", "SELECT k FROM a")
    service.tick()
    conn, a, before = service.lake.conn, id_of(service, "a"), left_behind()
    settings = service.lake.settings
    with running(Worker(settings, "w", 1)):
        with locked(service, CLAIM, a):
            until(lambda: left_behind() == before + 1)
            work.add(conn, Kind.UPKEEP, "orphans", "x")
            work.tell(conn, work.DUE)
            until(lambda: work.depth(conn) == {}, 10)  # by the slot that took its place
            (record,) = history.history(conn, a)
            assert (record.outcome, record.error_code) == (Outcome.FAILED, RefreshTimedOut.code)
            assert [one.failure.count for one in work.known(conn) if one.failure] == [1]
            assert (record.seconds or 0) > 1, "counted from when it was taken"
            (skipped,) = history.history(conn, id_of(service, "b"))
            assert skipped.outcome is Outcome.UPSTREAM_FAILED
            assert len(slots()) == 2, "the old one, and the one in its place"
        until(lambda: len(slots()) == 1)  # what woke goes home, and takes nothing more
    assert definitions.by_id(conn, a).table_id is None, "nothing was published"
    assert work.depth(conn) == {}
    told = next(one for one in caplog.records if "can't be stopped" in one.getMessage())
    assert "claims.py" in str(told.__dict__), "it says where"


def test_what_wakes_later_is_refused(service: Service) -> None:
    """Its claim is taken from it, and nobody renews it."""
    service.create("a", "SELECT k FROM r")
    table = definitions.by_id(service.lake.conn, id_of(service, "a"))
    begun, go_on = threading.Event(), threading.Event()
    refused: list[BaseException] = []

    def hang() -> None:
        with lakemill.open(service.lake.settings) as lake, claimed(lake, table) as held:
            begun.set()
            go_on.wait(60)
            try:
                claims.require_claim(lake.conn, held)
            except ClaimLost as error:
                refused.append(error)

    thread = threading.Thread(target=hang)
    thread.start()
    assert begun.wait(30)
    now, b = datetime.now(UTC), service.lake.snapshot().id
    work.add(service.lake.conn, Kind.REFRESH, str(table.id), "due", dynamic_id=table.id, b=b, t=now)
    service.lake.conn.execute("UPDATE lakemill.work SET worker = 'w', expires_at = now() + interval '1 minute'")
    found = work.Work(1, Kind.REFRESH, str(table.id), table.id, b, now, False, 0, "due", now)
    doing = Doing(found, Own("test"), lost=RefreshTimedOut("too long"))
    leave_behind(service.lake.settings, "w", Slot(0, thread), doing)
    other = claims.claim(service.lake.conn, table.id, "other", LONG)
    assert other is not None, "anybody may have it"
    go_on.set()
    thread.join(30)
    assert len(refused) == 1
    assert claims.holder_of(service.lake.conn, table.id) is not None, "what it gives back is not the other's"


def test_one_that_was_stopped_does_not_wait_for_a_claim(service: Service) -> None:
    service.create("a", "SELECT k FROM r")
    table = definitions.by_id(service.lake.conn, id_of(service, "a"))
    assert claims.claim(service.lake.conn, table.id, "other", timedelta(minutes=5)) is not None
    with pytest.raises(RefreshTimedOut), claimed(service.lake, table, lambda: RefreshTimedOut("too long")):
        pytest.fail("it is somebody else's")
    assert holder() not in [name for _, name in claims.held(service.lake.conn)]


def test_too_many_slots_that_hang_end_the_process(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def read(*_: Any) -> UpkeepReport:
        pipe.read_bytes()  # as a file system that has gone away does
        return UpkeepReport("orphans", False, ())

    monkeypatch.setattr(upkeep, "compact", read)
    for number in range(3):
        work.add(service.lake.conn, Kind.UPKEEP, f"compact main.t{number}", "x")
    worker = Worker(service.lake.settings, "w", 1, (Kind.UPKEEP,))
    with running(worker) as (thread, stop):
        until(stop.is_set)
        assert worker.broken == "slots that hang: 2"
        thread.join(10)
        assert not thread.is_alive(), "its goodbye does not wait for them"
    assert list(work.depth(service.lake.conn)) == ["upkeep"], "the third is left to another"
    assert work.workers(service.lake.conn) == ()
    writer = os.open(pipe, os.O_WRONLY)  # what hung wakes, and ends
    os.close(writer)
    until(lambda: not slots())


def test_a_process_whose_slots_hang_ends_as_a_failure(service: Service) -> None:
    """So that whoever looks after it starts it anew."""
    service.create("a", "SELECT k FROM r")
    service.tick()
    settings = {"REFRESH_TIMEOUT": "1s", "HANG_GRACE": "1s", "LEFT_BEHIND": "1", "STOP_GRACE": "1s"}
    environment = {**os.environ, **{f"LAKEMILL_SERVICE__{key}": value for key, value in settings.items()}}
    words = ["-m", "lakemill.cli.main", "-C", str(service.lake.settings.root), "worker", "--slots", "1", "--port", "0"]
    with locked(service, CLAIM, id_of(service, "a")):
        ended = subprocess.run(
            [sys.executable, *words], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
    assert ended.returncode == UnavailableError.exit_code, ended.stderr
    told = ended.stdout + ended.stderr
    assert "slots that hang: 1; the process ends, to be started anew" in told
    assert work.workers(service.lake.conn) == (), "it has said goodbye"
    assert "refresh" not in work.depth(service.lake.conn), "what it was at has failed"
