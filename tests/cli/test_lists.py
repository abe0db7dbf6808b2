"""`lakemill tables`, `snapshots`, `attach`, `stop`: what a lake holds, and how to get at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemill.errors import DeleteInDoubt
from lakemill.lake import duck
from tests.cli.conftest import Lakemill
from tests.conftest import MakeLake, TestLake


def test_tables(lakemill: Lakemill, lake: TestLake) -> None:
    assert lakemill(lake, "tables").out == "no tables\n"
    lakemill(
        lake, "sql", "CREATE SCHEMA s; CREATE TABLE s.big AS SELECT i FROM range(100) r(i); CREATE TABLE a (x INT)"
    )
    lakemill(lake, "sql", "DELETE FROM s.big WHERE i < 10")
    lakemill(lake, "sql", "CREATE VIEW v AS SELECT 1 AS one")
    listed = {row["table"]: row for row in lakemill(lake, "tables", "--format", "json").json}
    assert list(listed) == ["main.a", "s.big", "main.v"]
    assert {key: listed["s.big"][key] for key in ("kind", "columns", "rows", "files", "delete_files")} == {
        "kind": "table", "columns": 1, "rows": 90, "files": 1, "delete_files": 1,
    }  # fmt: skip
    assert listed["main.v"]["kind"] == "view"
    past = lakemill(lake, "tables", "s.*", "--at", 1, "--format", "json").json
    assert [(row["table"], row["rows"]) for row in past] == [("s.big", 100)]
    assert "no tables match nix*" in lakemill(lake, "tables", "nix*").out


def test_rows_that_live_in_the_catalog_count(lakemill: Lakemill, make_lake: MakeLake) -> None:
    lake = make_lake(inline=10)
    lakemill(lake, "sql", "CREATE TABLE t AS SELECT i FROM range(100) r(i)")
    lakemill(lake, "sql", "INSERT INTO t VALUES (100), (101)")
    lakemill(lake, "sql", "DELETE FROM t WHERE i IN (0, 100)")
    for at, rows in ((1, 100), (2, 102), (3, 100)):
        assert lakemill(lake, "tables", "--at", at, "--format", "json").json[0]["rows"] == rows


def test_odd_names(lakemill: Lakemill, make_lake: MakeLake) -> None:
    lake = make_lake(inline=10)
    lakemill(lake, "sql", 'CREATE SCHEMA "a.b"; CREATE TABLE "a.b"."an ""x""" AS SELECT 1 AS "c d"')
    listed = lakemill(lake, "tables", "--format", "json").json
    assert [(row["table"], row["rows"]) for row in listed] == [('a.b.an "x"', 1)]
    assert lakemill(lake, "upkeep", "compact", "--dry-run").code == 0


def test_upkeep_by_policy(lakemill: Lakemill, lake: TestLake) -> None:
    assert lakemill(lake, "upkeep", "status").out == "no tables\n"
    lakemill(lake, "sql", "CREATE TABLE t (i INT); INSERT INTO t VALUES (1); CREATE TABLE u AS SELECT 2 AS i")
    lakemill(lake, "sql", "INSERT INTO t VALUES (2)")
    given = ("main.small_files=2", "main.u.auto=", "nix.window=01:00-02:00")
    flag = [word for one in given for word in ("--set", f"upkeep.policies.{one}")]
    found = lakemill(lake, *flag, "upkeep", "status", "--format", "json").json
    assert [(one["table"], one["due"], one["policy"]["name"]) for one in found["tables"]] == [
        ("main.t", True, "main"),
        ("main.u", False, "main.u"),
    ]
    assert found["tables"][0]["why"] == "it has 2 small files"
    assert found["tables"][1]["policy"]["from"] == {"small_files": "main", "auto": "main.u"}
    assert (found["policy"]["small_files"], found["nowhere"]) == (16, ["nix"])
    told = lakemill(lake, *flag, "upkeep", "status", "t")
    assert "it has 2 small files" in told.out
    assert "main.u" not in told.out
    assert "no schema and no table nix" in told.err


def test_a_table_that_spark_cannot_read_is_listed(
    lakemill: Lakemill, make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise DeleteInDoubt("nobody knows")

    lake = make_lake()
    lakemill(lake, "sql", "CREATE TABLE t AS SELECT 1 AS id")
    lakemill(lake, "sql", "DELETE FROM t")
    monkeypatch.setattr("lakemill.runtime.open.Table.count", refused)
    assert lakemill(lake, "tables", "--at", 1, "--format", "json").json[0]["rows"] is None
    assert lakemill(lake, "tables", "--format", "json").json[0]["rows"] == 0


def test_snapshots(lakemill: Lakemill, lake: TestLake) -> None:
    lakemill(lake, "sql", "CREATE TABLE t AS SELECT 1 AS id")
    lakemill(lake, "sql", "INSERT INTO t VALUES (2)")
    lakemill(lake, "sql", "DELETE FROM t WHERE id = 1")
    lakemill(lake, "sql", "DROP TABLE t")
    listed = lakemill(lake, "snapshots", "--format", "json").json
    assert [(row["snapshot"], row["changes"]) for row in listed] == [
        (4, "dropped main.t"),
        (3, "deleted from main.t"),
        (2, "inserted into main.t"),
        (1, "created main.t; inserted into main.t"),
        (0, "created schema main"),
    ]
    page = lakemill(lake, "snapshots", "--limit", "2")
    assert "lakemill snapshots --before 3" in page.err
    older = lakemill(lake, "snapshots", "--before", "3", "--limit", "0", "--format", "json").json
    assert [row["snapshot"] for row in older] == [2, 1, 0]


def test_attach_works_as_printed(lakemill: Lakemill, lake: TestLake) -> None:
    lakemill(lake, "sql", "CREATE TABLE t AS SELECT 1 AS id")
    lakemill(lake, "sql", "INSERT INTO t VALUES (2)")
    for words, rows in (((), 2), (("--at", "1"), 1), (("--read-only",), 2)):
        statements = lakemill(lake, "attach", "--show-secrets", *words, "--format", "json").json["statements"]
        with duck.connect(lake.settings, lake.dsn, attach=False) as client:
            for name in ("ducklake", "postgres_scanner"):
                duck.load_extension(client, name)
            for statement in statements:
                if not statement.startswith(("INSTALL", "LOAD")):
                    client.execute(statement)
            assert client.execute("SELECT count(*) FROM t").fetchall() == [(rows,)]
    assert lakemill(lake, "attach").out.startswith("INSTALL ducklake;\nLOAD ducklake;\n")


@pytest.mark.parametrize(("words", "shown"), [((), False), (("--show-secrets",), True)])
def test_attach_shows_passwords_only_when_asked(
    lakemill: Lakemill, make_lake: MakeLake, words: tuple[str, ...], shown: bool
) -> None:
    lake = make_lake()
    dsn = lake.dsn + " password=hush-hush"
    ran = lakemill("--set", f"lake.postgres={dsn}", "-C", lake.settings.root, "attach", *words)
    assert ran.code == 0
    assert ("hush-hush" in ran.out) is shown


def test_stop_leaves_other_servers_alone(lakemill: Lakemill, lake: TestLake) -> None:
    lakemill(lake, "stop").failed("BAD_ARGUMENT", 2, remedy="its own tools")


def test_no_lake_here(lakemill: Lakemill, tmp_path: Path) -> None:
    for words in (("tables",), ("snapshots",), ("attach",), ("sql", "SELECT 1"), ("upkeep", "orphans")):
        lakemill("-C", tmp_path, *words).failed("NO_LAKE", 2, remedy="lakemill init")
    assert list(tmp_path.iterdir()) == []
