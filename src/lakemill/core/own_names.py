"""A query whose relations have names of their own, which no column has: for Spark, where it runs as it was written.

In ``xs.y < x.k`` Spark takes ``x`` for a column of ``xs``, if it has one, before it looks for a table of the query
around it; DuckDB looks for tables first. For ``spark/execute``; a tree names its relations itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count

from sqlglot import exp

from lakemill.core.algebra import Expr
from lakemill.core.names import fold

_Names = Mapping[str, str]


def own_names(query: exp.Query) -> exp.Query:
    query = query.copy()
    _Renaming().query(query, {})
    return query


class _Renaming:
    def __init__(self) -> None:
        self._fresh = (f"__relation{number}" for number in count())

    def query(self, query: Expr, outer: _Names) -> None:
        for cte in query.ctes if isinstance(query, exp.Query) else ():
            self.query(cte.this, {})
        if isinstance(query, exp.Subquery):
            self.query(query.this, outer)
        elif isinstance(query, exp.SetOperation):
            self.query(query.left, outer)
            self.query(query.right, outer)
        elif isinstance(query, exp.Select):
            self._select(query, outer)

    def _select(self, select: exp.Select, outer: _Names) -> None:
        own: dict[str, str] = {}
        for relation in _relations(select):
            if isinstance(relation, exp.Subquery):
                self.query(relation.this, outer)
            if name := relation.alias_or_name:
                own[fold(name)] = next(self._fresh)
                given = relation.args.get("alias")
                columns = given.args.get("columns") if isinstance(given, exp.TableAlias) else None
                new = exp.to_identifier(own[fold(name)], quoted=True)
                relation.set("alias", exp.TableAlias(this=new, columns=columns))
        seen = {**outer, **own}
        for found in list(_inside(select)):
            if isinstance(found, exp.Query):
                self.query(found, seen)
            elif (known := seen.get(fold(found.text("table")))) is not None:
                found.set("table", exp.to_identifier(known, quoted=True))


def _relations(select: exp.Select) -> list[Expr]:
    start = select.args.get("from_")
    return [*([start.this] if start is not None else ()), *(join.this for join in select.args.get("joins") or ())]


def _inside(select: exp.Select) -> Iterator[Expr]:
    """Columns with a table, and the outermost queries, of a block's clauses; what stands in FROM is done already."""
    done = {id(found) for found in _relations(select) if isinstance(found, exp.Subquery)}
    done |= {id(cte) for cte in select.ctes}

    def walk(node: Expr) -> Iterator[Expr]:
        for child in node.iter_expressions():
            if id(child) in done:
                continue
            query = isinstance(child, exp.Query) and not isinstance(child, exp.Subquery)
            if query or (isinstance(child, exp.Column) and child.table):
                yield child
            else:
                yield from walk(child)

    yield from walk(select)
