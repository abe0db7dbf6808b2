"""How Spark is set for a refresh, results that are computed in parts, and how far a long refresh is."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

import lakemill
from lakemill.core.names import parse_name
from lakemill.core.refresh import Action, Outcome
from lakemill.errors import BadSettings, UnknownProfile
from lakemill.runtime import progress, refresh, show
from lakemill.runtime.facts import standing
from lakemill.settings import Settings
from lakemill.spark.conf import RUNTIME
from lakemill.spark.execute import Execution
from lakemill.spark.status import Tasks
from lakemill.store.history import RefreshRecord
from lakemill.values import ANSWERS, LAUNCH
from tests.conftest import MakeLake
from tests.refresh.mill import Mill

PARTITIONS = "spark.sql.shuffle.partitions"
WIDE = {"wide": {PARTITIONS: "7", "spark.sql.files.maxPartitionBytes": "1m"}}


def opened(make_lake: MakeLake, **flags: Any) -> lakemill.Lake:
    return lakemill.open(make_lake(flags={f"spark.{name}": value for name, value in flags.items()}).settings)


@pytest.fixture
def parted(make_lake: MakeLake, spark: Any) -> Iterator[Mill]:
    with opened(make_lake, staged_keys=10) as lake:
        yield Mill(lake)


@pytest.mark.parametrize(
    ("query", "action", "jobs"),
    [
        ("SELECT id, v * 2 AS w FROM r WHERE k > 2", Action.DELTA, 3),
        ("SELECT r.id, r.v, s.w FROM r JOIN s ON r.k = s.k", Action.DELTA, 3),
        ("SELECT r.id, r.k, s.w FROM r LEFT JOIN s ON r.k = s.k", Action.KEYS, 3),
        ("SELECT k, median(v) AS m, count(*) AS n FROM r GROUP BY k", Action.KEYS, 3),
        (
            "SELECT k, count(*) AS n, max(id) AS m FROM r GROUP BY k",
            Action.MERGE,
            7,
        ),  # its state, too; what went is asked
    ],
)
def test_a_small_refresh_is_few_jobs(make_lake: MakeLake, spark: Any, query: str, action: Action, jobs: int) -> None:
    """It stages what changed, looks for what goes and writes what comes, each in one task where nothing is moved."""
    with opened(make_lake) as lake:
        mill = Mill(lake)
        mill.create("d", query)
        mill.tell("UPDATE r SET v = v + 1, k = k + 1 WHERE id < 5", "DELETE FROM s WHERE k = 3")
        mill.refresh("d")  # the first one may have a job more: what Spark calls a path is asked once
        mill.tell("INSERT INTO r VALUES (99, 4, 1.5, 'n')", "DELETE FROM r WHERE id = 30")
        changed = mill.refresh("d")
        assert (changed.outcome, changed.action) == (Outcome.SUCCEEDED, action), changed
        assert changed.spark_jobs is not None
        assert changed.spark_jobs <= jobs, changed


@pytest.mark.parametrize(
    ("query", "action"),
    [
        ("SELECT k, name, count(*) AS n, max(id) AS m FROM r GROUP BY k, name", Action.MERGE),
        ("SELECT r.id, r.k, s.w FROM r LEFT JOIN s ON r.k = s.k", Action.KEYS),
        ("SELECT r.id, r.v, s.w FROM r JOIN s ON r.k = s.k", Action.DELTA),
    ],
)
def test_a_result_in_parts(parted: Mill, query: str, action: Action) -> None:
    loaded = parted.create("d", query)
    assert loaded is not None
    parted.judge("d")
    files = parted.rows("SELECT count(*) FROM ducklake_list_files('lake', 'd')")
    assert files[0][0] > 1, "each part has its own"
    parted.tell("UPDATE r SET v = v + 1, k = k + 1 WHERE id < 11", "DELETE FROM s WHERE k = 3")
    plan, _, _ = refresh.explain(parted.lake, parse_name("d"))
    assert plan.profile.batches == 3, plan
    changed = parted.refresh("d")
    assert (changed.outcome, changed.action) == (Outcome.SUCCEEDED, action), changed
    parted.tell("INSERT INTO r SELECT 100 + i, i % 5, 1, NULL FROM range(25) t(i)")
    if action is Action.DELTA:
        assert parted.refresh("d").action is Action.APPEND
    else:
        assert parted.refresh("d", full=True).action is Action.FULL


def test_a_profile_is_set_for_the_refresh_alone(
    make_lake: MakeLake, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    whole = Execution.whole

    def watched(self: Execution, *words: Any) -> Any:
        seen.append(self._spark.conf.get(PARTITIONS) or "")
        return whole(self, *words)

    monkeypatch.setattr(Execution, "whole", watched)
    with opened(make_lake, profiles=WIDE) as lake:
        mill = Mill(lake)
        before = lake.spark.conf.get(PARTITIONS), lake.spark.conf.get("spark.sql.files.maxPartitionBytes")
        records = [
            mill.create(f"d{n}", "SELECT k, count(*) AS n FROM r GROUP BY k", words)
            for n, words in enumerate(("SPARK_PROFILE = 'wide'", "SPARK_PROFILE = small", "SPARK_PROFILE = batch", ""))
        ]
        assert [record and record.spark_profile for record in records] == ["wide", "small", "batch", None]
        assert seen == ["7", "1", "200", "1"], "so little is in one partition"
        assert (lake.spark.conf.get(PARTITIONS), lake.spark.conf.get("spark.sql.files.maxPartitionBytes")) == before
        record = records[0]
        assert record is not None
        assert (record.spark_executors, record.spilled_bytes) == (1, 0)
        assert record.spark_tasks is not None
        assert record.spark_jobs is not None
        assert record.spark_tasks >= record.spark_jobs > 0
    without = lake.settings.model_copy(update={"spark": lake.settings.spark.model_copy(update={"profiles": {}})})
    assert refused(without).error_code == UnknownProfile.code
    wrong = {"wide": {PARTITIONS: "many"}}
    broken = lake.settings.model_copy(update={"spark": lake.settings.spark.model_copy(update={"profiles": wrong})})
    found = refused(broken)
    assert found.error_code == BadSettings.code
    assert f"{PARTITIONS} = many can't be set" in (found.error_text or "")


def refused(settings: Settings) -> RefreshRecord:
    with lakemill.open(settings) as lake:
        lake.sql("INSERT INTO r VALUES (1000, 1, 1, 'x')")
        (record,) = refresh.refresh(lake, [parse_name("d0")])
        assert record.outcome is Outcome.FAILED
        return record


def test_what_profiles_leave_alone(spark: Any) -> None:
    quick = {"spark.sql.adaptive.enabled", "spark.sql.unionOutputPartitioning"}
    assert set(RUNTIME) - ANSWERS == quick
    for key in (*ANSWERS, PARTITIONS):
        assert spark.conf.isModifiable(key), key
    for key in LAUNCH:
        assert key.endswith(".") or not spark.conf.isModifiable(key), key


def test_a_long_refresh_tells_how_far_it_is(
    make_lake: MakeLake, spark: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.05)
    monkeypatch.setattr(progress, "LOGGED", 0.1)
    caplog.set_level(logging.INFO, "lakemill")
    with opened(make_lake) as lake:
        mill = Mill(lake)
        mill.create("d", "SELECT k, median(v) AS m FROM r GROUP BY k", "INITIALIZE = ON_SCHEDULE")
        done: list[RefreshRecord] = []

        def work() -> None:
            with lakemill.open(lake.settings) as own:
                done.extend(refresh.refresh(own, [parse_name("d")]))

        thread = Thread(target=work)
        thread.start()
        told = []
        while thread.is_alive():
            (found,) = show.show(lake)
            told += [standing(found)["progress"]] if found.progress else []
            time.sleep(0.02)
        thread.join()
        assert done[0].outcome is Outcome.SUCCEEDED, done
        assert any("compute: " in one and " tasks of " in one for one in told), told
        assert show.show(lake)[0].progress is None
        assert any(line.startswith("main.d: compute: ") for line in caplog.messages), caplog.messages
        end = time.monotonic() + 10
        while lake.conn.execute("SELECT count(*) FROM lakemill.progress").fetchone() != (0,):
            assert time.monotonic() < end, "what was told stays"
            time.sleep(0.05)


def test_in_words() -> None:
    assert progress.told("compute", None, 14.2) == "compute: 14 s"
    assert progress.told("write", Tasks(3, 8, 1), 2) == "write: 3 of 8 tasks of 1 stage, 2 s"
    assert progress.told(None, Tasks(3, 80, 2), 2) == "working: 3 of 80 tasks of 2 stages, 2 s"
