"""The types of a tree's columns, and both sides of every set operation in one type.

DuckDB widens the sides of a UNION to a common type. A delta evaluates one side alone, or asks one side for keys: there
nothing would widen it, and what is made of its values (5 or 5.00 as text) would be another thing. So the casts are
written down before deltas are derived.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakemill.core import dialect
from lakemill.core import ducktypes as t
from lakemill.core.algebra import Expr, Node, Project, SetOp, computed, itself, names, rebuilt
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
    """The tree with casts where the sides of a set operation differ in type."""
    node = rebuilt(node, lambda child: widened(child, types))
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


def recast(node: Node, wanted: Mapping[str, t.Type | None]) -> Node:
    """The node with these columns in other types."""
    if not wanted:
        return node
    below, given = (node.child, node.columns) if isinstance(node, Project) else (node, itself(names(node)))
    types = {name: exp.DataType.build(str(type_), dialect="duckdb") for name, type_ in wanted.items()}
    return Project(below, tuple((name, exp.cast(v, types[name]) if name in types else v) for name, v in given))


def _known(side: Node, types: Types) -> list[t.Type] | None:
    found = types_of(side, itself(names(side)), types)
    return None if found is None else [found[name] for name in names(side)]
