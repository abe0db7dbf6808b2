"""How dynamic tables stand: what `list` and `describe` show. It only reads, PostgreSQL and nothing else.

The lag is `core/lag`'s: the age of the first commit, after the table's data snapshot, that changed a base table which
it reaches; of a table that was never loaded, the time since it was declared. What every refresh did is
`store/history`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lakemill.core.graph import Graph, Warned, warnings
from lakemill.core.lag import Commit, Past, Standing, Version, attainment, lag_since
from lakemill.core.names import QualifiedName
from lakemill.errors import LakemillError
from lakemill.lake.listing import ListedCommit, ListedTable, list_commits, list_tables
from lakemill.store import definitions, history, versions
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
    """All dynamic tables, or those whose name is like a pattern, by name."""
    tables = definitions.list_all(lake.conn)
    wanted = tables if like is None else definitions.list_all(lake.conn, like)
    if not wanted:
        return ()
    look = _Look(lake, tables, now or datetime.now(UTC))
    return tuple(look.shown(table) for table in wanted)


def describe(lake: Lake, name: QualifiedName, now: datetime | None = None) -> Described:
    table = definitions.get(lake.conn, name)
    look = _Look(lake, definitions.list_all(lake.conn), now or datetime.now(UTC))
    shown = look.shown(table)
    reads = {read.table_id: read for read in shown.frontier.sources} if shown.frontier else {}
    # SET and RENAME leave the content as it is, and say of it again what it is right for
    known = versions.versions(lake.conn, [table.id]).get(table.id, ())
    by_content = {(version.b_lo, version.b_hi, version.t): version for version in known}
    return Described(
        shown,
        tuple(ShownSource(source, _read(lake, source, reads)) for source in definitions.sources(lake.conn, table)),
        tuple(reversed(by_content.values())),
        look.graph.consumers(table.name),
        tuple(found for found in warnings(look.graph) if found.name == table.name),
        {span: look.attained(table, span) for span in LOOKED_BACK},
    )


def _read(lake: Lake, source: Source, reads: Mapping[int, SourceRead]) -> SourceRead | None:
    if source.kind is SourceKind.VIEW:
        return None
    if source.supplier_id is None:
        return None if source.table_id is None else reads.get(source.table_id)
    known = versions.versions(lake.conn, [source.supplier_id]).get(source.supplier_id, ())
    return next((reads[version.table_id] for version in reversed(known) if version.table_id in reads), None)


LOOKED_BACK = (timedelta(hours=1), timedelta(days=1))
_Base = tuple[QualifiedName, int]
"""A table of the lake: the name that a definition reads, and the id that it had."""


class _Look:
    """What all tables share, read once."""

    def __init__(self, lake: Lake, tables: Sequence[DynamicTable], now: datetime) -> None:
        self.lake, self.now = lake, now
        self.graph: Graph = definitions.graph(lake.conn)
        self._lags = self.graph.effective_lags()
        self._frontiers = {table.name: versions.frontier(lake.conn, table.id) for table in tables}
        self._bases: dict[QualifiedName, frozenset[_Base]] = {
            table.name: frozenset(
                (source.name, source.table_id)
                for source in definitions.sources(lake.conn, table)
                if source.kind is SourceKind.TABLE and source.table_id is not None
            )
            for table in tables
        }
        schema = lake.settings.lake.catalog_schema
        oldest = min((found.version.b_hi for found in self._frontiers.values() if found), default=None)
        self._commits: list[ListedCommit] = [] if oldest is None else list_commits(lake.conn, schema, oldest)
        self._replaced = self._replacements() if self._commits else {}
        self._progress = history.progress(lake.conn)
        listed = list_tables(lake.conn, schema, lake.snapshot().id)
        self._listed = {QualifiedName(found.schema, found.name): found for found in listed if found.kind == "table"}

    def shown(self, table: DynamicTable) -> Shown:
        frontier = self._frontiers[table.name]
        change = self._change(table.name, frontier, table.stale_since is not None)
        listed = self._listed.get(table.name) if frontier is not None else None
        known = (frontier.version,) if frontier is not None else ()
        return Shown(
            table,
            frontier,
            lag_since(Standing(table.name, known, change), self.now, table.created_at),
            self._lags[table.name],
            self._due(table.name, frontier, change),
            next(iter(history.history(self.lake.conn, table.id, 1)), None),
            self._rows(table, listed),
            listed.bytes if listed is not None else None,
            self._progress.get(table.id),
        )

    def _change(self, name: QualifiedName, frontier: Frontier | None, stale: bool) -> Commit | None:
        """Of a stale one, whose changes may be expired, anything that is younger than what it holds."""
        if frontier is None:
            return None
        bases = {base for table in (name, *self.graph.ancestors(name)) for base in self._bases[table]}
        reached = frozenset(table_id for _, table_id in bases)
        replaced = {self._replaced[base] for base in bases if base in self._replaced}
        later = (found for found in self._commits if found.commit.snapshot > frontier.version.b_hi)
        return next(
            (one.commit for one in later if stale or one.changed(reached) or one.commit.snapshot in replaced), None
        )

    def attained(self, table: DynamicTable, span: timedelta) -> float | None:
        """The share of the time in which it kept its promise; None where it made none, or was not loaded."""
        target, since = self._lags[table.name], self.now - span
        seen = versions.seen(self.lake.conn, table.id, since)
        if target is None or not seen:
            return None
        reached = frozenset(
            table_id for name in (table.name, *self.graph.ancestors(table.name)) for _, table_id in self._bases[name]
        )
        commits = list_commits(self.lake.conn, self.lake.settings.lake.catalog_schema, seen[0].b)
        changes = tuple(one.commit for one in commits if one.changed(reached))
        return attainment(Past(seen, changes), target, since, self.now)

    def _replacements(self) -> dict[_Base, int]:
        """Since which snapshot a name is another table's, or nobody's: a RENAME's label names no table."""
        since = {}
        with self.lake.catalog() as catalog:
            head = catalog.head().id
            for base in frozenset[_Base]().union(*self._bases.values()):
                name, table_id = base
                if catalog.table_id(name.schema, name.name, head) != table_id:
                    snapshots = (found.commit.snapshot for found in self._commits)
                    others = (at for at in snapshots if catalog.table_id(name.schema, name.name, at) != table_id)
                    since[base] = next(others, head)
        return since

    def _due(self, name: QualifiedName, frontier: Frontier | None, change: Commit | None) -> datetime | None:
        may = self._lags[name]
        if may is None or not self.graph.nodes[name].active:
            return None
        if frontier is None:
            return self.now
        since = [moment for moment in (frontier.version.t, change.time if change else None) if moment is not None]
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
