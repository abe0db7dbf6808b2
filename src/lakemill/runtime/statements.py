"""Any one statement about dynamic tables, carried out for a program: what ``Lake.execute`` gives back.

Each goes to the module that does it; nothing is done here. The command line prints as it goes along, so it has a list
of its own (``cli/statements``), and shares what is said of where a statement stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from lakemill.core import statement as own
from lakemill.core.ddl import dropped_tables, parse_script
from lakemill.core.names import QualifiedName, parse_name
from lakemill.core.position import START, Position
from lakemill.core.statement import Own
from lakemill.errors import (
    BadStatement,
    Cycle,
    HasDependents,
    LakemillError,
    TableExists,
    UnknownDynamicTable,
    UnknownTable,
)
from lakemill.runtime import dynamic, halting, show
from lakemill.runtime.explain import Explained, explain_chain
from lakemill.runtime.refresh import refresh
from lakemill.store import definitions

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake
    from lakemill.store.definitions import DynamicTable
    from lakemill.store.history import RefreshRecord

Result: TypeAlias = (
    "dynamic.Created | DynamicTable | show.Described | tuple[str, ...] | tuple[RefreshRecord, ...]"
    " | tuple[show.Shown, ...] | tuple[Explained, ...] | None"
)


def execute(lake: Lake, text: str) -> Result:
    """Carry out the one statement of ours that a text holds."""
    found = list(parse_script(text))
    if len(found) != 1:
        place = (found[1].at if found else START).place()
        raise BadStatement("one statement should stand here", remedy="call it once for each", place=place)
    if isinstance(found[0], own.PlainSql):
        raise BadStatement(
            "this is no statement about dynamic tables", remedy="run it with lake.sql(…)", place=found[0].at.place()
        )
    with placed(found[0]), told_plainly(lake):
        return _carried_out(lake, found[0])


def _carried_out(lake: Lake, statement: Own) -> Result:
    match statement:
        case own.Create():
            return dynamic.create(lake, statement)
        case own.Suspend(names=names, missing_ok=missing_ok):
            return tuple(map(str, halting.suspend(lake, names, missing_ok=missing_ok)))
        case own.Resume(names=names, missing_ok=missing_ok):
            return tuple(map(str, halting.resume(lake, names, missing_ok=missing_ok)))
        case own.Refresh(names=names, full=full, missing_ok=missing_ok):
            there = [name for name in names if not missing_ok or definitions.find(lake.conn, name) is not None]
            return refresh(lake, there, full=full) if there else ()
        case own.Change():
            return dynamic.change(lake, statement)
        case own.Rename():
            return None if dynamic.rename(lake, statement) is None else definitions.get(lake.conn, statement.to)
        case own.Drop():
            return tuple(map(str, dynamic.drop(lake, statement)))
        case own.Show(like=like):
            return show.show(lake, like)
        case own.Describe(name=name):
            return show.describe(lake, name)
        case own.ExplainRefresh(name=name):
            return explain_chain(lake, name)


@contextmanager
def placed(statement: Own, file: str | None = None) -> Iterator[None]:
    """Names that are wrong are told with the place where they stand, as far as it is known."""
    try:
        yield
    except (Cycle, HasDependents, TableExists, UnknownDynamicTable, UnknownTable) as error:
        error.place = error.place or _place(statement, error).place(file)
        raise


def _place(statement: Own, error: LakemillError) -> Position:
    if isinstance(statement, own.Create | own.Show) or not statement.places:
        return statement.at
    if isinstance(statement, own.Rename) and isinstance(error, TableExists | UnknownTable):
        return statement.places[1]
    if isinstance(statement, own.Suspend | own.Resume | own.Refresh) and isinstance(error, UnknownDynamicTable):
        named = zip(statement.names, statement.places, strict=True)
        return next((place for name, place in named if str(name) == error.name), statement.at)
    return statement.places[0]


@contextmanager
def told_plainly(lake: Lake) -> Iterator[None]:
    """Who names a plain table, or a view, where a dynamic one is meant is told that it is one."""
    try:
        yield
    except UnknownDynamicTable as error:
        kind = _kind(lake, parse_name(error.name)) if error.name else None
        if kind is not None:
            error.message = f"{error.name} is a {kind}, not a dynamic table"
            error.remedy = "it is fresh by itself; SHOW DYNAMIC TABLES lists those that are refreshed"
        raise


def _kind(lake: Lake, name: QualifiedName) -> str | None:
    with lake.catalog() as catalog:
        head = catalog.head().id
        if catalog.table_id(name.schema, name.name, head) is not None:
            return "plain table"
        return None if catalog.view(name.schema, name.name, head) is None else "view"


def refuse_drops(lake: Lake, script: str, file: str | None = None) -> None:
    """DuckDB's DROP TABLE would take the content, and leave a definition whose next refresh brings it back.

    A table that somebody made where a dynamic one was to be may go.
    """
    for name, place in dropped_tables(script, file):
        known = definitions.find(lake.conn, name)
        if known is None or known.table_id is None:
            continue
        with lake.catalog() as catalog:
            own = catalog.table_id(name.schema, name.name, catalog.head().id) == known.table_id
        if own:
            cure = f"write DROP DYNAMIC TABLE {name}"
            raise BadStatement(f"{name} is a dynamic table", remedy=cure, place=place.place(file))
