"""What a stranger's SQL may contain: the allow-list over DuckDB's tree, and the second opinion on the text."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

import duckdb
import pytest

from lakemill.core.allowed import Allowed, allowed
from lakemill.core.harmless import BOUND_SPECIALLY, FUNCTIONS, REFUSED, REFUSED_PREFIXES, TABLE_FUNCTIONS
from lakemill.core.reading import check_kinds, check_text, tree_of, without_end
from lakemill.errors import BadStatement, LakemillError, QueryRefused

LONGEST = 10_000


@pytest.fixture(scope="module")
def engine() -> Any:
    with duckdb.connect() as connection:
        yield connection


def judged(engine: Any, text: str) -> Allowed:
    """As the gateway does it."""
    check_text(text, LONGEST)
    check_kinds([statement.type.name for statement in engine.extract_statements(text)])
    options = "skip_null := true, skip_empty := true, skip_default := true"
    return allowed(tree_of(engine.execute(f"SELECT json_serialize_sql($1, {options})", [text]).fetchone()[0]), text)


def tables(engine: Any, text: str) -> list[str]:
    found = judged(engine, text).tables
    return [f"{table.schema}.{table.name}" if table.schema else table.name for table in found]


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("SELECT 1", []),
        ("FROM t", ["t"]),
        ("TABLE t", ["t"]),
        ("VALUES (1), (2)", []),
        ("SELECT * FROM Sales.Orders o JOIN lake.main.x USING (id)", ["Sales.Orders", "main.x"]),
        ('SELECT * FROM "my schema"."a.b"', ["my schema.a.b"]),
        ("WITH c AS (SELECT * FROM t) SELECT * FROM c, u", ["t", "u"]),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", ["t"]),
        ("WITH a AS (FROM b), b AS (FROM t) FROM a, b", ["b", "t"]),
        ("WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r", []),
        ("WITH RECURSIVE r(n) USING KEY (n) AS (SELECT 1 UNION SELECT n + 1 FROM r WHERE n < 5) FROM r", []),
        ("SELECT (WITH c AS (FROM t) SELECT max(x) FROM c), x FROM c", ["t", "c"]),
        ("WITH C AS (SELECT 1) SELECT * FROM c", []),
        ("SELECT * FROM (SELECT * FROM t WHERE x IN (SELECT y FROM u)) s WHERE EXISTS (FROM v)", ["t", "u", "v"]),
        ("SELECT * FROM a EXCEPT ALL (SELECT * FROM b INTERSECT SELECT * FROM c)", ["a", "b", "c"]),
        ("SELECT list_transform(l, lambda x: (SELECT max(y) FROM u WHERE y < x)) FROM t", ["u", "t"]),
        ("SELECT apply(l, x -> x + 1), [x FOR x IN l IF x > 1] FROM t", ["t"]),
        ("SELECT unnest(l), unnest(s, recursive := true) FROM t", ["t"]),
        ("FROM range(3) r(i), unnest([1]) WITH ORDINALITY, LATERAL (SELECT 1), json_each('[1]')", []),
        ("FROM generate_series(1, (SELECT max(x) FROM t))", ["t"]),
        ("DESCRIBE t", ["t"]),
        ("SUMMARIZE SELECT * FROM t", ["t"]),
        ("SELECT * FROM (PIVOT t ON a IN (1, 2) USING sum(b))", ["t"]),
        ("UNPIVOT t ON a, b INTO NAME n VALUE v", ["t"]),
        ("SELECT * FROM t TABLESAMPLE 10%", ["t"]),
        ("SELECT * EXCLUDE (a) REPLACE (b + 1 AS b) RENAME (c AS d), COLUMNS('x.*') FROM t", ["t"]),
        ("SELECT a, sum(b) FILTER (WHERE c) OVER (PARTITION BY d ORDER BY e DESC NULLS LAST) FROM t", ["t"]),
        ("SELECT a FROM t GROUP BY GROUPING SETS ((a), ()) HAVING count(*) > 1 QUALIFY rank() OVER () = 1", ["t"]),
        ("SELECT DISTINCT ON (a) a FROM t ORDER BY a COLLATE nocase LIMIT 10 OFFSET 2", ["t"]),
        ("SELECT x::DECIMAL(10, 2), TRY_CAST(y AS STRUCT(a INT, b TEXT[])), z::INT[3], 'a'::ENUM('a') FROM t", ["t"]),
        ("SELECT a || b, a -> '$.x', a ->> 'y', a // b, a ** 2, ~a, a IS DISTINCT FROM b, a ILIKE 'x' FROM t", ["t"]),
        ("SELECT {'a': 1}, MAP {1: 2}, (1, 2), x[1:2], x['k'], INTERVAL 3 DAY, DATE '2020-01-01', now() FROM t", ["t"]),
        ("SELECT * FROM t WHERE x = $1 AND y IN ($2, $3)", ["t"]),
        ("FROM t1 POSITIONAL JOIN t2 ASOF JOIN t3 USING (x) SEMI JOIN t5 USING (y)", ["t1", "t2", "t3", "t5"]),
        ("SELECT 'a;b', ';' -- ; DROP TABLE t\n FROM t /* ; */ ;", ["t"]),
        ("SELECT 1 /* /* */ ; DROP TABLE t; -- */ FROM t", ["t"]),
        ("SELECT 'zero\u200bwidth' FROM t", ["t"]),
        ("SELECT lead(x, 1, 0) OVER w, any_value(x) FROM t WINDOW w AS (ORDER BY y ROWS 1 PRECEDING)", ["t"]),
    ],
)  # fmt: skip
def test_what_only_reads_is_allowed_and_its_tables_are_known(engine: Any, text: str, reads: list[str]) -> None:
    assert tables(engine, text) == reads


@pytest.mark.parametrize(
    ("text", "told", "place"),
    [
        ("SELECT getenv('HOME')", "function getenv", "line 1, column 8"),
        ("SELECT 1,\n  current_setting('temp_directory')", "function current_setting", "line 2, column 3"),
        ('SELECT "current_setting"(\'x\')', "function current_setting", "line 1, column 8"),
        ("SELECT system.main.abs(1)", "function abs", "line 1, column 8"),
        ("SELECT other.f(1)", "function f", "line 1, column 8"),
        ("SELECT 'ä', getvariable('x')", "function getvariable", "line 1, column 13"),
        ("SELECT nextval('s')", "function nextval", "line 1, column 8"),
        ("SELECT json_serialize_plan('FROM t')", "function json_serialize_plan", "line 1, column 8"),
        ("SELECT sum(x) FILTER (WHERE write_log('x') IS NULL) FROM t", "function write_log", "line 1, column 29"),
        ("SELECT first_value(x) OVER (ORDER BY sleep_ms(1)) FROM t", "function sleep_ms", "line 1, column 38"),
        ("FROM t ORDER BY pg_sleep(1)", "function pg_sleep", "line 1, column 17"),
        ("FROM read_csv('/etc/passwd')", "function read_csv", "line 1, column 6"),
        ("FROM query('SELECT 1')", "function query", "line 1, column 6"),
        ("FROM query_table('t')", "function query_table", "line 1, column 6"),
        ("FROM histogram(t, x)", "function histogram", "line 1, column 6"),
        ("FROM json_execute_serialized_sql('x')", "function json_execute_serialized_sql", "line 1, column 6"),
        ("SELECT * FROM (SELECT (FROM duckdb_secrets() LIMIT 1))", "function duckdb_secrets", "line 1, column 29"),
        ("FROM t AT (VERSION => 3)", "AT is not for queries", "line 1, column 6"),
        ("FROM __ducklake_metadata_lake.main.t", "no catalog __ducklake_metadata_lake", "line 1, column 6"),
        ("FROM memory.main.x", "no catalog memory", "line 1, column 6"),
        ("FROM information_schema.tables", "schema information_schema", "line 1, column 6"),
        ("FROM lake.pg_catalog.pg_class", "schema pg_catalog", "line 1, column 6"),
        ("SHOW TABLES", "SHOW is not for queries", "line 1, column 1"),
        ("DESCRIBE", "SHOW is not for queries", "line 1, column 1"),
        ("SELECT CAST(x AS other.kind) FROM t", "not known (UNBOUND_TYPE_INFO", "line 1, column 1"),
        ("SELECT 1; SELECT 2", "more than one statement", "line 1, column 11"),
        ("SELECT 1;;/**/;\nDROP TABLE t", "more than one statement", "line 2, column 1"),
        ("INSERT INTO t VALUES (1)", "INSERT is not for queries", "line 1, column 1"),
        ("/* SELECT */ DROP TABLE t", "DROP is not for queries", "line 1, column 14"),
        ("EXPLAIN ANALYZE INSERT INTO t VALUES (1)", "EXPLAIN is not for queries", "line 1, column 1"),
        ("EXPLAIN SELECT 1", "EXPLAIN is not for queries", "line 1, column 1"),
        ("COPY t TO 'x'", "COPY is not for queries", "line 1, column 1"),
        ("CALL f()", "CALL is not for queries", "line 1, column 1"),
        ("SELECT\u200b 1", "U+200B", "line 1, column 7"),
        ("SELECT 1 -- \u202e 2", "U+202E", "line 1, column 13"),
        ("SELECT '\x00'", "U+0000", "line 1, column 9"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_its_place(engine: Any, text: str, told: str, place: str) -> None:
    with pytest.raises(QueryRefused) as refused:
        judged(engine, text)
    assert told in refused.value.message
    assert (refused.value.place or "line 1, column 1") == place
    assert refused.value.remedy


@pytest.mark.parametrize(
    "text",
    [
        "PIVOT t ON a USING sum(b)",  # CREATE TYPE, then SELECT
        "WITH c AS (INSERT INTO t VALUES (1) RETURNING *) FROM c",
        "WITH c AS (DELETE FROM t RETURNING *) SELECT * FROM c",
        "SELECT " + "(" * 300 + "1" + ")" * 300,
        "SELECT '" + "x" * LONGEST + "'",
        "",
        "-- nothing",
        "SELECT 'open",
    ],
)
def test_what_is_no_single_select_is_refused(engine: Any, text: str) -> None:
    with pytest.raises((QueryRefused, BadStatement, duckdb.ParserException)):
        judged(engine, text)


def test_a_deep_text_is_refused_and_not_followed(engine: Any) -> None:
    with pytest.raises(QueryRefused, match="deep"):
        tree_of("[" * 100_000 + "]" * 100_000)
    with pytest.raises(QueryRefused, match="deep"):
        judged(engine, "SELECT " + "[" * 199 + "(" * 199 + "1" + ")" * 199 + "]" * 199)


def test_an_unknown_node_or_field_is_refused(engine: Any) -> None:
    text = "SELECT a FROM t"
    tree = json.loads(engine.execute("SELECT json_serialize_sql($1)", [text]).fetchone()[0])
    node = tree["statements"][0]["node"]
    for change in (
        {"from_table": {"type": "NEW_REF"}},
        {"select_list": [{"class": "NEW_EXPRESSION", "type": "X"}]},
        {"returning": []},
        {"where_clause": {"surprise": 1}},
    ):
        changed = {**tree, "statements": [{"node": {**node, **change}}]}
        with pytest.raises(QueryRefused, match="not known"):
            allowed(changed, text)


def test_every_function_of_duckdb_was_looked_at(engine: Any) -> None:
    """A newer DuckDB fails here until its new functions are allowed or refused by name."""
    query = "SELECT DISTINCT lower(function_name), function_type FROM duckdb_functions()"
    names: dict[str, set[str]] = {}
    for name, kind in engine.execute(query).fetchall():
        names.setdefault(
            "table" if kind.startswith("table") else "pragma" if kind == "pragma" else "scalar", set()
        ).add(name)
    unseen = {n for n in names["scalar"] - FUNCTIONS - REFUSED if not n.startswith(REFUSED_PREFIXES)}
    assert not unseen
    assert names["table"] >= TABLE_FUNCTIONS
    assert not FUNCTIONS & REFUSED
    assert names["scalar"] >= FUNCTIONS - BOUND_SPECIALLY, "a function that DuckDB no longer has"


def test_compared_columns_and_cuts(engine: Any) -> None:
    found = judged(engine, "SELECT a FROM t JOIN u ON t.K = u.k WHERE b > 1 AND x.c BETWEEN 1 AND 2 ORDER BY d LIMIT 3")
    assert found.compared == {"t", "u", "k", "b", "x", "c"}
    assert not found.cuts_inside
    assert judged(engine, "SELECT * FROM (FROM t LIMIT 3) JOIN u USING (k)").cuts_inside


@pytest.mark.parametrize(
    "text",
    [
        "SELECT $1,$2",
        "SELECT $a+$b, $a||$b",
        "SELECT abs($1)*$2 FROM t LIMIT $3",
        "SELECT $x$a $1; b$x$||$1, '$1'||$1 -- $2\n+$3",
        'SELECT $1 AS "a;$b", $$ $1; $$||$2 /* $3; */',
        "SELECT 1; -- done; really",
        "SELECT 1 /* a */; /* b */ ;",
    ],
)
def test_parameters_and_comments_stand_wherever_duckdb_takes_them(text: str) -> None:
    check_text(text, LONGEST)


@pytest.mark.parametrize(
    "text", ["SELECT $1,$2; DROP TABLE t", "SELECT $a$ $a$||$b; SELECT $b", "SELECT '$1'; DROP TABLE $2"]
)
def test_no_parameter_hides_a_second_statement(text: str) -> None:
    with pytest.raises(QueryRefused, match="more than one"):
        check_text(text, LONGEST)


@pytest.mark.parametrize("piece", ["/*", "$a$", "$", "'", '"', "$1$", "--", "$a$b"])
def test_marks_that_never_end_take_no_longer_than_others(piece: str) -> None:
    text = "SELECT " + piece * (250_000 // len(piece))
    begun = time.monotonic()
    with suppress(LakemillError):
        check_text(text, 1 << 20)
    assert time.monotonic() - begun < 10


def test_a_statement_without_its_end() -> None:
    assert without_end("SELECT ';', $1;$2 -- x") == "SELECT ';', $1"
    assert without_end("SELECT 1 -- ;") == "SELECT 1 -- ;"
