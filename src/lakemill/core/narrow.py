"""A tree that reads only the columns it needs: which those are decides what a change of a source's columns means.

A column that the query does not use may come, go and change its type; one that it uses may not. DISTINCT and set
operators need all columns of their inputs, because they compare whole rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lakemill.core.algebra import (
    Aggregate,
    Distinct,
    Expr,
    Filter,
    Join,
    Node,
    Project,
    Restrict,
    Scan,
    SetOp,
    Top,
    Unnest,
    Window,
    itself,
    names,
    rebuilt,
    scans,
    used,
)


def narrowed(node: Node, wanted: frozenset[str] | None = None) -> Node:
    """The same rows, of the columns wanted (None: all that the node gives); it may keep more of them."""
    need = frozenset(names(node)) if wanted is None else wanted
    match node:
        case Scan(columns=columns):
            return replace(node, columns=tuple(pair for pair in columns if pair[0] in need))
        case Project(child=child, columns=columns):
            kept = tuple((name, value) for name, value in columns if name in need)
            return Project(narrowed(child, _used(value for _, value in kept)), kept)
        case Filter(child=child, condition=condition):
            return Filter(narrowed(child, need | used(condition)), condition)
        case Unnest(child=child, value=value):
            return replace(node, child=narrowed(child, need | used(value)))
        case Top(child=child, order=order):
            return replace(node, child=narrowed(child, need | _used(order)))
        case Restrict(child=child, keys=keys):
            return replace(node, child=narrowed(child, need | _used(value for value, _ in keys)))
        case Join(left=left, right=right, on=on):
            need = need | used(on)
            return replace(node, left=narrowed(left, need), right=narrowed(right, need))
        case Aggregate(child=child, keys=keys, values=values):
            kept = tuple((name, value) for name, value in values if name in need)
            child = narrowed(child, _used(value for _, value in (*keys, *kept)))
            return Aggregate(child, keys, kept)
        case Window(child=child, keys=keys, values=values):
            kept = tuple((name, value) for name, value in values if name in need)
            below = need | _used(value for _, value in kept) | _used(keys)
            return Window(narrowed(child, below), keys, kept) if kept else narrowed(child, need)
        case SetOp(kind="union", all=True, left=left, right=right):
            places = [i for i, name in enumerate(names(left)) if name in need]
            sides = [(side, frozenset(names(side)[i] for i in places)) for side in (left, right)]
            return replace(node, left=_exactly(*sides[0]), right=_exactly(*sides[1]))
        case Distinct() | SetOp():
            return rebuilt(node, narrowed)
    return node


def used_columns(tree: Node) -> dict[int, frozenset[str]]:
    """Source → its own names of the columns that a narrowed tree reads."""
    found: dict[int, set[str]] = {}
    for scan in scans(tree):
        found.setdefault(scan.source, set()).update(own for _, own in scan.columns)
    return {source: frozenset(columns) for source, columns in found.items()}


def _exactly(node: Node, wanted: frozenset[str]) -> Node:
    """Sides of a union must have the same number of columns."""
    return Project(narrowed(node, wanted), itself(name for name in names(node) if name in wanted))


def _used(expressions: Iterable[Expr]) -> frozenset[str]:
    return frozenset(name for value in expressions for name in used(value))
