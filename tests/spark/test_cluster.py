"""The same refreshes on a Spark cluster: a master and two workers, of which one loses its executor on the way; and a
cluster that has no worker at all, whose driver then hangs, too.

A process has one Spark, and the suite's is a local one, so the story is told by a child process: this file, run as a
script.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

import lakemill
from lakemill.core.names import parse_name
from lakemill.core.refresh import Action, Outcome
from lakemill.errors import EngineLost, EngineUnreachable
from lakemill.runtime import refresh, verify
from lakemill.settings import Settings, SparkSettings
from lakemill.spark import session
from lakemill.spark.status import Status
from lakemill.store.history import RefreshRecord
from tests.conftest import MakeLake
from tests.spark.cluster import QUICK, cluster, executors

SECONDS = 120


@pytest.mark.xdist_group("processes")  # with JVMs of its own: one such test at a time
def test_refreshes_on_a_cluster_that_loses_an_executor(make_lake: MakeLake, tmp_path: Path) -> None:
    with cluster(tmp_path) as found:
        given = make_lake()
        child = subprocess.run(
            [sys.executable, "-m", "tests.spark.test_cluster", str(given.settings.root), *map(str, found.workers)],
            env={**os.environ, "LAKEMILL_SPARK__MASTER": found.url}
            | {"LAKEMILL_SPARK__CONF": json.dumps(found.flags(options=QUICK)["spark.conf"])}
            | {"LAKEMILL_SPARK__PROFILES": json.dumps(SPREAD)},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert child.returncode == 0, child.stderr[-3000:]
        assert "told on a cluster" in child.stdout


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("processes")
def test_a_cluster_without_executors_is_told_and_a_jvm_that_hangs_is_replaced(
    make_lake: MakeLake, tmp_path: Path
) -> None:
    with cluster(tmp_path, workers=0) as found:
        given = make_lake()
        conf = dict.fromkeys(("spark.driver.host", "spark.driver.bindAddress"), "127.0.0.1")
        conf |= {"spark.scheduler.maxRegisteredResourcesWaitingTime": "1s"}
        child = subprocess.run(
            [sys.executable, "-m", "tests.spark.test_cluster", str(given.settings.root)],
            env={**os.environ, "LAKEMILL_SPARK__MASTER": found.url, "LAKEMILL_SPARK__EXECUTOR_WAIT": "3s"}
            | {"LAKEMILL_SPARK__CONF": json.dumps(conf)},
            capture_output=True,
            text=True,
            timeout=550,
            check=False,
        )
        assert child.returncode == 0, child.stderr[-3000:]
        assert "told without executors" in child.stdout


def tell_alone(root: str) -> None:
    settings = Settings.load(root)
    with lakemill.open(settings) as lake:
        lake.sql("CREATE TABLE r AS SELECT i AS id, i % 5 AS k FROM range(50) t(i)")
        words = "TARGET_LAG = '1 minute' INITIALIZE = ON_SCHEDULE"
        lake.create(f"CREATE DYNAMIC TABLE d {words} AS SELECT k, count(*) AS n FROM r GROUP BY k")
        (record,) = refresh.refresh(lake, [parse_name("d")])
        assert (record.outcome, record.error_code) == (Outcome.FAILED, EngineUnreachable.code), record
        assert "gave no executor for 3 s" in (record.error_text or "")
        assert "spark.executor_wait" in (record.error_text or "")
        jvm = session.process()
        assert jvm is not None
        os.kill(jvm, signal.SIGSTOP)  # neither dead nor alive
        session.RECYCLE_SECONDS = 2
        waiting = threading.Thread(target=hang, args=(settings,), daemon=True)
        waiting.start()
        time.sleep(0.5)
        began = time.monotonic()
        session.recycle()
        assert time.monotonic() - began < 20
        waiting.join(20)
        assert not waiting.is_alive(), "its JVM is gone"
        here = settings.model_copy(update={"spark": SparkSettings(master="local[1]", driver_memory="512m")})
    with lakemill.open(here) as lake:
        (record,) = refresh.refresh(lake, [parse_name("d")])
        judge(lake, record, Action.INITIALIZE)
        assert session.process() not in (None, jvm)
        print("told without executors")


def hang(settings: Settings) -> None:
    """Asks Spark for its session, with the lock that others wait for."""
    with suppress(EngineLost):
        session.start(settings)


SPREAD = {"spread": {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "2"}}
"""By itself so little is done by one executor."""
TABLES = {
    "totals": ("SELECT customer, count(*) AS n, max(id) AS last FROM orders GROUP BY customer", Action.MERGE),
    "middle": ("SELECT customer, median(price) AS m FROM orders GROUP BY customer", Action.KEYS),
    "named": ("SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id", Action.DELTA),
}


def tell(root: str, workers: list[int]) -> None:
    with lakemill.open(Settings.load(root)) as lake:
        lake.sql("CREATE TABLE customers AS SELECT i AS id, 'c' || i AS name FROM range(5) r(i)")
        lake.sql("CREATE TABLE orders AS SELECT i AS id, i % 5 AS customer, i / 2 AS price FROM range(0) r(i)")
        for start in (0, 10_000, 20_000, 30_000):  # a file each
            lake.sql(f"INSERT INTO orders SELECT i, i % 5, i / 2 FROM range({start}, {start + 10_000}) r(i)")
        for name, (query, _) in TABLES.items():
            words = "TARGET_LAG = '1 minute' CARDINALITY_THRESHOLD = 1 SPARK_PROFILE = 'spread'"
            loaded = lake.create(f"CREATE DYNAMIC TABLE {name} {words} AS {query}").records[-1]
            judge(lake, loaded, Action.INITIALIZE)
            assert loaded.spark_executors == 2, loaded
        lake.sql("DELETE FROM orders WHERE id IN (7, 49)")
        lake.sql("INSERT INTO orders VALUES (1000000, 1, 0.5), (1000001, NULL, 1)")
        for record in refresh.refresh(lake, [parse_name(name) for name in TABLES]):
            judge(lake, record, TABLES[record.name.name][1])
        lake.sql("INSERT INTO orders SELECT i, i % 5000, i / 2 FROM range(2000000, 2200000) r(i)")
        lost = lose_one(lake, workers)
        judge(lake, lost, Action.KEYS)
        assert lost.spark_tasks is not None
        print("told on a cluster", lost.seconds)


def judge(lake: lakemill.Lake, record: RefreshRecord, action: Action) -> None:
    assert (record.outcome, record.action, record.error_text) == (Outcome.SUCCEEDED, action, None), record
    assert record.spark_tasks, record
    assert record.spilled_bytes is not None, record
    assert verify.verify(lake, record.name).equal, record.name


def lose_one(lake: lakemill.Lake, workers: list[int]) -> RefreshRecord:
    """A refresh during which an executor is killed, with what it has computed."""
    done: list[RefreshRecord] = []

    def work() -> None:
        with lakemill.open(lake.settings) as own:
            done.extend(refresh.refresh(own, [parse_name("middle")]))

    thread = threading.Thread(target=work)
    thread.start()
    end = time.monotonic() + SECONDS
    while tasks_done(lake) < 3:
        assert time.monotonic() < end
        assert thread.is_alive(), done
        time.sleep(0.02)
    os.kill(executors(workers)[0], signal.SIGKILL)
    assert thread.is_alive(), "it was killed too late"
    thread.join(SECONDS)
    return done[-1]


def tasks_done(lake: lakemill.Lake) -> int:
    row = lake.conn.execute("SELECT refresh_id FROM lakemill.refreshes WHERE outcome = 'EXECUTING'").fetchone()
    found = Status(lake.spark, str(row[0])).tasks() if row else None
    return found.done if found else 0


if __name__ == "__main__":
    workers = [int(word) for word in sys.argv[2:]]
    tell(sys.argv[1], workers) if workers else tell_alone(sys.argv[1])
