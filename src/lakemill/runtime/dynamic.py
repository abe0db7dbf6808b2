"""The statements about dynamic tables, carried out: create, alter, rename, drop, suspend, resume.

Each takes a statement of ``core/statement`` or names, and either does all of it or nothing. What is refreshed at once
(ON_CREATE, REFRESH) goes through ``runtime/refresh``.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakemill.core.commit import DropTable, Intent, NoConflict, Purpose, RenameTable
from lakemill.core.definition import Initialize
from lakemill.core.graph import Warned, warnings
from lakemill.core.lag import Version
from lakemill.core.names import QualifiedName
from lakemill.core.refresh import Outcome, State, Trigger
from lakemill.core.rename import renamed
from lakemill.core.statement import Change, Create, Drop, IfExists, Rename
from lakemill.errors import ConflictError, DefinitionChanged, HasDependents, OutcomeUnknown, RefreshFailed, TableExists
from lakemill.lake.tables import abandon_all
from lakemill.runtime.analyse import Analysis, analyse, analyse_again
from lakemill.runtime.declaring import declare
from lakemill.runtime.refresh import refresh
from lakemill.store import db, definitions, pins, versions
from lakemill.store.db import Executor
from lakemill.store.definitions import DynamicTable
from lakemill.store.history import RefreshRecord
from lakemill.store.versions import Frontier

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake

ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Created:
    """What CREATE did: ``kept`` where there was such a table and it stays as it is."""

    table: DynamicTable
    records: tuple[RefreshRecord, ...] = ()
    kept: bool = False
    warnings: tuple[Warned, ...] = ()


# ---------------------------------------------------------------- CREATE
def create(lake: Lake, statement: Create, file: str | None = None) -> Created:
    """Declare a dynamic table and, unless ON_SCHEDULE, load it; a load that fails leaves nothing behind."""
    definition = statement.definition
    known = definitions.find(lake.conn, definition.name)
    if known is not None and statement.if_exists is IfExists.KEEP:
        return Created(known, kept=True)
    if known is not None and statement.if_exists is IfExists.REFUSE:
        raise TableExists(f"there is a dynamic table {definition.name} already", place=statement.at.place(file))
    found = analyse(lake, definition, statement.places.get("query", statement.at), file)
    if known is None:
        refuse_lake_table(lake, definition.name)
        table = definitions.create(lake.conn, definition, found.resolved, found.sources)
    elif statement.if_exists is IfExists.ALTER and _same_content(known, found):
        table = _declare(lake, known, found)
        return Created(table, warnings=_warned(lake, table.name))
    else:
        table = declare(lake, known, definition, found.resolved, found.sources)
    records: tuple[RefreshRecord, ...] = ()
    if definition.initialize is Initialize.ON_CREATE:
        try:
            records = refresh(lake, [table.name], trigger=Trigger.CREATION)
        except BaseException:  # Ctrl-C too
            _undo(lake, table, known)
            raise
        if records and records[-1].outcome is not Outcome.SUCCEEDED:
            if records[-1].error_code != OutcomeUnknown.code:  # then it may be there
                _undo(lake, table, known)
            failed = next(record for record in records if record.outcome is not Outcome.SUCCEEDED)
            raise RefreshFailed(f"{failed.name} could not be loaded: {failed.error_code}: {failed.error_text}")
    return Created(definitions.by_id(lake.conn, table.id), records, warnings=_warned(lake, table.name))


def _declare(lake: Lake, known: DynamicTable, found: Analysis) -> DynamicTable:
    """The next version of a definition; content that is right for it too is not computed again."""
    frontier = versions.frontier(lake.conn, known.id)
    with db.repeatable(lake.conn):
        table = declare(lake, known, found.definition, found.resolved, found.sources)
        loaded = frontier is not None and frontier.version.definition_version == known.definition_version
        if frontier is not None and loaded and _same_content(known, found):
            _content_stays(lake.conn, table, frontier, frontier.version.commit, table.definition_version)
    return table


def _content_stays(where: Executor, table: DynamicTable, frontier: Frontier, commit: int, definition: int) -> None:
    """The content of the frontier counts as that of this version of the definition, as of this commit."""
    old = frontier.version
    version = Version(commit, old.b_hi, old.b_hi, definition, old.table_id, old.t)
    versions.move_frontier(
        where, table.id, version, frontier.b_time, frontier.sources, frontier.version_id, frontier.states
    )


def _same_content(known: DynamicTable, found: Analysis) -> bool:
    """Whether the content that is there is right for the new definition too."""
    one, other = known.resolved, found.resolved
    same = (one.query, one.columns) == (other.query, other.columns)
    had, has = known.definition, found.definition
    return same and (had.partition_by, had.dialect) == (has.partition_by, has.dialect)


def _undo(lake: Lake, table: DynamicTable, known: DynamicTable | None) -> None:
    if known is None:
        with suppress(DefinitionChanged, HasDependents):  # it is loaded after all, or somebody counts on it
            definitions.drop(lake.conn, [table.id], {table.id: None})
            pins.drop_positions(lake.conn, f"dynamic:{table.id}")
    else:  # the definition before it, as a new version: its content is still there
        sources = definitions.sources(lake.conn, known)
        declare(lake, table, known.definition, known.resolved, sources)


def refuse_lake_table(lake: Lake, name: QualifiedName) -> None:
    with lake.catalog() as catalog:
        head = catalog.head().id
        view, table_id = catalog.view(name.schema, name.name, head), catalog.table_id(name.schema, name.name, head)
    if view is not None or table_id is not None:
        raise TableExists(f"there is a table or view {name} in the lake", remedy="choose another name, or drop it")


def _warned(lake: Lake, name: QualifiedName) -> tuple[Warned, ...]:
    return tuple(found for found in warnings(definitions.graph(lake.conn)) if found.name == name)


# ---------------------------------------------------------------- ALTER
def change(lake: Lake, statement: Change) -> DynamicTable | None:
    """SET and UNSET; None where IF EXISTS found nothing."""
    table = _found(lake, statement.name, missing_ok=statement.missing_ok)
    if table is None:
        return None
    return _declare(lake, table, analyse_again(lake, table, statement.apply(table.definition)))


def rename(lake: Lake, statement: Rename) -> bool:
    """The table and its dependents go on under the new name: they know it by its id, and their queries are reworded."""
    table = _found(lake, statement.name, missing_ok=statement.missing_ok)
    if table is None:
        return False
    refuse_lake_table(lake, statement.to)
    readers = [definitions.get(lake.conn, name) for name in definitions.graph(lake.conn).consumers(table.name)]
    frontier = versions.frontier(lake.conn, table.id)

    def more(cursor: Any, snapshot: int | None) -> None:
        definitions.rename(cursor, table, statement.to)
        for reader in readers:
            words = [
                renamed(text, table.name, statement.to, reader.definition.dialect)
                for text in (reader.definition.query, reader.resolved.query)
            ]
            definitions.reword(cursor, reader, words[0], words[1], table.id, statement.to)
        if frontier is not None and snapshot is not None:  # the same content, as of our own commit
            _content_stays(cursor, table, frontier, snapshot, frontier.version.definition_version)
            schema = lake.settings.lake.catalog_schema
            pins.record_position(
                cursor, f"dynamic:{table.id}", frontier.version.table_id, snapshot, catalog_schema=schema
            )

    if table.table_id is None:
        with lake.conn.transaction(), lake.conn.cursor() as cursor:
            more(cursor, None)
        return True
    with lake.catalog() as catalog:
        head = catalog.head()
        schema_id = catalog.schema_id(statement.to.schema, head.id)
    update = RenameTable(table.table_id, schema_id, statement.to.schema, statement.to.name)
    needed = NoConflict(table.table_id, head.id, Purpose.CHANGE)
    told = f"rename {table.name} to {statement.to}"
    intent = Intent(uuid.uuid4(), (update,), (needed,), author="lakemill", message=told)
    lake.publisher.publish(intent, more)
    return True


def suspend(lake: Lake, names: Sequence[QualifiedName], *, missing_ok: bool = False) -> tuple[QualifiedName, ...]:
    """Those whose state changed: these, and all that read them, which wait as UPSTREAM_SUSPENDED."""
    tables = [table for name in names if (table := _found(lake, name, missing_ok=missing_ok))]
    graph = definitions.graph(lake.conn)
    below = {name for table in tables for name in graph.dependents(table.name)} - {table.name for table in tables}
    by_name = {table.name: table for table in definitions.list_all(lake.conn)}
    with lake.conn.transaction():
        changed = definitions.set_state(lake.conn, [table.id for table in tables], State.SUSPENDED, "by hand")
        changed |= definitions.set_state(
            lake.conn,
            [by_name[name].id for name in below],
            State.UPSTREAM_SUSPENDED,
            f"{', '.join(str(table.name) for table in tables)} is suspended",
            only=(State.ACTIVE, State.PENDING_INIT, State.STALE),
        )
    return tuple(name for name, table in by_name.items() if table.id in changed)


def resume(lake: Lake, names: Sequence[QualifiedName], *, missing_ok: bool = False) -> tuple[QualifiedName, ...]:
    """Those that go on: these, and what waited for them and for nobody else."""
    tables = [table for name in names if (table := _found(lake, name, missing_ok=missing_ok))]
    graph = definitions.graph(lake.conn)
    by_name = {table.name: table for table in definitions.list_all(lake.conn)}
    stopped = {State.SUSPENDED, State.FAILED}
    still = {name for name, table in by_name.items() if table.state in stopped} - {table.name for table in tables}
    below = {name for table in tables for name in graph.dependents(table.name)}
    free = [name for name in below if not still & set(graph.ancestors(name))]
    waited = (State.UPSTREAM_SUSPENDED, State.UPSTREAM_FAILED)
    with lake.conn.transaction():
        changed = definitions.set_state(lake.conn, [table.id for table in tables], State.ACTIVE)
        changed |= definitions.set_state(lake.conn, [by_name[name].id for name in free], State.ACTIVE, only=waited)
    return tuple(name for name, table in by_name.items() if table.id in changed)


# ---------------------------------------------------------------- DROP
def drop(lake: Lake, statement: Drop) -> tuple[QualifiedName, ...]:
    """What was dropped: the table, and with CASCADE all that read it."""
    for _ in range(ATTEMPTS - 1):
        with suppress(ConflictError):  # it was loaded meanwhile: its table in the lake must go too
            return _drop(lake, statement)
    return _drop(lake, statement)


def _drop(lake: Lake, statement: Drop) -> tuple[QualifiedName, ...]:
    table = _found(lake, statement.name, missing_ok=statement.missing_ok)
    if table is None:
        return ()
    graph = definitions.graph(lake.conn)
    dependents = graph.dependents(table.name)
    if dependents and not statement.cascade:
        raise HasDependents(f"{table.name} is read by {', '.join(map(str, dependents))}")
    by_name = {found.name: found for found in definitions.list_all(lake.conn)}
    gone = [table, *(by_name[name] for name in dependents)]
    ids = [found.id for found in gone]

    def more(cursor: Any, _: int = 0) -> None:
        definitions.drop(cursor, ids, {found.id: found.table_id for found in gone})
        for dynamic_id in ids:
            pins.drop_positions(cursor, f"dynamic:{dynamic_id}")

    frontiers = [versions.frontier(lake.conn, dynamic_id) for dynamic_id in ids]
    states = [state.table_id for frontier in frontiers if frontier is not None for state in frontier.states]
    tables = [*(found.table_id for found in gone if found.table_id is not None), *states]
    with lake.catalog() as catalog:
        head = catalog.head()
        live = [table_id for table_id in tables if catalog.table_by_id(table_id, head.id) is not None]
    if live:
        updates = tuple(map(DropTable, live))
        told = f"drop {', '.join(str(found.name) for found in gone)}"
        lake.publisher.publish(Intent(uuid.uuid4(), updates, (), author="lakemill", message=told), more)
    else:
        with lake.conn.transaction(), lake.conn.cursor() as cursor:
            more(cursor)
    for found in gone:  # what a load that was killed, or is still at work, would have given the name
        abandon_all(lake.duck, found.name.schema, f"d{found.id}")
    return tuple(found.name for found in gone)


def _found(lake: Lake, name: QualifiedName, *, missing_ok: bool) -> DynamicTable | None:
    return definitions.find(lake.conn, name) if missing_ok else definitions.get(lake.conn, name)
