"""Functions of dates and timestamps, and intervals beside them, all in UTC.

A date with an interval of whole days or months is a TIMESTAMP in DuckDB; the DATE that it also is, is kept beside it,
so that comparing it with a DATE stays a comparison of dates, which files can be skipped by.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlglot import exp

from lakemill.core import ducktypes as t
from lakemill.core.casts import explicit
from lakemill.core.functions import Call, Rule, simple
from lakemill.core.value import Value, cast_sql, string

_TIMES = ("DATE", "TIMESTAMP", "TIMESTAMPTZ")
_MICROS = "unix_micros(CAST({0} AS TIMESTAMP))"
_SECOND = "CAST(date_part('SECOND', {0}) * 1000000 AS BIGINT)"
# DuckDB's part → Spark's text; the answer is a BIGINT, epoch a DOUBLE
_PARTS = {
    "year": "year({0})",
    "quarter": "quarter({0})",
    "month": "month({0})",
    "week": "weekofyear({0})",
    "day": "day({0})",
    "dayofweek": "(dayofweek({0}) - 1)",
    "isodow": "(weekday({0}) + 1)",
    "dayofyear": "dayofyear({0})",
    "isoyear": "date_part('YEAROFWEEK', {0})",
    "hour": "hour({0})",
    "minute": "minute({0})",
    "second": "second({0})",
    "millisecond": f"({_SECOND} div 1000)",
    "microsecond": _SECOND,
}
_ALIASES = {
    "dow": "dayofweek",
    "weekday": "dayofweek",
    "doy": "dayofyear",
    "weekofyear": "week",
    "dayofmonth": "day",
    "milliseconds": "millisecond",
    "microseconds": "microsecond",
    "dayofweekiso": "isodow",
    "yearofweekiso": "isoyear",
    **{f"{unit}s": unit for unit in ("year", "quarter", "month", "week", "day", "hour", "minute", "second")},
}
_CLOCK = ("hour", "minute", "second", "millisecond", "microsecond")


def _time(call: Call, number: int) -> Value:
    value = call.args[number]
    if value.type.name not in _TIMES:
        raise call.refuse(f"{call.node.sql('duckdb')} takes a date or timestamp, not {value.type}", "cast it")
    return value


def _part_of(call: Call, value: Value, name: str) -> Value:
    name = _ALIASES.get(name, name)
    if name == "epoch":
        return Value(f"(CAST({_MICROS.format(value.sql)} AS DOUBLE) / 1000000D)", t.DOUBLE)
    if name not in _PARTS:
        raise call.refuse(f"the part {name!r} is not known", f"use one of {', '.join(_PARTS)}, epoch")
    x = cast_sql(value.sql, t.TIMESTAMP) if value.type == t.DATE and name in _CLOCK else value.sql
    return Value(cast_sql(_PARTS[name].format(x), t.BIGINT), t.BIGINT)


def _part(name: str) -> Rule:
    return lambda call: _part_of(call, _time(call, 0), name)


def _extract(call: Call) -> Value:
    return _part_of(call, _time(call, 0), call.node.this.name.lower())


def _date_part(call: Call) -> Value:
    return _part_of(call, _time(call, 1), call.word(0, "the part").lower())


# ---------------------------------------------------------------- truncating, counting
_TRUNCATED = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")


def _unit(call: Call) -> str:
    unit = call.node.args.get("unit")
    name = str(getattr(unit, "name", "") or "").lower()
    return _ALIASES.get(name, name)


def _trunc(call: Call) -> Value:
    value, unit = _time(call, 0), _unit(call)
    if unit not in _TRUNCATED:
        raise call.refuse(f"date_trunc to {unit!r} is not known", f"use one of {', '.join(_TRUNCATED)}")
    result = t.TIMESTAMPTZ if value.type == t.TIMESTAMPTZ else t.TIMESTAMP
    whole = f"date_trunc('{unit.upper()}', {cast_sql(value.sql, t.TIMESTAMPTZ)})"
    date = None
    if value.type == t.DATE and unit not in _CLOCK:
        date = value.sql if unit == "day" else f"trunc({value.sql}, '{unit.upper()}')"
    return Value(whole if result == t.TIMESTAMPTZ else cast_sql(whole, result), result, date=date)


def _diff(call: Call) -> Value:
    """How many boundaries of the unit lie between: DuckDB's date_diff, not the number of whole units."""
    after, before, unit = _time(call, 0), _time(call, 1), _unit(call)
    ends = [explicit(value, t.TIMESTAMP, call.node).sql if unit in _CLOCK else value.sql for value in (after, before)]
    days = "datediff(CAST({0} AS DATE), CAST({1} AS DATE))"
    forms = {
        "day": days,
        "week": f"({days} div 7)",
        "month": "((year({0}) - year({1})) * 12 + month({0}) - month({1}))",
        "quarter": "((year({0}) - year({1})) * 4 + quarter({0}) - quarter({1}))",
        "year": "(year({0}) - year({1}))",
    }
    micros = {"hour": 3600000000, "minute": 60000000, "second": 1000000, "millisecond": 1000, "microsecond": 1}
    if unit in micros:
        each = [f"floor({_MICROS.format(end)} / {micros[unit]}BD)" for end in ends]
        return Value(cast_sql(f"({each[0]} - {each[1]})", t.BIGINT), t.BIGINT)
    if unit not in forms:
        raise call.refuse(f"date_diff by {unit!r} is not known", f"use one of {', '.join([*forms, *micros])}")
    return Value(cast_sql(forms[unit].format(*ends), t.BIGINT), t.BIGINT)


