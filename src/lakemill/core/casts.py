"""CAST and TRY_CAST, and the casts that DuckDB makes by itself, in Spark's words.

The engines round, trim and read text differently. Numbers are rounded here as DuckDB rounds them. Text is cast only
where it has the plain form that both read alike; any other text that DuckDB could still understand stops the job with
a message, and never becomes a different value or a NULL.
"""

from __future__ import annotations

import re

from lakemill.core import ducktypes as t
from lakemill.core.algebra import Expr
from lakemill.core.ducktypes import Type
from lakemill.core.literals import read
from lakemill.core.value import Refused, Value, fails

_IN_BIGINT = "9223372036854775807D"
_LARGEST_FLOAT = "3.4028235677973366E38D"  # and half a unit: what is smaller is rounded to the largest FLOAT
_INFINITY = "CAST('Infinity' AS DOUBLE)"
_BLANK = r"[ \\t\\n\\x0B\\f\\r]*"
_DAY = r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
# What both engines read alike; and what DuckDB might read, so that it can't be called NULL.
_PLAIN = {
    "integer": rf"^{_BLANK}[+-]?[0-9]+{_BLANK}$",
    "DECIMAL": rf"^{_BLANK}[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+){_BLANK}$",
    "floating": rf"^{_BLANK}[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?{_BLANK}$",
    "BOOLEAN": "^([tT][rR][uU][eE]|[fF][aA][lL][sS][eE]|[tTfF]|[01])$",
    "DATE": f"^{_DAY}$",
    "TIMESTAMP": f"^{_DAY}([ T][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}([.][0-9]{{1,6}})?)?$",
}
_PERHAPS = {
    "integer": r"^[^0-9a-zA-Z]*[0-9][0-9a-fA-FxX_.+\\s-]*$",
    "DECIMAL": r"^[^0-9a-zA-Z]*[0-9][0-9eE_.+\\s-]*$",
    "floating": r"^[^0-9a-zA-Z]*([0-9][0-9eE_.+\\s-]*|[iInN].*)$",
    "BOOLEAN": "^[tTfFyYnNoO01].*",
    "DATE": r"^\\s*-?([0-9]|[eE][pP]|[iI][nN])",  # epoch and infinity are words that DuckDB knows
    "TIMESTAMP": r"^\\s*-?([0-9]|[eE][pP]|[iI][nN])",
}


def implicit(value: Value, to: Type, place: Expr | None) -> Value:
    """A cast that DuckDB makes by itself."""
    if value.type == to:
        return value
    if value.type == t.STRING_LITERAL:
        return _constant(value, to, place)
    return explicit(value, to, place)


def explicit(value: Value, to: Type, place: Expr | None, *, safe: bool = False) -> Value:
    """CAST, or with ``safe`` TRY_CAST."""
    have = value.type
    if have == to:
        return value
    if not t.shared(to):
        raise Refused(place, f"{to} is a type that Spark does not share", "cast to another type first")
    if have.name == "NULL":
        return Value(f"CAST(NULL AS {t.spark(to)})", to)
    if to == t.DATE and value.date is not None:
        return Value(value.date, to)
    cast = "TRY_CAST" if safe else "CAST"
    sql = _sql(value, to, cast, place)
    return Value(sql, to)


def _sql(value: Value, to: Type, cast: str, place: Expr | None) -> str:
    have, x = value.type, value.sql
    plain = f"{cast}({x} AS {t.spark(to)})"
    if t.text(have):
        return _from_text(value, to, cast, place)
    if to.name == "VARCHAR":
        return _to_text(value, place)
    if t.integer(have) and (t.numeric(to) or to == t.BOOLEAN):
        return _within(x, plain, to)
    if have.name == "DECIMAL":
        if t.integer(to):
            return _within(f"round({x}, 0)", f"{cast}(round({x}, 0) AS {t.spark(to)})", to)
        if to.name in ("DECIMAL", "DOUBLE", "FLOAT", "BOOLEAN"):
            return plain
    if t.floating(have):
        if t.integer(to) and to.name in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT"):
            return f"{cast}(rint({x}) AS {t.spark(to)})"
        if to.name == "DECIMAL" and have == t.DOUBLE:
            return _to_decimal(x, to, cast)
        if to == t.FLOAT:
            out = "NULL" if cast == "TRY_CAST" else fails("a DOUBLE is out of the range of FLOAT")
            return f"CASE WHEN abs({x}) > {_LARGEST_FLOAT} AND abs({x}) < {_INFINITY} THEN {out} ELSE {plain} END"
        if t.floating(to) or to == t.BOOLEAN:
            return plain
    if have == t.BOOLEAN and (t.integer(to) or t.floating(to)):
        return plain
    if have.name in _TIMES and to.name in _TIMES:
        return plain
    if have == t.list_of(t.NULL) and to.name == "LIST":
        return plain
    raise Refused(place, f"CAST from {have} to {to} is not the same in both engines", "cast through another type")


_TIMES = ("DATE", "TIMESTAMP", "TIMESTAMPTZ")


