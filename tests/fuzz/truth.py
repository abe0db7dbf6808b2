"""What a table held at a snapshot, in a form that does not depend on the engine that read it.

A state is a bag of rows under the columns of that snapshot. Columns are trees with the catalog's ids, so that rows of
an older snapshot can be expressed in the columns of a newer one: dropped ones vanish, added ones take their initial
default, renamed and promoted ones follow their id, nested fields too. Must not import Lakemill: it judges it.
"""

from __future__ import annotations

import struct
import uuid
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

Row = tuple[Hashable, ...]
Bag = Counter[Row]


@dataclass(frozen=True, slots=True)
class Column:
    id: int
    name: str
    type: str
    initial_default: str | None
    children: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """The content of one table at one snapshot, and its name there."""

    name: str
    table_id: int
    columns: tuple[Column, ...]
    rows: Bag


@dataclass(slots=True)
class Truth:
    """Snapshot id → table → state; and from which snapshot on the extension itself is known to be wrong.

    A table goes by the name that it was made with, whatever it was renamed to.
    """

    states: dict[int, dict[str, State]] = field(default_factory=dict)
    lost: dict[str, tuple[int, str]] = field(default_factory=dict)
    forgotten: dict[str, set[int]] = field(default_factory=dict)
    """Table → snapshots at which the catalog once said that a row is deleted, and does not any more."""

    def lose(self, table: str, snapshot: int, why: str) -> None:
        known = self.lost.get(table)
        if known is None or snapshot < known[0]:
            self.lost[table] = (snapshot, why)

    def is_lost(self, table: str, snapshot: int) -> bool:
        late = table in self.lost and snapshot >= self.lost[table][0]
        return late or snapshot in self.forgotten.get(table, ())


def build_columns(rows: Iterable[tuple[int, str, str, str | None, int | None]]) -> tuple[Column, ...]:
    """Rows of ``ducklake_column`` in column order (id, name, type, initial default, parent) → trees."""
    below: dict[int | None, list[tuple[int, str, str, str | None]]] = {}
    for column_id, name, type_, initial, parent in rows:
        below.setdefault(parent, []).append((column_id, name, type_.lower(), initial))

    def grow(parent: int | None) -> tuple[Column, ...]:
        return tuple(Column(*head, grow(head[0])) for head in below.get(parent, ()))

    return grow(None)


def canonical_rows(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> Bag:
    return Counter(tuple(canonical(column, value) for column, value in zip(columns, row, strict=True)) for row in rows)


def canonical(column: Column, value: Any) -> Hashable:
    """One value, hashable; NaN equals NaN, maps have no order, structs are keyed by field id."""
    if value is None:
        return None
    match column.type:
        case "struct":
            items = value.items() if isinstance(value, Mapping) else value
            by_name = dict(items)
            return tuple((child.id, canonical(child, by_name[child.name])) for child in _by_id(column.children))
        case "list":
            return tuple(canonical(column.children[0], item) for item in value)
        case "map":
            key, inner = column.children
            pairs = value.items() if isinstance(value, Mapping) else value
            return tuple(sorted(((canonical(key, k), canonical(inner, v)) for k, v in pairs), key=repr))
    return _scalar(column.type, value)


def _scalar(type_: str, value: Any) -> Hashable:
    if type_ in ("float32", "float64"):
        if value != value or value == "NaN":
            return "NaN"
        return float(value) if type_ == "float64" else struct.unpack("f", struct.pack("f", float(value)))[0]
    if type_.startswith(("int", "uint")):
        return int(value)
    if type_.startswith("decimal"):
        return Decimal(value)
    if type_ == "uuid":
        return str(uuid.UUID(bytes=value) if isinstance(value, bytes) else uuid.UUID(str(value)))
    if type_.startswith("timestamp") and isinstance(value, date):  # a date, or without a zone, before a promotion
        moment = value if isinstance(value, datetime) else datetime.combine(value, time())
        if type_ != "timestamptz":
            return moment
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return value  # type: ignore[no-any-return]


def _by_id(columns: Iterable[Column]) -> list[Column]:
    return sorted(columns, key=lambda column: column.id)


class Defaults:
    """Initial defaults as values; the text form is the catalog's, the parser is DuckDB's."""

    def __init__(self, parse: Any) -> None:
        self._parse = parse
        self._known: dict[tuple[str, str], Hashable] = {}

    def value(self, column: Column) -> Hashable:
        text = column.initial_default
        if text is None:
            return None
        key = (column.type, text)
        if key not in self._known:
            self._known[key] = canonical(column, self._parse(column.type, text))
        return self._known[key]


def convert(state: State, columns: Sequence[Column], defaults: Defaults) -> Bag:
    """The rows of a state in the columns of a later snapshot."""
    if tuple(columns) == state.columns:
        return state.rows
    place = {column.id: index for index, column in enumerate(state.columns)}
    out: Bag = Counter()
    for row, count in state.rows.items():
        converted = tuple(
            _convert(state.columns[place[column.id]], column, row[place[column.id]], defaults)
            if column.id in place
            else defaults.value(column)
            for column in columns
        )
        out[converted] += count
    return out


def _convert(old: Column, new: Column, value: Any, defaults: Defaults) -> Hashable:
    if value is None or old == new:
        return value  # type: ignore[no-any-return]
    match new.type:
        case "struct":
            before = dict(value)
            olds = {child.id: child for child in old.children}
            return tuple(
                (
                    child.id,
                    _convert(olds[child.id], child, before[child.id], defaults)
                    if child.id in olds
                    else defaults.value(child),
                )
                for child in _by_id(new.children)
            )
        case "list":
            return tuple(_convert(old.children[0], new.children[0], item, defaults) for item in value)
        case "map":
            pairs = (
                tuple(
                    _convert(o, n, item, defaults) for o, n, item in zip(old.children, new.children, pair, strict=True)
                )
                for pair in value
            )
            return tuple(sorted(pairs, key=repr))
    return _scalar(new.type, value)


def difference(after: Bag, before: Bag) -> dict[Row, int]:
    """Signed rows, zero weights gone."""
    out = dict(after)
    for row, count in before.items():
        out[row] = out.get(row, 0) - count
    return {row: weight for row, weight in out.items() if weight}


def plus(bag: Bag, weights: Mapping[Row, int]) -> Bag | None:
    """The bag after a signed change; None when a row would be there less than no times."""
    out = Counter(bag)
    for row, weight in weights.items():
        out[row] += weight
        if out[row] < 0:
            return None
        if not out[row]:
            del out[row]
    return out
