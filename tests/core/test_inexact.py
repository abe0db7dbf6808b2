"""Which columns a whole refresh may leave as they are for next to no change: sums of floats, nothing else."""

from __future__ import annotations

import pytest

from lakemill.core.algebra import names
from lakemill.core.inexact import inexact_columns
from lakemill.core.state import keep
from tests.core.test_delta import TYPES, tree_of

X = "(v::DOUBLE / 3)"

CASES = [
    (f"SELECT k, {X} AS x, epoch(t) AS e FROM r", set()),
    (f"SELECT k, max({X}) AS a, min({X}) AS b, count({X})::DOUBLE AS c, max(epoch(t)) AS d FROM r GROUP BY k", set()),
    ("SELECT k, sum(v)::DOUBLE AS a, avg(v) AS b, avg(v::DECIMAL(9, 2)) AS c FROM r GROUP BY k", set()),
    (f"SELECT k, median({X}) AS a, quantile_disc({X}, 0.5) AS b FROM r GROUP BY k", set()),
    (f"SELECT k, sum({X}) AS a, max({X}) AS b, avg({X}::FLOAT) AS c FROM r GROUP BY k", {"a", "c"}),
    (f"SELECT k, sum({X}) FILTER (WHERE id > 2) AS a, sum(DISTINCT {X}) AS b FROM r GROUP BY k", {"a", "b"}),
    ("SELECT k, stddev(v) AS a, var_pop(v) AS b FROM r GROUP BY k", {"a", "b"}),
    (f"SELECT k, round(sum({X}) * 2) + 1 AS a, max({X}) * 2 AS b, k + 0.5 AS c FROM r GROUP BY k", {"a"}),
    (f"SELECT max(s) AS a, min(k)::DOUBLE AS b FROM (SELECT k, sum({X}) AS s FROM r GROUP BY k)", {"a"}),
    (f"SELECT s, count(*) AS n FROM (SELECT k, sum({X}) AS s FROM r GROUP BY k) GROUP BY s", {"s"}),
    (f"SELECT k, sum({X}) AS s FROM r GROUP BY k UNION ALL SELECT k, w::DOUBLE FROM s", {"s"}),
    (f"SELECT k, w::DOUBLE AS d FROM s UNION ALL SELECT k, sum({X}) AS s FROM r GROUP BY k", {"d"}),
    (
        f"SELECT id, k, sum({X}) OVER (PARTITION BY k) AS a, {X} / sum({X}) OVER (PARTITION BY k) AS b,"
        f" lag({X}) OVER (PARTITION BY k ORDER BY id) AS c, max({X}) OVER (PARTITION BY k) AS d,"
        " percent_rank() OVER (PARTITION BY k ORDER BY id) AS e FROM r",
        {"a", "b"},
    ),
    (
        f"SELECT a.k, a.s, b.m FROM (SELECT k, sum({X}) AS s FROM r GROUP BY k) a"
        f" JOIN (SELECT k, max({X}) AS m FROM r GROUP BY k) b ON a.k = b.k",
        {"s"},
    ),
    (f"SELECT k, sum({X}) AS s FROM r GROUP BY k ORDER BY k LIMIT 3", {"s"}),
    (f"SELECT s, max(k)::DOUBLE AS m FROM (SELECT k, sum({X}) AS s FROM r GROUP BY k) GROUP BY s", {"s"}),
]


@pytest.mark.parametrize(("query", "expected"), CASES)
def test_which_columns_depend_on_the_order_of_addition(query: str, expected: set[str]) -> None:
    for tree in (tree_of(query), keep(tree_of(query), TYPES)):
        found = inexact_columns(tree, TYPES)
        assert {name.rpartition("_")[0] for name in names(tree) if name in found} == expected
