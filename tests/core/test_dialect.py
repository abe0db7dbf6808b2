"""What ``core/dialect`` refuses, where and with what advice; and that all of TPC-H passes with DuckDB's types.

That the answers are the same is shown by ``tests/spark/test_dialect.py``, in both engines.
"""

from __future__ import annotations

import duckdb
import pytest
import sqlglot

from lakemill.core.algebra import at
from lakemill.core.as_sql import sql
from lakemill.core.delta import derive
from lakemill.core.dialect import check, output_types, to_spark
from lakemill.core.position import Position
from lakemill.core.qualified import qualified
from lakemill.core.value import Refused
from lakemill.errors import UnsupportedSql
from tests.core.test_delta_tpch import TABLES, tpch, tree_of

__all__ = ["tpch"]

COLUMNS = {
    "i": "INTEGER",
    "b": "BIGINT",
    "h": "HUGEINT",
    "u": "UINTEGER",
    "d": "DECIMAL(15,2)",
    "w": "DECIMAL(38,20)",
    "f": "DOUBLE",
    "r": "FLOAT",
    "s": "VARCHAR",
    "day": "DATE",
    "ts": "TIMESTAMP",
    "tz": "TIMESTAMPTZ",
    "o": "BOOLEAN",
    "l": "INTEGER[]",
    "p": "STRUCT(a INTEGER, b VARCHAR)",
    "j": "JSON",
    "n": "TIMESTAMP_NS",
}
SCHEMA = {"main.v": COLUMNS}

