"""Which columns a table needs so that records fit: new ones for unknown fields, wider ones for larger numbers.

For tables whose policy is ``evolve``. What a field's values have in common is found by a small matrix, which knows no
rounding and guesses nothing from text:

    BOOLEAN, BIGINT, DOUBLE, VARCHAR, JSON      true · 1 · 1.5 · "a" · [1] or {"a": 1}
    BIGINT + larger integers → DECIMAL(38,0)    BIGINT + DOUBLE → DOUBLE    any other two → JSON

Existing columns only widen as DuckLake can without rewriting a file: TINYINT → SMALLINT → INTEGER → BIGINT, the same
unsigned, FLOAT → DOUBLE. Fields of nested structs don't evolve. Gives DDL as values; ``runtime/evolving`` runs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from lakemill.core.names import fold
from lakemill.core.schema import Column, type_of_duck

LARGE = "DECIMAL(38,0)"
_BITS = 2**63
_STEPS: Sequence[Sequence[tuple[str, str, int, int]]] = (
    (
        ("int8", "TINYINT", -(2**7), 2**7 - 1),
        ("int16", "SMALLINT", -(2**15), 2**15 - 1),
        ("int32", "INTEGER", -(2**31), 2**31 - 1),
        ("int64", "BIGINT", -_BITS, _BITS - 1),
    ),
    (
        ("uint8", "UTINYINT", 0, 2**8 - 1),
        ("uint16", "USMALLINT", 0, 2**16 - 1),
        ("uint32", "UINTEGER", 0, 2**32 - 1),
    ),
)
_LARGEST_FLOAT = Decimal("3.4028235e38")


@dataclass(frozen=True, slots=True)
class Add:
    """A column that is new, and may be NULL."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Widen:
    name: str
    type: str


def changes(columns: Sequence[Column], payloads: Iterable[Mapping[str, Any]]) -> tuple[Add | Widen, ...]:
    """What must change before these payloads fit, as far as that can make them fit."""
    known = {column.name: column for column in columns}
    taken = {fold(column.name) for column in columns}
    new: dict[str, str] = {}
    wide: dict[str, str] = {}
    for payload in payloads:
        for name, value in payload.items():
            if value is None or not name:
                continue
            if name not in known:
                if fold(name) not in taken or name in new:
                    new[name] = joined(new.get(name), inferred(value))
                    taken.add(fold(name))
            elif (type_ := _wider(known[name].type, wide.get(name), value)) is not None:
                wide[name] = type_
    return (*(Add(*pair) for pair in new.items()), *(Widen(*pair) for pair in wide.items()))


def applied(columns: Sequence[Column], wanted: Iterable[Add | Widen]) -> tuple[Column, ...]:
    """The columns as they would be; ids of new ones are made up."""
    found = {column.name: column for column in columns}
    for number, one in enumerate(wanted):
        type_ = type_of_duck(one.type) or one.type.lower()
        found[one.name] = (
            replace(found[one.name], type=type_) if isinstance(one, Widen) else Column(-number, one.name, type_)
        )
    return tuple(found.values())


def inferred(value: Any) -> str:
    """The type of one JSON value."""
    match value:
        case bool():
            return "BOOLEAN"
        case int():
            return "BIGINT" if -_BITS <= value < _BITS else LARGE if abs(value) < 10**38 else "JSON"
        case float() | Decimal():
            return "DOUBLE"
        case str():
            return "VARCHAR"
    return "JSON"


def joined(one: str | None, other: str) -> str:
    """The type that holds values of both."""
    if one is None or one == other:
        return other
    pair = {one, other}
    if pair <= {"BIGINT", LARGE}:
        return LARGE
    if pair <= {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    return "JSON"


def _wider(type_: str, so_far: str | None, value: Any) -> str | None:
    """The type that a column must have for this value; None where its own will do, or none would."""
    if isinstance(value, int) and not isinstance(value, bool):
        for family in _STEPS:
            names = [step[0] for step in family]
            if type_ in names:
                ducks = [step[1] for step in family]
                least = max(names.index(type_), ducks.index(so_far) if so_far in ducks else 0)
                fitting = [n for n, step in enumerate(family) if step[2] <= value <= step[3] and n >= least]
                return ducks[fitting[0]] if fitting and fitting[0] > names.index(type_) else so_far
    if type_ == "float32" and isinstance(value, int | float | Decimal) and abs(Decimal(value)) > _LARGEST_FLOAT:
        return "DOUBLE"
    return so_far
