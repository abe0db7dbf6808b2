"""A query as a tree of relational operators, small enough that the rules of ``delta`` can be read beside it.

``core/query`` builds the tree from SQL, ``core/delta`` derives what changes from it, ``core/as_sql`` writes a tree as
SQL again (DuckDB's; ``core/dialect`` makes Spark's of it). Column names are unique in the whole tree, so an expression
names a column without saying whose it is. A tree says nothing about time until ``at`` gives its scans an end: the data
snapshot a before a refresh, b after it, or the delta between them, which has a weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sqlglot import exp

from lakemill.core.clock import bound, uses_clock

Expr = exp.Expr
WEIGHT = "__weight"
End = Literal["a", "b", "delta"]
JoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]
SetKind = Literal["union", "except", "intersect"]


@dataclass(frozen=True, slots=True)
class Scan:
    """One occurrence of a source: its number, and our name → its own name for every column that is read."""

    source: int
    columns: tuple[tuple[str, str], ...]
    end: End | None = None


@dataclass(frozen=True, slots=True)
class Values:
    """One row of constants, as a SELECT without FROM gives it."""


@dataclass(frozen=True, slots=True)
class Filter:
    child: Node
    condition: Expr


@dataclass(frozen=True, slots=True)
class Project:
    child: Node
    columns: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class Join:
    """``lookup``: the right side is what a subquery says for each key, one row a key, by which the left side asks."""

    kind: JoinKind
    left: Node
    right: Node
    on: Expr
    lookup: bool = False


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Without keys it is a global one: one row, also over nothing."""

    child: Node
    keys: tuple[tuple[str, Expr], ...]
    values: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class Window:
    """``keys``: the partition expressions that all its functions share."""

    child: Node
    keys: tuple[Expr, ...]
    values: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class Distinct:
    child: Node


@dataclass(frozen=True, slots=True)
class SetOp:
    """Columns match by position; the left side's names stay."""

    kind: SetKind
    all: bool
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Unnest:
    """Each row once per element of a list; ``keep`` keeps a row whose list is empty, as LEFT JOIN does."""

    child: Node
    name: str
    value: Expr
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Top:
    child: Node
    order: tuple[Expr, ...]
    limit: Expr | None
    offset: Expr | None


@dataclass(frozen=True, slots=True)
class Restrict:
    """The rows whose key is among the keys of an earlier step; NULL is a key like others.

    Not ``exact``: other rows may come along, because a join above drops them; what is not needed should not be read.
    """

    child: Node
    keys: tuple[tuple[Expr, str], ...]
    step: str
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Read:
    """The rows of an earlier step."""

    step: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IfAny:
    """A node whose rows all come from those of a step: where that has none, it need not be evaluated."""

    child: Node
    step: str


@dataclass(frozen=True, slots=True)
class Part:
    """What a state keeps of a group beside its key: how many rows, how many that are not NULL, their exact total, or
    the smallest or largest of them."""

    name: str
    kind: Literal["rows", "count", "total", "min", "max"]
    value: Expr
    type: str


@dataclass(frozen=True, slots=True)
class Stored:
    """Groups, or first rows, that are kept in a table of ours, a state: the trees of a delta scan it by its number.

    ``child`` computes it. ``columns``: our name → its name in the state; of groups the keys, then the parts.
    """

    child: Aggregate | Top
    parts: tuple[Part, ...]
    source: int
    columns: tuple[tuple[str, str], ...]


Node = (
    Scan
    | Values
    | Filter
    | Project
    | Join
    | Aggregate
    | Window
    | Distinct
    | SetOp
    | Unnest
    | Top
    | Restrict
    | Read
    | IfAny
    | Stored
)


# ---------------------------------------------------------------- looking at trees
def names(node: Node) -> tuple[str, ...]:
    """The columns that a node gives."""
    match node:
        case Scan(columns=columns):
            return (*(name for name, _ in columns), *((WEIGHT,) if node.end == "delta" else ()))
        case Values():
            return ()
        case Read(columns=given):
            return given
        case Project(columns=columns):
            return tuple(name for name, _ in columns)
        case Join(kind=kind, left=left, right=right):
            return names(left) if kind in ("semi", "anti") else (*names(left), *names(right))
        case Aggregate(keys=keys, values=values):
            return (*(name for name, _ in keys), *(name for name, _ in values))
        case Window(child=child, values=values):
            return (*names(child), *(name for name, _ in values))
        case SetOp(left=left):
            return names(left)
        case Unnest(child=child, name=name):
            return (*names(child), name)
    return names(node.child)


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Scan() | Values() | Read():
            return ()
        case Join(left=left, right=right) | SetOp(left=left, right=right):
            return (left, right)
        case Stored(child=groups):
            return (groups.child,)
    return (node.child,)


def scans(node: Node) -> list[Scan]:
    return [node] if isinstance(node, Scan) else [scan for child in children(node) for scan in scans(child)]


