"""Which columns of a query's result no two rows share: its groups, its distinct rows, and what joins make of them.

For whole refreshes (``runtime/carry``): where such a key can be derived, the row that is stored and the row that was
computed for one key can be told to be the same but for the last bits of a float. Nothing is known of sources, so a
query without groups or distinct rows has no key.
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
    SetOp,
    Stored,
    Top,
    Values,
    Window,
    equal_pairs,
    itself,
    names,
)
from lakemill.core.widen import Types, types_of

Key = frozenset[str]
"""Empty: there is at most one row."""


def unique_key(node: Node, types: Types) -> Key | None:
    """Columns of the result, or None where none can be derived; NULL is a value like others."""
    match node:
        case Values():
            return Key()
        case Aggregate(keys=keys):
            return Key(name for name, _ in keys)
        case Project(child=child, columns=columns):
            return _shown(unique_key(child, types), columns)
        case Distinct(child=child):
            return _or_all(unique_key(child, types), node)
        case SetOp(kind=kind, all=all_, left=left):
            below = None if kind == "union" else unique_key(left, types)  # the others show rows of their left side only
            return below if all_ else _or_all(below, node)
        case Join():
            return _joined(node, types)
        case Filter(child=child) | Window(child=child) | Top(child=child) | Stored(child=child):
            return unique_key(child, types)
    return None


def _or_all(key: Key | None, node: Node) -> Key:
    return Key(names(node)) if key is None else key


def _shown(key: Key | None, columns: tuple[tuple[str, exp.Expr], ...]) -> Key | None:
    """The key under the names that a projection gives it; None where it leaves a column out."""
    if key is None:
        return None
    shown = {value.name: name for name, value in reversed(columns) if isinstance(value, exp.Column)}
    return Key(shown[name] for name in key) if key <= shown.keys() else None


def _joined(join: Join, types: Types) -> Key | None:
    left, right = unique_key(join.left, types), unique_key(join.right, types)
    if left is None or join.kind in ("semi", "anti"):
        return left
    if right is None or join.kind == "full":  # where NULL is a key, both sides can have a row without a partner
        return None
    pairs = _equal_columns(join, types)
    if join.kind in ("inner", "left") and right <= {other for _, other in pairs}:
        return left  # a row of the left side meets one row at most
    if join.kind in ("inner", "right") and left <= {one for one, _ in pairs}:
        return right
    return left | right


def _equal_columns(join: Join, types: Types) -> list[tuple[str, str]]:
    """Columns of both sides that are equal, in one type: two texts, say, can be equal to one number."""
    pairs = [(one, other) for one, other in equal_pairs(join) if isinstance(one, exp.Column)]
    pairs = [(one, other) for one, other in pairs if isinstance(other, exp.Column)]
    left = types_of(join.left, itself(one.name for one, _ in pairs), types) or {}
    right = types_of(join.right, itself(other.name for _, other in pairs), types) or {}
    known = [(one.name, other.name) for one, other in pairs if one.name in left and other.name in right]
    return [(one, other) for one, other in known if left[one] == right[other]]
