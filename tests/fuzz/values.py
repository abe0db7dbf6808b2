"""Column types of random histories: a small tree, and SQL expressions that give odd values of each type.

A value is a function of the row number ``i`` and of constants drawn when the statement is written, so that a statement
of sixty rows stays one short line in the log and the same seed writes the same rows. Knows nothing about DuckLake.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Scalar:
    """``plain``: only values that survive in the text of an inlined nested column (see ``PLAIN``)."""

    sql: str
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Struct:
    fields: tuple[tuple[str, Type], ...]


@dataclass(frozen=True, slots=True)
class ListOf:
    element: Type


@dataclass(frozen=True, slots=True)
class MapOf:
    key: Scalar
    value: Type


Type = Scalar | Struct | ListOf | MapOf

# Odd but legal values of each type, as DuckDB literals.
POOLS: Mapping[str, tuple[str, ...]] = {
    "BOOLEAN": ("true", "false"),
    "TINYINT": ("-128", "127", "0", "7"),
    "SMALLINT": ("-32768", "32767", "-1", "300"),
    "INTEGER": ("-2147483648", "2147483647", "0", "42"),
    "BIGINT": ("-9223372036854775808", "9223372036854775807", "9007199254740993", "5"),
    "HUGEINT": ("0", "-9007199254740992", "9007199254740992", "5"),  # a DOUBLE in the file: more is lost or refused
    "UTINYINT": ("0", "255", "9"),
    "USMALLINT": ("0", "65535"),
    "UINTEGER": ("0", "4294967295", "17"),
    "UBIGINT": ("0", "18446744073709551615", "9223372036854775808"),
    "FLOAT": ("'nan'", "'inf'", "'-inf'", "0.1", "-1.5", "3.4e38"),
    "DOUBLE": ("'nan'", "'inf'", "0.1", "-1e-300", "1.7976931348623157e308", "2.5"),
    "DECIMAL(4,1)": ("-999.9", "999.9", "0.1"),
    "DECIMAL(9,2)": ("-9999999.99", "9999999.99", "0.01", "1.10"),
    "DECIMAL(18,2)": ("9999999999999999.99", "0.01", "-7.00"),
    "DECIMAL(18,4)": ("-99999999999999.9999", "0.0001", "12.3400"),
    "DECIMAL(38,2)": ("123456789012345678901234567890123456.78", "-0.01", "3.00"),
    "DECIMAL(38,4)": ("1234567890123456789012345678901234.5678", "-0.0001", "3.5"),
    "VARCHAR": (
        "''",
        "'plain'",
        "'it''s \"quoted\"'",
        "'a=b/c%20d'",
        "'é ß 漢 😀'",
        "'NULL'",
        "'back\\slash'",
        "' lead and trail '",
        "'line'||chr(10)||'tab'||chr(9)",
        "'{\"j\": [1]}'",
    ),
    "JSON": ("'{\"a\": 1}'", "'[1, null]'", "'\"x\"'", "'null'"),
    "DATE": ("'0001-01-01'", "'1582-10-10'", "'1969-12-31'", "'2024-02-29'", "'9999-12-31'"),
    "TIME": ("'00:00:00'", "'23:59:59.999999'", "'12:34:56.000001'"),
    "TIMESTAMP": ("'1900-01-01 00:00:00'", "'1969-12-31 23:59:59.999999'", "'2024-02-29 12:00:00.000001'"),
    "TIMESTAMP_S": ("'1970-01-01 00:00:01'", "'2024-02-29 12:00:00'"),
    "TIMESTAMP_MS": ("'1969-12-31 23:59:59.999'", "'2024-02-29 12:00:00.001'"),
    "TIMESTAMPTZ": ("'1970-01-01 00:00:00+00'", "'2024-03-31 02:30:00.123456+02'", "'1950-06-01 00:00:00-05'"),
    "UUID": ("'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"),
    "BLOB": ("''", "'\\x00\\xFF'", "'abc'", "'\\x27\\x5C'"),
}
# Values that depend on the row, so that rows differ; types that are absent have only their pool.
SPREAD: Mapping[str, str] = {
    "TINYINT": "({i}*7+{q})%100",
    "SMALLINT": "({i}*31+{q})%1000-500",
    "INTEGER": "({i}*37+{q})%1000-500",
    "BIGINT": "({i}*1000003+{q})%100000",
    "HUGEINT": "({i}*1000003+{q})%100000",
    "UINTEGER": "({i}*11+{q})%999",
    "FLOAT": "(({i}*3+{q})%40)/4.0",
    "DOUBLE": "(({i}*13+{q})%1000)/8.0",
    "DECIMAL(4,1)": "(({i}*7+{q})%999)/10",
    "DECIMAL(9,2)": "(({i}*7+{q})%9999)/100",
    "DECIMAL(18,2)": "(({i}*7+{q})%9999)/100",
    "DECIMAL(18,4)": "(({i}*7+{q})%99999)/10000",
    "DECIMAL(38,2)": "(({i}*7+{q})%9999)/100",
    "DECIMAL(38,4)": "(({i}*7+{q})%99999)/10000",
    "VARCHAR": "'v'||(({i}*5+{q})%23)",
    "DATE": "DATE '2023-01-01' + CAST(({i}*5+{q})%900 AS INTEGER)",
    "TIMESTAMP": "TIMESTAMP '2023-01-01' + to_hours(({i}*17+{q})%9000)",
    "TIMESTAMPTZ": "TIMESTAMPTZ '2023-01-01 00:00:00+00' + to_hours(({i}*17+{q})%9000)",
    "UUID": "format('{{:08x}}-0000-4000-8000-00000000{{:04x}}', {i}+{q}, {i}%65536)",
}
# What the extension permits, but for JSON, for HUGEINT from types whose values a DOUBLE can't hold, and from BOOLEAN:
# what says "false" in a path or in statistics is no number, and stock DuckDB can't read the table any more.
PROMOTIONS: Mapping[str, tuple[str, ...]] = {
    "TINYINT": ("SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DECIMAL(4,1)"),
    "SMALLINT": ("INTEGER", "BIGINT", "DOUBLE", "DECIMAL(9,2)"),
    "INTEGER": ("BIGINT", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL(18,4)"),
    "BIGINT": ("DOUBLE", "DECIMAL(38,2)"),
    "UTINYINT": ("USMALLINT", "UINTEGER", "SMALLINT", "FLOAT"),
    "USMALLINT": ("UINTEGER", "UBIGINT", "INTEGER", "DECIMAL(9,2)"),
    "UINTEGER": ("UBIGINT", "BIGINT", "HUGEINT", "DOUBLE", "DECIMAL(18,2)"),
    "UBIGINT": ("DOUBLE", "DECIMAL(38,2)"),
    "FLOAT": ("DOUBLE",),
    "DECIMAL(4,1)": ("DECIMAL(9,2)", "FLOAT", "DOUBLE"),
    "DECIMAL(9,2)": ("DECIMAL(18,2)", "DECIMAL(38,2)", "DOUBLE"),
    "DECIMAL(18,2)": ("DECIMAL(38,2)", "DOUBLE"),
    "DECIMAL(18,4)": ("DECIMAL(38,4)", "DOUBLE"),
    "DATE": ("TIMESTAMP", "TIMESTAMPTZ"),
    "TIMESTAMP": ("TIMESTAMPTZ",),
    "TIMESTAMP_S": ("TIMESTAMP", "TIMESTAMP_MS"),
    "TIMESTAMP_MS": ("TIMESTAMP",),
}


def sql_type(type_: Type) -> str:
    match type_:
        case Scalar(sql, _):
            return sql
        case Struct(fields):
            return "STRUCT(" + ", ".join(f"{quote(name)} {sql_type(inner)}" for name, inner in fields) + ")"
        case ListOf(element):
            return f"{sql_type(element)}[]"
        case MapOf(key, value):
            return f"MAP({sql_type(key)}, {sql_type(value)})"


# Inlined nested values are text in the catalog, and the extension's text loses quotes inside structs, garbles BLOB
# there and can't read DATE, TIME, UUID and NaN back at all. That is lost data, not history; lakes that inline nest
# only these.
PLAIN = ("BOOLEAN", "SMALLINT", "INTEGER", "BIGINT", "DOUBLE", "DECIMAL(9,2)", "DECIMAL(38,4)", "VARCHAR")


def random_scalar(rng: Random, plain: bool = False) -> Scalar:
    return Scalar(rng.choice(PLAIN), True) if plain else Scalar(rng.choice(tuple(POOLS)))


def random_type(rng: Random, plain: bool, depth: int = 0) -> Type:
    """``plain``: nested types hold plain scalars only."""
    roll = rng.random()
    if depth >= 2 or roll < 0.66 + 0.1 * depth:
        return random_scalar(rng, plain and depth > 0)
    if roll < 0.84:
        names = rng.sample(("a", "b", "c", "odd name", "Cap"), rng.randint(1, 3))
        return Struct(tuple((name, random_type(rng, plain, depth + 1)) for name in names))
    if roll < 0.93:
        return ListOf(random_type(rng, plain, depth + 1))
    return MapOf(Scalar(rng.choice(("VARCHAR", "INTEGER", "DATE")), plain), random_type(rng, plain, depth + 1))


def _pool(scalar: Scalar) -> tuple[str, ...]:
    if scalar.plain and scalar.sql == "VARCHAR":
        return ("'plain'", "'é ß 漢 😀'", "'two words'")
    if scalar.plain and scalar.sql == "DOUBLE":
        return ("0.1", "-1e-300", "2.5")
    return POOLS[scalar.sql]


def expression(type_: Type, rng: Random, i: str = "i", nulls: float = 0.15) -> str:
    """A value of this type as a function of ``i``; about ``nulls`` of the rows are NULL."""
    value = _expression(type_, rng, i)
    if nulls and rng.random() < 0.7:
        return f"CASE WHEN ({i}+{rng.randint(0, 9)})%{max(2, round(1 / nulls))}=0 THEN NULL ELSE {value} END"
    return value


def _expression(type_: Type, rng: Random, i: str) -> str:
    match type_:
        case Scalar(sql, _):
            if sql in SPREAD and rng.random() < 0.6:
                return f"({SPREAD[sql].format(i=i, q=rng.randint(0, 50))})::{sql}"
            pool = _pool(type_)
            picks = rng.sample(pool, rng.randint(1, min(4, len(pool))))
            items = ", ".join(f"({item})::{sql}" for item in picks)
            return f"([{items}])[1+({i}+{rng.randint(0, 9)})%{len(picks)}]"
        case Struct(fields):
            inner = ", ".join(f"{quote(name)} := {expression(child, rng, i)}" for name, child in fields)
            return f"struct_pack({inner})"
        case ListOf(element):
            items = ", ".join(expression(element, rng, i) for _ in range(rng.randint(1, 2)))
            return f"(CASE WHEN {i}%5=1 THEN [] ELSE [{items}] END)::{sql_type(type_)}"
        case MapOf(key, value):
            first, second = rng.sample(_pool(key), 2)
            keys = f"[({first})::{key.sql}, ({second})::{key.sql}]"
            values = f"[{expression(value, rng, i)}, {expression(value, rng, i)}]::{sql_type(value)}[]"
            return f"MAP({keys}, {values})"


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
