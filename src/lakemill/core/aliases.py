"""Columns that are written with their table's schema: they get by with an alias, which is all that is kept of a table.

``main.t.id`` becomes ``t.id``. Where another table of the query is called ``t`` too, only the schema tells the two
apart, so one of them gets an alias of its own, and all that is said of it goes by that. Columns that an alias renames,
``t AS a(x, y)``, are written out. For ``core/qualified``, before names are resolved; DuckDB has bound the query, so
that every column has a table.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from lakemill.core.ctes import meanings
from lakemill.core.names import QualifiedName, fold
from lakemill.core.references import tables

_PARTS = ("this", "table", "db", "catalog")
"""Of a column, from its end."""


def listed(query: exp.Expr) -> exp.Expr:
    """The query with ``t AS a(x, y)`` as a subquery, of which sqlglot knows what such a list means."""
    for table, _ in meanings(query):
        alias = table.args.get("alias")
        if alias is not None and alias.columns:
            table.set("alias", None)
            joins = table.args.pop("joins", None)
            table.replace(exp.Subquery(this=exp.select("*").from_(table.copy()), alias=alias, joins=joins))
    for given in query.find_all(exp.Subquery, exp.CTE):
        # an ORDER BY inside knows the columns by the names that they have there
        if given.args.get("alias") is not None and given.args["alias"].columns and given.this.args.get("order"):
            given.set("this", exp.select("*").from_(given.this.subquery(given.alias, copy=False)))
    return query


def aliased(query: exp.Expr) -> exp.Expr:
    """The query without schemas in the names of its columns."""
    columns = [column for column in query.find_all(exp.Column) if column.table]
    merging = any(join.args.get("using") or join.args.get("method") for join in query.find_all(exp.Join))
    if not merging and not any(column.args.get("db") for column in columns):  # USING names the tables in core/using
        return query
    named = [(table, name) for table, name in tables(query) if not table.alias]
    found = [(column, _meant(column, named)) for column in columns]
    own = _own_aliases(query, named)
    for column, (table, with_schema) in found:
        parts = column.parts[1:] if with_schema else column.parts
        if table is not None and (alias := own.get(id(table))) is not None:
            parts = [exp.to_identifier(alias, quoted=parts[0].args.get("quoted")), *parts[1:]]
        for place, part in zip(_PARTS, [*reversed(parts), None, None, None], strict=False):
            column.set(place, part)
    for table, _ in named:
        if (alias := own.get(id(table))) is not None:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=table.this.args.get("quoted"))))
    return query


def _meant(column: exp.Column, named: list[tuple[exp.Table, QualifiedName]]) -> tuple[exp.Table | None, bool]:
    """The table of this column, where it has no alias, and whether the column says its schema: the nearest wins."""
    parts = [part.name for part in column.parts]
    for select in _around(column):
        inside = list(_sources(select))
        own = [(table, name) for table, name in named if any(table is source for source in inside)]
        for table, name in own:
            if len(parts) > 2 and QualifiedName(parts[0], parts[1]) == name:
                return table, True
        for source in inside:
            if fold(source.alias_or_name) == fold(parts[0]):
                return next((table for table, _ in own if table is source), None), False
    return None, False


def _around(column: exp.Expr) -> Iterator[exp.Select]:
    """The blocks whose tables a column can be of, from the inside; a CTE sees nothing of the query around it."""
    found = column.parent
    while found is not None and not isinstance(found, exp.CTE):
        if isinstance(found, exp.Select):
            yield found
        found = found.parent


def _sources(select: exp.Select) -> Iterator[exp.Expr]:
    start = select.args.get("from_") or select.args.get("from")
    todo = [start.this] if start is not None else []
    todo += [join.this for join in select.args.get("joins") or ()]
    while todo:
        source = todo.pop(0)
        yield source
        todo += [join.this for join in source.args.get("joins") or ()]


def _own_aliases(query: exp.Expr, named: list[tuple[exp.Table, QualifiedName]]) -> dict[int, str]:
    """For tables whose name another table has too: an alias that nobody has; the first keeps the name."""
    keys = {id(table): name.key for table, name in named}
    holders: dict[str, set[object]] = {}
    for source in query.find_all(exp.Table, exp.Subquery, exp.CTE, exp.Unnest):
        holders.setdefault(fold(source.alias_or_name), set()).add(keys.get(id(source), "an alias"))
    own: dict[int, str] = {}
    kept: dict[str, object] = {}
    for table, name in named:
        plain = name.key[1]
        if len(holders[plain]) > 1 and ("an alias" in holders[plain] or kept.setdefault(plain, name.key) != name.key):
            number = next(n for n in range(2, len(holders) + 3) if f"{plain}_{n}" not in holders)
            own[id(table)] = f"{table.name}_{number}"
            holders[f"{plain}_{number}"] = {name.key}
    return own
