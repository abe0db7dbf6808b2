"""Hidden state: what a table of ours keeps of groups, or of an order, so that a delta is only added to it.

An aggregate of counts, sums and averages over exact types changes by what its changed rows add to it; a minimum or a
maximum does, unless the row that had it goes. ``keep`` finds such aggregates in a tree and puts ``Stored`` in their
place: the parts of each group, with the aggregate's own values computed from them. ``core/merge`` is the rule of
``delta`` for it. Floats are never added to: the order in which they are summed shows in their last bits. The first rows
of an order are kept, too; their rule is ``core/top``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from lakemill.core import ducktypes as t
from lakemill.core.algebra import (
    Aggregate,
    Expr,
    Node,
    Part,
    Project,
    Stored,
    Top,
    column,
    itself,
    names,
    rebuilt,
    scans,
    timely,
)
from lakemill.core.top import held, shown, total_order
from lakemill.core.widen import Types, recast, types_of, widened

_KEYS = {"BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DECIMAL", "VARCHAR", "DATE"} | {
    "TIMESTAMP",
    "TIMESTAMPTZ",
}
"""Types of which equal values are written alike, and which Spark stores as it shows them."""
_FLOATS = {"FLOAT", "DOUBLE"}
"""Not to be added up, nor to be told apart by their bits; but they can be put in order, and shown."""
_ZERO = exp.Literal.number(0)
EXTREMES: Mapping[str, type[exp.AggFunc]] = {"min": exp.Min, "max": exp.Max}


def keep(tree: Node, types: Types) -> Node:
    """The tree with a state for every aggregate that can have one; their numbers follow those of the sources."""
    return _Keeping(types, len(types)).node(widened(tree, types))


def plain(tree: Node, types: Types) -> Node:
    """The tree without states, showing what it shows with them: of rows that are equal in an order, too, the same."""

    def node(found: Node) -> Node:
        below = rebuilt(found, node)
        if not isinstance(below, Top) or _row_of(below, types) is None:
            return below
        return replace(below, order=total_order(below.order, names(below)))

    return node(widened(tree, types))


def column_types(state: Stored, types: Types) -> tuple[tuple[str, str], ...]:
    """The columns of a state's table, with DuckDB's types."""
    plain = state.child.keys if isinstance(state.child, Aggregate) else itself(names(state.child))
    known = types_of(state.child.child, plain, types)
    assert known is not None  # noqa: S101  (else there were no state)
    found = [str(known[name]) for name, _ in plain] + [part.type for part in state.parts]
    return tuple((own, type_) for (_, own), type_ in zip(state.columns, found, strict=True))


@dataclass(slots=True)
class _Keeping:
    types: Types
    next: int

    def node(self, node: Node) -> Node:
        below = rebuilt(node, self.node)
        match below:
            case Aggregate():
                return self._stored(below) or below
            case Top():
                return self._first_rows(below) or below
        return below

    def _first_rows(self, node: Top) -> Node | None:
        """The start of an order: what is shown is taken from a state that holds more of it."""
        rows, known = shown(node.limit, node.offset), _row_of(node, self.types)
        if rows is None or known is None:
            return None
        wide = [name for name, type_ in known.items() if type_ == t.HUGEINT]
        order = total_order(node.order, names(node))
        number, self.next = self.next, self.next + 1
        own = tuple((name, f"column{i}") for i, name in enumerate(names(node)))
        more = Top(
            recast(node.child, dict.fromkeys(wide, t.decimal(t.MOST_DIGITS, 0))),
            order,
            exp.Literal.number(held(rows)),
            None,
        )
        first = replace(node, child=Stored(more, (), number, own), order=order)
        return recast(first, dict.fromkeys(wide, t.HUGEINT))

    def _stored(self, node: Aggregate) -> Node | None:
        if timely(node) or not scans(node):
            return None
        known = types_of(node.child, node.keys, self.types)
        if known is None or any(type_.name not in _KEYS for type_ in known.values()):
            return None
        arguments = {name: _argument(value) for name, value in node.values}
        if None in arguments.values():
            return None
        wanted = tuple((name, value) for name, value in arguments.items() if value is not None)
        found = types_of(node.child, wanted, self.types)
        if found is None:
            return None
        parts: dict[tuple[str, str], Part] = {}
        first = next(iter(arguments), "") or (node.keys[0][0] if node.keys else "group")
        rows = _part(parts, f"{first}_rows", "rows", exp.true(), "BIGINT")
        values: list[tuple[str, Expr]] = []
        for name, call in node.values:
            value = _value(parts, rows, name, call, arguments[name] or exp.true(), found[name])
            if value is None:
                return None
            values.append((name, value))
        number, self.next = self.next, self.next + 1
        own = [f"key{i}" for i in range(len(node.keys))] + [f"part{i}" for i in range(len(parts))]
        inner = replace(node, values=tuple((part.name, _whole(part)) for part in parts.values()))
        state = Stored(inner, tuple(parts.values()), number, tuple(zip(names(inner), own, strict=True)))
        return Project(state, (*itself(name for name, _ in node.keys), *values))


def _row_of(node: Top, types: Types) -> Mapping[str, t.Type] | None:
    """The types of rows of which a state can hold the first; None where it can't."""
    if shown(node.limit, node.offset) is None or timely(node) or not scans(node):
        return None
    known = types_of(node.child, itself(names(node)), types)
    if known is None or any(type_.name not in _KEYS | _FLOATS | {"HUGEINT"} for type_ in known.values()):
        return None
    return known


