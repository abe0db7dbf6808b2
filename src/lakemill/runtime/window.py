"""What a refresh stands on: its sources at both ends, what changed in them, and whether the past can be used.

Lines 5 and 6 of a refresh. Everything is read from the catalog in one transaction and counted before Spark is asked.
A supplier is read at the commit of its version that is right at b, a base table at b itself. What can't be used says
why, in the words of the error that a delta would have raised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from lakemill.core.changes import DELETES, INSERTS, SHAPES
from lakemill.core.ducktypes import parse
from lakemill.core.names import QualifiedName, fold
from lakemill.core.plan import Reason, Shape, SourceSize, wanted_states
from lakemill.core.scan import ReadPlan, Snapshot, TableAt
from lakemill.core.schema import duck_type
from lakemill.core.state import column_types
from lakemill.errors import (
    ColumnsChanged,
    FrontierMoved,
    HistoryError,
    NameTaken,
    SnapshotGone,
    TableReplaced,
    UnknownTable,
)
from lakemill.lake.catalog import Catalog
from lakemill.lake.scan import Recorded, check_recorded, delta_in, rows_of, scan_in
from lakemill.spark.ends import NOTHING
from lakemill.store import definitions, versions
from lakemill.store.definitions import DynamicTable, Source, SourceKind
from lakemill.store.versions import Frontier, SourceRead

if TYPE_CHECKING:
    from lakemill.core.algebra import End
    from lakemill.runtime.open import Lake

FOREIGN = INSERTS | DELETES | SHAPES
STATE_LOST = Reason("STATE_LOST", "its hidden state is not as it was left", "leave the schema _lakemill to Lakemill")


@dataclass(frozen=True, slots=True)
class SourceWindow:
    """One source between the ends: (``a``, ``b``] are snapshots of its own, commits where it is a dynamic table."""

    source: Source
    table: TableAt
    a: int | None
    b: int
    scan: ReadPlan
    rows: int
    delta: ReadPlan | None = None

    @property
    def changed(self) -> bool:
        return self.delta is None or not self.delta.empty

    @property
    def size(self) -> SourceSize:
        scan, delta = self.scan, self.delta
        if delta is None:
            return SourceSize(self.rows, scan.bytes_to_read, self.rows, scan.bytes_to_read, changed=True)
        return SourceSize(
            self.rows, scan.bytes_to_read, delta.rows_changed, delta.bytes_to_read, self.changed, _only_inserts(delta)
        )

    @property
    def read(self) -> SourceRead:
        return SourceRead(self.table.id, self.table.columns_version, self.b, self.rows)

    @property
    def types(self) -> Mapping[str, str]:
        return {fold(column.name): duck_type(column) for column in self.table.columns}


@dataclass(frozen=True, slots=True)
class StateWindow:
    """A hidden state as the last refresh left it."""

    table: TableAt
    scan: ReadPlan
    read: SourceRead

    @property
    def size(self) -> SourceSize:
        return SourceSize(self.scan.rows_to_read, self.scan.bytes_to_read)

    @property
    def types(self) -> Mapping[str, str]:
        return {column.name: duck_type(column) for column in self.table.columns}


@dataclass(frozen=True, slots=True)
class Window:
    sources: tuple[SourceWindow, ...]
    lost: Reason | None = None
    """Why the past can't be used; None when it can."""
    states: tuple[StateWindow, ...] = ()
    """Where ``lost`` is told, for nothing but to be compared with what they should be."""
    head: int = 0
    """Up to which snapshot it was seen that nobody else wrote its table and its states."""


def look(
    lake: Lake,
    table: DynamicTable,
    sources: Sequence[Source],
    frontier: Frontier | None,
    b: Snapshot,
    t: datetime,
) -> Window:
    """All sources at b, and from where the frontier stands; without a frontier nothing is compared."""
    lost: Reason | None = None
    windows = []
    stamps = lake.front.stamps
    with lake.catalog() as catalog:
        _require_name(catalog, table)
        known = {read.table_id: read for read in frontier.sources} if frontier else {}
        if frontier is not None and (reason := _own_table(catalog, table, frontier)) is not None:
            lost = reason
        for source in sources:
            if source.kind is SourceKind.VIEW:
                if not _same_view(catalog, source, b):
                    lost = lost or Reason("VIEW_CHANGED", f"the view {source.name} is another one by now")
                continue
            found, snapshot = _at_b(lake, catalog, source, b, t)
            scan = scan_in(catalog, stamps, found, snapshot)
            window = SourceWindow(source, found, None, snapshot.id, scan, rows_of(scan, stamps))
            if frontier is not None and lost is None:
                try:
                    window = _since(catalog, lake, window, known.get(found.id), snapshot)
                except HistoryError as error:
                    lost = Reason(error.code, error.message, error.remedy or None)
            windows.append(window)
        states, left = _states(catalog, lake, frontier) if frontier is not None else ((), True)
        head = catalog.head().id
    return Window(tuple(windows), lost if left else lost or STATE_LOST, states, head)


