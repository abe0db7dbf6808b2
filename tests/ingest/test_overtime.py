"""A batch that hangs: it is given back and stopped, and where it can't be stopped its slot is replaced."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Event, Thread, current_thread
from typing import Any

import pytest

import lakemill
from lakemill.core.batch import Batch, Claim
from lakemill.errors import ClaimLost
from lakemill.runtime import coordinator, materialise, overtime
from lakemill.runtime.coordinator import Coordinator
from lakemill.runtime.open import Lake
from lakemill.runtime.sifting import Sifting
from lakemill.settings import Settings
from lakemill.spark import session, usage
from lakemill.telemetry import metrics
from tests.conftest import MakeLake
from tests.ingest.intake import Intake
from tests.ingest.requests import record

SHORT = {"ingest.batch_timeout": "300ms", "service.retry_base": "1ms", "service.retry_cap": "1ms"}
LONGEST = 60.0


@pytest.fixture
def intake(make_lake: MakeLake) -> Iterator[Intake]:
    """Without Spark."""
    with lakemill.open(make_lake(flags=SHORT | {"ingest.interval": "1ms", "ingest.slots": 1}).settings) as lake:
        yield Intake(lake)


def counted(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(f"lakemill_{name}", labels) or 0.0


def timed_out() -> tuple[float, float]:
    return counted("ingest_batches_total", status="timed_out"), counted("errors_total", code="BATCH_TIMED_OUT")


def test_it_is_given_back_and_its_jobs_are_stopped(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = intake.table("t", "k INTEGER")
    intake.send("t", record("i", k=1))
    stopped, claims, before = Event(), list[Claim](), timed_out()

    def hangs(lake: Lake, held: Claim, *_: Any) -> None:
        claims.append(held)
        assert stopped.wait(LONGEST)
        with pytest.raises(ClaimLost, match="has run out"):
            lake.consumer.require(lake.conn, held)  # it could not publish any more
        raise RuntimeError("the job was cancelled")

    monkeypatch.setattr(materialise, "_next", hangs)
    assert materialise.materialise(intake.lake, table, cancel=stopped.set) is None
    ((holder, attempts, reason),) = intake.rows("SELECT holder, attempts, reason FROM lakemill.ingest_tables")
    assert (holder, attempts) == (None, 1), "told once, by whoever stopped it"
    assert "it took longer than 0.3 s" in reason
    assert timed_out() == (before[0] + 1, before[1] + 1)
    (pending,) = intake.lake.consumer.pending()
    assert pending.held == 0, "others can have it"


def test_one_that_is_published_in_the_last_moment_counts(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = intake.table("t", "k INTEGER")
    token = intake.send("t", record("i", k=1))
    before = timed_out()

    def slow(lake: Lake, held: Claim, batch: Batch) -> Any:
        with lake.conn.transaction():
            lake.consumer.require(lake.conn, held)
            time.sleep(0.8)  # its time is over, and whoever watches waits for us
            lake.consumer.ack(lake.conn, held, batch, 1, 0)
        return materialise._Done("main.t", None, (0, 0, 0), 0)

    monkeypatch.setattr(materialise, "_once", slow)
    passed = materialise.materialise(intake.lake, table)
    assert passed is not None
    assert passed.upto == token
    assert intake.rows("SELECT attempts, cursor FROM lakemill.ingest_tables") == [(0, token)]
    assert timed_out() == before


def test_a_slot_that_does_not_return_is_replaced(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = intake.table("t", "k INTEGER")
    intake.send("t", record("i", k=1))
    hanging, released, others = Event(), Event(), list[Thread]()
    second = Event()

    def hangs_once(lake: Lake, table_id: int, stopping: Callable[[], bool], cancel: Callable[[], None]) -> None:
        assert table_id == table
        if not hanging.is_set():
            hanging.set()
            others.append(current_thread())
            assert released.wait(LONGEST)
            return
        others.append(current_thread())
        second.set()

    recycled = list[str]()
    monkeypatch.setattr(coordinator, "materialise", hangs_once)
    monkeypatch.setattr(coordinator, "warm", lambda lake: None)
    monkeypatch.setattr(overtime, "GRACE", 0.1)
    monkeypatch.setattr(session, "recycle", lambda: recycled.append("anew"))
    stop = Event()
    running = Thread(target=Coordinator(intake.lake.settings).run, args=(stop,))
    running.start()
    try:
        assert hanging.wait(LONGEST)
        assert second.wait(LONGEST), "another thread made the batch"
        assert others[0] is not others[1]
        assert recycled == ["anew"]
        released.set()
        others[0].join(LONGEST)
        assert not others[0].is_alive(), "it ends when it returns after all"
        assert usage.recycle_when_idle()
    finally:
        released.set()
        stop.set()
        running.join(LONGEST)
    assert not running.is_alive()


def test_a_real_job_is_stopped(make_lake: MakeLake, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = timed_out()
    with lakemill.open(make_lake(flags=SHORT | {"ingest.batch_timeout": "1s"}).settings) as lake:
        intake = Intake(lake)
        table = intake.table("t", "k INTEGER")
        intake.send("t", record("i", k=1))
        found: list[bool] = []

        def hangs(sifting: Sifting) -> Any:
            frame = sifting.lake.spark.range(1)
            frame.selectExpr("java_method('java.lang.Thread', 'sleep', id + 20000L)").collect()

        def pass_one() -> None:
            own = session.own("ingest-test")
            own.tag = "lakemill-ingest-test"
            with lakemill.open(lake.settings) as mine:
                found.append(materialise.materialise(mine, table, cancel=lambda: own.interrupt(own.tag)) is None)

        with monkeypatch.context() as patched:
            patched.setattr(Sifting, "appended", hangs)
            thread, begun = Thread(target=pass_one), time.monotonic()
            thread.start()
            thread.join(LONGEST)
        assert found == [True]
        assert time.monotonic() - begun < 18, "it was not waited for"
        assert timed_out() == (before[0] + 1, before[1] + 1)
        with lakemill.open(Settings.load(lake.settings.root)) as patient:
            assert Intake(patient).make("t").inserted == 1, "the next attempt goes through"
