"""What the next refresh of a table would do, its suppliers included: what `explain` shows.

The plans are `runtime/refresh`'s own. A supplier in which nothing changed is taken as current; one that would be
refreshed first leaves its consumers without a plan, because what will change in it is not known yet. All of it happens
in one transaction that is rolled back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakemill.core.names import QualifiedName
from lakemill.core.plan import Plan
from lakemill.core.refresh import Action
from lakemill.core.scan import Snapshot
from lakemill.runtime.refresh import explain
from lakemill.runtime.window import Window
from lakemill.store import db, definitions, versions

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake


@dataclass(frozen=True, slots=True)
class Explained:
    name: QualifiedName
    b: Snapshot
    planned: tuple[Plan, Window] | None
    """None where a supplier must be refreshed first."""
    waits_for: tuple[QualifiedName, ...] = ()


def explain_chain(lake: Lake, name: QualifiedName) -> tuple[Explained, ...]:
    """The table, last, after the suppliers that would be refreshed before it."""
    found: dict[QualifiedName, Explained] = {}
    with db.rolled_back(lake.conn):
        own = definitions.get(lake.conn, name)
        graph = definitions.graph(lake.conn)
        head = lake.snapshot()
        for table in (*graph.ancestors(own.name), own.name):
            waits_for = tuple(supplier for supplier in graph.suppliers(table) if supplier in found)
            if waits_for:
                found[table] = Explained(table, head, None, waits_for)
                continue
            plan, window, b = explain(lake, table)
            if plan.action is Action.NO_DATA and table != own.name:
                _take_as_current(lake, table, b)
            else:
                found[table] = Explained(table, b, (plan, window))
    return tuple(found.values())


def _take_as_current(lake: Lake, name: QualifiedName, b: Snapshot) -> None:
    """As its refresh would, so that those who read it can be planned."""
    frontier = versions.frontier(lake.conn, definitions.get(lake.conn, name).id)
    if frontier is not None:
        versions.raise_b_hi(lake.conn, [frontier.version_id], b.id, b.time)