# expression → a word of the message, a word of the remedy
REFUSED = {
    "hash(s)": ("HASH(s)", "functions that both"),
    "random()": ("RANDOM()", "functions"),
    "approx_count_distinct(s)": ("APPROX", "functions"),
    "list_transform(l, x -> x + 1)": ("LIST_TRANSFORM", "functions"),
    "reverse(s)": ("REVERSE", "functions"),
    "chr(i)": ("CHR", "functions"),
    "cbrt(f)": ("CBRT", "functions"),
    "i << 2": ("<<", "functions"),
    "first(s)": ("FIRST", "row_number()"),
    "any_value(s)": ("ANY_VALUE", "min or max"),
    "arg_max(s, i)": ("ARG_MAX", "ties"),
    "mode(i)": ("MODE", "ties"),
    "list(s)": ("no order", "ORDER BY"),
    "string_agg(s, ',')": ("no order", "ORDER BY"),
    "list(DISTINCT s ORDER BY i)": ("DISTINCT", "value itself"),
    "median(d)": ("DECIMAL(15,2)", "DOUBLE"),
    "(i, b) = (1, 2)": ("(", "one by one"),
    "s COLLATE nocase = 'a'": ("COLLATE", "lower"),
    "u + 1": ("unsigned", "BIGINT"),
    "h // 2": ("HUGEINT", "BIGINT"),
    "r / 2": ("FLOAT", "DOUBLE"),
    "w * w * w": ("digits", "fewer"),
    "CAST(f AS VARCHAR)": ("DOUBLE as text", "DECIMAL"),
    "s || f": ("DOUBLE as text", "DECIMAL"),
    "CAST(tz AS VARCHAR)": ("TIMESTAMPTZ as text", "TIMESTAMP"),
    "CAST(i AS DATE)": ("INTEGER to DATE", "another"),
    "CAST(s AS INTERVAL)": ("INTERVAL", "cast"),
    "ts - ts": ("TIMESTAMP and TIMESTAMP", "number"),
    "day + INTERVAL '1 month 2 days'": ("INTERVAL", "one unit"),
    "day > '1.2.2020'": ("1.2.2020", "plain DATE"),
    "i = 'five'": ("five", "plain INTEGER"),
    "s = i": ("VARCHAR and INTEGER", "cast"),
    "j = j": ("JSON", "parts"),
    "p = p": ("STRUCT", "parts"),
    "n = n": ("TIMESTAMP_NS", "parts"),
    "substring(s, 1, -1)": ("negative", "zero"),
    "split_part(s, '', 1)": ("split_part", "separator"),
    "split_part(s, ',', 0)": ("split_part", "but 0"),
    "regexp_matches(s, i)": ("constant", "quotes"),
    "regexp_matches(s, '\\w+')": ("pattern", "classes"),
    "regexp_matches(s, '(?i)a')": ("pattern", "classes"),
    "regexp_matches(s, 'a', 'i')": ("options", "without"),
    "regexp_replace(s, 'a*', 'b', 'g')": ("nothing", "one character"),
    "regexp_replace(s, '^a', 'b')": ("first match", "'g'"),
    "s ~ 'a'": ("~", "regexp_full_match"),
    "strftime(ts, '%U')": ("%U", "%Y"),
    "strftime(ts, s)": ("constant", "quotes"),
    "ts AT TIME ZONE 'Europe/Zurich'": ("UTC", "UTC"),
    "date_trunc('century', ts)": ("century", "year"),
    "extract(century FROM day)": ("century", "year"),
    "log(3, f)": ("base", "ln"),
    "round(r, 1)": ("FLOAT", "DOUBLE"),
    "round(f, i)": ("ROUND", "constant"),
    "count(DISTINCT s) OVER (PARTITION BY i)": ("DISTINCT", "subquery"),
    "sum(i) OVER (ORDER BY i RANGE BETWEEN 1 PRECEDING AND CURRENT ROW)": ("frame", "ROWS"),
    "sum(i) OVER (ORDER BY i ROWS BETWEEN b PRECEDING AND CURRENT ROW)": ("frame", "ROWS"),
    "sum(i) OVER (ORDER BY l)": ("INTEGER[]", "parts"),
    "sum(i) OVER (PARTITION BY n)": ("TIMESTAMP_NS", "parts"),
    "lag(s, i) OVER (ORDER BY b)": ("constant", "number"),
    "lag(s, 9223372036854775808) OVER (ORDER BY b)": ("range of BIGINT", "smaller"),
    "row_number() OVER (PARTITION BY i)": ("no order", "ORDER BY"),
    "lead(s) OVER (PARTITION BY i)": ("no order", "ORDER BY"),
    "first_value(s) OVER (PARTITION BY i)": ("no order", "ORDER BY"),
    "sum(i) OVER (ROWS 2 PRECEDING)": ("no order", "ORDER BY"),
    "ntile(0) OVER (ORDER BY b)": ("1 up", "number of parts"),
    "ntile(2 IGNORE NULLS) OVER (ORDER BY b)": ("IGNORE NULLS", "leave"),
    "nth_value(s, 0) OVER (ORDER BY b)": ("1 up", "number"),
    "sum(i) OVER (ORDER BY b ROWS BETWEEN 2 FOLLOWING AND 1 FOLLOWING)": ("never has rows", "ends"),
    "sum(i) OVER (ORDER BY b ROWS BETWEEN 1 PRECEDING AND 2 PRECEDING)": ("never has rows", "ends"),
    "sum(i) OVER (ORDER BY b ROWS BETWEEN 3000000000 FOLLOWING AND UNBOUNDED FOLLOWING)": ("never has rows", "ends"),
    "sum(i) OVER (ORDER BY b ROWS BETWEEN UNBOUNDED PRECEDING AND 3000000000 PRECEDING)": ("never has rows", "ends"),
    "100000000000000000000000000000000000000": ("38 digits", "DOUBLE"),
    "170141183460469231731687303715884105728": ("38 digits", "DOUBLE"),
    "CAST('2026-02-30' AS DATE)": ("2026-02-30", "plain DATE"),
    "TIMESTAMP '2026-02-30 10:00:00'": ("2026-02-30", "plain TIMESTAMP"),
    "TRY_CAST('2026-02-30 10:00:00' AS TIMESTAMP)": ("2026-02-30", "plain TIMESTAMP"),
    "TRY_CAST('0000-01-01' AS DATE)": ("0000-01-01", "plain DATE"),
    "TRY_CAST('1e5' AS INTEGER)": ("1e5", "plain INTEGER"),
    "TRY_CAST('1.5' AS INTEGER)": ("1.5", "plain INTEGER"),
    "TRY_CAST('170141183460469231731687303715884105727' AS HUGEINT)": ("17014", "plain HUGEINT"),
    "CAST('abc' AS INTEGER)": ("abc", "plain INTEGER"),
    "CAST('300' AS TINYINT)": ("300", "plain TINYINT"),
    "CAST('1234567' AS DECIMAL(4,2))": ("1234567", "plain DECIMAL(4,2)"),
    "CAST('\u0663' AS INTEGER)": ("\u0663", "plain INTEGER"),
    "day = '2026-01-05 '": ("2026-01-05", "plain DATE"),
    "row_number()": ("OVER", "OVER"),
    "l[i]": ("l[i]", "constant"),
    "s[2]": ("s[2]", "substring"),
    "l || l": ("lists", "apart"),
    "p.c": ("no field c", "fields"),
    "i AND o": ("INTEGER", "compare"),
    "nothing": ("nothing", "column"),
}
QUERIES = {
    "SELECT i FROM v USING SAMPLE 10": ("sample", "without"),
    "SELECT * FROM (PIVOT v ON o USING sum(i))": ("", ""),
    "SELECT DISTINCT n FROM v": ("TIMESTAMP_NS", "parts"),
    "SELECT n FROM v UNION SELECT n FROM v": ("TIMESTAMP_NS", "parts"),
    "SELECT DISTINCT ON (i) i, s FROM v": ("DISTINCT ON", "ORDER BY"),
    "SELECT i FROM v UNION ALL SELECT s FROM v": ("VARCHAR", "cast"),
    "SELECT i FROM v UNION ALL BY NAME SELECT i FROM v": ("BY NAME", "order"),
    "WITH RECURSIVE c AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM c WHERE x < 3) SELECT x FROM c": (
        "recursive",
        "joins",
    ),
    "SELECT a.i FROM v AS a ASOF JOIN v AS b ON a.ts >= b.ts": ("ASOF", "condition"),
    "SELECT i FROM v LIMIT (SELECT 1)": ("limit", "number"),
    "SELECT i FROM v WHERE s": ("VARCHAR", "compare"),
    "SELECT unnest(i) AS x FROM v": ("INTEGER", "list"),
    "SELECT unnest([i IN (SELECT b FROM v)]) AS x FROM v": ("unnest", "FROM"),
    "SELECT i FROM v ORDER BY i IN (SELECT b FROM v), i LIMIT 3": ("ORDER BY", "FROM"),
    "SELECT a.i FROM v a JOIN v c ON a.i + c.i IN (SELECT b FROM v)": ("both sides", "WHERE"),
    "SELECT a.i FROM v a JOIN v c ON a.i IN (SELECT d.b FROM v d WHERE d.i = c.i)": ("both sides", "WHERE"),
    "SELECT sum(a.i) IN (SELECT c.b FROM v c WHERE c.i = a.i) AS x FROM v a GROUP BY a.i": ("aggregate", "FROM"),
    "SELECT i FROM v WHERE 0.5::DECIMAL(38, 4) IN (SELECT sum(0.25) FROM v)": ("rounded", "cast both"),
    "SELECT x FROM range(3) AS t(x)": ("", "table first"),
}


