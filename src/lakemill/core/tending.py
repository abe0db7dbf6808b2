"""Which tables are worth compacting, by which policy, and when the service may: over what the catalog knows.

Pure. The lake has a policy, its schemas and tables may have their own, value by value. A table is a candidate when it
has many small files, or a few that nobody adds to, or when much of what its files hold is deleted; those come first
that save the most for the bytes written again. What could not be done waits until the table has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta
from enum import StrEnum
from typing import Any

from lakemill.core.names import QualifiedName, parse_name
from lakemill.errors import BadArgument

LAKE = ""
"""The name of the policy that all tables have, where they have no other."""
OF_TABLES = ("flush", "compact")
"""Jobs that are done table by table; the others are the lake's."""
OPENING = 4 * 10**6
"""Opening a file costs a reader as much as so many bytes (Spark's own measure)."""
_LONGEST = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Policy:
    """What holds for a table; ``whence`` says which policy each value is from that is not the lake's."""

    jobs: frozenset[str]
    interval: timedelta
    window: str
    small_files: int
    small_size: int
    """0: a quarter of the target size."""
    small_age: timedelta
    deleted_share: float
    target_file_size: int
    retention: timedelta
    name: str = LAKE
    """The most specific one."""
    whence: Mapping[str, str] = field(default_factory=dict)

    @property
    def told(self) -> str:
        return f"the policy of {self.name}" if self.name else "the lake's policy"


@dataclass(frozen=True, slots=True)
class Crowd:
    """The files of a table: those that are small, and how much of them is deleted."""

    table: str
    """``schema.table``, quoted."""
    small: int = 0
    small_bytes: int = 0
    bytes: int = 0
    rows: int = 0
    deleted: int = 0
    dead_bytes: int = 0
    """What the deleted rows take of the files, about."""
    dirty_bytes: int = 0
    """Files that are not small and hold deleted rows."""
    target: int = 512 * 10**6
    newest: datetime | None = None
    """When the last of the small files came."""
    table_id: int = 0
    mark: str = ""
    """The same as long as a compaction would find the same."""

    @property
    def share(self) -> float:
        return self.deleted / self.rows if self.rows else 0.0


class Outcome(StrEnum):
    DONE = "done"
    KEPT = "kept"
    """There was nothing that it could do, as the table is."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Tended:
    """How the last job on a table went."""

    job: str
    table_id: int
    at: datetime
    outcome: Outcome
    reason: str = ""
    mark: str = ""
    count: int = 0
    """How often in a row it failed."""


@dataclass(frozen=True, slots=True)
class Verdict:
    table: str
    due: bool
    why: str
    gain: float = 0.0
    """Bytes that readers are saved, for each byte that is written again."""


# ---------------------------------------------------------------- policies
def scope_of(text: str) -> tuple[str, ...]:
    """``sales`` is a schema, ``sales.orders`` a table; as names are compared."""
    try:
        return (parse_name(f"{text}.x").key[0],)
    except BadArgument:  # it has two parts already
        return parse_name(text).key


class Policies:
    """The lake's policy, and what is said of its schemas and tables."""

    def __init__(self, lake: Policy, given: Mapping[str, Mapping[str, Any]]) -> None:
        self.lake = lake
        self._given = {scope_of(name): (name, values) for name, values in given.items()}

    def of(self, table: QualifiedName) -> Policy:
        """The lake's values, then those of its schema's policy, then those of its own."""
        found = self.lake
        for scope in ((table.key[0],), table.key):
            if scope in self._given:
                name, values = self._given[scope]
                found = replace(found, **values, name=name, whence={**found.whence, **dict.fromkeys(values, name)})
        return found

    def named(self) -> tuple[Policy, ...]:
        """The lake's, and each that was given, as it holds for what has no narrower one."""
        return (self.lake, *(self.of(QualifiedName(*scope, *([""] * (2 - len(scope))))) for scope in self._given))

    def nowhere(self, tables: Iterable[QualifiedName]) -> tuple[str, ...]:
        """Names that no schema with tables, and no table has."""
        known = {scope for table in tables for scope in ((table.key[0],), table.key)}
        return tuple(name for scope, (name, _) in self._given.items() if scope not in known)


def open_at(window: str, now: datetime) -> bool:
    """Whether ``now`` lies in ``01:00-05:00`` (of its own zone; over midnight too); always where there is no window."""
    if not window:
        return True
    begin, end = (time.fromisoformat(part) for part in window.split("-"))
    moment = now.time()
    return begin <= moment < end if begin <= end else moment >= begin or moment < end


# ---------------------------------------------------------------- what is worth it
def judge(crowd: Crowd, policy: Policy, last: Tended | None, now: datetime) -> Verdict:
    """Whether a table is to be compacted, and why, or why not."""
    worth = _worth(crowd, policy, now)
    if worth is None:
        files = f"{crowd.small} small files of {policy.small_files}"
        return Verdict(crowd.table, False, f"{files}, {crowd.share:.0%} of {policy.deleted_share:.0%} deleted")
    if "compact" not in policy.jobs:
        return Verdict(crowd.table, False, f"{worth}, but {policy.told} leaves compacting out")
    if last is not None and last.outcome is Outcome.KEPT and last.mark == crowd.mark:
        return Verdict(crowd.table, False, f"nothing has changed since {last.at:%Y-%m-%d %H:%M}: {last.reason}")
    if last is not None and now < (again := retry_after(last, policy)):
        told = f"tried again after {again:%Y-%m-%d %H:%M}, {last.count} failed in a row: {last.reason}"
        return Verdict(crowd.table, False, told)
    return Verdict(crowd.table, True, worth, gain(crowd))


def retry_after(last: Tended, policy: Policy) -> datetime:
    """What failed is tried again at the next look, then after twice as long, and so on; once a day at least."""
    if last.outcome is not Outcome.FAILED:
        return last.at
    doubled = policy.interval.total_seconds() * 2.0 ** min(last.count - 1, 20)
    return last.at + max(policy.interval, timedelta(seconds=min(doubled, _LONGEST.total_seconds())))


def _worth(crowd: Crowd, policy: Policy, now: datetime) -> str | None:
    if crowd.small >= policy.small_files:
        return f"it has {crowd.small} small files"
    if crowd.share >= policy.deleted_share:
        return f"{crowd.share:.0%} of what its files hold is deleted"
    if crowd.small > 1 and crowd.newest is not None and now - crowd.newest >= policy.small_age:
        return f"its {crowd.small} small files have waited since {crowd.newest:%Y-%m-%d %H:%M}"
    return None


def gain(crowd: Crowd) -> float:
    """What readers need not open and read any more, against what is written again."""
    full = -(-(crowd.small_bytes - crowd.dead_bytes) // crowd.target) if crowd.small else 0
    gone = max(0, crowd.small - max(1, full))
    written = max(0, crowd.small_bytes + crowd.dirty_bytes - crowd.dead_bytes)
    return (gone * OPENING + crowd.dead_bytes) / (OPENING + written)


def ranked(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Those that are due, the best first."""
    return tuple(sorted((one for one in verdicts if one.due), key=lambda one: (-one.gain, one.table)))
