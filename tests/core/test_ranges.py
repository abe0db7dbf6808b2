"""Which scans a plan restricts to keys, by which of their columns, and where the keys come from.

That what is said of their origin is so is asked of DuckDB, for every query of ``test_delta`` and for random ones.
"""

from __future__ import annotations

import pytest

from lakemill.core.algebra import names, states
from lakemill.core.delta import derive
from lakemill.core.origins import Tracing
from lakemill.core.ranges import reached, uses
from lakemill.core.state import column_types, keep
from lakemill.core.widen import Types
from tests.core.test_delta import TYPES, tree_of


@pytest.mark.parametrize(
    ("query", "changed", "expected"),
    [
        ("SELECT k, count(*) AS n FROM r GROUP BY k", {0}, {(0, "a"): {"k"}, (0, "b"): {"k"}}),
        ("SELECT k, count(*) AS n FROM r WHERE v > 1 GROUP BY k", {0}, {(0, "a"): {"k"}, (0, "b"): {"k"}}),
        ("SELECT k + 1 AS q, count(*) AS n FROM r GROUP BY k + 1", {0}, {(0, "a"): None, (0, "b"): None}),
        ("SELECT r.id FROM r JOIN s ON r.k = s.k", {0}, {(1, "b"): {"k"}}),
        (
            "SELECT r.id, s.w FROM r LEFT JOIN s ON r.k = s.k",
            {1},
            {(0, "b"): {"k"}, (1, "a"): {"k"}, (1, "b"): {"k"}},
        ),
        (
            "SELECT a.k, b.v FROM (SELECT DISTINCT k FROM r) a JOIN r b ON a.k = b.v",
            {0},
            {(0, "a"): {"k", "v"}, (0, "b"): {"k"}},
        ),
    ],
)
def test_restricted_columns(query: str, changed: set[int], expected: dict[tuple[int, str], set[str] | None]) -> None:
    delta = derive(tree_of(query), frozenset(changed))
    found = uses([*(step.tree for step in delta.steps), delta.tree])
    told = {
        leaf: None if () in scans else {own for use in scans for own, _, _ in use}
        for leaf, scans in found.items()
        if leaf[1] != "delta"
    }
    assert told == expected


R_K, S_K, S_W = (0, "k"), (1, "k"), (1, "w")


@pytest.mark.parametrize(
    ("query", "changed", "step", "key", "expected"),
    [
        ("SELECT k, median(v) AS m FROM r WHERE v > 1 GROUP BY k", {0}, "keys1", "__k0", {R_K}),
        ("SELECT k + 1 AS q, median(v) AS m FROM r GROUP BY k + 1", {0}, "keys1", "__k0", None),
        ("SELECT r.id FROM r JOIN s ON r.k = s.k", {0}, "keys1", "__k0", {R_K}),
        # by what it is equal to: the rows of s at b are held to the delta of r
        ("SELECT s.k, median(v) AS m FROM r JOIN s ON r.k = s.k GROUP BY s.k", {0}, "keys2", "__k0", {R_K}),
        ("SELECT s.k, median(v) AS m FROM r JOIN s ON r.k = s.k GROUP BY s.k", {0, 1}, "keys3", "__k0", {R_K, S_K}),
        # w of s may be any
        ("SELECT s.w, median(v) AS m FROM r JOIN s ON r.k = s.k GROUP BY s.w", {0}, "keys2", "__k0", None),
        # a row without a partner has NULL
        ("SELECT s.k, count(*) AS n FROM r LEFT JOIN s ON r.k = s.k GROUP BY s.k", {1}, "keys1", "__k0", {S_K}),
        (
            "SELECT s.k, count(*) AS n FROM r LEFT JOIN s ON r.k = s.k GROUP BY s.k",
            {1},
            "source3_touched",
            "key0",
            None,
        ),
        ("SELECT k, count(*) AS n FROM r GROUP BY k", {0}, "source3_touched", "key0", {R_K}),
        ("SELECT k FROM r UNION SELECT w FROM s", {0, 1}, "keys1", "__k0", {R_K, S_W}),
    ],
)
def test_where_keys_come_from(
    query: str, changed: set[int], step: str, key: str, expected: set[tuple[int, str]] | None
) -> None:
    assert traced(query, changed).origins(step, key) == expected


def traced(query: str, changed: set[int], types: Types = TYPES) -> Tracing:
    kept = keep(tree_of(query), types)
    delta = derive(kept, frozenset(changed))
    known = [*types, *(dict(column_types(state, types)) for state in states(kept))]
    return Tracing({step.name: step.tree for step in delta.steps}, known)


@pytest.mark.parametrize(("one", "other"), [("BIGINT", "DOUBLE"), ("INTEGER", "FLOAT"), ("BIGINT", "DECIMAL(18, 3)")])
def test_what_is_equal_need_not_be_the_same(one: str, other: str) -> None:
    query = "SELECT s.k, median(v) AS m FROM r JOIN s ON r.k = s.k GROUP BY s.k"
    r, s, u = TYPES
    assert traced(query, {0}, [{**r, "k": one}, {**s, "k": one}, u]).origins("keys2", "__k0") == {R_K}
    assert traced(query, {0}, [{**r, "k": one}, {**s, "k": other}, u]).origins("keys2", "__k0") is None
    assert traced(query, {0}, [{**r, "k": "TINYINT"}, {**s, "k": "BIGINT"}, u]).origins("keys2", "__k0") == {R_K}


def test_many_joins_are_traced_at_once() -> None:
    joins = " ".join(f"LEFT JOIN s AS s{i} ON s{i}.k = r.k" for i in range(14))
    tracing = traced(f"SELECT r.id FROM r {joins}", {0, 1})
    for step, tree in tracing.steps.items():
        for key in names(tree):
            tracing.origins(step, key)


def test_what_only_tells_a_range_is_not_read() -> None:
    delta = derive(tree_of("SELECT r.id, s.w FROM r JOIN s ON r.k = s.k"), frozenset({0, 1}))
    steps = {step.name: step.tree for step in delta.steps}
    assert len(uses([delta.tree, *steps.values()])[0, "delta"]) == 2
    assert not reached([delta.tree], steps)
    assert len(uses([delta.tree])[0, "delta"]) == 1
