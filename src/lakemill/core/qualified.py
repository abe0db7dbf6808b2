"""A SELECT with its names resolved and its stars expanded, each name as DuckDB means it.

sqlglot resolves names; before and after it stand the rewrites for what it takes otherwise than DuckDB does, one a
module. Every reader of a query (its tree, its lineage, its translation) starts from this form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import sqlglot
from sqlglot import exp
from sqlglot.optimizer.qualify import qualify

from lakemill.core.algebra import conjuncts, together
from lakemill.core.aliases import aliased, listed
from lakemill.core.ctes import unshadowed
from lakemill.core.expressions import placed, spelled, unbracketed, ungrouped
from lakemill.core.names import MAIN, quote
from lakemill.core.using import chained, merged
from lakemill.core.visible import settled


def qualified(text: str, schema: Mapping[str, Mapping[str, Mapping[str, str]]]) -> exp.Query:
    """A query in DuckDB's SQL, its names resolved and its stars expanded; schema → table → column → type."""
    parsed = merged(
        aliased(listed(unshadowed(unbracketed(spelled(_from_last(sqlglot.parse_one(text, dialect="duckdb")))))))
    )
    known: dict[str, object] = {quote(name): _columns(tables) for name, tables in schema.items()}
    found = qualify(parsed, dialect="duckdb", schema=known, db=MAIN, quote_identifiers=False, identify=False)
    return cast("exp.Query", _quoted(_fields(_asked_in_where(placed(ungrouped(settled(chained(found), schema)))))))


def _from_last(query: exp.Expr) -> exp.Expr:
    """The query with its joins beside FROM: where FROM stands first, sqlglot has them below its table."""
    for select in query.find_all(exp.Select):
        start = select.args.get("from_")
        if (
            start is not None
            and isinstance(start.this, exp.Table | exp.Subquery)
            and (joins := start.this.args.get("joins"))
        ):
            start.this.set("joins", None)
            select.set("joins", [*joins, *(select.args.get("joins") or ())])
    return query


def _asked_in_where(query: exp.Expr) -> exp.Expr:
    """The query with subqueries in WHERE that an inner join has in its condition: a join can't be asked them."""
    for select in query.find_all(exp.Select):
        joins = select.args.get("joins") or []
        for place, join in enumerate(joins):
            on, after = join.args.get("on"), joins[place + 1 :]
            if on is None or join.side or join.kind not in ("", "INNER", "CROSS") or join.args.get("method"):
                continue
            if any(one.side in ("RIGHT", "FULL") for one in after):  # they show rows that it lets go
                continue
            parts = conjuncts(on)
            asked = [part for part in parts if part.find(exp.Query)]
            if asked:
                join.set("on", together(part for part in parts if part not in asked))
                where = select.args.get("where")
                known = conjuncts(where.this) if where is not None else []
                select.set("where", exp.Where(this=together([*known, *asked])))
    return query


def _fields(query: exp.Expr) -> exp.Expr:
    """The query with brackets around columns of which it takes fields: as text, ``t.s.f`` is a column of a schema."""
    for dot in query.find_all(exp.Dot):
        if isinstance(dot.this, exp.Column):
            dot.set("this", exp.paren(dot.this))
    return query


def _columns(tables: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """In quotes, because sqlglot reads names as SQL."""
    return {quote(table): {quote(name): type_ for name, type_ in own.items()} for table, own in tables.items()}


def _quoted(query: exp.Expr) -> exp.Expr:
    """The query with quotes where a name needs them: it is kept as text, and those that a star brought have none."""
    for name in query.find_all(exp.Identifier):
        if quote(name.name) != name.name:
            name.set("quoted", True)
    return query
