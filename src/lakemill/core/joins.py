"""Inner joins as sets: which relations meet, under which conditions; and a condition to where it belongs.

SQL's FROM lists relations in any order and keeps conditions in WHERE. A delta is joined from its own side outwards, so
the tree must know what is connected to what: else it would multiply relations that have nothing in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lakemill.core.algebra import Expr, Filter, Join, Node, conjuncts, equal_pairs, names, together, used
from lakemill.core.clock import uses_clock


def pushed(node: Node, condition: Expr) -> Node:
    """The node's rows that meet a condition, which is put as far down as it means the same."""
    columns = used(condition)
    match node:
        case Join(kind="inner", left=left, right=right, on=on):
            if columns <= set(names(left)) and columns:
                return replace(node, left=pushed(left, condition))
            if columns <= set(names(right)) and columns:
                return replace(node, right=pushed(right, condition))
            if not uses_clock(condition):
                return replace(node, on=together([*conjuncts(on), condition]))
        case Join(kind="left" | "semi" | "anti", left=left):
            if columns <= set(names(left)) and columns:
                return replace(node, left=pushed(left, condition))
        case Filter(child=child, condition=other):
            if isinstance(child, Join):
                return Filter(pushed(child, condition), other)
            return Filter(child, together([*conjuncts(other), condition]))
    return Filter(node, condition)


def inner_join(left: Node, right: Node, on: Expr) -> Node:
    """What asks for the time is a filter beside the join, not a condition of it: a join does not change by itself."""
    conditions = conjuncts(on)
    node: Node = Join("inner", left, right, together(one for one in conditions if not uses_clock(one)))
    for condition in conditions:
        node = pushed(node, condition) if uses_clock(condition) else node
    return node


def cluster(node: Node) -> tuple[list[Node], list[Expr]]:
    """The relations that a tree of inner joins brings together, and all its conditions."""
    if not isinstance(node, Join) or node.kind != "inner":
        return [node], []
    left, right = cluster(node.left), cluster(node.right)
    return [*left[0], *right[0]], [*left[1], *right[1], *conjuncts(node.on)]


def connected(parts: Sequence[Node], conditions: Sequence[Expr], start: int = 0) -> Node:
    """An inner join of the parts from one of them outwards, as long as possible to one that an equality leads to.

    The columns come in another order than those of the parts.
    """
    waiting = [part for i, part in enumerate(parts) if i != start]
    tree, unmet = parts[start], list(conditions)
    while waiting:
        joins = [_meeting(tree, part, unmet) for part in waiting]
        chosen = next((i for i, join in enumerate(joins) if equal_pairs(join)), 0)
        tree = joins[chosen]
        waiting.pop(chosen)
        here = set(names(tree))
        unmet = [condition for condition in unmet if not used(condition) <= here]
    return Filter(tree, together(unmet)) if unmet else tree


def is_connected(parts: Sequence[Node], conditions: Sequence[Expr]) -> bool:
    """Whether equalities lead from the first part to every other one."""
    tree, waiting = parts[0], list(parts[1:])
    while waiting:
        joins = [_meeting(tree, part, conditions) for part in waiting]
        chosen = next((i for i, join in enumerate(joins) if equal_pairs(join)), None)
        if chosen is None:
            return False
        tree = joins[chosen]
        waiting.pop(chosen)
    return True


def _meeting(left: Node, right: Node, conditions: Sequence[Expr]) -> Join:
    here = {*names(left), *names(right)}
    return Join("inner", left, right, together(condition for condition in conditions if used(condition) <= here))


def ordered(node: Node) -> Node:
    """FROM with its inner joins in an order in which each is connected to those before."""
    if isinstance(node, Join) and node.kind == "inner":
        parts, conditions = cluster(node)
        return connected([ordered(part) for part in parts], conditions)
    if isinstance(node, Join):
        return replace(node, left=ordered(node.left), right=ordered(node.right))
    return replace(node, child=ordered(node.child)) if isinstance(node, Filter) else node
