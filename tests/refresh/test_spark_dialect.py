"""DIALECT = 'spark': a query in Spark's own SQL, from its declaration to its proof."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from lakemill.cli.main import run as lakemill_run
from lakemill.core.ddl import parse_definition
from lakemill.core.names import parse_name
from lakemill.core.refresh import Action, Outcome
from lakemill.errors import (
    BadStatement,
    Cycle,
    LakemillError,
    NotIncrementable,
    SqlFailed,
    UnknownTable,
    UnsupportedType,
)
from lakemill.runtime import dynamic, explain, verify
from lakemill.runtime.validate import validate
from lakemill.store import definitions
from tests.refresh.mill import Mill, counts, did, run

pytestmark = pytest.mark.spark
SPARK = "DIALECT = 'spark'"


def columns(mill: Mill, name: str) -> dict[str, str]:
    found = definitions.get(mill.lake.conn, parse_name(name))
    return {column.name: column.type for column in found.resolved.columns}


def test_from_its_declaration_to_its_proof(mill: Mill) -> None:
    """What only Spark understands, over a table and a dynamic table; a DuckDB query reads it in turn."""
    mill.create("big", "SELECT id, k, v FROM r WHERE v > 15")
    query = (
        "WITH c AS (SELECT k, collect_list(id) AS ids FROM main.big GROUP BY k)\n"
        "SELECT s.`k`, size(ids) AS n, sort_array(ids) AS ids, date_format(DATE'2026-01-02', 'yyyy') AS y,\n"
        "  named_struct('w', s.w) AS pair, s.w / 4 AS quarter\n"
        "FROM s LEFT JOIN c ON c.k <=> s.k"
    )
    # a list inside size() or sort_array() has no order that anybody sees; this one is shown through a CTE
    with pytest.raises(BadStatement, match="collect_list"):
        mill.create("found", query, SPARK)
    query = query.replace("collect_list(id)", "sort_array(collect_list(id))")
    first = mill.create("found", query, SPARK)
    assert first is not None
    assert (did(first), counts(first)) == ((Action.INITIALIZE, "FIRST_LOAD"), (8, 0))
    assert columns(mill, "found") == {
        "k": "INTEGER",
        "n": "INTEGER",
        "ids": "INTEGER[]",
        "y": "VARCHAR",
        "pair": 'STRUCT("w" INTEGER)',
        "quarter": "DOUBLE",
    }
    assert mill.rows("SELECT n, ids, y, pair, quarter FROM found WHERE k = 1") == [
        (3, [11, 21, 31], "2026", {"w": 10}, 2.5)
    ]
    found = verify.verify(mill.lake, parse_name("found"))
    assert (found.equal, found.engine, found.rows) == (True, "spark", 8)
    mill.create("by_n", "SELECT n, count(*) AS m FROM found GROUP BY n")
    assert verify.verify(mill.lake, parse_name("by_n")).engine == "duckdb"

    mill.tell("INSERT INTO r VALUES (99, 1, 500, 'x')", "DELETE FROM s WHERE k = 7")
    last = explain.explain_chain(mill.lake, parse_name("found"))[-1]
    assert last.waits_for == (parse_name("big"),)
    mill.refresh("found", "by_n")
    record = next(one for one in mill.lake.history("found") if one.action is Action.FULL)
    assert record.reason is not None
    assert record.reason.startswith("SPARK_DIALECT: ")
    assert record.remedy is not None
    assert "DuckDB's SQL" in record.remedy
    assert counts(record) == (1, 2), "only what differs is written"
    assert did(mill.refresh("found"))[0] is Action.NO_DATA


def test_verify_sees_what_is_wrong(mill: Mill) -> None:
    mill.create("halves", "SELECT id, v / 3 AS third FROM r", SPARK)
    mill.tell("INSERT INTO halves VALUES (7, 3.5), (7, 3.5), (-1, 0)", "DELETE FROM halves WHERE id = 5")
    table = definitions.get(mill.lake.conn, parse_name("halves"))
    commit = mill.lake.snapshot().id
    claimed = "UPDATE lakemill.versions SET commit_snapshot = %s WHERE dynamic_id = %s"
    mill.lake.conn.execute(claimed, (commit, table.id))  # as if a refresh had written it
    found = verify.verify(mill.lake, parse_name("halves"))
    assert (found.missing, found.extra, found.rows) == (1, 3, 42)
    assert {row for side, row in found.examples if side == "extra"} == {(7, 3.5), (-1, 0.0)}
    assert counts(mill.refresh("halves", full=True)) == (1, 3)


def test_stars_stay_and_columns_are_known_by_use(mill: Mill) -> None:
    mill.create("everything", "SELECT * FROM s", SPARK)
    mill.create("few", "SELECT count(*) AS n, max(s.w) AS w FROM s", SPARK)
    mill.tell("ALTER TABLE s ADD COLUMN more INTEGER", "INSERT INTO s VALUES (9, 9, 9)")
    assert did(mill.refresh("everything")) == (Action.FULL, "SPARK_DIALECT")
    assert columns(mill, "everything") == {"k": "INTEGER", "w": "INTEGER"}
    assert mill.refresh("few").outcome is Outcome.SUCCEEDED
    mill.tell("CREATE OR REPLACE TABLE s AS SELECT 1 AS k, 2 AS w, 3 AS more, 4 AS yet")
    assert did(mill.refresh("everything")) == (Action.REINITIALIZE, "TABLE_REPLACED")
    assert mill.rows("FROM everything") == [(1, 2)]
    mill.refresh("few")
    mill.tell("ALTER TABLE s DROP COLUMN k")
    assert did(mill.refresh("few"))[0] is Action.NO_DATA, "a column that it does not use"
    assert mill.refresh("everything").error_code == "OUTPUT_CHANGED"


def test_the_clock_is_the_refreshs_own(mill: Mill) -> None:
    query = (
        "SELECT id, current_date AS day, now() AS seen, localtimestamp() AS here FROM r"
        " WHERE id < 2 AND now() > DATE'2020-01-01'"
    )
    mill.create("seen", query, SPARK)
    assert columns(mill, "seen") == {"id": "INTEGER", "day": "DATE", "seen": "TIMESTAMPTZ", "here": "TIMESTAMP"}
    mill.judge("seen")
    record = mill.refresh("seen")
    assert (record.action, counts(record)) == (Action.FULL, (2, 2))
    assert mill.rows("SELECT DISTINCT seen FROM seen") == [(record.t,)]
    mill.create("later", "SELECT id, seen + INTERVAL 1 DAY AS soon FROM seen")
    assert mill.refresh("seen", "later").outcome is Outcome.SUCCEEDED


def test_alter_replace_and_rename(mill: Mill) -> None:
    mill.create("base", "SELECT id, k FROM r")
    mill.create("odd", "SELECT base.id, `base`.k FROM `base` WHERE main.base.id % 2 = 1", SPARK)
    before = definitions.get(mill.lake.conn, parse_name("odd"))
    run(mill, "ALTER DYNAMIC TABLE odd SET TARGET_LAG = '2 hours'; ALTER DYNAMIC TABLE base RENAME TO other")
    table = definitions.get(mill.lake.conn, parse_name("odd"))
    assert table.definition.query == "SELECT base.id, `base`.k FROM `main`.`other` AS `base` WHERE `base`.id % 2 = 1"
    assert table.resolved.columns == before.resolved.columns
    mill.tell("INSERT INTO r VALUES (77, 1, 1, 'x')")
    assert did(mill.refresh("odd"))[0] is Action.FULL
    with pytest.raises(NotIncrementable, match="SPARK_DIALECT"):
        run(mill, "ALTER DYNAMIC TABLE odd SET REFRESH_MODE = INCREMENTAL")
    replaced = parse_definition(
        "CREATE OR REPLACE DYNAMIC TABLE odd TARGET_LAG = '1 hour' AS SELECT id, k FROM other WHERE id % 2 = 1"
    )
    assert dynamic.create(mill.lake, replaced).records[-1].outcome is Outcome.SUCCEEDED
    assert verify.verify(mill.lake, parse_name("odd")).engine == "duckdb"


REFUSED: list[tuple[str, type[LakemillError], str]] = [
    ("SELECT id,\n  nosuch FROM r", SqlFailed, "line 2, column 3.*nosuch"),
    ("SELECT id FROM r\nJOIN main.gone ON true", UnknownTable, "line 2, column 11.*gone"),
    ("SELECT id FROM parquet.`/etc/x`", UnknownTable, "parquet"),
    ("SELECT id FROM part", BadStatement, "view, in DuckDB's SQL"),
    ("SELECT id,\n rand() AS x FROM r", BadStatement, r"line 2, column 2.*rand\(\)"),
    ("SELECT uuid() AS x FROM r", BadStatement, "uuid"),
    ("SELECT monotonically_increasing_id() AS x FROM r", BadStatement, "monotonically"),
    ("SELECT current_user() AS x FROM r", BadStatement, "current_user"),
    ("SELECT TIMESTAMP 'now' AS x FROM r", BadStatement, "now"),
    ("SELECT unix_timestamp() AS x FROM r", BadStatement, "unix_timestamp"),
    ("SELECT first(id) AS x FROM r", BadStatement, "order in which rows arrive"),
    ("SELECT id FROM r LIMIT 3", BadStatement, "which rows stay"),
    ("SELECT id FROM r TABLESAMPLE (10 PERCENT)", BadStatement, "sample"),
    ("SELECT id FROM identifier('r')", BadStatement, "identifier"),
    ("SELECT id FROM r VERSION AS OF 3", BadStatement, "travel in time"),
    ("SELECT map(id, k) AS m FROM r", UnsupportedType, "map"),
    ("SELECT INTERVAL '1' DAY AS i FROM r", UnsupportedType, "INTERVAL"),
    ("SELECT id, ID FROM r", BadStatement, "two columns"),
    ("SELECT id FROM bad", Cycle, "reads itself"),
    ("SELECT FROM WHERE", LakemillError, ""),
    ("DROP TABLE r", BadStatement, ""),
]


def test_what_is_refused(mill: Mill) -> None:
    mill.tell("CREATE VIEW part AS SELECT id FROM r")
    statement = parse_definition(f"CREATE DYNAMIC TABLE bad TARGET_LAG = '1 hour' {SPARK} AS SELECT 1 AS one")
    for query, error, told in REFUSED:
        definition = replace(statement.definition, query=query)
        with pytest.raises(error) as caught:
            dynamic.create(mill.lake, replace(statement, definition=definition, places={}))
        assert re.search(told, str(caught.value)), (query, str(caught.value))
        assert definitions.find(mill.lake.conn, parse_name("bad")) is None


def test_a_value_that_can_not_be_computed(mill: Mill) -> None:
    mill.create("inverse", "SELECT w, 100 / w AS i FROM s WHERE k > 0", SPARK)
    mill.tell("INSERT INTO s VALUES (9, 0)")
    record = mill.refresh("inverse")
    assert (record.outcome, record.error_code) == (Outcome.FAILED, "WRONG_TYPE")
    assert "Division by zero" in (record.error_text or "")
    mill.tell("DELETE FROM s WHERE w = 0 AND k = 9", "INSERT INTO s VALUES (9, 50)")
    assert did(mill.refresh("inverse"))[0] is Action.FULL


def test_validate_says_the_same(mill: Mill) -> None:
    query = "SELECT k % 3 AS `mod`, count(*) AS n FROM r GROUP BY k % 3"
    script = f"CREATE DYNAMIC TABLE x TARGET_LAG = '1 hour' {SPARK} AS {query}"
    (found,) = validate(mill.lake, script)
    assert found.valid, found.error
    told = {check.name: check for check in found.checks}
    assert told["types"].found == "mod INTEGER (Spark: INT), n BIGINT (Spark: BIGINT)"
    assert told["strategy"].found == "FULL: the query is in Spark's own SQL, which has no rules for deltas"
    assert told["strategy"].remedy == "write it in DuckDB's SQL to have it refreshed from deltas"
    assert found.keys == ("mod",)
    (found,) = validate(mill.lake, script.replace(SPARK, f"{SPARK} REFRESH_MODE = INCREMENTAL"))
    assert isinstance(found.error, NotIncrementable)
    assert definitions.find(mill.lake.conn, parse_name("x")) is None


def test_what_the_commands_say(mill: Mill, capfd: pytest.CaptureFixture[str]) -> None:
    mill.create("x", "SELECT k, count(*) AS n FROM r GROUP BY k", SPARK)
    said = {}
    for command in ("verify", "describe", "explain", "history"):
        capfd.readouterr()
        assert lakemill_run(["-C", str(mill.lake.settings.root), command, "x"]) == 0
        said[command] = capfd.readouterr().out
    assert "no second engine checked it" in said["verify"]
    assert "DIALECT = 'spark'" in said["describe"]
    assert "SPARK_DIALECT" not in said["explain"], "nothing changed"
    assert "INITIALIZE" in said["history"]
