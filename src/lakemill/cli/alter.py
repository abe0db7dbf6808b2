"""`lakemill alter`: change the properties of a dynamic table, or its name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakemill.cli.options import FormatOption, NameArgument, given
from lakemill.cli.output import Output
from lakemill.errors import BadArgument, BadStatement

if TYPE_CHECKING:
    from lakemill.core.names import QualifiedName
    from lakemill.core.statement import Change, Rename
    from lakemill.runtime.open import Lake
    from lakemill.store.definitions import DynamicTable


def command(
    context: typer.Context,
    name: NameArgument,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a property; may be repeated.")
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Back to its default; may be repeated.")
    ] = None,
    to: Annotated[str | None, typer.Option("--rename-to", metavar="NAME", help="Its new name.")] = None,
    format_: FormatOption = None,
) -> None:
    """Change properties of a dynamic table, or its name.

    The query is changed by CREATE OR ALTER or CREATE OR REPLACE. Those that read a renamed table follow it.

        lakemill alter by_day --set "TARGET_LAG=10 minutes" --set PRIORITY=5
        lakemill alter by_day --unset COMMENT
        lakemill alter by_day --rename-to sales.by_day
    """
    from lakemill.core.names import parse_name
    from lakemill.core.position import START
    from lakemill.core.statement import Rename

    wanted = parse_name(name)
    if bool(sets or unset) == bool(to):
        raise BadArgument("give --set or --unset, or --rename-to", remedy="see `lakemill alter --help`")
    statement = Rename(START, wanted, parse_name(to)) if to else _change(wanted, sets or [], unset or [])
    output = given(context).output(format_)
    with given(context).lake() as lake:
        alter(lake, statement, output)


def alter(lake: Lake, statement: Change | Rename, output: Output) -> None:
    from lakemill.core.statement import Rename
    from lakemill.runtime import dynamic
    from lakemill.store import definitions

    table: DynamicTable | None
    if isinstance(statement, Rename):
        views = dynamic.rename(lake, statement)
        table = None if views is None else definitions.get(lake.conn, statement.to)
        for view in views or ():
            output.remark(f"warning: the view {view} still reads {statement.name} → CREATE OR REPLACE VIEW {view}")
    else:
        table = dynamic.change(lake, statement)
    if table is None:
        output.remark(f"there is no dynamic table {statement.name}; nothing was changed")
        return
    output.record(_facts(table))


def _facts(table: DynamicTable) -> dict[str, Any]:
    from lakemill.core.properties import shown

    return {
        "table": str(table.name),
        "definition_version": table.definition_version,
        "state": table.state.value,
        "mode": table.resolved.mode.value,
        "mode_reason": table.resolved.mode_reason,
        "properties": ", ".join(shown(table.definition)),
    }


def _change(name: QualifiedName, sets: list[str], unset: list[str]) -> Change:
    """Read by the grammar of ALTER, so that both refuse the same with the same words; the shell took the quotes off."""
    from lakemill.core.position import START
    from lakemill.core.properties import text
    from lakemill.core.statement import Change

    change = Change(START, name)
    for pair in sets:
        key, _, value = (part.strip() for part in pair.partition("="))
        if len(value) > 1 and value[0] == value[-1] == "'":
            value = value[1:-1].replace("''", "'")
        one = _read(f"SET {key} = {text(value)}", f"--set {pair}")
        change = replace(change, values={**change.values, **one.values})
    for key in unset:
        change = replace(change, unset=(*change.unset, *_read(f"UNSET {key}", f"--unset {key}").unset))
    return change


def _read(words: str, place: str) -> Change:
    from lakemill.core.ddl import parse_script
    from lakemill.core.statement import Change

    try:
        found = list(parse_script(f"ALTER DYNAMIC TABLE t {words}"))
    except BadStatement as error:
        raise BadStatement(error.message, remedy=error.remedy, place=place) from error
    if len(found) != 1 or not isinstance(found[0], Change):
        raise BadArgument("this can't be meant", place=place, remedy='write --set "TARGET_LAG=5 minutes"')
    return found[0]
