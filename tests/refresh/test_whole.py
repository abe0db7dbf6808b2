"""Queries without a tree, which Spark runs as they were written: names mean there what they mean in DuckDB."""

from __future__ import annotations

import pytest

from lakemill.core.refresh import Action, Outcome
from lakemill.errors import RefreshFailed
from tests.refresh.mill import Mill, did

TABLES = (
    "CREATE TABLE t1 AS FROM (VALUES (1), (2), (3)) t(k)",
    "CREATE TABLE na AS FROM (VALUES (1, 1, 5), (2, 1, NULL), (3, 1, 7)) t(id, k, v)",
    "CREATE TABLE nb AS SELECT 1 AS k, 1 AS w",
    "CREATE TABLE nc AS FROM (VALUES (5), (NULL)) t(x)",
    "CREATE TABLE xs (x INTEGER, y INTEGER)",
    "INSERT INTO xs VALUES (9, 1), (9, 2)",
)
QUERIES = {
    "a CTE with a name of ours": "WITH source0_b AS (SELECT k + 100 AS k FROM t1)"
    " SELECT k, (SELECT count(*) FROM xs WHERE xs.y < source0_b.k) AS c FROM source0_b",
    "an alias called like an inner column": "SELECT x.k, (SELECT count(*) FROM xs WHERE xs.y < x.k) AS m FROM t1 x",
    "NOT IN below OR in ON": "SELECT a.id, b.w, t1.k FROM na a JOIN nb b ON a.k = b.k"
    " AND (b.w > 3 OR a.v NOT IN (SELECT x FROM nc)) RIGHT JOIN t1 ON t1.k = a.id",
}


@pytest.mark.parametrize("name", QUERIES)
def test_it_is_what_it_says(mill: Mill, name: str) -> None:
    mill.tell(*TABLES)
    mill.create("w", QUERIES[name])
    mill.judge("w")
    mill.tell("INSERT INTO t1 VALUES (7)")
    assert did(mill.refresh("w"))[0] is Action.FULL


def test_a_tree_that_is_declared_whole_compares_as_its_delta_would(mill: Mill) -> None:
    """Two whole numbers are equal to one FLOAT: the row is there once."""
    mill.tell(*TABLES, "INSERT INTO t1 VALUES (0)")
    floats = "SELECT id, (k + 16777216)::FLOAT AS f FROM na"
    query = f"SELECT id FROM ({floats}) x WHERE id > 2 OR f IN (SELECT k + 16777216 FROM t1)"
    mill.create("w", query, "REFRESH_MODE = FULL")
    assert mill.rows("SELECT id FROM w ORDER BY id") == [(1,), (2,), (3,)]
    mill.judge("w")


def test_what_spark_can_t_run(mill: Mill) -> None:
    """DuckDB answers it; it is told as a query that can't be, not as an engine that was lost."""
    mill.tell(*TABLES)
    query = (
        "SELECT k FROM t1 WHERE EXISTS (SELECT 1 FROM xs WHERE xs.y = t1.k"
        " AND EXISTS (SELECT 1 FROM t1 t2 WHERE t2.k < xs.y AND t2.k <> t1.k))"
    )
    with pytest.raises(RefreshFailed, match="UNSUPPORTED_SQL: Spark can't run the query"):
        mill.create("w", query)
    assert mill.rows("SELECT count(*) FROM t1") == [(3,)]
    record = mill.create("v", "SELECT k FROM t1")
    assert record is not None
    assert record.outcome is Outcome.SUCCEEDED
