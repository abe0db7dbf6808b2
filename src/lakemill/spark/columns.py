"""A table's columns as Spark reads them from one kind of file: by field id, or by the names of a mapping.

Gives the schema for the Parquet reader and, per column, the value that turns what was read (*stored* form, names and
field order of the file) into what the user gets (*shown* form): the name of a field that needs nothing, which costs
Python nothing either, or an expression. Missing columns take their initial default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from pyspark.sql import Column as Expr
from pyspark.sql import functions as F  # noqa: N812  (everybody's name for it)
from pyspark.sql import types as t

from lakemill.core.schema import (
    ROW_ID_FIELD,
    SNAPSHOT_FIELD,
    Column,
    NameMap,
    converts,
    filled_by_us,
    quote_spark,
    stored_default,
    stored_type,
)
from lakemill.spark import types

STAMP, OWN_ROW_ID = "__stamp", "__own_row_id"


def by_id(
    columns: Sequence[Column],
    *,
    stamped: bool,
    row_ids: bool,
    absent: frozenset[int] | None = None,
    stored_as: tuple[tuple[int, str], ...] = (),
) -> tuple[t.StructType, list[str | Expr]]:
    """``absent``: columns that these files are known to lack and whose default is ours to fill; None: not asked.

    ``stored_as``: columns that these files hold in an older type, and that type.
    """
    older = dict(stored_as)
    fields: list[t.StructField] = []
    values: list[str | Expr] = []
    for column in columns:
        metadata: dict[str, object] = {types.FIELD_ID: column.id}
        name = types.by_id_name(column)
        if column.id in older:
            held = replace(column, type=older[column.id])
            fields.append(t.StructField(name, types.stored(held, ids=True, named=False), True, metadata))
            values.append(show(_named(name, held), held).cast(types.shown(column)))
            continue
        default = stored_default(column)
        if absent is not None and default is not None and filled_by_us(column):
            if column.id in absent:
                values.append(show(F.expr(default), column))
                continue
            default = None
        if default is not None:
            metadata |= {"EXISTS_DEFAULT": default, "CURRENT_DEFAULT": default}
        fields.append(t.StructField(name, types.stored(column, ids=True, named=False), True, metadata))
        values.append(show(_named(name, column), column) if converts(column) or _has_struct(column) else name)
    if stamped:
        fields.append(t.StructField(STAMP, t.LongType(), True, {types.FIELD_ID: SNAPSHOT_FIELD}))
    if row_ids:
        fields.append(t.StructField(OWN_ROW_ID, t.LongType(), True, {types.FIELD_ID: ROW_ID_FIELD}))
    return t.StructType(fields), values


def _named(name: str, column: Column) -> Expr:
    """What was read under names of ours, with the table's: a cast goes by place."""
    value = F.col(name)
    return value.cast(types.stored(column, ids=False)) if _has_struct(column) else value


def _has_struct(column: Column) -> bool:
    return column.type == "struct" or any(_has_struct(child) for child in column.children)


def by_name(
    columns: Sequence[Column], mapping: tuple[NameMap, ...], stored_as: tuple[tuple[int, str], ...] = ()
) -> tuple[t.StructType, list[Expr], list[tuple[Column, str]]]:
    """For files without field ids: names from the mapping; columns that live only in the path come as constants."""
    by_target = {entry.target: entry for entry in mapping}
    older = dict(stored_as)
    fields, values, constants = [], [], []
    for column in columns:
        entry = by_target.get(column.id)
        if entry is None or entry.is_partition:
            default = stored_default(column)
            missing = F.lit(None).cast(types.stored(column, ids=False)) if default is None else F.expr(default)
            values.append(show(missing, column))
            if entry is not None:
                constants.append((column, entry.source))
            continue
        if column.id in older:
            held = replace(column, type=older[column.id])
            fields.append(t.StructField(entry.source, types.stored(held, ids=False), True))
            values.append(show(F.col(quote_spark(entry.source)), held).cast(types.shown(column)))
            continue
        fields.append(t.StructField(entry.source, _named_type(column, entry), True))
        value = _rename(F.col(quote_spark(entry.source)), column, entry)
        values.append(show(value, column))
    return t.StructType(fields), values, constants


