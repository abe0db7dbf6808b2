"""Which columns tell the rows of a result apart; that they do is asked of DuckDB, here and for random queries."""

from __future__ import annotations

from random import Random

import duckdb
import pytest

from lakemill.core.algebra import names
from lakemill.core.unique import unique_key
from tests.core.test_delta import QUERIES, TYPES, check_unique, fill, tree_of

AGGREGATED = "(SELECT k, sum(v) AS t FROM r GROUP BY k) a"
OTHER = "(SELECT k, v, count(*) AS n FROM r GROUP BY k, v) b"

CASES = [
    ("SELECT id, v FROM r", None),
    ("SELECT k, sum(v) AS t FROM r GROUP BY k", {"k"}),
    ("SELECT k AS one, k AS two, sum(v) AS t FROM r GROUP BY k", {"one"}),
    ("SELECT sum(v) AS t FROM r GROUP BY k", None),
    ("SELECT k + 1 AS k, sum(v) AS t FROM r GROUP BY r.k", None),
    ("SELECT sum(v) AS t FROM r", set()),
    ("SELECT k, sum(v) AS t FROM r GROUP BY k HAVING sum(v) > 3 ORDER BY t, k LIMIT 2", {"k"}),
    ("SELECT k, v, count(*) AS n FROM r GROUP BY ROLLUP (k, v)", None),
    ("SELECT DISTINCT k, v FROM r", {"k", "v"}),
    ("SELECT DISTINCT k, sum(v) AS t FROM r GROUP BY k", {"k"}),
    ("SELECT k, v FROM r UNION SELECT k, w FROM s", {"k", "v"}),
    ("SELECT k, v FROM r UNION ALL SELECT k, w FROM s", None),
    ("SELECT k, sum(v) AS t FROM r GROUP BY k EXCEPT ALL SELECT k, w FROM s", {"k"}),
    ("SELECT k, v FROM r INTERSECT ALL SELECT k, w FROM s", None),
    (f"SELECT b.k, a.t, b.v, b.n FROM {AGGREGATED} JOIN {OTHER} ON a.k = b.k", {"k", "v"}),
    (f"SELECT b.k, b.v, a.t FROM {OTHER} LEFT JOIN {AGGREGATED} ON a.k = b.k", {"k", "v"}),
    (f"SELECT a.k, b.v, a.t FROM {AGGREGATED} LEFT JOIN {OTHER} ON a.k = b.k", None),
    (f"SELECT a.k, b.k AS j, b.v, a.t FROM {AGGREGATED} LEFT JOIN {OTHER} ON a.k = b.k", {"k", "j", "v"}),
    (f"SELECT a.k, b.k AS j, b.v, a.t FROM {AGGREGATED} FULL JOIN {OTHER} ON a.k = b.k", None),
    (f"SELECT a.k, a.t FROM {AGGREGATED} WHERE EXISTS (SELECT 1 FROM s WHERE s.k = a.k)", {"k"}),
    # two texts can be equal to one number
    (
        "SELECT b.k, a.t FROM (SELECT name, sum(v) AS t FROM r GROUP BY name) a"
        " JOIN (SELECT k, count(*) AS n FROM r GROUP BY k) b ON a.name = b.k",
        None,
    ),
]


@pytest.mark.parametrize(("query", "expected"), CASES)
def test_keys(query: str, expected: set[str] | None) -> None:
    tree = tree_of(query)
    key = unique_key(tree, TYPES)
    shown = None if key is None else {name.rpartition("_")[0] for name in names(tree) if name in key}
    assert shown == expected


@pytest.mark.parametrize("query", [*(query for query, _ in CASES), *QUERIES.values()])
def test_no_two_rows_share_a_key(query: str) -> None:
    tree = tree_of(query)
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1; SET TimeZone = 'UTC'")
        for seed in range(5):
            fill(connection, Random(f"unique {seed}"))
            check_unique(connection, tree)
