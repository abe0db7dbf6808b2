"""What a query's result gains and loses when its sources do: a tree that computes the signed difference.

For every operator there is one rule, and each is exact on bags. Rows pass filters, projections, unions and unnesting
with their weight. A join has one term per side: the delta of the left with the right as it was, and the left as it is
with the delta of the right. Everything else has a key (a group, a partition, a join key, the whole row) such that what
it says about one key depends on the rows of that key only: the keys that the delta touches are collected, the operator
is evaluated at both ends for these keys, and the difference is the delta. What has no key is evaluated whole at both
ends, which is right, and dearer than computing the query once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from lakemill.core.algebra import (
    WEIGHT,
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
    Stored,
    Top,
    Unnest,
    Window,
    at,
    children,
    column,
    consolidated,
    equal_pairs,
    itself,
    names,
    rebuilt,
    scans,
    states,
    substitute,
    timely,
    together,
    union_all,
    used,
    weighed,
)
from lakemill.core.as_sql import leaf, sql
from lakemill.core.clock import bound
from lakemill.core.joins import cluster, connected, is_connected
from lakemill.core.merge import merged
from lakemill.core.ranges import reached
from lakemill.core.state import EXTREMES
from lakemill.core.top import merged_top


@dataclass(frozen=True, slots=True)
class Step:
    """A relation to compute and keep: the keys that a part of the query must be evaluated for."""

    name: str
    tree: Node

    @property
    def sql(self) -> str:
        return sql(self.tree)

    @property
    def gated(self) -> bool:
        """Whether some of it must be evaluated only if another step has rows."""
        return bool(_gates(self.tree))


@dataclass(frozen=True, slots=True)
class Delta:
    """``steps`` in order, then ``tree``: the columns of the query and ``__weight``, one row per distinct row.

    ``whole`` names the operators that were evaluated whole at both ends, ``merged`` the numbers of the states that
    change.
    """

    steps: tuple[Step, ...]
    tree: Node
    whole: tuple[str, ...]
    merged: tuple[int, ...] = ()
    keyed: bool = False
    """Whether some of it was evaluated at both ends for some keys."""

    @property
    def sql(self) -> str:
        return sql(self.tree)

    @property
    def gates(self) -> frozenset[str]:
        """Steps that decide whether other parts must be evaluated."""
        return frozenset(step for tree in (*(step.tree for step in self.steps), self.tree) for step in _gates(tree))

    @property
    def evaluated(self) -> list[Node]:
        """The trees that are surely evaluated: not those of steps that only tell in which range keys lie."""
        shown = [self.tree, *(Read(leaf(number, "delta"), ()) for number in self.merged)]
        return [self.tree, *reached(shown, {step.name: step.tree for step in self.steps}).values()]

    def without(self, empty: frozenset[str]) -> Delta:
        """The delta without the parts that come from these steps, which have no rows."""
        steps = tuple(Step(step.name, _without(step.tree, empty)) for step in self.steps)
        return replace(self, steps=steps, tree=_without(self.tree, empty))


def _gates(node: Node) -> list[str]:
    below = [step for child in children(node) for step in _gates(child)]
    return [*below, node.step] if isinstance(node, IfAny) else below


def _without(node: Node, empty: frozenset[str]) -> Node:
    node = rebuilt(node, lambda child: _without(child, empty))
    if isinstance(node, SetOp) and node.kind == "union" and node.all:
        sides = [side for side in (node.left, node.right) if not (isinstance(side, IfAny) and side.step in empty)]
        if len(sides) == 1 and names(sides[0]) == names(node):
            return sides[0]
    return node


def derive(query: Node, changed: frozenset[int]) -> Delta:
    """The delta of a query of which only these sources changed, at least one of them; and the clock, if it asks for it.

    Trees that ask for it have the parameters ``$now_a`` and ``$now_b``.
    """
    kept = states(query)
    deriving = _Deriving(changed, frozenset(state.source for state in kept))
    touched = [state for state in kept if deriving.touches(state)]
    for state in touched:  # each after those that it is computed from, and before all that reads it
        rows = state.child.child
        signed = deriving.delta(rows)
        if _computed(rows) and any(part.kind in EXTREMES for part in state.parts):
            signed = consolidated(signed, names(rows))  # a row that comes and goes in two terms was never there
        found = merged_top(state, signed) if isinstance(state.child, Top) else merged(state, signed, restrict)
        deriving.steps += [Step(name, tree) for name, tree in found]
    tree = consolidated(deriving.delta(query), names(query))
    numbers = tuple(state.source for state in touched)
    moved = changed | frozenset(numbers)
    steps = tuple(Step(step.name, _settled(step.tree, moved)) for step in deriving.steps)
    return Delta(steps, _settled(tree, moved), tuple(deriving.whole), numbers, deriving.keyed)


def _settled(node: Node, moved: frozenset[int]) -> Node:
    """What did not change is the same at both ends: it is asked for at one of them."""
    if isinstance(node, Scan):
        return node if node.source in moved else replace(node, end="b")
    return rebuilt(node, lambda child: _settled(child, moved))


@dataclass(slots=True)
class _Deriving:
    changed: frozenset[int]
    states: frozenset[int]
    steps: list[Step] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)
    keyed: bool = False

    def touches(self, node: Node) -> bool:
        """Whether a node's rows can change: by a source below it, or by time."""
        if isinstance(node, Scan):
            return node.source in self.changed
        return timely(node) or any(self.touches(child) for child in children(node))

    def delta(self, node: Node) -> Node:
        """The signed rows of a node that a changed source is below of; not yet consolidated."""
        match node:
            case Scan():
                return replace(node, end="delta")
            case Filter() if timely(node):
                return self._passing_time(node)
            case _ if timely(node):  # anywhere else, every row can change with the time
                return self._keyed(node, [[]])
            case Filter() | Unnest():
                return replace(node, child=self.delta(node.child))
            case Project(columns=columns):
                return Project(self.delta(node.child), (*columns, (WEIGHT, column(WEIGHT))))
            case SetOp(kind="union", all=True):
                return self._union(node)
            case Join(kind="inner"):
                return self._inner_join(node)
            case Join(kind="right"):
                turned = replace(node, kind="left", left=node.right, right=node.left)
                return Project(self.delta(turned), itself((*names(node), WEIGHT)))
            case Join():
                pairs = equal_pairs(node)
                return self._keyed(node, [[left for left, _ in pairs], [right for _, right in pairs]])
            case Stored():
                return Scan(node.source, node.columns, "delta")
            case Aggregate(keys=keys):
                return self._keyed(node, [[value for _, value in keys]])
            case Window(keys=shared):
                return self._keyed(node, [list(shared)])
            case Distinct(child=child):
                return self._keyed(node, [[column(name) for name in names(child)]])
            case SetOp(left=left, right=right):
                return self._keyed(node, [[column(name) for name in names(side)] for side in (left, right)])
        return self._keyed(node, [[]])

    # ------------------------------------------------------------ rules
    def _passing_time(self, node: Filter) -> Node:
        """Changed rows that meet the condition now; and of the rows that were there, those that time let in or out."""
        before = at(node.child, "a")
        moved = _difference(Filter(before, bound(node.condition, "a")), Filter(before, bound(node.condition, "b")))
        if not self.touches(node.child):
            return moved
        changed = Project(self.delta(node.child), itself(names(moved)))  # an unnested column may come after the weight
        return union_all([Filter(changed, bound(node.condition, "b")), moved])

    def _union(self, node: SetOp) -> Node:
        sides = [side for side in (node.left, node.right) if self.touches(side)]
        named = (*names(node), WEIGHT)
        return union_all([_renamed(self.delta(side), (*names(side), WEIGHT), named) for side in sides])

    def _inner_join(self, node: Join) -> Node:
        """The relations that changed among themselves, and what comes of that with all others, which are as they were.

        Where equalities don't connect the changed ones, they are joined through the others, term by term.
        """
        parts, conditions = cluster(node)
        changed = [part for part in parts if self.touches(part)]
        if len(changed) > 1 and not is_connected(changed, conditions):
            return Project(self._terms(parts, conditions), itself((*names(node), WEIGHT)))
        here = {name for part in changed for name in names(part)}
        inside = [condition for condition in conditions if used(condition) <= here]
        others = [part for part in parts if not self.touches(part)]
        delta = self._terms(changed, inside)
        beside = [self._near(at(part, "b"), delta, conditions) for part in others]
        rest = [condition for condition in conditions if not used(condition) <= here]
        return Project(connected([delta, *beside], rest), itself((*names(node), WEIGHT)))

    def _terms(self, parts: Sequence[Node], conditions: Sequence[Expr]) -> Node:
        """One term per relation: its delta with those before it as they are, and those after it as they were.

        With all others as they are, a row that is new on two sides would come twice.
        """
        terms: list[Node] = []
        out = itself((*(name for part in parts for name in names(part)), WEIGHT))
        for number, part in enumerate(parts):
            if self.touches(part):
                delta = self.delta(part)
                step = None
                if len(parts) > 1 and not any(_meet(part, other, conditions) for other in parts if other is not part):
                    # every row of the others meets it: it must be known to be something
                    step = self._step(consolidated(delta, names(part)))
                    delta = Read(step, names(delta))
                sides = [
                    delta if i == number else self._near(at(other, "b" if i < number else "a"), delta, conditions)
                    for i, other in enumerate(parts)
                ]
                term = Project(connected(sides, conditions, number), out)
                terms.append(term if step is None else IfAny(term, step))
        return union_all(terms)

    def _near(self, side: Node, delta: Node, conditions: Sequence[Expr]) -> Node:
        """A side of a join with a delta, of which only the rows matter that meet the delta's keys."""
        pairs = equal_pairs(Join("inner", side, delta, together(conditions)))
        pairs = [(mine, theirs) for mine, theirs in pairs if isinstance(mine, exp.Column)]
        if not pairs:
            return side
        wanted = Project(delta, tuple((f"__k{i}", theirs) for i, (_, theirs) in enumerate(pairs)))
        step = self._step(Distinct(wanted))
        keys = tuple((mine, f"__k{i}") for i, (mine, _) in enumerate(pairs))
        return restrict(side, keys, step, exact=False)

    def _step(self, tree: Node) -> str:
        """A step for a tree; equal ones are one."""
        known = next((step for step in self.steps if step.tree == tree), None)
        if known is None:
            known = Step(f"keys{len(self.steps) + 1}", tree)
            self.steps.append(known)
        return known.name

    def _keyed(self, node: Node, keys: Sequence[Sequence[Expr]]) -> Node:
        """The operator at both ends, for the keys that the deltas of its inputs touch."""
        self.keyed = True
        if not keys[0]:
            before, after = at(node, "a"), at(node, "b")
            if not {scan.source for scan in scans(before)} <= self.states:
                self.whole.append("Clock" if timely(node) else type(node).__name__)
            return _difference(before, after)
        inputs = children(node)
        named = [f"__k{i}" for i in range(len(keys[0]))]
        touched: list[Node] = []
        for side, expressions in zip(inputs, keys, strict=True):
            if self.touches(side):
                rows = consolidated(self.delta(side), names(side)) if _computed(side) else self.delta(side)
                touched.append(Project(rows, tuple(zip(named, expressions, strict=True))))
        step = self._step(Distinct(union_all(touched)))
        wanted = iter(keys)  # children are changed in their order
        node = rebuilt(node, lambda side: restrict(side, tuple(zip(next(wanted), named, strict=True)), step))
        return _difference(at(node, "a"), at(node, "b"))


