"""Which snapshots may go, and why each of the others stays. Pure: the facts and the time come from outside.

A snapshot stays when it is the newest, younger than the retention, pinned, or the recorded position of a consumer; not
of one that was left behind for longer than the retention: its positions are let go, and it is loaded anew.
A table whose retention is longer than the lake's keeps those at which it changed, so that its content at any moment
since can be read.
Some stay as *evidence*: when a delete's stamp does not tell its commit (``core/timing``), the labels of the commits
around it do, and without them a needed snapshot would fall into doubt. ``lake/expiry`` fills this in and does it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from lakemill.core.changes import COMPACTIONS, INSERTS, SHAPES
from lakemill.core.scan import Snapshot
from lakemill.core.timing import Labels, WrittenBy, possible_commits
from lakemill.errors import BadArgument

_ENDS_DOUBT = INSERTS | SHAPES | COMPACTIONS


@dataclass(frozen=True, slots=True)
class Kept:
    """A snapshot that was asked to go, or is old enough, and stays."""

    snapshot: int
    reason: str


@dataclass(frozen=True, slots=True)
class ExpirePlan:
    versions: tuple[int, ...]
    """What goes, explicitly: expiry is never told a time, which could mean other snapshots a moment later."""
    kept: tuple[Kept, ...]
    cutoff: datetime
    needed: tuple[int, ...] = ()
    """Pinned and recorded snapshots that the plan knows of; others may have been added by the time it is done."""
    let_go: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Consumers that hold what goes and were left behind too long, and all that they hold."""
    changed: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """By table that has its own retention: the snapshots at which it changed."""

    @property
    def empty(self) -> bool:
        return not self.versions


@dataclass(frozen=True, slots=True)
class Retained:
    """A table whose past is kept for longer than that of others; ``begin`` and ``end``: when it came and went."""

    table_id: int
    name: str
    retention: timedelta
    begin: int
    end: int | None = None

    @property
    def reason(self) -> str:
        return f"the past of {self.name} is kept for {self.retention}"


def gaps(snapshots: Sequence[Snapshot]) -> list[tuple[range, int]]:
    """Where snapshots are missing, and the first after each."""
    found = ((range(before.id + 1, after.id), after.id) for before, after in pairwise(snapshots))
    return [(missing, after) for missing, after in found if missing]


def changed_at(
    missing: Sequence[tuple[range, int]], labelled: Collection[int], gone: Sequence[range]
) -> frozenset[int]:
    """The snapshots at which a table is not what it was at the one before.

    ``labelled``: those that say so, or don't say anything; ``gone``: what was expired and had not changed it, as ranges
    as wide as can be, in order. What else is missing may have.
    """
    starts = [known.start for known in gone]
    found = set(labelled)
    for gap, after in missing:
        place = bisect_right(starts, gap.start)
        if place == 0 or gap.stop > gone[place - 1].stop:
            found.add(after)
    return frozenset(found)


def held_for(table: Retained, snapshots: Sequence[Snapshot], changed: Collection[int], now: datetime) -> list[int]:
    """The snapshots that show the table as it was at each moment of its retention.

    A reader of a moment gets the last snapshot before it: so each one counts until the next that is held. One in each
    length of the retention is held also where nothing changes, so that the oldest of them need not be held for ever.
    """
    first = bisect_left(snapshots, table.begin, key=_id)
    last = len(snapshots) if table.end is None else bisect_right(snapshots, table.end, key=_id)
    if first >= last:
        return []
    ids = sorted(one for one in changed if snapshots[first].id < one <= snapshots[last - 1].id)
    chain = [snapshots[first]]
    for at in (*(bisect_left(snapshots, one, key=_id) for one in ids), last):
        while True:  # what lies before the next change
            later = bisect_left(snapshots, chain[-1].time + table.retention, key=_time)
            later = max(later, bisect_right(snapshots, chain[-1].id, key=_id))
            if later >= at:
                break
            chain.append(snapshots[later])
        if at < last:
            chain.append(snapshots[at])
    ends = [*(after.time for after in chain[1:]), now if table.end is None else chain[-1].time]
    return [one.id for one, end in zip(chain, ends, strict=True) if now - end < table.retention]


def _id(snapshot: Snapshot) -> int:
    return snapshot.id


def _time(snapshot: Snapshot) -> datetime:
    return snapshot.time


def plan_expiry(
    snapshots: Sequence[Snapshot],
    now: datetime,
    retention: timedelta,
    needed: Mapping[int, str],
    evidence: Mapping[int, str],
    *,
    older_than: datetime | None = None,
    versions: Sequence[int] | None = None,
    left_behind: Mapping[str, frozenset[int]] | None = None,
    changed: Mapping[int, frozenset[int]] | None = None,
) -> ExpirePlan:
    """What goes of all snapshots: those before a time (default: as old as the retention), or of those named.

    ``needed`` and ``evidence`` say why a snapshot stays; ``left_behind`` are consumers that keep none of
    theirs, and what they hold.
    """
    if older_than is not None and versions is not None:
        raise BadArgument("name the snapshots to expire, or a time, not both")
    cutoff = now - retention
    if versions is None:
        limit = cutoff if older_than is None else older_than
        asked = [snapshot for snapshot in snapshots if snapshot.time < limit]
    else:
        asked = [snapshot for snapshot in snapshots if snapshot.id in set(versions)]
    newest = max(snapshot.id for snapshot in snapshots)
    going, kept = [], []
    for snapshot in sorted(asked):
        if snapshot.id == newest:
            kept.append(Kept(snapshot.id, "it is the newest"))
        elif snapshot.time >= cutoff:
            kept.append(Kept(snapshot.id, f"it is younger than the retention of {retention}"))
        elif (reason := needed.get(snapshot.id) or evidence.get(snapshot.id)) is not None:
            kept.append(Kept(snapshot.id, reason))
        else:
            going.append(snapshot.id)
    let_go = {holder: held for holder, held in (left_behind or {}).items() if not held.isdisjoint(going)}
    return ExpirePlan(tuple(going), tuple(kept), cutoff, tuple(sorted(needed)), let_go, changed or {})


def evidence_for(stamps: Sequence[int], at: int, data: WrittenBy, delete: WrittenBy, labels: Labels) -> range:
    """The snapshots whose labels tell that one delete file's positions are, or are not, deleted at ``at``.

    Only asked for delete files that were written after ``at``. Where every group that counts is exact by itself none is
    needed, and where the answer is in doubt as it is none helps; else all from the first stamp to the writer stay.
    """
    asked = [i for i, stamp in enumerate(stamps) if i > 0 and data.earliest < stamp <= at]
    for index in asked:
        possible = possible_commits(stamps, index, data, delete, labels)
        if min(possible) <= at < max(possible):
            return range(0)
    return range(stamps[0], delete.latest + 1) if asked else range(0)