def states_fit(shape: Shape, window: Window) -> bool:
    """Whether the states that are there are those that the query's shape asks for; where it asks for none, any are."""
    wanted = wanted_states(shape)
    if not wanted:
        return True
    types = [source.types for source in window.sources]
    have = [[(name, parse(type_)) for name, type_ in state.types.items()] for state in window.states]
    return have == [[(name, parse(type_)) for name, type_ in column_types(state, types)] for state in wanted]


def _states(catalog: Catalog, lake: Lake, frontier: Frontier) -> tuple[tuple[StateWindow, ...], bool]:
    """The hidden states, read where they are now, and whether they are known to be as they were left.

    None where somebody else changed one: they are made anew. Where that can't be known, because the commit that left
    one was expired, what they hold can be compared, and no more.
    """
    head = catalog.head()
    found, left = [], True
    for read in frontier.states:
        table = catalog.table_by_id(read.table_id, head.id)
        kept = not gone(catalog, read.commit)
        if table is None or (kept and not catalog.untouched(table.id, read.commit, head.id, FOREIGN)):
            return (), False
        try:
            found.append(StateWindow(table, scan_in(catalog, lake.front.stamps, table, head), read))
        except HistoryError:
            return (), False
        left = left and kept
    return tuple(found), left


def unchanged(lake: Lake, table: DynamicTable, sources: Sequence[Source], frontier: Frontier, b: Snapshot) -> bool:
    """Whether nothing that it reads, and nobody else, changed anything since: asked of the labels of all commits.

    The quick answer for most refreshes; False also where it can't be known.
    """
    if frontier.version.definition_version != table.definition_version or frontier.version.t is not None:
        return False
    with lake.catalog() as catalog:
        if gone(catalog, frontier.version.commit):
            return False
        since = catalog.touched(frontier.version.b_hi, b.id)
        own = catalog.touched(frontier.version.commit, b.id)
        if since is None or own is None or frontier.version.table_id in own:
            return False
        read = {read.table_id: read.commit for read in frontier.sources}
        if since & read.keys():
            return False
        # a RENAME is labelled as a creation, without an id: who has a name is asked by name
        if catalog.table_id(table.name.schema, table.name.name, b.id) != frontier.version.table_id:
            return False
        for source in sources:
            name = source.name
            if source.kind is SourceKind.VIEW:
                if not _same_view(catalog, source, b):
                    return False
            elif source.kind is SourceKind.TABLE and catalog.table_id(name.schema, name.name, b.id) not in read:
                return False
        for source in sources:
            if source.supplier_id is not None:
                version = versions.version_at(lake.conn, source.supplier_id, b.id)
                if version is None or read.get(version.table_id) != version.commit or gone(catalog, version.commit):
                    return False
                if version.definition_version != definitions.by_id(lake.conn, source.supplier_id).definition_version:
                    return False
                if version.b_lo > frontier.version.b_hi:  # it was something else in between
                    return False
    return True


def _same_view(catalog: Catalog, source: Source, b: Snapshot) -> bool:
    view = catalog.view(source.name.schema, source.name.name, b.id)
    return view is not None and view.id == source.table_id


def gone(catalog: Catalog, snapshot: int) -> bool:
    """Whether somebody expired it: no version can be read at such a commit."""
    try:
        catalog.snapshot(snapshot)
    except SnapshotGone:
        return True
    return False


def narrowed(plan: ReadPlan, names: Sequence[str]) -> ReadPlan:
    """The plan for these columns only; one column where none is needed, since rows must be counted."""
    kept = tuple(column for column in plan.table.columns if fold(column.name) in names) or plan.table.columns[:1]
    return replace(plan, table=replace(plan.table, columns=kept))


def plan_leaf(lake: Lake, window: SourceWindow, end: End, where: str | None = None) -> ReadPlan:
    """What a leaf of the plan reads; files that ``where`` rules out are left out."""
    if end == "delta":
        assert window.delta is not None  # noqa: S101  (only deltas of sources that have one are asked for)
        return window.delta
    if where == NOTHING:
        return ReadPlan(window.table, None, window.b, ())
    if end == "b" and where is None:
        return window.scan
    at = window.b if end == "b" else window.a
    assert at is not None  # noqa: S101
    with lake.catalog() as catalog:
        snapshot = catalog.snapshot(at)
        found = catalog.table_by_id(window.table.id, snapshot.id)
        assert found is not None  # noqa: S101  (it was read when the window was)
        plan: ReadPlan = scan_in(catalog, lake.front.stamps, found, snapshot, where)
        return plan


