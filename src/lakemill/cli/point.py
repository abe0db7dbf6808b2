"""`lakemill point`: one consistent state of several tables, pinned, and how a DuckDB session reads it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakemill.cli.options import FormatOption, NamesArgument, given, some_names
from lakemill.cli.output import Format, Output, moment

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake


def command(
    context: typer.Context,
    names: NamesArgument = None,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print what one stock DuckDB session needs to read them instead.")
    ] = False,
    secrets: Annotated[
        bool, typer.Option("--show-secrets", help="With --sql: with passwords and keys, so that it works as it is.")
    ] = False,
    minutes: Annotated[int, typer.Option("--minutes", min=1, help="For how long its snapshots are kept.")] = 60,
    format_: FormatOption = None,
) -> None:
    """Find the newest data snapshot at which all these tables are right, and keep it readable.

    Dynamic tables are refreshed at different times; at a point they all tell of the same state of their sources. Base
    tables may be named too, views not: they keep no rows. A table that was renamed since has another name at its
    snapshot, which is told. Without names: the newest point of each part of the graph, which is always kept readable.

        lakemill point
        lakemill point orders by_day by_customer
        duckdb -init <(lakemill point orders by_day --sql --show-secrets)
    """
    from lakemill.runtime.attach import attach_script
    from lakemill.runtime.point import point

    output = given(context).output(format_)
    with given(context).lake() as lake:
        if not names and not sql:
            _list_kept(lake, output)
            return
        found = point(lake, some_names(names, "point"), timedelta(minutes=minutes))
        if sql:
            attached = attach_script(lake, read_only=True, secrets=secrets)
            output.text("\n".join([*(f"{statement};" for statement in attached), found.sql]))
            return
    columns = ["table", "kind", "snapshot"]
    rows: list[list[Any]] = [
        [str(table.name), "dynamic" if table.dynamic else "base", table.snapshot] for table in found.tables
    ]
    if output.format is not Format.TABLE or any(table.then != table.name for table in found.tables):
        columns.append("name there" if output.format is Format.TABLE else "name_there")
        rows = [[*row, str(table.then)] for row, table in zip(rows, found.tables, strict=True)]
    if output.format is Format.TABLE:
        output.text(
            f"data snapshot {found.b} of {found.time:%Y-%m-%d %H:%M:%S}, kept until {found.pinned_until:%H:%M:%S}"
        )
    else:
        columns += ["data_snapshot", "data_time", "pinned_until"]
        rows = [[*row, found.b, found.time, found.pinned_until] for row in rows]
    output.rows(columns, rows)


def _list_kept(lake: Lake, output: Output) -> None:
    people = output.format is Format.TABLE
    rows = [
        [number, str(name), commit, kept.b, moment(kept.time) if people else kept.time]
        for number, kept in enumerate(lake.points(), 1)
        for name, commit in kept.tables
    ]
    if people and not rows:
        output.text("no dynamic table was loaded yet")
        return
    columns = ["point", "table", "snapshot", "data snapshot", "of"]
    output.rows(columns if people else ["point", "table", "snapshot", "data_snapshot", "data_time"], rows)
