"""The commands that need Spark: changes, compact, demo, doctor --deep. They share the suite's one session."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lakemill.runtime.demo import run_demo
from lakemill.store.embedded import EmbeddedPostgres
from tests.cli.conftest import Lakemill
from tests.conftest import TestLake


@pytest.fixture
def changed(lakemill: Lakemill, lake: TestLake) -> TestLake:
    for script in (
        "CREATE TABLE t (id INTEGER, tags MAP(VARCHAR, INTEGER), ts TIMESTAMP)",
        "INSERT INTO t SELECT i, MAP {'n': i}, TIMESTAMP '2026-01-01' FROM range(4) r(i)",
        "INSERT INTO t SELECT 7, NULL, NULL FROM range(3)",
        "DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (8, NULL, NULL)",
    ):
        assert lakemill(lake, "sql", script).code == 0
    return lake


def test_changes(lakemill: Lakemill, changed: TestLake, spark: Any) -> None:
    table = lakemill(changed, "changes", "t", "--from", "3", "--to", "4")
    assert table.out.splitlines() == [
        "change  count  id  tags      ts",
        "──────  ─────  ──  ────────  ───────────────────",
        '−           1   1  {"n": 1}  2026-01-01 00:00:00',
        "+           1   8",
    ]
    rows = lakemill(changed, "changes", "main.t", "--from", "2", "--format", "json").json
    assert [(row["change"], row["count"], row["id"]) for row in rows] == [("-", 1, 1), ("+", 3, 7), ("+", 1, 8)]
    limited = lakemill(changed, "changes", "t", "--from", "1", "--limit", "2")
    assert len(limited.out.splitlines()) == 4
    assert "--limit 0" in limited.err
    for format_ in ("json", "csv"):
        assert "--limit 0" in lakemill(changed, "changes", "t", "--from", "1", "-n", "2", "--format", format_).err
        assert lakemill(changed, "changes", "t", "--from", "1", "--format", format_).err == ""
    assert lakemill(changed, "changes", "t", "--from", "4").out == "no changes after 4 up to 4\n"
    assert lakemill(changed, "changes", "t", "--from", "4", "--format", "json").out == "[]\n"


def test_all_changes_are_checked_as_some_are(
    lakemill: Lakemill, changed: TestLake, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = lakemill(changed, "changes", "t", "--from", "1", "--limit", "0", "--format", "json").json
    assert every == lakemill(changed, "changes", "t", "--from", "1", "--format", "json").json
    assert sum(row["count"] for row in every) == 7
    for limit in ("0", "2"):
        last = ("--limit", limit)
        lakemill(changed, "changes", "no", "--from", "1", *last).failed("UNKNOWN_TABLE", 2)
        lakemill(changed, "changes", "t", "--from", "3", "--to", "2", *last).failed("BAD_ARGUMENT", 2)
        lakemill(changed, "changes", "t", "--from", "0", *last).failed("TABLE_REPLACED", 3)
    monkeypatch.setattr("lakemill.runtime.open.expected_change", lambda *_: 99)
    for limit in ("0", "2"):
        lakemill(changed, "changes", "t", "--from", "1", "--limit", limit).failed("DELTA_INCONSISTENT", 3, about="99")


def test_a_plan_of_changes_asks_no_spark(
    lakemill: Lakemill, changed: TestLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakemill.spark.session.start", lambda _: pytest.fail("Spark was started"))
    plan = lakemill(changed, "changes", "t", "--from", "3", "--plan", "--format", "json").json
    assert (plan["table"], plan["files"], plan["delete_files"], plan["rows_to_read"]) == ("main.t", 2, 1, 5)


def test_upkeep(lakemill: Lakemill, changed: TestLake, spark: Any) -> None:
    def files() -> int:
        return int(lakemill(changed, "tables", "--format", "json").json[0]["files"])

    def upkeep(*words: str) -> Any:
        return lakemill(
            "--set", "upkeep.retention=0s", "-C", changed.settings.root, "upkeep", *words, "--format", "json"
        ).json

    assert files() == 3
    assert upkeep("compact", "--dry-run")["dry_run"] is True
    assert files() == 3
    assert len(upkeep("compact", "t")["snapshots"]) == 1
    assert files() < 3
    planned = upkeep("expire", "--older-than", "0s", "--dry-run")
    assert [item["what"] for item in planned["done"]] == [f"snapshot {i}" for i in range(5)]
    assert upkeep("expire", "--older-than", "0s")["snapshots"] == planned["snapshots"]
    assert [s["snapshot"] for s in lakemill(changed, "snapshots", "--format", "json").json] == [5]
    assert upkeep("cleanup", "--dry-run")["files_removed"] == 0
    assert upkeep("orphans")["files_removed"] == 0
    assert upkeep("orphans")["bytes_removed"] == 0
    csv = lakemill(changed, "--set", "upkeep.orphan_age=0s", "upkeep", "cleanup", "--dry-run", "--format", "csv")
    assert csv.out.startswith("outcome,what,why\nwould be done,")
    cleaned = lakemill(changed, "--set", "upkeep.orphan_age=0s", "upkeep", "cleanup", "--format", "json").json
    assert cleaned["files_removed"] > 0
    assert cleaned["bytes_removed"] is None
    assert "kept" in lakemill(changed, "upkeep", "expire", "--snapshot", "5").out


def test_doctor(lakemill: Lakemill, changed: TestLake, spark: Any) -> None:
    found = {row["part"]: row for row in lakemill(changed, "doctor", "--deep", "--format", "json").json}
    for part in ("lakemill", "python", "settings", "duckdb", "duckdb ducklake", "java", "spark", "spark session"):
        assert found[part]["state"] == "ok", found[part]
    for part in ("postgresql", "lake", "data path"):
        assert found[part]["state"] == "ok", found[part]


def test_demo(lakemill: Lakemill, tmp_path: Path, spark: Any) -> None:
    folder = tmp_path / "demo-lake"
    table = re.compile(r"^ +(big_orders|revenue|top_customers) +([A-Z_]+) +\S+ +(\S+ \S+) +✓ [\d,]+ rows, equal", re.M)
    try:
        with closing(run_demo(folder)) as steps:
            assert next(steps).title == "Make a lake"  # and somebody stopped it: it can be run again
        ran = lakemill("demo", folder)
        assert ran.code == 0, ran.err
        assert ran.err == ""
        for words in ("Write with DuckDB", "Read with Spark", "Publish with Spark", "customer-new", "KE "):
            assert words in ran.out
        done = table.findall(ran.out)
        assert [name for name, *_ in done] == ["big_orders", "revenue", "top_customers"] * 6
        assert [action for _, action, _ in done] == [
            *("INITIALIZE", "INITIALIZE", "INITIALIZE"),
            *("APPEND", "MERGE", "KEYS"),
            *("DELTA", "MERGE", "KEYS"),
            *("DELTA", "MERGE", "KEYS"),
            *("DELTA", "NO_DATA", "NO_DATA"),
            *("APPEND", "MERGE", "KEYS"),
        ]
        assert [rows for *_, rows in done][3:15] == [
            *("+2 −0", "+1 −1", "+2 −2"),
            *("+2 −1", "+2 −2", "+3 −3"),
            *("+0 −2", "+1 −1", "+2 −2"),
            *("+0 −0", "+0 −0", "+0 −0"),
        ]
        streamed = ran.out[ran.out.index("Stream events") :]
        assert re.search(r"till-7/39 +accepted before +50 ", streamed)
        assert "# CONSISTENCY_TIMEOUT" in streamed
        paid = re.findall(r"^ +([A-Z]{2}) +(\d+) +(\d+\.\d+) *$", streamed, re.M)
        assert [(country, payments) for country, payments, _ in paid] == [
            (c, "400") for c in ("BR", "DE", "FR", "JP", "KE")
        ]
        assert sum(float(amount) for *_, amount in paid) == sum(n % 90 + 10.5 for n in range(2000))
    finally:
        EmbeddedPostgres(folder / ".lakemill" / "postgres").remove()


def test_demo_takes_nobodys_folder(lakemill: Lakemill, lake: TestLake) -> None:
    there = sorted(lake.settings.root.rglob("*"))
    lakemill("demo", lake.settings.root).failed("LAKE_EXISTS", 2, remedy="another folder")
    assert sorted(lake.settings.root.rglob("*")) == there
