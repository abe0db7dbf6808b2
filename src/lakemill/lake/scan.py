"""Plan a scan or a delta: the catalog's rows at one or two snapshots → a ``ReadPlan``.

Everything is read in one transaction (``catalog.reading``). Nothing is computed by Spark here and no user data is
read, inlined rows aside; a plan knows how many rows and bytes it will read. A delta fails closed, each reason with its
own code: the table was replaced, its columns or row count differ from what the caller recorded, a snapshot is gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import psycopg

from lakemill.core.prune import conditions
from lakemill.core.scan import (
    ALL_DELETED,
    NONE_DELETED,
    DeleteFile,
    DeleteRead,
    FileRead,
    InlinedDelete,
    ReadPlan,
    Snapshot,
    TableAt,
    check_readable,
    combine_cuts,
    delete_state_changed,
    live_delete_by_file,
)
from lakemill.core.schema import filled_by_us, widened_by_reader
from lakemill.core.timing import deleted_up_to
from lakemill.errors import BadArgument, ColumnsChanged, RowCountDiffers, TableReplaced, UnknownTable, UnsupportedLake
from lakemill.lake.catalog import Catalog, reading
from lakemill.lake.stamps import Stamps
from lakemill.lake.tables import GENERATION_PREFIX

Cuts: TypeAlias = Mapping[int, tuple[DeleteFile, int]]


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a consumer wrote down about a table when it read it at ``a``; None means not recorded."""

    table_id: int | None = None
    columns_version: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Lakefront:
    """Where a plan gets its facts: a PostgreSQL connection, the catalog's schema, and DuckDB for stamps."""

    conn: psycopg.Connection[Any]
    schema: str
    stamps: Stamps


def plan_scan(front: Lakefront, schema: str, name: str, at: int | None = None, where: str | None = None) -> ReadPlan:
    """The rows of a table visible at a snapshot (the newest when None)."""
    with reading(front.conn, front.schema) as catalog:
        snapshot = catalog.head() if at is None else catalog.snapshot(at)
        return scan_in(catalog, front.stamps, catalog.table(schema, name, snapshot.id), snapshot, where)


def plan_delta(
    front: Lakefront, schema: str, name: str, a: int, b: int | None = None, recorded: Recorded | None = None
) -> ReadPlan:
    """What changed over (a, b], in the columns of b."""
    with reading(front.conn, front.schema) as catalog:
        first = catalog.snapshot(a)
        last = catalog.head() if b is None else catalog.snapshot(b)
        if last.id < first.id:
            raise BadArgument(f"a delta goes forward: {first.id} is after {last.id}", remedy="swap the two snapshots")
        table = catalog.table(schema, name, last.id)
        check_recorded(catalog, front.stamps, table, first, recorded or Recorded())
        return delta_in(catalog, front.stamps, table, first, last)


def scan_in(catalog: Catalog, stamps: Stamps, table: TableAt, at: Snapshot, where: str | None = None) -> ReadPlan:
    retyped = _retyped(catalog, table)
    # bounds of a file that is older than such a change of type are spelled in the old type
    wanted = [condition for condition in conditions(where, table.columns) if condition.column_id not in retyped]
    files = catalog.files(table, at.id, wanted)
    pruned = catalog.file_count(table, at.id) - len(files) if wanted else 0
    kept = {file.id for file in files}
    deletes = [delete for delete in catalog.deletes_at(table, at.id) if delete.data_file_id in kept]
    inlined = [delete for delete in catalog.inlined_deletes(table.id, at.id) if delete.data_file_id in kept]
    check_readable(files, deletes, table.full_name)
    cuts = _cuts(catalog, stamps, table, deletes, at)
    return ReadPlan(
        table=table,
        a=None,
        b=at.id,
        files=tuple(FileRead(file, at_a=False, at_b=True) for file in files),
        deletes=combine_cuts({}, cuts),
        inlined_deletes=tuple(inlined),
        inlined_rows=tuple(catalog.inlined_rows(table, None, at.id)),
        mappings=_mappings(catalog, files),
        retyped=retyped,
        pruned=pruned,
    )


