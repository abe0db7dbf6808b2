"""Constants as both engines read them: the type that DuckDB gives a number, the value that a text has beside a type.

Python reads them once, when a query is declared: what it can't read as DuckDB does is refused then, instead of by Spark
in the middle of a refresh.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

from lakemill.core import ducktypes as t
from lakemill.core.algebra import Expr
from lakemill.core.ducktypes import Type
from lakemill.core.value import Refused, Value, cast_sql, string

_BLANK = " \t\n\v\f\r"
_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)")
_FLOAT = re.compile(_NUMBER.pattern + r"([eE][+-]?[0-9]+)?|[+-]?(nan|inf(inity)?)", re.IGNORECASE | re.ASCII)
_DATE = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})")
_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?)?")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TRUTHS = {"true": "TRUE", "t": "TRUE", "1": "TRUE", "false": "FALSE", "f": "FALSE", "0": "FALSE"}
_LARGEST = 2**128 - 1  # of DuckDB's integers: a larger one is a DOUBLE


def literal(node: Expr) -> Value:
    text = str(node.this)
    if node.is_string:
        return Value(string(text), t.STRING_LITERAL, text)
    text = text.replace("_", "")
    digits = text.lstrip("0") or "0"
    if text.isdecimal() and len(digits) < 40 and (number := int(digits)) <= _LARGEST:
        type_ = t.literal_type(number)
        if not t.holds(type_, number):
            raise Refused(node, f"{text} has more than {t.MOST_DIGITS} digits", "write it as a DOUBLE, with e0 behind")
        shown = {"INTEGER": str(number), "BIGINT": f"{number}L"}.get(type_.name) or cast_sql(f"{number}BD", type_)
        return Value(shown, type_, number)
    whole, point, fraction = text.partition(".")
    width = max(len(whole) + len(fraction), 1)
    if point and width <= t.MOST_DIGITS and (whole + fraction).isdecimal():
        type_ = t.decimal(width, len(fraction))
        return Value(cast_sql(f"{whole or 0}.{fraction or 0}BD", type_), type_, float(text))
    return Value(_double(float(text)), t.DOUBLE)


def _double(number: float) -> str:
    """Spark has no literal for what is not finite."""
    return f"{number!r}D" if math.isfinite(number) else f"CAST('{number!r}' AS DOUBLE)"


def read(text: str, to: Type) -> str | None:
    """A text constant as a value of the type; None for what we don't read as DuckDB does, or DuckDB not at all."""
    if to == t.DATE:
        return _date(text)
    if to in (t.TIMESTAMP, t.TIMESTAMPTZ):
        return _timestamp(text, to)
    if to == t.BOOLEAN:
        return _TRUTHS.get(text.lower())
    if to.name == "UUID":
        return string(text.lower()) if _UUID.fullmatch(text) else None
    text = text.strip(_BLANK)
    if t.integer(to) and _WHOLE.fullmatch(text):
        number = int(Decimal(text))  # of any length
        return cast_sql(f"{number}BD", to) if t.holds(to, number) else None
    if to.name == "DECIMAL" and _NUMBER.fullmatch(text):
        return _decimal(text, to)
    if t.floating(to) and _FLOAT.fullmatch(text):
        finite = to == t.FLOAT and math.isfinite(float(text))  # rounded once: not as a DOUBLE before
        return f"CAST('{text}' AS FLOAT)" if finite else cast_sql(_double(float(text)), to)
    return None


def _decimal(text: str, to: Type) -> str | None:
    try:
        fixed = Decimal(text).quantize(
            Decimal(1).scaleb(-to.scale), ROUND_HALF_UP, Context(prec=to.width, Emin=-9999, Emax=9999)
        )
    except InvalidOperation:  # more digits than the type has
        return None
    return cast_sql(f"{fixed:f}BD", to)


def _date(text: str) -> str | None:
    if (match := _DATE.fullmatch(text)) is None:
        return None
    try:
        return f"DATE '{date(*map(int, match.groups())).isoformat()}'"
    except ValueError:
        return None


def _timestamp(text: str, to: Type) -> str | None:
    if not _TIMESTAMP.fullmatch(text):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return f"{'TIMESTAMP_NTZ' if to == t.TIMESTAMP else 'TIMESTAMP'} '{found.isoformat(sep=' ')}'"
