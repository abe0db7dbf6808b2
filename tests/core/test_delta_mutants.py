"""Wrong rules that look right: each must be caught by the check of ``test_delta``, or the check has no teeth."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import duckdb
import pytest

from lakemill.core import algebra, as_sql, delta
from lakemill.core.algebra import WEIGHT, Filter, Join, Node, Project, at, column, itself, names, scans, union_all
from lakemill.core.joins import cluster, connected
from tests.core.test_delta import QUERIES, check, fill, tree_of


def naive_join(self: Any, node: Join) -> Node:
    """Every delta meets the others as they are now."""
    out = itself((*names(node), WEIGHT))
    parts, conditions = cluster(node)
    terms: list[Node] = []
    for number, part in enumerate(parts):
        if self.touches(part):
            sides = [at(other, "b") for other in parts]
            sides[number] = self.delta(part)
            terms.append(Project(connected(sides, conditions, number), out))
    return union_all(terms)


def equality_without_nulls(monkeypatch: pytest.MonkeyPatch) -> None:
    right = as_sql.sql
    for module in (as_sql, delta):
        monkeypatch.setattr(module, "sql", lambda node: right(node).replace("IS NOT DISTINCT FROM", "="))


def keys_of_new_rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group that a row leaves is forgotten."""
    right = delta.Step.__init__

    def init(self: Any, name: str, tree: Any) -> None:
        def only_new(node: Node) -> Node:
            if WEIGHT in names(node):
                return Filter(node, algebra.exp.GT(this=column(WEIGHT), expression=algebra.exp.Literal.number(0)))
            return algebra.rebuilt(node, only_new)

        right(self, name, only_new(tree))

    monkeypatch.setattr(delta.Step, "__init__", init)


def flip_of_a_left_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """A left join as an inner one: rows that find or lose their first match keep their NULLs."""
    right = delta._Deriving.delta

    def wrong(self: Any, node: Node) -> Node:
        if isinstance(node, Join) and node.kind == "left":
            node = Join("inner", node.left, node.right, node.on)
        return right(self, node)

    monkeypatch.setattr(delta._Deriving, "delta", wrong)


def weights_not_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that a projection makes equal are not consolidated."""
    monkeypatch.setattr(delta, "consolidated", lambda signed, columns: signed)


MUTANTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "naive join": (lambda patch: patch.setattr(delta._Deriving, "_inner_join", naive_join), "inner join"),
    "naive self join": (lambda patch: patch.setattr(delta._Deriving, "_inner_join", naive_join), "self join"),
    "= for IS NOT DISTINCT FROM, groups": (equality_without_nulls, "group by"),
    "= for IS NOT DISTINCT FROM, windows": (equality_without_nulls, "window"),
    "= for IS NOT DISTINCT FROM, outer joins": (equality_without_nulls, "full join"),
    "keys of new rows only": (keys_of_new_rows_only, "group by"),
    "left join without its flips": (flip_of_a_left_join, "left join"),
    "not consolidated": (weights_not_added, "project to duplicates"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    mutate, query = MUTANTS[name]
    tree = tree_of(QUERIES[query])
    mutate(monkeypatch)
    caught = 0
    with duckdb.connect() as connection:
        for seed in range(25):
            changed = fill(connection, Random(f"{query} {seed}"))
            if changed & {scan.source for scan in scans(tree)}:
                try:
                    check(connection, QUERIES[query], tree, changed)
                except AssertionError:
                    caught += 1
    assert caught
