"""A commit as data: what will change (updates) and what must still be true (requirements).

Between the executor, which stages files, and ``lake/publish``, which writes one transaction. An intent is built once
and survives retries: same publish id, same files. ``core/conflict`` judges it against the catalog of the moment. Values
only: no I/O, no clock, no randomness; even the publish id comes from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias
from uuid import UUID

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
    own: int | None = None
    """The table that may have the name already, in other letters."""


@dataclass(frozen=True, slots=True)
class NameHeldBy:
    schema_id: int
    name: str
    table_id: int


@dataclass(frozen=True, slots=True)
class Check:
    """Any other condition on our own rows (a claim, a frontier, a cursor): raises to refuse.

    Runs inside the transaction, after the snapshot row, with its cursor and the new snapshot id: short statements only.
    """

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

    def changes_schema(self) -> bool:
        """Whether names change: DuckDB caches them by schema version."""
        return any(isinstance(update, SwapGeneration | DropTable | RenameTable) for update in self.updates)

    def table_ids(self) -> tuple[int, ...]:
        """Every table that an update or a requirement names."""
        ids: dict[int, None] = {}
        for item in (*self.updates, *self.requirements):
            for name in ("table_id", "old_table_id"):
                value = getattr(item, name, None)
                if value is not None:
                    ids[value] = None
        return tuple(ids)


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
        # Stock DuckDB checks an inlined delete that is open meanwhile only against a flush: without that word it would
        # be lost with the file that it names. A delete file of ours carries no stamps, so nobody is misled.
        case DeletePositions(table_id) | EndFiles(table_id):
            return [f"deleted_from_table:{table_id}", f"inline_flush:{table_id}"]
        case MergeFiles(table_id):
            return [f"merge_adjacent:{table_id}", f"inline_flush:{table_id}"]
        case DropTable(table_id):
            return [f"dropped_table:{table_id}"]
        case SwapGeneration(_, schema, name, old):
            dropped = [] if old is None else [f"dropped_table:{old}"]
            return [*dropped, f"created_table:{_quote(schema)}.{_quote(name)}"]
        case RenameTable(_, _, schema, name):
            return [f"created_table:{_quote(schema)}.{_quote(name)}"]


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
