"""The scalar functions that DuckDB and Spark answer alike once translated: an allow-list, by sqlglot's name for each.

A rule gets the translated arguments and gives Spark's text with DuckDB's type. What is not here is refused. Every name
here has cases in ``tests/spark/test_dialect.py``, which run in both engines; a test compares the two lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lakemill.core import ducktypes as t
from lakemill.core.algebra import Expr
from lakemill.core.casts import implicit
from lakemill.core.ducktypes import Type
from lakemill.core.value import Refused, Value, cast_sql, fails


@dataclass(frozen=True, slots=True)
class Call:
    """A function of a query, its arguments translated, in the order in which sqlglot keeps them.

    ``over``: the FILTER or the window of an aggregate. It comes with the call: a mark in Spark's text, to be replaced
    later, would be found in the user's own words too.
    """

    node: Expr
    args: Sequence[Value]
    over: str = ""

    def refuse(self, message: str, remedy: str) -> Refused:
        return Refused(self.node, message, remedy)

    def take(self, number: int, type_: Type) -> str:
        """An argument as the function wants it, cast as DuckDB would by itself."""
        value = self.args[number]
        have = value.type
        fits = (
            have in (type_, t.NULL, t.STRING_LITERAL)
            or (t.integer(have) and t.integer(type_))
            or (type_ == t.DOUBLE and t.numeric(have))
            or (type_ in (t.TIMESTAMP, t.TIMESTAMPTZ) and have.name in ("DATE", "TIMESTAMP"))
        )
        if not fits:
            raise self.refuse(f"{self.node.sql('duckdb')} takes {type_}, not {have}", f"cast the argument to {type_}")
        return implicit(value, type_, self.node).sql

    def word(self, number: int, what: str) -> str:
        """An argument that must be a text constant."""
        value = self.args[number].constant if number < len(self.args) else None
        if not isinstance(value, str):
            raise self.refuse(f"{what} must be a constant", f"write {what} as text in quotes")
        return value


Rule = Callable[[Call], Value]


def simple(template: str, result: Type, *types: Type) -> Rule:
    """``{0}``, ``{1}``: the arguments, of these types; those that are left out in a call are left out at the end."""

    def rule(call: Call) -> Value:
        if len(call.args) != len(types):
            raise call.refuse(f"{call.node.sql('duckdb')} with {len(call.args)} arguments is not known", "")
        given = [call.take(number, type_) for number, type_ in enumerate(types)]
        return Value(template.format(*given), result)

    return rule


# ---------------------------------------------------------------- numbers
_INFINITY = "CAST('Infinity' AS DOUBLE)"


def _guarded(function: str, condition: str, message: str) -> Rule:
    return simple(f"CASE WHEN {{0}} {condition} THEN {fails(message)} ELSE {function}({{0}}) END", t.DOUBLE, t.DOUBLE)


def _number(call: Call) -> Value:
    (value,) = call.args
    if value.type == t.NULL or not t.numeric(value.type):
        raise call.refuse(f"{call.node.sql('duckdb')} takes a number, not {value.type}", "cast it to a number")
    return value


def _abs(call: Call) -> Value:
    value = _number(call)
    return Value(f"abs({value.sql})", value.type)


def _sign(call: Call) -> Value:
    value = _number(call)
    x, real = value.sql, f" AND {value.sql} <= {_INFINITY}" if t.floating(value.type) else ""  # NaN is the largest
    found = f"CASE WHEN {x} < 0 THEN -1 WHEN {x} > 0{real} THEN 1 WHEN {x} IS NOT NULL THEN 0 END"
    return Value(f"CAST({found} AS TINYINT)", t.TINYINT)


def _whole(function: str) -> Rule:
    """floor and ceil: Spark's give a BIGINT, at its end for what is larger, where a DOUBLE is whole anyway."""

    def rule(call: Call) -> Value:
        value = _number(call)
        if value.type.name == "DECIMAL":
            to = t.decimal(value.type.width, 0)
            return Value(cast_sql(f"{function}({value.sql})", to), to)
        if value.type.name == "HUGEINT" or t.integer(value.type):
            return implicit(value, t.DOUBLE, call.node)
        x = value.sql
        return Value(
            f"CASE WHEN abs({x}) < 4503599627370496D THEN {cast_sql(f'{function}({x})', value.type)} ELSE {x} END",
            value.type,
        )

    return rule


