"""Where the keys of a step come from: columns of sources in whose deltas all their values occur.

Between ``core/delta``, whose steps collect the keys that a part of the query is evaluated for, and the executor, which
asks the catalog between which values those columns lie: then no step need be computed to know what is to be read. What
is said too narrowly loses rows, so whatever is not plainly a column, unchanged, has no origin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from lakemill.core.algebra import (
    Aggregate,
    Distinct,
    Expr,
    Filter,
    IfAny,
    Join,
    Node,
    Project,
    Read,
    Restrict,
    Scan,
    SetOp,
    Top,
    Unnest,
    Window,
    equal_pairs,
    names,
)
from lakemill.core.as_sql import leaf
from lakemill.core.ducktypes import integer, parse

Origins = frozenset[tuple[int, str]] | None
"""Numbers of sources, and columns of theirs; None where nothing can be said."""


@dataclass(slots=True)
class Tracing:
    """The steps of one delta; ``types``: the columns of each source, then of each state, with DuckDB's types."""

    steps: Mapping[str, Node]
    types: Sequence[Mapping[str, str]]
    _known: dict[tuple[int, str], Origins] = field(default_factory=dict)
    """By node and column: joins ask for both sides, so that without it every join would double the work."""

    def origins(self, step: str, key: str) -> Origins:
        """Where the keys of a step come from. None of them is NULL that is not NULL there."""
        return self._of(self.steps[step], key)

    def _of(self, node: Node, name: str) -> Origins:
        place = (id(node), name)
        if place not in self._known:
            self._known[place] = self._found(node, name)
        return self._known[place]

    def _found(self, node: Node, name: str) -> Origins:
        match node:
            case Scan(source=source, end=end):
                own = dict(node.columns).get(name)
                if own is None or end is None:
                    return None
                if (state := leaf(source, end)) in self.steps:
                    return self._of(self.steps[state], own)
                return frozenset({(source, own)}) if end == "delta" else None
            case Read(step=step):
                return self._of(self.steps[step], name)
            case Project(child=child, columns=columns):
                return self._of_value(child, dict(columns)[name])
            case Aggregate(child=child, keys=keys):
                value = dict(keys).get(name)
                return None if value is None else self._of_value(child, value)
            case Restrict(child=child):
                found = self._of(child, name)
                return self._of_restricted(node, name) if found is None else found
            case SetOp(kind="union", left=left, right=right):
                found = self._of(left, name)
                more = None if found is None else self._of(right, names(right)[names(left).index(name)])
                return None if found is None or more is None else found | more
            case SetOp(left=left):
                return self._of(left, name)
            case Join():
                return self._of_join(node, name)
            case Window(child=child) | Unnest(child=child):
                return self._of(child, name) if name in names(child) else None
            case Filter(child=child) | Distinct(child=child) | Top(child=child) | IfAny(child=child):
                return self._of(child, name)
        return None

    def _of_value(self, child: Node, value: Expr) -> Origins:
        return self._of(child, value.name) if isinstance(value, exp.Column) else None

    def _of_restricted(self, node: Restrict, name: str) -> Origins:
        """What is restricted to keys has their origin."""
        for value, key in node.keys if node.exact else ():
            if _is_column(value, name) and self._alike(node.child, value, self.steps[node.step], exp.column(key)):
                return self._of(self.steps[node.step], key)
        return None

    def _of_join(self, node: Join, name: str) -> Origins:
        """Of the side that has it, unless the join adds NULLs; in an inner join what is equal to it will do as well."""
        on_left = name in names(node.left)
        if node.kind == "full" or (node.kind == "left" and not on_left) or (node.kind == "right" and on_left):
            return None
        own, other = (node.left, node.right) if on_left else (node.right, node.left)
        found = self._of(own, name)
        if found is not None or node.kind != "inner":
            return found
        for left, right in equal_pairs(node):
            mine, theirs = (left, right) if on_left else (right, left)
            if _is_column(mine, name) and self._alike(own, mine, other, theirs):
                found = self._of_value(other, theirs)
                if found is not None:
                    return found
        return None

    def _alike(self, node: Node, value: Expr, other: Node, theirs: Expr) -> bool:
        """Whether what is equal is the same value: two whole numbers can be equal to one float."""
        one, another = self._type(node, value), self._type(other, theirs)
        if one is None or another is None:
            return False
        whole = [found is not None and integer(found) for found in (parse(one), parse(another))]
        return one == another or all(whole)

    def _type(self, node: Node, value: Expr) -> str | None:
        """The type of a column, where it comes unchanged from a source or a state."""
        if not isinstance(value, exp.Column):
            return None
        name = value.name
        match node:
            case Scan(source=source):
                own = dict(node.columns).get(name)
                return None if own is None else self.types[source].get(own)
            case Read(step=step):
                return self._type(self.steps[step], value)
            case Project(child=child, columns=columns):
                return self._type(child, dict(columns)[name])
            case Aggregate(child=child, keys=keys):
                return self._type(child, dict(keys).get(name, exp.null()))
            case Join(left=left, right=right):
                return self._type(left if name in names(left) else right, value)
            case SetOp(left=left, right=right):
                theirs = exp.column(names(right)[names(left).index(name)])
                found = self._type(left, value)
                return found if found == self._type(right, theirs) else None
            case Window(child=child) | Unnest(child=child):
                return self._type(child, value) if name in names(child) else None
            case Filter(child=child) | Distinct(child=child) | Top(child=child):
                return self._type(child, value)
            case Restrict(child=child) | IfAny(child=child):
                return self._type(child, value)
        return None


def _is_column(value: Expr, name: str) -> bool:
    return isinstance(value, exp.Column) and value.name == name
