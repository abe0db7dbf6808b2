"""A refresh that holds more than it may is stopped, and nobody else is."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import lakemill
from lakemill.core.names import parse_name
from lakemill.core.refresh import Outcome, State
from lakemill.errors import RefreshTooLarge
from lakemill.runtime import refresh
from lakemill.runtime.limits import too_large
from lakemill.spark import session
from lakemill.spark.status import Held
from lakemill.store.history import RefreshRecord
from tests.conftest import MakeLake
from tests.refresh.mill import Mill

ROWS = 1_000_000
ON_SCHEDULE = "INITIALIZE = ON_SCHEDULE"


def refreshed(lake: lakemill.Lake, name: str) -> RefreshRecord:
    """By a thread with a session of its own, as a slot of a worker has it."""
    session.own(name)
    with lakemill.open(lake.settings) as mine:
        (record,) = refresh.refresh(mine, [parse_name(name)])
        return record


def executing(lake: lakemill.Lake) -> bool:
    return lake.conn.execute("SELECT FROM lakemill.refreshes WHERE outcome = 'EXECUTING'").fetchone() is not None


def test_a_refresh_that_is_too_large_is_stopped_alone(make_lake: MakeLake, spark: Any) -> None:
    given = make_lake(flags={"service.refresh_memory": "24MB"}).settings
    with lakemill.open(given) as lake, ThreadPoolExecutor(2) as pool:
        mill = Mill(lake)
        mill.tell(f"CREATE TABLE wide AS SELECT i AS id, 'n' || i AS name FROM range({ROWS}) t(i)")
        mill.create("large", "SELECT name, max(id) AS top, min(id) AS low FROM wide GROUP BY name", ON_SCHEDULE)
        mill.create("little", "SELECT k, v FROM r WHERE id < 5", ON_SCHEDULE)
        large = pool.submit(refreshed, lake, "large")
        while not executing(lake):
            assert not large.done(), large.result()
            time.sleep(0.02)
        little = pool.submit(refreshed, lake, "little").result()
        record = large.result()
        assert little.outcome is Outcome.SUCCEEDED, little
        mill.judge("little")
        assert (record.outcome, record.error_code) == (Outcome.FAILED, RefreshTooLarge.code), record
        told = record.error_text or ""
        assert "service.refresh_memory, 24 MB" in told
        assert "spilled to disk" in told
        assert "SPARK_PROFILE = 'batch'" in told
        assert mill.state("large") is State.PENDING_INIT, "nothing of it is there"
    more = given.model_copy(update={"service": given.service.model_copy(update={"refresh_memory": 4 * 10**9})})
    with lakemill.open(more) as lake:
        mill = Mill(lake, fill=False)
        assert mill.refresh("large").outcome is Outcome.SUCCEEDED


def test_what_was_held_is_told_in_words() -> None:
    error = too_large(Held(3_000_000, 1_500_000_000), 10**9)
    assert error.message == (
        "its Spark jobs held 1.5 GB (3.0 MB of memory, 1.5 GB spilled to disk),"
        " which is more than service.refresh_memory, 1.0 GB"
    )
    assert Held(1, 2).total == 3
