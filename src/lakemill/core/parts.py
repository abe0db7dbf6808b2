"""By which columns a result can be computed in parts: keys that are read as they are, and decide what is computed.

For results too large to be staged in one go (``core/profile``): each part is the rows whose hash of these columns has
one remainder, and each is evaluated by itself. So a key must come from a source unchanged, and all that is computed
for it within its own part: a sum of floats, or a choice between equals, need not come out the same twice, and a row
would be in no part, or in two. What chooses rows by their order can't be divided at all.
"""

from __future__ import annotations

from sqlglot import exp

from lakemill.core.algebra import (
    Aggregate,
    Distinct,
    Filter,
    Join,
    Node,
    Project,
    Scan,
    SetOp,
    Stored,
    Unnest,
    children,
    names,
)


def stable_columns(node: Node) -> tuple[int, ...]:
    """The places of the output columns by which the rows can be divided; none where that can't be."""
    return tuple(place for place, name in enumerate(names(node)) if _is_key(node, name))


def _is_key(node: Node, name: str) -> bool:
    match node:
        case Scan():
            return True
        case Project(child=child, columns=columns):
            return _is_column(child, dict(columns)[name])
        case Aggregate(child=child, keys=keys):
            return name in dict(keys) and _is_column(child, dict(keys)[name])
        case Join(left=left, right=right):
            return _is_plain(node) and _is_key(left if name in names(left) else right, name)
        case SetOp(left=left, right=right):
            other = names(right)[names(left).index(name)]
            return _is_plain(node) and _is_key(left, name) and _is_key(right, other)
        case Unnest(child=child):
            return name in names(child) and _is_key(child, name)
        case Filter(child=child) | Distinct(child=child) | Stored(child=child):
            return _is_key(child, name)
    return False


def _is_column(node: Node, value: exp.Expr) -> bool:
    return isinstance(value, exp.Column) and _is_key(node, value.name)


def _is_plain(node: Node) -> bool:
    """Whether its rows are what the sources' rows make them, each by itself."""
    plain = isinstance(node, Scan | Project | Filter | Join | SetOp | Distinct | Unnest)
    return plain and all(map(_is_plain, children(node)))
