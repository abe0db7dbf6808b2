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
    return SetOp(node.kind, node.all, _cast(node.left, left, wide), _cast(node.right, right, wide))


def _known(side: Node, types: Types) -> list[t.Type] | None:
    found = types_of(side, itself(names(side)), types)
    return None if found is None else [found[name] for name in names(side)]


def _cast(side: Node, have: Sequence[t.Type], want: Sequence[t.Type | None]) -> Node:
    given = dict(side.columns) if isinstance(side, Project) else dict(itself(names(side)))
    columns = tuple(
        (
            name,
            given[name] if to in (None, own) else exp.cast(given[name], exp.DataType.build(str(to), dialect="duckdb")),
        )
        for name, own, to in zip(names(side), have, want, strict=True)
    )
    if all(value is given[name] for name, value in columns):
        return side
    return Project(side.child if isinstance(side, Project) else side, columns)