_FORMATS = {
    "%Y": "yyyy",
    "%m": "MM",
    "%d": "dd",
    "%H": "HH",
    "%M": "mm",
    "%S": "ss",
    "%f": "SSSSSS",
    "%y": "yy",
    "%j": "DDD",
    "%B": "MMMM",
    "%b": "MMM",
    "%A": "EEEE",
    "%a": "EEE",
    "%p": "a",
    "%I": "hh",
}


def _strftime(call: Call) -> Value:
    value, given = _time(call, 0), call.word(1, "the format")
    if value.type == t.TIMESTAMPTZ:
        raise call.refuse("strftime of a TIMESTAMPTZ", "cast it to TIMESTAMP")
    out = []
    for piece in re.findall(r"%.|[^%]+|%$", given, re.DOTALL):
        if piece.startswith("%"):
            if piece not in _FORMATS:
                raise call.refuse(f"{piece} in a format is not known", f"use {' '.join(_FORMATS)}")
            out.append(_FORMATS[piece])
        else:
            out.append("'" + piece.replace("'", "''") + "'")
    return Value(f"date_format({value.sql}, {string(''.join(out))})", t.VARCHAR)


def _epoch_ms(call: Call) -> Value:
    scale = call.node.args.get("scale")
    if scale is None or scale.name != "3" or call.args[0].type.name not in _TIMES:
        raise call.refuse(f"{call.node.sql('duckdb')} is not translated", "add an interval to a TIMESTAMP")
    return Value(f"({_MICROS.format(call.args[0].sql)} div 1000)", t.BIGINT)


def _last_day(call: Call) -> Value:
    return Value(f"last_day({explicit(_time(call, 0), t.DATE, call.node).sql})", t.DATE)


def _named(pattern: str) -> Rule:
    return lambda call: Value(f"date_format({_time(call, 0).sql}, '{pattern}')", t.VARCHAR)


def _at_zone(call: Call) -> Value:
    """Only UTC, the zone of both sessions."""
    if call.word(1, "the zone").upper() != "UTC" or call.args[0].type.name not in ("TIMESTAMP", "TIMESTAMPTZ"):
        raise call.refuse("a time zone other than UTC is not translated", "convert at the reader; UTC is welcome")
    to = t.TIMESTAMP if call.args[0].type == t.TIMESTAMPTZ else t.TIMESTAMPTZ
    return explicit(call.args[0], to, call.node)


def _date(call: Call) -> Value:
    if len(call.args) != 1:
        raise call.refuse("date() takes one argument", "write CAST(x AS DATE)")
    return explicit(call.args[0], t.DATE, call.node)


