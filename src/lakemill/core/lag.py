"""How far behind a dynamic table is, and what a round refreshes at which data snapshot.

Line 4 of a refresh, for the scheduler. *Lag* is the age of the first change, after the table's data snapshot, of a base
table that it reaches; a quiet lake has none. A round takes each component of the DAG by itself: what is due, the
DOWNSTREAM tables that those pull along, one b for all of them. Pure: now, the newest snapshot and how each table stands
are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakemill.core.graph import Graph
from lakemill.core.names import QualifiedName

ZERO = timedelta(0)


@dataclass(frozen=True, slots=True)
class Version:
    """The content of a commit, right for every data snapshot in [b_lo, b_hi]; with ``t``, at that time only."""

    commit: int
    b_lo: int
    b_hi: int
    definition_version: int
    table_id: int
    t: datetime | None = None

    def holds(self, b: int, t: datetime | None = None) -> bool:
        return self.b_lo <= b <= self.b_hi and (self.t is None or self.t == t)


@dataclass(frozen=True, slots=True)
class Commit:
    snapshot: int
    time: datetime


@dataclass(frozen=True, slots=True)
class Standing:
    """How a table stands: its versions, oldest first, and what happened since the newest."""

    name: QualifiedName
    versions: tuple[Version, ...] = ()
    change: Commit | None = None
    """The first change, after the newest version's b_hi, of a base table that it reaches."""
    expected: timedelta = ZERO
    """How long its next refresh will take, as far as known."""

    def usable(self, b: int, t: datetime | None = None) -> bool:
        """Whether a version holds ``b``, or the newest may be widened to it because nothing changed since."""
        if any(version.holds(b, t) for version in self.versions):
            return True
        if not self.versions or self.versions[-1].t is not None:
            return False
        return self.versions[-1].b_lo <= b and (self.change is None or b < self.change.snapshot)


def lag(standing: Standing, now: datetime) -> timedelta | None:
    """None while the table was never loaded."""
    if not standing.versions:
        return None
    t = standing.versions[-1].t
    behind = now - standing.change.time if standing.change is not None else ZERO
    aged = now - t if t is not None else ZERO
    return max(behind, aged, ZERO)


def largest_common(standings: Sequence[Standing], most: int, t: datetime | None = None) -> int | None:
    """The largest data snapshot, at most ``most``, that all of these hold."""
    ends = {most}
    for standing in standings:
        ends |= {version.b_hi for version in standing.versions}
        if standing.versions and standing.change is not None:
            ends.add(standing.change.snapshot - 1)
    for b in sorted((end for end in ends if end <= most), reverse=True):
        if all(standing.usable(b, t) for standing in standings):
            return b
    return None


# ---------------------------------------------------------------- rounds
@dataclass(frozen=True, slots=True)
class Run:
    name: QualifiedName
    b: int
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """A table that is due and can't run."""

    name: QualifiedName
    supplier: QualifiedName
    reason: str


@dataclass(frozen=True, slots=True)
class Round:
    """What to do for one component, in order; ``t`` is what now() means in it."""

    b: int
    t: datetime
    runs: tuple[Run, ...]
    waits: tuple[Wait, ...] = ()


def plan_rounds(
    graph: Graph,
    standings: Iterable[Standing],
    head: int,
    now: datetime,
    tick: timedelta = ZERO,
) -> tuple[Round, ...]:
    """The rounds that are due, none for a component where nothing is.

    A table is due when waiting for the next look, a ``tick`` from now, would make it miss its target lag, given how
    long it and what it pulls along will take; one that was never loaded is due at once. A supplier with a lag of its
    own is not pulled: where it holds ``head`` no more, its consumer runs at the largest b that all suppliers hold.
    """
    by_name = {standing.name: standing for standing in standings}
    return tuple(
        found
        for names in graph.components()
        if (found := _round(graph, names, by_name, head, now, tick)).runs or found.waits
    )


def _round(
    graph: Graph,
    names: Sequence[QualifiedName],
    standings: Mapping[QualifiedName, Standing],
    head: int,
    now: datetime,
    tick: timedelta,
) -> Round:
    due = _due(graph, names, standings, now, tick)
    blocked = _blocked(graph, names, standings, due, head, now)
    chosen = {name: reason for name, reason in due.items() if name not in blocked}
    for name in reversed(names):  # consumers first, so that a pull goes all the way up
        puller = next((consumer for consumer in graph.consumers(name) if consumer in chosen), None)
        wanted = puller is not None and name not in chosen and _pulled(graph, name)
        if wanted and not standings[name].usable(head, now):
            chosen[name] = f"{puller} needs it"
    runs: list[Run] = []
    waits: list[Wait] = []
    for name in names:
        if name in chosen:
            runs.append(Run(name, head, chosen[name]))
        elif name in due:
            b = _catch_up(graph, name, standings, head, now)
            if b is None:
                waits.append(Wait(name, blocked[name], f"{blocked[name]} has not come further"))
            else:
                runs.append(Run(name, b, f"{due[name]}; {blocked[name]} has come to {b} only"))
    return Round(head, now, tuple(runs), tuple(waits))


def _due(
    graph: Graph,
    names: Sequence[QualifiedName],
    standings: Mapping[QualifiedName, Standing],
    now: datetime,
    tick: timedelta,
) -> dict[QualifiedName, str]:
    """Who must run on its own account, and why."""
    found: dict[QualifiedName, str] = {}
    lead: dict[QualifiedName, timedelta] = {}  # its own time, after that of the chain that it pulls along
    for name in names:
        node, standing = graph.nodes[name], standings[name]
        chain = (lead[supplier] for supplier in graph.suppliers(name) if _pulled(graph, supplier))
        lead[name] = standing.expected + max(chain, default=ZERO)
        target, behind = node.target_lag.duration, lag(standing, now)
        if not node.active or target is None:
            continue
        if behind is None:
            found[name] = "it was never loaded"
        elif behind > ZERO and behind + lead[name] + tick >= target:
            found[name] = f"it lags {behind} of {node.target_lag}"
    return found


def _blocked(
    graph: Graph,
    names: Sequence[QualifiedName],
    standings: Mapping[QualifiedName, Standing],
    due: Mapping[QualifiedName, str],
    head: int,
    now: datetime,
) -> dict[QualifiedName, QualifiedName]:
    """Who can't come to ``head`` in this round, and the supplier that holds it back."""
    found: dict[QualifiedName, QualifiedName] = {}
    for name in names:
        for supplier in graph.suppliers(name):
            runs = supplier in due or _pulled(graph, supplier)
            if not standings[supplier].usable(head, now) and (not runs or supplier in found):
                found[name] = supplier
                break
    return found


def _pulled(graph: Graph, name: QualifiedName) -> bool:
    node = graph.nodes[name]
    return node.target_lag.duration is None and node.active


def _catch_up(
    graph: Graph, name: QualifiedName, standings: Mapping[QualifiedName, Standing], head: int, now: datetime
) -> int | None:
    """The largest b that all suppliers hold already, if it is further than the table is: time counts for some."""
    b = largest_common([standings[supplier] for supplier in graph.suppliers(name)], head, now)
    newest = standings[name].versions[-1] if standings[name].versions else None
    if b is None or newest is None:
        return b
    return b if b > newest.b_hi or (b == newest.b_hi and newest.t is not None) else None
