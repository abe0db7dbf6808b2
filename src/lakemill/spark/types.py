"""Spark type objects for a lake's columns, built without asking a JVM (so that Spark Connect works the same)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (everybody's name for it)
from pyspark.sql import types as t

from lakemill.core.schema import Column, quote_identifier, shown_type, stored_type
from lakemill.errors import UnsupportedType

_SIMPLE: dict[str, t.DataType] = {
    "boolean": t.BooleanType(),
    "tinyint": t.ByteType(),
    "smallint": t.ShortType(),
    "int": t.IntegerType(),
    "bigint": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "date": t.DateType(),
    "time(6)": t.TimeType(6),
    "timestamp": t.TimestampType(),
    "timestamp_ntz": t.TimestampNTZType(),
    "string": t.StringType(),
    "binary": t.BinaryType(),
}
FIELD_ID = "parquet.field.id"


def scalar(text: str) -> t.DataType:
    if match := re.fullmatch(r"decimal\((\d+),(\d+)\)", text):
        return t.DecimalType(int(match[1]), int(match[2]))
    return _SIMPLE[text]


def stored(column: Column, *, ids: bool, named: bool = True) -> t.DataType:
    """The type that the Parquet reader or writer is told; with ``ids``, struct fields carry their field ids.

    Without ``named`` they are named after their ids: the reader pairs a struct's fields by name before it does by id,
    and a field may have the name that another one has in an older file.
    """
    match column.type:
        case "struct":
            return t.StructType(
                [
                    t.StructField(
                        c.name if named else by_id_name(c),
                        stored(c, ids=ids, named=named),
                        True,
                        {FIELD_ID: c.id} if ids else {},
                    )
                    for c in column.children
                ]
            )
        case "list":
            return t.ArrayType(stored(column.children[0], ids=ids, named=named), True)
        case "map":
            key, value = column.children
            return t.MapType(stored(key, ids=ids, named=named), stored(value, ids=ids, named=named), True)
    return scalar(stored_type(column))


def by_id_name(column: Column) -> str:
    """A name that no column of an older file has."""
    return f"__f{column.id}"


def shown(column: Column) -> t.DataType:
    """The type that a scan gives."""
    match column.type:
        case "struct":
            return t.StructType([t.StructField(c.name, shown(c), True) for c in column.children])
        case "list":
            return t.ArrayType(shown(column.children[0]), True)
        case "map":
            return t.MapType(shown(column.children[0]), shown(column.children[1]), True)
    return scalar(shown_type(column))


_DUCK: dict[type[t.DataType], str] = {
    t.BooleanType: "BOOLEAN",
    t.ByteType: "TINYINT",
    t.ShortType: "SMALLINT",
    t.IntegerType: "INTEGER",
    t.LongType: "BIGINT",
    t.FloatType: "FLOAT",
    t.DoubleType: "DOUBLE",
    t.DateType: "DATE",
    t.TimeType: "TIME",
    t.TimestampType: "TIMESTAMPTZ",
    t.TimestampNTZType: "TIMESTAMP",
    t.BinaryType: "BLOB",
    t.NullType: "INTEGER",  # of nothing but NULLs; DuckDB makes the same of it
}


def duck(type_: t.DataType, name: str) -> str:
    """The type, in DuckDB's words, of a lake's column that holds all values of one of Spark's; else refused."""
    match type_:
        case t.DecimalType():
            return f"DECIMAL({type_.precision},{type_.scale})"
        case t.StringType() if type_.collation == "UTF8_BINARY":
            return "VARCHAR"
        case t.ArrayType():
            return f"{duck(type_.elementType, name)}[]"
        case t.StructType():
            fields = (f"{quote_identifier(field.name)} {duck(field.dataType, name)}" for field in type_.fields)
            return f"STRUCT({', '.join(fields)})"
        case t.MapType():
            raise UnsupportedType(
                f"column {name!r} holds a map, which can't be compared",
                remedy="write map_entries(…), a list of structs",
            )
    if type(type_) in _DUCK:
        return _DUCK[type(type_)]
    raise UnsupportedType(
        f"column {name!r} is {type_.simpleString().upper()}, which a lake can't hold", remedy="cast it to another type"
    )


def shown_schema(columns: Sequence[Column]) -> t.StructType:
    """The schema that a scan of these columns gives."""
    return t.StructType([t.StructField(column.name, shown(column), True) for column in columns])


def no_rows(spark: SparkSession, schema: t.StructType) -> DataFrame:
    """A frame without rows; createDataFrame([]) would start Python workers for it."""
    return spark.range(0).select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields))
