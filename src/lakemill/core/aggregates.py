"""Aggregates that both engines answer alike.

``call.over`` is what each call of an aggregate ends with: its FILTER or its window. What depends on the order in which
rows arrive (first, any_value, a list without ORDER BY, ties of arg_max or mode) has no answer that two engines share,
and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lakemill.core import ducktypes as t
from lakemill.core.casts import implicit
from lakemill.core.functions import Call, Rule
from lakemill.core.value import Value, cast_sql, fails, string


def _argument(call: Call) -> Value:
    if len(call.args) != 1:
        raise call.refuse(f"{call.node.sql('duckdb')} with {len(call.args)} arguments is not known", "give it one")
    return call.args[0]


def _distinct(call: Call) -> str:
    return "DISTINCT " if call.node.this is not None and type(call.node.this).__name__ == "Distinct" else ""


def _count(call: Call) -> Value:
    if not call.args:
        return Value(f"count(*){call.over}", t.BIGINT)
    if len(call.args) > 1:
        raise call.refuse("count takes one argument", "write count(DISTINCT (a, b))")
    return Value(f"count({_distinct(call)}{call.args[0].sql}){call.over}", t.BIGINT)


def _sum(call: Call) -> Value:
    value, distinct = _argument(call), _distinct(call)
    if t.floating(value.type):
        return Value(f"sum({distinct}{cast_sql(value.sql, t.DOUBLE)}){call.over}", t.DOUBLE)
    if value.type.name == "DECIMAL":
        to = t.decimal(t.MOST_DIGITS, value.type.scale)
        return Value(cast_sql(f"sum({distinct}{value.sql}){call.over}", to), to)
    return Value(cast_sql(whole_sum(call, value, distinct), t.HUGEINT), t.HUGEINT)


def whole_sum(call: Call, value: Value, distinct: str) -> str:
    """The exact sum of integers: of small ones as BIGINT, which is quick."""
    if value.type == t.BOOLEAN:
        value = Value(cast_sql(value.sql, t.INTEGER), t.INTEGER)
    if value.type == t.NULL or not t.integer(value.type):
        raise call.refuse(f"sum of {value.type}", "sum numbers")
    width = {"BIGINT": 20, "UINTEGER": 20, "UBIGINT": 20, "HUGEINT": t.MOST_DIGITS}.get(value.type.name)
    return f"sum({distinct}{cast_sql(value.sql, t.decimal(width, 0)) if width else value.sql}){call.over}"


def _avg(call: Call) -> Value:
    """DuckDB's is a DOUBLE of an exact sum, Spark's a rounded decimal or a sum of DOUBLEs.

    Of decimals DuckDB divides the digits, without their point, by the count and ten to the scale: rounded once.
    """
    value, distinct = _argument(call), _distinct(call)
    if t.floating(value.type):
        return Value(f"avg({distinct}{cast_sql(value.sql, t.DOUBLE)}){call.over}", t.DOUBLE)
    count = f"count({distinct}{value.sql}){call.over}"
    if value.type.name == "DECIMAL" and value.type.scale:
        digits = f"replace(CAST(sum({distinct}{value.sql}){call.over} AS STRING), '.', '')"
        return Value(f"try_divide(CAST({digits} AS DOUBLE), {count} * 1e{value.type.scale}D)", t.DOUBLE)
    total = (
        f"sum({distinct}{value.sql}){call.over}" if value.type.name == "DECIMAL" else whole_sum(call, value, distinct)
    )
    return Value(f"try_divide({cast_sql(total, t.DOUBLE)}, {count})", t.DOUBLE)


def _extreme(function: str) -> Rule:
    def rule(call: Call) -> Value:
        value = _argument(call)
        if not t.comparable(value.type) or value.type == t.NULL:
            raise call.refuse(f"{function} of {value.type}", "take it of a part")
        value = implicit(value, t.VARCHAR, call.node) if value.type == t.STRING_LITERAL else value
        return Value(f"{function}({value.sql}){call.over}", value.type)

    return rule


def _truth(function: str) -> Rule:
    def rule(call: Call) -> Value:
        value = _argument(call)
        if value.type != t.BOOLEAN:
            raise call.refuse(f"{function} of {value.type}", "give it a condition")
        return Value(f"{function}({value.sql}){call.over}", t.BOOLEAN)

    return rule


def _count_if(call: Call) -> Value:
    value = _argument(call)
    if value.type != t.BOOLEAN:
        raise call.refuse(f"count_if of {value.type}", "give it a condition")
    counted = f"sum(CAST({value.sql} AS INT)){call.over}"  # DuckDB's is a sum: NULL where nothing was true or false
    return Value(cast_sql(counted, t.HUGEINT), t.HUGEINT)


def _spread(function: str) -> Rule:
    def rule(call: Call) -> Value:
        value = _argument(call)
        if not t.numeric(value.type):
            raise call.refuse(f"{function} of {value.type}", "give it numbers")
        inner = cast_sql(value.sql, t.DOUBLE)
        if t.floating(value.type):  # where Spark puts its parts together, a square that overflows becomes NaN
            huge = f"abs({inner}) > 1e150D AND NOT isnan({inner})"
            inner = f"CASE WHEN {huge} THEN {fails(f'{function} of a number beyond 1e150')} ELSE {inner} END"
        return Value(f"{function}({inner}){call.over}", t.DOUBLE)

    return rule


def _bits(function: str) -> Rule:
    def rule(call: Call) -> Value:
        value = _argument(call)
        if not t.signed(value.type) or value.type == t.HUGEINT:
            raise call.refuse(f"{function} of {value.type}", "cast it to BIGINT")
        return Value(f"{function}({value.sql}){call.over}", value.type)

    return rule


# ---------------------------------------------------------------- places in an order
def _fraction(call: Call) -> float:
    given = call.args[1].constant if len(call.args) > 1 else 0.5
    if len(call.args) > 2 or not isinstance(given, int | float) or not 0 <= given <= 1:
        raise call.refuse(f"{call.node.sql('duckdb')} is not known", "give it one constant from 0 to 1")
    return float(given)


def _between(call: Call) -> Value:
    """median and quantile_cont: what lies between two neighbours in the order."""
    value, fraction = call.args[0], _fraction(call)
    if not (t.signed(value.type) or t.floating(value.type)):
        raise call.refuse(f"{call.node.sql('duckdb')} of {value.type}", "cast it to DOUBLE")
    ordered = f"array_sort(collect_list({cast_sql(value.sql, t.DOUBLE)}){call.over})"
    place = f"((size({ordered}) - 1) * {fraction!r}D)"
    low, high = (f"try_element_at({ordered}, CAST({end}({place}) AS INT) + 1)" for end in ("floor", "ceil"))
    part = f"({place} - floor({place}))"
    mixed = f"CASE WHEN {low} = {high} THEN {low} ELSE {low} * (1 - {part}) + {high} * {part} END"
    return Value(f"CASE WHEN size({ordered}) > 0 THEN {mixed} END", t.DOUBLE)


def _among(call: Call) -> Value:
    """quantile_disc: a value that is there."""
    value, fraction = call.args[0], _fraction(call)
    if not t.comparable(value.type) or value.type in (t.NULL, t.STRING_LITERAL):
        raise call.refuse(f"{call.node.sql('duckdb')} of {value.type}", "take it of a part")
    ordered = f"array_sort(collect_list({value.sql}){call.over})"
    place = f"CAST(size({ordered}) - floor(size({ordered}) - {fraction!r}D * size({ordered})) AS INT)"
    found = f"element_at({ordered}, greatest(1, {place}))"
    return Value(f"CASE WHEN size({ordered}) > 0 THEN {found} END", value.type)


@dataclass(frozen=True, slots=True)
class Key:
    sql: str
    descending: bool
    nulls_first: bool


def _sorted(call: Call, keys: Sequence[Key]) -> str:
    """The values of a group in the order of their keys, NULLs included: Spark's own lists leave those out."""
    fields = [*(f"'k{number}', {key.sql}" for number, key in enumerate(keys)), f"'v', {call.args[0].sql}"]
    rows = f"collect_list(named_struct({', '.join(fields)})){call.over}"
    order = "0"
    for number, key in reversed(list(enumerate(keys))):
        one, other = f"l.k{number}", f"r.k{number}"
        null, less = (-1 if key.nulls_first else 1), (1 if key.descending else -1)
        differ = (
            f"CASE WHEN {one} IS NULL THEN {null} WHEN {other} IS NULL THEN {-null}"
            f" WHEN {one} < {other} THEN {less} ELSE {-less} END"
        )
        order = f"CASE WHEN {one} <=> {other} THEN {order} ELSE {differ} END"
    return f"transform(array_sort({rows}, (l, r) -> {order}), e -> e.v)"


