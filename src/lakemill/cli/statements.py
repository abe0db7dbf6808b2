"""A statement about dynamic tables in a script of `lakemill sql`: carried out and printed as its own command does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakemill.cli import alter, create, describe, drop, explain, list_, refresh, resume, suspend
from lakemill.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakemill.core.names import QualifiedName
    from lakemill.core.statement import Own
    from lakemill.runtime.open import Lake


def carry_out(lake: Lake, statement: Own, output: Output, file: str | None = None) -> None:
    from lakemill.runtime.statements import placed

    with placed(statement, file):
        _carried_out(lake, statement, output, file)


def _carried_out(lake: Lake, statement: Own, output: Output, file: str | None) -> None:
    from lakemill.core import statement as own

    match statement:
        case own.Create():
            create.create(lake, [statement], output, file)
        case own.Suspend(names=names, missing_ok=missing_ok):
            suspend.suspend(lake, names, output, missing_ok=missing_ok)
        case own.Resume(names=names, missing_ok=missing_ok):
            resume.resume(lake, names, output, missing_ok=missing_ok)
        case own.Refresh(names=names, full=full, missing_ok=missing_ok):
            refresh.refresh(lake, _there(lake, names) if missing_ok else names, output, full=full)
        case own.Change() | own.Rename():
            alter.alter(lake, statement, output)
        case own.Drop():
            drop.drop(lake, statement, output)
        case own.Show(like=like):
            list_.list_tables(lake, like, output)
        case own.Describe(name=name):
            describe.describe(lake, name, output)
        case own.ExplainRefresh(name=name):
            explain.explain(lake, name, output)


def _there(lake: Lake, names: Sequence[QualifiedName]) -> list[QualifiedName]:
    from lakemill.store import definitions

    return [name for name in names if definitions.find(lake.conn, name) is not None]
