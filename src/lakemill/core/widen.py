"""The types of a tree's columns, and both sides of every set operation in one type; of a join's equalities, too.

DuckDB widens the sides of a UNION to a common type. A delta evaluates one side alone, or asks one side for keys: there
nothing would widen it, and what is made of its values (5 or 5.00 as text) would be another thing. So the casts are
written down before deltas are derived. Two whole numbers can be equal to one float and not to each other: where a join
compares them with it, they are cast, so that nobody takes what is equal for the same value. Nor are the keys of both
sides put together in a type with fewer digits than they were compared with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakemill.core import dialect
from lakemill.core import ducktypes as t
from lakemill.core.algebra import (
    Aggregate,
    Distinct,
    Expr,
    Join,
    Node,
    Project,
    SetOp,
    computed,
    conjuncts,
    equal_pairs,
    itself,
    names,
    rebuilt,
    together,
)
from lakemill.core.as_sql import leaf, sql
from lakemill.errors import UnsupportedSql

Types = Sequence[Mapping[str, str]]
"""By number of the source: its columns, with DuckDB's types."""


def types_of(child: Node, columns: Sequence[tuple[str, Expr]], types: Types) -> dict[str, t.Type] | None:
    """DuckDB's types of expressions over a node; None where one of them is not known."""
    if not columns:
        return {}
    schema = {leaf(number, None): own for number, own in enumerate(types)}
    text = sql(Project(computed(child), tuple(columns)))
    try:
        found = dialect.output_types(sqlglot.parse_one(text, dialect="duckdb"), schema)
    except (UnsupportedSql, SqlglotError):
        return None
    parsed = {name: t.parse(found[name]) for name, _ in columns}
    return {name: type_ for name, type_ in parsed.items() if type_ is not None} if None not in parsed.values() else None


def widened(node: Node, types: Types) -> Node:
    """The tree with casts where the sides of a set operation differ in type, or those of an equality with floats."""
    node = rebuilt(node, lambda child: widened(child, types))
    if isinstance(node, Join):
        return _compared_alike(node, types)
    if not isinstance(node, SetOp):
        return node
    left, right = (_known(side, types) for side in (node.left, node.right))
    if left is None or right is None:
        return node
    wide = [t.common(one, other) for one, other in zip(left, right, strict=True)]
    sides = [
        recast(side, {name: to for name, own, to in zip(names(side), have, wide, strict=True) if to not in (None, own)})
        for side, have in ((node.left, left), (node.right, right))
    ]
    return SetOp(node.kind, node.all, *sides)


def _compared_alike(join: Join, types: Types) -> Join:
    pairs = equal_pairs(join)
    if not pairs:
        return join
    left, right = (
        _types(side, [pair[place] for pair in pairs], types) for place, side in enumerate((join.left, join.right))
    )
    if left is None or right is None:
        return join
    casts: dict[int, Expr] = {}
    keys: dict[str, t.Type | None] = {}
    for (one, other), have, theirs in zip(pairs, left, right, strict=True):
        wide = t.compared(have, theirs)
        if wide is None or not (t.floating(wide) or wide != t.common(have, theirs)):
            continue
        if join.lookup and theirs != wide:
            keys[other.name] = wide
        for value, own in ((one, have), *([] if join.lookup else [(other, theirs)])):
            if own != wide:
                casts[id(value)] = exp.cast(value.copy(), exp.DataType.build(str(wide), dialect="duckdb"))
    if not casts and not keys:
        return join
    on = together(_with(part, casts) for part in conjuncts(join.on))
    return replace(join, right=_recast_keys(join.right, keys), on=on)


def _types(node: Node, values: Sequence[Expr], types: Types) -> list[t.Type] | None:
    named = [(f"v{number}", value) for number, value in enumerate(values)]
    found = types_of(node, named, types)
    return None if found is None else [found[name] for name, _ in named]


def _with(part: Expr, casts: Mapping[int, Expr]) -> Expr:
    if not isinstance(part, exp.EQ) or not {id(part.left), id(part.right)} & casts.keys():
        return part
    return exp.EQ(this=casts.get(id(part.left), part.left), expression=casts.get(id(part.right), part.right))


def _recast_keys(node: Node, wanted: Mapping[str, t.Type | None]) -> Node:
    """What a subquery says by key, with these keys in other types: still one row a key."""
    match node:
        case Aggregate(keys=keys):
            return replace(node, keys=_cast(keys, wanted))
        case Project(child=Distinct(child=Project() as rows)):
            return replace(node, child=Distinct(recast(rows, wanted)))
    return node


def recast(node: Node, wanted: Mapping[str, t.Type | None]) -> Node:
    """The node with these columns in other types."""
    if not wanted:
        return node
    below, given = (node.child, node.columns) if isinstance(node, Project) else (node, itself(names(node)))
    return Project(below, _cast(given, wanted))


def _cast(given: Sequence[tuple[str, Expr]], wanted: Mapping[str, t.Type | None]) -> tuple[tuple[str, Expr], ...]:
    types = {name: exp.DataType.build(str(type_), dialect="duckdb") for name, type_ in wanted.items()}
    return tuple((name, exp.cast(v, types[name]) if name in types else v) for name, v in given)


def _known(side: Node, types: Types) -> list[t.Type] | None:
    found = types_of(side, itself(names(side)), types)
    return None if found is None else [found[name] for name in names(side)]
