"""The last writes of a small batch by key, and what each changes: rows that go, rows that come, rows that stay.

``lake/lookup`` finds the table's rows of each key, ``spark/changes.told_diff`` writes what comes. The same rules, for
many writes, are Spark's in ``spark/changes.keyed_diff``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

COMES, STAYS = -1, -2
"""What a write is told instead of a row id: it is an insert, or changes nothing."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A row that the table has under the key of a write."""

    file_id: int
    position: int
    row_id: int
    same: bool
    """Whether all its values are those of the write already."""


@dataclass(frozen=True, slots=True)
class Write:
    """The last write of a key, and the rows that the table has under it: more than one by another's doing."""

    gone: bool
    """It is a delete."""
    kept: tuple[Kept, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    going: tuple[tuple[int, int], ...]
    """File and position of every row that is no longer there."""
    told: tuple[int, ...]
    """To each write: the row id that its row keeps, `COMES` or `STAYS`."""
    inserted: int
    updated: int
    deleted: int


def change(writes: Iterable[Write]) -> Change:
    """A key has one row afterwards, the first of those that it had, or none."""
    going: list[tuple[int, int]] = []
    told: list[int] = []
    inserted = updated = deleted = 0
    for write in writes:
        first = next(iter(write.kept), None)
        others = write.kept if write.gone else write.kept[1:]
        going += [(kept.file_id, kept.position) for kept in others]
        deleted += len(others)
        if write.gone:
            told.append(STAYS)
        elif first is None:
            inserted += 1
            told.append(COMES)
        elif first.same:
            told.append(STAYS)
        else:
            updated += 1
            going.append((first.file_id, first.position))
            told.append(first.row_id)
    return Change(tuple(going), tuple(told), inserted, updated, deleted)
