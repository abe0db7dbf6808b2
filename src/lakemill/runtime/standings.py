"""How every dynamic table stands, for a look of the scheduler: a handful of queries, however many tables there are.

What the store knows is joined with the index of commits: the first change after a table's data snapshot, of any base
table that it reaches, is what it lags behind. Somebody else's write into the dynamic table itself counts as one, too,
and so does a source whose name is another's by now: each leads to a refresh, which finds out what to do.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakemill.core.commits import CommitIndex
from lakemill.core.definition import TargetLag
from lakemill.core.graph import Graph, Node, build_graph
from lakemill.core.lag import Commit, Standing, Version
from lakemill.core.names import QualifiedName
from lakemill.core.scan import Snapshot
from lakemill.lake.listing import list_commits
from lakemill.store import versions as frontiers
from lakemill.store import work
from lakemill.store.work import Known

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake


@dataclass(frozen=True, slots=True)
class Look:
    """All tables at one moment."""

    head: Snapshot
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
        self._nodes: frozenset[Node] = frozenset()
        self._graph = build_graph(())

    def look(self) -> Look:
        lake = self._lake
        schema = lake.settings.lake.catalog_schema
        tables = work.known(lake.conn)  # first: what it says of each table is of one moment
        self._halted = {one.id: self._halted[one.id] for one in tables if self._halting(one)}
        loaded = [one.version.b_hi for one in tables if one.version is not None and one.id not in self._halted]
        failed = (one for one in tables if one.failure is not None and one.active)
        loaded += [one.failure.b for one in failed if one.failure is not None]  # what came since is asked for
        oldest = min(loaded) if loaded else lake.snapshot().id
        if self._index.last is None or oldest < self._since:
            self._index, self._since = CommitIndex(last=oldest), oldest
        for found in list_commits(lake.conn, schema, self._index.last or 0):
            self._index.add(found.commit, found.tables)
        head = lake.snapshot(self._index.last)
        gone = work.replaced(lake.conn, schema)
        expired = work.unreadable(lake.conn, schema)
        versions = work.supplier_versions(lake.conn, schema)
        graph = self._graph_of(tables)
        known = {one.name: one for one in tables}
        bases: dict[QualifiedName, frozenset[int]] = {}
        standings: dict[QualifiedName, Standing] = {}
        unsure = _unsure_since(graph, known, gone, expired)
        """Tables whose content is about to be another, or became one, without a change of a base table; since when."""
        times = work.times(lake.conn, set(unsure.values()), schema) if unsure else {}
        for name in graph.order:
            one = known[name]
            bases[name] = frozenset(one.bases).union(*(bases[supplier] for supplier in graph.suppliers(name)))
            held = versions.get(one.id, ())
            mine = tuple(v for v in held if one.version and v.definition_version == one.version.definition_version)
            change = self._change(one, bases[name])
            if name in unsure and one.version is not None:
                since, b = unsure[name], one.version.b_hi
                # what was so before b, and is found out now, has no time of its own
                change = _earlier(
                    change, Commit(max(since, b + 1), times.get(since, head.time) if since > b else head.time)
                )
            standings[name] = Standing(
                name,
                mine or ((one.version,) if one.version else ()),
                change,
                one.expected,
                busy=one.busy,
                round_at=one.round_at,
                newest=self._index.newest(bases[name]) or change,
                failure=one.failure,
            )
        self._index.forget(oldest)
        self._since = oldest
        return Look(head, graph, standings, known)

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


def raise_idle(lake: Lake, look: Look, only: Container[int] | None = None) -> None:
    """Tables that nothing happened to are right at the newest snapshot, too; of these versions, or of all."""
    idle = [
        known.version_id
        for name, known in look.known.items()
        if known.version is not None
        and known.version_id is not None
        and (only is None or known.version_id in only)
        and known.version.t is None
        and known.version.b_hi < look.head.id
        and look.standings[name].change is None
        and not known.busy
    ]
    if idle:
        frontiers.raise_idle(lake.conn, idle, look.head.id, look.head.time, lake.settings.lake.catalog_schema)


def _unsure_since(
    graph: Graph, known: Mapping[QualifiedName, Known], gone: Mapping[int, int], expired: frozenset[int]
) -> dict[QualifiedName, int]:
    found: dict[QualifiedName, int] = {}
    for name in graph.order:
        since = _unsure(known[name], gone, expired, [known[one] for one in graph.suppliers(name)], found)
        if since is not None:
            found[name] = since
    return found


def _unsure(
    one: Known,
    gone: Mapping[int, int],
    expired: frozenset[int],
    suppliers: Sequence[Known],
    unsure: Mapping[QualifiedName, int],
) -> int | None:
    """Since which snapshot its content may be another without a change of a base table; None where it is not so.

    A name that it reads is another's, its commit was expired or need not be kept, a supplier is declared anew or loaded
    by another definition, or all that is so of a supplier.
    """
    found = [unsure[supplier.name] for supplier in suppliers if supplier.name in unsure]
    if one.version is None:
        return min(found, default=0)
    found += [gone[one.id]] if gone.get(one.id, 0) > one.version.b_hi else []
    found += [one.version.b_hi + 1] if one.id in expired else []
    found += [] if one.moved is None else [one.moved]
    found += [one.version.b_hi + 1] if one.stale else []
    return min(found, default=None)


def _earlier(one: Commit | None, other: Commit | None) -> Commit | None:
    found = [commit for commit in (one, other) if commit is not None]
    return min(found, key=lambda commit: commit.snapshot, default=None)
