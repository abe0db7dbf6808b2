"""Whether a commit may go on: the intent against the catalog as it is under the commit lock. Pure.

``lake/publish`` reads the facts after it has taken the snapshot row, asks ``conflicts``, and after a failure asks
``after_failure`` whether the same files can be published in a new transaction or the work must be planned again.
Labels of other commits are hints with holes: where one is missing, the answer is a conflict, never "nothing happened".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from lakemill.core.changes import COMPACTIONS, DELETES, FLUSHES, INSERTS, SHAPES, kinds_for, parse_changes
from lakemill.core.commit import (
    Intent,
    NameFree,
    NameHeldBy,
    NoConflict,
    Purpose,
    RenameTable,
    Requirement,
    SameColumns,
    SamePartition,
    SwapGeneration,
)
from lakemill.core.names import fold
from lakemill.core.schema import Column

# which kinds of change to the table since the base hurt a commit of each purpose
_HURTS: Mapping[Purpose, frozenset[str]] = {
    # the table must be live, which is seen without labels; its shape is left to SameColumns and SamePartition,
    # because a comment or a sort order does not hurt an append
    Purpose.APPEND: frozenset(),
    Purpose.CHANGE: INSERTS | DELETES | FLUSHES | COMPACTIONS | SHAPES,
    # compaction changes no rows; the files that a delete names are checked one by one
    Purpose.EQUATION: INSERTS | DELETES | SHAPES,
    # inlined deletes name source files by id without a trace on the file's own rows; a flush of them leaves one, which
    # FilesUnchanged sees
    Purpose.MERGE: frozenset({"inlined_delete"}) | SHAPES,
    Purpose.GENERATION: INSERTS | DELETES | FLUSHES | SHAPES,
}

_TOLD = 3


@dataclass(frozen=True, slots=True)
class Facts:
    """What the catalog says under the commit lock, as far as the intent asks."""

    snapshot_id: int
    """The snapshot that this commit makes."""
    labels: Mapping[int, str | None] = field(default_factory=dict)
    """changes_made of the snapshots after the oldest base that may concern the intent's tables."""
    counts: Mapping[int, int] = field(default_factory=dict)
    """For every base: how many snapshots there are after it, the new one included."""
    live: frozenset[int] = frozenset()
    """Which of the intent's tables are live."""
    columns: Mapping[int, tuple[Column, ...]] = field(default_factory=dict)
    partitions: Mapping[int, int] = field(default_factory=dict)
    names: Mapping[tuple[int, str], tuple[int, ...]] = field(default_factory=dict)
    """Live tables and views by (schema id, name in lower case)."""
    stale_files: Sequence[int] = ()
    """Data files that are not as the intent says."""


@dataclass(frozen=True, slots=True)
class Conflict:
    reason: str
    takes_name: bool = False


def conflicts(intent: Intent, facts: Facts) -> tuple[Conflict, ...]:
    """Everything that speaks against the commit; empty when it may go on."""
    found: list[Conflict] = [
        Conflict(f"table {table_id} is gone") for table_id in intent.table_ids() if table_id not in facts.live
    ]
    for requirement in intent.requirements:
        found.extend(Conflict(reason) for reason in _violations(requirement, facts))
    for requirement in (*intent.requirements, *_implied_names(intent)):
        if isinstance(requirement, NameFree | NameHeldBy):
            holders = facts.names.get((requirement.schema_id, fold(requirement.name)), ())
            if isinstance(requirement, NameFree):
                holders = tuple(holder for holder in holders if holder != requirement.own)
            wanted = (requirement.table_id,) if isinstance(requirement, NameHeldBy) else ()
            if holders != wanted:
                found.append(Conflict(_name_reason(requirement.name, holders, wanted), takes_name=True))
    if facts.stale_files:
        some = ", ".join(str(i) for i in facts.stale_files[:5])
        found.append(Conflict(f"data files were ended, deleted from or replaced meanwhile: {some}"))
    return tuple(dict.fromkeys(found))


