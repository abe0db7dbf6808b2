"""Quotas that hold across processes: four of them, as greedy as they can be, on one PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from lakemill.core.quota import Quotas, Resource
from lakemill.errors import QuotaExceeded
from lakemill.runtime.metering import Meter
from lakemill.store import db

ROOT = Path(__file__).parents[2]
PROCESSES, SECONDS, RATE = 4, 3.0, 200.0
CHILD = """
import sys, time
from contextlib import contextmanager
from lakemill.core.quota import Quotas, Resource
from lakemill.errors import QuotaExceeded
from lakemill.runtime.metering import Meter
from lakemill.store import db

dsn, seconds, rate = sys.argv[1], *map(float, sys.argv[2:])
conn, asked = db.connect(dsn), 0

@contextmanager
def connect():
    global asked
    asked += 1
    yield conn

meter, passed, limits = Meter(connect), 0, {"tenant:t": Quotas(requests=rate)}
print("ready", flush=True)
start = float(sys.stdin.readline())
time.sleep(max(0, start - time.time()))
while time.time() < start + seconds:
    try:
        meter.charge(limits, Resource.REQUESTS, 1)
        passed += 1
    except QuotaExceeded as refused:
        assert 0 < refused.wait < 60
        time.sleep(0.002)
print(passed, asked)
"""


@pytest.fixture
def meter(migrated: str) -> Iterator[Callable[[], Meter]]:
    with db.connect(migrated) as conn:

        @contextmanager
        def connect() -> Iterator[db.Connection]:
            yield conn

        yield lambda: Meter(connect)
        conn.execute("TRUNCATE lakemill.buckets, lakemill.slots")


def test_four_processes_stay_within_the_limit(migrated: str, meter: object) -> None:
    words = [sys.executable, "-c", CHILD, migrated, str(SECONDS), str(RATE)]
    running = [
        subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(ROOT / "src")}
        )
        for _ in range(PROCESSES)
    ]
    assert all(process.stdout and process.stdout.readline() == "ready\n" for process in running)
    start = f"{time.time() + 0.5}\n"  # together, however long each of them took to come up
    for process in running:
        assert process.stdin is not None
        process.stdin.write(start)
        process.stdin.flush()
    answers = [process.communicate(timeout=60)[0] for process in running]
    assert all(process.returncode == 0 for process in running), answers
    passed, asked = (sum(map(int, column)) for column in zip(*map(str.split, answers), strict=True))
    most = RATE * 2 + RATE * SECONDS  # the burst, and the rate
    assert passed <= most * 1.05 + PROCESSES, "clocks of processes are not quite the same"
    assert passed >= RATE * SECONDS * 0.7
    assert asked < passed / 2, "most requests asked nobody else"


def test_a_refusal_says_when(meter: Callable[[], Meter]) -> None:
    limits = {"key:k": Quotas(rows=1000), "tenant:t": Quotas(rows=10)}
    one = meter()
    one.charge(limits, Resource.ROWS, 20)  # the tenant's burst
    with pytest.raises(QuotaExceeded, match=r"tenant:t is over its quota of 10 rows/s") as refused:
        one.charge(limits, Resource.ROWS, 5)
    assert refused.value.wait == pytest.approx(0.5, abs=0.1)
    with pytest.raises(QuotaExceeded):  # another process knows, too
        meter().charge(limits, Resource.ROWS, 5)
    one.charge(limits, Resource.REQUESTS, 100)
    one.charge({}, Resource.ROWS, 10**9)
    one.charge(limits, Resource.ROWS, 0)


def test_queries_at_a_time(meter: Callable[[], Meter]) -> None:
    limits, ttl = {"key:k": Quotas(queries=2), "tenant:t": Quotas(queries=3)}, timedelta(minutes=1)
    one, other = meter(), meter()
    with one.query_slot(limits, ttl), other.query_slot(limits, ttl):
        with pytest.raises(QuotaExceeded, match="key:k runs 2"), one.query_slot(limits, ttl):
            pytest.fail("a third")
        with one.query_slot({"tenant:t": Quotas(queries=3)}, ttl):
            pass
    with one.query_slot(limits, ttl):
        pass


def test_a_slot_of_a_process_that_died_runs_out(meter: Callable[[], Meter]) -> None:
    limits = {"key:k": Quotas(queries=1)}
    with meter().query_slot(limits, timedelta(milliseconds=50)):
        time.sleep(0.1)
        with meter().query_slot(limits, timedelta(minutes=1)):
            pass
