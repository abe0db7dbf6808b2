"""A SELECT becomes a tree of ``algebra``: names resolved, stars expanded, CTEs in place, subqueries as joins.

Line 2 of a refresh. sqlglot resolves names and types of names; here each clause of a block becomes an operator, in the
order in which SQL evaluates them. Whatever has no operator raises ``NotIncremental`` with a reason and a remedy: such a
query is still a good dynamic table, but every refresh computes it whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import cast

from sqlglot import exp

from lakemill.core.algebra import (
    Aggregate,
    Distinct,
    Expr,
    Filter,
    Join,
    JoinKind,
    Node,
    Project,
    Scan,
    SetKind,
    SetOp,
    Top,
    Unnest,
    Values,
    Window,
    children,
    column,
    conjuncts,
    expressions,
    names,
    substitute,
    together,
    used,
)
from lakemill.core.clock import volatile, with_parameter
from lakemill.core.joins import cluster, connected, pushed
from lakemill.core.narrow import narrowed


class NotIncremental(Exception):
    """Why a query can't be maintained from deltas, and what would help."""

    def __init__(self, reason: str, remedy: str, place: Expr | None = None) -> None:
        super().__init__(reason)
        self.reason, self.remedy, self.place = reason, remedy, place


class Volatile(Exception):
    """The query asks for something that neither the data nor the clock decides: it can't be a dynamic table."""

    def __init__(self, place: Expr) -> None:
        super().__init__(place.sql(dialect="duckdb"))
        self.place = place


Scope = dict[tuple[str, str], str]
"""(alias, column) → our name."""


@dataclass(slots=True)
class _Builder:
    sources: Mapping[str, int]
    columns: Mapping[str, Sequence[str]]
    count: int = 0
    ctes: dict[str, exp.Query] = field(default_factory=dict)

    def fresh(self, name: str) -> str:
        self.count += 1
        return f"{name or 'x'}_{self.count}"

    # ------------------------------------------------------------ queries
    def query(self, query: Expr, outer: Scope | None = None) -> Node:
        if isinstance(query, exp.Subquery):
            return self.query(query.this, outer)
        known = dict(self.ctes)
        if (with_ := query.args.get("with_") or query.args.get("with")) is not None:
            if with_.args.get("recursive"):
                raise NotIncremental("RECURSIVE_CTE", "a recursive query is computed whole; bound its depth by joins")
            for cte in with_.expressions:
                self.ctes[cte.alias] = cte.this
        try:
            if isinstance(query, exp.SetOperation):
                return self._set_operation(query, outer)
            if isinstance(query, exp.Select):
                return _Block(self, query, outer or {}).build()
        finally:
            self.ctes = known
        raise NotIncremental("UNKNOWN_STATEMENT", "write a SELECT", query)

    def _set_operation(self, query: exp.SetOperation, outer: Scope | None) -> Node:
        if query.args.get("by_name"):
            raise NotIncremental("UNION_BY_NAME", "write the columns of both sides in the same order", query)
        left, right = self.query(query.left, outer), self.query(query.right, outer)
        kind = cast("SetKind", type(query).__name__.lower())
        all_ = not query.args.get("distinct", True)
        if kind == "union":
            node: Node = SetOp("union", True, left, right)
            node = node if all_ else Distinct(node)
        else:
            node = SetOp(kind, all_, left, right)
        return self.top(query, node, dict(zip(query.named_selects, names(left), strict=True)))

    def top(self, query: exp.Query, node: Node, by_name: Mapping[str, str]) -> Node:
        """LIMIT and OFFSET; an ORDER BY without them means nothing in a table."""
        limit, offset, order = (query.args.get(part) for part in ("limit", "offset", "order"))
        if limit is None and offset is None:
            return node
        if order is None:
            raise NotIncremental("LIMIT_WITHOUT_ORDER", "add an ORDER BY that leaves no ties", limit or offset)
        values = {name: column(ours) for name, ours in by_name.items()}
        keys = tuple(substitute(item, values) for item in order.expressions)
        return Top(node, keys, limit and limit.expression, offset and offset.expression)

    # ------------------------------------------------------------ relations
    def relation(self, relation: Expr, scope: Scope) -> Node:
        alias = relation.alias_or_name
        if isinstance(relation, exp.Table):
            if relation.args.get("joins") or not isinstance(relation.this, exp.Identifier):
                raise NotIncremental("TABLE_FUNCTION", "load it into a table first", relation)
            for part in ("sample", "pivots", "when", "version"):
                if relation.args.get(part):
                    raise NotIncremental(f"TABLE_{part.upper()}", f"write the query without {part}", relation)
            cte = self.ctes.get(relation.name) if not relation.db else None
            if cte is not None:
                outside = {name: query for name, query in self.ctes.items() if name != relation.name}
                self.ctes, known = outside, self.ctes
                node = self.query(cte)
                self.ctes = known
                return self._named(node, cte.named_selects, alias, scope)
            name = f"{relation.db}.{relation.name}"
            pairs = tuple((self.fresh(own), own) for own in self.columns[name])
            scope |= {(alias, own): ours for ours, own in pairs}
            return Scan(self.sources[name], pairs)
        if isinstance(relation, exp.Subquery):
            if relation.args.get("sample") or relation.args.get("pivots"):
                raise NotIncremental("PIVOT_OR_SAMPLE", "write the aggregates out", relation)
            return self._named(self.query(relation.this), relation.this.named_selects, alias, scope)
        raise NotIncremental(f"RELATION_{type(relation).__name__.upper()}", "write it as a table or subquery", relation)

    def _named(self, node: Node, given: Sequence[str], alias: str, scope: Scope) -> Node:
        scope |= {(alias, name): ours for name, ours in zip(given, names(node), strict=True)}
        return node


