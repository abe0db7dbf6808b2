"""A DataFrame's columns → a table's, without losing anything on the way.

Before a write. Columns are matched by name in any case, struct fields too; a cast that could change a value is refused
before Spark starts, one that fits for most values (a long into an INTEGER, a text into a UUID) is checked row by row by
Spark itself and fails the job. The result is in *stored* form and carries the table's field ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from lakemill.core.schema import Column, quote_spark, shown_type
from lakemill.errors import BadArgument, UnknownColumn, WrongType
from lakemill.spark import types

REFUSED = "LAKEMILL_WRONG_TYPE"
"""Marks the message of a value that does not fit, so that the failed job can be explained."""

_INTEGERS = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)
_LARGEST = {"uint8": 2**8 - 1, "uint16": 2**16 - 1, "uint32": 2**32 - 1, "uint64": 2**64 - 1}
_EXACT_IN_DOUBLE = 2**53
_UUID = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
_TOLD = 200
_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false", "maxNumLen": str(2**31 - 1)}
_SURROGATE = r"\\u[dD][89a-fA-F]"
_ESCAPED = r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
"""A backslash, or a whole pair of surrogates."""
_NOT_FINITE = r"(?i)(?<![\w.\\])(nan|inf|infinity)(?![\w.])"
_LAST_COMMA = r"([^\s\[{,:]\s*),(?=\s*[\]}])"

Change: TypeAlias = Callable[[Expr], Expr]


def fit(frame: DataFrame, columns: Sequence[Column], *, also: Sequence[str] = ()) -> list[Expr]:
    """One expression per table column, named, typed and with its field id; ``also`` may be in the frame beside them."""
    given: object = frame
    if not isinstance(given, DataFrame):
        raise BadArgument(
            f"it takes a Spark DataFrame, not a {type(given).__name__}",
            remedy="make one with lake.spark.createDataFrame(…)",
        )
    have = {}
    for field in frame.schema.fields:
        if field.name.lower() in have:
            raise UnknownColumn(f"the DataFrame has two columns named {field.name!r}")
        have[field.name.lower()] = field
    wanted = {column.name.lower() for column in columns}
    unknown = [f.name for name, f in have.items() if name not in wanted and f.name not in also]
    missing = [column.name for column in columns if column.name.lower() not in have]
    if unknown or missing:
        told = [f"no column {', '.join(map(repr, unknown))} in the table"] if unknown else []
        told += [f"no column {', '.join(map(repr, missing))} in the DataFrame"] if missing else []
        raise UnknownColumn("; ".join(told), remedy="give the DataFrame exactly the table's columns, in any order")
    fitted = []
    for column in columns:
        field = have[column.name.lower()]
        change = _plan(field.dataType, column, column.name)
        value = F.col(quote_spark(field.name))
        stored = (change(value) if change else value).cast(types.stored(column, ids=True))
        fitted.append(stored.alias(column.name, metadata={types.FIELD_ID: column.id}))
    return fitted


def _plan(have: t.DataType, column: Column, place: str) -> Change | None:
    """How a value must be changed before the final cast; None when that cast alone keeps everything."""
    if isinstance(have, t.NullType):
        return None
    match column.type:
        case "struct" if isinstance(have, t.StructType):
            return _plan_struct(have, column, place)
        case "list" if isinstance(have, t.ArrayType):
            inner = _plan(have.elementType, column.children[0], f"{place}.element")
            return (lambda value: F.transform(value, inner)) if inner else None
        case "map" if isinstance(have, t.MapType):
            keys = _plan(have.keyType, column.children[0], f"{place}.key")
            values = _plan(have.valueType, column.children[1], f"{place}.value")
            if keys is None and values is None:
                return None
            return lambda value: _change_map(value, keys, values)
        case "struct" | "list" | "map":
            raise _wrong(have, column, place)
    return _plan_scalar(have, column, place)


def _plan_struct(have: t.StructType, column: Column, place: str) -> Change | None:
    fields = {field.name.lower(): field for field in have.fields}
    names = [child.name.lower() for child in column.children]
    if sorted(fields) != sorted(names) or len(fields) != len(have.fields):
        raise UnknownColumn(
            f"column {place!r} has the fields {', '.join(have.names)}, the table's has"
            f" {', '.join(child.name for child in column.children)}"
        )
    changes = [
        _plan(fields[name].dataType, child, f"{place}.{child.name}")
        for name, child in zip(names, column.children, strict=True)
    ]
    if not any(changes) and list(fields) == names:
        return None

    def change(value: Expr) -> Expr:
        parts = []
        for name, child, inner in zip(names, column.children, changes, strict=True):
            part = value.getField(fields[name].name)
            parts.append((inner(part) if inner else part).alias(child.name))
        return F.when(value.isNotNull(), F.struct(*parts))

    return change


def _change_map(value: Expr, keys: Change | None, values: Change | None) -> Expr:
    if keys is not None:
        value = F.transform_keys(value, lambda key, _: keys(key))
    return F.transform_values(value, lambda _, item: values(item)) if values is not None else value


def _plan_scalar(have: t.DataType, column: Column, place: str) -> Change | None:
    shown = types.scalar(shown_type(column))  # refuses, by name, what Spark has no type for
    whole = isinstance(have, _INTEGERS) or (isinstance(have, t.DecimalType) and have.scale == 0)
    match column.type:
        case "int8" | "int16" | "int32" | "int64" if whole:
            return None  # ANSI: a value that does not fit fails the job
        case "uint8" | "uint16" | "uint32" | "uint64" if whole:
            return _between(0, _LARGEST[column.type], column, place)
        case "int128" if whole:
            return _between(-_EXACT_IN_DOUBLE, _EXACT_IN_DOUBLE, column, place)
        case "uint128" if whole:
            return _between(0, _EXACT_IN_DOUBLE, column, place)
        case "float32" if isinstance(have, t.FloatType | t.ByteType | t.ShortType):
            return None
        case "float64" if isinstance(have, t.DoubleType | t.FloatType | t.ByteType | t.ShortType | t.IntegerType):
            return None
        case "timestamp" | "timestamp_us" if isinstance(have, t.TimestampNTZType | t.DateType):
            return None
        case "timestamp_ms" | "timestamp_s" if isinstance(have, t.TimestampNTZType):
            # not date_trunc, which goes through the session's time zone and its missing hours
            per_second = 1000 if column.type == "timestamp_ms" else 1
            return lambda value: _checked(value, F.extract(F.lit("SECOND"), value) * per_second % 1 == 0, column, place)
        case "timestamp_ms" | "timestamp_s" if isinstance(have, t.DateType):
            return None
        case "uuid" if isinstance(have, t.StringType):
            return lambda value: F.unhex(
                F.replace(_checked(value, value.rlike(_UUID), column, place), F.lit("-"), F.lit(""))
            )
        case "uuid" if isinstance(have, t.BinaryType):
            return lambda value: _checked(value, F.length(value) == 16, column, place)
        case type_ if type_.startswith("decimal"):
            if isinstance(have, _INTEGERS) or (
                isinstance(have, t.DecimalType) and isinstance(shown, t.DecimalType) and have.scale <= shown.scale
            ):
                return None  # ANSI again
        case "json" if isinstance(have, t.StringType | t.CharType | t.VarcharType):
            return lambda value: _checked(value, is_json(value), column, place)
        case "boolean" | "date" | "time" | "timestamptz" | "varchar" | "blob":
            if type(have) is type(shown):
                return None
            if column.type == "varchar" and isinstance(have, t.CharType | t.VarcharType):
                return None
    raise _wrong(have, column, place)


def _between(low: int, high: int, column: Column, place: str) -> Change:
    def change(value: Expr) -> Expr:
        number = value.cast("decimal(38,0)")
        bounds = (F.lit(str(bound)).cast("decimal(38,0)") for bound in (low, high))
        return _checked(value, number.between(*bounds), column, place)

    return change


def is_json(value: Expr) -> Expr:
    """Whether DuckDB takes a text for JSON: the standard's, with NaN, infinity and commas before a closing bracket."""
    tidy = F.regexp_replace(value, _ESCAPED, "x")
    tidied = F.regexp_replace(F.regexp_replace(tidy, _NOT_FINITE, "0"), _LAST_COMMA, "$1")
    return (~value.rlike(_SURROGATE) & _parses(value)) | (~tidy.rlike(_SURROGATE) & _parses(tidied))


def _parses(text: Expr) -> Expr:
    """Whether Spark's strict parser finds one value in it: between two others, where it sees what follows."""
    last = F.md5(text)
    among = F.concat(F.lit("[0,"), text, F.lit(',"'), last, F.lit('"]'))
    found = F.from_json(among, "array<string>", _STRICT)
    return F.coalesce((F.size(found) == 3) & (F.get(found, F.lit(2)) == last), F.lit(False))


def _checked(value: Expr, fits: Expr, column: Column, place: str) -> Expr:
    message = F.concat(
        F.lit(f"{REFUSED}: column {place!r} is {column.type.upper()}, which can't hold "),
        F.substring(value.cast("string"), 1, _TOLD),
    )
    return F.when(value.isNull() | fits, value).otherwise(F.raise_error(message))


def _wrong(have: t.DataType, column: Column, place: str) -> WrongType:
    return WrongType(
        f"column {place!r} is {have.simpleString()} in the DataFrame and {column.type.upper()} in the table,"
        " and not every value of the one is a value of the other"
    )
