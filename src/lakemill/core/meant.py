"""What the names in a record meant when it was accepted: a name may be another column's by now.

A column is its id: one that was dropped, and another of the same name that was added since, have nothing in common.
``meant`` compares the columns of then and now; ``runtime/layouts`` knows when that is asked for, and ``spark/bus`` does
accordingly. Values only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakemill.core.names import fold
from lakemill.core.schema import Column


@dataclass(frozen=True, slots=True)
class Meant:
    """Where names of then and now don't mean the same."""

    foreign: tuple[str, ...] = ()
    """Columns of now whose name meant another column, or held another one inside."""
    renamed: tuple[tuple[str, int], ...] = ()
    """Names of then of columns that have another name now, or are foreign; told only where any is foreign."""


SAME = Meant()


def meant(then: Iterable[Column], now: Sequence[Column]) -> Meant:
    old = tuple(then)
    by_name = {fold(column.name): column for column in old}
    foreign = []
    for column in now:
        before = by_name.get(fold(column.name))
        if before is not None and (before.id != column.id or _holds_another(before, column)):
            foreign.append(column.name)
    if not foreign:
        return SAME
    names = {column.id: column for column in now}
    moved = [(one.name, one.id) for one in old if one.id in names and names[one.id].name != one.name]
    return Meant(tuple(foreign), tuple((name, id_) for name, id_ in moved if not _changed_inside(old, names, id_)))


def doubtful(reused: Mapping[tuple[int, str], frozenset[int]], now: Sequence[Column]) -> Meant:
    """Where nobody knows the columns of then: every name that another column has had; ``reused`` by place and name."""

    def doubt(column: Column, place: int) -> bool:
        own = bool(reused.get((place, fold(column.name)), frozenset()) - {column.id})
        return own or any(doubt(child, column.id) for child in column.children)

    return Meant(tuple(column.name for column in now if doubt(column, 0)))


def _changed_inside(old: Sequence[Column], now: Mapping[int, Column], column_id: int) -> bool:
    before = next(one for one in old if one.id == column_id)
    return _holds_another(before, now[column_id])


def _holds_another(before: Column, after: Column) -> bool:
    """Whether a field inside has the name of one that is gone."""
    inside = {fold(child.name): child for child in before.children}
    return any(
        (was := inside.get(fold(child.name))) is not None and (was.id != child.id or _holds_another(was, child))
        for child in after.children
    )
