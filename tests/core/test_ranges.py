"""Which scans a plan restricts to keys, and by which of their columns."""

from __future__ import annotations

import pytest

from lakemill.core.delta import derive
from lakemill.core.ranges import uses
from tests.core.test_delta import tree_of


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
