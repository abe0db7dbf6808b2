"""Ask the workers for a refresh: for processes that have no Spark. What is due then is done by whoever takes it.

The table and the suppliers that it needs, each after those that it reads, all at the newest snapshot: the chain that
``runtime/refresh`` would carry out at once.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakemill.core.names import QualifiedName
from lakemill.store import definitions, work
from lakemill.telemetry import tracing

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake


def ask_for_refresh(lake: Lake, name: QualifiedName) -> int:
    """The id of the work, which may have been due already; then it goes first, and to the newest snapshot."""
    own = definitions.get(lake.conn, name)
    graph = definitions.graph(lake.conn)
    tables = {table.name: table for table in definitions.list_all(lake.conn)}
    wanted = {own.name, *graph.ancestors(own.name)}
    b, t = lake.snapshot().id, datetime.now(UTC)
    ids: dict[QualifiedName, int] = {}
    with lake.conn.transaction():
        for one in (one for one in graph.order if one in wanted):
            before = [ids[supplier] for supplier in graph.suppliers(one) if supplier in ids]
            table = tables[one]
            reason = "asked for" if one == own.name else f"{own.name} was asked for, and reads it"
            ids[one] = work.ask(
                lake.conn,
                table.id,
                reason,
                b,
                t,
                after=before,
                priority=table.definition.priority,
                traceparent=tracing.traceparent(),
            )
        work.tell(lake.conn, work.DUE)
    return ids[own.name]