def _trunc(call: Call) -> Value:
    value = _number(call)
    if t.integer(value.type):
        return value
    if value.type.name == "DECIMAL":
        to = t.decimal(value.type.width, 0)
        return Value(cast_sql(f"CASE WHEN {value.sql} < 0 THEN ceil({value.sql}) ELSE floor({value.sql}) END", to), to)
    x = value.sql
    whole = f"CASE WHEN {x} < 0 THEN ceil({x}) ELSE floor({x}) END"
    return Value(f"CASE WHEN abs({x}) < 4503599627370496D THEN {cast_sql(whole, value.type)} ELSE {x} END", value.type)


def _round(call: Call) -> Value:
    """DuckDB scales a DOUBLE, rounds and scales back; Spark would round its shortest decimal text."""
    value = call.args[0]
    digits = call.args[1].constant if len(call.args) > 1 else 0
    if not t.numeric(value.type) or not isinstance(digits, int) or not -15 <= digits <= 15:
        raise call.refuse(f"{call.node.sql('duckdb')} is not known", "round a number, to a constant number of digits")
    x = value.sql
    if t.integer(value.type):
        return value if digits >= 0 else Value(cast_sql(f"round({x}, {digits})", value.type), value.type)
    if value.type.name == "DECIMAL":
        to = t.decimal(value.type.width, max(0, min(digits, value.type.scale)))
        return value if digits >= value.type.scale else Value(cast_sql(f"round({x}, {digits})", to), to)
    if value.type == t.FLOAT:
        raise call.refuse("round of a FLOAT is not the same in both engines", "cast it to DOUBLE")
    if digits == 0:
        return Value(f"round({x}, 0)", t.DOUBLE)
    unit = f"1E{abs(digits)}D"
    if digits > 0:
        scaled = f"round({x} * {unit}, 0) / {unit}"
        return Value(f"CASE WHEN abs({x} * {unit}) < {_INFINITY} THEN {scaled} ELSE {x} END", t.DOUBLE)
    scaled = f"round({x} / {unit}, 0) * {unit}"
    return Value(f"CASE WHEN abs({x}) < {_INFINITY} THEN {scaled} WHEN {x} IS NOT NULL THEN 0D END", t.DOUBLE)


def _log(call: Call) -> Value:
    base = call.args[0].constant if len(call.args) == 2 else 10
    if base not in (2, 10):
        raise call.refuse("a logarithm of this base is not the same in both engines", "write ln(x) / ln(base)")
    inner = Call(call.node, [call.args[-1]])
    return _guarded(f"log{base}", "<= 0", "cannot take logarithm of zero or a negative number")(inner)


def _same(function: str) -> Rule:
    """Of values that have one type in common: greatest and least skip NULLs in both engines, as coalesce does."""

    def rule(call: Call) -> Value:
        values = unified(call.args, call.node)
        if function != "coalesce" and not t.comparable(values[0].type):
            raise call.refuse(f"{values[0].type} is not ordered alike in both engines", "compare its parts")
        if len(values) == 1:
            return values[0]
        return Value(f"{function}({', '.join(value.sql for value in values)})", values[0].type)

    return rule


def unified(values: Sequence[Value], place: Expr, *, compared: bool = False) -> list[Value]:
    """Values cast to the type that they have in common, or are compared in."""
    found: Type = t.NULL
    for value in values:
        wide = adapted(found, value, compared=compared)
        if wide is None:
            told = " and ".join(dict.fromkeys(str(value.type) for value in values))
            raise Refused(place, f"{told} have no type in common that both engines agree on", "cast one of them")
        found = wide
    found = t.VARCHAR if found == t.STRING_LITERAL else found
    return [implicit(value, found, place) for value in values]


def adapted(known: Type, value: Value, *, compared: bool = False) -> Type | None:
    """The common type of a type and a value: an integer constant takes the type of the other where it fits."""
    if isinstance(value.constant, int) and t.integer(known) and t.holds(known, value.constant):
        return known
    return t.compared(known, value.type) if compared else t.common(known, value.type)


