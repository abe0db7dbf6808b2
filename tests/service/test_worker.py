"""Scheduler and worker at work in this process, on a lake that stock DuckDB writes; DuckDB judges the tables."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest

import lakemill
from lakemill.core.names import parse_name
from lakemill.core.refresh import Outcome, State
from lakemill.errors import ClaimLost
from lakemill.runtime import halting
from lakemill.runtime.scheduler import Scheduler
from lakemill.runtime.worker import Worker
from lakemill.store import definitions, history, versions, work
from lakemill.telemetry import metrics
from tests.conftest import SECOND_JVM, MakeLake
from tests.refresh.mill import Mill
from tests.service.conftest import running
from tests.service.conftest import until as wait_until

pytestmark = SECOND_JVM  # they wait more than they work

SECONDS = 90
QUICK = {
    "service.tick": "200ms",
    "service.retry_base": "100ms",
    "service.stop_grace": "20s",
    "service.suspend_after": 3,
}


@pytest.fixture
def mill(make_lake: MakeLake, spark: Any) -> Iterator[Mill]:
    with lakemill.open(make_lake(flags=QUICK).settings) as lake:
        yield Mill(lake)


@contextmanager
def serving(mill: Mill, slots: int = 2) -> Iterator[Worker]:
    worker = Worker(mill.lake.settings, "w", slots)
    with running(Scheduler(mill.lake.settings), SECONDS), running(worker, SECONDS):
        yield worker


def until(done: Callable[[], object]) -> None:
    wait_until(done, SECONDS)


def create(mill: Mill, name: str, query: str, lag: str = "'2 seconds'") -> None:
    mill.lake.create(f"CREATE DYNAMIC TABLE {name} TARGET_LAG = {lag} INITIALIZE = ON_SCHEDULE AS {query}")


def fresh(mill: Mill, *names: str) -> bool:
    """Whether all of them have seen the newest change of the lake's own tables."""
    newest = max(int(row[0]) for row in mill.rows("SELECT max(snapshot_id) FROM lake.snapshots() WHERE author IS NULL"))
    found = {str(one.name.name): one.version for one in work.known(mill.lake.conn)}
    return all((version := found[name]) is not None and version.b_hi >= newest for name in names)


def outcomes(mill: Mill, name: str) -> list[Outcome]:
    table = definitions.get(mill.lake.conn, parse_name(name))
    return [record.outcome for record in history.history(mill.lake.conn, table.id, 100)]


