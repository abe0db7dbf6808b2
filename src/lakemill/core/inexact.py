"""Which columns of a result may differ in their last bits though nothing changed: sums of floats, and their kin.

They depend on the order in which values are added, and so does what is computed from them. For whole refreshes
(``runtime/carry``): there a difference by next to nothing is none. Any other float has the same bits every time: where
it differs, the row changed. A function that is not known here is taken for a sum.
"""

from __future__ import annotations

from sqlglot import exp

from lakemill.core import ducktypes as t
from lakemill.core.algebra import (
    Aggregate,
    Expr,
    Join,
    Node,
    Project,
    SetOp,
    Stored,
    Unnest,
    Window,
    children,
    names,
    used,
)
from lakemill.core.widen import Types, types_of

_WRAPPERS = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)
_SUMS = (exp.Sum, exp.Avg)
# One of the values, a place in their order, a number of rows, or bits: the same in any order.
_EXACT = (
    exp.ArrayAgg, exp.BitwiseAndAgg, exp.BitwiseOrAgg, exp.BitwiseXorAgg, exp.Count, exp.CountIf, exp.CumeDist,
    exp.DenseRank, exp.FirstValue, exp.GroupConcat, exp.Lag, exp.LastValue, exp.Lead, exp.LogicalAnd, exp.LogicalOr,
    exp.Max, exp.Median, exp.Min, exp.NthValue, exp.Ntile, exp.PercentRank, exp.PercentileCont, exp.PercentileDisc,
    exp.Quantile, exp.Rank, exp.RowNumber,
)  # fmt: skip


def inexact_columns(node: Node, types: Types) -> frozenset[str]:
    """Columns of the result that are no other than they were though their last bits are."""
    if isinstance(node, Stored):
        return inexact_columns(node.child, types)
    below = frozenset[str]().union(*(inexact_columns(child, types) for child in children(node)))

    def of(columns: tuple[tuple[str, Expr], ...]) -> frozenset[str]:
        return frozenset(name for name, value in columns if used(value) & below)

    match node:
        case Project(columns=columns):
            return of(columns)
        case Aggregate(child=child, keys=keys, values=values):
            added = {name for name, value in values if _adds(value, child, types)}
            return of((*keys, *values)) | added
        case Window(child=child, values=values):
            return below | of(values) | {name for name, value in values if _adds(value, child, types)}
        case Unnest(name=name, value=value):
            return below | of(((name, value),))
        case SetOp(left=left, right=right):
            sides = zip(names(left), names(right), strict=True)
            return frozenset(one for one, other in sides if one in below or other in below)
        case Join():
            return below & frozenset(names(node))
    return below


def _adds(value: Expr, child: Node, types: Types) -> bool:
    """Whether a value of an aggregation or a window depends on the order in which it meets its rows."""
    return any(_is_sum(call, child, types) for call in _calls(value))


def _calls(value: Expr) -> list[Expr]:
    windows = list(value.find_all(exp.Window))
    found = [window.this for window in windows] or list(value.find_all(exp.AggFunc)) or [value]
    return [_inside(call) for call in found]


def _inside(call: Expr) -> Expr:
    while isinstance(call, _WRAPPERS):
        call = call.this
    return call


def _is_sum(call: Expr, child: Node, types: Types) -> bool:
    if not isinstance(call, _SUMS):
        return not isinstance(call, _EXACT)
    argument = call.this.expressions[0] if isinstance(call.this, exp.Distinct) else call.this
    found = types_of(child, (("v", argument),), types)
    return found is None or t.floating(found["v"])
