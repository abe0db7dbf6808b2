"""Dynamic tables from the command line: what each command says and leaves behind. Only the last tests need Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest

import lakemill as door
from lakemill.cli import failure
from lakemill.core.names import parse_name
from lakemill.core.refresh import Action, Outcome, State, Trigger
from lakemill.errors import BadStatement, HasDependents, StrictRefused, UnknownTable, WrongType
from lakemill.lake import duck
from lakemill.runtime.dynamic import Created
from lakemill.runtime.explain import explain_chain
from lakemill.runtime.show import Described
from lakemill.store import db, definitions, history
from lakemill.store.definitions import DynamicTable
from lakemill.store.history import RefreshRecord
from tests.cli.conftest import Lakemill, Ran
from tests.conftest import MakeLake, TestLake, make_lakes

ORDERS = """
CREATE TABLE orders (id INTEGER, cust INTEGER, amount DOUBLE, day DATE);
INSERT INTO orders SELECT i, i % 10, i * 1.5, DATE '2026-01-01' + (i % 5)::INTEGER FROM range(100) r(i)
"""
CHAIN = """CREATE DYNAMIC TABLE big TARGET_LAG = DOWNSTREAM INITIALIZE = ON_SCHEDULE AS
SELECT * FROM orders WHERE amount > 30;
CREATE DYNAMIC TABLE by_cust TARGET_LAG = '10 minutes' INITIALIZE = ON_SCHEDULE AS
SELECT cust, count(*) AS n FROM big GROUP BY ALL;
"""


_JSON = ("--format", "json")


def declared(name: str, query: str, words: str = "INITIALIZE = ON_SCHEDULE") -> str:
    return f"CREATE DYNAMIC TABLE {name} TARGET_LAG = '1 minute' {words} AS {query}"


def ok(ran: Ran) -> Ran:
    assert ran.code == 0, ran.err
    return ran


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakemill.spark.session.start", lambda _: pytest.fail("Spark was started"))


@pytest.fixture
def orders(make_lake: MakeLake) -> TestLake:
    lake = make_lake()
    with lake.duck() as duck:
        duck.execute(ORDERS)
    return lake


@pytest.fixture
def chain(lakemill: Lakemill, orders: TestLake, without_spark: None) -> TestLake:
    """`big` reads orders, `by_cust` reads big; neither is loaded."""
    ok(lakemill(orders, "create", CHAIN))
    return orders


@pytest.fixture(scope="module")
def shared(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestLake]:
    """One lake for what changes nothing."""
    with make_lakes(postgres, tmp_path_factory.mktemp("dynamic")) as make:
        lake = make()
        with lake.duck() as duck:
            duck.execute(ORDERS)
            duck.execute("CREATE VIEW cheap AS SELECT * FROM orders WHERE amount < 10")
        yield lake


# ---------------------------------------------------------------- create
def test_create_says_what_was_done(lakemill: Lakemill, orders: TestLake, tmp_path: Path, without_spark: None) -> None:
    file = tmp_path / "chain.sql"
    file.write_text(f"-- {CHAIN.splitlines()[0]}\n{CHAIN}")
    ran = ok(lakemill(orders, "create", "-f", file))
    assert ran.out.splitlines() == [
        "main.big: PENDING_INIT, nothing loaded",
        "  INCREMENTAL: every part of the query has a rule",
        "main.by_cust: PENDING_INIT, nothing loaded",
        "  INCREMENTAL: every part of the query has a rule",
    ]
    assert ran.err == "", "big is read by a later statement, so there is nothing to warn of"
    again = CHAIN.replace("CREATE DYNAMIC TABLE", "CREATE DYNAMIC TABLE IF NOT EXISTS")
    assert [one["kept"] for one in lakemill(orders, "create", again, "--format", "json").json] == [True, True]


def test_create_warns(lakemill: Lakemill, orders: TestLake) -> None:
    alone = "CREATE DYNAMIC TABLE big TARGET_LAG = DOWNSTREAM INITIALIZE = ON_SCHEDULE AS FROM orders"
    assert "warning: main.big will never be refreshed" in lakemill(orders, "create", alone).err
    (facts,) = lakemill(orders, "create", alone.replace("CREATE", "CREATE OR ALTER"), "--format", "json").json
    assert (facts["table"], facts["mode"], facts["definition_version"]) == ("main.big", "INCREMENTAL", 2)
    assert facts["warnings"][0]["remedy"] == "give it a TARGET_LAG"


def test_create_keeps_what_was_done_before_a_mistake(lakemill: Lakemill, orders: TestLake) -> None:
    ran = lakemill(orders, "create", f"{declared('a', 'FROM orders')};\n{declared('b', 'FROM nix')}")
    assert ran.code == 2
    assert "error[UNKNOWN_TABLE] line 2, column 81: there is no table or view main.nix" in ran.err
    assert "the one before it stays" in ran.err
    assert [one["table"] for one in lakemill(orders, "list", "--format", "json").json] == ["main.a"]


@pytest.mark.parametrize(
    ("words", "code", "about", "remedy"),
    [
        (("create",), "BAD_ARGUMENT", "either", "create --help"),
        (("create", " "), "BAD_STATEMENT", "no statement", "--help"),
        (("create", "SELECT 1"), "BAD_STATEMENT", "line 1, column 1: this is no CREATE", "lakemill sql"),
        (("create", "CREATE DYNAMIC TABLE x AS SELECT 1"), "BAD_STATEMENT", "TARGET_LAG is missing", "TARGET_LAG"),
        (("create", declared("cheap", "SELECT id FROM orders")), "TABLE_EXISTS", "main.cheap", "another name"),
        (("create", declared("x", "SELECT nix FROM orders")), "SQL_FAILED", "line 1, column 83", "correct"),
        (("create", declared("x", "SELECT random() AS r FROM orders")), "BAD_STATEMENT", "anew at every call", "now()"),
        (("create", declared("x", "SELECT 1 AS i, rowid FROM orders")), "BAD_STATEMENT", "column 91: rowid", "own"),
        (("create", declared("x", "SELECT id FRM orders")), "BAD_STATEMENT", "column 90: ", "just before"),
        (("create", declared("x (a, b)", "SELECT id FROM orders")), "BAD_STATEMENT", "column 24: ", "id: give"),
        (("create", declared("nix.x", "FROM orders")), "UNKNOWN_TABLE", "column 22: there is no", "CREATE SCHEMA"),
        (("create", declared("_lakemill.x", "FROM orders")), "BAD_STATEMENT", "column 22: _lakemill", "another schema"),
        (("create", declared("x", "FROM orders", "PARTITION BY (nix)")), "BAD_STATEMENT", "column 48: ", "id, cust"),
        (("create", declared("x", "FROM orders", "PARTITION BY (id + 1)")), "BAD_STATEMENT", "id + 1 is no", "bucket"),
        (("create", declared("x", "FROM orders", "PARTITION BY (year(id))")), "BAD_STATEMENT", "INTEGER", "cast it"),
        (("create", declared("x", "FROM orders", "SPARK_PROFILE = 'wide'")), "UNKNOWN_PROFILE", "column 48: ", "wide"),
        (("create", declared("x", "SELECT median(id) AS s FROM orders", "REFRESH_MODE = INCREMENTAL")),
         "NOT_INCREMENTAL", "no key", "group it"),
        (("describe", "nix"), "UNKNOWN_DYNAMIC_TABLE", "main.nix", "SHOW DYNAMIC TABLES"),
        (("describe", "orders"), "UNKNOWN_DYNAMIC_TABLE", "main.orders", "SHOW DYNAMIC TABLES"),
        (("explain", "nix"), "UNKNOWN_DYNAMIC_TABLE", "main.nix", "SHOW DYNAMIC TABLES"),
        (("history", "nix"), "UNKNOWN_DYNAMIC_TABLE", "main.nix", "SHOW DYNAMIC TABLES"),
        (("graph", "nix"), "UNKNOWN_DYNAMIC_TABLE", "main.nix", "SHOW DYNAMIC TABLES"),
        (("drop", "nix"), "UNKNOWN_DYNAMIC_TABLE", "main.nix", "SHOW DYNAMIC TABLES"),
        (("suspend", "nix"), "UNKNOWN_DYNAMIC_TABLE", "main.nix", "SHOW DYNAMIC TABLES"),
        (("suspend",), "BAD_ARGUMENT", "name a dynamic table", "suspend --help"),
        (("refresh",), "BAD_ARGUMENT", "names or --all", "refresh --help"),
        (("refresh", "x", "--all"), "BAD_ARGUMENT", "names or --all", "refresh --help"),
        (("refresh", "nix"), "UNKNOWN_DYNAMIC_TABLE", "main.nix", "SHOW DYNAMIC TABLES"),
        (("alter", "x"), "BAD_ARGUMENT", "--rename-to", "alter --help"),
        (("alter", "x", "--unset", "COMMENT", "--rename-to", "y"), "BAD_ARGUMENT", "--rename-to", "alter --help"),
        (("alter", "x", "--set", "TARGET_LAG=soon"), "BAD_STATEMENT", "--set TARGET_LAG=soon", "5 minutes"),
        (("alter", "x", "--set", "PRIORTY=1"), "BAD_STATEMENT", "--set PRIORTY=1", "write PRIORITY"),
        (("alter", "x", "--set", "PRIORITY"), "BAD_STATEMENT", "PRIORITY", "PRIORITY = 10"),
        (("alter", "x", "--set", "; DROP DYNAMIC TABLE y=1"), "BAD_STATEMENT", "--set", ""),
        (("alter", "x", "--unset", "TARGET_LAG"), "BAD_STATEMENT", "--unset TARGET_LAG", "SET TARGET_LAG"),
        (("sql", "ALTER DYNAMIC TABLE x SUSPENT"), "BAD_STATEMENT", "line 1, column 23", "SUSPEND"),
        (("sql", "--at", "1", "SHOW DYNAMIC TABLES"), "BAD_ARGUMENT", "--at", "leave --at out"),
        (("sql", "BEGIN; DROP DYNAMIC TABLE IF EXISTS x; COMMIT"), "BAD_STATEMENT", "transactions", "two scripts"),
    ],
)  # fmt: skip
def test_refused(
    lakemill: Lakemill,
    shared: TestLake,
    without_spark: None,
    words: tuple[str, ...],
    code: str,
    about: str,
    remedy: str,
) -> None:
    lakemill(shared, *words).failed(code, 2, about=about, remedy=remedy)
    assert lakemill(shared, "list").out == "no dynamic tables\n"


# ---------------------------------------------------------------- validate
def test_validate_a_chain(lakemill: Lakemill, shared: TestLake, without_spark: None) -> None:
    ran = ok(lakemill(shared, "validate", CHAIN))
    first, second = ran.out.split("\n\n")
    assert [line.split()[:2] for line in first.splitlines()] == [["✓", name] for name in (
        "syntax", "name", "sources", "types", "keys", "strategy", "dependencies", "properties", "warnings"
    )]  # fmt: skip
    assert "✓ sources       main.big (dynamic)" in second
    assert "✓ types         cust INTEGER (Spark: INT), n BIGINT (Spark: BIGINT)" in second
    assert "✓ keys          cust" in second
    assert lakemill(shared, "list").out == "no dynamic tables\n"


def test_validate_for_programs(lakemill: Lakemill, shared: TestLake, without_spark: None) -> None:
    text = declared("x", "SELECT o.cust, sum(c.amount) AS s FROM orders o JOIN cheap c USING (id) GROUP BY o.cust")
    (found,) = ok(lakemill(shared, "validate", text, "--format", "json")).json
    wanted = {
        "valid": True,
        "table_name": "main.x",
        "syntax_ok": True,
        "source_tables": ["main.orders", "main.cheap"],
        "all_sources_exist": True,
        "refresh_strategy": "INCREMENTAL",
        "group_by_columns": ["cust"],
        "dependencies": [],
        "warnings": [],
        "errors": [],
    }
    assert {key: found[key] for key in wanted} == wanted
    assert found["columns"][0] == {"name": "cust", "type": "INTEGER", "spark_type": "INT"}
    assert found["properties"] == {
        "target_lag": "1 minute", "refresh_mode": "AUTO", "strict": False, "cardinality_threshold": 0.3,
        "initialize": "ON_SCHEDULE", "scheduler": "ENABLE", "priority": 0, "spark_profile": None, "dialect": "duckdb",
        "comment": None, "partition_by": [],
    }  # fmt: skip
    text = declared("x", "FROM orders", "PARTITION BY (cust, year(day)) PRIORITY = 3")
    (found,) = lakemill(shared, "validate", text, *_JSON).json
    assert (found["properties"]["partition_by"], found["properties"]["priority"]) == (["cust", "year(day)"], 3)
    assert len(lakemill(shared, "validate", CHAIN, "--format", "json").json) == 2


@pytest.mark.parametrize(
    ("columns", "query", "keys"),
    [
        ("", "SELECT o.cust AS c, count(*) AS n FROM orders o GROUP BY o.cust", ["c"]),
        ("(customer, month, n)", "SELECT cust, date_trunc('month', day), count(*) FROM orders GROUP BY ALL",
         ["customer", "month"]),
        ("(n, month)", "SELECT count(*), date_trunc('month', day) FROM orders GROUP BY 2", ["month"]),
        ("", "SELECT count(*) AS n FROM orders GROUP BY cust", ["cust"]),
        ("", "SELECT cust + 1 AS one, count(*) AS n FROM orders GROUP BY one", ["one"]),
    ],
)  # fmt: skip
def test_validate_calls_keys_as_the_table_does(
    lakemill: Lakemill, shared: TestLake, columns: str, query: str, keys: list[str]
) -> None:
    found = ok(lakemill(shared, "validate", declared(f"x {columns}", query), *_JSON)).json[0]
    assert found["group_by_columns"] == keys


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("SELECT id FROM orders WHERE amount > 5 AND random() > 0.5", "random()"),
        ("SELECT id FROM orders AT (VERSION => 1)", "orders"),
        ("SELECT orders.rowid AS r FROM orders", "orders.rowid"),
        ("SELECT id, nix FROM orders", "nix"),
    ],
)
def test_validate_points_at_the_place(
    lakemill: Lakemill, shared: TestLake, without_spark: None, query: str, place: str
) -> None:
    text = declared("x", query)
    (error,) = lakemill(shared, "validate", text, "--format", "json").json[0]["errors"]
    assert error["place"] == f"line 1, column {text.index(place) + 1}"
    assert error["remedy"]


@pytest.mark.parametrize(
    ("text", "check", "code", "exists"),
    [
        ("CREATE DYNAMIC TABLE x AS SELECT 1", "syntax", "BAD_STATEMENT", False),
        ("SELECT 1", "syntax", "BAD_STATEMENT", False),
        ("", "syntax", "BAD_STATEMENT", False),
        (declared("x", "SELECT FROM WHERE"), "syntax", "BAD_STATEMENT", False),
        (declared("x", "SELECT * FROM orders AT (VERSION => 1)"), "syntax", "BAD_STATEMENT", False),
        (declared("orders", "SELECT 1 AS x"), "name", "TABLE_EXISTS", False),
        (declared("x", "SELECT 1 AS x FROM nix"), "sources", "UNKNOWN_TABLE", False),
        (declared("nix.x", "SELECT id FROM orders"), "name", "UNKNOWN_TABLE", False),
        (declared("_lakemill.x", "SELECT id FROM orders"), "name", "BAD_STATEMENT", False),
        (declared("x", "SELECT id FROM orders", "PARTITION BY (cust)"), "properties", "BAD_STATEMENT", True),
        (declared("x", "SELECT id FROM orders", "SPARK_PROFILE = 'nix'"), "properties", "UNKNOWN_PROFILE", True),
        (declared("x", "SELECT nix FROM orders"), "types", "SQL_FAILED", True),
        (declared("x", "SELECT id, id FROM orders"), "types", "BAD_STATEMENT", True),
        (declared("x", "SELECT count(DISTINCT cust) AS n FROM orders", "REFRESH_MODE = INCREMENTAL"),
         "strategy", "NOT_INCREMENTAL", True),
        (f"{declared('x', 'FROM orders')}; {declared('y', 'FROM x')};"
         f"{declared('x', 'FROM y').replace('CREATE', 'CREATE OR REPLACE')}", "dependencies", "CYCLE", True),
    ],
)  # fmt: skip
def test_validate_says_which_check_failed(
    lakemill: Lakemill, shared: TestLake, without_spark: None, text: str, check: str, code: str, exists: bool
) -> None:
    ran = lakemill(shared, "validate", text, "--format", "json")
    assert ran.code == 2
    found = ran.json[-1]
    assert [one["check"] for one in found["checks"] if one["verdict"] == "wrong"] == [check]
    assert (found["valid"], found["errors"][0]["code"], found["all_sources_exist"]) == (False, code, exists)
    assert lakemill(shared, "validate", text).out.count("✗") == 1
    assert lakemill(shared, "list").out == "no dynamic tables\n"


def test_validate_says_why_it_is_computed_whole(lakemill: Lakemill, shared: TestLake) -> None:
    ran = ok(lakemill(shared, "validate", declared("x", "SELECT count(DISTINCT cust) AS n FROM orders")))
    assert "! strategy      FULL: an aggregate over everything has no key → group it by something" in ran.out


# ---------------------------------------------------------------- looking
def test_list(lakemill: Lakemill, chain: TestLake) -> None:
    big, by_cust = lakemill(chain, "list", "--format", "json").json
    assert (big["table"], big["state"], big["target_lag"], big["effective_lag"]) == (
        "main.big", "PENDING_INIT", "DOWNSTREAM", 600.0,
    )  # fmt: skip
    assert by_cust["lag"] > 0, "nothing is there since it was declared"
    assert (by_cust["rows"], by_cust["last_action"]) == (None, None)
    assert by_cust["next_due"] is not None, "what was never loaded is due at once"
    assert "every part of the query has a rule" in lakemill(chain, "list").out
    assert [one["table"] for one in lakemill(chain, "list", "--like", "BY%", "--format", "json").json] == [
        "main.by_cust"
    ]
    assert lakemill(chain, "list", "--like", "nix").out == "no dynamic tables are like nix\n"
    assert lakemill(chain, "sql", "SHOW DYNAMIC TABLES LIKE 'b%'").out.count("PENDING_INIT") == 2


def test_how_far_a_refresh_is(lakemill: Lakemill, chain: TestLake) -> None:
    with door.open(chain.settings) as lake:
        table = definitions.get(lake.conn, parse_name("big"))
        record = RefreshRecord(uuid4(), table.id, table.name, 1, Trigger.MANUAL, table.created_at)
        history.save_refresh(lake.conn, record)
        history.tell_progress(lake.conn, record.id, "compute: 3 of 8 tasks of 2 stages, 14 s")
    big, by_cust = lakemill(chain, "list", *_JSON).json
    assert (big["progress"], by_cust["progress"]) == ("compute: 3 of 8 tasks of 2 stages, 14 s", None)
    assert "EXECUTING, compute: 3 of 8 tasks" in " ".join(lakemill(chain, "list").out.split())


def test_describe(lakemill: Lakemill, chain: TestLake) -> None:
    found = lakemill(chain, "describe", "BY_CUST", "--format", "json").json
    assert found["definition"].startswith("CREATE DYNAMIC TABLE main.by_cust\n  TARGET_LAG = '10 minutes'\n")
    assert found["columns"] == [{"name": "cust", "type": "INTEGER"}, {"name": "n", "type": "BIGINT"}]
    assert [(one["name"], one["kind"], one["columns"], one["commit"]) for one in found["sources"]] == [
        ("main.big", "DYNAMIC", ["cust"], None)
    ]
    assert lakemill(chain, "describe", "big", "--format", "json").json["consumers"] == ["main.by_cust"]
    shown = lakemill(chain, "describe", "by_cust").out
    assert lakemill(chain, "sql", "DESC DYNAMIC TABLE by_cust").out.splitlines()[0] == shown.splitlines()[0]
    definition = shown.partition(";\n")[0]
    assert ok(lakemill(chain, "create", definition.replace("CREATE", "CREATE OR ALTER"))).err == ""


def test_graph(lakemill: Lakemill, chain: TestLake) -> None:
    assert lakemill(chain, "graph").out.splitlines() == [
        "main.orders",
        "└─ main.big · DOWNSTREAM (10 minutes)",
        "   └─ main.by_cust · 10 minutes",
    ]
    assert lakemill(chain, "graph", "by_cust", "--as", "mermaid").out.startswith("flowchart LR\n")
    for words in (("--as", "json"), ("--format", "json")):
        edges = lakemill(chain, "graph", "big", *words).json["edges"]
        assert edges == [{"from": "main.orders", "to": "main.big"}, {"from": "main.big", "to": "main.by_cust"}]
    rows = lakemill(chain, "graph", "--format", "csv").out.splitlines()
    assert rows == ["source,table", "main.orders,main.big", "main.big,main.by_cust"]


def test_explain_asks_no_spark(lakemill: Lakemill, chain: TestLake) -> None:
    found = lakemill(chain, "explain", "big", "--format", "json").json
    assert (found["action"], found["reason_code"], found["incremental_bytes"]) == ("INITIALIZE", "FIRST_LOAD", None)
    assert found["full_bytes"] > 0
    assert [(one["name"], one["rows"], one["a"], one["b"]) for one in found["sources"]] == [
        ("main.orders", 100, None, 2)
    ]
    shown = lakemill(chain, "sql", "EXPLAIN REFRESH big").out
    assert "whole query" in shown
    assert "spark profile" not in shown, "it is fitted to the size, as always"
    few = ("--set", "spark.batch_keys=99", "--set", "spark.staged_keys=50")
    found = lakemill("-C", chain.settings.root, *few, "explain", "big", *_JSON).json
    assert (found["spark_profile"], found["affected_keys"], found["batches"]) == ("batch", 100, 2)
    told = "batch: up to 100 keys are affected, above spark.batch_keys = 99, staged in 2 parts"
    assert told in " ".join(lakemill("-C", chain.settings.root, *few, "explain", "big").out.split())
    found = lakemill(chain, "explain", "by_cust", "--format", "json").json
    assert (found["action"], found["waits_for"]) == (None, ["main.big"])
    assert [one["action"] for one in found["first"]] == ["INITIALIZE"]
    assert lakemill(chain, "explain", "by_cust").out.splitlines() == [
        "first, because it is read: main.big: INITIALIZE, it was never loaded",
        "main.by_cust: known when main.big is refreshed",
    ]


# ---------------------------------------------------------------- changing
def test_alter(lakemill: Lakemill, chain: TestLake) -> None:
    sets = ("target_lag=DOWNSTREAM", "COMMENT='it''s'", "PRIORITY=5")
    ok(lakemill(chain, "alter", "by_cust", *(word for pair in sets for word in ("--set", pair))))
    definition = lakemill(chain, "describe", "by_cust", "--format", "json").json["definition"]
    assert "TARGET_LAG = DOWNSTREAM" in definition
    assert "COMMENT = 'it''s'" in definition
    found = lakemill(chain, "alter", "by_cust", "--unset", "comment", "--unset", "PRIORITY", "--format", "json").json
    assert found["properties"] == "TARGET_LAG = DOWNSTREAM, INITIALIZE = ON_SCHEDULE"
    assert found["definition_version"] == 3
    assert lakemill(chain, "alter", "by_cust", "--rename-to", "other", "--format", "json").json["table"] == "main.other"
    assert lakemill(chain, "describe", "by_cust").code == 2
    ok(lakemill(chain, "alter", "big", "--rename-to", "bigger"))
    assert [one["name"] for one in lakemill(chain, "describe", "other", "--format", "json").json["sources"]] == [
        "main.bigger"
    ]
    ran = lakemill(chain, "sql", "ALTER DYNAMIC TABLE other SET SPARK_PROFILE = 'bach'")
    ran.failed("UNKNOWN_PROFILE", 2, about="line 1, column 1: ", remedy="write 'batch'")
    ok(lakemill(chain, "alter", "other", "--set", "SPARK_PROFILE='batch'"))
    ran = ok(lakemill(chain, "sql", "ALTER DYNAMIC TABLE IF EXISTS nix SET PRIORITY = 1"))
    assert "nothing was changed" in ran.err


def test_rename_in_other_letters_and_schemas(lakemill: Lakemill, chain: TestLake) -> None:
    ok(lakemill(chain, "sql", "CREATE SCHEMA o; CREATE TABLE big (cust INTEGER)"))
    ok(lakemill(chain, "sql", "CREATE VIEW v AS SELECT cust FROM big; DROP TABLE big"))
    ok(lakemill(chain, "create", declared("over", "FROM v")))
    assert lakemill(chain, "alter", "by_cust", "--rename-to", "BY_Cust", *_JSON).json["table"] == "main.BY_Cust"
    assert lakemill(chain, "alter", "by_cust", "--rename-to", "o.by_cust", *_JSON).json["table"] == "o.by_cust"
    lakemill(chain, "alter", "big", "--rename-to", "nix.big").failed("UNKNOWN_TABLE", 2, about="nix", remedy="CREATE")
    lakemill(chain, "alter", "big", "--rename-to", "_lakemill.b").failed("BAD_STATEMENT", 2, about="_l", remedy="anoth")
    lakemill(chain, "alter", "big", "--rename-to", "orders").failed("TABLE_EXISTS", 2, about="orders", remedy="another")
    assert ok(lakemill(chain, "alter", "big", "--rename-to", "BIG")).err == ""
    ran = ok(lakemill(chain, "alter", "big", "--rename-to", "o.big"))
    assert "warning: the view main.v still reads main.big → CREATE OR REPLACE VIEW main.v" in ran.err
    ran = lakemill(chain, "alter", "over", "--set", "PRIORITY=1")
    ran.failed("UNKNOWN_TABLE", 2, about="main.big, which the view main.v reads", remedy="OR REPLACE VIEW main.v")
    ok(lakemill(chain, "sql", "DROP VIEW v"))
    ran = lakemill(chain, "alter", "over", "--set", "PRIORITY=1")
    ran.failed("UNKNOWN_TABLE", 2, about="line 1, column 1: there is no table or view main.v", remedy="tables")


def test_names_are_told_with_the_place_of_the_statement(lakemill: Lakemill, chain: TestLake) -> None:
    for text, code, at in (
        ("DROP DYNAMIC TABLE big", "HAS_DEPENDENTS", "big"),
        ("ALTER DYNAMIC TABLE nix SUSPEND", "UNKNOWN_DYNAMIC_TABLE", "nix"),
        ("ALTER DYNAMIC TABLE big, nix REFRESH", "UNKNOWN_DYNAMIC_TABLE", "nix"),
        ("ALTER DYNAMIC TABLE nix SET PRIORITY = 1", "UNKNOWN_DYNAMIC_TABLE", "nix"),
        ("DESCRIBE DYNAMIC TABLE main.nix", "UNKNOWN_DYNAMIC_TABLE", "main.nix"),
        ("EXPLAIN REFRESH nix", "UNKNOWN_DYNAMIC_TABLE", "nix"),
        ("ALTER DYNAMIC TABLE nix RENAME TO y", "UNKNOWN_DYNAMIC_TABLE", "nix"),
        ("ALTER DYNAMIC TABLE big RENAME TO orders", "TABLE_EXISTS", "orders"),
        ("ALTER DYNAMIC TABLE big RENAME TO nowhere.x", "UNKNOWN_TABLE", "nowhere"),
        ("REFRESH DYNAMIC TABLE big", "BAD_STATEMENT", "REFRESH"),
    ):
        place = f"line 2, column {2 + text.index(at)}: "
        lakemill(chain, "sql", f"/* a mistake */\n {text}").failed(code, 2, about=place, remedy="")
    cycle = declared("big", "SELECT cust AS id FROM by_cust").replace("CREATE", "CREATE OR REPLACE")
    lakemill(chain, "create", cycle).failed("CYCLE", 2, about="line 1, column 89: ", remedy="base table")
    lakemill(chain, "point", "big").failed("NO_COMMON_POINT", 2, about="main.big: never loaded", remedy="refresh")


def test_a_table_is_told_by_what_it_is(lakemill: Lakemill, chain: TestLake, without_spark: None) -> None:
    ok(lakemill(chain, "sql", "CREATE VIEW few AS FROM orders"))
    for words in (("refresh",), ("describe",), ("history",), ("suspend",), ("drop",), ("verify",)):
        told = "main.orders is a plain table, not a dynamic table"
        lakemill(chain, *words, "orders").failed("UNKNOWN_DYNAMIC_TABLE", 2, about=told, remedy="fresh by itself")
    lakemill(chain, "explain", "few").failed("UNKNOWN_DYNAMIC_TABLE", 2, about="main.few is a view", remedy="SHOW")
    lakemill(chain, "sql", "REFRESH DYNAMIC TABLE big").failed("BAD_STATEMENT", 2, remedy="ALTER DYNAMIC TABLE name")


def test_a_column_that_others_use_is_missed(lakemill: Lakemill, chain: TestLake) -> None:
    text = declared("big", "SELECT id FROM orders").replace("CREATE", "CREATE OR REPLACE")
    told = "main.by_cust uses cust, which main.big does not have"
    assert told in lakemill(chain, "validate", text).out
    assert f"warning: {told} → CREATE OR REPLACE main.by_cust too" in ok(lakemill(chain, "create", text)).err


def test_resume_waits_for_what_is_still_suspended(lakemill: Lakemill, chain: TestLake) -> None:
    ok(lakemill(chain, "create", declared("top", "SELECT n FROM by_cust")))

    def states() -> dict[str, Any]:
        return {one["table"][5:]: one["state"] for one in lakemill(chain, "list", *_JSON).json}

    ok(lakemill(chain, "suspend", "big", "top"))
    assert states() == {"big": "SUSPENDED", "by_cust": "UPSTREAM_SUSPENDED", "top": "SUSPENDED"}
    ran = ok(lakemill(chain, "resume", "top", *_JSON))
    assert (ran.json[0]["state"], ran.json[0]["reason"]) == ("UPSTREAM_SUSPENDED", "main.big is suspended")
    ok(lakemill(chain, "create", declared("new", "SELECT cust FROM by_cust")))
    assert states() == {"big": "SUSPENDED", "by_cust": "UPSTREAM_SUSPENDED"} | dict.fromkeys(
        ("top", "new"), "UPSTREAM_SUSPENDED"
    )
    ok(lakemill(chain, "create", declared("new", "SELECT id FROM orders").replace("CREATE", "CREATE OR REPLACE")))
    assert states()["new"] == "PENDING_INIT", "it does not read it any more"
    ok(lakemill(chain, "resume", "big"))
    assert set(states().values()) == {"PENDING_INIT"}


def test_suspend_and_resume(lakemill: Lakemill, chain: TestLake) -> None:
    def states(ran: Ran) -> dict[str, Any]:
        return {row["table"]: (row["state"], row["changed"]) for row in ok(ran).json}

    assert states(lakemill(chain, "suspend", "big", "--format", "json")) == {
        "main.big": ("SUSPENDED", True), "main.by_cust": ("UPSTREAM_SUSPENDED", True),
    }  # fmt: skip
    assert states(lakemill(chain, "suspend", "big", "--format", "json")) == {"main.big": ("SUSPENDED", False)}
    assert "by hand" in lakemill(chain, "list").out
    assert all(one["next_due"] is None for one in lakemill(chain, "list", "--format", "json").json)
    assert states(lakemill(chain, "sql", "ALTER DYNAMIC TABLE big RESUME", "--format", "json")) == {
        "main.big": ("PENDING_INIT", True), "main.by_cust": ("PENDING_INIT", True),
    }  # fmt: skip


def test_drop(lakemill: Lakemill, chain: TestLake) -> None:
    lakemill(chain, "drop", "big").failed("HAS_DEPENDENTS", 2, about="main.by_cust", remedy="CASCADE")
    assert lakemill(chain, "drop", "big", "--cascade").out == "main.big: dropped\nmain.by_cust: dropped\n"
    assert lakemill(chain, "drop", "big", "--if-exists", "--format", "json").json == []
    assert "nothing was dropped" in ok(lakemill(chain, "sql", "DROP DYNAMIC TABLE IF EXISTS big")).out


# ---------------------------------------------------------------- in scripts
def test_a_script_with_ours_runs_statement_by_statement(
    lakemill: Lakemill, lake: TestLake, tmp_path: Path, without_spark: None
) -> None:
    file = tmp_path / "all.sql"
    file.write_text(f"{ORDERS};\n{CHAIN}SELECT count(*) AS n FROM orders;\nSHOW DYNAMIC TABLES;\n")
    ran = ok(lakemill(lake, "sql", "-f", file))
    assert ran.out.startswith("100 rows inserted\nmain.big: PENDING_INIT")
    assert ran.out.count("PENDING_INIT") == 4
    assert len(lakemill(lake, "snapshots", "--format", "json").json) == 3, "CREATE TABLE and INSERT by themselves"
    file.write_text("INSERT INTO orders VALUES (1, 1, 1, NULL);\nDROP DYNAMIC TABLE big;\nSELECT 1;\n")
    ran = lakemill(lake, "sql", "-f", file)
    assert ran.code == 2
    assert "error[HAS_DEPENDENTS]" in ran.err
    assert "the 1 before it is committed" in ran.err
    file.write_text("DROP DYNAMIC TABLE by_cust;\nSELECT\n  nix FROM orders;\n")
    assert f"error[UNKNOWN_COLUMN] {file}:3:3: " in lakemill(lake, "sql", "-f", file).err
    file.write_text("DROP DYNAMIC TABLE big;\nSELEKT 1;\n")
    lakemill(lake, "sql", "-f", file).failed("SQL_FAILED", 2, about=f"{file}:2:1", remedy="nothing was changed")
    assert len(lakemill(lake, "list", "--format", "json").json) == 1


def test_a_script_that_only_mentions_our_words_is_one_snapshot(lakemill: Lakemill, lake: TestLake) -> None:
    ok(lakemill(lake, "sql", "CREATE TABLE dynamic (refresh INT); INSERT INTO dynamic VALUES (1)"))
    assert [row["snapshot"] for row in lakemill(lake, "snapshots", "--format", "json").json] == [1, 0]


# ---------------------------------------------------------------- refreshes that fail
def test_a_failure_is_told_recorded_and_goes_down(lakemill: Lakemill, chain: TestLake) -> None:
    ok(lakemill(chain, "sql", "DROP TABLE orders"))
    ran = lakemill(chain, "refresh", "by_cust")
    assert ran.code == 2
    first, second = ran.out.splitlines()
    assert first.startswith("main.big: FAILED, UNKNOWN_TABLE: ")
    assert second.startswith("main.by_cust: UPSTREAM_FAILED, UPSTREAM_FAILED: main.big could not be refreshed")
    assert ran.err.startswith("error[UNKNOWN_TABLE] main.big: ")
    newest, older = lakemill(chain, "history", "--format", "json").json
    assert (newest["table"], newest["outcome"], newest["error_code"]) == (
        "main.by_cust", "UPSTREAM_FAILED", "UPSTREAM_FAILED",
    )  # fmt: skip
    assert (older["table"], older["trigger"], older["action"], older["rows_in"]) == ("main.big", "MANUAL", None, None)
    shown = lakemill(chain, "history", "big").out
    assert "unknown" in shown
    assert "UNKNOWN_TABLE" in shown
    assert lakemill(chain, "history", "--limit", "1", "--format", "json").json == [newest]
    assert lakemill(chain, "history", "--limit", "0", "--format", "json").json == [newest, older]
    listed = lakemill(chain, "list", "--format", "json").json[0]
    assert (listed["last_outcome"], listed["last_error"][:13]) == ("FAILED", "UNKNOWN_TABLE")


def test_history_outlives_its_table(lakemill: Lakemill, chain: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakemill.runtime.refresh.Refresh.planned", Mock(side_effect=UnknownTable("gone")))
    assert lakemill(chain, "create", declared("Boom", "SELECT id FROM orders", "")).code == 2
    (record,) = ok(lakemill(chain, "history", "boom", *_JSON)).json
    assert (record["table"], record["trigger"], record["outcome"]) == ("main.Boom", "CREATION", "FAILED")
    assert lakemill(chain, "refresh", "big").code == 2
    before = lakemill(chain, "history", "big", *_JSON).json
    ok(lakemill(chain, "drop", "big", "--cascade"))
    assert ok(lakemill(chain, "history", "main.big", *_JSON)).json == before
    ok(lakemill(chain, "create", declared("big", "SELECT id FROM orders")))
    assert ok(lakemill(chain, "history", "big", *_JSON)).json == [], "another table, which was not refreshed yet"
    lakemill(chain, "history", "nix").failed("UNKNOWN_DYNAMIC_TABLE", 2, about="main.nix", remedy="SHOW")


def test_a_mistake_of_ours_is_told_after_all_were_tried(
    lakemill: Lakemill, chain: TestLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok(lakemill(chain, "create", declared("alone", "SELECT id FROM orders")))
    monkeypatch.setattr("lakemill.runtime.refresh.Refresh.planned", Mock(side_effect=RuntimeError("two\nlines")))
    ran = lakemill(chain, "refresh", "--all")
    assert (ran.code, len(ran.err.splitlines())) == (70, 1)
    assert "error[INTERNAL_ERROR] main.alone: RuntimeError: two → " in ran.err
    assert [line.split(",")[0] for line in ran.out.splitlines()] == [
        "main.alone: FAILED", "main.big: FAILED", "main.by_cust: UPSTREAM_FAILED",
    ]  # fmt: skip
    monkeypatch.setenv("LAKEMILL_DEBUG", "1")
    assert "Traceback" in lakemill(chain, "refresh", "--all").err


def test_a_recorded_error_has_the_exit_code_of_its_class() -> None:
    error = failure.recorded("STRICT_REFUSED", "a view changed, and it is STRICT → REFRESH … FULL loads it", "main.x")
    assert isinstance(error, StrictRefused)
    assert (error.exit_code, error.remedy) == (3, "REFRESH … FULL loads it")
    assert failure.recorded(None, "gone", "main.x").code == "REFRESH_FAILED"


def test_a_failed_load_has_one_remedy(lakemill: Lakemill, orders: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = WrongType("a value can't be computed", remedy="change the value")
    monkeypatch.setattr("lakemill.runtime.refresh.Refresh.planned", Mock(side_effect=wrong))
    text = f"{declared('a', 'SELECT id FROM orders')}; {declared('b', 'SELECT id FROM orders', '')}"
    told = (
        "error[REFRESH_FAILED] main.b could not be loaded: WRONG_TYPE: a value can't be computed → change the value; "
    )
    ran = lakemill(orders, "sql", text)
    assert (ran.code, ran.err) == (2, f"{told}the 1 before it is committed\n")
    ok(lakemill(orders, "drop", "a"))
    assert lakemill(orders, "create", text).err.splitlines()[-1] == f"{told}the one before it stays"


def test_nothing_to_refresh(lakemill: Lakemill, lake: TestLake, without_spark: None) -> None:
    assert ok(lakemill(lake, "refresh", "--all")).out == "no dynamic tables\n"
    assert lakemill(lake, "refresh", "--all", "--format", "json").json == []
    assert lakemill(lake, "history").out == "no refreshes yet\n"
    assert lakemill(lake, "graph").out == "no dynamic tables\n"


# ---------------------------------------------------------------- from Python
def test_every_statement_from_python(orders: TestLake, without_spark: None) -> None:
    with door.open(orders.settings) as lake:
        created = lake.execute(declared("big", "SELECT * FROM orders WHERE amount > 30"))
        assert isinstance(created, Created)
        assert created.table.state is State.PENDING_INIT
        lake.execute(declared("n", "SELECT cust, count(*) AS n FROM big GROUP BY cust"))
        assert lake.execute("ALTER DYNAMIC TABLE big SUSPEND") == ("main.big", "main.n") == lake.resume("big")
        assert lake.suspend("n") == ("main.n",) == lake.execute("ALTER DYNAMIC TABLE n RESUME")
        changed = lake.execute("ALTER DYNAMIC TABLE n SET PRIORITY = 3")
        assert isinstance(changed, DynamicTable)
        assert changed.definition.priority == 3
        renamed = lake.execute("ALTER DYNAMIC TABLE n RENAME TO m")
        assert isinstance(renamed, DynamicTable)
        assert str(renamed.name) == "main.m"
        assert lake.execute("ALTER DYNAMIC TABLE IF EXISTS nix RENAME TO m") is None
        assert lake.execute("ALTER DYNAMIC TABLE IF EXISTS nix REFRESH") == ()
        listed, described = lake.execute("SHOW DYNAMIC TABLES LIKE 'm'"), lake.execute("DESCRIBE DYNAMIC TABLE m")
        assert isinstance(listed, tuple)
        assert isinstance(described, Described)
        assert listed[0] == replace(described.shown, due=listed[0].due, lag=listed[0].lag)
        assert [one.name.name for one in lake.explain("m")] == ["big", "m"]
        assert len(lake.execute("EXPLAIN REFRESH m") or ()) == 2
        with pytest.raises(HasDependents, match=r"main\.m") as refused:
            lake.execute("DROP DYNAMIC TABLE big")
        assert refused.value.place == "line 1, column 20"
        assert lake.execute("DROP DYNAMIC TABLE big CASCADE") == ("main.big", "main.m")


@pytest.mark.parametrize(
    ("method", "text", "place", "remedy"),
    [
        ("sql", "SHOW DYNAMIC TABLES", "line 1, column 1", "lake.execute"),
        ("sql", "SELECT 1;\nALTER DYNAMIC TABLE a REFRESH", "line 2, column 1", "lake.execute"),
        ("execute", "SELECT 1", "line 1, column 1", "lake.sql"),
        ("execute", "SHOW DYNAMIC TABLES; SHOW DYNAMIC TABLES", "line 1, column 22", "once for each"),
        ("execute", "", "line 1, column 1", "once for each"),
    ],
)
def test_each_method_names_the_other(shared: TestLake, method: str, text: str, place: str, remedy: str) -> None:
    with door.open(shared.settings) as lake, pytest.raises(BadStatement) as refused:
        getattr(lake, method)(text)
    assert refused.value.place == place
    assert remedy in refused.value.remedy


# ---------------------------------------------------------------- with Spark
def status(lake: TestLake) -> tuple[Any, ...] | None:
    """What the view tells of the one table: whether it is behind, whether it says by which commit, rows, bytes."""
    with db.connect(lake.dsn) as conn:
        return conn.execute(
            "SELECT lag > interval '0', changed_by > data_snapshot IS TRUE, rows, bytes"
            " FROM lakemill.dynamic_table_status"
        ).fetchone()


def test_a_table_is_loaded_and_refreshed(lakemill: Lakemill, orders: TestLake, spark: Any) -> None:
    ran = ok(lakemill(orders, "create", declared("by_day", "SELECT day, count(*) AS n FROM orders GROUP BY day", "")))
    assert ran.out.startswith("main.by_day: INITIALIZE, +5 −0 rows, ")
    (listed,) = lakemill(orders, "list", "--format", "json").json
    assert (listed["state"], listed["lag"], listed["rows"], listed["next_due"]) == ("ACTIVE", 0.0, 5, None)
    assert status(orders) == (False, False, 5, listed["bytes"])
    assert ok(lakemill(orders, "refresh", "by_day")).out.startswith("main.by_day: NO_DATA, ")

    ok(lakemill(orders, "sql", "INSERT INTO orders VALUES (1000, 1, 1, DATE '2026-01-01')"))
    (listed,) = lakemill(orders, "list", "--format", "json").json
    assert listed["lag"] > 0
    assert listed["next_due"] is not None
    assert status(orders) == (True, True, 5, listed["bytes"])
    plan = lakemill(orders, "explain", "by_day", "--format", "json").json
    assert (plan["action"], plan["sources"][0]["delta_rows"], plan["sources"][0]["only_inserts"]) == ("MERGE", 1, True)
    assert (listed["refresh_mode"], listed["strict"], listed["comment"]) == ("AUTO", False, None)
    (done,) = ok(lakemill(orders, "refresh", "by_day", "--format", "json")).json
    assert (done["action"], done["rows_inserted"], done["rows_deleted"]) == (plan["action"], 1, 1)
    assert done["b"] == plan["b"]
    changed = done["rows_inserted"] + done["rows_deleted"]
    assert done["dedup_ratio"] == (1 - changed / done["rows_recomputed"] if done["rows_recomputed"] else None)
    assert ok(lakemill(orders, "sql", "ALTER DYNAMIC TABLE by_day REFRESH FULL")).out.startswith(
        "main.by_day: FULL, +0 −0 rows, "
    )
    found = lakemill(orders, "describe", "by_day", "--format", "json").json
    assert [(one["name"], one["rows"]) for one in found["sources"]] == [("main.orders", 101)]
    assert found["sources"][0]["commit"] == found["data_snapshot"]
    actions = [one["action"] for one in lakemill(orders, "history", "by_day", "--format", "json").json]
    assert actions == ["FULL", "MERGE", "NO_DATA", "INITIALIZE"]
    assert "commit" in ok(lakemill(orders, "describe", "by_day")).out
    shown = ok(lakemill(orders, "history")).out
    assert "look" in shown
    assert "executors" in shown
    assert "main.orders" not in shown
    assert (done["spark_executors"], done["spilled_bytes"], done["spark_profile"]) == (1, 0, None)
    assert done["spark_tasks"] >= done["spark_jobs"] > 0
    shown_of_one = ok(lakemill(orders, "history", "by_day")).out
    assert f"main.orders {done['a']} → {done['b']}: 1 row" in shown_of_one
    assert "main.orders at 2 " in shown_of_one
    assert list(done["phases"]) == ["look", "start", "prepare", "compute", "write", "publish"]
    assert sum(done["phases"].values()) <= done["seconds"]
    before = lakemill(orders, "describe", "by_day", *_JSON).json["versions"]
    ok(lakemill(orders, "alter", "by_day", "--set", "PRIORITY=1"))
    after = lakemill(orders, "describe", "by_day", *_JSON).json["versions"]
    assert [one["b_hi"] for one in after] == [one["b_hi"] for one in before], "the same content, newest first"
    assert after[0] == {**before[0], "definition_version": 2}
    (base, own) = ok(lakemill(orders, "point", "orders", "by_day", *_JSON)).json
    assert (base["snapshot"], own["snapshot"]) == (own["data_snapshot"], after[0]["commit"])
    assert own["pinned_until"] > own["data_time"]
    with duck.connect(orders.settings, orders.dsn, attach=False) as session:
        for extension in ("ducklake", "postgres_scanner"):  # from the wheels: a test fetches nothing
            duck.load_extension(session, extension)
        lines = ok(lakemill(orders, "point", "orders", "by_day", "--sql", "--show-secrets")).out.splitlines()
        session.execute("\n".join(line for line in lines if not line.startswith(("INSTALL", "LOAD"))))
        assert session.execute("SELECT (SELECT sum(n) FROM by_day), count(*) FROM orders").fetchall() == [(101, 101)]
    assert shown.count("unknown") == 1, "only what a first load changed can't be told"
    ok(lakemill(orders, "sql", "ALTER TABLE orders ALTER day TYPE TIMESTAMP"))
    before = lakemill(orders, "describe", "by_day", "--format", "json").json["definition_version"]
    assert lakemill(orders, "explain", "by_day").code != 0, "its column has another type by now"
    assert lakemill(orders, "describe", "by_day", "--format", "json").json["definition_version"] == before


def test_each_table_is_judged_by_itself(lakemill: Lakemill, orders: TestLake, spark: Any) -> None:
    ok(lakemill(orders, "create", declared("good", "SELECT id FROM orders WHERE id < 3", "")))
    ok(lakemill(orders, "create", declared("bad", "SELECT id, amount FROM orders WHERE id < 2", "")))
    before = lakemill(orders, "snapshots", *_JSON).json[-1]["snapshot"]
    ok(lakemill(orders, "sql", "UPDATE bad SET amount = 7.25 WHERE id = 1"))
    dropped = lakemill(orders, "sql", "INSERT INTO orders VALUES (1, 1, 1, NULL);\ndrop table if exists Main.BAD")
    told = "line 2, column 22: Main.BAD is a dynamic table"
    dropped.failed("BAD_STATEMENT", 2, about=told, remedy="DROP DYNAMIC TABLE")
    ok(lakemill(orders, "sql", "CREATE TABLE gone (x INT); DROP TABLE gone"))
    ran = lakemill(orders, "verify", "nix", "good", "bad")
    assert ran.code == 1, "a table that differs weighs more than one that can't be judged"
    assert ran.out.splitlines()[0].startswith("main.good equals its query at data snapshot ")
    assert ran.out.splitlines()[1].endswith(": 1 missing, 1 extra")
    assert ran.err.startswith("error[UNKNOWN_DYNAMIC_TABLE] there is no dynamic table main.nix → ")
    ran = lakemill(orders, "verify", "good", "bad", "nix", *_JSON)
    good, bad, nix = ran.json
    assert (good["equal"], good["examples"], bad["missing"], bad["extra"]) == (True, [], 1, 1)
    assert bad["examples"] == [
        {"side": "missing", "row": {"id": 1, "amount": 1.5}}, {"side": "extra", "row": {"id": 1, "amount": 7.25}},
    ]  # fmt: skip
    assert (nix["equal"], nix["error_code"]) == (None, "UNKNOWN_DYNAMIC_TABLE")
    assert list(good) == list(nix)
    ran = lakemill(orders, "verify", "nix", "good")
    assert (ran.code, len(ran.out.splitlines())) == (2, 1)
    lakemill(orders, "verify", "good", "--at", before).failed(
        "UNKNOWN_SNAPSHOT", 2, about="main.good had no content yet", remedy="leave --at out"
    )
    lakemill(orders, "verify", "good", "--at", 999).failed("UNKNOWN_SNAPSHOT", 2, remedy="lakemill snapshots")
    ok(lakemill(orders, "sql", "CREATE TABLE other (x INTEGER); INSERT INTO other VALUES (1)", "--each"))
    quiet = lakemill(orders, "snapshots", *_JSON).json[1]["snapshot"]
    ok(lakemill(orders, "sql", f"CALL ducklake_expire_snapshots('lake', versions => [{quiet}])"))
    gone = lakemill(orders, "verify", "good", "bad", "--at", quiet)
    assert (gone.code, gone.out) == (3, ""), gone.err
    assert gone.err.count("error[SNAPSHOT_GONE] main.") == 2
    assert "read the table at" not in gone.err


def test_the_door_for_python(orders: TestLake, spark: Any) -> None:
    with door.open(orders.settings) as lake:
        created = lake.create(declared("big", "SELECT * FROM orders WHERE amount > 30", ""))
        assert [record.action for record in created.records] == [Action.INITIALIZE]
        lake.create(declared("n", "SELECT cust, count(*) AS n FROM big GROUP BY cust"))
        lake.sql("DELETE FROM orders WHERE cust = 3")
        big, n = lake.refresh("n")
        lake.sql("CREATE TABLE other (x INTEGER)")
        (n_only,) = explain_chain(lake, parse_name("n"))  # big is behind, and nothing changed for it
        assert n_only.planned is not None
        assert n_only.planned[0].action is Action.NO_DATA
        assert (big.outcome, big.rows_deleted, n.action) == (Outcome.SUCCEEDED, 8, Action.INITIALIZE)
        assert [(shown.name.name, shown.rows) for shown in lake.dynamic_tables()] == [("big", 71), ("n", 9)]
        assert [record.action for record in lake.history("big", limit=1)] == [big.action]
        assert len(lake.history("big", limit=0)) == 2
        assert lake.verify("big").equal
        at = lake.point("orders", "big", "n")
        assert [table.snapshot for table in at.tables] == [at.b, big.commit, n.commit]
        assert lake.drop("big", cascade=True) == ("main.big", "main.n")
        assert lake.dynamic_tables() == ()
