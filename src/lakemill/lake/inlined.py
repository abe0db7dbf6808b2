"""Rows that DuckLake keeps in the catalog, cast by DuckDB to the columns of the snapshot that is read.

They arrive as PostgreSQL holds them (text, or bytes for strings), in the columns of the schema version under which they
were written, and leave as an Arrow table in the columns asked for, in the form that Spark shows. They are the only
rows of user data that pass through the client; DuckLake bounds them by its inlining limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from lakemill.core.scan import InlinedRows
from lakemill.core.schema import Column, duck_type, quote_identifier
from lakemill.errors import UnsupportedType, WrongType
from lakemill.lake.duck import explained

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

WEIGHT = "__weight"
ROW_ID = "__row_id"


def inlined_table(duck: DuckDBPyConnection, inlined: InlinedRows, columns: Sequence[Column], b: int) -> pa.Table:
    """The rows in the given columns, with ``__weight`` (+1 when visible at b, else −1) and ``__row_id``."""
    source = _text_table(inlined, b)
    by_id = {column.id: (column, f"c{index}") for index, column in enumerate(inlined.columns)}
    selected: list[exp.Expr] = [exp.column(WEIGHT), exp.column(ROW_ID)]
    for position, column in enumerate(columns):
        selected.append(exp.alias_(_value(column, by_id), f"o{position}", quoted=True))
    query = exp.select(*selected).from_("inlined_text")
    cursor = duck.cursor()
    cursor.register("inlined_text", source)
    try:
        with explained(own=True):
            table: pa.Table = cursor.execute(query.sql(dialect="duckdb")).to_arrow_table()
    except WrongType as error:
        raise UnsupportedType(f"a row that the catalog holds can't be read by Spark: {error.message}") from error
    finally:
        cursor.unregister("inlined_text")
    return table.rename_columns([WEIGHT, ROW_ID, *(column.name for column in columns)])


def inlined_select(inlined: InlinedRows, columns: Sequence[Column]) -> tuple[str, dict[str, tuple[str, list[Any]]]]:
    """The same for a lake that DuckDB reads: a query over ``inlined_text``, and its columns as kind and values.

    It gives row id, begin, no end, then the columns in DuckDB's own types.
    """
    by_id = {column.id: (column, f"c{index}") for index, column in enumerate(inlined.columns)}
    selected: list[exp.Expr] = [exp.column("row_id"), exp.column("begin"), exp.null()]
    selected += [_value(column, by_id, shown=False) for column in columns]
    query = exp.select(*selected).from_("inlined_text").sql(dialect="duckdb")
    given: dict[str, tuple[str, list[Any]]] = {
        "row_id": ("int64", [row[0] for row in inlined.rows]),
        "begin": ("int64", [row[1] for row in inlined.rows]),
    }
    for index, column in enumerate(inlined.columns):
        values = [row[3 + index] for row in inlined.rows]
        given[f"c{index}"] = (column.type, values if column.type == "blob" else [_text(value) for value in values])
    return query, given


def column_definitions(columns: Sequence[Column]) -> str:
    """The columns as a CREATE TABLE of DuckDB takes them."""
    return ", ".join(f"{quote_identifier(column.name)} {duck_type(column, alone=True)}" for column in columns)


def _text_table(inlined: InlinedRows, b: int) -> pa.Table:
    def visible(begin: int, end: int | None) -> bool:
        return begin <= b and (end is None or end > b)

    arrays: dict[str, pa.Array] = {
        WEIGHT: pa.array([1 if visible(row[1], row[2]) else -1 for row in inlined.rows], pa.int64()),
        ROW_ID: pa.array([row[0] for row in inlined.rows], pa.int64()),
    }
    for index, column in enumerate(inlined.columns):
        values = [row[3 + index] for row in inlined.rows]
        if column.type == "blob":
            arrays[f"c{index}"] = pa.array(values, pa.binary())
        else:
            arrays[f"c{index}"] = pa.array([_text(value) for value in values], pa.string())
    return pa.table(arrays)


def _text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


def _value(column: Column, by_id: dict[int, tuple[Column, str]], *, shown: bool = True) -> exp.Expr:
    if column.id not in by_id:
        default = exp.null() if column.initial_default is None else exp.Literal.string(column.initial_default)
        value = _cast(default, column)
    else:
        source, name = by_id[column.id]
        value = _reshape(_cast(exp.column(name), source), source, column)
    return _show(value, column) if shown else value


def _reshape(value: exp.Expr, source: Column, target: Column, depth: int = 0) -> exp.Expr:
    """A value of an older version of a column in the newer one; fields are matched by id, not by name."""
    if _same_fields(source, target):
        return _cast(value, target)
    if target.type == "list":
        return _transform(value, depth, lambda item: _reshape(item, source.children[0], target.children[0], depth + 1))
    if target.type == "map":
        pairs = tuple(zip(("key", "value"), source.children, target.children, strict=True))

        def entry(item: exp.Expr) -> exp.Expr:
            return _pack([(part, _reshape(_field(item, part), old, new, depth + 1)) for part, old, new in pairs])

        entries = exp.Anonymous(this="map_entries", expressions=[value])
        return exp.Anonymous(this="map_from_entries", expressions=[_transform(entries, depth, entry)])
    old = {child.id: child for child in source.children}
    fields = []
    for child in target.children:
        if child.id in old:
            inner = _field(value, old[child.id].name)
            fields.append((child.name, _reshape(inner, old[child.id], child, depth)))
        else:
            default = exp.null() if child.initial_default is None else exp.Literal.string(child.initial_default)
            fields.append((child.name, _cast(default, child)))
    return exp.Case(
        ifs=[exp.If(this=exp.Is(this=value.copy(), expression=exp.null()), true=exp.null())], default=_pack(fields)
    )


def _field(value: exp.Expr, name: str) -> exp.Expr:
    return exp.Bracket(this=value.copy(), expressions=[exp.Literal.string(name)])


def _pack(fields: Sequence[tuple[str, exp.Expr]]) -> exp.Expr:
    pairs = [exp.PropertyEQ(this=exp.to_identifier(name, quoted=True), expression=value) for name, value in fields]
    return exp.Anonymous(this="struct_pack", expressions=pairs)


def _transform(items: exp.Expr, depth: int, change: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    item = exp.to_identifier(f"item{depth}")  # a name of its own at each depth
    changed = exp.Lambda(this=change(exp.column(item)), expressions=[item.copy()])
    return exp.Anonymous(this="list_transform", expressions=[items, changed])


def _same_fields(source: Column, target: Column) -> bool:
    if not source.nested and not target.nested:
        return True
    return (
        source.type == target.type
        and [(child.id, child.name) for child in source.children] == [(c.id, c.name) for c in target.children]
        and all(_same_fields(s, t) for s, t in zip(source.children, target.children, strict=True))
    )


def _cast(value: exp.Expr, column: Column) -> exp.Expr:
    return exp.Cast(this=value, to=exp.DataType.build(duck_type(column, alone=True), dialect="duckdb"))


def _show(value: exp.Expr, column: Column) -> exp.Expr:
    return exp.Cast(this=value, to=exp.DataType.build(duck_type(column, shown=True), dialect="duckdb"))
