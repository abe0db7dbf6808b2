"""Where the columns of a query come from: which columns of its tables each is made of, and which decide its rows.

For line 11 of a refresh: OpenLineage events say it. Walked over the query's scopes, from the outermost inwards: through
CTEs, derived tables, unions, lateral and scalar subqueries. What a value is computed from is *direct*, and the most
that was done to it on the way counts; what only chooses, joins, groups or orders rows is *indirect*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, build_scope

from lakemill.core.names import MAIN, fold


class Direct(IntEnum):
    """What was done to a value; more covers less."""

    IDENTITY = 0
    TRANSFORMATION = 1
    AGGREGATION = 2


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """A column of a table, both folded; the table as ``schema.name``."""

    table: str
    column: str


@dataclass(frozen=True, slots=True)
class Lineage:
    columns: tuple[Mapping[Origin, Direct], ...]
    """By place in the result."""
    rows: Mapping[Origin, frozenset[str]]
    """What decides which rows there are: FILTER, JOIN, GROUP_BY, SORT, WINDOW or CONDITIONAL."""


def lineage(query: str, tables: Mapping[str, Iterable[str]], dialect: str = "duckdb") -> Lineage | None:
    """Of a query without stars and views; ``tables``: their columns. None where it can't be followed."""
    schema: dict[str, dict[str, dict[str, str]]] = {}
    for table, columns in tables.items():
        namespace, _, name = table.partition(".")
        schema.setdefault(namespace, {})[name] = dict.fromkeys(map(fold, columns), "UNKNOWN")
    try:
        parsed = sqlglot.parse_one(query, dialect=dialect)
        whole = qualify(
            parsed, dialect=dialect, schema=dict(schema), validate_qualify_columns=False, quote_identifiers=False
        )
        scope = build_scope(whole)
        return None if scope is None else _Walk().result(scope)
    except SqlglotError:
        return None