def refusal(query: str) -> UnsupportedSql:
    with pytest.raises(UnsupportedSql) as told:
        check(sqlglot.parse_one(query, dialect="duckdb"), {"v": COLUMNS, **SCHEMA}, text=query)
    return told.value


@pytest.mark.parametrize("expression", REFUSED)
def test_refused_expressions(expression: str) -> None:
    error = refusal(f"SELECT {expression} AS x FROM v")
    message, remedy = REFUSED[expression]
    assert error.code == "UNSUPPORTED_SQL"
    assert message in error.message
    assert remedy in error.remedy
    assert error.place is not None
    assert error.place.startswith("line 1, column ")


@pytest.mark.parametrize("query", QUERIES)
def test_refused_queries(query: str) -> None:
    error = refusal(query)
    message, remedy = QUERIES[query]
    assert message in error.message
    assert remedy in error.remedy


@pytest.mark.parametrize(
    "query",
    [
        "SELECT i, b AS i FROM v ORDER BY 1, 2 LIMIT 3",
        "SELECT i, count(*) AS i FROM v GROUP BY i ORDER BY i LIMIT 3",
        "SELECT DISTINCT ON (1) i, b AS i FROM v ORDER BY 1, 2",
    ],
)
def test_an_order_by_a_name_of_two_columns(query: str) -> None:
    """A table can have such a query by its own column list; which of the two is meant, nobody could tell."""
    with pytest.raises(Refused, match="two columns of one name"):
        qualified(query, {"main": {"v": COLUMNS}})


