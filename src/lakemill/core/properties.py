"""The properties of a dynamic table: ``KEY = value``, which keys there are, and what their values can be.

One line a property: how its value is read, how it is printed, whether ALTER may change it. Words of other systems are
answered with ours. Used by ``core/ddl`` for CREATE, SET and UNSET; it knows nothing of statements.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, TypeVar

from lakemill.core.definition import PRIORITIES, Definition, Dialect, Initialize, RefreshMode, TargetLag, parse_lag
from lakemill.core.tokens import Kind, Reader
from lakemill.errors import BadStatement

E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, slots=True)
class Value:
    """What stands after ``=``: its text without quotes, and what it was."""

    text: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Property:
    field: str
    read: Callable[[Value], Any]
    """Raises ValueError with the reason."""
    example: str
    show: Callable[[Any], str] = lambda value: str(value)
    alter: bool = True
    unset: bool = True


# ---------------------------------------------------------------- values
def text(value: str) -> str:
    """A string as SQL takes it."""
    return "'" + value.replace("'", "''") + "'"


def _choice(kind: type[E]) -> Callable[[Value], E]:
    def read(value: Value) -> E:
        for member in kind:
            if value.kind in (Kind.WORD, Kind.TEXT) and value.text.strip().upper() == str(member.value).upper():
                return member
        raise ValueError(f"{_shown(value)} is none of {', '.join(str(member.value) for member in kind)}")

    return read


def _switch(on: str, off: str) -> Callable[[Value], bool]:
    def read(value: Value) -> bool:
        word = value.text.strip().upper()
        if value.kind not in (Kind.WORD, Kind.TEXT) or word not in (on, off):
            raise ValueError(f"{_shown(value)} is neither {on} nor {off}")
        return word == on

    return read


def _lag(value: Value) -> TargetLag:
    if value.kind is Kind.NUMBER:
        raise ValueError(f"{value.text} has no unit")
    if value.kind is Kind.WORD and value.text.upper() != "DOWNSTREAM":
        raise ValueError(f"'{value.text}' is neither DOWNSTREAM nor a time in quotes")
    return parse_lag(value.text)


def _number(value: Value) -> float:
    try:
        return float(value.text) if value.kind in (Kind.NUMBER, Kind.TEXT) else float("")
    except ValueError:
        raise ValueError(f"{_shown(value)} is not a number") from None


def _share(value: Value) -> float:
    number = _number(value)
    if not 0 <= number <= 1:
        raise ValueError(f"{value.text} is not between 0 and 1")
    return number


def _priority(value: Value) -> int:
    number = _number(value)
    if number not in PRIORITIES:
        raise ValueError(f"{value.text} is not a whole number between {PRIORITIES[0]} and {PRIORITIES[-1]}")
    return int(number)


def _string(value: Value) -> str:
    if value.kind is not Kind.TEXT:
        raise ValueError(f"{_shown(value)} is not a string")
    return value.text


def _profile(value: Value) -> str:
    if value.kind not in (Kind.WORD, Kind.TEXT) or not value.text.strip():
        raise ValueError(f"{_shown(value)} is not a profile's name")
    return value.text.strip()


def _always_on(value: Value) -> None:
    if not _switch("TRUE", "FALSE")(value):
        raise ValueError("every write is a minimal diff, so it can't be switched off")


def _shown(value: Value) -> str:
    return f"'{value.text}'" if value.kind is Kind.TEXT else value.text


def _value_of(member: Enum) -> str:
    return str(member.value)


def _truth(value: bool) -> str:
    return "TRUE" if value else "FALSE"


# ---------------------------------------------------------------- the table
PROPERTIES: Mapping[str, Property] = {
    "TARGET_LAG": Property(
        "target_lag",
        _lag,
        "'5 minutes' or DOWNSTREAM",
        lambda lag: str(lag) if lag.duration is None else text(str(lag)),
        unset=False,
    ),
    "REFRESH_MODE": Property("refresh_mode", _choice(RefreshMode), "INCREMENTAL", _value_of),
    "STRICT": Property("strict", _switch("TRUE", "FALSE"), "TRUE", _truth),
    "CARDINALITY_THRESHOLD": Property("cardinality_threshold", _share, "0.3", repr),
    "INITIALIZE": Property("initialize", _choice(Initialize), "ON_SCHEDULE", _value_of, alter=False),
    "SCHEDULER": Property(
        "scheduler", _switch("ENABLE", "DISABLE"), "DISABLE", lambda on: "ENABLE" if on else "DISABLE"
    ),
    "PRIORITY": Property("priority", _priority, "10"),
    "SPARK_PROFILE": Property("spark_profile", _profile, "'batch'", text),
    "DIALECT": Property("dialect", _choice(Dialect), "'spark'", lambda d: text(str(d.value)), alter=False),
    "COMMENT": Property("comment", _string, "'what it is for'", text),
    "DEDUPLICATION": Property("", _always_on, "TRUE", unset=False),
}

# Words of the seeds and of Snowflake, and what to write instead.
_ELSEWHERE: Mapping[str, str] = {
    "REFRESH_STRATEGY": "write REFRESH_MODE = AUTO, INCREMENTAL (what AFFECTED_KEYS meant) or FULL",
    "REFRESH_INTERVAL": "write TARGET_LAG = '5 minutes'",
    "LAG": "write TARGET_LAG = '5 minutes'",
    "DEDUPLICATE": "leave it out: every write is a minimal diff",
    "ALLOW_PARALLEL_REFRESH": "leave it out: Spark splits a refresh by itself",
    "PARALLEL_THRESHOLD": "leave it out: Spark splits a refresh by itself",
    "MAX_PARALLELISM": "leave it out, or name a profile with fewer cores: SPARK_PROFILE = 'small'",
    "WAREHOUSE": "write SPARK_PROFILE = 'name', a profile of the settings",
    "INITIALIZATION_WAREHOUSE": "leave it out: SPARK_PROFILE holds for the first load too",
    "CLUSTER": "write PARTITION BY (…)",
    "DATA_RETENTION_TIME_IN_DAYS": "leave it out: retention is a setting of the lake",
    "MAX_DATA_EXTENSION_TIME_IN_DAYS": "leave it out: retention is a setting of the lake",
    "FROZEN": "leave it out: rows can't be frozen; put the condition into the query",
    "IMMUTABLE": "leave it out: rows can't be frozen; put the condition into the query",
    "BACKFILL": "leave it out: the first load computes the query",
}


# ---------------------------------------------------------------- reading
def read_key(reader: Reader) -> str:
    """A property's name, or its likeness refused with what to write instead."""
    token = reader.token
    if token.kind is Kind.WORD and token.text in PROPERTIES:
        return reader.advance().text
    if token.text in _ELSEWHERE:
        raise reader.wrong(f"there is no property {token.text}", remedy=_ELSEWHERE[token.text])
    near = difflib.get_close_matches(token.text, PROPERTIES, 1) if token.kind is Kind.WORD else []
    remedy = f"write {near[0]}" if near else f"the properties are {', '.join(PROPERTIES)}"
    raise reader.wrong(f"a property should stand here, not {reader.found()}", remedy=remedy)


