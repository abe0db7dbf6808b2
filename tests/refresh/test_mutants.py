"""Wrong refreshes that look right, through Spark and a lake: each must be caught, or the checks have no teeth.

``tests/core/test_delta_mutants.py`` has the wrong rules. Here are the wrong ways to carry a right rule out; each test
first shows that the product itself is right in the same situation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from lakemill.core import delta
from lakemill.core.algebra import WEIGHT
from lakemill.core.names import parse_name
from lakemill.core.refresh import Action, Outcome
from lakemill.lake import duck
from lakemill.runtime import apply, carry, leaves, refresh, verify
from lakemill.spark.execute import Execution
from lakemill.store.history import RefreshRecord
from tests.core.test_delta_mutants import equality_without_nulls, naive_join
from tests.refresh.mill import Mill, did

pytestmark = pytest.mark.spark


def refreshed(mill: Mill, name: str) -> RefreshRecord:
    """A refresh that nobody has judged yet."""
    record = refresh.refresh(mill.lake, [parse_name(name)])[-1]
    assert record.outcome is Outcome.SUCCEEDED, record
    return record


def caught(mill: Mill, name: str) -> bool:
    return not verify.verify(mill.lake, parse_name(name)).equal


def test_a_join_of_both_sides_as_they_are_now(mill: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    mill.create("pairs", "SELECT r.id, s.w FROM r JOIN s ON r.k = s.k")
    mill.tell("INSERT INTO r VALUES (100, 100, 1, 'x')", "INSERT INTO s VALUES (100, 1)")
    mill.refresh("pairs")
    monkeypatch.setattr(delta._Deriving, "_inner_join", naive_join)
    mill.tell("INSERT INTO r VALUES (101, 101, 1, 'x')", "INSERT INTO s VALUES (101, 1)")
    refreshed(mill, "pairs")
    assert caught(mill, "pairs")


def test_keys_compared_without_nulls(mill: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    mill.create("highest", "SELECT id, max(v) OVER (PARTITION BY k) AS hi FROM r")
    mill.tell("INSERT INTO r VALUES (100, NULL, 1, 'x')")
    assert did(mill.refresh("highest"))[0] is Action.KEYS
    equality_without_nulls(monkeypatch)
    mill.tell("INSERT INTO r VALUES (101, NULL, 2, 'x')")
    refreshed(mill, "highest")
    assert caught(mill, "highest")


def test_all_equal_rows_are_deleted(mill: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many copies as the weight says: else the count of what was found gives it away, and behind it verify does."""
    mill.tell("CREATE TABLE d AS SELECT i AS id, 7 AS k FROM range(9) t(i)")
    mill.create("ks", "SELECT k FROM d")
    mill.tell("DELETE FROM d WHERE id = 0")
    assert did(mill.refresh("ks"))[0] is Action.DELTA
    right = carry.diffs.located

    def all_equal(diff: Any, *rest: Any, **more: Any) -> Any:
        return right(
            diff.withColumn(WEIGHT, F.when(F.col(WEIGHT) < 0, -1_000_000).otherwise(F.col(WEIGHT))), *rest, **more
        )

    monkeypatch.setattr(carry.diffs, "candidates", lambda *_, **__: None)  # the way of many rows
    monkeypatch.setattr(carry.diffs, "located", all_equal)
    mill.tell("DELETE FROM d WHERE id = 1")
    failed = mill.refresh("ks")
    assert failed.outcome is Outcome.FAILED, failed
    assert "1 rows should have gone, 8 were found" in (failed.error_text or "")
    monkeypatch.setattr(apply, "_require_found", lambda found, expected: None)
    mill.tell("DELETE FROM d WHERE id = 2")
    refreshed(mill, "ks")
    assert caught(mill, "ks")


def deleted_late(mill: Mill, where: str) -> None:
    """A delete by a transaction that is older than the last refresh: DuckLake dates it by its beginning."""
    with duck.connect(mill.lake.settings, mill.lake.dsn) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM r").fetchall()
        mill.tell("INSERT INTO s VALUES (1000, 0)")
        mill.refresh("n")
        other.execute(f"DELETE FROM r WHERE {where}")
        other.execute("COMMIT")


def test_the_feed_instead_of_the_delta(mill: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    """table_changes() believes what deletes say of their time."""
    both = "SELECT id FROM r UNION ALL SELECT k FROM s"
    mill.create("n", f"SELECT id % 2 AS odd, count(*) AS n FROM ({both}) GROUP BY id % 2")
    mill.tell("DELETE FROM r WHERE id = 1")
    deleted_late(mill, "id = 3")
    mill.refresh("n")
    right = leaves.Leaves.frame

    def feed(self: Any, number: int, end: Any, where: str | None) -> Any:
        if end != "delta":
            return right(self, number, end, where)
        source, column = self.window.sources[number], ("id", "k")[number]
        rows = self.lake.sql(
            f"SELECT {column}, CASE WHEN change_type IN ('insert', 'update_postimage') THEN 1 ELSE -1 END AS weight"
            f" FROM ducklake_table_changes('lake', 'main', '{source.table.name}', {source.a + 1}, {source.b})"
        ).fetchall()
        changed = self.lake.spark.createDataFrame(rows, f"{column} INT, {WEIGHT} BIGINT")
        return changed.groupBy(column).agg(F.sum(WEIGHT).alias(WEIGHT))

    deleted_late(mill, "id = 5")
    monkeypatch.setattr(leaves.Leaves, "frame", feed)
    refreshed(mill, "n")
    assert caught(mill, "n")


@pytest.mark.parametrize("staged", [True, False], ids=["staged once", "evaluated at every use"])
def test_a_diff_that_is_evaluated_twice(mill: Mill, monkeypatch: pytest.MonkeyPatch, staged: bool) -> None:
    """Of two equally right rows an engine may take one now and the other later: what goes and what comes must agree."""
    mill.tell("CREATE TABLE ties AS SELECT i AS id, v FROM range(20) t(i), (VALUES ('a'), ('b')) u(v)")
    mill.create("picked", "SELECT id, v FROM ties QUALIFY row_number() OVER (PARTITION BY id ORDER BY id) = 1")

    def by_chance(self: Execution, delta: Any) -> Any:
        """Nine ids take their other row; which ones, between the first and the last, is decided at every evaluation."""
        order = F.expr("struct(id NOT IN (0, 19), java_method('java.util.UUID', 'randomUUID'))")
        nine = mill.lake.table("picked").scan().withColumn("__order", order).orderBy("__order").limit(9)
        gone, came = f"struct(v, -1 AS {WEIGHT})", f"struct(translate(v, 'ab', 'ba') AS v, 1 AS {WEIGHT})"
        other = F.expr(f"explode(array({gone}, {came}))")
        rows = nine.select("id", other.alias("row"))
        return rows.selectExpr("id", "row.v", f"CAST(row.{WEIGHT} AS BIGINT) AS {WEIGHT}")

    @contextmanager
    def unstaged(attempt: Any, frame: Any) -> Iterator[Any]:
        frame.write.format("noop").mode("overwrite").save()  # it is measured as it is staged
        yield frame

    monkeypatch.setattr(Execution, "delta", by_chance)
    if not staged:
        monkeypatch.setattr(carry, "diff_of", unstaged)
    mill.tell("INSERT INTO ties VALUES (0, 'a')")
    record = refreshed(mill, "picked")
    assert (record.rows_inserted, record.rows_deleted) == (9, 9), record
    once = mill.rows("SELECT count(*), count(DISTINCT id) FROM picked") == [(20, 20)]
    assert once is staged
