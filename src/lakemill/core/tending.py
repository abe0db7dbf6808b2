"""Which tables are worth compacting, and when the service may: a policy over what the catalog knows, by table.

Pure. A table is a candidate when it has many small files, or when much of what its files hold is deleted; those come
first that lose the most files for the fewest bytes written again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, time

from lakemill.core.names import fold, parse_name

NEVER = "never"


@dataclass(frozen=True, slots=True)
class Crowd:
    """The files of a table: those that are small, and how many of its rows are deleted."""

    table: str
    """``schema.table``, quoted."""
    small: int
    small_bytes: int
    bytes: int
    rows: int
    deleted: int


@dataclass(frozen=True, slots=True)
class Candidate:
    table: str
    why: str
    gain: float
    """Files that go, for each megabyte that is written again."""


def candidates(crowds: Iterable[Crowd], small_files: int, deleted_share: float) -> tuple[Candidate, ...]:
    """The best first."""
    found = []
    for crowd in crowds:
        share = crowd.deleted / crowd.rows if crowd.rows else 0.0
        if crowd.small >= small_files:
            gain = (crowd.small - 1) / (1 + crowd.small_bytes / 1e6)
            found.append(Candidate(crowd.table, f"it has {crowd.small} small files", gain))
        elif share >= deleted_share:
            gain = share / (1 + crowd.bytes / 1e6)
            found.append(Candidate(crowd.table, f"{share:.0%} of what its files hold is deleted", gain))
    return tuple(sorted(found, key=lambda one: (-one.gain, one.table)))


def window_of(table: str, windows: Mapping[str, str], otherwise: str) -> str:
    """When upkeep of this table may run: its own window, that of its schema, or the lake's."""
    name = parse_name(table)
    given = {fold(key): window for key, window in windows.items()}
    by_schema = given.get(fold(name.schema), otherwise)
    return given.get(f"{fold(name.schema)}.{fold(name.name)}", by_schema)


def open_at(window: str, now: datetime) -> bool:
    """Whether ``now`` lies in ``01:00-05:00`` (of its own zone; over midnight too); always where there is no window."""
    if not window or window == NEVER:
        return not window
    begin, end = (time.fromisoformat(part) for part in window.split("-"))
    moment = now.time()
    return begin <= moment < end if begin <= end else moment >= begin or moment < end