def _named_type(column: Column, entry: NameMap) -> t.DataType:
    match column.type:
        case "struct":
            pairs = [(child, _entry_for(child, entry)) for child in column.children]
            return t.StructType([t.StructField(e.source, _named_type(c, e), True) for c, e in pairs if e is not None])
        case "list":
            element = column.children[0]
            return t.ArrayType(_named_type(element, _entry_for(element, entry) or entry), True)
        case "map":
            key, value = (_named_type(child, _entry_for(child, entry) or entry) for child in column.children)
            return t.MapType(key, value, True)
    return types.scalar(stored_type(column))


def _entry_for(column: Column, entry: NameMap) -> NameMap | None:
    return next((child for child in entry.children if child.target == column.id), None)


def _rename(value: Expr, column: Column, entry: NameMap) -> Expr:
    """A value with the file's field names → the same value with the table's."""
    if column.type == "struct":
        fields = []
        for child in column.children:
            inner = _entry_for(child, entry)
            if inner is None:
                default = stored_default(child)
                missing = F.lit(None).cast(types.stored(child, ids=False)) if default is None else F.expr(default)
                fields.append(missing.alias(child.name))
            else:
                fields.append(_rename(value.getField(inner.source), child, inner).alias(child.name))
        return F.when(value.isNotNull(), F.struct(*fields))
    if column.type == "list" and column.children[0].nested:
        element = column.children[0]
        return F.transform(value, lambda item: _rename(item, element, _entry_for(element, entry) or entry))
    if column.type == "map" and column.children[1].nested:
        inner_column = column.children[1]
        inner_entry = _entry_for(inner_column, entry) or entry
        return F.transform_values(value, lambda _, item: _rename(item, inner_column, inner_entry))
    return value


def show(value: Expr, column: Column) -> Expr:
    """Stored form → shown form; a no-op for all but UUID and HUGEINT, also inside nested columns."""
    if not converts(column):
        return value
    match column.type:
        case "struct":
            fields = [show(value.getField(child.name), child).alias(child.name) for child in column.children]
            return F.when(value.isNotNull(), F.struct(*fields))
        case "list":
            return F.transform(value, lambda item: show(item, column.children[0]))
        case "map":
            key, inner = column.children
            shown = F.transform_keys(value, lambda k, _: show(k, key))
            return F.transform_values(shown, lambda _, v: show(v, inner))
        case "uuid":
            groups = F.regexp_replace(F.lower(F.hex(value)), "^(.{8})(.{4})(.{4})(.{4})(.{12})$", "$1-$2-$3-$4-$5")
            return F.when(F.length(value) == 36, value.cast("string")).otherwise(groups)
        case "int128" | "uint128":
            return _whole(value)
    return value.cast(types.shown(column))


def _whole(value: Expr) -> Expr:
    """A whole DOUBLE as the number that it is: Spark's own cast takes its shortest text, zeros after 17 digits."""
    size = F.abs(value)  # of a negative number the rest would have more digits than a DOUBLE
    high = F.floor(size / 2.0**64)
    rest = size - high.cast("double") * 2.0**64
    middle = F.floor(rest / 2.0**32)
    low = (rest - middle.cast("double") * 2.0**32).cast("bigint")
    number = high.cast("decimal(38,0)") * Decimal(2**64) + middle.cast("decimal(38,0)") * Decimal(2**32) + low
    whole = F.when(value < 0, -number).otherwise(number).cast("decimal(38,0)")
    return F.when(size < 2.0**53, value.cast("decimal(38,0)")).otherwise(whole)


# ---------------------------------------------------------------- comparing
def has_map(column: Column) -> bool:
    return column.type == "map" or any(has_map(child) for child in column.children)


def comparable(value: Expr, column: Column) -> Expr:
    """A value in a form that Spark compares and groups exactly.

    Maps become their entries in order: Spark compares none, and its own grouping of maps turns NULL values into zeros.
    """
    if not has_map(column):
        return value
    match column.type:
        case "struct":
            fields = [comparable(value.getField(child.name), child).alias(child.name) for child in column.children]
            return F.when(value.isNotNull(), F.struct(*fields))
        case "list":
            return F.transform(value, lambda item: comparable(item, column.children[0]))
    key, inner = column.children
    entries = F.transform(
        F.map_entries(value),
        lambda entry: F.struct(
            comparable(entry.getField("key"), key).alias("k"), comparable(entry.getField("value"), inner).alias("v")
        ),
    )
    return F.array_sort(entries)
