"""What will be read, as a frozen value: the files, delete positions and inlined rows behind a scan or a delta.

A *scan at b* is the bag of rows visible at snapshot ``b``; a *delta over (a, b]* gives each row the weight
[visible at b] − [visible at a]. Both are one ``ReadPlan``: a scan is a plan without ``a``. ``lake/scan.py`` fills it
from the catalog in one transaction, ``spark/inputs.py`` turns it into a DataFrame, and its counts are known before
Spark is asked. Here are only values and the decisions on them; nothing is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from lakemill.core.schema import Column, NameMap
from lakemill.errors import CatalogInconsistent, UnsupportedLake

NONE_DELETED = -1
ALL_DELETED = 2**63 - 1


class Snapshot(NamedTuple):
    id: int
    time: datetime
    schema_version: int
    next_file_id: int


class DataFile(NamedTuple):
    """A row of ``ducklake_data_file`` (a tuple: a plan over a big table holds a million of them)."""

    id: int
    path: str
    begin: int
    end: int | None
    partial_max: int | None
    rows: int
    bytes: int
    row_id_start: int | None
    mapping_id: int | None
    partition_id: int | None
    encrypted: bool
    format: str

    def live(self, at: int) -> bool:
        return self.begin <= at and (self.end is None or self.end > at)


class DeleteFile(NamedTuple):
    id: int
    data_file_id: int
    path: str
    begin: int
    end: int | None
    positions: int
    bytes: int
    partial_max: int | None
    encrypted: bool
    format: str

    def live(self, at: int) -> bool:
        return self.begin <= at and (self.end is None or self.end > at)


class InlinedDelete(NamedTuple):
    data_file_id: int
    position: int
    begin: int


@dataclass(frozen=True, slots=True)
class TableAt:
    """A table as the catalog has it at one snapshot."""

    id: int
    uuid: str
    schema_id: int
    schema: str
    name: str
    path: str
    columns: tuple[Column, ...]
    columns_version: int

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class View:
    """A view of the lake: its query as text, and the names of its columns where it was given some, as text too."""

    id: int
    schema: str
    name: str
    sql: str
    aliases: str


@dataclass(frozen=True, slots=True)
class InlinedRows:
    """Rows that live in the catalog: text as PostgreSQL holds it, with the columns of their schema version."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]  # (row_id, begin, end, *values)


@dataclass(frozen=True, slots=True)
class FileRead:
    """One data file to open, and at which of the two ends it is live."""

    file: DataFile
    at_a: bool
    at_b: bool
    came: int | None = None
    """Of a merged file that is live at both: how many of its rows came in between; None where that was not counted."""


