"""Joins by columns of one name: what such a column means where sqlglot says it only in part.

After ``a FULL JOIN b USING (k)`` the column k is that of whichever side has a row. ``merged`` says so in HAVING,
QUALIFY and what ORDER BY computes, before sqlglot resolves names, ``chained`` in the condition of the next join, which
sqlglot writes as if k were the first table's. For ``core/qualified``.
"""

from __future__ import annotations

from sqlglot import exp

from lakemill.core.algebra import Expr
from lakemill.core.names import fold
from lakemill.core.value import Refused

MERGED = "tables by the column that their joins have merged"
STARRED = "with a star of all tables"

_MARK = "by columns of one name"
_COMMA = "after a comma"
_OUTER = ("RIGHT", "FULL")
_HIDDEN = ("SEMI", "ANTI")


def merged(query: Expr) -> Expr:
    """The query with columns of USING written out where sqlglot leaves them as they are, or takes them for an alias."""
    for select in query.find_all(exp.Select):
        select.meta[STARRED] = any(isinstance(item, exp.Star) for item in select.expressions)
        start = select.args.get("from_")
        sources = [start.this.alias_or_name] if start is not None else []
        shared: dict[str, list[str]] = {}
        after = False
        for join in select.args.get("joins") or ():
            join.meta[_MARK] = bool(join.args.get("using") or join.args.get("method"))
            join.meta[_COMMA] = not any(join.args.get(part) for part in ("on", "using", "method", "side", "kind"))
            after = after or join.meta[_COMMA]
            if after and join.side in _OUTER:  # it joins what is after the comma; a tree and Spark join all before it
                told = f"a {join.side} JOIN after a comma is not translated"
                raise Refused(join, told, "write it first in FROM, or in a subquery")
            for name in (fold(found.name) for found in join.args.get("using") or ()):
                known = shared.get(name) or (sources if len(sources) == 1 else [])
                if known and join.kind not in _HIDDEN:
                    shared[name] = [*known, join.alias_or_name]
            sources.append(join.alias_or_name)
        by_name = any(join.meta[_MARK] for join in select.args.get("joins") or ())
        if by_name and (star := next(filter(_replaces, select.expressions), None)) is not None:
            raise Refused(star, "* REPLACE beside USING is not translated", "name the columns")
        for found in [found for part in computed(select) for found in part.find_all(exp.Column)]:
            own = not found.table and found.find_ancestor(exp.Query) is select
            if own and (tables := shared.get(fold(found.name))) and not _aliased(select, found.name):
                first, *others = (exp.column(found.name, table=table) for table in tables)
                found.replace(exp.Coalesce(this=first, expressions=others))
    return query


def _replaces(item: Expr) -> bool:
    return any(star.args.get("replace") for star in item.find_all(exp.Star))


def _aliased(select: exp.Select, name: str) -> bool:
    """Whether this is an alias although it is a column: of groups, only their keys are columns."""
    group = select.args.get("group")
    keys = {fold(key.name) for key in group.expressions if isinstance(key, exp.Column)} if group is not None else set()
    return group is not None and fold(name) not in keys and fold(name) in map(fold, select.named_selects)


def computed(select: exp.Select) -> list[Expr]:
    """Where a name is first a column, then an alias; one that stands alone in ORDER BY is first an alias."""
    distinct, order = select.args.get("distinct"), select.args.get("order")
    on = distinct.args.get("on") if distinct is not None else None
    items = [*(on.expressions if on is not None else ()), *(order.expressions if order is not None else ())]
    values = [item.this if isinstance(item, exp.Ordered) else item for item in items]
    own = [part for clause in ("having", "qualify") if (part := select.args.get(clause)) is not None]
    return own + [value for value in values if not isinstance(value.unnest(), exp.Column)]


def chained(query: Expr) -> Expr:
    """The resolved query with conditions of joins on what a column has become by an outer join before them."""
    for select in query.find_all(exp.Select):
        shared: dict[str, list[str]] = {}
        outer: set[str] = set()
        beyond: set[str] = set()  # what a comma keeps from the joins after it
        hidden: set[str] = set()
        start = select.args.get("from_")
        sources = {start.this.alias_or_name} if start is not None else set()
        for join in select.args.get("joins") or ():
            if join.meta.get(_COMMA):
                beyond = set(sources)
            sources.add(join.alias_or_name)
            if join.kind in _HIDDEN:
                hidden.add(join.alias_or_name)
            if not join.meta.get(_MARK) or join.args.get("on") is None:
                continue
            for equal in list(join.args["on"].find_all(exp.EQ)):
                left, name = equal.this, equal.expression.name
                # of two columns in one USING, sqlglot coalesces all that have the name, those of a SEMI JOIN too
                found = [one.table for one in left.find_all(exp.Column) if one.table not in hidden]
                tables = shared.setdefault(name, found[:1] or [join.alias_or_name])
                if tables[0] in beyond or not found:
                    told = f"USING ({name}): which {name} it means is not clear here"
                    raise Refused(join, told, "write the condition with ON")
                first, *others = (exp.column(name, table=table) for table in tables)
                left.replace(exp.Coalesce(this=first, expressions=others) if name in outer and others else first)
                if join.kind not in _HIDDEN:
                    tables.append(join.alias_or_name)
                if join.side in _OUTER:
                    outer.add(name)
        select.meta[MERGED] = {name: frozenset(tables) for name, tables in shared.items()}
    return query
