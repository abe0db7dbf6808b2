"""How every dynamic table stands, for a look of the scheduler: one query, however many tables there are, and one more
where somebody committed since the last look.

What the store knows is joined with the index of commits: the first change after a table's data snapshot, of any base
table that it reaches, is what it lags behind. Somebody else's write into the dynamic table itself counts as one, too,
and so does a source whose name is another's by now: each leads to a refresh, which finds out what to do.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from lakemill.core.commits import CommitIndex
from lakemill.core.definition import TargetLag
from lakemill.core.graph import Graph, Node, build_graph
from lakemill.core.lag import Commit, Standing, Version
from lakemill.core.names import QualifiedName
from lakemill.lake.listing import list_commits
from lakemill.store import versions as frontiers
from lakemill.store import work
from lakemill.store.work import Known, Moment

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake


@dataclass(frozen=True, slots=True)
class Look:
    """All tables at one moment."""

    head: Commit
    """The newest snapshot."""
    graph: Graph
    standings: Mapping[QualifiedName, Standing]
    known: Mapping[QualifiedName, Known]


class Looks:
    """Looks at one lake, one after the other: what was read of its commits is remembered."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._index = CommitIndex()
        self._since = 0
        """From which snapshot on the index knows all."""
        self._halted: dict[int, tuple[Version, Commit]] = {}
        """The first change of tables that nobody refreshes, by id: for their sake no commit need be remembered."""
        self._times: dict[int, datetime] = {}
        """When snapshots were committed since which some tables are unsure."""
        self._nodes: frozenset[Node] = frozenset()
        self._graph = build_graph(())

    def look(self) -> Look:
        now = work.moment(self._lake.conn, self._lake.settings.lake.catalog_schema)
        oldest = self._read_commits(now)
        graph = self._graph_of(now.tables)
        known = {one.name: one for one in now.tables}
        unsure = _unsure_since(graph, known)
        self._read_times(since for since in unsure.values() if 0 < since <= now.head.snapshot)
        bases: dict[QualifiedName, frozenset[int]] = {}
        standings: dict[QualifiedName, Standing] = {}
        for name in graph.order:
            one = known[name]
            bases[name] = frozenset(one.bases).union(*(bases[supplier] for supplier in graph.suppliers(name)))
            change = self._change(one, bases[name])
            if name in unsure and one.version is not None:
                since, b = unsure[name], one.version.b_hi
                # what was so before b, and is found out now, has no time of its own
                time = self._times.get(since, now.head.time) if since > b else now.head.time
                change = _earlier(change, Commit(max(since, b + 1), time))
            standings[name] = Standing(
                name,
                _held(one),
                change,
                one.expected,
                busy=one.busy,
                round_at=one.round_at,
                newest=self._index.newest(bases[name]) or change,
                failure=one.failure,
            )
        self._index.forget(oldest)
        self._since = oldest
        return Look(now.head, graph, standings, known)

    def _read_commits(self, now: Moment) -> int:
        """The index knows all up to this moment, from the snapshot on that is returned."""
        self._halted = {one.id: self._halted[one.id] for one in now.tables if self._halting(one)}
        loaded = [one.version.b_hi for one in now.tables if one.version is not None and one.id not in self._halted]
        failed = (one for one in now.tables if one.failure is not None and one.active)
        loaded += [one.failure.b for one in failed if one.failure is not None]  # what came since is asked for
        oldest = min(loaded, default=now.head.snapshot)
        if self._index.last is None or oldest < self._since:
            self._index, self._since = CommitIndex(last=oldest), oldest
        last = self._index.last or 0
        if last < now.head.snapshot:
            schema = self._lake.settings.lake.catalog_schema
            for found in list_commits(self._lake.conn, schema, last, now.head.snapshot):
                self._index.add(found.commit, found.tables)
        return oldest

    def _read_times(self, snapshots: Iterable[int]) -> None:
        """Asked for once: a table that nobody refreshes may be unsure for days."""
        wanted = frozenset(snapshots)
        self._times = {snapshot: time for snapshot, time in self._times.items() if snapshot in wanted}
        if missing := wanted - self._times.keys():
            self._times |= work.times(self._lake.conn, missing, self._lake.settings.lake.catalog_schema)

    def _change(self, one: Known, bases: frozenset[int]) -> Commit | None:
        if one.version is None:
            return None
        if one.id in self._halted:
            return self._halted[one.id][1]
        first = self._index.first(bases, one.version.b_hi)
        found = _earlier(first, self._index.first((one.version.table_id,), one.version.commit))
        if found is not None and not one.active:
            self._halted[one.id] = one.version, found
        return found

    def _halting(self, one: Known) -> bool:
        """Whether it is as it was when its first change was found, and nobody refreshes it."""
        known = self._halted.get(one.id)
        return known is not None and not one.active and one.version == known[0]

    def _graph_of(self, tables: tuple[Known, ...]) -> Graph:
        """Built anew only when a definition or a state changed: most looks find the same tables."""
        nodes = frozenset(Node(one.name, TargetLag(one.target_lag), one.sources, one.active) for one in tables)
        if nodes != self._nodes:
            self._graph, self._nodes = build_graph(nodes), nodes
        return self._graph


def raise_idle(lake: Lake, look: Look, only: Container[int | None] | None = None) -> None:
    """Tables that nothing happened to are right at the newest snapshot, too; of these versions, or of all."""
    idle = [
        known.version_id
        for name, known in look.known.items()
        if known.version is not None
        and known.version_id is not None
        and (only is None or known.version_id in only)
        and known.version.t is None
        and known.version.b_hi < look.head.snapshot
        and look.standings[name].change is None
        and not known.busy
    ]
    if idle:
        frontiers.raise_idle(lake.conn, idle, look.head.snapshot, look.head.time, lake.settings.lake.catalog_schema)


def _held(one: Known) -> tuple[Version, ...]:
    """What can be read of it, oldest first; one that can't only where nothing else can."""
    if one.version is None:
        return ()
    return (*one.earlier, one.version) if one.readable or not one.earlier else one.earlier


def _unsure_since(graph: Graph, known: Mapping[QualifiedName, Known]) -> dict[QualifiedName, int]:
    """Tables whose content is about to be another, or became one, without a change of a base table; since when."""
    found: dict[QualifiedName, int] = {}
    for name in graph.order:
        since = _unsure(known[name], graph.suppliers(name), found)
        if since is not None:
            found[name] = since
    return found


def _unsure(one: Known, suppliers: Sequence[QualifiedName], unsure: Mapping[QualifiedName, int]) -> int | None:
    """Since which snapshot its content may be another without a change of a base table; None where it is not so.

    A name that it reads is another's, its commit was expired or need not be kept, a supplier is declared anew or loaded
    by another definition, or all that is so of a supplier.
    """
    found = [unsure[supplier] for supplier in suppliers if supplier in unsure]
    if one.version is None:
        return min(found, default=0)
    found += [one.replaced] if one.replaced is not None and one.replaced > one.version.b_hi else []
    found += [one.version.b_hi + 1] if not one.readable or one.stale else []
    found += [] if one.moved is None else [one.moved]
    return min(found, default=None)


def _earlier(one: Commit | None, other: Commit | None) -> Commit | None:
    found = [commit for commit in (one, other) if commit is not None]
    return min(found, key=lambda commit: commit.snapshot, default=None)
