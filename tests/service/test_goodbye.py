"""What a worker that ends in order leaves behind: nothing that another, on any machine, would have to wait for."""

from __future__ import annotations

import logging
from threading import Event
from typing import Any

import pytest

from lakemill.core.refresh import Outcome
from lakemill.runtime import refresh as refreshing
from lakemill.runtime.worker import Worker
from lakemill.store import claims, history, work
from lakemill.store.work import Kind
from tests.service.conftest import SECONDS, id_of, running, until
from tests.service.test_scheduler import LONG, Service


def test_claims_and_pins_of_a_worker_that_ends_are_free_at_once(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slot does not come back from Spark: another machine, which can't see that the process is gone, goes on."""
    service.create("a", "SELECT k FROM r")
    service.tick()
    go_on = Event()

    def hang(*_: Any) -> Any:
        go_on.wait(SECONDS)
        raise RuntimeError("it came back too late")

    monkeypatch.setattr(refreshing, "carry_out", hang)
    monkeypatch.setattr(type(service.lake), "spark", property(lambda _: None))
    conn, table = service.lake.conn, id_of(service, "a")
    worker = Worker(service.lake.settings, "w", 1, (Kind.REFRESH,))
    with running(worker) as (thread, stop):
        until(lambda: claims.holder_of(conn, table))
        assert conn.execute("SELECT count(*) FROM lakemill.pins").fetchone() == (1,)
        stop.set()
        thread.join(service.lake.settings.service.stop_grace.total_seconds() + 5)
        assert not thread.is_alive()
        free = claims.holder_of(conn, table)
        pinned = conn.execute("SELECT count(*) FROM lakemill.pins").fetchone()
        taken = work.take(conn, "other", (Kind.REFRESH,), LONG)
        go_on.set()
        until(lambda: not worker.doing)
    assert free is None
    assert pinned == (0,)
    assert taken is not None
    (record,) = history.history(conn, table)
    assert record.outcome is Outcome.CANCELLED


def test_a_kind_that_does_not_exist_yet_is_said(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "lakemill"), running(Worker(service.lake.settings, "w", 1, (Kind.INGEST,))):
        until(lambda: "ingest" in caplog.text)
