"""`lakemill refresh`: bring dynamic tables to the newest snapshot now."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from lakemill.cli import failure, records
from lakemill.cli.options import FormatOption, NamesArgument, given
from lakemill.cli.output import Format, Output
from lakemill.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakemill.core.names import QualifiedName
    from lakemill.runtime.open import Lake


def command(
    context: typer.Context,
    names: NamesArgument = None,
    full: Annotated[
        bool, typer.Option("--full", help="Compute the whole query; only what differs is written.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="All dynamic tables.")] = False,
    format_: FormatOption = None,
) -> None:
    """Refresh dynamic tables now, all at one data snapshot.

    What they read is refreshed first where it must be. A suspended table is refreshed too, and stays suspended. A table
    that fails is left as it was, those that read it are not tried, and the exit code is that of the first failure.

        lakemill refresh by_day
        lakemill refresh by_day sales.by_customer --format json
        lakemill refresh --full by_day
        lakemill refresh --all
    """
    from lakemill.core.names import parse_name
    from lakemill.store import definitions

    if bool(names) == every:
        raise BadArgument("give names or --all", remedy="see `lakemill refresh --help`")
    output = given(context).output(format_)
    with given(context).lake() as lake:
        wanted = [table.name for table in definitions.list_all(lake.conn)] if every else map(parse_name, names or ())
        refresh(lake, list(wanted), output, full=full)


def refresh(lake: Lake, names: Sequence[QualifiedName], output: Output, *, full: bool = False) -> None:
    """Refresh, print a line a table, and fail as the first that failed."""
    from lakemill.core.refresh import Outcome
    from lakemill.runtime.facts import refreshed
    from lakemill.runtime.refresh import refresh as run
    from lakemill.telemetry.log import configure

    if sys.stderr.isatty():
        configure()  # who waits for somebody else is told so
    done = run(lake, names, full=full) if names else ()
    failed = [record for record in done if record.outcome is not Outcome.SUCCEEDED]
    if output.format is Format.TABLE:
        for record in done:
            output.text(records.summary(record))
        if not done:
            output.text("no dynamic tables")
    else:
        output.facts([refreshed(record) for record in done])
    if failed:
        first = failed[0]
        raise failure.recorded(first.error_code, first.error_text or "it failed", str(first.name)) from first.cause
