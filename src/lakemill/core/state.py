"""Hidden state: groups of which a table of ours keeps exact sums and counts, so that a delta need only be added.

An aggregate of counts, sums and averages over exact types changes by what its changed rows add to it. ``keep`` finds
such aggregates in a tree and puts ``Stored`` in their place: the sums and counts of each group, with the aggregate's
own values computed from them. ``merged`` is the rule of ``delta`` for it. Floats are never added to: the order in which
they are summed shows in their last bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import sqlglot
from sqlglot import exp

from lakemill.core import dialect
from lakemill.core import ducktypes as t
from lakemill.core.algebra import (
    WEIGHT,
    Aggregate,
    Expr,
    Filter,
    Node,
    Part,
    Project,
    Restrict,
    Scan,
    Stored,
    Unnest,
    column,
    computed,
    consolidated,
    itself,
    names,
    rebuilt,
    scans,
    timely,
    union_all,
    weighed,
)
from lakemill.core.as_sql import leaf, sql
from lakemill.errors import UnsupportedSql

Types = Sequence[Mapping[str, str]]
"""By number of the source: its columns, with DuckDB's types."""
_KEYS = {"BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DECIMAL", "VARCHAR", "DATE"} | {
    "TIMESTAMP",
    "TIMESTAMPTZ",
}
"""Types of which equal values are written alike, and which Spark stores as it shows them."""
_ZERO = exp.Literal.number(0)


def keep(tree: Node, types: Types) -> Node:
    """The tree with a state for every aggregate that can have one; their numbers follow those of the sources."""
    return _Keeping(types, len(types)).node(tree)


def column_types(state: Stored, types: Types) -> tuple[tuple[str, str], ...]:
    """The columns of a state's table, with DuckDB's types."""
    keys = _types_of(state.child.child, state.child.keys, types)
    assert keys is not None  # noqa: S101  (else there were no state)
    found = [str(keys[name]) for name, _ in state.child.keys] + [part.type for part in state.parts]
    return tuple((own, type_) for (_, own), type_ in zip(state.columns, found, strict=True))


@dataclass(slots=True)
class _Keeping:
    types: Types
    next: int

    def node(self, node: Node) -> Node:
        below = rebuilt(node, self.node)
        return self._stored(below) or below if isinstance(below, Aggregate) else below

    def _stored(self, node: Aggregate) -> Node | None:
        if timely(node) or not scans(node):
            return None
        known = _types_of(node.child, node.keys, self.types)
        if known is None or any(type_.name not in _KEYS for type_ in known.values()):
            return None
        arguments = {name: _argument(value) for name, value in node.values}
        if None in arguments.values():
            return None
        wanted = tuple((name, value) for name, value in arguments.items() if value is not None)
        found = _types_of(node.child, wanted, self.types)
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


def _types_of(child: Node, columns: Sequence[tuple[str, Expr]], types: Types) -> dict[str, t.Type] | None:
    """DuckDB's types of expressions over a node; None where one of them is not known."""
    if not columns:
        return {}
    schema = {leaf(number, None): own for number, own in enumerate(types)}
    text = sql(Project(computed(child), tuple(columns)))
    try:
        found = dialect.output_types(sqlglot.parse_one(text, dialect="duckdb"), schema)
    except UnsupportedSql:
        return None
    parsed = {name: t.parse(found[name]) for name, _ in columns}
    return {name: type_ for name, type_ in parsed.items() if type_ is not None} if None not in parsed.values() else None


# ---------------------------------------------------------------- aggregates as parts
def _argument(call: Expr) -> Expr | None:
    """What an aggregate takes of each row, NULL where it takes none; None where sums and counts don't make it."""
    if isinstance(call, exp.Filter):
        inner = _argument(call.this)
        if inner is None:
            return None
        return exp.Case(ifs=[exp.If(this=call.expression.this.copy(), true=inner)])
    if not isinstance(call, exp.Count | exp.Sum | exp.Avg) or isinstance(call.this, exp.Distinct):
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
    if not (t.integer(type_) or type_.name in ("DECIMAL", "BOOLEAN")):
        return None
    result = exp.DataType.build("HUGEINT" if type_.name != "DECIMAL" else str(_total(type_)), dialect="duckdb")
    count = _part(parts, f"{name}_count", "count", argument, "BIGINT")
    argument = exp.cast(argument, "INTEGER") if type_ == t.BOOLEAN else argument
    total = _part(parts, f"{name}_total", "total", argument, str(_total(type_)))
    value: Expr = exp.cast(total, result)
    if isinstance(function, exp.Avg):
        value = exp.Div(this=exp.cast(total, "DOUBLE"), expression=count, typed=False, safe=True)
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
    if part.kind == "total":
        return _cast(exp.Sum(this=part.value.copy()), part)
    return exp.Count(this=exp.Star() if part.kind == "rows" else part.value.copy())


