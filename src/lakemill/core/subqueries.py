"""Subqueries become joins: EXISTS and IN semi and anti joins, or marks, and scalar ones aggregates by their keys.

A subquery sees the rows of the query around it. Where it is tied to them by equalities alone, its answer for a row
depends on the rows of one key, and a join by that key says the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from sqlglot import exp

from lakemill.core.algebra import (
    Aggregate,
    Distinct,
    Expr,
    Filter,
    Join,
    Node,
    Project,
    children,
    column,
    conjuncts,
    expressions,
    itself,
    names,
    operand,
    substitute,
    together,
    used,
)
from lakemill.core.expressions import take_aggregates
from lakemill.core.joins import ordered, pushed
from lakemill.core.shape import NotIncremental

if TYPE_CHECKING:
    from lakemill.core.query import Block


def semi_join(block: Block, node: Node, part: Expr) -> Node | None:
    """[NOT] EXISTS and [NOT] IN as a condition of their own."""
    negated = isinstance(part.unnest(), exp.Not)
    inner = part.unnest().this.unnest() if negated else part.unnest()
    if isinstance(inner, exp.Exists):
        query, more = inner.this, None
    elif isinstance(inner, exp.In) and inner.args.get("query") is not None:
        query, more = inner.args["query"], inner.this
    else:
        return None
    if isinstance(query, exp.Subquery):
        query = query.this
    right, on, values = _correlated(block, query)
    if more is not None:
        if len(values) != 1 or isinstance(more.unnest(), exp.Tuple):
            raise NotIncremental("ROW_IN_SUBQUERY", "write EXISTS with one equality per column", part)
        (value,) = map(operand, values)
        mine = operand(block.resolve(more))
        same: Expr = exp.EQ(this=mine, expression=value)
        if negated and not on and used(mine) <= {*names(node)} and used(value) <= {*names(right)}:
            return _not_in(block, query, mine, Join("anti", node, right, same))
        if negated:  # a NULL on either side is no proof that the value is not among them
            nulls = (exp.Is(this=side.copy(), expression=exp.null()) for side in (mine, value))
            same = exp.paren(exp.or_(same, *nulls))
        on = [*on, same]
    if not used(together(on)) <= {*names(node), *names(right)}:
        raise NotIncremental("CORRELATED_SUBQUERY", "correlate a subquery with the query around it only", part)
    return Join("anti" if negated else "semi", node, right, together(on))


def _not_in(block: Block, query: Expr, mine: Expr, others: Join) -> Node:
    """NOT IN a subquery that stands on its own: what is not among its values, if none of them is NULL.

    Two facts about the subquery decide for all rows: of an empty one everything is not a part, and beside a NULL
    nothing is known not to be. They are a relation of one row, which hardly ever changes.
    """
    rows, _, (value,) = _correlated(block, query)  # once more, with names of its own
    counts = [(block.builder.fresh("count"), exp.Count(this=what)) for what in (exp.Star(), value)]
    (all_, _), (some, _) = counts
    empty, clean = block.builder.fresh("empty"), block.builder.fresh("clean")
    facts = (
        (empty, exp.EQ(this=column(all_), expression=exp.Literal.number(0))),
        (clean, exp.EQ(this=column(all_), expression=column(some))),
    )
    told = Project(Aggregate(rows, (), tuple(counts)), facts)
    known = exp.Not(this=exp.Is(this=mine.copy(), expression=exp.null()))
    passes = exp.or_(column(empty), exp.and_(column(clean), known))
    return Filter(Join("inner", others, told, exp.true()), passes)


def _correlated(block: Block, query: Expr) -> tuple[Node, list[Expr], list[Expr]]:
    """A subquery's rows without the conditions on outer columns, those conditions, and its values."""
    select = query if isinstance(query, exp.Select) else None
    scope = block.visible
    alone = select is None or not _plain(select) or _adds_up(select)
    if select is None or alone or select.find(exp.AggFunc, exp.Window):
        node = block.builder.query(query, scope)
        ours = set(scope.values())
        if not any(used(value) & ours for value in _all_expressions(node)):
            return node, [], [column(name) for name in names(node)]
        if select is None or alone:
            raise NotIncremental("CORRELATED_SUBQUERY", "write the subquery as a join", query)
    return _opened(block, select)


def _opened(block: Block, select: exp.Select) -> tuple[Node, list[Expr], list[Expr]]:
    """A plain select's rows, its conditions on outer columns, and its values."""
    inner = block.within(select)
    node = inner.relations()
    local: list[Expr] = []
    on: list[Expr] = []
    if (where := select.args.get("where")) is not None:
        for part in conjuncts(where.this):
            if part.find(exp.Query):
                found = semi_join(inner, node, part)
                if found is None:
                    raise NotIncremental("NESTED_SUBQUERY", "write the inner subquery as a join", part)
                node = found
                continue
            resolved = inner.resolve(part)
            (local if used(resolved) <= set(names(node)) else on).append(resolved)
    for part in local:
        node = pushed(node, part)
    return ordered(node), on, [inner.resolve(item.unalias()) for item in select.expressions]


