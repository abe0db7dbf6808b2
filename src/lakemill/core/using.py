"""Joins by columns of one name: what such a column means where sqlglot says it only in part.

After ``a FULL JOIN b USING (k)`` the column k is that of whichever side has a row. ``merged`` says so in HAVING and
QUALIFY before sqlglot resolves names, ``chained`` in the condition of the next join, which sqlglot writes as if k were
the first table's. For ``core/query``.
"""

from __future__ import annotations

from sqlglot import exp

from lakemill.core.algebra import Expr

_MARK = "by columns of one name"
_OUTER = ("RIGHT", "FULL")


def merged(query: Expr) -> Expr:
    """The query with columns of USING written out in HAVING and QUALIFY, where sqlglot leaves them as they are."""
    for select in query.find_all(exp.Select):
        start = select.args.get("from_")
        sources = [start.this.alias_or_name] if start is not None else []
        shared: dict[str, list[str]] = {}
        for join in select.args.get("joins") or ():
            join.meta[_MARK] = bool(join.args.get("using") or join.args.get("method"))
            for name in (found.name for found in join.args.get("using") or ()):
                known = shared.get(name) or (sources if len(sources) == 1 else [])
                if known and join.kind not in ("SEMI", "ANTI"):
                    shared[name] = [*known, join.alias_or_name]
            sources.append(join.alias_or_name)
        parts = [part for clause in ("having", "qualify") if (part := select.args.get(clause)) is not None]
        for found in [found for part in parts for found in part.find_all(exp.Column)]:
            own = not found.table and found.find_ancestor(exp.Query) is select
            if own and found.name in shared and found.name not in select.named_selects:
                first, *others = (exp.column(found.name, table=table) for table in shared[found.name])
                found.replace(exp.Coalesce(this=first, expressions=others))
    return query


def chained(query: Expr) -> Expr:
    """The resolved query with conditions of joins on what a column has become by an outer join before them."""
    for select in query.find_all(exp.Select):
        shared: dict[str, list[str]] = {}
        outer: set[str] = set()
        for join in select.args.get("joins") or ():
            if not join.meta.get(_MARK) or join.args.get("on") is None:
                continue
            for equal in list(join.args["on"].find_all(exp.EQ)):
                left, name = equal.this, equal.expression.name
                tables = shared.setdefault(name, [left.table])
                if name in outer:
                    first, *others = (exp.column(name, table=table) for table in tables)
                    left.replace(exp.Coalesce(this=first, expressions=others))
                if join.kind not in ("SEMI", "ANTI"):
                    tables.append(join.alias_or_name)
                if join.side in _OUTER:
                    outer.add(name)
    return query
