"""Which files of a table are merged together, and what each of their deletes means. Pure; DESIGN.md §7.

Compaction replaces files in *every* snapshot, so it may change nothing that any snapshot shows: files are merged only
within one version of the table's columns and one partition, a deleted row stays with the snapshot that deleted it as
long as a readable snapshot shows the row, and a file whose deletes can't be timed is left alone. ``lake/compaction``
gathers the sources, ``spark/compact`` writes the merged files, ``lake/publish`` puts them in place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from lakemill.core.scan import DataFile, DeleteFile, TableAt
from lakemill.core.schema import Column, stored_default, stored_type
from lakemill.core.timing import Labels, WrittenBy, possible_commits
from lakemill.errors import LakemillError

UNSTAMPED = 0
"""Stands for the stamp of a position in a delete file without stamps."""

_SMALL_GROUP = 16 * 10**6
_WORTH_ADDING = 0.1
WORTH_DROPPING = 0.25
"""The share of a group's rows that must be shown by no snapshot any more, where no policy says another."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """Positions of one delete file with one stamp: the snapshot that deleted them, and who still sees the rows."""

    path: str
    stamp: int
    at: int
    last_seen: int
    """The last readable snapshot before ``at``; rows that came later than this were never seen. −1: there is none."""
    count: int


@dataclass(frozen=True, slots=True)
class Source:
    """A live data file that could be merged, and everything that was ever deleted from it."""

    file: DataFile
    version: int
    """The snapshot at which the table's columns became what they were when the file was written."""
    partition: tuple[str | None, ...] = ()
    live_delete: int | None = None
    deleted: tuple[Deleted, ...] = ()

    @property
    def droppable(self) -> int:
        """At least so many rows are shown by no readable snapshot."""
        by_file: dict[str, int] = {}
        for group in self.deleted:
            if group.last_seen < self.file.begin:
                by_file[group.path] = by_file.get(group.path, 0) + group.count
        return max(by_file.values(), default=0)

    @property
    def bytes_left(self) -> int:
        return self.file.bytes - self.file.bytes * self.droppable // max(1, self.file.rows)


@dataclass(frozen=True, slots=True)
class Group:
    """Files that become one; ``columns`` are those of their version."""

    sources: tuple[Source, ...]
    columns: tuple[Column, ...]
    reason: str

    @property
    def begin(self) -> int:
        return min(source.file.begin for source in self.sources)

    @property
    def rows(self) -> int:
        return sum(source.file.rows for source in self.sources)

    @property
    def bytes(self) -> int:
        return sum(source.file.bytes for source in self.sources)


@dataclass(frozen=True, slots=True)
class Skipped:
    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class SortKey:
    column: Column
    ascending: bool = True
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class CompactPlan:
    table: TableAt
    base: int
    """The snapshot at which the catalog was read; nothing may have happened to the sources since."""
    groups: tuple[Group, ...]
    skipped: tuple[Skipped, ...] = ()
    sort: tuple[SortKey, ...] = ()
    by_stock: tuple[Group, ...] = ()
    """Files that Spark can't write so that DuckDB reads them; stock DuckDB merges them itself, without loss."""

    @property
    def empty(self) -> bool:
        return not self.groups and not self.by_stock


# ---------------------------------------------------------------- deletes
def last_before(readable: Sequence[int], snapshot: int) -> int:
    """The last of the readable snapshots (ascending) before this one; −1 when there is none."""
    place = bisect_left(readable, snapshot)
    return readable[place - 1] if place else -1