# ---------------------------------------------------------------- aggregates as parts
def _argument(call: Expr) -> Expr | None:
    """What an aggregate takes of each row, NULL where it takes none; None where sums and counts don't make it."""
    if isinstance(call, exp.Filter):
        inner = _argument(call.this)
        if inner is None:
            return None
        return exp.Case(ifs=[exp.If(this=call.expression.this.copy(), true=inner)])
    known = isinstance(call, exp.Count | exp.Sum | exp.Avg | exp.Min | exp.Max)
    if not known or isinstance(call.this, exp.Distinct):
        return None
    if call.args.get("expressions"):
        return None
    if call.this is None or isinstance(call.this, exp.Star):
        return exp.true()
    argument: Expr = call.this.copy()
    return argument


def _value(
    parts: dict[tuple[str, str], Part], rows: Expr, name: str, call: Expr, argument: Expr, type_: t.Type
) -> Expr | None:
    """The aggregate's value from the parts that it needs, which are added."""
    function = call.this if isinstance(call, exp.Filter) else call
    if isinstance(function, exp.Count):
        if exp.true() == argument:
            return rows
        return _part(parts, f"{name}_count", "count", argument, "BIGINT")
    if isinstance(function, exp.Min | exp.Max):
        kind = "min" if isinstance(function, exp.Min) else "max"
        return _part(parts, f"{name}_{kind}", kind, argument, str(type_)) if type_.name in _KEYS else None
    if not (t.integer(type_) or type_.name in ("DECIMAL", "BOOLEAN")):
        return None
    result = exp.DataType.build("HUGEINT" if type_.name != "DECIMAL" else str(_total(type_)), dialect="duckdb")
    count = _part(parts, f"{name}_count", "count", argument, "BIGINT")
    argument = exp.cast(argument, "INTEGER") if type_ == t.BOOLEAN else argument
    total = _part(parts, f"{name}_total", "total", argument, str(_total(type_)))
    value: Expr = exp.cast(total, result)
    if isinstance(function, exp.Avg):
        value = exp.Div(this=exp.cast(total, "DOUBLE"), expression=count, typed=False, safe=True)
        if type_.scale:  # as core/aggregates does, because DuckDB does: digits without their point, rounded once
            point, nothing = exp.Literal.string("."), exp.Literal.string("")
            digits = exp.func("replace", exp.cast(total.copy(), "VARCHAR"), point, nothing)
            ten = exp.Mul(this=count.copy(), expression=exp.cast(exp.Literal.number(f"1e{type_.scale}"), "DOUBLE"))
            value = exp.Div(this=exp.cast(digits, "DOUBLE"), expression=exp.paren(ten), typed=False, safe=True)
    return exp.Case(ifs=[exp.If(this=exp.GT(this=count.copy(), expression=_ZERO.copy()), true=value)])


def _total(type_: t.Type) -> t.Type:
    return t.decimal(t.MOST_DIGITS, type_.scale if type_.name == "DECIMAL" else 0)


def _part(parts: dict[tuple[str, str], Part], name: str, kind: str, value: Expr, type_: str) -> Expr:
    key = (kind, value.sql())
    if key not in parts:
        parts[key] = Part(name, kind, value, type_)  # type: ignore[arg-type]
    return column(parts[key].name)


def _whole(part: Part) -> Expr:
    """A part of a group, from all its rows."""
    value = part.value.copy()
    match part.kind:
        case "rows":
            return exp.Count(this=exp.Star())
        case "count":
            return exp.Count(this=value)
        case "total":
            return never_null(exp.Sum(this=value), part.type)
    return EXTREMES[part.kind](this=value)


def never_null(total: Expr, type_: str) -> Expr:
    """A sum, zero of no rows, in this type."""
    some = exp.Coalesce(this=total, expressions=[exp.Literal.number(0)])
    return exp.cast(some, exp.DataType.build(type_, dialect="duckdb"))