def delta_in(catalog: Catalog, stamps: Stamps, table: TableAt, a: Snapshot, b: Snapshot) -> ReadPlan:
    inlined: dict[int, list[InlinedDelete]] = defaultdict(list)
    for delete in catalog.inlined_deletes(table.id, b.id):
        inlined[delete.data_file_id].append(delete)
    since = [file_id for file_id, found in inlined.items() if any(delete.begin > a.id for delete in found)]
    candidates = catalog.changed_files(table, a, b.id, since)
    deletes = catalog.deletes_of(table, [file.id for file in candidates], a.id, b.id)
    check_readable(candidates, deletes, table.full_name)
    cuts_a, cuts_b = (_cuts(catalog, stamps, table, deletes, end) for end in (a, b))
    reads = []
    for file in candidates:
        at_a, at_b = file.live(a.id), file.live(b.id)
        same_rows = at_a and at_b and (file.partial_max is None or file.partial_max <= a.id)
        if same_rows and not delete_state_changed(file.id, cuts_a, cuts_b, inlined, a.id, b.id):
            continue
        reads.append(FileRead(file, at_a, at_b))
    ids = {read.file.id for read in reads}
    live_a = {read.file.id for read in reads if read.at_a}
    live_b = {read.file.id for read in reads if read.at_b}
    return ReadPlan(
        table=table,
        a=a.id,
        b=b.id,
        files=_with_counts(reads, stamps, a.id, b.id),
        deletes=_counted(combine_cuts(_only(cuts_a, live_a), _only(cuts_b, live_b)), stamps),
        inlined_deletes=tuple(delete for file_id in ids for delete in inlined.get(file_id, ())),
        inlined_rows=tuple(catalog.inlined_rows(table, a.id, b.id)),
        mappings=_mappings(catalog, [read.file for read in reads]),
        retyped=_retyped(catalog, table),
    )


def as_written(plan: ReadPlan, stamps: Stamps) -> ReadPlan:
    """The plan with what only footers tell: columns that a file lacks or holds in an older type. Seldom is one read.

    ``retyped`` names columns that Spark's reader does not widen by itself: top-level ones are read in the file's own
    type, and what remains is refused by name.
    """
    columns = plan.table.columns
    paths = [read.file.path for read in plan.files if read.file.mapping_id is None]
    if ours := [column.id for column in columns if filled_by_us(column)]:
        plan = replace(plan, absent=stamps.lacking(paths, ours))
    top = {column.id: column.type for column in columns if column.id in plan.retyped}
    if top:
        named = {
            read.file.path: {entry.target: entry.source for entry in plan.mappings[read.file.mapping_id]}
            for read in plan.files
            if read.file.mapping_id is not None
        }
        plan = replace(plan, stored_as=stamps.stored_as(paths, top) | stamps.stored_by_name(named, top))
    for path, leaf in (found for column in columns for found in column.leaves()):
        if leaf.id in plan.retyped and plan.files and leaf.id not in top:
            raise UnsupportedLake(
                f"{plan.table.full_name} has files older than the last change of type of {'.'.join(path)}"
                f" ({', '.join(plan.retyped[leaf.id])}), which Spark can't read exactly",
                remedy="rewrite the table with DuckDB (CREATE OR REPLACE TABLE … AS SELECT)",
            )
    return plan


def count_rows(catalog: Catalog, stamps: Stamps, table: TableAt, at: Snapshot) -> int:
    """How many rows are visible, from the catalog and, where rows carry stamps, from those."""
    return rows_of(scan_in(catalog, stamps, table, at), stamps)


def rows_of(plan: ReadPlan, stamps: Stamps) -> int:
    """How many rows a scan will give."""
    return _visible(plan, stamps, plan.b, "at_b", "cut_b")


def expected_change(plan: ReadPlan, stamps: Stamps) -> int:
    """What the weights of a delta must add up to, counted without reading its rows."""
    assert plan.a is not None  # noqa: S101  (a scan has no change)
    return _visible(plan, stamps, plan.b, "at_b", "cut_b") - _visible(plan, stamps, plan.a, "at_a", "cut_a")


def _visible(plan: ReadPlan, stamps: Stamps, at: int, live: str, cut: str) -> int:
    files = {read.file.id: read.file for read in plan.files if getattr(read, live)}
    stamped = [file.path for file in files.values() if file.partial_max is not None and file.partial_max > at]
    # a delete file that plays no part at this end has a cut below every stamp
    deletes = [read for read in plan.deletes if read.file.data_file_id in files and getattr(read, cut) != NONE_DELETED]
    known = stamps.of([*stamped, *(read.file.path for read in deletes if getattr(read, cut) != ALL_DELETED)])
    total = sum(_up_to(known.get(file.path), at, file.rows) for file in files.values())
    inlined: dict[int, set[int]] = defaultdict(set)
    for delete in plan.inlined_deletes:
        if delete.data_file_id in files and delete.begin <= at:
            inlined[delete.data_file_id].add(delete.position)
    for read in deletes:
        total -= _up_to(known.get(read.file.path), getattr(read, cut), read.file.positions)
        if again := inlined.get(read.file.data_file_id):
            # the extension lets an inlined delete and one by file take the same row, when neither saw the other
            total += stamps.deleted(read.file.path, again, getattr(read, cut))
    total -= sum(map(len, inlined.values()))
    rows = (row for inlined in plan.inlined_rows for row in inlined.rows)
    return total + sum(1 for _, begin, end, *_ in rows if begin <= at and (end is None or end > at))