@dataclass(slots=True)
class _Walk:
    rows: dict[Origin, set[str]] = field(default_factory=dict)
    _seen: set[int] = field(default_factory=set)
    """Scopes whose rows were looked at."""
    _open: set[tuple[int, int]] = field(default_factory=set)
    """Columns that are being followed: a recursive CTE comes back to them."""

    def result(self, scope: Scope) -> Lineage:
        count = len(_selects(scope))
        columns = tuple(self.column(scope, place) for place in range(count))
        self.chosen(scope)
        return Lineage(columns, {origin: frozenset(why) for origin, why in self.rows.items()})

    # ------------------------------------------------------------ values
    def column(self, scope: Scope, place: int) -> dict[Origin, Direct]:
        """What the column of a scope at this place is made of."""
        if (key := (id(scope), place)) in self._open:
            return {}
        self._open.add(key)
        try:
            if scope.set_operation_scopes:
                return _most(self.column(side, place) for side in scope.set_operation_scopes)
            selects = _selects(scope)
            return self.value(scope, selects[place].unalias()) if place < len(selects) else {}
        finally:
            self._open.discard(key)

    def value(self, scope: Scope, value: exp.Expr) -> dict[Origin, Direct]:
        """What an expression in a scope is made of; conditions in it only choose."""
        if isinstance(value, exp.Column):
            return self.named(scope, value)
        aggregates = any(isinstance(one, exp.AggFunc) for one in _here(value) if not isinstance(one.parent, exp.Window))
        least = Direct.AGGREGATION if aggregates else Direct.TRANSFORMATION
        found: list[dict[Origin, Direct]] = []
        for one in _here(value):
            if isinstance(one, exp.Column):
                kind = _indirect(one, value)
                if kind is None:
                    found.append({origin: max(how, least) for origin, how in self.named(scope, one).items()})
                else:
                    self.choose(scope, [one], kind)
            elif isinstance(one, exp.Query):
                inner = self.inner(scope, one)
                if inner is not None:
                    places = range(len(_selects(inner)))
                    of = _most(self.column(inner, place) for place in places)
                    found.append({origin: max(how, least) for origin, how in of.items()})
                    self.chosen(inner)
        return _most(found)

    def named(self, scope: Scope, column: exp.Column) -> dict[Origin, Direct]:
        source, where = _source(scope, column.table)
        if isinstance(source, exp.Table):
            return {Origin(f"{fold(source.db or MAIN)}.{fold(source.name)}", fold(column.name)): Direct.IDENTITY}
        if source is None:
            return {}
        if isinstance(source.expression, exp.UDTF):  # rows made of values of those beside it
            values = [one for one in _here(source.expression) if isinstance(one, exp.Column)]
            of = _most(self.named(where, one) for one in values if one.table != column.table)
            return {origin: max(how, Direct.TRANSFORMATION) for origin, how in of.items()}
        names = [fold(name) for name in (source.outer_columns or [one.alias_or_name for one in _selects(source)])]
        return self.column(source, names.index(fold(column.name))) if fold(column.name) in names else {}

    # ------------------------------------------------------------ rows
    def chosen(self, scope: Scope) -> None:
        """What decides which rows a scope has, and those that it reads."""
        if id(scope) in self._seen:
            return
        self._seen.add(id(scope))
        for below in (*scope.set_operation_scopes, *(s for s in scope.sources.values() if isinstance(s, Scope))):
            self.chosen(below)
        query = scope.expression
        if isinstance(query, exp.SetOperation) and not (
            isinstance(query, exp.Union) and not query.args.get("distinct")
        ):
            for side in scope.set_operation_scopes:
                for place in range(len(_selects(side))):
                    self._add(self.column(side, place), "GROUP_BY")
        if isinstance(query, exp.Select):
            for join in query.args.get("joins") or ():
                self.choose(scope, [part for part in (join.args.get("on"),) if part is not None], "JOIN")
            for arg, why in _CLAUSES.items():
                part = query.args.get(arg)
                self.choose(scope, [part] if isinstance(part, exp.Expr) else [], why)
            if query.args.get("distinct"):
                for place in range(len(query.selects)):
                    self._add(self.column(scope, place), "GROUP_BY")

    def choose(self, scope: Scope, parts: Iterable[exp.Expr], why: str) -> None:
        for part in parts:
            for one in _here(part):
                if isinstance(one, exp.Column):
                    self._add(self.named(scope, one), why)
                elif isinstance(one, exp.Query) and (inner := self.inner(scope, one)) is not None:
                    for place in range(len(_selects(inner))):
                        self._add(self.column(inner, place), why)
                    self.chosen(inner)

    def inner(self, scope: Scope, query: exp.Query) -> Scope | None:
        """The scope of a subquery that stands in an expression."""
        wanted = query.unnest()
        return next((one for one in scope.subquery_scopes if one.expression is wanted), None)

    def _add(self, origins: Iterable[Origin], why: str) -> None:
        for origin in origins:
            self.rows.setdefault(origin, set()).add(why)


_CLAUSES = {"where": "FILTER", "having": "FILTER", "qualify": "FILTER", "group": "GROUP_BY", "order": "SORT"}


def _here(part: exp.Expr) -> Iterator[exp.Expr]:
    """All parts of an expression, subqueries as one."""
    return part.walk(prune=lambda one: isinstance(one, exp.Query) and one is not part)


def _indirect(column: exp.Column, value: exp.Expr) -> str | None:
    """How a column in a value only chooses: in the condition of a CASE, in what a window is over; None: it is used."""
    child: exp.Expr = column
    while child is not value and (above := child.parent) is not None:
        if isinstance(above, exp.If) and child.arg_key == "this":
            return "CONDITIONAL"
        if isinstance(above, exp.Case) and child.arg_key == "this":
            return "CONDITIONAL"
        if isinstance(above, exp.Window) and child.arg_key in ("partition_by", "order"):
            return "WINDOW"
        if isinstance(above, exp.Filter) and child.arg_key == "expression":
            return "FILTER"
        child = above
    return None


def _source(scope: Scope, alias: str) -> tuple[exp.Table | Scope | None, Scope]:
    """What a name stands for, here or in a query around; and where its own columns are looked up."""
    around: Scope | None = scope
    while around is not None:
        if alias in around.sources:
            return around.sources[alias], around
        around = around.parent
    return None, scope


def _selects(scope: Scope) -> Sequence[exp.Expr]:
    return scope.expression.selects if isinstance(scope.expression, exp.Query) else []


def _most(all_: Iterable[Mapping[Origin, Direct]]) -> dict[Origin, Direct]:
    found: dict[Origin, Direct] = {}
    for one in all_:
        for origin, how in one.items():
            found[origin] = max(how, found.get(origin, how))
    return found