def _meet(one: Node, other: Node, conditions: Sequence[Expr]) -> bool:
    return bool(equal_pairs(Join("inner", one, other, together(conditions))))


def _computed(node: Node) -> bool:
    """Whether a node's delta can hold rows that cancel: those of several terms, or of something at both ends."""
    if isinstance(node, Scan):
        return False
    if isinstance(node, Filter | Project | Unnest) and not timely(node):
        return _computed(node.child)
    return True


def _renamed(node: Node, own: Sequence[str], wanted: Sequence[str]) -> Node:
    return Project(node, tuple((name, column(mine)) for name, mine in zip(wanted, own, strict=True)))


def _difference(before: Node, after: Node) -> Node:
    """The rows after with weight 1, and those before with weight −1."""
    return union_all([weighed(after, 1), weighed(before, -1)])


# ---------------------------------------------------------------- restricting
Keys = tuple[tuple[Expr, str], ...]


def restrict(node: Node, keys: Keys, step: str, *, exact: bool = True) -> Node:
    """The node's rows whose key is in the step, the restriction as far down as it goes: there it spares reading."""

    def inner(child: Node, keys: Keys) -> Node:
        return restrict(child, keys, step, exact=exact)

    match node:
        case Filter(child=child):
            return replace(node, child=inner(child, keys))
        case Project(child=child, columns=columns):
            return replace(node, child=inner(child, _through(keys, dict(columns))))
        case Distinct(child=child):
            return replace(node, child=inner(child, keys))
        case SetOp(left=left, right=right):
            other = {mine: column(theirs) for mine, theirs in zip(names(left), names(right), strict=True)}
            return replace(node, left=inner(left, keys), right=inner(right, _through(keys, other)))
        case Unnest(child=child, name=name):
            if all(name not in used(value) for value, _ in keys):
                return replace(node, child=inner(child, keys))
        case Aggregate(keys=own) if own:
            groups = dict(own)
            inside = tuple((value, name) for value, name in keys if used(value) <= groups.keys())
            return _below(node, keys, _through(inside, groups), step, exact)
        case Window(keys=shared):
            texts = {value.sql() for value in shared}
            inside = tuple((value, name) for value, name in keys if value.sql() in texts)
            return _below(node, keys, inside, step, exact)
        case Join(kind=kind) if kind in ("inner", "left", "semi", "anti"):
            return _into_join(node, keys, step, exact)
    return Restrict(node, keys, step, exact)


