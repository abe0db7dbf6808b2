"""Both engines on the same values: whatever ``core/dialect`` lets through has DuckDB's answer in Spark.

Many expressions make one query, so the whole costs few Spark jobs. Values are compared exactly, floats to 1e-12
relative: the mathematical libraries of C and Java differ in the last bit, and sums of floats depend on their order.
An expression that DuckDB stops at for some rows is run without these, and at one of them Spark must stop too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
import sqlglot

from lakemill.core.dialect import output_types, to_spark
from lakemill.core.qualified import qualified
from lakemill.core.scalars import KNOWN, key
from lakemill.errors import UnsupportedSql
from tests.spark.dialect_cases import (
    AGGREGATES,
    ANSWERED,
    COLUMNS,
    EXPRESSIONS,
    ODD_TEXTS,
    QUERIES,
    REFUSED,
    UNTYPED,
    WINDOWS,
    rows,
)

ROWS = 160
BATCH = 60
SCHEMA = {
    "v": {"n": "INTEGER", "g": "INTEGER", "f3": "DOUBLE", **{name: type_ for name, (type_, _, _) in COLUMNS.items()}}
}


class Engines:
    """The table ``v`` in both."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.duck = spark, duckdb.connect()
        self.duck.execute("SET TimeZone = 'UTC'")
        columns = ", ".join(f"{name} {type_}" for name, type_ in SCHEMA["v"].items())
        self.duck.execute(f"CREATE TABLE v ({columns})")
        for number, row in enumerate(rows(ROWS)):
            values = [str(number), str(number % 7) if number % 11 else "NULL", str(number * 0.37 - 20)]
            values += [f"CAST({value} AS {COLUMNS[name][0]})" for name, value in zip(COLUMNS, row, strict=True)]
            self.duck.execute(f"INSERT INTO v VALUES ({', '.join(values)})")
        stored = ", ".join(
            f"CAST({name} AS {COLUMNS[name][1]}) AS {name}" if name in COLUMNS else name for name in SCHEMA["v"]
        )
        table = self.duck.execute(f"SELECT {stored} FROM v").to_arrow_table()
        pq.write_table(table, folder / "v.parquet", use_dictionary=False)  # a dictionary would make 0.0 of -0.0
        frame = spark.read.parquet(str(folder / "v.parquet"))
        frame.createOrReplaceTempView("v_spark")
        # Rows that Spark has by itself are evaluated by its optimiser: no job for each of many small queries
        spark.createDataFrame(frame.toArrow()).createOrReplaceTempView("v_local")

    def translated(self, query: str, types: dict[str, str]) -> str:
        """Spark's text, with dates and timestamps as numbers: Python's own end at the year 9999."""
        text = to_spark(sqlglot.parse_one(query, dialect="duckdb"), SCHEMA, {"v": "v_spark"})
        items = [f"{_SPARK_NUMBER.get(type_, '{0}').format(f'`{name}`')} AS `{name}`" for name, type_ in types.items()]
        return f"SELECT {', '.join(items)} FROM ({text})"

    def both(self, query: str) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        types = output_types(sqlglot.parse_one(query, dialect="duckdb"), SCHEMA)
        items = [f"{_DUCK_NUMBER.get(type_, '{0}').format(chr(34) + name + chr(34))}" for name, type_ in types.items()]
        expected = self.duck.execute(f"SELECT {', '.join(items)} FROM ({query})").fetchall()
        found = self.spark.sql(self.translated(query, types)).toArrow().to_pydict()
        return list(zip(*found.values(), strict=True)), expected


_SPARK_NUMBER = {
    "DATE": "unix_date({0})",
    "TIMESTAMP": "unix_micros(CAST({0} AS TIMESTAMP))",
    "TIMESTAMPTZ": "unix_micros({0})",
    "TIME": "CAST({0} AS STRING)",
}
_DUCK_NUMBER = {
    "DATE": "{0} - DATE '1970-01-01'",
    "TIMESTAMP": "epoch_us({0})",
    "TIMESTAMPTZ": "epoch_us({0})",
    "UUID": "{0}::VARCHAR",
    "TIME": "{0}::VARCHAR",
}


@pytest.fixture(scope="module")
def engines(spark_session: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    yield Engines(spark_session, tmp_path_factory.mktemp("dialect"))
    for view in ("v_spark", "v_local"):
        spark_session.catalog.dropTempView(view)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-12)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    if isinstance(one, Decimal | int) and isinstance(other, Decimal | int):
        return one == other
    return type(one) is type(other) and bool(one == other)


@cache
def failing_rows(duck: duckdb.DuckDBPyConnection, expression: str) -> list[int]:
    """The rows that DuckDB stops at."""
    try:
        duck.execute(f"SELECT {expression} FROM v").fetchall()
        return []
    except duckdb.Error:
        failed = []
        doubtful = duck.execute(f"SELECT n FROM v WHERE TRY({expression}) IS NULL").fetchall()
        for (number,) in doubtful:
            try:
                duck.execute(f"SELECT {expression} FROM v WHERE n = {number}").fetchall()
            except duckdb.Error:
                failed.append(number)
        return failed


