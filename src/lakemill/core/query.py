"""A SELECT, its names resolved (``core/qualified``), becomes a tree of ``algebra``: CTEs in place, subqueries as joins.

Line 2 of a refresh. Each clause of a block becomes an operator, in the order in which SQL evaluates them. Whatever has
no operator raises ``NotIncremental`` with a reason and a remedy: such a query is still a good dynamic table, but every
refresh computes it whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    column,
    conjuncts,
    is_true,
    itself,
    names,
    substitute,
    union_all,
    used,
)
from lakemill.core.clock import volatile, with_parameter
from lakemill.core.closed import require_closed
from lakemill.core.expressions import (
    aggregates_in,
    replace_parts,
    take_aggregates,
    transform,
    used_outside,
)
from lakemill.core.groupings import groupings
from lakemill.core.joins import inner_join, ordered, pushed
from lakemill.core.narrow import narrowed
from lakemill.core.shape import NotIncremental, Volatile
from lakemill.core.subqueries import joined, semi_join

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
                return Block(self, query, outer or {}).build()
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
class Block:
    """One SELECT … FROM … WHERE … GROUP BY … HAVING … QUALIFY … DISTINCT … LIMIT."""

    builder: _Builder
    select: exp.Select
    outer: Scope
    scope: Scope = field(default_factory=dict)

    def build(self) -> Node:
        hidden = self._show_order()
        select = self.select
        for clause in ("laterals", "sample", "connect", "match", "windows", "kind", "pivots", "cluster", "sort"):
            if select.args.get(clause):
                raise NotIncremental(f"CLAUSE_{clause.upper()}", f"write the query without {clause}", select)
        node = self.relations()
        if (where := select.args.get("where")) is not None:
            node = self._where(node, where.this)
        node = ordered(node)
        items = [(item.alias_or_name, item.unalias()) for item in select.expressions]
        having, qualify = (part and part.this for part in (select.args.get("having"), select.args.get("qualify")))
        parts = [*(value for _, value in items), *(part for part in (having, qualify) if part is not None)]
        node, parts = self._aggregates(node, [self.resolve(part) for part in parts])
        node, parts = joined(self, node, parts, shown=True)
        if having is not None:
            node = Filter(node, parts[len(items)])
        node, parts = self._windows(node, parts)
        if qualify is not None:
            node = Filter(node, parts[-1])
        node = self._distinct_on(node, dict(zip((name for name, _ in items), parts, strict=False)))
        node, values = self._unnests(node, parts[: len(items)])
        out = tuple((self.builder.fresh(name), value) for (name, _), value in zip(items, values, strict=True))
        node = Project(node, out)
        node = self._distinct_and_top(node, [name for name, _ in items])
        return Project(node, itself(names(node)[:-hidden])) if hidden else node

    def _show_order(self) -> int:
        """Show what ORDER BY … LIMIT asks for and the SELECT list does not have, behind it; how many values."""
        order, given = self.select.args.get("order"), self.select.args.get
        if order is None or not (given("limit") or given("offset")) or given("distinct"):
            return 0
        self.select = self.select.copy()
        shown = {item.alias_or_name: item.unalias() for item in self.select.expressions}
        items = self.select.args["order"].expressions
        hidden = [item for item in items if not isinstance(item.this, exp.Column) or item.this.table]
        for number, item in enumerate(hidden):
            value = item.this.transform(
                lambda one: shown.get(one.name, one) if isinstance(one, exp.Column) and not one.table else one
            )
            self.select.append("expressions", exp.alias_(exp.paren(value), f"__order{number}"))
            item.set("this", column(f"__order{number}"))
        return len(hidden)

    def within(self, select: exp.Select) -> Block:
        """A subquery's block, which sees this one's columns."""
        return Block(self.builder, select, self.visible)

    @property
    def visible(self) -> Scope:
        """The columns that a subquery sees."""
        return {**self.outer, **self.scope}

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

        return transform(expression.copy(), change, exp.Query)

    # ------------------------------------------------------------ FROM, WHERE
    def relations(self) -> Node:
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
        on = self.resolve(join.args["on"]) if join.args.get("on") is not None else exp.true()
        word = cast("JoinKind", (kind if kind in ("SEMI", "ANTI") else side or "INNER").lower())
        return inner_join(left, right, on) if word == "inner" else Join(word, left, right, on)

    def _unnest_join(self, left: Node, join: exp.Join, side: str) -> Node:
        unnest = join.this
        on = join.args.get("on")
        alias = unnest.args.get("alias")
        named = [item.name for item in alias.columns] if alias is not None else []
        simple = len(unnest.expressions) == 1 and len(named) <= 1 and not unnest.args.get("offset")
        if not simple or side not in ("", "LEFT", "CROSS") or (on is not None and not is_true(on)):
            raise NotIncremental("UNNEST_FORM", "unnest one list, without a condition", join)
        value = self.resolve(unnest.expressions[0])
        name = self.builder.fresh(named[0] if named else "unnest")
        self.scope[(unnest.alias, named[0] if named else "unnest")] = name
        return Unnest(left, name, value, keep=side == "LEFT")

    def _where(self, node: Node, condition: Expr) -> Node:
        plain = []
        for part in conjuncts(condition):
            found = semi_join(self, node, part)
            if found is not None:
                node = found
            else:
                plain.append(part)
        node, resolved = joined(self, node, [self.resolve(part) for part in plain])
        for part in resolved:
            node = pushed(node, part)
        return node

    # ------------------------------------------------------------ GROUP BY, windows
    def _aggregates(self, node: Node, parts: list[Expr]) -> tuple[Node, list[Expr]]:
        group = self.select.args.get("group")
        if group is None and self.select.args.get("having") is None and not any(map(aggregates_in, parts)):
            return node, parts
        if group is not None and group.args.get("all"):
            shown = parts[: len(self.select.expressions)]
            given = [part for part in shown if not aggregates_in(part) and used(part)]
            sets = [tuple(range(len(given)))]
        else:
            given, sets = groupings(group, self.resolve)
        keys = [(self.builder.fresh(key.name if isinstance(key, exp.Column) else "key"), key) for key in given]
        found: list[tuple[str, Expr]] = []
        shared = [(name, key) for name, key in keys if not isinstance(key, exp.Literal)]
        out = [take_aggregates(replace_parts(part, shared), found, self.builder.fresh) for part in parts]
        if any(value.find(exp.Grouping, exp.GroupingId) for _, value in found):
            raise NotIncremental("GROUPING_FUNCTION", "write one query per grouping and UNION ALL", group)
        branches: list[Node] = []
        for chosen in sets:
            grouped: Node = Aggregate(node, tuple(keys[i] for i in chosen), tuple(found))
            if len(sets) > 1:
                mine = tuple((name, column(name) if i in chosen else exp.null()) for i, (name, _) in enumerate(keys))
                grouped = Project(grouped, (*mine, *itself(name for name, _ in found)))
            branches.append(grouped)
        node = union_all(branches)
        known = set(names(node))
        own = {key.name: name for name, key in keys if isinstance(key, exp.Column)}
        self.scope = {place: own.get(ours, ours) for place, ours in self.scope.items()}  # for subqueries from here on
        for part in out:
            if not used_outside(part) <= known:
                raise NotIncremental("UNGROUPED_COLUMN", "group by the column, or aggregate it", part)
        return node, out

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
                    raise NotIncremental("ORDER_BY_HIDDEN", "DISTINCT: order by columns of the SELECT list", item)
        return self.builder.top(self.select, node, dict(zip(given, names(node), strict=True)))


def build(query: exp.Query, sources: Mapping[str, int], columns: Mapping[str, Sequence[str]]) -> Node:
    """The tree of a qualified query, which reads only what it uses; sources and columns by ``schema.table``."""
    if (found := volatile(query)) is not None:
        raise Volatile(found)
    tree = _Builder(sources, columns).query(with_parameter(query))
    require_closed(tree)
    return narrowed(tree)
