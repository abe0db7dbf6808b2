"""How dynamic tables stand: what `list` and `describe` show. It only reads, PostgreSQL and nothing else.

How each stands is asked as the scheduler asks it (`runtime/standings`), so that both say the same of a table's lag; one
that was never loaded lags since it was declared. What every refresh did is `store/history`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lakemill.core.graph import Warned, warnings
from lakemill.core.lag import Past, Standing, Version, attainment, lag_since
from lakemill.core.names import QualifiedName
from lakemill.errors import LakemillError
from lakemill.lake.listing import ListedTable, list_commits, list_tables
from lakemill.runtime.standings import Looks
from lakemill.store import definitions, history, points, versions
from lakemill.store.definitions import DynamicTable, Source, SourceKind
from lakemill.store.history import RefreshRecord
from lakemill.store.versions import Frontier, SourceRead

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake


@dataclass(frozen=True, slots=True)
class Shown:
    """A dynamic table, and how it stands now."""

    table: DynamicTable
    frontier: Frontier | None
    """Its data snapshot, and what it read; None while it was never loaded."""
    lag: timedelta
    """Of one that was never loaded: since it was declared."""
    effective_lag: timedelta | None
    """What it may lag: its target, or that of its consumers; None where nobody needs it."""
    due: datetime | None
    """When its lag reaches that; None where nothing changed, or nobody would refresh it."""
    last: RefreshRecord | None
    rows: int | None
    """None where it was never loaded, or can't be counted."""
    bytes: int | None
    progress: str | None = None
    """How far the refresh is that runs, where it takes long."""
    point: int | None = None
    """The data snapshot of the newest consistent point that is kept of its part of the graph."""

    @property
    def name(self) -> QualifiedName:
        return self.table.name


@dataclass(frozen=True, slots=True)
class ShownSource:
    """What a definition reads, and what the newest version read of it; None: nothing yet, or a view."""

    source: Source
    read: SourceRead | None


@dataclass(frozen=True, slots=True)
class Described:
    shown: Shown
    sources: tuple[ShownSource, ...]
    versions: tuple[Version, ...]
    """Newest first; of those that are right for the same data snapshots, the newest alone."""
    consumers: tuple[QualifiedName, ...]
    warnings: tuple[Warned, ...]
    within: Mapping[timedelta, float | None] = field(default_factory=dict)
    """The share of the last hour, and of the last day, in which it lagged its target at most."""


def show(lake: Lake, like: str | None = None, now: datetime | None = None) -> tuple[Shown, ...]:
    """All dynamic tables, or those whose name is like a pattern, by name; so many queries for however many tables."""
    wanted = definitions.list_all(lake.conn, like)
    return _Shelf(lake, wanted, now or datetime.now(UTC)).shown() if wanted else ()


def describe(lake: Lake, name: QualifiedName, now: datetime | None = None) -> Described:
    table = definitions.get(lake.conn, name)
    shelf = _Shelf(lake, [table], now or datetime.now(UTC))
    (shown,) = shelf.shown()
    reads = {read.table_id: read for read in shown.frontier.sources} if shown.frontier else {}
    # SET and RENAME leave the content as it is, and say of it again what it is right for
    known = versions.versions(lake.conn, [table.id]).get(table.id, ())
    by_content = {(version.b_lo, version.b_hi, version.t): version for version in known}
    return Described(
        shown,
        tuple(ShownSource(source, _read(lake, source, reads)) for source in definitions.sources(lake.conn, table)),
        tuple(reversed(by_content.values())),
        shelf.look.graph.consumers(table.name),
        tuple(found for found in warnings(shelf.look.graph) if found.name == table.name),
        {span: shelf.attained(table, span) for span in LOOKED_BACK},
    )


def _read(lake: Lake, source: Source, reads: Mapping[int, SourceRead]) -> SourceRead | None:
    if source.kind is SourceKind.VIEW:
        return None
    if source.supplier_id is None:
        return None if source.table_id is None else reads.get(source.table_id)
    known = versions.versions(lake.conn, [source.supplier_id]).get(source.supplier_id, ())
    return next((reads[version.table_id] for version in reversed(known) if version.table_id in reads), None)


LOOKED_BACK = (timedelta(hours=1), timedelta(days=1))


class _Shelf:
    """What these tables have beside how they stand, read once for all of them."""

    def __init__(self, lake: Lake, tables: Sequence[DynamicTable], now: datetime) -> None:
        self.lake, self.tables, self.now = lake, tables, now
        self.look = Looks(lake).look()
        self._lags = self.look.graph.effective_lags()
        ids = [table.id for table in tables]
        self._frontiers = versions.frontiers(lake.conn, ids)
        self._last = history.last(lake.conn, ids)
        self._progress = history.progress(lake.conn)
        self._points = points.of_tables(lake.conn, ids)
        listed = list_tables(lake.conn, lake.settings.lake.catalog_schema)
        self._listed = {QualifiedName(found.schema, found.name): found for found in listed if found.kind == "table"}

    def shown(self) -> tuple[Shown, ...]:
        return tuple(self._shown(table) for table in self.tables)

    def _shown(self, table: DynamicTable) -> Shown:
        frontier = self._frontiers.get(table.id)
        standing = self.look.standings.get(table.name, Standing(table.name))  # declared since the look
        listed = self._listed.get(table.name) if frontier is not None else None
        return Shown(
            table,
            frontier,
            lag_since(standing, self.now, table.created_at if frontier is None else table.declared_at),
            self._lags.get(table.name),
            self._due(standing),
            self._last.get(table.id),
            self._rows(table, listed),
            listed.bytes if listed is not None else None,
            self._progress.get(table.id),
            self._points.get(table.id),
        )

    def attained(self, table: DynamicTable, span: timedelta) -> float | None:
        """The share of the time in which it kept its promise; None where it made none, or was not loaded."""
        target, since = self._lags.get(table.name), self.now - span
        seen = versions.seen(self.lake.conn, table.id, since)
        if target is None or not seen:
            return None
        family = (table.name, *self.look.graph.ancestors(table.name))
        reached = frozenset(table_id for name in family for table_id in self.look.known[name].bases)
        commits = list_commits(self.lake.conn, self.lake.settings.lake.catalog_schema, seen[0].b)
        changes = tuple(one.commit for one in commits if one.changed(reached))
        return attainment(Past(seen, changes), target, since, self.now)

    def _due(self, standing: Standing) -> datetime | None:
        may, node = self._lags.get(standing.name), self.look.graph.nodes.get(standing.name)
        if may is None or node is None or not node.active:
            return None
        if not standing.versions:
            return self.now
        t, change = standing.versions[-1].t, standing.change
        since = [moment for moment in (t, change.time if change else None) if moment is not None]
        return min(since) + may if since else None

    def _rows(self, table: DynamicTable, listed: ListedTable | None) -> int | None:
        if listed is None:
            return None
        if listed.rows is not None:
            return listed.rows
        try:
            return self.lake.table(str(table.name)).count()
        except LakemillError:
            return None