def _implied_names(intent: Intent) -> list[NameFree | NameHeldBy]:
    """A name is given only when it is free, or held by the table that is replaced: the catalog has no key on it."""
    implied: list[NameFree | NameHeldBy] = []
    for update in intent.updates:
        if isinstance(update, SwapGeneration) and update.old_table_id is not None:
            implied.append(NameHeldBy(update.schema_id, update.name, update.old_table_id))
        elif isinstance(update, SwapGeneration):
            implied.append(NameFree(update.schema_id, update.name))
        elif isinstance(update, RenameTable):
            implied.append(NameFree(update.schema_id, update.name, update.table_id))
    return implied


def wanted_bases(intent: Intent) -> tuple[int, ...]:
    """The snapshots since which the facts must tell what others did, oldest first."""
    asked = (r for r in intent.requirements if isinstance(r, NoConflict) and _HURTS[r.purpose])
    return tuple(sorted({r.base_snapshot for r in asked}))


def wanted_names(intent: Intent) -> tuple[tuple[int, str], ...]:
    """The names whose holders the facts must tell."""
    asked = (*intent.requirements, *_implied_names(intent))
    return tuple({(r.schema_id, fold(r.name)): None for r in asked if isinstance(r, NameFree | NameHeldBy)})


def _name_reason(name: str, holders: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    if not wanted:
        return f"the name {name!r} is taken by table or view {holders[0]}"
    return f"the name {name!r} is no longer held by table {wanted[0]}"


def _violations(requirement: Requirement, facts: Facts) -> list[str]:
    match requirement:
        case NoConflict(table_id, base, purpose):
            return _label_violations(table_id, base, purpose, facts)
        case SameColumns(table_id, columns):
            if shapes(facts.columns.get(table_id, ())) != shapes(columns):
                return [f"the columns of table {table_id} changed"]
        case SamePartition(table_id, partition_id):
            if facts.partitions.get(table_id) != partition_id:
                return [f"the partitioning of table {table_id} changed"]
        case _:
            pass
    return []


def _label_violations(table_id: int, base: int, purpose: Purpose, facts: Facts) -> list[str]:
    if not _HURTS[purpose]:
        return []
    if facts.counts.get(base) != facts.snapshot_id - base:
        # labels decide only when none is missing
        return [f"snapshots after {base} were expired, so nobody can say what happened to table {table_id}"]
    reasons = []
    for snapshot, text in sorted(facts.labels.items()):
        if not base < snapshot < facts.snapshot_id:
            continue
        if text is None:
            reasons.append(f"snapshot {snapshot} does not say what it changed")
            continue
        kinds = kinds_for(parse_changes(text), table_id) & _HURTS[purpose]
        if kinds:
            reasons.append(f"table {table_id} was changed at snapshot {snapshot} ({', '.join(sorted(kinds))})")
    more = len(reasons) - _TOLD
    return [*reasons[:_TOLD], f"and at {more} snapshots more"] if more > 1 else reasons


def shapes(columns: Sequence[Column]) -> tuple[Any, ...]:
    """What must be equal for a staged file to fit: ids, names, types, nullability; defaults don't matter."""
    return tuple((c.id, c.name, c.type, c.nulls_allowed, shapes(c.children)) for c in columns)


# ---------------------------------------------------------------- after a failure
class Failure(Enum):
    LOST_RACE = "another commit took the snapshot id"
    SERIALIZATION = "the server asked to try again"
    LOCKED = "the commit lock was held for too long"
    CONNECTION_LOST = "the connection was lost before COMMIT"
    COMMIT_UNANSWERED = "the connection was lost at COMMIT"
    CONFLICT = "the catalog changed under the intent"


class Step(Enum):
    RETRY = "same files, same publish id, new transaction"
    SETTLE = "ask by publish id what became of it"
    REPLAN = "the files answer a question that is no longer asked"
    GIVE_UP = "too many attempts"


def after_failure(failure: Failure, attempt: int, limit: int) -> Step:
    """What to do after the ``attempt``-th try failed this way."""
    match failure:
        case Failure.CONFLICT:
            return Step.REPLAN
        case Failure.COMMIT_UNANSWERED:
            return Step.SETTLE
    return Step.RETRY if attempt < limit else Step.GIVE_UP
