"""Operators: arithmetic, comparison, logic, patterns. Types are mixed as DuckDB mixes them, by casts written out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakemill.core import ducktypes as t
from lakemill.core.casts import implicit
from lakemill.core.ducktypes import Type
from lakemill.core.functions import Call, Rule, adapted, unified
from lakemill.core.texts import folded
from lakemill.core.times import moved
from lakemill.core.value import Value, cast_sql, string

_SAFE_SCALE = 6  # Spark keeps this many digits after the point when a decimal gets too wide, and rounds the rest away
_FEWEST = 9
"""Digits before the point that must be left when an operand is narrowed."""


# ---------------------------------------------------------------- arithmetic
def _numbers(call: Call) -> tuple[Value, Value, Type]:
    one, other = call.args
    wide = adapted(one.type, other)
    if wide is not None and isinstance(one.constant, int) and not isinstance(other.constant, int):
        wide = adapted(other.type, one)
    if wide is None or not (t.numeric(wide) or wide == t.NULL):
        raise call.refuse(f"{call.node.sql('duckdb')}: {one.type} and {other.type}", "cast both to one type of number")
    if wide.name in t.UNSIGNED or any(value.type.name in t.UNSIGNED for value in call.args):
        raise call.refuse(f"{call.node.sql('duckdb')}: arithmetic over unsigned integers", "cast them to BIGINT")
    return one, other, wide


def _added(sign: str) -> Rule:
    def rule(call: Call) -> Value:
        one, other = call.args
        if t.INTERVAL in (one.type, other.type):
            return _shifted(call, sign)
        if one.type == t.DATE or other.type == t.DATE:
            return _days(call, sign)
        one, other, wide = _numbers(call)
        if wide.name == "DECIMAL":
            return _decimals(call, sign, one, other)
        return _plain(call, sign, one, other, wide)

    return rule


def _shifted(call: Call, sign: str) -> Value:
    one, other = call.args
    if sign == "+" and one.type == t.INTERVAL:
        one, other = other, one
    if other.type != t.INTERVAL or one.type.name not in ("DATE", "TIMESTAMP", "TIMESTAMPTZ"):
        raise call.refuse(f"{call.node.sql('duckdb')}: {one.type} and {other.type}", "add an interval to a timestamp")
    return moved(one, other, sign)


def _days(call: Call, sign: str) -> Value:
    one, other = call.args
    if sign == "+" and other.type == t.DATE:
        one, other = other, one
    if sign == "-" and one.type == other.type == t.DATE:
        return Value(f"CAST(datediff({one.sql}, {other.sql}) AS BIGINT)", t.BIGINT)
    if one.type == t.DATE and t.signed(other.type):
        function = "date_add" if sign == "+" else "date_sub"
        return Value(f"{function}({one.sql}, {cast_sql(other.sql, t.INTEGER)})", t.DATE)
    raise call.refuse(f"{call.node.sql('duckdb')}: {one.type} and {other.type}", "use date_diff, or add an interval")


def _plain(call: Call, sign: str, one: Value, other: Value, wide: Type) -> Value:
    left, right = (implicit(value, wide, call.node).sql for value in (one, other))
    return Value(cast_sql(f"({left} {sign} {right})", wide) if wide == t.HUGEINT else f"({left} {sign} {right})", wide)


def _decimals(call: Call, sign: str, one: Value, other: Value) -> Value:
    """Spark's result is cast to DuckDB's type, which stops where DuckDB would.

    A result too wide for 38 digits loses digits after the point in Spark: the operands are narrowed before.
    """
    left, right = (t.as_decimal(value.type if t.numeric(value.type) else t.INTEGER) for value in (one, other))
    if sign == "*":
        result, scale = t.product_type(left, right), left.scale + right.scale
        width = left.width + right.width + 1
    else:
        result, scale = t.sum_type(left, right), max(left.scale, right.scale)
        width = max(left.width - left.scale, right.width - right.scale) + scale + 1
    if result is None:
        raise call.refuse("the product has more than 38 digits after the point", "cast the operands to fewer")
    if width > t.MOST_DIGITS and scale > _SAFE_SCALE:
        if sign == "*":
            excess = width - t.MOST_DIGITS
            if left.width >= right.width:
                left = t.decimal(left.width - excess, left.scale)
            else:
                right = t.decimal(right.width - excess, right.scale)
        else:
            digits = t.MOST_DIGITS - 1 - scale
            left, right = (t.decimal(min(each.width, digits + each.scale), each.scale) for each in (left, right))
        if min(left.width - left.scale - _FEWEST, right.width - right.scale) < 0:
            raise call.refuse(f"{call.node.sql('duckdb')} is too wide for exact decimals", "cast to narrower decimals")
    sides = [implicit(value, type_, call.node).sql for value, type_ in ((one, left), (other, right))]
    return Value(cast_sql(f"({sides[0]} {sign} {sides[1]})", result), result)


def _times(call: Call) -> Value:
    one, other, wide = _numbers(call)
    return _decimals(call, "*", one, other) if wide.name == "DECIMAL" else _plain(call, "*", one, other, wide)


def _doubles(call: Call) -> tuple[str, str]:
    one, other, _ = _numbers(call)
    return implicit(one, t.DOUBLE, call.node).sql, implicit(other, t.DOUBLE, call.node).sql


def _divided(call: Call) -> Value:
    """DuckDB divides as IEEE 754 says; Spark stops at a zero, which is made infinite by hand."""
    if any(value.type == t.FLOAT for value in call.args):
        raise call.refuse("division of a FLOAT", "cast it to DOUBLE")
    one, other = _doubles(call)
    divisor = call.args[1].constant
    if isinstance(divisor, int) and divisor != 0:
        return Value(f"({one} / {other})", t.DOUBLE)
    endless = "CAST('Infinity' AS DOUBLE)"
    if t.floating(call.args[1].type):  # one over a negative zero is negative
        endless = f"CAST(CASE WHEN CAST({other} AS STRING) = '-0.0' THEN '-Infinity' ELSE 'Infinity' END AS DOUBLE)"
    return Value(f"coalesce(try_divide({one}, {other}), {one} * {endless} + {other})", t.DOUBLE)


def _whole_divided(call: Call) -> Value:
    """``//``: toward zero for integers, an ordinary division for others; by zero it is NULL."""
    one, other, wide = _numbers(call)
    if t.integer(wide) and wide != t.HUGEINT:
        left, right = (implicit(value, wide, call.node).sql for value in (one, other))
        return Value(cast_sql(f"({left} div nullif({right}, 0))", wide), wide)
    if t.integer(wide) or t.FLOAT in (one.type, other.type):
        raise call.refuse(f"// over {wide}", "cast both to BIGINT")
    left, right = _doubles(call)
    return Value(f"try_divide({left}, {right})", t.DOUBLE)