def test_the_place_is_that_of_the_part() -> None:
    query = "SELECT i,\n  upper(s) AS u,\n  i + hash(s) AS h\nFROM v"
    with pytest.raises(UnsupportedSql) as told:
        check(qualified(query, {"main": {"v": COLUMNS}}), SCHEMA, text=query, at=Position(100, 7, 5), file="a.sql")
    assert told.value.place == "a.sql:9:7"


def test_without_a_text_there_is_no_place() -> None:
    with pytest.raises(UnsupportedSql) as told:
        check(qualified("SELECT hash(s) AS h FROM v", {"main": {"v": COLUMNS}}), SCHEMA)
    assert told.value.place is None


def test_the_clock_is_welcome() -> None:
    query = "SELECT i FROM v WHERE ts > now() - INTERVAL 1 DAY AND day <= current_date"
    check(qualified(query, {"main": {"v": COLUMNS}}), SCHEMA)


def test_tables_have_the_names_that_spark_knows() -> None:
    query = sqlglot.parse_one("SELECT a.i FROM v AS a JOIN v ON a.i = v.b", dialect="duckdb")
    text = to_spark(query, {"v": COLUMNS}, {"v": "r1_v"})
    assert "FROM `r1_v` AS `a`" in text
    assert "JOIN `r1_v` AS `v`" in text


@pytest.mark.parametrize("number", range(1, 23))
def test_tpch(tpch: duckdb.DuckDBPyConnection, number: int) -> None:
    (query,) = tpch.execute("SELECT query FROM tpch_queries() WHERE query_nr = ?", [number]).fetchone() or ("",)
    query = query.rstrip("; \n")
    columns = {name: dict(row[:2] for row in tpch.execute(f"DESCRIBE {name}").fetchall()) for name in TABLES}
    check(qualified(query, {"main": columns}), {f"main.{name}": own for name, own in columns.items()})
    schema = {}
    for i, name in enumerate(TABLES):
        schema |= {f"source{i}_{end}": columns[name] for end in "ab"}
        schema[f"source{i}_delta"] = columns[name] | {"__weight": "BIGINT"}
    tree = tree_of(tpch, query)
    delta = derive(tree, frozenset(range(len(TABLES))))
    for name, text in [*((step.name, step.sql) for step in delta.steps), ("d", delta.sql), ("b", sql(at(tree, "b")))]:
        parsed = sqlglot.parse_one(text, dialect="duckdb")
        assert to_spark(parsed, schema)
        schema[name] = output_types(parsed, schema)
        tpch.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {text}")
        assert list(schema[name].values()) == [row[1] for row in tpch.execute(f"DESCRIBE {name}").fetchall()]
