"""A lake with an impatient service, and what tests of its upsets ask of it: no Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest

import lakemill
from lakemill.core.lag import Version
from lakemill.core.names import parse_name
from lakemill.runtime.scheduler import Scheduler
from lakemill.runtime.worker import Worker
from lakemill.store import definitions, work
from tests.conftest import MakeLake
from tests.service.test_scheduler import Service

SECONDS = 30
QUICK = {
    "service.tick": "200ms",
    "service.retry_base": "200ms",
    "service.heartbeat": "1s",
    "service.claim_expiry": "8s",
    "service.stop_grace": "1s",
}


@pytest.fixture
def service(make_lake: MakeLake) -> Iterator[Service]:
    with lakemill.open(make_lake(flags=QUICK).settings) as lake:
        yield Service(lake)


@contextmanager
def running(part: Scheduler | Worker, seconds: float = SECONDS) -> Iterator[tuple[Thread, Event]]:
    """Its thread, and what tells it to stop, which the end of the body does."""
    stop = Event()
    thread = Thread(target=part.run, args=(stop,))
    thread.start()
    try:
        yield thread, stop
    finally:
        stop.set()
        thread.join(seconds)
        assert not thread.is_alive()


def until(done: Callable[[], object], seconds: float = SECONDS) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.05)


def id_of(service: Service, name: str) -> int:
    return definitions.get(service.lake.conn, parse_name(name)).id


def version_of(service: Service, name: str) -> Version:
    """The current one."""
    version = next(one.version for one in work.known(service.lake.conn) if one.name.name == name)
    assert version is not None
    return version


def expire(service: Service, snapshot: int) -> None:
    """As somebody does who knows nothing of Lakemill."""
    service.lake.sql(f"CALL ducklake_expire_snapshots('lake', versions => [{snapshot}])")
