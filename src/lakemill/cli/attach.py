"""`lakemill attach`: the SQL with which any DuckDB client opens this lake."""

from __future__ import annotations

from typing import Annotated

import typer

from lakemill.cli.options import FormatOption, given
from lakemill.cli.output import Format


def command(
    context: typer.Context,
    at: Annotated[
        int | None, typer.Option("--at", metavar="SNAPSHOT", help="As it was at this snapshot, read only.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="So that the client can't write.")] = False,
    secrets: Annotated[
        bool, typer.Option("--show-secrets", help="With passwords and keys, so that it can be pasted as it is.")
    ] = False,
    format_: FormatOption = None,
) -> None:
    """Print the SQL that attaches this lake in any DuckDB client.

    Passwords are masked unless you ask for them.

        lakemill attach
        lakemill attach --at 12
        duckdb -init <(lakemill attach --show-secrets)
    """
    from lakemill.runtime.attach import attach_script

    output = given(context).output(format_)
    with given(context).lake() as lake:
        if at is not None:
            lake.snapshot(at)
        statements = attach_script(lake, at=at, read_only=read_only, secrets=secrets)
    if output.format is Format.JSON:
        output.record({"statements": statements})
    else:
        output.text("\n".join(f"{statement};" for statement in statements))
