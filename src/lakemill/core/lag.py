"""How a dynamic table stands: which data snapshots it holds, how far behind it is, how often it kept its promise.

Part of line 4 of a refresh; ``core/rounds`` decides from it what is due. *Lag* is the age of the first change, after
the table's data snapshot, of a base table that it reaches; a quiet lake has none. Pure: now and the changes are given.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakemill.core.names import QualifiedName
from lakemill.errors import Retry

ZERO = timedelta(0)


@dataclass(frozen=True, slots=True)
class Version:
    """The content of a commit, right for every data snapshot in [b_lo, b_hi]; with ``t``, at that time only."""

    commit: int
    b_lo: int
    b_hi: int
    definition_version: int
    table_id: int
    t: datetime | None = None

    def holds(self, b: int, t: datetime | None = None) -> bool:
        return self.b_lo <= b <= self.b_hi and (self.t is None or self.t == t)


@dataclass(frozen=True, slots=True)
class Commit:
    snapshot: int
    time: datetime


@dataclass(frozen=True, slots=True)
class Failure:
    """The last of ``count`` scheduled failures in a row; a success ends it."""

    count: int
    at: datetime
    b: int
    """The data snapshot that it tried to come to."""
    retry: Retry


@dataclass(frozen=True, slots=True)
class Standing:
    """How a table stands: its versions, oldest first, and what happened since the newest."""

    name: QualifiedName
    versions: tuple[Version, ...] = ()
    change: Commit | None = None
    """The first change, after the newest version's b_hi, of a base table that it reaches."""
    expected: timedelta = ZERO
    """How long its next refresh will take, as far as known."""
    busy: bool = False
    """Its work is queued or being done: it is not planned again, and for its consumers it has not come further."""
    round_at: datetime | None = None
    """The time of the last round that it was part of. One that passed it over (a supplier failed, the claim was lost)
    does not count: it keeps the time of the round before."""
    newest: Commit | None = None
    """The newest change of a base table that it reaches; ``change`` is the first that it does not hold."""
    failure: Failure | None = None

    @property
    def behind(self) -> bool:
        """Whether a refresh would find anything: a change, the first load, or another time."""
        return not self.versions or self.change is not None or self.versions[-1].t is not None

    def usable(self, b: int, t: datetime | None = None) -> bool:
        """Whether a version holds ``b``, or the newest may be widened to it because nothing changed since."""
        if any(version.holds(b, t) for version in self.versions):
            return True
        if not self.versions or self.versions[-1].t is not None:
            return False
        return self.versions[-1].b_lo <= b and (self.change is None or b < self.change.snapshot)


def lag(standing: Standing, now: datetime) -> timedelta | None:
    """None while the table was never loaded."""
    if not standing.versions:
        return None
    t = standing.versions[-1].t
    behind = now - standing.change.time if standing.change is not None else ZERO
    aged = now - t if t is not None else ZERO
    return max(behind, aged, ZERO)


def lag_since(standing: Standing, now: datetime, declared: datetime) -> timedelta:
    """The lag; of a table that was never loaded, how long nothing is there of what it ought to show."""
    behind = lag(standing, now)
    return max(now - declared, ZERO) if behind is None else behind


def largest_common(
    standings: Sequence[Standing], most: int, t: datetime | None = None, without: frozenset[int] = frozenset()
) -> int | None:
    """The largest data snapshot, at most ``most``, that all of these hold; none of those ``without``."""
    ends = {most}
    for standing in standings:
        ends |= {version.b_hi for version in standing.versions}
        if standing.versions and standing.change is not None:
            ends.add(standing.change.snapshot - 1)
    for b in sorted((end for end in ends - without if end <= most), reverse=True):
        if all(standing.usable(b, t) for standing in standings):
            return b
    return None


# ---------------------------------------------------------------- looking back
@dataclass(frozen=True, slots=True)
class Seen:
    """A version became visible ``at`` that time: the content for ``b``, with ``t`` for that time only."""

    at: datetime
    b: int
    t: datetime | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """What happened to a table, each in order of time.

    ``seen`` holds the versions of the time in question and the last before it; widenings may be left out, since
    ``changes``, of all base tables that it reaches and after the first ``b``, say how long a version stayed right.
    """

    seen: tuple[Seen, ...]
    changes: tuple[Commit, ...]


def attainment(history: Past, target: timedelta, since: datetime, now: datetime) -> float | None:
    """The share of the time in which the table lagged its target at most, counted from its first load on if that is
    later than ``since``; None where it was never loaded in that time."""
    snapshots = [change.snapshot for change in history.changes]
    counted = within = ZERO
    b = 0
    for place, seen in enumerate(history.seen, 1):
        b, end = max(b, seen.b), history.seen[place].at if place < len(history.seen) else now
        first = bisect_right(snapshots, b)
        good = [end] if first == len(snapshots) else [end, history.changes[first].time + target]
        good += [] if seen.t is None else [seen.t + target]
        start = max(seen.at, since)
        counted += max(min(end, now) - start, ZERO)
        within += max(min(*good, now) - start, ZERO)
    return within / counted if counted > ZERO else None