def _at_b(lake: Lake, catalog: Catalog, source: Source, b: Snapshot, t: datetime) -> tuple[TableAt, Snapshot]:
    if source.supplier_id is None:
        return catalog.table(source.name.schema, source.name.name, b.id), b
    supplier = definitions.by_id(lake.conn, source.supplier_id)
    version = versions.version_at(lake.conn, source.supplier_id, b.id, t)
    if version is None or version.definition_version != supplier.definition_version:
        raise FrontierMoved(f"{supplier.name} has no version at data snapshot {b.id}", remedy="refresh it first")
    if gone(catalog, version.commit):
        told = f"{supplier.name} can't be read at its commit {version.commit} any more, which was expired"
        raise FrontierMoved(told, remedy="refresh it first")
    snapshot = catalog.snapshot(version.commit)
    found = catalog.table_by_id(version.table_id, snapshot.id)
    if found is None:
        raise UnknownTable(f"the table of {supplier.name} is gone")
    return found, snapshot


def _since(
    catalog: Catalog, lake: Lake, window: SourceWindow, recorded: SourceRead | None, b: Snapshot
) -> SourceWindow:
    table = window.table
    if recorded is None:
        raise TableReplaced(f"{table.full_name} is not the table that was read before")
    a = catalog.snapshot(recorded.commit)
    if window.source.supplier_id is None:
        check_recorded(catalog, lake.front.stamps, table, a, Recorded(recorded.table_id, None, recorded.rows))
    if recorded.columns_version != table.columns_version:
        _check_columns(catalog, window, a)
    return replace(window, a=a.id, delta=delta_in(catalog, lake.front.stamps, table, a, b))


def _check_columns(catalog: Catalog, window: SourceWindow, a: Snapshot) -> None:
    """Columns that the query does not use may come, go and change; those that it uses may not."""
    before = catalog.table_by_id(window.table.id, a.id)
    old, new = (
        {fold(column.name): column for column in (found.columns if found else ())} for found in (before, window.table)
    )
    for name in window.source.columns:
        if old.get(name) != new.get(name):
            raise ColumnsChanged(f"column {name!r} of {window.table.full_name} was altered")


def _require_name(catalog: Catalog, table: DynamicTable) -> None:
    """Somebody else's table or view of its name is not ours to replace."""
    schema, name, head = table.name.schema, table.name.name, catalog.head().id
    found = catalog.table_id(schema, name, head)
    if catalog.view(schema, name, head) is not None or found not in (None, table.table_id):
        raise NameTaken(
            f"somebody else made another table or view {table.name}",
            remedy="drop or rename that one, and the dynamic table has its name again",
        )


def _own_table(catalog: Catalog, table: DynamicTable, frontier: Frontier) -> Reason | None:
    """Whether somebody else wrote the dynamic table's own table since our last commit."""
    version = frontier.version
    if version.definition_version != table.definition_version:
        return Reason("DEFINITION_CHANGED", "its definition is another one than that of its content")
    if table.stale_since is not None:
        told = "it was left behind for longer than upkeep.retention, and its past is no longer kept"
        return Reason("STALE", told, "resume it sooner, or keep snapshots for longer")
    if gone(catalog, version.commit):
        return Reason("SNAPSHOT_GONE", f"its commit {version.commit} was expired, which nobody can read any more")
    head = catalog.head()
    own = catalog.table_by_id(version.table_id, head.id)
    if own is None:
        return Reason("FOREIGN_WRITE", "somebody dropped its table")
    if QualifiedName(own.schema, own.name) != table.name:
        return Reason("FOREIGN_WRITE", "somebody renamed its table")
    if not catalog.untouched(own.id, version.commit, head.id, FOREIGN):
        return Reason("FOREIGN_WRITE", "somebody else changed its table", "write to its sources instead")
    return None


def _only_inserts(delta: ReadPlan) -> bool:
    files = all(read.at_b and not read.at_a for read in delta.files)
    began = delta.a if delta.a is not None else -1
    rows = (row for inlined in delta.inlined_rows for row in inlined.rows)
    return (
        files
        and not delta.inlined_deletes
        and all(read.cut_a < 0 for read in delta.deletes)
        and all(begin > began for _, begin, *_ in rows)
    )