def _through(keys: Keys, values: dict[str, Expr]) -> Keys:
    return tuple((substitute(value, values), name) for value, name in keys)


def _below(node: Aggregate | Window, keys: Keys, inside: Keys, step: str, exact: bool) -> Node:
    """``inside``: keys that are whole groups, which go below; where others are left, the result is restricted too."""
    limited: Node = replace(node, child=restrict(node.child, inside, step, exact=exact)) if inside else node
    return limited if len(inside) == len(keys) else Restrict(limited, keys, step, exact)


def _into_join(node: Join, keys: Keys, step: str, exact: bool) -> Node:
    """Keys of one side restrict it; through the join's equalities they restrict the other side too."""
    left_names, right_names = set(names(node.left)), set(names(node.right))
    to_left = [(value, name) for value, name in keys if used(value) <= left_names]
    to_right = [(value, name) for value, name in keys if used(value) <= right_names]
    kept = len(to_left) == len(keys) or (node.kind == "inner" and len(to_right) == len(keys))
    equal = equal_pairs(node)
    across = {left.sql(): right for left, right in equal}
    right_keys = [(across[value.sql()], name) for value, name in to_left if value.sql() in across]
    left_keys = list(to_left)
    if node.kind == "inner":
        back = {right.sql(): left for left, right in equal}
        left_keys += [(back[value.sql()], name) for value, name in to_right if value.sql() in back]
        right_keys += to_right
    left = restrict(node.left, tuple(left_keys), step, exact=exact) if left_keys else node.left
    right = restrict(node.right, tuple(right_keys), step, exact=exact) if right_keys else node.right
    limited = replace(node, left=left, right=right)
    return limited if kept else Restrict(limited, keys, step, exact)
