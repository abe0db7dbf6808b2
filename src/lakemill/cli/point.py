"""`lakemill point`: one consistent state of several tables, pinned, and how a DuckDB session reads it."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from lakemill.cli.options import FormatOption, NamesArgument, given, some_names
from lakemill.cli.output import Format


def command(
    context: typer.Context,
    names: NamesArgument = None,
    sql: Annotated[bool, typer.Option("--sql", help="Print views for one stock DuckDB session instead.")] = False,
    minutes: Annotated[int, typer.Option("--minutes", min=1, help="For how long its snapshots are kept.")] = 60,
    format_: FormatOption = None,
) -> None:
    """Find the newest data snapshot at which all these tables are right, and keep it readable.

    Dynamic tables are refreshed at different times; at a point they all tell of the same state of their sources. Base
    tables may be named too.

        lakemill point orders by_day by_customer
        (lakemill attach; lakemill point orders by_day --sql) > session.sql
    """
    from lakemill.runtime.point import point

    output = given(context).output(format_)
    with given(context).lake() as lake:
        found = point(lake, some_names(names, "point"), timedelta(minutes=minutes))
    if sql:
        output.text(found.sql)
        return
    rows = [(str(table.name), "dynamic" if table.dynamic else "base", table.snapshot) for table in found.tables]
    if output.format is Format.TABLE:
        output.text(
            f"data snapshot {found.b} of {found.time:%Y-%m-%d %H:%M:%S}, kept until {found.pinned_until:%H:%M:%S}"
        )
    output.rows(["table", "kind", "snapshot"], rows)
