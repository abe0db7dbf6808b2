"""The next version of a definition, and what it means for those who read the table.

Whether content depends on the clock is known when a table is declared, by its query or by a supplier. When a supplier's
answer to that changes, so do its dependents' own, and they are declared again in the same transaction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakemill.core.lag import Version
from lakemill.core.names import fold
from lakemill.errors import LakemillError, SourceChanged, UnknownTable, UserError
from lakemill.runtime.analyse import Analysis, analyse_again
from lakemill.store import db, definitions, versions
from lakemill.store.definitions import SourceKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakemill.core.definition import Definition
    from lakemill.runtime.open import Lake
    from lakemill.store.db import Executor
    from lakemill.store.definitions import DynamicTable, Resolved, Source
    from lakemill.store.versions import Frontier


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


def declare_back(lake: Lake, table: DynamicTable, known: DynamicTable) -> DynamicTable:
    """The definition that ``known`` was, as the next version; what was computed by it is right for it still."""
    frontier = versions.frontier(lake.conn, known.id)
    with db.repeatable(lake.conn):
        back = declare(lake, table, known.definition, known.resolved, definitions.sources(lake.conn, known))
        if frontier is not None and frontier.version.definition_version == known.definition_version:
            content_stays(lake.conn, back, frontier, frontier.version.commit, back.definition_version)
    return back


def content_stays(where: Executor, table: DynamicTable, frontier: Frontier, commit: int, definition: int) -> None:
    """The content of the frontier counts as that of this version of the definition, as of this commit."""
    old = frontier.version
    version = Version(commit, old.b_hi, old.b_hi, definition, old.table_id, old.t)
    versions.move_frontier(
        where, table.id, version, frontier.b_time, frontier.sources, frontier.version_id, frontier.states
    )


def meant_now(lake: Lake, table: DynamicTable) -> Analysis:
    """What its definition means on its sources as they are; where it means nothing any more, what they lack."""
    try:
        return analyse_again(lake, table)
    except UnknownTable:
        raise
    except UserError as error:
        lacking = [
            f"{source.name} has no column {name!r} any more"
            for source in definitions.sources(lake.conn, table)
            if (have := _columns(lake, source)) is not None
            for name in source.columns
            if name not in have
        ]
        told = "; ".join(lacking) or error.message
        raise SourceChanged(f"{table.name} can't be computed from its sources as they are: {told}") from error


def _columns(lake: Lake, source: Source) -> set[str] | None:
    """The columns that a source has now; None where it is gone, or is a view."""
    if source.kind is SourceKind.VIEW:
        return None
    if source.supplier_id is not None:
        supplier = definitions.find(lake.conn, source.name)
        return None if supplier is None else {fold(column.name) for column in supplier.resolved.columns}
    with lake.catalog() as catalog:
        head = catalog.head().id
        if catalog.table_id(source.name.schema, source.name.name, head) is None:
            return None
        return {fold(one.name) for one in catalog.table(source.name.schema, source.name.name, head).columns}


def _follow(lake: Lake, reader: DynamicTable) -> None:
    """Only its dependence on the clock; that its columns are others, or that it can't be run, its own refresh tells."""
    try:
        found = analyse_again(lake, reader)
    except LakemillError:
        return
    if found.resolved.clocked != reader.resolved.clocked:
        resolved = replace(reader.resolved, clocked=found.resolved.clocked)
        frontier = versions.frontier(lake.conn, reader.id)
        now = definitions.declare(
            lake.conn, reader, reader.definition, resolved, definitions.sources(lake.conn, reader)
        )
        if frontier is not None and _means_as_before(lake, now, frontier.version.definition_version):
            content_stays(lake.conn, now, frontier, frontier.version.commit, now.definition_version)


def _means_as_before(lake: Lake, now: DynamicTable, version: int) -> bool:
    """Whether an older version of the definition is this one again: its supplier was declared anew, and back."""
    old = definitions.by_id(lake.conn, now.id, version)
    same = (old.definition, old.resolved) == (now.definition, now.resolved)
    return same and definitions.sources(lake.conn, old) == definitions.sources(lake.conn, now)
