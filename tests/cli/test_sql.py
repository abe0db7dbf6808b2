"""`lakemill sql`: what it prints, that a script is one snapshot, and where it says a mistake is."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Lakemill
from tests.conftest import TestLake, make_lakes

SETUP = "CREATE TABLE t (id INTEGER, name VARCHAR); INSERT INTO t VALUES (1, 'one'), (2, 'two')"


@pytest.fixture(scope="module")
def filled(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestLake]:
    """One lake for all cases that only read."""
    with make_lakes(postgres, tmp_path_factory.mktemp("sql")) as make:
        lake = make()
        with lake.duck() as duck:
            duck.execute(SETUP)
        yield lake


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (("FROM t ORDER BY id",), "id  name\n──  ────\n 1  one\n 2  two\n"),
        (("FROM t ORDER BY id", "--format", "csv"), "id,name\n1,one\n2,two\n"),
        (("FROM t ORDER BY id", "--format", "json"), '[\n  {"id": 1, "name": "one"},\n  {"id": 2, "name": "two"}\n]\n'),
        (("FROM t WHERE id > 9",), "no rows\n"),
        (("FROM t WHERE id > 9", "--format", "json"), "[]\n"),
        (("SELECT 1.10::DECIMAL(4,2) AS d, 'NaN'::DOUBLE AS f, NULL AS n", "--format", "json"),
         '[\n  {"d": "1.10", "f": "nan", "n": null}\n]\n'),
        (("SELECT {'a': [1, NULL]} AS s, '\\xFF'::BLOB AS b, DATE '2026-01-02' AS d", "--format", "csv"),
         's,b,d\n"{""a"": [1, null]}",/w==,2026-01-02\n'),
        (("SELECT 'infinity'::DATE AS d, '-infinity'::TIMESTAMP AS t, INTERVAL '14 months 3 days' AS i",
          "--format", "csv"),
         "d,t,i\ninfinity,-infinity,1 year 2 months 3 days\n"),
        (("SELECT TIMESTAMP_NS '2024-01-01 00:00:00.123456789' AS n, DATE '9999-12-31' AS d, DATE '12000-01-01' AS f"
          ", TIMESTAMPTZ '2024-01-01 00:00:00+01' AS z, DATE '0044-03-15 (BC)' AS b, TIME '01:02:03.5' AS t",
          "--format", "csv"),
         "n,d,f,z,b,t\n2024-01-01 00:00:00.123456789,9999-12-31,12000-01-01,2023-12-31 23:00:00+00,0044-03-15 (BC),"
         "01:02:03.5\n"),
        (("SELECT [DATE '2024-01-01', 'infinity', NULL] AS l, {'a \"b': INTERVAL 1 MONTH, 'n': 7} AS s"
          ", MAP {'k': 'infinity'::TIMESTAMP} AS m, 170141183460469231731687303715884105727::HUGEINT AS h"
          ", '\\xFF'::BLOB AS x, 1.5::DECIMAL(9,2) AS c, NULL::DATE AS v", "--format", "json"),
         '[\n  {"l": ["2024-01-01", "infinity", null], "s": {"a \\"b": "1 month", "n": 7}, "m": {"k": "infinity"}'
         ', "h": 170141183460469231731687303715884105727, "x": "/w==", "c": "1.50", "v": null}\n]\n'),
        (("SELECT 1 AS x, 2 AS x, 3 AS x_1, 4 AS x", "--format", "json"),
         '[\n  {"x": 1, "x_2": 2, "x_1": 3, "x_3": 4}\n]\n'),
        (("SELECT 1 AS x, DATE '2024-01-01' AS x", "--format", "csv"), "x,x\n1,2024-01-01\n"),
        (("SELECT 1 AS a; SELECT 2 AS b WHERE false", "--format", "json"), '[\n[\n  {"a": 1}\n]\n,\n[]\n]\n'),
        (("SELECT 1 AS a; SHOW DYNAMIC TABLES", "--format", "json"), '[\n[\n  {"a": 1}\n]\n,\n[]\n]\n'),
        (("SELECT 'a\nb' AS text",), "text\n────\na⏎b\n"),
        (("SELECT 1 AS a; SELECT 2 AS b", "--format", "csv"), "a\n1\nb\n2\n"),
        (("PIVOT t ON name USING sum(id) GROUP BY id", "--format", "csv"), "id,one,two\n1,1,\n2,,2\n"),
        (("SELECT 0 AS a; PIVOT t ON name USING sum(id) GROUP BY id", "--format", "csv"),
         "a\n0\nid,one,two\n1,1,\n2,,2\n"),
    ],
)  # fmt: skip
def test_prints_rows(lakemill: Lakemill, filled: TestLake, words: tuple[str, ...], out: str) -> None:
    ran = lakemill(filled, "sql", *words)
    assert (ran.code, ran.out, ran.err) == (0, out, "")


def test_prints_what_was_done(lakemill: Lakemill, lake: TestLake) -> None:
    lakemill(lake, "sql", SETUP)
    for statement, out in {
        "INSERT INTO t VALUES (3, 'three')": "1 row inserted\n",
        "UPDATE t SET name = 'x'": "3 rows updated\n",
        "DELETE FROM t": "3 rows deleted\n",
        "ALTER TABLE t ADD COLUMN extra INTEGER": "",
        "CREATE TABLE u AS FROM range(5)": "5 rows written\n",
    }.items():
        assert lakemill(lake, "sql", statement).out == out


def test_a_script_is_one_snapshot_or_nothing(lakemill: Lakemill, lake: TestLake) -> None:
    lakemill(lake, "sql", SETUP)
    assert [s["snapshot"] for s in lakemill(lake, "snapshots", "--format", "json").json] == [1, 0]
    ran = lakemill(lake, "sql", "DELETE FROM t; INSERT INTO t VALUES (9, 'nine');\nSELEKT 1")
    ran.failed("SQL_FAILED", 2, about="line 2, column 1", remedy="nothing was changed")
    ran = lakemill(lake, "sql", "DELETE FROM t; INSERT INTO t VALUES ('x', 'nine')")
    ran.failed("WRONG_TYPE", 2, about="line 1, column 38", remedy="nothing was changed")
    assert lakemill(lake, "sql", "SELECT count(*) AS n FROM t", "--format", "json").json == [{"n": 2}]
    assert len(lakemill(lake, "snapshots", "--format", "json").json) == 2


def test_each_commits_by_itself(lakemill: Lakemill, lake: TestLake) -> None:
    lakemill(lake, "sql", "--each", SETUP)
    assert [s["snapshot"] for s in lakemill(lake, "snapshots", "--format", "json").json] == [2, 1, 0]
    ran = lakemill(lake, "sql", "--each", "INSERT INTO t VALUES (3, 'three'); SELECT nix FROM t")
    assert ran.code == 2
    assert "1 row inserted" in ran.out
    assert "the 1 before it is committed" in ran.err


def test_a_script_with_transactions_of_its_own(lakemill: Lakemill, lake: TestLake) -> None:
    lakemill(lake, "sql", "BEGIN; CREATE TABLE a (x INT); COMMIT; BEGIN; CREATE TABLE b (x INT); ROLLBACK")
    assert [t["table"] for t in lakemill(lake, "tables", "--format", "json").json] == ["main.a"]
    lakemill(lake, "sql", "BEGIN; CREATE TABLE c (x INT)").failed("BAD_STATEMENT", 2, about="ends inside a transaction")


def test_a_table_made_by_pivot(lakemill: Lakemill, lake: TestLake) -> None:
    lakemill(lake, "sql", SETUP)
    ran = lakemill(lake, "sql", "CREATE TABLE p AS PIVOT t ON name USING sum(id); FROM p", "--format", "csv")
    assert ran.out.endswith("one,two\n1,2\n")
    assert len(lakemill(lake, "snapshots", "--format", "json").json) == 3, "one snapshot for the script"


def test_reads_a_file_and_standard_input(
    lakemill: Lakemill, lake: TestLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "report.sql"
    file.write_text("-- a report\nSELECT 1 AS one;\n\nSELECT 2 AS two;\n")
    assert lakemill(lake, "sql", "-f", file, "--format", "csv").out == "one\n1\ntwo\n2\n"
    file.write_text("SELECT 1;\nSELECT\n  nix;\n")
    lakemill(lake, "sql", "-f", file).failed("UNKNOWN_COLUMN", 2, about=f"{file}:3:3: ")
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 3 AS three"))
    assert lakemill(lake, "sql", "-", "--format", "csv").out == "three\n3\n"


def test_at_a_snapshot(lakemill: Lakemill, lake: TestLake) -> None:
    lakemill(lake, "sql", SETUP)
    lakemill(lake, "sql", "DELETE FROM t WHERE id = 1")
    assert lakemill(lake, "sql", "--at", "1", "FROM t ORDER BY id", "--format", "csv").out == "id,name\n1,one\n2,two\n"
    assert lakemill(lake, "sql", "--at", "2", "FROM t", "--format", "csv").out == "id,name\n2,two\n"
    ran = lakemill(lake, "sql", "--at", "1", "DELETE FROM t")
    assert ran.code == 2
    assert "read-only" in ran.err
    assert lakemill(lake, "sql", "FROM t", "--format", "csv").out == "id,name\n2,two\n"


def test_a_long_line_is_placed_right(lakemill: Lakemill, lake: TestLake) -> None:
    text = (
        "SELECT " + ", ".join(f"{i} AS column_{i}" for i in range(30)) + ", nix, " + ", ".join("1" for _ in range(60))
    )
    ran = lakemill(lake, "sql", text)
    ran.failed("UNKNOWN_COLUMN", 2, about=f"line 1, column {text.index('nix') + 1}: ")


def test_names_of_this_program_are_no_tables(lakemill: Lakemill, lake: TestLake) -> None:
    lakemill(lake, "sql", "FROM script").failed("UNKNOWN_TABLE", 2)