def _added(part: Part) -> Expr:
    """What signed rows, each of weight 1 or −1, add to a part."""
    come = exp.GT(this=column(WEIGHT), expression=_ZERO.copy())
    each: Expr = exp.Literal.number(1)
    if part.kind == "total":
        each = exp.cast(part.value.copy(), exp.DataType.build(part.type, dialect="duckdb"))
    signed: Expr = exp.Case(ifs=[exp.If(this=come, true=each)], default=exp.Neg(this=exp.paren(each.copy())))
    if part.kind == "count":
        there = exp.Not(this=exp.Is(this=exp.paren(part.value.copy()), expression=exp.null()))
        signed = exp.Case(ifs=[exp.If(this=there, true=signed)])
    return _cast(exp.Sum(this=signed), part)


def _cast(total: Expr, part: Part) -> Expr:
    some = exp.Coalesce(this=total, expressions=[_ZERO.copy()])
    return exp.cast(some, exp.DataType.build(part.type, dialect="duckdb"))


# ---------------------------------------------------------------- the rule for deltas
def merged(state: Stored, signed: Node) -> list[tuple[str, Node]]:
    """Steps that turn the signed rows of what is grouped into the state's delta, and into the state after it.

    *touched*: what they add to each group. *merged*: those groups as they were and as they are.
    """
    touched, joined, delta, after = (leaf(state.source, end) for end in ("touched", "merged", "delta", "b"))
    keys = state.columns[: len(state.child.keys)]
    parts = state.columns[len(keys) :]
    stored = tuple((own, column(name)) for name, own in state.columns)

    copies = exp.GenerateSeries(start=exp.Literal.number(1), end=exp.Abs(this=column(WEIGHT)), is_end_exclusive=False)
    rows = Unnest(signed, "__copy", copies)  # a product of a decimal and a weight can be too wide, a sum is not
    groups = Aggregate(rows, state.child.keys, tuple((part.name, _added(part)) for part in state.parts))
    some = exp.or_(*(exp.NEQ(this=column(name), expression=_ZERO.copy()) for name, _ in parts))

    before: Node = Scan(state.source, state.columns, "a")
    if keys:
        before = Restrict(before, tuple((column(name), own) for name, own in keys), touched)
    sides = []
    for node, old in ((before, True), (Scan(state.source, state.columns, "touched"), False)):
        was = tuple((f"old_{own}", column(name) if old else _ZERO.copy()) for name, own in parts)
        now = tuple((f"new_{own}", column(name)) for name, own in parts)
        sides.append(Project(node, (*((own, column(name)) for name, own in keys), *was, *now)))
    types = [part.type for part in state.parts]
    sums = tuple(
        (name, exp.cast(exp.Sum(this=column(name)), exp.DataType.build(type_, dialect="duckdb")))
        for name, type_ in zip(names(sides[0])[len(keys) :], [*types, *types], strict=True)
    )
    both = Aggregate(union_all(sides), itself(own for _, own in keys), sums)

    ends = [_end(state, "new", 1), _end(state, "old", -1)]
    change = Scan(state.source, state.columns, "delta")
    unchanged = weighed(Scan(state.source, state.columns, "a"), 1)
    return [
        (touched, Project(Filter(groups, some), stored)),
        (joined, both),
        (delta, union_all(ends)),
        (after, Project(consolidated(union_all([unchanged, change]), names(state)), stored)),
    ]


def _end(state: Stored, which: str, weight: int) -> Node:
    """The touched groups that there are at one end; without keys there is always one."""
    keys = [own for _, own in state.columns[: len(state.child.keys)]]
    parts = [own for _, own in state.columns[len(keys) :]]
    ours = tuple((f"{which}_{name}" if name in parts else name) for name in (*keys, *parts))
    scan: Node = Scan(state.source, tuple((name, name) for name in ours), "merged")
    if keys:
        scan = Filter(scan, exp.GT(this=column(f"{which}_{parts[0]}"), expression=_ZERO.copy()))
    own = tuple((name, column(mine)) for name, mine in zip((*keys, *parts), ours, strict=True))
    return weighed(Project(scan, own), weight)
