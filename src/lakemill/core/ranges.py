"""Which scans of a plan read only rows of some keys: what they need can be told from the range of those keys.

Between ``core/delta``, which restricts scans to the keys of a step, and the executor, which knows the keys once the
step is computed: the smallest and the largest of them rule out files and row groups before they are read. Often nothing
need be computed for it, because it is known where the keys come from (``core/origins``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp

from lakemill.core.algebra import End, IfAny, Node, Read, Restrict, Scan, children, scans
from lakemill.core.as_sql import leaf

Use = tuple[tuple[str, str, str], ...]
"""One scan of a source under a restriction: (its own column, step, key of the step), all of which hold for its rows."""


def needs(tree: Node, steps: Mapping[str, Node], merged: Iterable[int]) -> dict[tuple[int, End], list[Use]]:
    """By leaf, all that a delta's tree and steps can ask of it; ``merged`` are its states.

    A state at b is, row by row, what it was at a and what came and went: of one that is read in part at b no more is
    needed at a.
    """
    after = {leaf(number, "b"): number for number in merged}
    found = uses([tree, *(step for name, step in steps.items() if name not in after)])
    for name, number in after.items():
        for scan in scans(steps[name]):
            if scan.end is not None:
                found.setdefault((scan.source, scan.end), []).extend(found.get((number, "b"), []))
    return found


def uses(trees: Iterable[Node]) -> dict[tuple[int, End], list[Use]]:
    """By leaf, every scan of it; a scan without a restriction that is worth something is an empty use."""
    found: dict[tuple[int, End], list[Use]] = {}
    for tree in trees:
        _collect(tree, (), found)
    return found


def reached(trees: Iterable[Node], steps: Mapping[str, Node]) -> dict[str, Node]:
    """The steps whose rows the trees are computed from; one that only tells a range is none of them."""
    found: dict[str, Node] = {}
    for tree in trees:
        _reach(tree, steps, found)
    return found


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