def rebuilt(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node with its children changed."""
    match node:
        case Scan() | Values() | Read():
            return node
        case Join() | SetOp():
            return replace(node, left=change(node.left), right=change(node.right))
        case Stored(child=groups):
            return replace(node, child=replace(groups, child=change(groups.child)))
    return replace(node, child=change(node.child))


def expressions(node: Node) -> list[Expr]:
    """A node's own expressions."""
    match node:
        case Filter(condition=condition):
            return [condition]
        case Project(columns=columns):
            return [value for _, value in columns]
        case Join(on=on):
            return [on]
        case Aggregate(keys=keys, values=values):
            return [value for _, value in (*keys, *values)]
        case Window(keys=shared, values=values):
            return [*shared, *(value for _, value in values)]
        case Unnest(value=value):
            return [value]
        case Top(order=order):
            return list(order)
        case Restrict(keys=given):
            return [value for value, _ in given]
        case Stored(child=groups):
            return expressions(groups)
    return []


def mapped(node: Node, change: Callable[[Expr], Expr]) -> Node:
    """The node with its own expressions changed."""

    def all_(pairs: tuple[tuple[str, Expr], ...]) -> tuple[tuple[str, Expr], ...]:
        return tuple((name, change(value)) for name, value in pairs)

    match node:
        case Filter(condition=condition):
            return replace(node, condition=change(condition))
        case Project(columns=columns):
            return replace(node, columns=all_(columns))
        case Join(on=on):
            return replace(node, on=change(on))
        case Aggregate(keys=keys, values=values):
            return replace(node, keys=all_(keys), values=all_(values))
        case Window(keys=shared, values=values):
            return replace(node, keys=tuple(map(change, shared)), values=all_(values))
        case Unnest(value=value):
            return replace(node, value=change(value))
        case Top(order=order):
            return replace(node, order=tuple(map(change, order)))
        case Restrict(keys=given):
            return replace(node, keys=tuple((change(value), name) for value, name in given))
    return node


def union_all(nodes: Sequence[Node]) -> Node:
    """Their rows together; columns match by position."""
    first, *others = nodes
    for node in others:
        first = SetOp("union", True, first, node)
    return first


def weighed(node: Node, weight: int) -> Node:
    """Rows that all have one weight."""
    return Project(node, (*itself(names(node)), (WEIGHT, exp.cast(exp.Literal.number(weight), "BIGINT"))))


def consolidated(signed: Node, columns: Sequence[str]) -> Node:
    """One row per distinct row, its weights added up, none with weight zero."""
    total = exp.cast(exp.Sum(this=column(WEIGHT)), "BIGINT")
    nonzero = exp.NEQ(this=column(WEIGHT), expression=exp.Literal.number(0))
    return Filter(Aggregate(signed, itself(columns), ((WEIGHT, total),)), nonzero)


def at(node: Node, end: Literal["a", "b"]) -> Node:
    """The whole tree at one end: its scans, its states and its clock."""
    if isinstance(node, Scan):
        return replace(node, end=end)
    if isinstance(node, Stored):
        return Scan(node.source, node.columns, end)
    node = mapped(node, lambda value: bound(value, end)) if timely(node) else node
    return rebuilt(node, lambda child: at(child, end))


def computed(node: Node) -> Node:
    """The tree without states: everything is computed from the sources."""
    return computed(node.child) if isinstance(node, Stored) else rebuilt(node, computed)


def states(node: Node) -> list[Stored]:
    """The states of a tree, each after those that it is computed from."""
    below = [state for child in children(node) for state in states(child)]
    return [*below, node] if isinstance(node, Stored) else below


def timely(node: Node) -> bool:
    """Whether a node's own expressions ask for the time."""
    return any(uses_clock(value) for value in expressions(node))


def asks_for_time(node: Node) -> bool:
    """Whether a tree depends on the clock anywhere."""
    return timely(node) or any(asks_for_time(child) for child in children(node))


# ---------------------------------------------------------------- expressions
def column(name: str) -> Expr:
    return exp.column(exp.to_identifier(name, quoted=True))


def used(expression: Expr) -> set[str]:
    return {found.name for found in expression.find_all(exp.Column)}


def substitute(expression: Expr, values: Mapping[str, Expr]) -> Expr:
    """The expression with columns replaced by what they stand for."""

    def change(found: Expr) -> Expr:
        if isinstance(found, exp.Column) and found.name in values:
            return operand(values[found.name].copy())
        return found

    return expression.copy().transform(change)


def operand(expression: Expr) -> Expr:
    """The expression as it can stand beside any operator."""
    if isinstance(expression, exp.Column | exp.Literal | exp.Paren):
        return expression
    return exp.paren(expression, copy=False)


def itself(names: Iterable[str]) -> tuple[tuple[str, Expr], ...]:
    """Columns under the names that they have."""
    return tuple((name, column(name)) for name in names)


def is_true(condition: Expr) -> bool:
    return isinstance(condition, exp.Boolean) and bool(condition.this)


def conjuncts(condition: Expr) -> list[Expr]:
    """The parts of an AND; none of TRUE."""
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        return [*conjuncts(condition.left), *conjuncts(condition.right)]
    return [] if is_true(condition) else [condition]


def together(conditions: Iterable[Expr]) -> Expr:
    return exp.and_(*conditions, copy=True) if (conditions := list(conditions)) else exp.true()


def equal_pairs(join: Join) -> list[tuple[Expr, Expr]]:
    """The equalities of a join between an expression of its left side and one of its right side."""
    left, right = set(names(join.left)), set(names(join.right))
    pairs = []
    for part in conjuncts(join.on):
        if isinstance(part, exp.EQ):
            one, other = part.left, part.right
            if used(one) <= right and used(other) <= left:
                one, other = other, one
            if used(one) and used(one) <= left and used(other) and used(other) <= right:
                pairs.append((one, other))
    return pairs
