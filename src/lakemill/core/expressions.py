"""Looking into SQL expressions and changing them, as ``query`` needs it when it takes a block apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import cast

from sqlglot import exp

from lakemill.core.algebra import Expr, column
from lakemill.core.value import Refused

SPELLINGS: Mapping[str, type[exp.AggFunc]] = {"mean": exp.Avg}
"""Aggregates that sqlglot takes for any function: by the name that everything here knows them by."""
_SETS = (exp.GroupingSets, exp.Rollup, exp.Cube)


def spelled(query: Expr) -> Expr:
    """The query with one name for each aggregate."""

    def change(found: Expr) -> Expr:
        known = SPELLINGS.get(found.name.lower()) if isinstance(found, exp.Anonymous) else None
        if known is None or len(found.expressions) != 1:
            return found
        changed = known(this=found.expressions[0])
        changed.meta.update(found.meta)  # where it stands, for errors
        return changed

    return query.transform(change)


def keys_of(query: Expr) -> Iterator[Expr]:
    """What the query orders, groups, tells rows apart and makes windows by."""
    for clause in query.find_all(exp.Group, exp.Order, exp.Distinct, exp.Window):
        on = clause.args.get("on")
        keys = clause.args.get("partition_by") or [] if isinstance(clause, exp.Window) else (on or clause).expressions
        yield from (key.this if isinstance(key, exp.Ordered) else key for key in keys)


def unbracketed(query: Expr) -> Expr:
    """The query without brackets around all of a key, which DuckDB does not see: ``ORDER BY (2)`` is by a place."""
    limits = (one.expression for one in query.find_all(exp.Limit, exp.Offset) if one.expression is not None)
    for held in [*keys_of(query), *limits]:
        if isinstance(held, exp.Paren):
            held.replace(held.unnest())
    return query


def ungrouped(query: Expr) -> Expr:
    """The query with GROUP BY ALL as DuckDB means it, which groups by the columns of HAVING, too.

    Where it has neither a column nor an aggregate, DuckDB shows all rows.
    """
    for select in query.find_all(exp.Select):
        group, having = select.args.get("group"), select.args.get("having")
        if group is None or not group.args.get("all"):
            continue
        if (
            having is None
            and not any(map(_own_columns, select.expressions))
            and not any(map(aggregates_in, select.expressions))
        ):
            select.set("group", None)
        asked = (
            [one for one in _own_columns(having) if one.find_ancestor(exp.AggFunc) is None]
            if having is not None
            else []
        )
        if asked:
            shown = [item.unalias() for item in select.expressions]
            keys = [item for item in shown if not aggregates_in(item) and _own_columns(item)]
            select.set("group", exp.Group(expressions=[key.copy() for key in (*keys, *dict.fromkeys(asked))]))
    return query


def placed(query: Expr) -> Expr:
    """The query with the values that GROUPING SETS and their kin name by their places in the SELECT list.

    A constant can't be told there: it is NULL in a group of a set without it, and the same constant elsewhere, too.
    """
    for select in query.find_all(exp.Select):
        group = select.args.get("group")
        sets = list(group.find_all(*_SETS)) if group is not None else []
        own = [found for found in sets if found.find_ancestor(exp.Query) is select]
        for key in [key for found in own for part in found.expressions for key in members(part)]:
            numbered = isinstance(key, exp.Literal) and key.is_int
            value = select.expressions[int(key.name) - 1].unalias() if numbered else key
            if value.find(exp.Column, *_SETS) is None:
                told = f"the constant {value.sql('duckdb')} is a key of GROUPING SETS, ROLLUP or CUBE"
                raise Refused(select, told, "leave it out there, or make it a column of a subquery")
            if numbered:
                key.replace(value.copy())
    return query


def _own_columns(expression: Expr) -> list[exp.Column]:
    """The columns of the query that the expression stands in; a subquery may ask for them, too."""
    inside = [source for query in expression.find_all(exp.Query) for source in query.find_all(exp.Table, exp.Subquery)]
    within, theirs = expression.find_ancestor(exp.Query), {source.alias_or_name for source in inside}
    columns = expression.find_all(exp.Column)
    return [one for one in columns if one.find_ancestor(exp.Query) is within or one.table not in theirs]


def aggregates_in(expression: Expr) -> list[Expr]:
    """Aggregate functions that are not window functions."""
    within = expression.find_ancestor(exp.Query)
    return [
        found
        for found in expression.find_all(exp.AggFunc)
        if found.find_ancestor(exp.Query) is within
        and not isinstance(found.parent, exp.Window | exp.IgnoreNulls | exp.RespectNulls)
        and not (isinstance(found.parent, exp.Filter) and isinstance(found.parent.parent, exp.Window))
    ]


def take_aggregates(expression: Expr, found: list[tuple[str, Expr]], fresh: Callable[[str], str]) -> Expr:
    """The expression over names of aggregates; equal aggregates are computed once."""
    texts = {value.sql(): name for name, value in found}
    holder = exp.Paren(this=expression.copy())
    for aggregate in aggregates_in(holder):
        whole: Expr = aggregate
        while isinstance(whole.parent, exp.Filter | exp.WithinGroup):
            whole = whole.parent
        text = whole.sql()
        if text not in texts:
            texts[text] = fresh(aggregate.key)
            found.append((texts[text], whole.copy()))
        whole.replace(column(texts[text]))
    return cast("Expr", holder.this)


def used_outside(expression: Expr) -> set[str]:
    """The columns that an expression uses outside its subqueries."""
    within = expression.find_ancestor(exp.Query)
    return {found.name for found in expression.find_all(exp.Column) if found.find_ancestor(exp.Query) is within}


def replace_parts(expression: Expr, keys: Sequence[tuple[str, Expr]]) -> Expr:
    texts = {key.sql(): name for name, key in keys}

    def change(part: Expr) -> Expr:
        name = texts.get(part.sql())
        return column(name) if name is not None else part

    return transform(expression.copy(), change, exp.AggFunc, exp.Filter, exp.WithinGroup, exp.Query)


def transform(expression: Expr, change: Callable[[Expr], Expr], *stop: type[Expr]) -> Expr:
    """Replace parts from the top down; nothing inside ``stop``, but for windows, or inside what was replaced."""
    above = expression.parent.parent if isinstance(expression.parent, exp.Filter) else expression.parent
    if isinstance(expression, stop) and not isinstance(above, exp.Window):
        return expression
    changed = change(expression)
    if changed is not expression:
        return changed
    for child in list(expression.iter_expressions()):
        new = transform(child, change, *stop)
        if new is not child:
            child.replace(new)
    return expression


def members(part: Expr) -> list[Expr]:
    """The keys in one pair of brackets of a grouping."""
    if isinstance(part, exp.Tuple):
        return list(part.expressions)
    return [part.unnest()]


def prefixes(parts: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    for length in range(len(parts), -1, -1):
        yield tuple(i for part in parts[:length] for i in part)


def subsets(parts: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    for length in range(len(parts), -1, -1):
        for chosen in combinations(parts, length):
            yield tuple(i for part in chosen for i in part)
