"""A writer reads its own writes: requests over HTTP, Spark makes them visible, a query with their token waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

import lakemill
from lakemill.api.app import make
from lakemill.api.desk import Desk
from lakemill.api.probes import serve_in_thread
from lakemill.errors import ConsistencyTimeout, TableSuspended
from lakemill.runtime.coordinator import Coordinator
from tests.conftest import MakeLake, TestLake

SECONDS = 60.0


@pytest.fixture
def lake(make_lake: MakeLake, spark: Any) -> TestLake:
    return make_lake(flags={"ingest.interval": "50ms"})


@pytest.fixture
def url(lake: TestLake) -> Iterator[str]:
    desk = Desk(lake.settings, "127.0.0.1")
    desk.start()
    serving = serve_in_thread(make(desk))
    yield serving.url
    serving.stop()
    desk.close()


@contextmanager
def coordinating(lake: TestLake) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=Coordinator(lake.settings).run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(SECONDS)


def test_a_writer_reads_its_own_writes(lake: TestLake, url: str) -> None:
    columns = [{"name": "id", "type": "BIGINT"}, {"name": "price", "type": "DECIMAL(9,2)"}]
    made = httpx.post(f"{url}/v1/tables", json={"name": "orders", "columns": columns, "key": ["id"]})
    assert made.status_code == 201, made.text
    with lakemill.Client(url) as client:
        receipt = client.ingest("orders", [{"id": 1, "price": "1.50"}, {"id": 2, "price": 2}], op="upsert")
        with pytest.raises(ConsistencyTimeout, match="not visible"):
            client.query("SELECT * FROM orders", timeout=0.1)
        waiting = {"sql": "FROM orders", "min_visibility_token": receipt.token, "consistency_timeout_ms": 0}
        late = httpx.post(f"{url}/v1/query", json=waiting)
        assert (late.status_code, late.json()["watermark"][:4]) == (504, "lm1-")
        assert client.query("SELECT count(*) AS n FROM orders", own_writes=False).rows() == [{"n": 0}]
        with coordinating(lake):
            sum_ = "SELECT count(*) AS n, sum(price)::VARCHAR AS price FROM orders"
            seen = client.query(sum_, timeout=SECONDS)
            assert seen.rows() == [{"n": 2, "price": "3.50"}]
            assert seen.headers["x-visibility-token"] == receipt.token
            client.ingest("orders", [{"id": 1, "price": 10}], op="upsert")
            client.ingest("orders", [{"id": 2}], op="delete")
            assert client.query(sum_, timeout=SECONDS).rows() == [{"n": 1, "price": "10.00"}]
            with lakemill.open(lake.settings) as opened:
                opened.create(
                    "CREATE DYNAMIC TABLE dear TARGET_LAG = '1 minute' AS SELECT id FROM orders WHERE price > 5"
                )
                receipt = client.ingest("orders", [{"id": 3, "price": 30}], op="upsert", wait=True, timeout=SECONDS)
                assert receipt.visible
                with pytest.raises(ConsistencyTimeout):
                    client.query("SELECT id FROM dear", timeout=0.1)
                opened.refresh("dear")
                found = client.query("SELECT id FROM dear ORDER BY id", timeout=SECONDS).rows()
                assert found == [{"id": 1}, {"id": 3}]
                opened.suspend("dear")
                client.ingest("orders", [{"id": 4, "price": 40}], op="upsert", wait=True, timeout=SECONDS)
                with pytest.raises(TableSuspended):
                    client.query("SELECT id FROM dear", timeout=SECONDS)
