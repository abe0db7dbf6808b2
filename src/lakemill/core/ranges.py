"""Which scans of a plan read only rows of some keys: what they need can be told from the range of those keys.

Between ``core/delta``, which restricts scans to the keys of a step, and the executor, which knows the keys once the
step is computed: the smallest and the largest of them rule out files and row groups before they are read.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from lakemill.core.algebra import End, Node, Restrict, Scan, children

Use = tuple[tuple[str, str, str], ...]
"""One scan of a source under a restriction: (its own column, step, key of the step), all of which hold for its rows."""


def uses(trees: Iterable[Node]) -> dict[tuple[int, End], list[Use]]:
    """By leaf, every scan of it; a scan without a restriction that is worth something is an empty use."""
    found: dict[tuple[int, End], list[Use]] = {}
    for tree in trees:
        _collect(tree, (), found)
    return found


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
