"""Columns that a block's tables show: what sqlglot makes of a name beside what DuckDB does, where the two differ.

sqlglot takes a name that ORDER BY computes with for an alias of the SELECT list, DuckDB first for a column. Of two
columns of one name in a subquery, DuckDB means the first and sqlglot does not say. For ``core/qualified``, after names
are resolved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from lakemill.core.algebra import Expr
from lakemill.core.names import fold
from lakemill.core.using import MERGED, STARRED, computed
from lakemill.core.value import Refused

Schema = Mapping[str, Mapping[str, Mapping[str, str]]]


def settled(query: Expr, schema: Schema) -> Expr:
    """The resolved query with aliases only where DuckDB means them."""
    ctes = {cte.alias: cte.this for cte in query.find_all(exp.CTE)}
    for select in query.find_all(exp.Select):
        shown = _shown(select, schema, ctes)
        _require_one_meaning(select, shown)
        _require_no_field(select, shown, schema, ctes)
        _require_one_place(select)
        for found in [found for part in computed(select) for found in part.find_all(exp.Column)]:
            tables = [alias for alias, columns in shown.items() if found.name in columns]
            if found.table or not tables or found.find_ancestor(exp.Query) is not select:
                continue
            if _itself(select, found.name, tables[0]):
                continue
            if select.args.get("distinct") is not None and select.args["distinct"].args.get("on") is None:
                told = f"DISTINCT: ORDER BY computes with the column {found.name}, which is an alias, too"
                raise Refused(found, told, "give the alias a name of its own")
            found.set("table", exp.to_identifier(tables[0]))
    return query


def _itself(select: exp.Select, name: str, table: str) -> bool:
    """Whether the alias of this name is the column of this name."""
    values = [item.unalias() for item in select.expressions if item.alias_or_name == name]
    return any(isinstance(one, exp.Column) and (one.name, one.table) == (name, table) for one in values)


def _shown(select: exp.Select, schema: Schema, ctes: Mapping[str, exp.Query]) -> dict[str, Sequence[str]]:
    """The columns of each table in FROM, by its alias."""
    found: dict[str, Sequence[str]] = {}
    for relation in _relations(select):
        columns: Sequence[str] = ()
        if isinstance(relation, exp.Table) and relation.db:
            columns = tuple(map(fold, schema.get(fold(relation.db), {}).get(fold(relation.name), ())))
        elif isinstance(relation, exp.Table) and relation.name in ctes:
            columns = ctes[relation.name].named_selects
        elif isinstance(relation, exp.Subquery) and isinstance(relation.this, exp.Query):
            columns = relation.this.named_selects
        elif isinstance(relation, exp.Unnest) and relation.args.get("alias") is not None:
            columns = [column.name for column in relation.args["alias"].columns]
        found[relation.alias_or_name] = columns
    return found


def _relations(select: exp.Select) -> list[Expr]:
    """The tables whose columns the block sees."""
    start = select.args.get("from_")
    joins = [join for join in select.args.get("joins") or () if join.kind not in ("SEMI", "ANTI")]
    return [*([start.this] if start is not None else ()), *(join.this for join in joins)]


def _require_one_meaning(select: exp.Select, shown: Mapping[str, Sequence[str]]) -> None:
    twice = {(alias, name) for alias, columns in shown.items() for name in columns if list(columns).count(name) > 1}
    stars = [item for item in select.expressions if isinstance(item, exp.Star) or isinstance(item.this, exp.Star)]
    asked = [(item, name) for item in stars for _, name in twice]
    asked += [(found, found.name) for found in select.find_all(exp.Column) if (found.table, found.name) in twice]
    for place, name in asked:
        raise Refused(place, f"a subquery has two columns called {name}", "give one of them an alias there")
    for name, tables in select.meta.get(MERGED, {}).items() if select.meta.get(STARRED) else ():
        if any(name in columns for alias, columns in shown.items() if alias not in tables):
            raise Refused(
                select, f"a star beside USING ({name}) and another {name} is not translated", "name the columns"
            )


def _require_one_place(select: exp.Select) -> None:
    """A place in ORDER BY is a name by now, unless two columns have it: then it, or their name, says neither."""
    distinct, order, given = select.args.get("distinct"), select.args.get("order"), select.args.get
    on = distinct.args.get("on") if distinct is not None else None
    if order is None or not (on is not None or given("limit") or given("offset")):
        return
    asked = [*(on.expressions if on is not None else ()), *(item.this for item in order.expressions)]
    places = [one for one in asked if isinstance(one, exp.Literal) and one.is_int]
    names = [found.name for one in asked for found in one.find_all(exp.Column) if not found.table]
    if twice := [name for name in names if select.named_selects.count(name) > 1] or [one.name for one in places]:
        told = f"ORDER BY {twice[0]}: the SELECT list has two columns of one name"
        raise Refused(select, told, "give each an alias of its own")


def _require_no_field(
    select: exp.Select, shown: Mapping[str, Sequence[str]], schema: Schema, ctes: Mapping[str, exp.Query]
) -> None:
    """``x.k`` is a field of a column ``x`` that the block's tables have, before it is a column of a table around it."""
    for found in select.find_all(exp.Column):
        if not found.table or found.table in shown or found.find_ancestor(exp.Query) is not select:
            continue
        for alias in (alias for alias, columns in shown.items() if fold(found.table) in columns):
            if _may_have_fields(select, alias, fold(found.table), schema, ctes):
                told = f"{found.sql('duckdb')} can be a field of {alias}.{found.table}, too"
                raise Refused(found, told, "give the table another alias")


def _may_have_fields(select: exp.Select, alias: str, name: str, schema: Schema, ctes: Mapping[str, exp.Query]) -> bool:
    """Whether a column that a table of the block shows can be a struct."""
    relation = next((one for one in _relations(select) if one.alias_or_name == alias), None)
    if isinstance(relation, exp.Table) and relation.db:
        type_ = schema.get(fold(relation.db), {}).get(fold(relation.name), {}).get(name, "STRUCT")
        return type_.startswith("STRUCT")
    inner = ctes.get(relation.name) if isinstance(relation, exp.Table) else relation and relation.this
    while isinstance(inner, exp.Subquery):
        inner = inner.this
    if isinstance(inner, exp.SetOperation):  # its columns have one type on both sides, or none that both have
        inner = inner.left
    if not isinstance(inner, exp.Select):
        return True
    value = next((one.unalias() for one in inner.expressions if one.alias_or_name == name), None)
    while isinstance(value, _ALIKE):
        value = value.this
    if isinstance(value, exp.Column) and value.table:
        return _may_have_fields(inner, value.table, value.name, schema, ctes)
    return not isinstance(value, _PLAIN) or isinstance(value, exp.Dot)


_ALIKE = (exp.Max, exp.Min, exp.Paren, exp.First, exp.AnyValue, exp.Filter)
"""They have the type of their argument."""
_PLAIN = (exp.Binary, exp.Count, exp.Sum, exp.Avg, exp.Literal, exp.Boolean, exp.Neg, exp.Not, exp.Exists, exp.Upper)
"""They are no structs; DuckDB has bound the query, so that arithmetic is of numbers."""
