"""The statements about dynamic tables, carried out: create, alter, rename, drop; ``runtime/halting`` has the others.

Each takes a statement of ``core/statement`` or names, and either does all of it or nothing. What is refreshed at once
(ON_CREATE, REFRESH) goes through ``runtime/refresh``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakemill.core.commit import DropTable, Intent, NoConflict, Purpose, RenameTable
from lakemill.core.definition import Dialect, Initialize
from lakemill.core.graph import Graph, Warned, warnings
from lakemill.core.names import HIDDEN, QualifiedName, fold
from lakemill.core.partition import check_keys
from lakemill.core.profile import require_profile
from lakemill.core.refresh import Outcome, Trigger
from lakemill.core.rename import renamed
from lakemill.core.statement import Change, Create, Drop, IfExists, Rename
from lakemill.errors import (
    BadStatement,
    ConflictError,
    DefinitionChanged,
    FrontierMoved,
    HasDependents,
    LakemillError,
    OutcomeUnknown,
    RefreshFailed,
    TableExists,
    UnknownTable,
)
from lakemill.lake.tables import abandon_all
from lakemill.runtime.analyse import Analysis, analyse, analyse_again
from lakemill.runtime.declaring import content_stays, declare, declare_back
from lakemill.runtime.halting import found_or_none, wait_or_go
from lakemill.runtime.refresh import refresh
from lakemill.runtime.views import views_of
from lakemill.store import db, definitions, pins, versions, work
from lakemill.store.definitions import DynamicTable
from lakemill.store.history import RefreshRecord

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
def create(lake: Lake, statement: Create, file: str | None = None, *, load: bool = True) -> Created:
    """Declare a dynamic table and, unless ON_SCHEDULE, load it; a load that fails leaves nothing behind.

    Without ``load`` that is left to others, who have Spark.
    """
    definition = statement.definition
    known = definitions.find(lake.conn, definition.name)
    if known is not None and statement.if_exists is IfExists.KEEP:
        return Created(known, kept=True)
    require_home(lake, statement, known, file)
    found = analysed(lake, statement, file)
    require_properties(lake, statement, found, file)
    if known is None:
        table = definitions.create(lake.conn, definition, found.resolved, found.sources)
    elif statement.if_exists is IfExists.ALTER and _same_content(lake, known, found):
        table = _declare(lake, known, found)
        if _has_content(lake, table):
            return Created(table, warnings=warned(lake, table.name))
    else:
        table = declare(lake, known, definition, found.resolved, found.sources)
    records: tuple[RefreshRecord, ...] = ()
    if load and definition.initialize is Initialize.ON_CREATE:
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
    wait_or_go(lake, table.name)
    work.tell(lake.conn, work.DECLARED)
    return Created(definitions.by_id(lake.conn, table.id), records, warnings=warned(lake, table.name))


def _declare(lake: Lake, known: DynamicTable, found: Analysis) -> DynamicTable:
    """The next version of a definition; content that is right for it too is not computed again."""
    frontier = versions.frontier(lake.conn, known.id)
    with db.repeatable(lake.conn):
        table = declare(lake, known, found.definition, found.resolved, found.sources)
        loaded = frontier is not None and frontier.version.definition_version == known.definition_version
        if frontier is not None and loaded and _same_content(lake, known, found):
            content_stays(lake.conn, table, frontier, frontier.version.commit, table.definition_version)
        work.tell(lake.conn, work.DECLARED)
    return table


def _has_content(lake: Lake, table: DynamicTable) -> bool:
    """Whether it was loaded by its definition as it is now."""
    frontier = versions.frontier(lake.conn, table.id)
    return frontier is not None and frontier.version.definition_version == table.definition_version


def _same_content(lake: Lake, known: DynamicTable, found: Analysis) -> bool:
    """Whether the content that is there is right for the new definition too."""
    one, other = known.resolved, found.resolved
    had, has = known.definition, found.definition
    if (one.columns, had.partition_by, had.dialect) != (other.columns, has.partition_by, has.dialect):
        return False
    return one.query == other.query or (has.dialect is Dialect.DUCKDB and _same_tree(lake, one.query, other.query))


def _same_tree(lake: Lake, one: str, other: str) -> bool:
    """Whether DuckDB's own parser makes the same of both: brackets that change nothing are not in its tree."""
    trees = [lake.sql("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchone() for query in (one, other)]
    first, second = (json.loads(row[0], object_hook=_unplaced, parse_float=str) for row in trees if row)
    return not first["error"] and bool(first == second)


def _unplaced(node: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in node.items() if name != "query_location"}


def _undo(lake: Lake, table: DynamicTable, known: DynamicTable | None) -> None:
    if known is None:
        with suppress(DefinitionChanged, HasDependents):  # it is loaded after all, or somebody counts on it
            definitions.drop(lake.conn, [table.id], {table.id: None})
            pins.drop_positions(lake.conn, pins.dynamic(table.id))
    else:  # its content is still there
        with suppress(DefinitionChanged, FrontierMoved):  # others declared it anew, or it is loaded after all
            declare_back(lake, table, known)


def require_home(lake: Lake, statement: Create, known: DynamicTable | None, file: str | None = None) -> None:
    """CREATE may give this name: it is free, or that of the dynamic table which is to be another."""
    name, place = statement.definition.name, statement.places.get("name", statement.at).place(file)
    if known is None:
        _require_free(lake, name, place)
    elif statement.if_exists is IfExists.REFUSE:
        raise TableExists(f"there is a dynamic table {name} already", place=place)


def analysed(lake: Lake, statement: Create, file: str | None = None) -> Analysis:
    """What CREATE declares; what is wrong is told with its place in the statement."""
    at = statement.places.get("query", statement.at)
    return analyse(lake, statement.definition, at, file, statement.places.get("columns"))


def require_properties(lake: Lake, statement: Create, found: Analysis, file: str | None = None) -> None:
    """PARTITION BY names columns that are there, in a way that both engines know, SPARK_PROFILE one of the settings."""
    profile = statement.places.get("SPARK_PROFILE", statement.at)
    require_profile(statement.definition.spark_profile, lake.settings.spark.profiles, profile.place(file))
    place = statement.places.get("PARTITION BY", statement.at).place(file)
    check_keys(statement.definition.partition_by, {one.name: one.type for one in found.resolved.columns}, place)


def _require_free(lake: Lake, name: QualifiedName, place: str | None = None, own: int | None = None) -> None:
    """Nothing in the lake has the name, but for the table ``own`` in other letters; and its schema is there."""
    if fold(name.schema) == HIDDEN:
        raise BadStatement(
            f"{HIDDEN} holds what Lakemill keeps for itself", remedy="choose another schema", place=place
        )
    with lake.catalog() as catalog:
        head = catalog.head().id
        try:
            catalog.schema_id(name.schema, head)
        except UnknownTable as error:
            error.place = place
            raise
        view, table_id = catalog.view(name.schema, name.name, head), catalog.table_id(name.schema, name.name, head)
    if view is not None or (table_id is not None and table_id != own):
        raise TableExists(
            f"there is a table or view {name} in the lake", remedy="choose another name, or drop it", place=place
        )


def warned(lake: Lake, name: QualifiedName) -> tuple[Warned, ...]:
    """What is allowed, and surely not meant, about this table as it is declared now."""
    graph = definitions.graph(lake.conn)
    return (*(found for found in warnings(graph) if found.name == name), *_lost_columns(lake, graph, name))


def _lost_columns(lake: Lake, graph: Graph, name: QualifiedName) -> Iterator[Warned]:
    """Those who read a column that the table has no more: their refreshes will fail."""
    table = definitions.get(lake.conn, name)
    has = {fold(column.name) for column in table.resolved.columns}
    for consumer in graph.consumers(name):
        sources = definitions.sources(lake.conn, definitions.get(lake.conn, consumer))
        used = {column for source in sources if source.supplier_id == table.id for column in source.columns}
        if gone := sorted(used - has):
            told = f"{consumer} uses {', '.join(gone)}, which {name} does not have"
            yield Warned(name, told, f"CREATE OR REPLACE {consumer} too")


# ---------------------------------------------------------------- ALTER
def change(lake: Lake, statement: Change) -> DynamicTable | None:
    """SET and UNSET; None where IF EXISTS found nothing."""
    table = found_or_none(lake, statement.name, missing_ok=statement.missing_ok)
    if table is None:
        return None
    require_profile(statement.values.get("SPARK_PROFILE"), lake.settings.spark.profiles, statement.at.place())
    try:
        found = analyse_again(lake, table, statement.apply(table.definition))
    except LakemillError as error:
        error.place = statement.at.place()  # it tells a place in the query, which is no part of this statement
        raise
    return _declare(lake, table, found)


def rename(lake: Lake, statement: Rename) -> tuple[QualifiedName, ...] | None:
    """The table and its dependents go on under the new name: they know it by its id, and their queries are reworded.

    The views of the lake that name it by its old name, which are left as they are; None where IF EXISTS found nothing.
    """
    table = found_or_none(lake, statement.name, missing_ok=statement.missing_ok)
    if table is None:
        return None
    _require_free(lake, statement.to, own=table.table_id)
    views = () if statement.to == table.name else views_of(lake, table.name)
    readers = [definitions.get(lake.conn, name) for name in definitions.graph(lake.conn).consumers(table.name)]
    plain = QualifiedName(*statement.to.key)  # as names are in a query that was resolved
    frontier = versions.frontier(lake.conn, table.id)

    def more(cursor: Any, snapshot: int | None) -> None:
        definitions.rename(cursor, table, statement.to)
        for reader in readers:
            dialect = reader.definition.dialect
            words = renamed(reader.definition.query, table.name, statement.to, dialect)
            resolved = words
            if dialect is Dialect.DUCKDB:
                resolved = renamed(reader.resolved.query, table.name, plain)
            definitions.reword(cursor, reader, words, resolved, table.id, statement.to)
        if frontier is not None and snapshot is not None:  # the same content, as of our own commit
            content_stays(cursor, table, frontier, snapshot, frontier.version.definition_version)
            schema = lake.settings.lake.catalog_schema
            pins.record_position(
                cursor, pins.dynamic(table.id), frontier.version.table_id, snapshot, catalog_schema=schema
            )

    if table.table_id is None:
        with lake.conn.transaction(), lake.conn.cursor() as cursor:
            more(cursor, None)
        return views
    with lake.catalog() as catalog:
        head = catalog.head()
        schema_id = catalog.schema_id(statement.to.schema, head.id)
        if catalog.table_by_id(table.table_id, head.id) is None:
            raise UnknownTable(
                f"somebody dropped the table of {table.name} from the lake",
                remedy=f"lakemill refresh {table.name} makes it again; then rename it",
                place=statement.at.place(),
            )
    update = RenameTable(table.table_id, schema_id, statement.to.schema, statement.to.name)
    needed = NoConflict(table.table_id, head.id, Purpose.CHANGE)
    told = f"rename {table.name} to {statement.to}"
    intent = Intent(uuid.uuid4(), (update,), (needed,), author="lakemill", message=told)
    lake.publisher.publish(intent, more)
    return views


# ---------------------------------------------------------------- DROP
def drop(lake: Lake, statement: Drop) -> tuple[QualifiedName, ...]:
    """What was dropped: the table, and with CASCADE all that read it."""
    for _ in range(ATTEMPTS - 1):
        with suppress(ConflictError):  # it was loaded meanwhile: its table in the lake must go too
            return _drop(lake, statement)
    return _drop(lake, statement)


def _drop(lake: Lake, statement: Drop) -> tuple[QualifiedName, ...]:
    table = found_or_none(lake, statement.name, missing_ok=statement.missing_ok)
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
            pins.drop_positions(cursor, pins.dynamic(dynamic_id))

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
    catalog_schema = lake.settings.lake.catalog_schema
    for found in gone:  # what a load that was killed, or is still at work, would have given the name
        abandon_all(lake.duck, lake.conn, found.name.schema, f"d{found.id}", catalog_schema=catalog_schema)
    return tuple(found.name for found in gone)