def joined(block: Block, node: Node, parts: Sequence[Expr], *, shown: bool = False) -> tuple[Node, list[Expr]]:
    """Scalar subqueries, and EXISTS and IN inside a condition, become columns by joins.

    ``shown``: the parts are values that somebody sees, where NULL is not the same as false.
    """
    out = []
    for part in parts:
        holder = exp.Paren(this=part.copy())
        for predicate in list(holder.find_all(exp.Exists, exp.In)):
            if predicate.find_ancestor(exp.Query) is None and predicate.find(exp.Query):
                node, value = _mark(block, node, predicate, shown)
                predicate.replace(value)
        for found in list(holder.find_all(exp.Subquery)):
            if found.find_ancestor(exp.Query) is None:
                node, value = _scalar(block, node, found)
                found.replace(value)
        if holder.find(exp.Query):
            raise NotIncremental("SUBQUERY_PREDICATE", "make it a condition of its own, joined by AND", part)
        out.append(holder.this)
    return node, out


def _mark(block: Block, node: Node, predicate: Expr, shown: bool) -> tuple[Node, Expr]:
    """EXISTS or IN as a value: whether the row's key is among the subquery's, by a left join with its keys."""
    above = predicate.parent
    while isinstance(above, exp.And | exp.Or | exp.Paren):
        above = above.parent
    query = predicate.this if isinstance(predicate, exp.Exists) else predicate.args.get("query")
    if query is None or (isinstance(predicate, exp.In) and (shown or above is not None)):
        # below a NOT or in a value, IN may be NULL, which a join does not tell from false
        raise NotIncremental("SUBQUERY_PREDICATE", "make it a condition of its own, joined by AND", predicate)
    rows, on, values = _correlated(block, query.this if isinstance(query, exp.Subquery) else query)
    if isinstance(predicate, exp.In):
        if len(values) != 1 or isinstance(predicate.this.unnest(), exp.Tuple):
            raise NotIncremental("ROW_IN_SUBQUERY", "write EXISTS with one equality per column", predicate)
        on = [*on, exp.EQ(this=operand(block.resolve(predicate.this)), expression=operand(values[0]))]
    keys, same = _key_pairs(block, node, rows, on, predicate)
    if not keys:
        raise NotIncremental("SUBQUERY_PREDICATE", "correlate it by an equality", predicate)
    mark = block.builder.fresh("mark")
    marked = Project(Distinct(Project(rows, tuple(keys))), (*itself(name for name, _ in keys), (mark, exp.true())))
    found = exp.Coalesce(this=column(mark), expressions=[exp.false()])
    return Join("left", node, marked, together(same), lookup=True), found


def _key_pairs(
    block: Block, node: Node, rows: Node, on: Sequence[Expr], place: Expr
) -> tuple[list[tuple[str, Expr]], list[Expr]]:
    """The keys by which a subquery's rows are looked up, and the conditions that look them up."""
    keys: list[tuple[str, Expr]] = []
    same: list[Expr] = []
    inside, outside = set(names(rows)), set(names(node))
    for part in on:
        one, other = (part.left, part.right) if isinstance(part, exp.EQ) else (None, None)
        if one is not None and used(one) <= inside:
            one, other = other, one
        if one is None or other is None or not used(other) <= inside or not used(one) <= outside:
            raise NotIncremental("CORRELATED_SUBQUERY", "correlate by equalities only", place)
        key = block.builder.fresh("key")
        keys.append((key, other))
        same.append(exp.EQ(this=one, expression=column(key)))
    return keys, same


def _scalar(block: Block, node: Node, subquery: exp.Subquery) -> tuple[Node, Expr]:
    """An aggregate without GROUP BY: exactly one row for every key that it is correlated by."""
    select = subquery.this
    if (
        not isinstance(select, exp.Select)
        or not _plain(select)
        or not select.expressions[0].find(exp.AggFunc)
        or select.expressions[0].find(exp.Window)
    ):
        raise NotIncremental("SCALAR_SUBQUERY", "make it an aggregate, or a join", subquery)
    rows, on, (value,) = _opened(block, select)
    if not used(value) <= set(names(rows)):
        raise NotIncremental("CORRELATED_SUBQUERY", "correlate by equalities only", subquery)
    keys, same = _key_pairs(block, node, rows, on, subquery)
    found: list[tuple[str, Expr]] = []
    value = take_aggregates(value, found, block.builder.fresh)
    if not keys:
        return Join("inner", node, Aggregate(rows, (), tuple(found)), exp.true()), exp.paren(value)
    counts = {  # a key without rows counts 0 and has no other aggregate
        name: cast("Expr", exp.Coalesce(this=column(name), expressions=[exp.Literal.number(0)]))
        for name, aggregate in found
        if aggregate.find(exp.Count)
    }
    looked_up = Join("left", node, Aggregate(rows, tuple(keys), tuple(found)), together(same), lookup=True)
    return looked_up, exp.paren(substitute(value, counts))


def _plain(select: exp.Select) -> bool:
    """Whether a block is only FROM, WHERE and SELECT."""
    clauses = ("group", "having", "qualify", "distinct", "limit", "offset", "with_")
    return not any(select.args.get(clause) for clause in clauses)


def _adds_up(select: exp.Select) -> bool:
    """Whether it has aggregates or windows itself; a subquery in its FROM may have its own."""
    return any(found.find_ancestor(exp.Query) is select for found in select.find_all(exp.AggFunc, exp.Window))


def _all_expressions(node: Node) -> list[Expr]:
    return [*expressions(node), *(found for child in children(node) for found in _all_expressions(child))]
