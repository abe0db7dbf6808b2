"""Which scans of a plan read only rows of some keys: what they need can be told from the range of those keys.

Between ``core/delta``, which restricts scans to the keys of a step, and the executor, which knows the keys once the
step is computed: the smallest and the largest of them rule out files and row groups before they are read. Often nothing
need be computed for it: where keys come from (``origins``), the catalog knows between which values they lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp

from lakemill.core.algebra import (
    Aggregate,
    Distinct,
    End,
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
    children,
    equal_pairs,
    names,
)
from lakemill.core.as_sql import leaf

Use = tuple[tuple[str, str, str], ...]
"""One scan of a source under a restriction: (its own column, step, key of the step), all of which hold for its rows."""
Origins = frozenset[tuple[int, str]] | None
"""Sources and columns of theirs, in whose deltas all values of a key occur; None where that can't be said."""


def uses(trees: Iterable[Node]) -> dict[tuple[int, End], list[Use]]:
    """By leaf, every scan of it; a scan without a restriction that is worth something is an empty use."""
    found: dict[tuple[int, End], list[Use]] = {}
    for tree in trees:
        _collect(tree, (), found)
    return found


def reached(trees: Iterable[Node], steps: Mapping[str, Node]) -> list[Node]:
    """The trees, and those of the steps whose rows they are computed from; a step that only tells a range is none."""
    wanted, found = list(trees), dict[str, Node]()
    for tree in wanted:
        _reach(tree, steps, found)
    return [*wanted, *found.values()]


def _reach(node: Node, steps: Mapping[str, Node], found: dict[str, Node]) -> None:
    match node:
        case Scan(source=source, end=end) if end is not None:
            read = leaf(source, end)
        case Read(step=read) | IfAny(step=read) | Restrict(step=read, exact=True):
            pass
        case _:
            read = ""
    if read in steps and read not in found:
        found[read] = steps[read]
        _reach(steps[read], steps, found)
    for child in children(node):
        _reach(child, steps, found)


def _collect(node: Node, above: Use, found: dict[tuple[int, End], list[Use]]) -> None:
    if isinstance(node, Scan):
        if node.end is not None:
            own = dict(node.columns)
            found.setdefault((node.source, node.end), []).append(
                tuple((own[name], step, key) for name, step, key in above if name in own)
            )
        return
    inside: Use = ()
    if isinstance(node, Restrict):
        own_keys = ((value.name, node.step, key) for value, key in node.keys if isinstance(value, exp.Column))
        inside = (*above, *own_keys)
    for child in children(node):
        _collect(child, inside, found)


def origins(step: str, key: str, steps: Mapping[str, Node]) -> Origins:
    """Where the keys of a step come from. None of them is NULL that is not NULL there."""
    return _origins(steps[step], key, steps)


def _origins(node: Node, name: str, steps: Mapping[str, Node]) -> Origins:
    match node:
        case Scan(source=source, end=end):
            own = dict(node.columns).get(name)
            if own is None or end is None:
                return None
            if (state := leaf(source, end)) in steps:
                return _origins(steps[state], own, steps)
            return frozenset({(source, own)}) if end == "delta" else None
        case Read(step=step):
            return _origins(steps[step], name, steps)
        case Project(child=child, columns=columns):
            return _of_value(child, dict(columns)[name], steps)
        case Aggregate(child=child, keys=keys):
            value = dict(keys).get(name)
            return None if value is None else _of_value(child, value, steps)
        case Restrict(child=child, keys=keys, step=step, exact=True):
            meant = next((theirs for value, theirs in keys if _is_column(value, name)), None)
            found = None if meant is None else origins(step, meant, steps)
            return _origins(child, name, steps) if found is None else found
        case SetOp(kind="union", left=left, right=right):
            other = names(right)[names(left).index(name)]
            found, more = _origins(left, name, steps), _origins(right, other, steps)
            return None if found is None or more is None else found | more
        case SetOp(left=left):
            return _origins(left, name, steps)
        case Join():
            return _of_join(node, name, steps)
        case Window(child=child) | Unnest(child=child):
            return _origins(child, name, steps) if name in names(child) else None
        case Filter(child=child) | Distinct(child=child) | Top(child=child) | IfAny(child=child):
            return _origins(child, name, steps)
        case Restrict(child=child):
            return _origins(child, name, steps)
    return None


def _of_join(node: Join, name: str, steps: Mapping[str, Node]) -> Origins:
    """Of the side that has the column, unless it adds NULLs; in an inner join what is equal to it will do as well."""
    on_left = name in names(node.left)
    if node.kind == "full" or (node.kind == "left" and not on_left) or (node.kind == "right" and on_left):
        return None
    found = _origins(node.left if on_left else node.right, name, steps)
    if found is not None or node.kind != "inner":
        return found
    for left, right in equal_pairs(node):
        mine, side, theirs = (left, node.right, right) if on_left else (right, node.left, left)
        if _is_column(mine, name) and (found := _of_value(side, theirs, steps)) is not None:
            return found
    return None


def _of_value(child: Node, value: Expr, steps: Mapping[str, Node]) -> Origins:
    return _origins(child, value.name, steps) if isinstance(value, exp.Column) else None


def _is_column(value: Expr, name: str) -> bool:
    return isinstance(value, exp.Column) and value.name == name