def read_value(reader: Reader, key: str) -> Any:
    """``= value`` after a key that was read."""
    known = PROPERTIES[key]
    reader.expect("=", remedy=f"write {key} = {known.example}")
    first = reader.token
    sign = reader.advance().source if reader.sees("-") or reader.sees("+") else ""
    point = "." if reader.skip(".") else ""
    token = reader.token
    if token.kind in (Kind.END, Kind.SYMBOL) or ((sign or point) and token.kind is not Kind.NUMBER):
        raise reader.wrong(
            f"a value of {key} should stand here, not {reader.found()}", remedy=f"write {key} = {known.example}"
        )
    reader.advance()
    shown = token.source if token.kind is Kind.WORD else token.text
    if token.kind is Kind.NAME:
        raise reader.wrong(
            f"{key}: '{token.text}' should be in single quotes", at=first, remedy=f"write {key} = {known.example}"
        )
    try:
        return known.read(Value(sign + point + shown, token.kind))
    except ValueError as error:
        raise reader.wrong(f"{key}: {error}", at=first, remedy=f"write {key} = {known.example}") from None


# ---------------------------------------------------------------- definitions
def change(definition: Definition, values: Mapping[str, Any], unset: tuple[str, ...] = ()) -> Definition:
    """The definition with these properties set and those back to their defaults; what contradicts is refused."""
    defaults = {field.name: field.default for field in fields(Definition)}
    reset = {PROPERTIES[key].field: defaults[PROPERTIES[key].field] for key in unset}
    given = {PROPERTIES[key].field: value for key, value in values.items() if PROPERTIES[key].field}
    changed = replace(definition, **{**reset, **given})
    wrong = contradiction(changed)
    if wrong is not None:
        raise BadStatement(wrong, remedy=NOT_STRICT, place=str(definition.name))
    return changed


NOT_STRICT = "write REFRESH_MODE = INCREMENTAL, or leave STRICT out"


def contradiction(definition: Definition) -> str | None:
    """What can't be meant together."""
    if definition.strict and definition.refresh_mode is RefreshMode.FULL:
        return "STRICT forbids to compute the table anew, REFRESH_MODE = FULL does it every time"
    return None


def shown(definition: Definition) -> list[str]:
    """``KEY = value`` for the target lag, and for every property that is not at its default."""
    defaults = {field.name: field.default for field in fields(Definition)}
    lines = []
    for key, known in PROPERTIES.items():
        if known.field:
            value = getattr(definition, known.field)
            if value != defaults[known.field]:
                lines.append(f"{key} = {known.show(value)}")
    return lines
