"""Smaller versions of a query and of its rows, for whoever looks for the smallest that still fails.

Orders are left alone: without one of its keys a query may have several right answers, and would fail for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import cast

import sqlglot
from sqlglot import exp

CLAUSES = ("where", "having", "qualify", "distinct", "with_")
SPELLED = {
    "NOW()": "now()",
    "CURRENT_TIMESTAMP": "now()",
    "CURRENT_DATE": "current_date",
    "LOCALTIMESTAMP": "localtimestamp",
}
"""The clock in the words of ``test_delta.at_time``."""
Rows = Mapping[str, tuple[str, ...]]


def smaller_queries(text: str) -> Iterator[str]:
    """The query with one part less; whole subqueries first, because they take most away."""
    seen = {text}
    for size in (_inner, _without_parts, _simpler):
        for found in size(sqlglot.parse_one(text, dialect="duckdb")):
            if found not in seen and len(found) < len(text):
                seen.add(found)
                yield found


def _inner(query: exp.Expr) -> Iterator[str]:
    """A subquery in place of everything."""
    for found in query.find_all(exp.Query):
        if found is not query and not isinstance(found, exp.Subquery):
            yield _sql(found)


def _without_parts(query: exp.Expr) -> Iterator[str]:
    nodes = list(query.walk())
    for node in nodes:
        if isinstance(node, exp.SetOperation):
            for side in (node.left, node.right):
                yield _replaced(query, node, side)
        if isinstance(node, exp.Select | exp.SetOperation):
            for clause in CLAUSES:
                if node.args.get(clause) is not None and not (
                    clause == "distinct" and isinstance(node, exp.SetOperation)
                ):
                    yield _with(query, node, clause, None)
            if node.args.get("limit") is not None:
                yield _with(query, node, "limit", None)
        if isinstance(node, exp.Select):
            for clause in ("joins", "expressions"):
                given = node.args.get(clause) or []
                for i in range(len(given) if clause == "joins" else len(given) if len(given) > 1 else 0):
                    yield _with(query, node, clause, [*given[:i], *given[i + 1 :]])
        if isinstance(node, exp.Group) and len(node.expressions) > 1:
            for i in range(len(node.expressions)):
                yield _with(query, node, "expressions", [*node.expressions[:i], *node.expressions[i + 1 :]])
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Select) and isinstance(node.parent, exp.From):
            inner = node.this.args.get("from_") or node.this.args.get("from")
            if inner is not None and isinstance(inner.this, exp.Table):
                plain = inner.this.copy()
                plain.set("alias", node.args["alias"].copy())
                yield _replaced(query, node, plain)


def _simpler(query: exp.Expr) -> Iterator[str]:
    """An expression's part in place of the expression."""
    for node in list(query.walk()):
        if isinstance(
            node, exp.Query | exp.Identifier | exp.Column | exp.Literal | exp.Order | exp.Ordered | exp.Table
        ):
            continue
        if node.parent is None or node.find_ancestor(exp.Order):
            continue
        if isinstance(node, exp.Condition | exp.Paren):
            for child in node.iter_expressions():
                if isinstance(child, exp.Condition | exp.Paren) and not isinstance(child, exp.Query | exp.Identifier):
                    yield _replaced(query, node, child)


def _path(node: exp.Expr, root: exp.Expr) -> list[tuple[str, int | None]]:
    """The way from the root to a node, to find it again in a copy."""
    path: list[tuple[str, int | None]] = []
    while node is not root:
        path.append((node.arg_key or "", node.index))
        node = cast("exp.Expr", node.parent)
    return path[::-1]


def _found(root: exp.Expr, path: list[tuple[str, int | None]]) -> exp.Expr:
    for key, index in path:
        held = root.args[key]
        root = held if index is None else held[index]
    return root


def _replaced(query: exp.Expr, node: exp.Expr, other: exp.Expr) -> str:
    if node is query:
        return _sql(other)
    copy = query.copy()
    _found(copy, _path(node, query)).replace(other.copy())
    return _sql(copy)


def _with(query: exp.Expr, node: exp.Expr, clause: str, value: object) -> str:
    copy = query.copy()
    changed = [item.copy() for item in value] if isinstance(value, list) else value
    _found(copy, _path(node, query)).set(clause, changed)
    return _sql(copy)


def _sql(query: exp.Expr) -> str:
    text = query.sql(dialect="duckdb")
    for theirs, ours in SPELLED.items():
        text = text.replace(theirs, ours)
    return text


def smaller_rows(before: Rows, after: Rows, fails: Callable[[Rows, Rows], bool]) -> Iterator[tuple[Rows, Rows]]:
    """Each pair of bags that still fails, the last one the smallest: rows go that both have, and then single ones."""
    for name in before:
        for both in (True, False):
            for row in [*dict.fromkeys((*before[name], *after[name]))] * 2:
                smaller = []
                for rows in (before, after):
                    own = list(rows[name])
                    if row in own:
                        own.remove(row)
                    smaller.append({**rows, name: tuple(own)})
                pairs = [(smaller[0], smaller[1])] if both else [(smaller[0], after), (before, smaller[1])]
                for pair in pairs:
                    if pair != (before, after) and fails(*pair):
                        before, after = pair
                        yield pair