@dataclass(frozen=True, slots=True)
class DeleteRead:
    """One delete file to open: positions whose stamp is ≤ the cut are deleted at that end (no stamp counts as 0)."""

    file: DeleteFile
    cut_a: int
    cut_b: int
    earlier: int = 0
    """How many positions are known to be deleted at a already; 0 where its stamps were not counted."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    table: TableAt
    a: int | None
    b: int
    files: tuple[FileRead, ...]
    deletes: tuple[DeleteRead, ...] = ()
    inlined_deletes: tuple[InlinedDelete, ...] = ()
    inlined_rows: tuple[InlinedRows, ...] = ()
    mappings: Mapping[int, tuple[NameMap, ...]] = field(default_factory=dict)
    retyped: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Columns whose type has changed in a way that Spark's reader can't follow, with the types they have had."""
    absent: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """By path: columns, of those asked for, that the file lacks."""
    stored_as: Mapping[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    """By path: columns that the file holds in another type than the table's, with that type."""
    pruned: int = 0  # files left out because their statistics exclude the predicate

    @property
    def rows_to_read(self) -> int:
        return sum(read.file.rows for read in self.files) + sum(len(inlined.rows) for inlined in self.inlined_rows)

    @property
    def rows_changed(self) -> int:
        """How many rows a delta can hold at most: of a file that is live at both ends only what was deleted meanwhile.

        Where rows carry stamps that nobody counted it says more than there are.
        """
        both = {
            read.file.id: read.came or 0
            for read in self.files
            if read.at_a and read.at_b and (read.file.partial_max is None or read.came is not None)
        }
        total = sum(both.get(read.file.id, read.file.rows) for read in self.files)
        for delete in self.deletes:
            if delete.file.data_file_id in both:
                total -= delete.file.positions if delete.cut_a == ALL_DELETED else delete.earlier
                total += delete.file.positions if delete.cut_b != NONE_DELETED else 0
        total += sum(delete.data_file_id in both for delete in self.inlined_deletes)
        return max(total, 0) + sum(len(inlined.rows) for inlined in self.inlined_rows)

    @property
    def bytes_to_read(self) -> int:
        return sum(read.file.bytes for read in self.files) + sum(read.file.bytes for read in self.deletes)

    @property
    def positions(self) -> int:
        """How many delete positions the plan reads at most."""
        return sum(read.file.positions for read in self.deletes) + len(self.inlined_deletes)

    @property
    def empty(self) -> bool:
        """Nothing can have changed (or the table has no rows): Spark need not be asked."""
        return not self.files and not any(inlined.rows for inlined in self.inlined_rows)


def check_readable(files: Iterable[DataFile], deletes: Iterable[DeleteFile], table: str) -> None:
    """Refuse, by name, what Spark's Parquet reader can't read exactly."""
    for file in files:
        if file.encrypted:
            raise UnsupportedLake(f"{table} has encrypted files", remedy="read this table with DuckDB")
        if file.format != "parquet":
            raise UnsupportedLake(f"{table} has a data file of format {file.format!r}", remedy="read it with DuckDB")
        name = file.path.rsplit("/", 1)[-1]
        if name.startswith(("_", ".")):
            raise UnsupportedLake(
                f"{table} has a data file named {name!r}; Spark takes such names as hidden and would skip its rows",
                remedy="rewrite the table with DuckDB, or add the file under another name",
            )
    for delete in deletes:
        if delete.encrypted:
            raise UnsupportedLake(f"{table} has encrypted delete files", remedy="read this table with DuckDB")
        if delete.format != "parquet":
            raise UnsupportedLake(
                f"{table} has a delete file of format {delete.format!r}",
                remedy="switch deletion vectors off and rewrite the table with DuckDB, or read it with DuckDB",
            )


def live_delete_by_file(deletes: Sequence[DeleteFile], at: int, table: str) -> dict[int, DeleteFile]:
    """The one live delete file of each data file. Two of them is a catalog that stock DuckDB misreads too."""
    found: dict[int, DeleteFile] = {}
    for delete in deletes:
        if not delete.live(at):
            continue
        if delete.data_file_id in found:
            raise CatalogInconsistent(
                f"data file {delete.data_file_id} of {table} has two live delete files at snapshot {at}"
            )
        found[delete.data_file_id] = delete
    return found


def combine_cuts(
    at_a: Mapping[int, tuple[DeleteFile, int]], at_b: Mapping[int, tuple[DeleteFile, int]]
) -> tuple[DeleteRead, ...]:
    """Per data file, the delete files of both ends and how far each counts → what to open, each file once."""
    cuts: dict[int, tuple[DeleteFile, list[int]]] = {}
    for side, ends in ((0, at_a), (1, at_b)):
        for file, cut in ends.values():
            cuts.setdefault(file.id, (file, [NONE_DELETED, NONE_DELETED]))[1][side] = cut
    return tuple(DeleteRead(file, a, b) for file, (a, b) in cuts.values() if (a, b) != (NONE_DELETED, NONE_DELETED))


def delete_state_changed(
    file_id: int,
    at_a: Mapping[int, tuple[DeleteFile, int]],
    at_b: Mapping[int, tuple[DeleteFile, int]],
    inlined: Mapping[int, Sequence[InlinedDelete]],
    a: int,
    b: int,
) -> bool:
    """Whether the deleted positions of a file that is live at both ends can differ between them."""
    if any(a < delete.begin <= b for delete in inlined.get(file_id, ())):
        return True
    left, right = at_a.get(file_id), at_b.get(file_id)
    if left is None or right is None:
        return left is not right
    return (left[0].id, left[1]) != (right[0].id, right[1])