def _rest(call: Call) -> Value:
    one, other, wide = _numbers(call)
    if wide.name == "DECIMAL" and t.HUGEINT in (one.type, other.type):
        raise call.refuse("% over a HUGEINT and a decimal", "cast the HUGEINT to BIGINT")
    left, right = (implicit(value, wide, call.node).sql for value in (one, other))
    if t.floating(wide):
        nan = f"({left} * {right} * CAST('NaN' AS DOUBLE))"
        return Value(cast_sql(f"coalesce(try_mod({left}, {right}), {nan})", wide), wide)
    return Value(cast_sql(f"({left} % nullif({right}, 0))", wide), wide)


def _negated(call: Call) -> Value:
    (value,) = call.args
    if isinstance(value.constant, int):
        return Value(f"(-{value.sql})", value.type, -value.constant)
    if not t.numeric(value.type) or value.type.name in t.UNSIGNED:
        raise call.refuse(f"- of {value.type}", "cast it to a signed number")
    return Value(f"(-{value.sql})", value.type)


def _bits(sign: str) -> Rule:
    def rule(call: Call) -> Value:
        one, other, wide = _numbers(call)
        if not t.signed(wide) or wide == t.HUGEINT:
            raise call.refuse(f"bits of {wide}", "cast both to BIGINT")
        return _plain(call, sign, one, other, wide)

    return rule


# ---------------------------------------------------------------- comparison
def compared(sign: str) -> Rule:
    def rule(call: Call) -> Value:
        one, other = call.args
        for date, time in ((one, other), (other, one)):
            if date.type == t.DATE and time.type == t.TIMESTAMP and time.date is not None:
                sides = [value.sql if value is date else str(value.date) for value in (one, other)]
                return Value(f"({sides[0]} {sign} {sides[1]})", t.BOOLEAN)
        left, right = unified(call.args, call.node, compared=True)
        if sign != "<=>" or not t.groupable(left.type):
            check_comparable(call, left.type)
        return Value(f"({left.sql} {sign} {right.sql})", t.BOOLEAN)

    return rule


