"""What wakes a scheduler besides commits, and what it tells of a table that was never loaded. No Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

import lakemill
from lakemill.core.names import parse_name
from lakemill.runtime import halting, show
from lakemill.runtime.scheduler import Scheduler
from lakemill.store import definitions, work
from lakemill.telemetry import metrics
from tests.conftest import MakeLake
from tests.service.conftest import QUICK, running, until
from tests.service.test_scheduler import Service

PATIENT = {**QUICK, "service.tick": "1 minute"}


@pytest.fixture
def service(make_lake: MakeLake) -> Iterator[Service]:
    with lakemill.open(make_lake(flags=PATIENT).settings) as lake:
        yield Service(lake)


def queued(service: Service) -> int:
    return work.depth(service.lake.conn).get("refresh", (0, 0.0))[0]


def test_a_statement_wakes_the_scheduler(service: Service) -> None:
    """A table that is declared, altered or resumed is not left to the next look, which may be a minute away."""
    lake, name = service.lake, parse_name("a")
    scheduler = Scheduler(lake.settings)
    waking: dict[str, tuple[Callable[[], object], int]] = {
        "CREATE": (lambda: service.create("a", "SELECT k FROM r", options="SCHEDULER = DISABLE"), 0),
        "ALTER": (lambda: lake.execute("ALTER DYNAMIC TABLE a SET SCHEDULER = ENABLE"), 1),
        "SUSPEND": (lambda: halting.suspend(lake, [name]), 0),
        "RESUME": (lambda: halting.resume(lake, [name]), 1),
        "CREATE another": (lambda: service.create("b", "SELECT k FROM s"), 2),
    }
    with running(scheduler):
        until(lambda: scheduler.leads)
        time.sleep(1)  # it has looked, and sleeps
        for statement, (tell, due) in waking.items():
            tell()
            began = time.monotonic()
            until(lambda due=due: queued(service) == due, 10)  # type: ignore[misc]
            assert time.monotonic() - began < 10, statement


def test_what_was_never_loaded_lags_since_it_was_declared(service: Service) -> None:
    """Or nobody would be told of a first load that never succeeds."""
    service.create("a", "SELECT k FROM r", "'1 minute'")
    service.create("b", "SELECT k FROM s", "'1 minute'")
    lake, now = service.lake, datetime.now(UTC)
    lake.conn.execute("UPDATE lakemill.dynamic_tables SET created_at = now() - interval '10 minutes'")
    (a,) = show.show(lake, "a", now)
    assert a.lag >= timedelta(minutes=9, seconds=50)
    service.now = now
    service.tick(0)
    told = metrics.REGISTRY.get_sample_value("lakemill_lag_seconds", {"table": "main.a"}) or 0.0
    target = metrics.REGISTRY.get_sample_value("lakemill_target_lag_seconds", {"table": "main.a"}) or 0.0
    assert told > 2 * target > 0, "the alert fires"
    service.work()
    assert definitions.unloaded(lake.conn) == {}
    service.tick(0)
    service.tick(10)
    assert metrics.REGISTRY.get_sample_value("lakemill_lag_seconds", {"table": "main.a"}) == 0.0
    lake.execute(
        "CREATE OR REPLACE DYNAMIC TABLE b TARGET_LAG = '1 minute' INITIALIZE = ON_SCHEDULE AS SELECT 1 AS x FROM s"
    )
    assert list(definitions.unloaded(lake.conn)) == [parse_name("b")], "what it holds is not what it is by now"