def _ordered(call: Call, keys: Sequence[Key], distinct: bool) -> str:
    value = call.args[0]
    if value.type in (t.NULL, t.STRING_LITERAL):
        raise call.refuse(f"{call.node.sql('duckdb')}: a list of a constant", "give it a column")
    if distinct and [key.sql for key in keys] != [value.sql]:
        raise call.refuse("DISTINCT with another order than its own", "order by the value itself")
    return f"array_distinct({_sorted(call, keys)})" if distinct else _sorted(call, keys)


def _list(call: Call, keys: Sequence[Key], distinct: bool) -> Value:
    found = _ordered(call, keys, distinct)
    return Value(f"CASE WHEN count(*){call.over} > 0 THEN {found} END", t.list_of(call.args[0].type))


def _joined(call: Call, keys: Sequence[Key], distinct: bool) -> Value:
    separator = call.word(1, "the separator") if len(call.args) > 1 else ","
    if call.args[0].type != t.VARCHAR:
        raise call.refuse(f"string_agg of {call.args[0].type}", "cast it to VARCHAR")
    found = f"array_join({_ordered(call, keys, distinct)}, {string(separator)})"  # array_join leaves NULLs out too
    return Value(f"CASE WHEN count({call.args[0].sql}){call.over} > 0 THEN {found} END", t.VARCHAR)


LISTS: Mapping[str, Callable[[Call, Sequence[Key], bool], Value]] = {"ArrayAgg": _list, "GroupConcat": _joined}

AGGREGATES: Mapping[str, Rule] = {
    "Count": _count,
    "Sum": _sum,
    "Avg": _avg,
    "mean": _avg,
    "Min": _extreme("min"),
    "Max": _extreme("max"),
    "LogicalAnd": _truth("bool_and"),
    "LogicalOr": _truth("bool_or"),
    "CountIf": _count_if,
    "Stddev": _spread("stddev_samp"),
    "StddevSamp": _spread("stddev_samp"),
    "StddevPop": _spread("stddev_pop"),
    "Variance": _spread("var_samp"),
    "VariancePop": _spread("var_pop"),
    "Median": _between,
    "PercentileCont": _between,
    "PercentileDisc": _among,
    "Quantile": _among,
    "BitwiseAndAgg": _bits("bit_and"),
    "BitwiseOrAgg": _bits("bit_or"),
    "BitwiseXorAgg": _bits("bit_xor"),
}
