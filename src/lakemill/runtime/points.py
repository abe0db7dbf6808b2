"""Keeping the newest consistent point of each component of the DAG, while refreshes move its tables on.

The scheduler does it at every look, expiry before it chooses what goes, and whoever asks for the points. A component's
point can only move when the table that is furthest behind has moved: for all others nothing is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from lakemill.core.graph import Graph
from lakemill.core.names import QualifiedName
from lakemill.core.point import agree
from lakemill.runtime.standings import Look, Looks, raise_idle
from lakemill.store import points
from lakemill.store.points import KeptPoint, NewPoint
from lakemill.store.work import Known

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake

_Names = tuple[QualifiedName, ...]
_Bound = tuple[int, datetime | None]


class Keeper:
    """Keeps the points of one lake, look after look."""

    def __init__(self) -> None:
        self._graph: Graph | None = None
        self._components: tuple[_Names, ...] = ()
        self._bounds: dict[_Names, _Bound] = {}
        """Up to where each component's point was looked for."""

    def keep(self, lake: Lake, look: Look) -> None:
        """The points as far as this look knows; without a query where no component could have moved."""
        if look.graph is not self._graph:
            self._graph, self._components = look.graph, look.graph.components()
        bounds = {names: _bound([look.known[name] for name in names]) for names in self._components}
        reached = {names: bound for names, bound in bounds.items() if bound is not None}
        moved = [names for names, bound in reached.items() if self._bounds.get(names) != bound]
        if not moved or _keep(lake, [[look.known[name].id for name in names] for names in moved]):
            self._bounds = reached  # else the next look tries again


def kept(lake: Lake) -> tuple[KeptPoint, ...]:
    """The newest consistent point of each component, as of now."""
    looks = Looks(lake)
    raise_idle(lake, looks.look())
    Keeper().keep(lake, looks.look())
    return points.kept(lake.conn)


def _keep(lake: Lake, components: Sequence[Sequence[int]]) -> bool:
    schema = lake.settings.lake.catalog_schema
    held = points.candidates(lake.conn, [one for ids in components for one in ids], schema)
    found = []
    for ids in components:
        versions = {one: held.get(one, ()) for one in ids}
        at = agree([[version for _, version in own] for own in versions.values()])
        if at is not None:
            right = {
                one: next(version_id for version_id, version in reversed(own) if version.holds(at.b, at.t))
                for one, own in versions.items()
            }
            found.append(NewPoint(at, right))
    return points.keep(lake.conn, found, schema) if found else True


def _bound(tables: Sequence[Known]) -> _Bound | None:
    """What the point of these can't be beyond; None where one of them holds nothing that could be part of it."""
    versions = [one.version for one in tables if one.version is not None and one.readable and not one.stale]
    if len(versions) < len(tables):
        return None
    times = [version.t for version in versions if version.t is not None]
    return min(version.b_hi for version in versions), min(times, default=None)