def _up_to(counts: Mapping[int, int] | None, cut: int, everything: int) -> int:
    return sum(rows for stamp, rows in counts.items() if stamp <= cut) if counts else everything


def check_recorded(catalog: Catalog, stamps: Stamps, table: TableAt, a: Snapshot, recorded: Recorded) -> None:
    """Refuse a delta that starts from what is no longer there as it was."""
    before = catalog.table_by_id(table.id, a.id)
    try:
        other = catalog.table(table.schema, table.name, a.id)
    except UnknownTable:
        if before is None or before.name.startswith(GENERATION_PREFIX):
            raise TableReplaced(f"{table.full_name} did not exist at snapshot {a.id}") from None
        other = before  # it had another name
    # A generation exists before it takes the name: what was read under the name at a was another table.
    if before is None or other.id != table.id or recorded.table_id not in (None, table.id):
        raise TableReplaced(f"{table.full_name} was replaced after snapshot {a.id} (table id {other.id} → {table.id})")
    if recorded.columns_version is not None and recorded.columns_version != table.columns_version:
        raise ColumnsChanged(
            f"the columns of {table.full_name} changed (version {recorded.columns_version} → {table.columns_version})"
        )
    if recorded.rows is not None:
        rows = count_rows(catalog, stamps, before, a)
        if rows != recorded.rows:
            raise RowCountDiffers(
                f"{table.full_name} has {rows} rows at snapshot {a.id}; {recorded.rows} were recorded when it was read"
            )


def _cuts(catalog: Catalog, stamps: Stamps, table: TableAt, deletes: Sequence[DeleteFile], at: Snapshot) -> Cuts:
    """How far each live delete file counts at a snapshot."""
    live = live_delete_by_file(deletes, at.id, table.full_name)
    # A file written at or before the snapshot counts whole; one written later was back-dated, and its stamps decide.
    later = [delete for delete in live.values() if delete.id >= at.next_file_id]
    found = stamps.of([delete.path for delete in later])
    cuts = {}
    for data_file_id, delete in live.items():
        own = sorted(found.get(delete.path, ()))
        if delete.id < at.next_file_id or not own:
            cuts[data_file_id] = (delete, ALL_DELETED)
            continue
        by = catalog.written_by(delete.id)
        labels = catalog.labels(table.id, own[0], by.latest)
        cuts[data_file_id] = (delete, deleted_up_to(own, at.id, catalog.written_by(data_file_id), by, labels))
    return cuts


def _with_counts(reads: Sequence[FileRead], stamps: Stamps, a: int, b: int) -> tuple[FileRead, ...]:
    """With how many rows of merged files came in between: after a compaction a small change is still a small one."""
    merged = [read.file.path for read in reads if read.at_a and read.at_b and read.file.partial_max is not None]
    known = stamps.of(merged) if merged else {}
    return tuple(
        replace(read, came=sum(rows for stamp, rows in known[read.file.path].items() if a < stamp <= b))
        if read.at_a and read.at_b and known.get(read.file.path)
        else read
        for read in reads
    )


def _counted(deletes: Sequence[DeleteRead], stamps: Stamps) -> tuple[DeleteRead, ...]:
    """With how many positions of each were deleted at a already: a second delete by stock DuckDB repeats the first."""
    known = stamps.of([read.file.path for read in deletes if read.cut_a not in (NONE_DELETED, ALL_DELETED)])
    return tuple(
        replace(read, earlier=_up_to(known[read.file.path], read.cut_a, 0)) if read.file.path in known else read
        for read in deletes
    )


def _retyped(catalog: Catalog, table: TableAt) -> dict[int, tuple[str, ...]]:
    """Columns with a change of type that Spark's reader and the order of bounds don't bear by themselves."""
    found = catalog.retyped(table.id)
    return {column: types for column, types in found.items() if not widened_by_reader(types)}


def _only(cuts: Cuts, live: set[int]) -> Cuts:
    return {file_id: cut for file_id, cut in cuts.items() if file_id in live}


def _mappings(catalog: Catalog, files: Sequence[Any]) -> dict[int, Any]:
    return {mapping: catalog.mapping(mapping) for mapping in {file.mapping_id for file in files} if mapping is not None}