def counted(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(f"lakemill_{name}", labels) or 0.0


MEASURED = ("affected_keys", "cardinality_ratio", "dedup_ratio", "tick_duration_seconds")


def test_tables_follow_a_writer_by_themselves(mill: Mill, caplog: pytest.LogCaptureFixture) -> None:
    before = {name: counted(f"{name}_count") for name in MEASURED}
    caplog.set_level("INFO", "lakemill")
    create(mill, "a", "SELECT k, count(*) AS n, sum(v) AS v FROM r GROUP BY k", "DOWNSTREAM")
    create(mill, "b", "SELECT n, count(*) AS m FROM a GROUP BY n")
    create(mill, "c", "SELECT r.id, s.w FROM r JOIN s ON r.k = s.k")
    with serving(mill):
        until(lambda: fresh(mill, "a", "b", "c"))
        mill.judge("a", "b", "c")
        for number in range(2):
            mill.tell(
                f"INSERT INTO r SELECT 1000 * {number + 1} + i, i % 4, i, 'x' FROM range(5) t(i)",
                f"DELETE FROM r WHERE id = {number}",
                f"UPDATE s SET w = w + 1 WHERE k = {number}",
            )
            until(lambda: fresh(mill, "a", "b", "c"))
            mill.judge("a", "b", "c")
    assert set(outcomes(mill, "b")) == {Outcome.SUCCEEDED}
    assert work.depth(mill.lake.conn) == {}
    assert work.workers(mill.lake.conn) == (), "it has said goodbye"
    assert all(counted(f"{name}_count") > before[name] for name in MEASURED), "a refresh fills every metric"
    lines = [record.getMessage() for record in caplog.records]
    assert any(
        re.fullmatch(r"a: \+10 −0 rows, \d+ files?, \d.* [KM]?B, INITIALIZE, \d+\.\d s", line) for line in lines
    ), lines


def test_what_keeps_failing_is_suspended_and_those_that_read_it_wait(mill: Mill) -> None:
    create(mill, "a", "SELECT id, k FROM r")
    create(mill, "bad", "SELECT id, CAST(100 / (k - 77) AS TINYINT) AS x FROM a")
    create(mill, "c", "SELECT count(*) AS n FROM bad")
    with serving(mill):
        until(lambda: fresh(mill, "a", "bad", "c"))
        mill.tell("INSERT INTO r VALUES (500, 77, 0, 'div')")
        until(lambda: Outcome.FAILED in outcomes(mill, "bad"))
        until(lambda: fresh(mill, "a"))
        time.sleep(2)
        tries = outcomes(mill, "bad").count(Outcome.FAILED)
        assert tries == 1, "nobody tries again what can't succeed before something changes"
        assert mill.state("bad") is State.ACTIVE
        number = 0
        while mill.state("bad") is State.ACTIVE:
            number += 1
            before = outcomes(mill, "bad").count(Outcome.FAILED)
            mill.tell(f"INSERT INTO r VALUES ({600 + number}, 1, 0, 'z')")
            until(lambda before=before: outcomes(mill, "bad").count(Outcome.FAILED) > before)  # type: ignore[misc]
            time.sleep(0.3)
        assert outcomes(mill, "bad").count(Outcome.FAILED) == 3
        assert mill.state("bad") is State.SUSPENDED_DUE_TO_ERRORS
        assert mill.state("c") is State.UPSTREAM_FAILED
        assert mill.state("a") is State.ACTIVE
        assert Outcome.UPSTREAM_FAILED in outcomes(mill, "c")
        mill.tell("DELETE FROM r WHERE k = 77")
        until(lambda: fresh(mill, "a"))
        halting.resume(mill.lake, [parse_name("bad")])
        until(lambda: fresh(mill, "a", "bad", "c"))
    mill.judge("a", "bad", "c")
    assert {mill.state(name) for name in ("a", "bad", "c")} == {State.ACTIVE}


def test_work_that_another_was_given_is_stopped_and_counts_for_nothing(
    mill: Mill, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(mill, "a", "SELECT id, k FROM r")
    begun, go_on, fenced = Event(), Event(), counted("publish_fenced_total")
    from lakemill.runtime.publishing import Publishing

    publish = Publishing.publish

    def slow(*words: Any) -> Any:  # Spark is done by then: an earlier stop would leave nothing to refuse
        if not begun.is_set():
            begun.set()
            go_on.wait(SECONDS)
        return publish(*words)

    monkeypatch.setattr(Publishing, "publish", slow)
    with serving(mill, slots=1) as worker:
        assert begun.wait(SECONDS)
        mill.lake.conn.execute("UPDATE lakemill.work SET worker = 'other', expires_at = now() + interval '1 minute'")
        mill.lake.conn.execute("UPDATE lakemill.claims SET fence = fence + 1, holder = 'other:1:1'")
        worker._beat()
        assert isinstance(next(iter(worker._doing.values())).lost, ClaimLost)
        go_on.set()
        until(lambda: outcomes(mill, "a") == [Outcome.FAILED])
        assert versions.frontier(mill.lake.conn, 1) is None, "its publish was refused"
        assert counted("publish_fenced_total") == fenced + 1
        assert next(iter(work.known(mill.lake.conn))).failure is None
        mill.lake.conn.execute("UPDATE lakemill.claims SET expires_at = '-infinity'")
        work.leave(mill.lake.conn, "other")
        until(lambda: fresh(mill, "a"))
    mill.judge("a")


@pytest.mark.slow
def test_upkeep_goes_on_beside_refreshes(make_lake: MakeLake, spark: Any) -> None:
    flags = {**QUICK, "upkeep.interval": "1s", "upkeep.small_files": 5, "upkeep.orphan_age": "1s"}
    with lakemill.open(make_lake(flags=flags).settings) as lake:
        mill = Mill(lake)
        create(mill, "a", "SELECT k, count(*) AS n FROM r GROUP BY k")

        def files() -> int:
            row = mill.lake.conn.execute(
                "SELECT count(*) FROM ducklake_data_file f JOIN ducklake_table t USING (table_id)"
                " WHERE t.table_name = 'r' AND f.end_snapshot IS NULL"
            ).fetchone()
            return int(row[0]) if row else 0

        with serving(mill):
            for number in range(6):
                mill.tell(f"INSERT INTO r VALUES ({100 + number}, 1, 0, 'x')")
            until(lambda: files() < 5)
            mill.tell("DELETE FROM r WHERE id = 3")
            until(lambda: fresh(mill, "a"))
        mill.judge("a")
        assert mill.rows("SELECT count(*), count(DISTINCT id) FROM r") == [(45, 45)]
