"""Any one statement about dynamic tables, carried out for a program: what ``Lake.execute`` gives back.

Each goes to the module that does it; nothing is done here. The command line prints as it goes along, so it has a list
of its own (``cli/statements``), and shares what is said of where a statement stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from lakemill.core import statement as own
from lakemill.core.ddl import parse_script
from lakemill.core.position import START
from lakemill.core.statement import Own
from lakemill.errors import BadStatement, Cycle, HasDependents, TableExists, UnknownDynamicTable, UnknownTable
from lakemill.runtime import dynamic, show
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
    with placed(found[0]):
        return _carried_out(lake, found[0])


def _carried_out(lake: Lake, statement: Own) -> Result:
    match statement:
        case own.Create():
            return dynamic.create(lake, statement)
        case own.Suspend(names=names, missing_ok=missing_ok):
            return tuple(map(str, dynamic.suspend(lake, names, missing_ok=missing_ok)))
        case own.Resume(names=names, missing_ok=missing_ok):
            return tuple(map(str, dynamic.resume(lake, names, missing_ok=missing_ok)))
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
    """Names that are wrong are told with the place of the statement, where nothing closer is known."""
    try:
        yield
    except (Cycle, HasDependents, TableExists, UnknownDynamicTable, UnknownTable) as error:
        error.place = error.place or statement.at.place(file)
        raise