def time_deletes(
    delete: DeleteFile,
    counts: Mapping[int, int],
    data: WrittenBy,
    written: WrittenBy,
    labels: Labels,
    readable: Sequence[int],
) -> tuple[Deleted, ...] | None:
    """When the positions of one delete file were deleted, by stamp; None when a readable snapshot is in doubt.

    ``counts`` are its stamps with their numbers of positions, empty for a file without stamps.
    """
    if not counts:
        seen = last_before(readable, delete.begin)
        return (Deleted(delete.path, UNSTAMPED, delete.begin, seen, delete.positions),)
    stamps = sorted(counts)
    timed = []
    for index, stamp in enumerate(stamps):
        possible = possible_commits(stamps, index, data, written, labels)
        first, last = min(possible), max(possible)
        # no readable snapshot may lie where the rows are deleted by one account and not by the other
        if last_before(readable, last) >= first:
            return None
        at = max(last, delete.begin)
        timed.append(Deleted(delete.path, stamp, at, last_before(readable, at), counts[stamp]))
    return tuple(timed)


def overlapping(deletes: Iterable[DeleteFile]) -> bool:
    """Whether two delete files of one data file are live at once, which stock DuckDB misreads too."""
    lives = sorted((delete.begin, float("inf") if delete.end is None else delete.end) for delete in deletes)
    return any(end > begin for (_, end), (begin, _) in pairwise(lives))


# ---------------------------------------------------------------- columns
def unmergeable(columns: Sequence[Column]) -> str | None:
    """Why Spark can't write files with these columns that stock DuckDB reads back exactly; None when it can."""
    for column in columns:
        if column.type in ("list", "map"):
            return (
                f"column {column.name!r} is a {column.type}: Spark can't give field ids to its elements,"
                " and a file that is read by names can't carry row ids"
            )
        try:
            if column.type == "struct":
                inner = unmergeable(column.children)
                if inner is not None:
                    return inner
            else:
                stored_type(column)
            stored_default(column)
        except LakemillError as error:
            return error.message
    return None


# ---------------------------------------------------------------- groups
@dataclass(slots=True)
class _Bin:
    sources: list[Source] = field(default_factory=list)
    bytes: int = 0


def group_sources(
    sources: Iterable[Source],
    columns: Mapping[int, tuple[Column, ...]],
    target_size: int,
    worth_dropping: float = WORTH_DROPPING,
) -> tuple[Group, ...]:
    """Files of one columns version and one partition, in the order of their writing, into groups of the target size.

    A group is worth its writing when it has several files, of which the largest is not nearly all of it (else a big
    file would be written anew for every small one), or when enough rows can be dropped.
    """
    kinds: dict[tuple[int, int | None, tuple[str | None, ...]], list[Source]] = {}
    for source in sources:
        kinds.setdefault((source.version, source.file.partition_id, source.partition), []).append(source)
    groups = []
    for (version, _, _), members in sorted(kinds.items(), key=lambda kind: kind[1][0].file.id):
        for bin_ in _fill(sorted(members, key=lambda s: (s.file.begin, s.file.id)), target_size):
            reason = _worth(bin_, worth_dropping)
            if reason is not None:
                groups.append(Group(tuple(bin_.sources), columns[version], reason))
    return tuple(groups)


def _fill(sources: Sequence[Source], target_size: int) -> list[_Bin]:
    bins = [_Bin()]
    for source in sources:
        if source.bytes_left >= target_size * 3 // 4:  # large enough by itself
            bins.insert(0, _Bin([source], source.bytes_left))
            continue
        if bins[-1].bytes + source.bytes_left > target_size:
            bins.append(_Bin())
        bins[-1].sources.append(source)
        bins[-1].bytes += source.bytes_left
    return bins


def _worth(bin_: _Bin, worth_dropping: float) -> str | None:
    rows = sum(source.file.rows for source in bin_.sources)
    dropped = sum(source.droppable for source in bin_.sources)
    if rows and dropped >= worth_dropping * rows:
        return f"{dropped} of {rows} rows are shown by no snapshot any more"
    if len(bin_.sources) < 2:
        return None
    added = bin_.bytes - max(source.bytes_left for source in bin_.sources)
    if bin_.bytes <= _SMALL_GROUP or added >= _WORTH_ADDING * bin_.bytes:
        return f"{len(bin_.sources)} files become one"
    return None