def _nullif(call: Call) -> Value:
    first, other = call.args
    one, two = unified([first, other], call.node, compared=True)
    kept = implicit(first, t.VARCHAR, call.node) if first.type == t.STRING_LITERAL else first
    return Value(f"CASE WHEN {one.sql} = {two.sql} THEN NULL ELSE {kept.sql} END", kept.type)


# ---------------------------------------------------------------- lists and structs
def _length(call: Call) -> Value:
    if call.args[0].type.name == "LIST":
        return Value(f"CAST(size({call.args[0].sql}) AS BIGINT)", t.BIGINT)
    return simple("CAST(char_length({0}) AS BIGINT)", t.BIGINT, t.VARCHAR)(call)


def _array(call: Call) -> Value:
    if not call.args:
        raise call.refuse("an empty list has no type", "leave it out, or write NULL with a cast")
    values = unified(call.args, call.node)
    return Value(f"array({', '.join(value.sql for value in values)})", t.list_of(values[0].type))


def _series(call: Call) -> Value:
    if len(call.args) != 2:
        raise call.refuse("generate_series with a step is not known", "multiply the numbers instead")
    low, high = call.take(0, t.BIGINT), call.take(1, t.BIGINT)
    none = f"CAST(array() AS ARRAY<{t.spark(t.BIGINT)}>)"  # Spark would count down
    return Value(f"CASE WHEN {high} < {low} THEN {none} ELSE sequence({low}, {high}) END", t.list_of(t.BIGINT))


def _contains(call: Call) -> Value:
    held, wanted = call.args
    if held.type.name == "LIST":
        element = held.type.element
        if not t.comparable(element) or adapted(element, wanted) != element:
            raise call.refuse(f"{wanted.type} can't be looked for in {held.type}", f"cast it to {element}")
        one = implicit(wanted, element, call.node).sql
        found = f"coalesce(array_contains({held.sql}, {one}), false)"
        return Value(f"CASE WHEN {held.sql} IS NOT NULL AND {one} IS NOT NULL THEN {found} END", t.BOOLEAN)
    return simple("contains({0}, {1})", t.BOOLEAN, t.VARCHAR, t.VARCHAR)(call)


def struct_field(value: Value, name: str, place: Expr) -> Value:
    for own, type_ in value.type.fields if value.type.name == "STRUCT" else ():
        if own.lower() == name.lower():
            return Value(f"{value.sql}.{t.quote(own)}", type_)
    raise Refused(place, f"{value.type} has no field {name}", "name one of its fields")


def _field(call: Call) -> Value:
    return struct_field(call.args[0], call.word(1, "the field"), call.node)


# ---------------------------------------------------------------- the list
_V, _D, _B = t.VARCHAR, t.DOUBLE, t.BIGINT
# C's powers of 1 are 1, of NaN too, and so are those of -1 by what is endless; Java's are NaN
_POWER = (
    f"CASE WHEN ({{0}} = 1 AND {{1}} IS NOT NULL) OR ({{0}} = -1 AND abs({{1}}) = {_INFINITY}) THEN 1D"
    " ELSE power({0}, {1}) END"
)

NUMBERS: Mapping[str, Rule] = {
    "Abs": _abs,
    "Sign": _sign,
    "Floor": _whole("floor"),
    "Ceil": _whole("ceil"),
    "Trunc": _trunc,
    "Round": _round,
    "Sqrt": _guarded("sqrt", "< 0", "cannot take square root of a negative number"),
    "Ln": _guarded("ln", "<= 0", "cannot take logarithm of zero or a negative number"),
    "Log": _log,
    "Exp": simple("exp({0})", _D, _D),
    "Pow": simple(_POWER, _D, _D, _D),
    "Pi": simple("pi()", _D),
    "IsNan": simple("({0} = CAST('NaN' AS DOUBLE))", t.BOOLEAN, _D),
    "IsInf": simple("(abs({0}) = CAST('Infinity' AS DOUBLE))", t.BOOLEAN, _D),
    "isfinite": simple("(abs({0}) < CAST('Infinity' AS DOUBLE))", t.BOOLEAN, _D),
    "Greatest": _same("greatest"),
    "Least": _same("least"),
    "Coalesce": _same("coalesce"),
    "Nullif": _nullif,
    "Length": _length,
    "ArraySize": _length,
    "Array": _array,
    "GenerateSeries": _series,
    "ArrayContains": _contains,
    "Contains": _contains,
    "StructExtract": _field,
}
