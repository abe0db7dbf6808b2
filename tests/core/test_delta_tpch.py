"""The 22 queries of TPC-H as trees: each says what the query says, and its delta is the difference, in DuckDB.

The refreshes are like RF1 and RF2 (new orders with their lines, old ones gone), with updates of customers, suppliers,
parts and lines on top. Queries that end in a LIMIT are taken without it too, so that their inner parts are seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
import sqlglot

from lakemill.core.algebra import Node, at, scans
from lakemill.core.as_sql import sql
from lakemill.core.delta import derive
from lakemill.core.qualified import qualified
from lakemill.core.query import build
from tests.core.test_delta import subtract
from tests.fuzz.sandbox import extension

TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
CHANGES = """
DELETE FROM orders WHERE o_orderkey % 211 = 0;
DELETE FROM lineitem WHERE l_orderkey % 211 = 0;
INSERT INTO orders SELECT * REPLACE (o_orderkey + 1000000 AS o_orderkey) FROM orders WHERE o_orderkey % 197 = 0;
INSERT INTO lineitem SELECT * REPLACE (l_orderkey + 1000000 AS l_orderkey) FROM lineitem WHERE l_orderkey % 197 = 0;
UPDATE lineitem SET l_quantity = l_quantity + 1, l_discount = 0.06 WHERE l_orderkey % 401 = 0;
UPDATE customer SET c_nationkey = (c_nationkey + 1) % 25, c_acctbal = c_acctbal - 100 WHERE c_custkey % 97 = 0;
UPDATE supplier SET s_nationkey = (s_nationkey + 3) % 25 WHERE s_suppkey % 41 = 0;
UPDATE partsupp SET ps_supplycost = ps_supplycost / 2 WHERE ps_partkey % 83 = 0;
UPDATE part SET p_size = 15, p_type = 'LARGE BRUSHED BRASS' WHERE p_partkey % 89 = 0;
"""


@pytest.fixture(scope="module")
def tpch() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(f"LOAD {extension('tpch')}; SET threads = 1; CALL dbgen(sf = 0.005)")
        for number, name in enumerate(TABLES):
            connection.execute(f"CREATE TABLE source{number}_a AS FROM {name}")
        connection.execute(CHANGES)
        for number, name in enumerate(TABLES):
            connection.execute(f"CREATE TABLE source{number}_b AS FROM {name}")
            subtract(connection, number)
        yield connection


def tree_of(connection: duckdb.DuckDBPyConnection, query: str) -> Node:
    columns = {name: connection.execute(f"DESCRIBE {name}").fetchall() for name in TABLES}
    schema = {"main": {name: {row[0]: row[1] for row in rows} for name, rows in columns.items()}}
    numbers = {f"main.{name}": number for number, name in enumerate(TABLES)}
    own = {f"main.{name}": [row[0] for row in rows] for name, rows in columns.items()}
    return build(qualified(query, schema), numbers, own)


def rounded(values: Any) -> tuple[Any, ...]:
    """Averages of decimals are floats, whose last bits depend on the order of addition."""
    return tuple(float(f"{value:.9g}") if isinstance(value, float) else value for value in values)


def bag(connection: duckdb.DuckDBPyConnection, query: str) -> Counter[Any]:
    return Counter(rounded(row) for row in connection.execute(query).fetchall())


@pytest.mark.parametrize("number", range(1, 23))
def test_tpch(tpch: duckdb.DuckDBPyConnection, number: int) -> None:
    (query,) = tpch.execute("SELECT query FROM tpch_queries() WHERE query_nr = ?", [number]).fetchone() or ("",)
    parsed = sqlglot.parse_one(query.rstrip("; \n"), dialect="duckdb")
    check(tpch, parsed.sql("duckdb"))
    if parsed.args.get("limit") is not None:
        parsed.set("limit", None)
        check(tpch, parsed.sql("duckdb"))


def check(tpch: duckdb.DuckDBPyConnection, query: str) -> None:
    tree = tree_of(tpch, query)
    before, after = bag(tpch, sql(at(tree, "a"))), bag(tpch, sql(at(tree, "b")))
    assert bag(tpch, query) == after
    changed = frozenset(n for n in range(len(TABLES)) if tpch.execute(f"FROM source{n}_delta LIMIT 1").fetchall())
    assert changed & {scan.source for scan in scans(tree)}
    delta = derive(tree, changed)
    for step in delta.steps:
        tpch.execute(f"CREATE OR REPLACE TABLE {step.name} AS {step.sql}")
    found: Counter[Any] = Counter()
    for *values, weight in tpch.execute(delta.sql).fetchall():
        found[rounded(values)] += weight
    after.subtract(before)
    assert {key: n for key, n in found.items() if n} == {key: n for key, n in after.items() if n}