def check_comparable(call: Call, type_: Type) -> None:
    if not t.comparable(type_):
        raise call.refuse(f"{type_} is not compared alike in both engines", "compare its parts")


def _distinct(call: Call) -> Value:
    same = compared("<=>")(call)
    return Value(f"(NOT {same.sql})", t.BOOLEAN)


def _between(call: Call) -> Value:
    """DuckDB compares all three in one type: beside a float, whole numbers are rounded to floats on both sides."""
    value, low, high = call.args
    if any(t.floating(each.type) for each in call.args):
        value, low, high = unified(call.args, call.node, compared=True)
    above = compared(">=")(Call(call.node, [value, low]))
    below = compared("<=")(Call(call.node, [value, high]))
    return Value(f"({above.sql} AND {below.sql})", t.BOOLEAN)


def _in(call: Call) -> Value:
    values = unified(call.args, call.node, compared=True)
    check_comparable(call, values[0].type)
    return Value(f"({values[0].sql} IN ({', '.join(value.sql for value in values[1:])}))", t.BOOLEAN)


# ---------------------------------------------------------------- logic
def truth(value: Value, call: Call) -> str:
    if value.type == t.NULL:
        return "CAST(NULL AS BOOLEAN)"
    if value.type != t.BOOLEAN:
        raise call.refuse(f"{value.type} stands for a condition", "compare it with something")
    return value.sql


def _joined(word: str) -> Rule:
    return lambda call: Value("(" + f" {word} ".join(truth(value, call) for value in call.args) + ")", t.BOOLEAN)


def _not(call: Call) -> Value:
    return Value(f"(NOT {truth(call.args[0], call)})", t.BOOLEAN)


def _is(call: Call) -> Value:
    value, wanted = call.args
    if wanted.type == t.NULL:
        return Value(f"({value.sql} IS NULL)", t.BOOLEAN)
    return Value(f"({truth(value, call)} IS {wanted.sql})", t.BOOLEAN)


# ---------------------------------------------------------------- LIKE
def _like(change: Callable[[str], str]) -> Rule:
    """DuckDB has no escape sign unless one is named, Spark has the backslash."""

    def rule(call: Call) -> Value:
        text, pattern = change(call.take(0, t.VARCHAR)), change(call.take(1, t.VARCHAR))
        given = call.args[1].constant
        escape = call.args[2].constant if len(call.args) > 2 else None
        if escape is not None:
            if not isinstance(given, str) or not isinstance(escape, str) or len(escape) != 1:
                raise call.refuse("ESCAPE with a pattern that is no constant", "write the pattern in quotes")
            sign = f" ESCAPE {string(escape)}"
        else:
            plain = isinstance(given, str) and "\\" not in given
            sign = "" if plain else " ESCAPE '\\u0001'"
        word = "NOT LIKE" if call.node.args.get("negate") else "LIKE"
        return Value(f"({text} {word} {pattern}{sign})", t.BOOLEAN)

    return rule


OPERATORS: Mapping[str, Rule] = {
    "Add": _added("+"),
    "Sub": _added("-"),
    "DateAdd": _added("+"),
    "Mul": _times,
    "Div": _divided,
    "IntDiv": _whole_divided,
    "Mod": _rest,
    "Neg": _negated,
    "BitwiseAnd": _bits("&"),
    "BitwiseOr": _bits("|"),
    "BitwiseXor": _bits("^"),
    "EQ": compared("="),
    "NEQ": compared("<>"),
    "LT": compared("<"),
    "LTE": compared("<="),
    "GT": compared(">"),
    "GTE": compared(">="),
    "NullSafeEQ": compared("<=>"),
    "NullSafeNEQ": _distinct,
    "Between": _between,
    "In": _in,
    "And": _joined("AND"),
    "Or": _joined("OR"),
    "Not": _not,
    "Is": _is,
    "Like": _like(lambda text: text),
    "ILike": _like(lambda text: folded(text, "lower")),
}
