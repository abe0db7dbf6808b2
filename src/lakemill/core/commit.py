"""A commit as data: what will change (updates) and what must still be true (requirements), with the pure decisions.

Between the executor, which stages files, and ``lake/publish``, which writes one transaction. An intent is built once and
survives retries: same publish id, same files. What the catalog says at the moment of the commit comes in as ``Facts``;
``conflicts`` judges it, ``after_failure`` says whether to try again. No I/O, no clock, no randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias
from uuid import UUID

from lakemill.core.changes import COMPACTIONS, DELETES, FLUSHES, INSERTS, SHAPES, kinds_for, parse_changes
from lakemill.core.schema import Column, NameMap
from lakemill.core.statistics import FileColumn


# ---------------------------------------------------------------- files
@dataclass(frozen=True, slots=True)
class Partition:
    """The partition spec that a file was written by, and its value per key (None is NULL)."""

    partition_id: int
    values: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class NewFile:
    """A staged data file, complete: it exists, its footer was read back, its statistics are exact or absent.

    ``relative`` paths start at the table's folder. ``keeps_row_ids``: the row ids are in the file. ``begin`` and
    ``partial_max`` are for merged files only, whose rows carry the snapshots they came from.
    """

    path: str
    record_count: int
    size_bytes: int
    footer_size: int
    columns: tuple[FileColumn, ...] = ()
    relative: bool = True
    partition: Partition | None = None
    mapping: tuple[NameMap, ...] | None = None
    keeps_row_ids: bool = False
    begin: int | None = None
    partial_max: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """All deleted positions of one data file, strictly increasing; it takes the place of the live one, if any."""

    data_file_id: int
    replaces: int | None
    path: str
    delete_count: int
    size_bytes: int
    footer_size: int
    relative: bool = True


@dataclass(frozen=True, slots=True)
class MergedDeletes:
    """Deleted positions of a merged file (by its place among the merged files), each with its snapshot id."""

    file: int
    begin: int
    path: str
    delete_count: int
    size_bytes: int
    footer_size: int
    relative: bool = True


# ---------------------------------------------------------------- updates
@dataclass(frozen=True, slots=True)
class AddFiles:
    table_id: int
    files: tuple[NewFile, ...]


@dataclass(frozen=True, slots=True)
class DeletePositions:
    table_id: int
    delete_files: tuple[DeleteFile, ...]


@dataclass(frozen=True, slots=True)
class EndFiles:
    """Whole data files disappear from this snapshot on; older snapshots keep them."""

    table_id: int
    data_file_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MergeFiles:
    """Compaction: the sources vanish from *every* snapshot, the merged files stand in for them in each."""

    table_id: int
    source_ids: tuple[int, ...]
    files: tuple[NewFile, ...]
    delete_files: tuple[MergedDeletes, ...] = ()


@dataclass(frozen=True, slots=True)
class SwapGeneration:
    """The generation table takes the name; the table that held it, if any, is dropped."""

    schema_id: int
    schema: str
    name: str
    old_table_id: int | None
    table_id: int


@dataclass(frozen=True, slots=True)
class DropTable:
    table_id: int


@dataclass(frozen=True, slots=True)
class RenameTable:
    table_id: int
    schema_id: int
    schema: str
    name: str


Update: TypeAlias = AddFiles | DeletePositions | EndFiles | MergeFiles | SwapGeneration | DropTable | RenameTable


# ---------------------------------------------------------------- requirements
class Purpose(Enum):
    """Why a commit cares about what others did to the table since its base."""

    APPEND = "append"  # blind: only the table's shape matters
    CHANGE = "change"  # rows were read and are deleted or rewritten: anything matters
    EQUATION = "equation"  # a dynamic table or its state: no foreign data change at all
    MERGE = "merge"  # compaction: only what touches its source files or the shape
    GENERATION = "generation"  # a table that nobody else should know yet


_HURTS: Mapping[Purpose, frozenset[str]] = {
    # altered_table is left to SameColumns and SamePartition: a comment or a sort order does not hurt an append
    Purpose.APPEND: frozenset({"dropped_table"}),
    Purpose.CHANGE: INSERTS | DELETES | FLUSHES | COMPACTIONS | SHAPES,
    # compaction changes no rows; the files that a delete names are checked one by one
    Purpose.EQUATION: INSERTS | DELETES | SHAPES,
    # inlined deletes name source files by id without a trace on the file's own rows; flushing moves them
    Purpose.MERGE: frozenset({"inlined_delete"}) | FLUSHES | SHAPES,
    Purpose.GENERATION: INSERTS | DELETES | FLUSHES | SHAPES,
}


@dataclass(frozen=True, slots=True)
class NoConflict:
    table_id: int
    base_snapshot: int
    purpose: Purpose


@dataclass(frozen=True, slots=True)
class SameColumns:
    table_id: int
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class SamePartition:
    table_id: int
    partition_id: int | None


@dataclass(frozen=True, slots=True)
class FilesUnchanged:
    """These data files are live, each with exactly this live delete file (None: with none)."""

    table_id: int
    files: tuple[tuple[int, int | None], ...]


@dataclass(frozen=True, slots=True)
class NameFree:
    schema_id: int
    name: str


@dataclass(frozen=True, slots=True)
class NameHeldBy:
    schema_id: int
    name: str
    table_id: int


@dataclass(frozen=True, slots=True)
class Check:
    """Any other condition on our own rows (a claim, a frontier, a cursor): raises to refuse. Runs inside the transaction,
    after the snapshot row, with its cursor and the new snapshot id; short statements only."""

    name: str
    run: Callable[[Any, int], None]


Requirement: TypeAlias = NoConflict | SameColumns | SamePartition | FilesUnchanged | NameFree | NameHeldBy | Check


@dataclass(frozen=True, slots=True)
class Intent:
    publish_id: UUID
    updates: tuple[Update, ...]
    requirements: tuple[Requirement, ...] = ()
    author: str | None = None
    message: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def table_ids(self) -> tuple[int, ...]:
        """Every table that an update or a requirement names."""
        ids: dict[int, None] = {}
        for item in (*self.updates, *self.requirements):
            for name in ("table_id", "old_table_id"):
                value = getattr(item, name, None)
                if value is not None:
                    ids[value] = None
        return tuple(ids)


# ---------------------------------------------------------------- judging
@dataclass(frozen=True, slots=True)
class Facts:
    """What the catalog says under the commit lock, as far as the intent asks."""

    snapshot_id: int
    """The snapshot that this commit makes."""
    labels: Mapping[int, str | None] = field(default_factory=dict)
    """changes_made of the snapshots after the oldest base that may concern the intent's tables."""
    snapshots: Sequence[int] = ()
    """All snapshot ids after the oldest base, without the new one."""
    live: frozenset[int] = frozenset()
    """Which of the intent's tables are live."""
    columns: Mapping[int, tuple[Column, ...]] = field(default_factory=dict)
    partitions: Mapping[int, int] = field(default_factory=dict)
    names: Mapping[tuple[int, str], tuple[int, ...]] = field(default_factory=dict)
    """Live tables and views by (schema id, name)."""
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
            holders = facts.names.get((requirement.schema_id, requirement.name), ())
            wanted = (requirement.table_id,) if isinstance(requirement, NameHeldBy) else ()
            if holders != wanted:
                found.append(Conflict(_name_reason(requirement.name, holders, wanted), takes_name=True))
    if facts.stale_files:
        some = ", ".join(str(i) for i in facts.stale_files[:5])
        found.append(Conflict(f"data files were ended, deleted from or replaced meanwhile: {some}"))
    return tuple(dict.fromkeys(found))


