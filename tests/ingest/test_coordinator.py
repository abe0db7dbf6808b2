"""The loop: when a table is due, and coordinators at work in this process, on one lake."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import timedelta
from threading import Event, Thread
from typing import Any

import pytest

import lakemill
from lakemill.core.batch import Pending
from lakemill.core.names import parse_name
from lakemill.runtime import barrier
from lakemill.runtime.coordinator import LOOK, SETTLE, Coordinator, is_due, patience
from lakemill.settings import IngestSettings
from lakemill.telemetry import metrics
from tests.conftest import MakeLake
from tests.ingest.intake import Intake
from tests.ingest.requests import marks, record

INGEST = IngestSettings(interval=timedelta(seconds=0.5), batch_records=100, batch_bytes=1000, batch_requests=10)


def waits(
    age: float, *, records: int = 1, size: int = 1, requests: int = 1, pause: float = 0, held: float = 0
) -> Pending:
    return Pending(1, 0, requests, records, size, age, pause, held)


@pytest.mark.parametrize(
    ("one", "due", "seconds"),
    [
        (waits(0.1), False, 0.4),
        (waits(0.5), True, SETTLE),
        (waits(0.1, records=100), True, 0.4),
        (waits(0.1, size=1000), True, 0.4),
        (waits(0.1, requests=10), True, 0.4),
        (waits(9, pause=0.2), False, 0.2),
        (waits(9, held=0.3), False, 0.3),
        (waits(9, pause=99), False, LOOK),
    ],
)
def test_when_a_table_is_due(one: Pending, due: bool, seconds: float) -> None:
    assert is_due(one, INGEST) is due
    assert patience([one], INGEST) == pytest.approx(seconds)
    assert patience([], INGEST) == LOOK


@contextmanager
def running(*coordinators: Coordinator) -> Iterator[None]:
    with ExitStack() as ended:
        for coordinator in coordinators:
            stop = Event()
            thread = Thread(target=coordinator.run, args=(stop,))
            thread.start()
            ended.callback(_end, thread, stop)
        yield


def _end(thread: Thread, stop: Event) -> None:
    stop.set()
    thread.join(60)
    assert not thread.is_alive()


def test_coordinators_share_tables_and_every_write_is_seen_by_its_token(make_lake: MakeLake, spark: Any) -> None:
    quick = {"ingest.interval": "100ms", "ingest.slots": 1, "service.retry_base": "100ms"}
    with lakemill.open(make_lake(flags=quick).settings) as lake:
        intake = Intake(lake)
        for number in range(3):
            intake.table(f"t{number}", "k INTEGER, v INTEGER", key=["k"] if number == 2 else [])
        with running(Coordinator(lake.settings), Coordinator(lake.settings)):
            for turn in range(3):
                for number in range(3):
                    token = intake.send(f"t{number}", record("i", k=turn, v=number), record("i", k=-1, v=turn))
                    if number == turn:
                        name = parse_name(f"t{number}")
                        seen = barrier.wait(lambda: nullcontext(lake), token, [name], timedelta(seconds=60))
                        found = lake.sql(f"SELECT count(*) FROM t{number} AT (VERSION => {seen.id}) WHERE k = {turn}")
                        assert found.fetchone() == (1,)
            barrier.wait(
                lambda: nullcontext(lake),
                token,
                [parse_name(f"t{number}") for number in range(3)],
                timedelta(seconds=60),
            )
        for number in range(2):
            assert intake.stock(f"SELECT count(*), count(*) FILTER (k = -1) FROM t{number}") == [(6, 3)]
        assert intake.stock("SELECT k, v FROM t2 ORDER BY k") == [(-1, 2), (0, 2), (1, 2), (2, 2)]
        assert marks(lake.conn) == (9, 9)
        assert lake.consumer.pending() == ()
        assert b"lakemill_write_to_visible_seconds_count" in metrics.exposition()


def test_where_no_table_takes_requests_it_waits_without_spark(make_lake: MakeLake) -> None:
    coordinator = Coordinator(make_lake().settings)
    begun = time.monotonic()
    with running(coordinator):
        while not coordinator.ready:
            time.sleep(0.05)
            assert time.monotonic() < begun + 60
    assert [slot.own for slot in coordinator._slots] == [None] * 2
