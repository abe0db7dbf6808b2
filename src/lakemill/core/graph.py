"""The DAG of dynamic tables: who reads whom, in which order, and how fresh each must be for the others.

Line 3 of a refresh. Built from names alone: a source that is a dynamic table is a *supplier*, any other a *base*; those
who read a table are its *consumers*, directly, or its *dependents*, through others too. Cycles are refused with the way
round. Values only; ``core/rounds`` decides when, ``core/drawing`` prints it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from lakemill.core.definition import TargetLag
from lakemill.core.names import QualifiedName
from lakemill.errors import Cycle, HasDependents


@dataclass(frozen=True, slots=True)
class Node:
    """A dynamic table; ``active`` when the scheduler refreshes it (neither suspended nor SCHEDULER = DISABLE)."""

    name: QualifiedName
    target_lag: TargetLag
    sources: tuple[QualifiedName, ...]
    active: bool = True


@dataclass(frozen=True, slots=True)
class Warned:
    name: QualifiedName
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Graph:
    nodes: Mapping[QualifiedName, Node]
    """In order: a table after all that it reads; otherwise by name."""
    readers: Mapping[QualifiedName, tuple[QualifiedName, ...]]
    """By source, bases too."""
    places: Mapping[QualifiedName, int]
    """Where each node stands in the order."""

    @property
    def order(self) -> tuple[QualifiedName, ...]:
        return tuple(self.nodes)

    def suppliers(self, name: QualifiedName) -> tuple[QualifiedName, ...]:
        """The dynamic tables that it reads itself."""
        return tuple(source for source in self.nodes[name].sources if source in self.nodes)

    def consumers(self, name: QualifiedName) -> tuple[QualifiedName, ...]:
        """The dynamic tables that read it themselves; of a base table too."""
        return self.readers.get(name, ())

    def ancestors(self, name: QualifiedName) -> tuple[QualifiedName, ...]:
        """All dynamic tables that its content comes from, in order."""
        return self._reached(name, self.suppliers)

    def dependents(self, name: QualifiedName) -> tuple[QualifiedName, ...]:
        """All dynamic tables whose content comes from it, in order; of a base table too."""
        return self._reached(name, self.consumers)

    def bases(self, name: QualifiedName) -> tuple[QualifiedName, ...]:
        """The base tables that it reaches through the DAG, by name."""
        read = {source for table in (name, *self.ancestors(name)) for source in self.nodes[table].sources}
        return tuple(sorted(read - self.nodes.keys()))

    def components(self, of: Iterable[QualifiedName] | None = None) -> tuple[tuple[QualifiedName, ...], ...]:
        """Tables joined by edges between dynamic tables; a base table that two read joins nothing. Those ``of`` these
        tables alone, where they are given, in their order."""
        found: list[tuple[QualifiedName, ...]] = []
        seen: set[QualifiedName] = set()
        for name in self.nodes if of is None else of:
            if name not in seen:
                joined = self._reached(name, lambda n: (*self.suppliers(n), *self.consumers(n)))
                found.append(tuple(sorted((name, *joined), key=self.places.__getitem__)))
                seen.update(found[-1])
        return tuple(found)

    def effective_lags(self) -> Mapping[QualifiedName, timedelta | None]:
        """A table's own lag; for DOWNSTREAM the least of its active consumers', None where nobody needs it."""
        lags: dict[QualifiedName, timedelta | None] = {}
        for name in reversed(self.order):
            own = self.nodes[name].target_lag.duration
            needed = [lags[consumer] for consumer in self.consumers(name) if self.nodes[consumer].active]
            lags[name] = own if own is not None else min((lag for lag in needed if lag is not None), default=None)
        return {name: lags[name] for name in self.nodes}

    def only(self, names: Iterable[QualifiedName]) -> Graph:
        """The graph of these alone; what they read besides counts as base."""
        kept = set(names)
        return build_graph(node for node in self.nodes.values() if node.name in kept)

    def _reached(
        self, name: QualifiedName, step: Callable[[QualifiedName], Iterable[QualifiedName]]
    ) -> tuple[QualifiedName, ...]:
        reached: set[QualifiedName] = set()
        todo = list(step(name))
        while todo:
            found = todo.pop()
            if found not in reached and found != name:
                reached.add(found)
                todo += step(found)
        return tuple(sorted(reached, key=self.places.__getitem__))


def build_graph(nodes: Iterable[Node]) -> Graph:
    """The graph of these tables; a cycle is refused."""
    by_name = {node.name: node for node in nodes}
    readers: dict[QualifiedName, list[QualifiedName]] = {}
    missing: dict[QualifiedName, int] = {}
    for node in by_name.values():
        sources = set(node.sources)
        missing[node.name] = len(sources & by_name.keys())
        for source in sources:
            readers.setdefault(source, []).append(node.name)
    ready = [name for name, count in missing.items() if count == 0]
    heapq.heapify(ready)
    ordered: dict[QualifiedName, Node] = {}
    while ready:
        name = heapq.heappop(ready)
        ordered[name] = by_name[name]
        for reader in readers.get(name, ()):
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, reader)
    if len(ordered) < len(by_name):
        way = _cycle({name: node for name, node in by_name.items() if name not in ordered})
        raise Cycle(f"dynamic tables read each other in a circle: {' reads '.join(map(str, way))}")
    sorted_readers = {source: tuple(sorted(names)) for source, names in readers.items()}
    return Graph(ordered, sorted_readers, {name: place for place, name in enumerate(ordered)})


def _cycle(left: Mapping[QualifiedName, Node]) -> list[QualifiedName]:
    """A way round among tables that each wait for another of them."""
    way = [min(left)]
    while True:
        step = min(source for source in left[way[-1]].sources if source in left)
        if step in way:
            circle = way[way.index(step) :]
            first = circle.index(min(circle))
            return [*circle[first:], *circle[:first], circle[first]]
        way.append(step)


# ---------------------------------------------------------------- what statements ask
def require_no_dependents(graph: Graph, name: QualifiedName) -> None:
    """For DROP without CASCADE."""
    found = graph.dependents(name)
    if found:
        raise HasDependents(f"{name} is read by {', '.join(map(str, found))}")


def warnings(graph: Graph) -> tuple[Warned, ...]:
    """What is allowed, and surely not meant."""
    found = []
    lags = graph.effective_lags()
    for name, node in graph.nodes.items():
        if node.target_lag.duration is None and lags[name] is None and node.active:
            why = "every table that reads it is suspended" if graph.consumers(name) else "no table reads it"
            found.append(
                Warned(name, f"{name} will never be refreshed: it is DOWNSTREAM, and {why}", "give it a TARGET_LAG")
            )
        own = node.target_lag.duration
        for supplier, through in _promised(graph, name).items() if own is not None else ():
            theirs = graph.nodes[supplier].target_lag
            if own is not None and theirs.duration is not None and own < theirs.duration:
                way = "which it reads" if through == name else f"which it reads through {through}"
                found.append(
                    Warned(
                        name,
                        f"{name} may lag {node.target_lag}, but {supplier}, {way}, {theirs}",
                        f"give {supplier} TARGET_LAG = DOWNSTREAM, or a shorter one",
                    )
                )
    return tuple(found)


def _promised(graph: Graph, name: QualifiedName) -> dict[QualifiedName, QualifiedName]:
    """The nearest suppliers with a lag of their own, and who reads them: the table itself, or a DOWNSTREAM one."""
    found: dict[QualifiedName, QualifiedName] = {}
    passed: set[QualifiedName] = set()
    todo = [name]
    while todo:
        reader = todo.pop(0)
        for supplier in graph.suppliers(reader):
            if graph.nodes[supplier].target_lag.duration is not None:
                found.setdefault(supplier, reader)
            elif supplier not in passed:
                passed.add(supplier)
                todo.append(supplier)
    return found