def bound(engines: Engines, expression: str) -> bool:
    """Whether the expression is let through; what DuckDB binds and we let through has DuckDB's type."""
    query = sqlglot.parse_one(f"SELECT {expression} AS x FROM v", dialect="duckdb")
    found = engines.duck.execute(f"DESCRIBE SELECT {expression} AS x FROM v").fetchall()[0][1]
    try:
        own = output_types(query, SCHEMA)["x"]
    except UnsupportedSql:
        assert expression in REFUSED
        return False
    assert expression not in REFUSED
    if expression not in UNTYPED:
        assert own == found.replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ"), expression
    return True


def compare(engines: Engines, items: list[str], rest: str) -> list[str]:
    """The expressions whose answers differ, with the first that does."""
    named = [f"{item} AS x{number}" for number, item in enumerate(items)]
    found, expected = engines.both(f"SELECT {', '.join(named)} {rest}")
    assert len(found) == len(expected) > 0
    found, expected = (sorted(rows, key=lambda row: (row[0] is not None, row[0])) for rows in (found, expected))
    told = []
    for number, item in enumerate(items):
        pairs = [(one[number], other[number]) for one, other in zip(found, expected, strict=True)]
        wrong = [(one, other) for one, other in pairs if not same(one, other)]
        if wrong:
            told.append(f"{item}: {len(wrong)} differ, Spark {wrong[0][0]!r}, DuckDB {wrong[0][1]!r}")
    return told


def test_expressions(engines: Engines) -> None:
    let_through = [expression for expression in EXPRESSIONS if bound(engines, expression)]
    failing = {expression: failing_rows(engines.duck, expression) for expression in let_through}
    told = []
    for start in range(0, len(let_through), BATCH):
        items = ["n"]
        for expression in let_through[start : start + BATCH]:
            bad = ", ".join(map(str, failing[expression]))
            items.append(f"CASE WHEN n NOT IN ({bad}) THEN {expression} END" if bad else expression)
        told += compare(engines, items, "FROM v")
    assert told == []


def test_what_duckdb_refuses_spark_refuses(engines: Engines) -> None:
    """One row of each is enough: an expression fails in one way."""
    answered = []
    for expression in EXPRESSIONS:
        if expression in REFUSED or expression in ANSWERED:
            continue
        if rows_ := failing_rows(engines.duck, expression)[:1]:
            query = sqlglot.parse_one(f"SELECT {expression} AS x FROM v WHERE n = {rows_[0]}", dialect="duckdb")
            answered += stopped(engines, to_spark(query, SCHEMA, {"v": "v_local"}), expression)
    assert answered == []


def test_odd_texts_stop(engines: Engines) -> None:
    answered = []
    for type_, texts in ODD_TEXTS.items():
        for text in texts:
            for word in ("CAST", "TRY_CAST"):
                query = f"SELECT {word}(s1 AS {type_}) AS x FROM (SELECT '{text}' || '' AS s1) AS q"
                spark = to_spark(sqlglot.parse_one(query, dialect="duckdb"), SCHEMA)
                answered += stopped(engines, spark, query)
    assert answered == []


def stopped(engines: Engines, query: str, what: str) -> list[str]:
    try:
        found = engines.spark.sql(query).collect()
    except Exception:  # PySpark's errors have no common root that is ours to name
        return []
    return [f"{what}: {found}"]


def test_aggregates(engines: Engines) -> None:
    for expression in AGGREGATES:
        assert bound(engines, expression)
    assert compare(engines, ["g", *AGGREGATES], "FROM v GROUP BY g") == []
    assert compare(engines, ["n", *AGGREGATES], "FROM v GROUP BY n") == []  # of one value, and of NULL alone
    assert compare(engines, AGGREGATES, "FROM v") == []
    assert compare(engines, AGGREGATES, "FROM v WHERE n < 0") == []


def test_windows(engines: Engines) -> None:
    for expression in WINDOWS:
        assert bound(engines, expression)
    assert compare(engines, ["n", *WINDOWS], "FROM v") == []


@pytest.mark.parametrize("query", QUERIES)
def test_queries(engines: Engines, query: str) -> None:
    text = qualified(query, {"main": SCHEMA}).sql("duckdb").replace("main.v", "v")
    found, expected = engines.both(text)
    assert Counter(map(_hashable, found)) == Counter(map(_hashable, expected))
    assert expected or "false" in query


def _hashable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """NaN is NaN, 0.0 is -0.0, a decimal is a number; floats that sums made are rounded."""
    return tuple(
        "NaN" if isinstance(value, float) and math.isnan(value)
        else float(f"{value:.12g}") + 0.0 if isinstance(value, float)
        else repr(value) if isinstance(value, list | dict)
        else value
        for value in row
    )  # fmt: skip


def test_every_known_name_is_held_to_duckdb() -> None:
    """Nothing gets onto an allow-list without a case here."""
    texts = [f"SELECT {item} FROM v" for item in (*EXPRESSIONS, *AGGREGATES, *WINDOWS) if item not in REFUSED]
    seen = {key(node) for text in (*texts, *QUERIES) for node in sqlglot.parse_one(text, dialect="duckdb").walk()}
    assert sorted(KNOWN - seen) == []
