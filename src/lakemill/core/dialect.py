"""DuckDB's SQL in Spark's words, with the same answer; or the reason why not, and where.

Queries of dynamic tables are DuckDB SQL and run in Spark. Every expression gets the type that DuckDB gives it, and is
written so that Spark has nothing left to decide: casts, rounding, division, the place of NULLs. Only what is on the
lists of ``functions``, ``texts``, ``times``, ``operators``, ``aggregates``, ``windows`` is let through, and all of that
is held to DuckDB by the conformance suite, ``tests/spark/test_dialect.py``. ``check`` asks once, when a table is
declared; ``to_spark`` translates what a refresh runs, with ``output_types`` for those who read its result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from sqlglot import exp

from lakemill.core import ducktypes as t
from lakemill.core.algebra import Expr, is_true
from lakemill.core.casts import implicit
from lakemill.core.clock import with_parameter
from lakemill.core.ducktypes import Type, quote
from lakemill.core.membership import refuse_both, refuse_inside
from lakemill.core.names import fold
from lakemill.core.position import START, Position
from lakemill.core.scalars import Expressions, Scope
from lakemill.core.value import Refused, Value
from lakemill.errors import UnsupportedSql

Schema = Mapping[str, Mapping[str, str]]
"""The tables that a query reads: ``name`` or ``schema.name`` → column → type, as DuckDB writes it."""
Columns = dict[str, Type]
_LIST = "__list"


@contextmanager
def explained(text: str = "", at: Position = START, file: str | None = None) -> Iterator[None]:
    """Tell what is refused as an error that says where; ``text`` is what was parsed, which begins ``at``."""
    try:
        yield
    except Refused as refused:
        where = at
        if text and (offset := _offset(refused.place)) is not None:
            where = at.within(text, offset)
        place = where.place(file) if text or file or at != START else None
        raise UnsupportedSql(refused.message, remedy=refused.remedy, place=place) from None


def check(query: Expr, schema: Schema, *, text: str = "", at: Position = START, file: str | None = None) -> None:
    """Refuse what Spark would answer differently; ``text`` is what was parsed, which begins ``at``."""
    with explained(text, at, file):
        _Queries(schema).query(with_parameter(cast("exp.Query", query)), None)


def to_spark(query: Expr, schema: Schema, views: Mapping[str, str] | None = None) -> str:
    """A whole SELECT as Spark SQL; ``views``: tables that Spark knows by another name.

    The text is meant for Spark as it is: sqlglot would change what it says if it read and wrote it again.
    """
    return _translated(query, schema, views)[0]


def output_types(query: Expr, schema: Schema) -> dict[str, str]:
    """The columns of a query, with the types that DuckDB gives them."""
    return translated(query, schema)[1]


def translated(query: Expr, schema: Schema) -> tuple[str, dict[str, str]]:
    """Both of them, for those who read what they have run."""
    text, columns = _translated(query, schema)
    return text, {name: str(type_) for name, type_ in columns.items()}


def _translated(query: Expr, schema: Schema, views: Mapping[str, str] | None = None) -> tuple[str, Columns]:
    try:
        return _Queries(schema, views or {}).query(query, None)
    except Refused as refused:
        raise UnsupportedSql(refused.message, remedy=refused.remedy) from None


def _offset(place: Expr | None) -> int | None:
    """Where a part of a query began in the text that it was parsed from."""
    node = place
    while node is not None:
        starts = [int(each.meta["start"]) for each in node.walk() if "start" in each.meta]
        if starts:
            return min(starts)
        node = node.parent
    return None


@dataclass(slots=True)
class _Queries:
    schema: Schema
    views: Mapping[str, str] = field(default_factory=dict)
    ctes: dict[str, Columns] = field(default_factory=dict)

    def query(self, query: Expr, outer: Scope | None) -> tuple[str, Columns]:
        if isinstance(query, exp.Subquery):
            return self.query(query.this, outer)
        known = dict(self.ctes)
        try:
            head = self._with(query)
            if isinstance(query, exp.SetOperation):
                text, columns = self._set_operation(query, outer)
            elif isinstance(query, exp.Select):
                text, columns = self._select(query, outer)
            else:
                raise Refused(query, f"{type(query).__name__} is not a query", "write a SELECT")
        finally:
            self.ctes = known
        return head + text, columns

    def _with(self, query: Expr) -> str:
        given = query.args.get("with_") or query.args.get("with")
        if given is None:
            return ""
        if given.args.get("recursive"):
            raise Refused(given, "a recursive query is not translated", "bound its depth by joins")
        parts = []
        for cte in given.expressions:
            text, columns = self.query(cte.this, None)
            named = [item.name for item in cte.args["alias"].columns]
            columns = dict(zip([*named, *list(columns)[len(named) :]], columns.values(), strict=True))
            self.ctes[fold(cte.alias)] = columns
            parts.append(f"{quote(cte.alias)}({', '.join(map(quote, columns))}) AS ({text})")
        return f"WITH {', '.join(parts)} "

    def _set_operation(self, query: exp.SetOperation, outer: Scope | None) -> tuple[str, Columns]:
        if query.args.get("by_name"):
            raise Refused(query, "BY NAME is not translated", "write the columns of both sides in the same order")
        sides = [self.query(side, outer) for side in (query.left, query.right)]
        if len(sides[0][1]) != len(sides[1][1]):
            raise Refused(query, "the sides have different numbers of columns", "select as many on both sides")
        wide = []
        for one, other in zip(sides[0][1].values(), sides[1][1].values(), strict=True):
            both = t.common(one, other)
            if both is None:
                raise Refused(query, f"{one} and {other} have no type in common", "cast one of them")
            wide.append(t.VARCHAR if both == t.STRING_LITERAL else both)
        columns = dict(zip(sides[0][1], wide, strict=True))
        all_ = not query.args.get("distinct", True)
        if not (isinstance(query, exp.Union) and all_):
            for type_ in wide:
                _check_key(type_, query)
        word = type(query).__name__.upper() + (" ALL" if all_ else "")
        texts = [_widened(text, own, wide, query) for text, own in sides]
        scope = Scope(outer=outer)
        scope.add("", columns)
        return f"{texts[0]} {word} {texts[1]}{self._top(query, scope)}", columns

    # ------------------------------------------------------------ SELECT
    def _select(self, select: exp.Select, outer: Scope | None) -> tuple[str, Columns]:
        for clause in (
            "laterals",
            "sample",
            "connect",
            "match",
            "windows",
            "kind",
            "pivots",
            "cluster",
            "sort",
            "hint",
        ):
            if select.args.get(clause):
                raise Refused(select, f"{clause} is not translated", f"write the query without {clause}")
        scope = Scope(outer=outer)
        parts = self._relations(select, scope)
        inside = Expressions(scope, self.query)
        if (where := select.args.get("where")) is not None:
            parts.append(f"WHERE {inside.condition(where.this)}")
        items, columns = self._items(select, inside)
        if (group := select.args.get("group")) is not None:
            parts.append(self._group(group, inside, items))
        if (having := select.args.get("having")) is not None:
            parts.append(f"HAVING {inside.condition(having.this)}")
        shown = Scope([*scope.relations], scope.outer)
        shown.relations.insert(0, ("", {fold(name): (name, type_) for name, type_ in columns.items()}))
        kept, late = self._kept(select, inside, shown), _unnested_late(select)
        if kept is not None or late is not None:
            asked = [] if kept is None else [f"{kept} AS `__kept`"]
            inner = " ".join(["SELECT", ", ".join([*items, *asked]), *parts])
            parts = [f"FROM ({inner})", *(["WHERE `__kept`"] if asked else [])]
            items = [f"explode(`{_LIST}`) AS {quote(name)}" if name == late else quote(name) for name in columns]
            if select.args.get("limit") or select.args.get("offset"):  # what stands around it sees the output only
                shown = Scope([shown.relations[0]])
        word = "SELECT"
        if (distinct := select.args.get("distinct")) is not None and distinct.args.get("on") is None:
            for type_ in columns.values():
                _check_key(type_, select)
            word = "SELECT DISTINCT"
        return " ".join([word, ", ".join(items), *parts]) + self._top(select, shown), columns

    def _kept(self, select: exp.Select, inside: Expressions, shown: Scope) -> str | None:
        """The condition of QUALIFY, or of DISTINCT ON: the first row of each key in the query's order."""
        qualify, distinct = select.args.get("qualify"), select.args.get("distinct")
        on = distinct.args.get("on") if distinct is not None else None
        if on is None:
            return None if qualify is None else inside.condition(qualify.this)
        order = select.args.get("order")
        if qualify is not None or order is None or select.args.get("group") is not None:
            raise Refused(distinct, "this DISTINCT ON has no one answer", "add an ORDER BY that leaves no ties")
        if any(item.find(exp.Explode, exp.Unnest) for item in select.expressions):
            raise Refused(distinct, "DISTINCT ON beside unnest is not translated", "unnest in a subquery of FROM")
        named = {fold(item.alias_or_name): item.unalias() for item in select.expressions}

        def meant(node: Expr) -> Expr:
            known = isinstance(node, exp.Column) and not node.table and named.get(fold(node.name))
            return known.copy() if isinstance(known, exp.Expr) else node

        keys = ", ".join(inside.grouped(meant(key)).sql for key in on.expressions)
        places = ", ".join(inside.ordered(item.copy().transform(meant)) for item in order.expressions)
        return f"(row_number() OVER (PARTITION BY {keys} ORDER BY {places}) = 1)"

    def _items(self, select: exp.Select, inside: Expressions) -> tuple[list[str], Columns]:
        items: list[str] = []
        columns: Columns = {}
        lists, late = _unnests(select), _unnested_late(select)
        if len(lists) > 1:
            raise Refused(lists[1], "several unnest in one SELECT are not translated", "unnest one list, in FROM")
        for item in select.expressions:
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                if item.args.get("except_") or item.args.get("except") or item.args.get("replace"):
                    raise Refused(item, "a star with exceptions is not translated", "name the columns")
                table = item.table if isinstance(item, exp.Column) else ""
                for alias, own in inside.scope.relations:
                    if not table or alias == fold(table):
                        columns |= dict(own.values())
                items.append(f"{quote(table)}.*" if table else "*")
                continue
            name = item.alias_or_name or f"_{len(columns)}"
            value = self._item(item.unalias(), inside)
            text, shown = value.sql, name
            if item in lists:
                text, shown = (f"explode({text})", name) if late is None else (text, _LIST)
            items.append(f"{text} AS {quote(shown)}")
            columns[name] = value.type
        return items, columns

    def _item(self, node: Expr, inside: Expressions) -> Value:
        """A value that is shown; of unnest the list, with the type of what it holds."""
        if isinstance(node, exp.Explode | exp.Unnest):
            if inside.scope.outer is not None:
                raise Refused(node, "unnest in the SELECT of a subquery is not translated", "unnest in its FROM")
            given = [node.this, *node.expressions] if isinstance(node, exp.Explode) else node.expressions
            if len(given) > 1:
                raise Refused(node, "unnest of more than one level is not translated", "unnest once per level")
            refuse_inside(given[0], "unnest")
            value = inside.value(given[0])
            return Value(value.sql, _element(value, node))
        if (star := node.find(exp.Star)) is not None and not isinstance(star.parent, exp.Count):
            raise Refused(node, "a star with conditions is not translated", "name the columns")
        value = inside.value(node)
        return implicit(value, t.VARCHAR, node) if value.type == t.STRING_LITERAL else value

    def _group(self, group: Expr, inside: Expressions, items: list[str]) -> str:
        if group.args.get("all"):
            return "GROUP BY ALL"
        places = {item.rsplit(" AS ", 1)[0]: str(number) for number, item in enumerate(items, 1)}

        def key(node: Expr) -> str:
            return inside.grouped(node).sql

        def one(node: Expr) -> str:
            if isinstance(node, exp.GroupingSets | exp.Rollup | exp.Cube):
                word = {"GroupingSets": "GROUPING SETS"}.get(type(node).__name__, type(node).__name__.upper())
                return f"{word} ({', '.join(many(part) for part in node.expressions)})"
            text = key(node)
            return places.get(text, text)  # Spark does not see that two lambdas say the same: it is told by number

        def many(node: Expr) -> str:
            if isinstance(node, exp.Tuple):
                return f"({', '.join(key(each) for each in node.expressions)})"
            if isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets):
                return one(node)
            return key(node)

        parts = [*group.expressions]
        for name in ("grouping_sets", "rollup", "cube"):
            parts += group.args.get(name) or []
        return "GROUP BY " + ", ".join(one(part) for part in parts)

    def _top(self, query: Expr, scope: Scope) -> str:
        """ORDER BY, LIMIT and OFFSET; without the last two, an order means nothing in a table."""
        inside = Expressions(scope, self.query)
        parts = []
        if (order := query.args.get("order")) is not None:
            places = ", ".join(inside.ordered(item) for item in order.expressions)
            if query.args.get("limit") or query.args.get("offset"):
                refuse_inside(order, "ORDER BY")
                parts.append(f"ORDER BY {places}")
        for name in ("limit", "offset"):
            if (given := query.args.get(name)) is not None:
                if (options := given.args.get("limit_options")) and any(options.args.values()):
                    raise Refused(
                        given, "a LIMIT in percent, or WITH TIES, is not translated", "write the number of rows"
                    )
                value = inside.value(given.expression)
                if not isinstance(value.constant, int):
                    raise Refused(given, f"{name} takes a constant number here", "write the number")
                parts.append(f"{name.upper()} {value.constant}")
        return " " + " ".join(parts) if parts else ""

    # ------------------------------------------------------------ FROM
    def _relations(self, select: exp.Select, scope: Scope) -> list[str]:
        start = select.args.get("from_") or select.args.get("from")
        if start is None:
            return []
        parts = [f"FROM {self._relation(start.this, scope)}"]
        parts += [self._join(join, scope) for join in select.args.get("joins") or ()]
        return parts

    def _relation(self, relation: Expr, scope: Scope) -> str:
        alias = relation.alias_or_name
        for clause in ("joins", "sample", "pivots", "when", "version"):
            if relation.args.get(clause):
                raise Refused(relation, f"{clause} of a table is not translated", f"write the query without {clause}")
        if isinstance(relation, exp.Subquery):
            text, columns = self.query(relation.this, None)
            scope.add(alias, columns)
            return f"({text}) AS {quote(fold(alias))}" if alias else f"({text})"
        if not isinstance(relation, exp.Table) or not isinstance(relation.this, exp.Identifier):
            raise Refused(relation, f"{relation.sql('duckdb')} is not a table", "load it into a table first")
        scope.add(alias, self._table(relation))
        name = ".".join(quote(self.views.get(part.name, part.name)) for part in relation.parts)
        return f"{name} AS {quote(fold(alias))}"

    def _table(self, table: exp.Table) -> Columns:
        if not table.db and (columns := self.ctes.get(fold(table.name))) is not None:
            return columns
        name = f"{table.db}.{table.name}" if table.db else table.name
        given = self.schema.get(name) or self.schema.get(fold(name))
        if given is None:
            raise Refused(table, f"{name} is not known", "name a table that the query reads")
        found: Columns = {}
        for column, text in given.items():
            found[column] = t.parse(text) or Type(text)
        return found

    def _join(self, join: exp.Join, scope: Scope) -> str:
        side, kind, method = (str(join.args.get(part) or "").upper() for part in ("side", "kind", "method"))
        if method or join.args.get("using"):
            raise Refused(join, f"a {method or 'USING'} join is not translated", "write the condition of the join out")
        if isinstance(join.this, exp.Unnest):
            return self._unnest(join, side, scope)
        words = " ".join(word for word in (side, kind) if word and word != "OUTER")
        seen = Scope([*scope.relations], scope.outer)
        relation = self._relation(join.this, seen)
        text = f"{words or ('INNER' if join.args.get('on') is not None else 'CROSS')} JOIN {relation}"
        if kind in ("SEMI", "ANTI"):
            text = f"LEFT {text}" if not side else text
        else:
            scope.relations[:] = seen.relations
        if (on := join.args.get("on")) is not None:
            refuse_both(on, fold(join.this.alias_or_name), {name for name, _ in seen.relations})
            text += f" ON {Expressions(seen, self.query).condition(on)}"
        return text

    def _unnest(self, join: exp.Join, side: str, scope: Scope) -> str:
        unnest = join.this
        alias = unnest.args.get("alias")
        named = [item.name for item in alias.columns] if alias is not None else []
        simple = len(unnest.expressions) == 1 and len(named) <= 1 and not unnest.args.get("offset")
        on = join.args.get("on")
        if not simple or side not in ("", "LEFT") or (on is not None and not is_true(on)):
            raise Refused(join, "this form of UNNEST is not translated", "unnest one list, without a condition")
        refuse_inside(unnest, "unnest")
        value = Expressions(scope, self.query).value(unnest.expressions[0])
        name, word = named[0] if named else "unnest", "explode_outer" if side else "explode"
        table = fold(unnest.alias or "unnest")
        scope.add(table, {name: _element(value, unnest)})
        return f"CROSS JOIN LATERAL {word}({value.sql}) AS {quote(table)}({quote(name)})"


def _unnests(select: exp.Select) -> list[Expr]:
    return [item for item in select.expressions if isinstance(item.unalias(), exp.Explode | exp.Unnest)]


def _unnested_late(select: exp.Select) -> str | None:
    """The column that unnest gives beside windows: Spark would unnest first, and they would see other rows."""
    lists = _unnests(select)
    beside = any(found.find_ancestor(exp.Query) is select for found in select.find_all(exp.Window))
    return lists[0].alias_or_name if lists and beside else None


def _element(value: Value, place: Expr) -> Type:
    if value.type.name != "LIST":
        raise Refused(place, f"{value.type} can't be unnested", "unnest a list")
    return value.type.element


def _check_key(type_: Type, place: Expr) -> None:
    if not t.groupable(type_):
        raise Refused(place, f"{type_} is not compared alike in both engines", "leave it out, or take its parts")


def _widened(text: str, own: Columns, wide: list[Type], place: Expr) -> str:
    if list(own.values()) == wide:
        return f"({text})"
    casts = [
        f"{implicit(Value(quote(name), have), want, place).sql} AS {quote(name)}"
        for (name, have), want in zip(own.items(), wide, strict=True)
    ]
    return " ".join(["(SELECT", ", ".join(casts), f"FROM ({text}))"])