def _implied_names(intent: Intent) -> list[NameFree | NameHeldBy]:
    """A name is given only when it is free, or held by the table that is replaced (traps 6: the catalog has no key on it)."""
    implied: list[NameFree | NameHeldBy] = []
    for update in intent.updates:
        if isinstance(update, SwapGeneration) and update.old_table_id is not None:
            implied.append(NameHeldBy(update.schema_id, update.name, update.old_table_id))
        elif isinstance(update, SwapGeneration | RenameTable):
            implied.append(NameFree(update.schema_id, update.name))
    return implied


def wanted_names(intent: Intent) -> tuple[tuple[int, str], ...]:
    """The names whose holders the facts must tell."""
    asked = (*intent.requirements, *_implied_names(intent))
    return tuple({(r.schema_id, r.name): None for r in asked if isinstance(r, NameFree | NameHeldBy)})


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
    since = sorted(s for s in facts.snapshots if base < s < facts.snapshot_id)
    if purpose is not Purpose.APPEND and len(since) != facts.snapshot_id - 1 - base:
        # labels decide only when none is missing (traps 4)
        return [f"snapshots after {base} were expired, so nobody can say what happened to table {table_id}"]
    reasons = []
    for snapshot in since:
        if snapshot not in facts.labels:
            continue
        text = facts.labels[snapshot]
        if text is None and purpose is not Purpose.APPEND:
            reasons.append(f"snapshot {snapshot} does not say what it changed")
            continue
        kinds = kinds_for(parse_changes(text), table_id) & _HURTS[purpose]
        if kinds:
            reasons.append(f"table {table_id} was changed at snapshot {snapshot} ({', '.join(sorted(kinds))})")
    return reasons


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


# ---------------------------------------------------------------- labels
def changes_made(intent: Intent) -> str:
    """The label of the snapshot, in the words of the DuckLake extension."""
    labels: dict[str, None] = {}
    for update in intent.updates:
        for label in _labels(update):
            labels[label] = None
    return ",".join(labels)


def _labels(update: Update) -> list[str]:
    match update:
        case AddFiles(table_id):
            return [f"inserted_into_table:{table_id}"]
        case DeletePositions(table_id) | EndFiles(table_id):
            return [f"deleted_from_table:{table_id}"]
        case MergeFiles(table_id):
            return [f"merge_adjacent:{table_id}"]
        case DropTable(table_id):
            return [f"dropped_table:{table_id}"]
        case SwapGeneration(_, schema, name, old):
            dropped = [] if old is None else [f"dropped_table:{old}"]
            return [*dropped, f"created_table:{_quote(schema)}.{_quote(name)}"]
        case RenameTable(_, _, schema, name):
            return [f"created_table:{_quote(schema)}.{_quote(name)}"]


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
