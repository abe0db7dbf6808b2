"""`lakemill drop`: remove a dynamic table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakemill.cli.options import FormatOption, NameArgument, given
from lakemill.cli.output import Format, Output

if TYPE_CHECKING:
    from lakemill.core.statement import Drop
    from lakemill.runtime.open import Lake


def command(
    context: typer.Context,
    name: NameArgument,
    cascade: Annotated[bool, typer.Option("--cascade", help="With all dynamic tables that read it.")] = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do nothing where there is none.")] = False,
    format_: FormatOption = None,
) -> None:
    """Drop a dynamic table, definition and content.

    Refused while others read it, unless they are to go with it. Older snapshots still show it; its history stays.

        lakemill drop by_day
        lakemill drop by_day --cascade
        lakemill drop by_day --if-exists
    """
    from lakemill.core.names import parse_name
    from lakemill.core.position import START
    from lakemill.core.statement import Drop

    output = given(context).output(format_)
    with given(context).lake() as lake:
        drop(lake, Drop(START, parse_name(name), if_exists, cascade), output)


def drop(lake: Lake, statement: Drop, output: Output) -> None:
    from lakemill.runtime import dynamic

    gone = dynamic.drop(lake, statement)
    if output.format is not Format.TABLE:
        output.rows(["dropped"], [[str(name)] for name in gone])
    elif gone:
        output.text("\n".join(f"{name}: dropped" for name in gone))
    else:
        output.text(f"there is no dynamic table {statement.name}; nothing was dropped")