# ---------------------------------------------------------------- intervals
_STEPS = {
    "year": ("make_ym_interval({0}, 0)", "add_months({1}, {0} * 12)"),
    "quarter": ("make_ym_interval(0, {0} * 3)", "add_months({1}, {0} * 3)"),
    "month": ("make_ym_interval(0, {0})", "add_months({1}, {0})"),
    "week": ("make_dt_interval({0} * 7)", "date_add({1}, {0} * 7)"),
    "day": ("make_dt_interval({0})", "date_add({1}, {0})"),
    "hour": ("make_dt_interval(0, {0})", ""),
    "minute": ("make_dt_interval(0, 0, {0})", ""),
    "second": ("make_dt_interval(0, 0, 0, {0})", ""),
}


def interval(call: Call, unit: str) -> Value:
    """A number of units; the text for a date beside it waits in ``date``, with ``{1}`` for the date."""
    unit = _ALIASES.get(unit, unit)
    value = call.args[0]
    if isinstance(value.constant, str) and re.fullmatch(r"[+-]?\d+", value.constant.strip()):
        count = str(int(value.constant))
    elif t.signed(value.type):
        count = cast_sql(value.sql, t.INTEGER)
    else:
        raise call.refuse(f"{call.node.sql('duckdb')} is not known", "write a whole number of one unit")
    if unit not in _STEPS:
        raise call.refuse(f"an interval in {unit!r} is not known", f"use one of {', '.join(_STEPS)}")
    step, date = _STEPS[unit]
    return Value(step.format(count), t.INTERVAL, date=date.replace("{0}", count) or None)


def moved(value: Value, by: Value, sign: str) -> Value:
    """A date or timestamp and an interval."""
    result = t.TIMESTAMPTZ if value.type == t.TIMESTAMPTZ else t.TIMESTAMP
    start = value.sql if value.type == result else cast_sql(value.sql, result)
    own = value.sql if value.type == t.DATE else value.date
    date = None
    if own is not None and by.date is not None:
        date = by.date.replace("{1}", own) if sign == "+" else by.date.replace("{1}, ", f"{own}, -1 * ")
    return Value(f"({start} {sign} {by.sql})", result, date=date)


def _interval(call: Call) -> Value:
    unit = call.node.args.get("unit")
    if not isinstance(unit, exp.Var):
        raise call.refuse(f"{call.node.sql('duckdb')} is not known", "write INTERVAL 3 DAY, a number of one unit")
    return interval(call, unit.name.lower())


def _to(unit: str) -> Rule:
    return lambda call: interval(call, unit)


TIMES: Mapping[str, Rule] = {
    "Extract": _extract,
    "date_part": _date_part,
    **{
        name: _part(unit)
        for name, unit in {
            "Year": "year",
            "Quarter": "quarter",
            "Month": "month",
            "Week": "week",
            "WeekOfYear": "week",
            "Day": "day",
            "DayOfMonth": "day",
            "DayOfWeek": "dayofweek",
            "DayOfWeekIso": "isodow",
            "DayOfYear": "dayofyear",
            "Hour": "hour",
            "Minute": "minute",
            "Second": "second",
            "TimeToUnix": "epoch",
        }.items()
    },
    "epoch_us": simple(_MICROS, t.BIGINT, t.TIMESTAMPTZ),
    "UnixToTime": _epoch_ms,
    "TimestampTrunc": _trunc,
    "DateTrunc": _trunc,
    "DateDiff": _diff,
    "TimeToStr": _strftime,
    "LastDay": _last_day,
    "Dayname": _named("EEEE"),
    "Monthname": _named("MMMM"),
    "DateFromParts": simple("make_date({0}, {1}, {2})", t.DATE, t.INTEGER, t.INTEGER, t.INTEGER),
    "AtTimeZone": _at_zone,
    "Date": _date,
    "Interval": _interval,
    "ToDays": _to("day"),
    **{f"to_{unit}s": _to(unit) for unit in ("year", "month", "week", "hour", "minute", "second")},
}