@dataclass(slots=True)
class _Block:
    """One SELECT … FROM … WHERE … GROUP BY … HAVING … QUALIFY … DISTINCT … LIMIT."""

    builder: _Builder
    select: exp.Select
    outer: Scope
    scope: Scope = field(default_factory=dict)

    def build(self) -> Node:
        select = self.select
        for clause in ("laterals", "sample", "connect", "match", "windows", "kind", "pivots", "cluster", "sort"):
            if select.args.get(clause):
                raise NotIncremental(f"CLAUSE_{clause.upper()}", f"write the query without {clause}", select)
        node = self._from()
        if (where := select.args.get("where")) is not None:
            node = self._where(node, where.this)
        node = _ordered(node)
        items = [(item.alias_or_name, item.unalias()) for item in select.expressions]
        having, qualify = (part and part.this for part in (select.args.get("having"), select.args.get("qualify")))
        parts = [*(value for _, value in items), *(part for part in (having, qualify) if part is not None)]
        node, parts = self._aggregates(node, [self.resolve(part) for part in parts])
        node, parts = self._subqueries(node, parts)
        if having is not None:
            node = Filter(node, parts[len(items)])
        node, parts = self._windows(node, parts)
        if qualify is not None:
            node = Filter(node, parts[-1])
        node = self._distinct_on(node, dict(zip((name for name, _ in items), parts, strict=False)))
        node, values = self._unnests(node, parts[: len(items)])
        out = tuple((self.builder.fresh(name), value) for (name, _), value in zip(items, values, strict=True))
        node = Project(node, out)
        return self._distinct_and_top(node, [name for name, _ in items])

    def resolve(self, expression: Expr) -> Expr:
        """Qualified columns become ours, those of outer queries too; subqueries inside stay as they are."""

        def change(found: Expr) -> Expr:
            if isinstance(found, exp.Column) and found.table:
                key = (found.table, found.name)
                ours = self.scope.get(key) or self.outer.get(key)
                if ours is None:
                    raise NotIncremental("UNRESOLVED_COLUMN", "name the column's table", found)
                return column(ours)
            return found

        return _transform(expression.copy(), change, exp.Query)

    # ------------------------------------------------------------ FROM, WHERE
    def _from(self) -> Node:
        start = self.select.args.get("from_") or self.select.args.get("from")
        if start is None:
            return Values()
        node = self.builder.relation(start.this, self.scope)
        for join in self.select.args.get("joins") or ():
            node = self._join(node, join)
        return node

    def _join(self, left: Node, join: exp.Join) -> Node:
        side, kind, method = (str(join.args.get(part) or "").upper() for part in ("side", "kind", "method"))
        if method:
            raise NotIncremental(f"{method}_JOIN", "write the condition of the join out", join)
        if isinstance(join.this, exp.Unnest):
            return self._unnest_join(left, join, side)
        right = self.builder.relation(join.this, self.scope)
        on = join.args.get("on")
        word = cast("JoinKind", (kind if kind in ("SEMI", "ANTI") else side or "INNER").lower())
        return Join(word, left, right, self.resolve(on) if on is not None else exp.true())

    def _unnest_join(self, left: Node, join: exp.Join, side: str) -> Node:
        unnest = join.this
        on = join.args.get("on")
        alias = unnest.args.get("alias")
        named = [item.name for item in alias.columns] if alias is not None else []
        simple = len(unnest.expressions) == 1 and len(named) <= 1 and not unnest.args.get("offset")
        if not simple or side not in ("", "LEFT", "CROSS") or (on is not None and not _is_true(on)):
            raise NotIncremental("UNNEST_FORM", "unnest one list, without a condition", join)
        value = self.resolve(unnest.expressions[0])
        name = self.builder.fresh(named[0] if named else "unnest")
        self.scope[(unnest.alias, named[0] if named else "unnest")] = name
        return Unnest(left, name, value, keep=side == "LEFT")

    def _where(self, node: Node, condition: Expr) -> Node:
        plain = []
        for part in conjuncts(condition):
            joined = self._semi_join(node, part)
            if joined is not None:
                node = joined
            else:
                plain.append(part)
        node, resolved = self._subqueries(node, [self.resolve(part) for part in plain])
        for part in resolved:
            node = pushed(node, part)
        return node

    # ------------------------------------------------------------ subqueries
    def _semi_join(self, node: Node, part: Expr) -> Node | None:
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
        right, on, values = self._correlated(query)
        if more is not None:
            (value,) = values
            mine = self.resolve(more)
            same: Expr = exp.EQ(this=mine, expression=value)
            if negated:  # a NULL on either side is no proof that the value is not among them
                nulls = (exp.Is(this=side.copy(), expression=exp.null()) for side in (mine, value))
                same = exp.paren(exp.or_(same, *nulls))
            on = [*on, same]
        return Join("anti" if negated else "semi", node, right, together(on))

    def _correlated(self, query: Expr) -> tuple[Node, list[Expr], list[Expr]]:
        """A subquery's rows without the conditions on outer columns, those conditions, and its values."""
        block = query if isinstance(query, exp.Select) else None
        scope = {**self.outer, **self.scope}
        plain = block is not None and not any(
            block.args.get(part) for part in ("group", "having", "qualify", "distinct", "limit", "offset", "with_")
        )
        if block is None or not plain or block.find(exp.AggFunc, exp.Window):
            node = self.builder.query(query, scope)
            ours = set(scope.values())
            if any(used(value) & ours for value in _all_expressions(node)):
                raise NotIncremental("CORRELATED_SUBQUERY", "write the subquery as a join", query)
            return node, [], [column(name) for name in names(node)]
        return self._opened(block)

    def _opened(self, block: exp.Select) -> tuple[Node, list[Expr], list[Expr]]:
        """A plain block's rows, its conditions on outer columns, and its values."""
        inner = _Block(self.builder, block, {**self.outer, **self.scope})
        node = inner._from()
        local: list[Expr] = []
        on: list[Expr] = []
        if (where := block.args.get("where")) is not None:
            for part in conjuncts(where.this):
                if part.find(exp.Query):
                    joined = inner._semi_join(node, part)
                    if joined is None:
                        raise NotIncremental("NESTED_SUBQUERY", "write the inner subquery as a join", part)
                    node = joined
                    continue
                resolved = inner.resolve(part)
                (local if used(resolved) <= set(names(node)) else on).append(resolved)
        for part in local:
            node = pushed(node, part)
        return _ordered(node), on, [inner.resolve(item.unalias()) for item in block.expressions]

    def _subqueries(self, node: Node, parts: Sequence[Expr]) -> tuple[Node, list[Expr]]:
        """Scalar subqueries, and EXISTS and IN inside a condition, become columns by joins."""
        out = []
        for part in parts:
            holder = exp.Paren(this=part.copy())
            for predicate in list(holder.find_all(exp.Exists, exp.In)):
                if predicate.find_ancestor(exp.Query) is None and predicate.find(exp.Query):
                    node, value = self._mark(node, predicate)
                    predicate.replace(value)
            for found in list(holder.find_all(exp.Subquery)):
                if found.find_ancestor(exp.Query) is None:
                    node, value = self._scalar(node, found)
                    found.replace(value)
            if holder.find(exp.Query):
                raise NotIncremental("SUBQUERY_PREDICATE", "make it a condition of its own, joined by AND", part)
            out.append(holder.this)
        return node, out

    def _mark(self, node: Node, predicate: Expr) -> tuple[Node, Expr]:
        """EXISTS or IN as a value: whether the row's key is among the subquery's, by a left join with its keys."""
        above = predicate.parent
        while isinstance(above, exp.And | exp.Or | exp.Paren):
            above = above.parent
        query = predicate.this if isinstance(predicate, exp.Exists) else predicate.args.get("query")
        if query is None or (isinstance(predicate, exp.In) and above is not None):
            # below a NOT or in a value, IN may be NULL, which a join does not tell from false
            raise NotIncremental("SUBQUERY_PREDICATE", "make it a condition of its own, joined by AND", predicate)
        rows, on, values = self._correlated(query.this if isinstance(query, exp.Subquery) else query)
        if isinstance(predicate, exp.In):
            (value,) = values
            on = [*on, exp.EQ(this=self.resolve(predicate.this), expression=value)]
        keys, same = self._key_pairs(node, rows, on, predicate)
        if not keys:
            raise NotIncremental("SUBQUERY_PREDICATE", "correlate it by an equality", predicate)
        mark = self.builder.fresh("mark")
        marked = Project(
            Distinct(Project(rows, tuple(keys))), (*((name, column(name)) for name, _ in keys), (mark, exp.true()))
        )
        found = exp.Coalesce(this=column(mark), expressions=[exp.false()])
        return Join("left", node, marked, together(same)), found

    def _key_pairs(
        self, node: Node, rows: Node, on: Sequence[Expr], place: Expr
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
            key = self.builder.fresh("key")
            keys.append((key, other))
            same.append(exp.EQ(this=one, expression=column(key)))
        return keys, same

    def _scalar(self, node: Node, subquery: exp.Subquery) -> tuple[Node, Expr]:
        """An aggregate without GROUP BY: exactly one row for every key that it is correlated by."""
        block = subquery.this
        plain = isinstance(block, exp.Select) and not any(
            block.args.get(part) for part in ("group", "having", "qualify", "distinct", "limit", "offset", "with_")
        )
        if not plain or not block.expressions[0].find(exp.AggFunc) or block.expressions[0].find(exp.Window):
            raise NotIncremental("SCALAR_SUBQUERY", "make it an aggregate, or a join", subquery)
        rows, on, (value,) = self._opened(block)
        keys, same = self._key_pairs(node, rows, on, subquery)
        found: list[tuple[str, Expr]] = []
        value = _take_aggregates(value, found, self.builder.fresh)
        if not keys:
            return Join("inner", node, Aggregate(rows, (), tuple(found)), exp.true()), exp.paren(value)
        counts = {  # a key without rows counts 0 and has no other aggregate
            name: cast("Expr", exp.Coalesce(this=column(name), expressions=[exp.Literal.number(0)]))
            for name, aggregate in found
            if aggregate.find(exp.Count, exp.CountIf, exp.ApproxDistinct)
        }
        joined = Join("left", node, Aggregate(rows, tuple(keys), tuple(found)), together(same))
        return joined, exp.paren(substitute(value, counts))

    # ------------------------------------------------------------ GROUP BY, windows
    def _aggregates(self, node: Node, parts: list[Expr]) -> tuple[Node, list[Expr]]:
        group = self.select.args.get("group")
        if group is None and not any(_aggregates_in(part) for part in parts):
            return node, parts
        if group is not None and group.args.get("all"):
            shown = parts[: len(self.select.expressions)]
            given = [part for part in shown if not _aggregates_in(part) and used(part)]
            sets = [tuple(range(len(given)))]
        else:
            given, sets = self._groupings(group)
        keys = [(self.builder.fresh(key.name if isinstance(key, exp.Column) else "key"), key) for key in given]
        found: list[tuple[str, Expr]] = []
        out = [_take_aggregates(_replace_keys(part, keys), found, self.builder.fresh) for part in parts]
        if any(value.find(exp.Grouping, exp.GroupingId) for _, value in found):
            raise NotIncremental("GROUPING_FUNCTION", "write one query per grouping and UNION ALL", group)
        branches: list[Node] = []
        for chosen in sets:
            grouped: Node = Aggregate(node, tuple(keys[i] for i in chosen), tuple(found))
            if len(sets) > 1:
                mine = tuple((name, column(name) if i in chosen else exp.null()) for i, (name, _) in enumerate(keys))
                grouped = Project(grouped, (*mine, *((name, column(name)) for name, _ in found)))
            branches.append(grouped)
        node = branches[0]
        for branch in branches[1:]:
            node = SetOp("union", True, node, branch)
        known = set(names(node))
        for part in out:
            if not _used_outside(part) <= known:
                raise NotIncremental("UNGROUPED_COLUMN", "group by the column, or aggregate it", part)
        return node, out

    def _groupings(self, group: exp.Group | None) -> tuple[list[Expr], list[tuple[int, ...]]]:
        """The keys of a GROUP BY, and which of them each grouping has: one with all, or those of its sets."""
        keys: list[Expr] = []

        def number(key: Expr) -> int:
            texts = [known.sql() for known in keys]
            resolved = self.resolve(key)
            if resolved.sql() not in texts:
                keys.append(resolved)
                return len(texts)
            return texts.index(resolved.sql())

        sets: list[tuple[int, ...]] = [()]
        for item in group.expressions if group is not None else ():
            if isinstance(item, exp.GroupingSets):
                options = [tuple(number(key) for key in _members(part)) for part in item.expressions]
            elif isinstance(item, exp.Rollup | exp.Cube):
                parts = [tuple(number(key) for key in _members(part)) for part in item.expressions]
                options = list(_subsets(parts) if isinstance(item, exp.Cube) else _prefixes(parts))
            else:
                options = [(number(item),)]
            sets = [(*known, *(i for i in option if i not in known)) for known in sets for option in options]
        return keys, sets

    def _windows(self, node: Node, parts: list[Expr]) -> tuple[Node, list[Expr]]:
        found: dict[str, tuple[str, exp.Window]] = {}

        def change(part: Expr) -> Expr:
            if isinstance(part, exp.Window):
                text = part.sql()
                if text not in found:
                    found[text] = (self.builder.fresh("window"), part.copy())
                return column(found[text][0])
            return part

        out = [part.transform(change) for part in parts]
        if not found:
            return node, out
        windows = [window for _, window in found.values()]
        shared = list(windows[0].args.get("partition_by") or [])
        for window in windows[1:]:
            texts = {key.sql() for key in window.args.get("partition_by") or []}
            shared = [key for key in shared if key.sql() in texts]
        return Window(node, tuple(shared), tuple(found.values())), out

    def _distinct_on(self, node: Node, shown: Mapping[str, Expr]) -> Node:
        """The first row of each key in the query's order: a window and a filter."""
        distinct, order = self.select.args.get("distinct"), self.select.args.get("order")
        on = distinct.args.get("on") if distinct is not None else None
        if on is None:
            return node
        if order is None or self.select.args.get("limit") or self.select.args.get("group"):
            raise NotIncremental("DISTINCT_ON", "add an ORDER BY that says which row of a key to take", distinct)
        keys = [self._ordering(key, shown) for key in on.expressions]
        ordered = exp.Order(expressions=[self._ordering(item, shown) for item in order.expressions])
        first = exp.Window(this=exp.RowNumber(), partition_by=keys, order=ordered)
        name = self.builder.fresh("first")
        numbered = Window(node, tuple(keys), ((name, first),))
        return Filter(numbered, exp.EQ(this=column(name), expression=exp.Literal.number(1)))

    def _ordering(self, item: Expr, shown: Mapping[str, Expr]) -> Expr:
        """An item of ORDER BY: a name of the SELECT list stands for its value."""
        aliases = {found.name for found in item.find_all(exp.Column) if not found.table}
        return self.resolve(substitute(item, {name: shown[name] for name in aliases if name in shown}))

    def _unnests(self, node: Node, values: list[Expr]) -> tuple[Node, list[Expr]]:
        """``SELECT unnest(list)``: one of them, on its own; DuckDB zips several."""
        found = [value for value in values if value.find(exp.Explode, exp.Unnest)]
        if not found:
            return node, values
        if len(found) > 1 or not isinstance(found[0], exp.Explode | exp.Unnest):
            raise NotIncremental("UNNEST_FORM", "unnest one list, in FROM", found[0])
        inner = found[0].this if isinstance(found[0], exp.Explode) else found[0].expressions[0]
        name = self.builder.fresh("unnest")
        return Unnest(node, name, inner), [column(name) if value is found[0] else value for value in values]

    def _distinct_and_top(self, node: Node, given: Sequence[str]) -> Node:
        distinct = self.select.args.get("distinct")
        if distinct is not None and distinct.args.get("on") is None:
            node = Distinct(node)
        order = self.select.args.get("order")
        if order is not None and (self.select.args.get("limit") or self.select.args.get("offset")):
            for item in order.expressions:
                if any(found.table for found in item.find_all(exp.Column)):
                    raise NotIncremental("ORDER_BY_HIDDEN", "order by columns of the SELECT list", item)
        return self.builder.top(self.select, node, dict(zip(given, names(node), strict=True)))


def build(query: exp.Query, sources: Mapping[str, int], columns: Mapping[str, Sequence[str]]) -> Node:
    """The tree of a qualified query, which reads only what it uses; sources and columns by ``schema.table``."""
    if (found := volatile(query)) is not None:
        raise Volatile(found)
    return narrowed(_Builder(sources, columns).query(with_parameter(query)))


def _ordered(node: Node) -> Node:
    """FROM with its inner joins in an order in which each is connected to those before."""
    if isinstance(node, Join) and node.kind == "inner":
        parts, conditions = cluster(node)
        return connected([_ordered(part) for part in parts], conditions)
    if isinstance(node, Join):
        return replace(node, left=_ordered(node.left), right=_ordered(node.right))
    return replace(node, child=_ordered(node.child)) if isinstance(node, Filter) else node


# ---------------------------------------------------------------- expressions
def _is_true(condition: Expr) -> bool:
    return isinstance(condition, exp.Boolean) and bool(condition.this)


def _aggregates_in(expression: Expr) -> list[Expr]:
    """Aggregate functions that are not window functions."""
    within = expression.find_ancestor(exp.Query)
    return [
        found
        for found in expression.find_all(exp.AggFunc)
        if found.find_ancestor(exp.Query) is within
        and not isinstance(found.parent, exp.Window | exp.IgnoreNulls | exp.RespectNulls)
        and not (isinstance(found.parent, exp.Filter) and isinstance(found.parent.parent, exp.Window))
    ]


def _take_aggregates(expression: Expr, found: list[tuple[str, Expr]], fresh: Callable[[str], str]) -> Expr:
    """The expression over names of aggregates; equal aggregates are computed once."""
    texts = {value.sql(): name for name, value in found}
    holder = exp.Paren(this=expression.copy())
    for aggregate in _aggregates_in(holder):
        whole: Expr = aggregate
        while isinstance(whole.parent, exp.Filter | exp.WithinGroup):
            whole = whole.parent
        text = whole.sql()
        if text not in texts:
            texts[text] = fresh(aggregate.key)
            found.append((texts[text], whole.copy()))
        whole.replace(column(texts[text]))
    return cast("Expr", holder.this)


def _used_outside(expression: Expr) -> set[str]:
    """The columns that an expression uses outside its subqueries."""
    within = expression.find_ancestor(exp.Query)
    return {found.name for found in expression.find_all(exp.Column) if found.find_ancestor(exp.Query) is within}


def _replace_keys(expression: Expr, keys: Sequence[tuple[str, Expr]]) -> Expr:
    texts = {key.sql(): name for name, key in keys}

    def change(part: Expr) -> Expr:
        name = texts.get(part.sql())
        return column(name) if name is not None else part

    return _transform(expression.copy(), change, exp.AggFunc, exp.Query)


def _transform(expression: Expr, change: Callable[[Expr], Expr], *stop: type[Expr]) -> Expr:
    """Replace parts from the top down; nothing inside ``stop`` or inside what was replaced."""
    if isinstance(expression, stop) and not isinstance(expression.parent, exp.Window):
        return expression
    changed = change(expression)
    if changed is not expression:
        return changed
    for child in list(expression.iter_expressions()):
        new = _transform(child, change, *stop)
        if new is not child:
            child.replace(new)
    return expression


def _members(part: Expr) -> list[Expr]:
    """The keys in one pair of brackets of a grouping."""
    if isinstance(part, exp.Tuple):
        return list(part.expressions)
    return [part.unnest()]


def _prefixes(parts: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    for length in range(len(parts), -1, -1):
        yield tuple(i for part in parts[:length] for i in part)


def _subsets(parts: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    for length in range(len(parts), -1, -1):
        for chosen in combinations(parts, length):
            yield tuple(i for part in chosen for i in part)


def _all_expressions(node: Node) -> list[Expr]:
    return [*expressions(node), *(found for child in children(node) for found in _all_expressions(child))]