def _within(x: str, sql: str, to: Type) -> str:
    """Spark's type is wider than an unsigned one: its bounds are checked by hand."""
    if to.name not in t.UNSIGNED:
        return sql
    low, high = t.bounds(to)
    out = "NULL" if sql.startswith("TRY_CAST") else fails(f"a value is out of the range of {to}")
    return f"CASE WHEN {x} < {low} OR {x} > {high} THEN {out} ELSE {sql} END"


def _to_decimal(x: str, to: Type, cast: str) -> str:
    """DuckDB scales the DOUBLE and rounds half away from zero; Spark would read its shortest text."""
    scaled = f"({x} * 1E{to.scale}D)"
    whole = f"CAST(CAST(round({scaled}, 0) AS BIGINT) AS DECIMAL(19,0))"
    moved = f"{cast}({whole} * {_unit(to.scale)} AS {t.spark(to)})"
    wide = fails("a DOUBLE beyond 2^63 units can't be cast to a decimal alike in both engines")
    out = "NULL" if cast == "TRY_CAST" else fails(f"a DOUBLE is out of the range of {to}")
    beyond = f"CASE WHEN abs({scaled}) < 1E{to.width}D THEN {wide} ELSE {out} END"
    return f"CASE WHEN abs({scaled}) < {_IN_BIGINT} THEN {moved} WHEN {x} IS NOT NULL THEN {beyond} END"


def _unit(scale: int) -> str:
    """10 to the power −scale, as a decimal of few digits."""
    return "1BD" if scale == 0 else f"0.{'0' * (scale - 1)}1BD"


# ---------------------------------------------------------------- text
_WRITTEN = {
    "DATE": ("DATE '0001-01-01'", "DATE '9999-12-31'"),
    "TIMESTAMP": ("TIMESTAMP_NTZ '0001-01-01 00:00:00'", "TIMESTAMP_NTZ '9999-12-31 23:59:59.999999'"),
}


def _to_text(value: Value, place: Expr | None) -> str:
    x, have = value.sql, value.type
    if t.integer(have) or have.name in ("BOOLEAN", "DECIMAL", "UUID", "JSON"):
        return f"CAST({x} AS STRING)"
    if have.name in ("DATE", "TIMESTAMP"):
        low, high = _WRITTEN[have.name]
        odd = fails("a year outside 1 to 9999 is written differently by DuckDB and Spark")
        return f"CASE WHEN {x} >= {low} AND {x} <= {high} THEN CAST({x} AS STRING) WHEN {x} IS NOT NULL THEN {odd} END"
    raise Refused(place, f"{have} as text is written differently by DuckDB and Spark", _TEXT_REMEDY.get(have.name, ""))


_TEXT_REMEDY = {
    "DOUBLE": "round it and cast it to a DECIMAL first",
    "FLOAT": "round it and cast it to a DECIMAL first",
    "TIMESTAMPTZ": "cast it to TIMESTAMP first",
}


def _from_text(value: Value, to: Type, cast: str, place: Expr | None) -> str:
    x = value.sql
    if to.name == "VARCHAR":
        return x
    family = "integer" if t.signed(to) else "floating" if t.floating(to) else to.name
    constant = value.constant if isinstance(value.constant, str) else None
    if constant is not None and (known := read(constant, to)) is not None:
        return known
    if family not in _PLAIN:
        raise Refused(place, f"text can't be cast to {to} alike in both engines", "cast it through BIGINT or TIMESTAMP")
    if constant is not None:
        if cast == "TRY_CAST" and _never(constant, to, family):
            return f"CAST(NULL AS {t.spark(to)})"
        return _constant(value, to, place).sql
    trimmed = f"regexp_replace({x}, '^{_BLANK}|{_BLANK}$', '')" if family in ("integer", "DECIMAL", "floating") else x
    done = f"{cast}({trimmed} AS {t.spark(to)})"
    odd = fails(f"a text is not a plain {to}: DuckDB and Spark could read it differently")
    bad = f"CASE WHEN {x} RLIKE '{_PERHAPS[family]}' THEN {odd} END" if cast == "TRY_CAST" else odd
    return f"CASE WHEN {x} RLIKE '{_PLAIN[family]}' THEN {done} WHEN {x} IS NOT NULL THEN {bad} END"


def _never(text: str, to: Type, family: str) -> bool:
    """Whether DuckDB has no value for a constant that ``read`` has none for: TRY_CAST makes it NULL."""
    if not re.search(_PERHAPS[family].replace(r"\\", "\\"), text, re.ASCII):
        return True
    plain = re.fullmatch(_PLAIN[family].replace(r"\\", "\\"), text) is not None
    return plain and to not in (t.HUGEINT, t.TIMESTAMP) and not text.startswith("0000")  # that year is 1 BC


def _constant(value: Value, to: Type, place: Expr | None) -> Value:
    """A text constant beside a value of another type is read as that type."""
    if to.name in ("VARCHAR", "STRING_LITERAL"):
        return Value(value.sql, t.VARCHAR, value.constant)
    text = str(value.constant)
    known = read(text, to)
    if known is None:
        raise Refused(place, f"'{text}' can't be read as {to} alike in both engines", f"write it as a plain {to}")
    return Value(known, to)
