"""The next version of a definition, and what it means for those who read the table.

Whether content depends on the clock is known when a table is declared, by its query or by a supplier. When a supplier's
answer to that changes, so do its dependents' own, and they are declared again in the same transaction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakemill.errors import LakemillError
from lakemill.runtime.analyse import analyse_again
from lakemill.store import db, definitions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakemill.core.definition import Definition
    from lakemill.runtime.open import Lake
    from lakemill.store.definitions import DynamicTable, Resolved, Source


def declare(
    lake: Lake, table: DynamicTable, definition: Definition, resolved: Resolved, sources: Sequence[Source]
) -> DynamicTable:
    """The next version of the definition of ``table``, which must be as it was read; its dependents follow."""
    with db.repeatable(lake.conn):
        declared = definitions.declare(lake.conn, table, definition, resolved, sources)
        if resolved.clocked != table.resolved.clocked:
            for name in definitions.graph(lake.conn).dependents(table.name):  # in order: each asks its suppliers
                _follow(lake, definitions.get(lake.conn, name))
    return declared


def _follow(lake: Lake, reader: DynamicTable) -> None:
    """Only its dependence on the clock; that its columns are others, or that it can't be run, its own refresh tells."""
    try:
        found = analyse_again(lake, reader)
    except LakemillError:
        return
    if found.resolved.clocked != reader.resolved.clocked:
        resolved = replace(reader.resolved, clocked=found.resolved.clocked)
        definitions.declare(lake.conn, reader, reader.definition, resolved, definitions.sources(lake.conn, reader))
