"""Others at the same time: what is declared, expired, dropped, overtaken or unanswered while a table refreshes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import lakemill
from lakemill.core.ddl import parse_definition
from lakemill.core.names import parse_name
from lakemill.core.refresh import Action, Outcome
from lakemill.errors import OutcomeUnknown, StoreUnavailable
from lakemill.lake import expiry
from lakemill.lake.publish import Publisher
from lakemill.lake.tables import build_generation
from lakemill.runtime import claiming, dynamic, point, recording, refresh, show
from lakemill.runtime.claiming import claimed
from lakemill.store import definitions, history, pins, versions
from lakemill.store.definitions import DynamicTable, OutputColumn
from lakemill.store.history import RefreshRecord
from lakemill.store.versions import Frontier
from tests.conftest import SECOND_JVM
from tests.refresh.mill import Mill, counts, did, run

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
CLOCK = "TIMESTAMP '2026-01-01' < now()"


def table(mill: Mill, name: str) -> DynamicTable:
    return definitions.get(mill.lake.conn, parse_name(name))


def frontier(mill: Mill, name: str) -> Frontier:
    found = versions.frontier(mill.lake.conn, table(mill, name).id)
    assert found is not None
    return found


def names(mill: Mill) -> list[str]:
    found = mill.rows("SELECT table_name FROM duckdb_tables() WHERE database_name = 'lake' ORDER BY 1")
    return [name for (name,) in found]


def past(mill: Mill, name: str | None = None) -> list[tuple[Outcome, str | None]]:
    """Outcome and error of every refresh, the newest first."""
    found = history.history(mill.lake.conn, table(mill, name).id if name else None, 100)
    return [(record.outcome, record.error_code) for record in found]


@contextmanager
def other(mill: Mill) -> Iterator[Mill]:
    """Somebody else on the same lake."""
    with lakemill.open(mill.lake.settings) as lake:
        yield Mill(lake, fill=False)


def once(mill: Mill, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, act: Callable[[Mill], object]) -> None:
    """Right before a function is called for the first time, somebody else acts."""
    original = getattr(where, name)
    done = []

    def late(*arguments: Any, **options: Any) -> Any:
        if not done:
            done.append(True)
            with other(mill) as somebody:
                act(somebody)
        return original(*arguments, **options)

    monkeypatch.setattr(where, name, late)


# ---------------------------------------------------------------- declared again
def test_consumers_follow_a_supplier_that_begins_to_ask_for_the_time(mill: Mill) -> None:
    mill.create("a", "SELECT id, k FROM r")
    mill.create("b", "SELECT id, k FROM a WHERE k < 5")
    mill.create("c", "SELECT k, count(*) AS n FROM b GROUP BY k")

    def replace(query: str) -> list[bool]:
        text = f"CREATE OR REPLACE DYNAMIC TABLE a TARGET_LAG = '1 minute' AS {query}"
        dynamic.create(mill.lake, parse_definition(text))
        return [table(mill, name).resolved.clocked for name in "abc"]

    assert replace(f"SELECT id, k FROM r WHERE {CLOCK}") == [True, True, True]
    assert did(mill.refresh("a", "b", "c")) == (Action.REINITIALIZE, "DEFINITION_CHANGED")
    for name in "abc":
        version = frontier(mill, name).version
        assert version.t is not None
        assert version.b_lo == version.b_hi
    mill.tell("INSERT INTO r VALUES (77, 1, 1, 'x')")
    assert did(mill.refresh("a", "b", "c"))[0] is Action.MERGE
    assert replace("SELECT id, k FROM r") == [False, False, False]
    assert mill.refresh("c").outcome is Outcome.SUCCEEDED
    assert frontier(mill, "c").version.t is None


def test_consumers_follow_a_view_that_begins_to_ask_for_the_time(mill: Mill) -> None:
    mill.tell("CREATE VIEW v AS SELECT id, k FROM r")
    mill.create("a", "SELECT id, k FROM v")
    mill.create("b", "SELECT k FROM a")
    mill.tell(f"CREATE OR REPLACE VIEW v AS SELECT id, k FROM r WHERE {CLOCK}")
    assert mill.refresh("b").outcome is Outcome.SUCCEEDED, "in the same round"
    assert frontier(mill, "b").version.t is not None


def test_a_supplier_that_was_only_declared_again_is_loaded_on_the_way(mill: Mill) -> None:
    mill.create("a", "SELECT id, k FROM r")
    mill.create("b", "SELECT k FROM a")
    mill.refresh("a", "b")  # both are known to be right at the newest snapshot
    text = "CREATE OR REPLACE DYNAMIC TABLE a TARGET_LAG = '1 minute' INITIALIZE = ON_SCHEDULE AS "
    dynamic.create(mill.lake, parse_definition(text + "SELECT id, k FROM r WHERE k < 5"))
    mill.refresh("b")
    mill.judge("a", "b")
    assert mill.rows("SELECT max(k) FROM b") == [(4,)]


# ---------------------------------------------------------------- expired
def expire(mill: Mill) -> None:
    """Everything that nobody has a claim on."""
    expiry.expire(mill.lake.front, mill.lake.duck, expiry.plan_expire(mill.lake.front, timedelta(0)))


def test_what_a_version_names_is_not_expired(mill: Mill) -> None:
    mill.create("a", "SELECT id, k FROM r")
    mill.create("b", "SELECT k, count(*) AS n FROM a GROUP BY k")

    def nothing_new() -> None:
        mill.tell("INSERT INTO s VALUES (99, 1)")
        assert did(mill.refresh("a", "b"))[0] is Action.NO_DATA

    def something_new() -> None:
        mill.tell("INSERT INTO r VALUES (77, 1, 1, 'x')")
        mill.refresh("a", "b")

    def something_that_does_not_matter() -> None:
        mill.tell("UPDATE r SET name = 'z' WHERE id = 20")
        mill.refresh("a", "b")

    def another_name() -> None:
        run(mill, "ALTER DYNAMIC TABLE b RENAME TO z", "ALTER DYNAMIC TABLE z RENAME TO b")

    for happens in (nothing_new, something_new, something_that_does_not_matter, another_name):
        happens()
        mill.tell("INSERT INTO s VALUES (99, 2)")  # else the newest is ours
        expire(mill)
        mill.judge("a", "b")
        point.point(mill.lake, [parse_name(name) for name in ("r", "a", "b")], timedelta(minutes=0))
        held = {position.snapshot_id for position in pins.needed_snapshots(mill.lake.conn).positions}
        assert {frontier(mill, name).version.commit for name in "ab"} <= held, happens
        assert mill.refresh("a", "b").outcome is Outcome.SUCCEEDED
    run(mill, "DROP DYNAMIC TABLE a CASCADE")
    assert not pins.needed_snapshots(mill.lake.conn).positions


def test_a_commit_that_somebody_else_expired(mill: Mill) -> None:
    mill.create("a", "SELECT id, k FROM r")
    mill.create("b", "SELECT k, count(*) AS n FROM a GROUP BY k")
    mill.tell("INSERT INTO s VALUES (99, 1)")
    commit = frontier(mill, "a").version.commit
    mill.tell(f"CALL ducklake_expire_snapshots('lake', versions => [{commit}])")
    assert did(mill.refresh("b")) == (Action.REINITIALIZE, "SNAPSHOT_GONE")
    mill.judge("a")
    last = history.history(mill.lake.conn, table(mill, "a").id, 1)[0]
    assert did(last) == (Action.REINITIALIZE, "SNAPSHOT_GONE")


# ---------------------------------------------------------------- dropped
def test_a_table_that_is_dropped_while_it_is_loaded(mill: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    mill.create("late", "SELECT id FROM r", "INITIALIZE = ON_SCHEDULE")
    once(mill, monkeypatch, Publisher, "publish", lambda somebody: run(somebody, "DROP DYNAMIC TABLE late"))
    record = mill.refresh("late")
    assert (record.outcome, record.error_code) == (Outcome.FAILED, "UNKNOWN_DYNAMIC_TABLE")
    assert "dropped" in (record.error_text or "")
    assert names(mill) == ["r", "s"]


def test_what_a_killed_load_left_goes_with_the_table(mill: Mill) -> None:
    mill.create("late", "SELECT id FROM r", "INITIALIZE = ON_SCHEDULE")
    column = [OutputColumn("id", "INTEGER")]
    owner = f"d{table(mill, 'late').id}"
    build_generation(mill.lake.duck, mill.lake.conn, "main", "late", column, owner=owner)
    run(mill, "DROP DYNAMIC TABLE late")
    assert names(mill) == ["r", "s"]


def test_a_table_that_is_loaded_while_it_is_dropped(mill: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    mill.create("late", "SELECT id FROM r", "INITIALIZE = ON_SCHEDULE")
    once(mill, monkeypatch, definitions, "drop", lambda somebody: somebody.refresh("late"))
    run(mill, "DROP DYNAMIC TABLE late")
    assert names(mill) == ["r", "s"]
    assert not definitions.list_all(mill.lake.conn)


def test_a_creation_that_fails_leaves_what_somebody_else_loaded(mill: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> RefreshRecord:
        monkeypatch.undo()
        with other(mill) as somebody:
            claims = somebody.lake.conn.execute("UPDATE lakemill.claims SET expires_at = '-infinity'")
            assert claims.rowcount == 1
            somebody.refresh("t")
        raise KeyboardInterrupt

    monkeypatch.setattr(refresh, "carry_out", fail)
    with pytest.raises(KeyboardInterrupt):
        mill.create("t", "SELECT id FROM r")
    mill.judge("t")


# ---------------------------------------------------------------- unanswered
def unanswered(monkeypatch: pytest.MonkeyPatch, published: bool) -> None:
    """Whoever publishes gets no answer, whether it was published or not."""
    publish = Publisher.publish

    def lost(self: Publisher, *arguments: Any) -> Any:
        if published:
            publish(self, *arguments)
        raise OutcomeUnknown("no answer")

    monkeypatch.setattr(Publisher, "publish", lost)


@pytest.mark.parametrize("published", [True, False])
def test_a_publish_without_an_answer_is_recorded_as_what_it_was(
    mill: Mill, monkeypatch: pytest.MonkeyPatch, published: bool
) -> None:
    mill.create("copy", "SELECT id FROM r")
    mill.tell("INSERT INTO r VALUES (77, 1, 1, 'x')")
    unanswered(monkeypatch, published)
    record = mill.refresh("copy")
    assert history.history(mill.lake.conn, most=1)[0] == record
    if published:
        assert (did(record)[0], counts(record)) == (Action.APPEND, (1, 0))
        assert record.commit == mill.lake.snapshot().id
    else:
        assert (record.outcome, record.error_code) == (Outcome.FAILED, "PUBLISH_TIMED_OUT")
        assert record.commit is None
    monkeypatch.undo()
    assert did(mill.refresh("copy"))[0] is (Action.NO_DATA if published else Action.APPEND)


@pytest.mark.parametrize("published", [True, False])
def test_what_can_not_be_settled_is_found_out_by_the_next_refresh(
    mill: Mill, monkeypatch: pytest.MonkeyPatch, published: bool
) -> None:
    mill.create("copy", "SELECT id FROM r")
    mill.tell("INSERT INTO r VALUES (77, 1, 1, 'x')")

    def unreachable(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("no answer")

    unanswered(monkeypatch, published)
    monkeypatch.setattr(recording.db, "connect", unreachable)
    record = mill.refresh("copy")
    assert (record.outcome, record.error_code) == (Outcome.FAILED, "OUTCOME_UNKNOWN")
    monkeypatch.undo()
    assert did(mill.refresh("copy"))[0] is (Action.NO_DATA if published else Action.APPEND)
    found = {one.id: (one.outcome, one.error_code) for one in history.history(mill.lake.conn)}
    assert found[record.id] == ((Outcome.SUCCEEDED, None) if published else (Outcome.FAILED, "CLAIM_LOST"))


# ---------------------------------------------------------------- overtaken
@pytest.mark.parametrize("asked", [["a"], ["b"], ["a", "b"]])
def test_a_refresh_that_was_overtaken_is_planned_again(
    mill: Mill, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    """Whether the table itself or its supplier is at a later snapshot by then: nobody fails for it."""
    mill.create("a", "SELECT id, k FROM r")
    mill.create("b", "SELECT k, count(*) AS n FROM a GROUP BY k")
    mill.tell("INSERT INTO r VALUES (77, 1, 1, 'x')")

    def overtake(somebody: Mill) -> None:
        somebody.tell("INSERT INTO r VALUES (78, 2, 1, 'x')")
        somebody.refresh("a")

    once(mill, monkeypatch, refresh, "_chain", overtake)
    record = mill.refresh(*asked)
    assert did(record)[0] is (Action.NO_DATA if asked == ["a"] else Action.MERGE)
    assert record.b == frontier(mill, asked[-1]).version.b_hi == mill.lake.snapshot().id - (asked != ["a"])
    assert {outcome for outcome, _ in past(mill)} == {Outcome.SUCCEEDED}


def test_a_refresh_that_is_overtaken_at_its_publish(mill: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    mill.create("a", "SELECT id, k FROM r")
    mill.tell("INSERT INTO r VALUES (77, 1, 1, 'x')")

    def overtake(somebody: Mill) -> None:
        """As if our claim had been too short."""
        somebody.lake.conn.execute("UPDATE lakemill.claims SET expires_at = '-infinity'")
        somebody.tell("INSERT INTO r VALUES (78, 2, 1, 'x')")
        somebody.refresh("a")

    once(mill, monkeypatch, refresh, "carry_out", overtake)
    assert did(mill.refresh("a"))[0] is Action.NO_DATA
    assert {outcome for outcome, _ in past(mill)} == {Outcome.SUCCEEDED}


# ---------------------------------------------------------------- two of the same
def test_who_comes_second_finds_nothing_to_do(mill: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    mill.create("copy", "SELECT id FROM r")
    mill.tell("INSERT INTO r VALUES (77, 1, 1, 'x')")
    carry, begun, found = refresh.carry_out, threading.Event(), list[RefreshRecord]()

    def slow(*arguments: Any) -> RefreshRecord:
        begun.set()
        second.join(1)
        return carry(*arguments)

    def come_second() -> None:
        begun.wait(60)
        with other(mill) as somebody:
            found.append(somebody.refresh("copy"))

    second = threading.Thread(target=come_second)
    second.start()
    monkeypatch.setattr(refresh, "carry_out", slow)
    assert did(mill.refresh("copy"))[0] is Action.APPEND
    second.join(60)
    assert did(found[0])[0] is Action.NO_DATA
    assert {outcome for outcome, _ in past(mill)} == {Outcome.SUCCEEDED}


def test_who_waited_in_vain_is_told_and_not_remembered(mill: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    mill.create("copy", "SELECT id FROM r")
    mill.create("n", "SELECT id % 2 AS odd, count(*) AS n FROM copy GROUP BY id % 2")
    mill.tell("INSERT INTO r VALUES (1, 1, 1, 'x')")
    before = past(mill)
    expiry = mill.lake.settings.service.claim_expiry
    monkeypatch.setattr(claiming, "WAIT", timedelta(seconds=0.2) - expiry)
    with claimed(mill.lake, table(mill, "copy")) as held:
        records = refresh.refresh(mill.lake, [parse_name("copy"), parse_name("n")])
    assert [(record.outcome, record.error_code) for record in records] == [
        (Outcome.SKIPPED, "CLAIM_LOST"),
        (Outcome.UPSTREAM_FAILED, "UPSTREAM_FAILED"),
    ]
    assert held.holder in (records[0].error_text or "")
    assert past(mill) == before
    assert did(mill.refresh("copy"))[0] is Action.APPEND


# ---------------------------------------------------------------- killed
@SECOND_JVM  # most of its time is that of processes of their own
def test_kill_nine_at_any_point_loses_nothing(mill: Mill) -> None:
    """Whoever comes next waits until the claim of the dead has run out, and leaves the table as it should be."""
    mill.create("copy", "SELECT id, k FROM r WHERE k < 9")
    stages = ("claimed", "looking", "planned", "computing", "staged", "bookkept", "committed")  # lines 5 to 11
    for number, stage in enumerate(stages, 1):
        mill.tell(
            f"INSERT INTO r SELECT {number} * 1000 + i, i % 10, i, 'x' FROM range(100) t(i)",
            f"DELETE FROM r WHERE id IN ({number}, {number} * 1000 - 990)",
        )
        root = str(mill.lake.settings.root)
        words = [sys.executable, "-m", "tests.refresh.child", root, stage]
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        child = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=180, check=False)
        assert (child.returncode, child.stdout.split()) == (-signal.SIGKILL, [stage]), child.stderr
        killed = history.history(mill.lake.conn, most=1)[0]
        assert killed.outcome is (Outcome.SUCCEEDED if stage == "committed" else Outcome.EXECUTING)
        record = mill.refresh("copy")  # which also compares it with DuckDB's answer
        assert did(record)[0] is (Action.NO_DATA if stage == "committed" else Action.DELTA)
        (found,) = (one for one in history.history(mill.lake.conn) if one.id == killed.id)
        assert (found.outcome, found.error_code) == (
            (Outcome.SUCCEEDED, None) if stage == "committed" else (Outcome.FAILED, "CLAIM_LOST")
        )
    assert mill.rows("SELECT count(*), count(DISTINCT id) FROM copy") == mill.rows(
        "SELECT count(*), count(DISTINCT id) FROM r WHERE k < 9"
    )
    assert names(mill) == ["copy", "r", "s"]


# ---------------------------------------------------------------- shown
def test_a_replaced_source_counts_as_a_change(mill: Mill) -> None:
    mill.create("copy", "SELECT k, w FROM s")

    def late() -> bool:
        (found,) = show.show(mill.lake)
        return found.lag > timedelta(0)

    assert not late()
    mill.tell("CREATE OR REPLACE TABLE s AS SELECT 1 AS k, 2 AS w")
    assert late()
    mill.refresh("copy")
    assert not late()
    mill.tell("CREATE TABLE t AS SELECT 3 AS k, 4 AS w")
    mill.tell("ALTER TABLE s RENAME TO gone", "ALTER TABLE t RENAME TO s")
    assert late(), "a RENAME names no table id"
    mill.refresh("copy")
    assert not late()
    mill.tell("INSERT INTO s VALUES (5, 6)")
    assert late()
    (source,) = definitions.sources(mill.lake.conn, table(mill, "copy"))
    with mill.lake.catalog() as catalog:
        assert source.table_id == catalog.table_id("main", "s", catalog.head().id)
    assert show.describe(mill.lake, parse_name("copy")).sources[0].read is not None
