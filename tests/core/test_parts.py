"""Which columns divide a result into parts that can be computed one by one."""

from __future__ import annotations

import pytest

from lakemill.core.algebra import names, states
from lakemill.core.parts import stable_columns
from lakemill.core.state import keep
from tests.core.test_delta import tree_of


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT id, k + 1 AS j FROM r", ["id"]),
        ("SELECT k, sum(v) AS s, k AS again FROM r GROUP BY k", ["k", "again"]),
        ("SELECT s, count(*) AS n FROM (SELECT k, sum(v) AS s FROM r GROUP BY k) GROUP BY s", []),
        ("SELECT k, count(*) AS n FROM (SELECT k, id, sum(v) AS s FROM r GROUP BY k, id) GROUP BY k", ["k"]),
        ("SELECT r.id, s.w, r.v * 2 AS x FROM r JOIN s ON r.k = s.k", ["id", "w"]),
        ("SELECT r.id, g.n FROM r JOIN (SELECT k, count(*) AS n FROM s GROUP BY k) g ON r.k = g.k", []),
        ("SELECT DISTINCT k FROM r WHERE v > 1", ["k"]),
        ("SELECT id, k FROM r UNION ALL SELECT w, k + 1 FROM s", ["id"]),
        ("SELECT id, k FROM r QUALIFY row_number() OVER (PARTITION BY k ORDER BY v) = 1", []),
        ("SELECT id FROM r ORDER BY v LIMIT 3", []),
        ("SELECT sum(v) AS s FROM r", []),
    ],
)
def test_what_divides(query: str, expected: list[str]) -> None:
    tree = tree_of(query)
    named = [one.rstrip("0123456789_") for one in names(tree)]
    assert [named[place] for place in stable_columns(tree)] == expected, names(tree)


def test_a_state_is_divided_by_its_keys() -> None:
    types = [{"id": "INTEGER", "k": "INTEGER", "v": "INTEGER", "name": "VARCHAR"}]
    (state,) = states(keep(tree_of("SELECT k, name, sum(v) AS s FROM r GROUP BY k, name"), types))
    assert stable_columns(state) == (0, 1)
