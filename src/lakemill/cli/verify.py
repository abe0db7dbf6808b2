"""`lakemill verify`: DuckDB computes the query of a dynamic table and compares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakemill.cli.options import FormatOption, NamesArgument, given, some_names
from lakemill.cli.output import Format, Output

if TYPE_CHECKING:
    from lakemill.runtime.verify import Verified

DIFFERENT = 3


def command(
    context: typer.Context,
    names: NamesArgument = None,
    at: Annotated[
        int | None, typer.Option(metavar="SNAPSHOT", help="The version that a reader sees at this snapshot.")
    ] = None,
    format_: FormatOption = None,
) -> None:
    """Compare dynamic tables with what DuckDB computes for their query at the same data snapshot.

    Another engine, the same snapshot: rows are compared as bags, floats to a billionth. Where they differ, the rows are
    shown, and the exit code is 3. A table with DIALECT = 'spark' is compared with what Spark computes for its whole
    query, and it is said that no second engine checked it.

        lakemill verify by_day
        lakemill verify by_day --at 17
    """
    from lakemill.runtime.verify import judge, verify

    output = given(context).output(format_)
    with given(context).lake() as lake, judge(lake) as by:
        found = [verify(lake, name, at, by) for name in some_names(names, "verify")]
    for one in found:
        _tell(one, output)
    if not all(one.equal for one in found):
        raise typer.Exit(DIFFERENT)


def _tell(found: Verified, output: Output) -> None:
    from lakemill.runtime.facts import verified

    if output.format is not Format.TABLE:
        output.record(verified(found))
        return
    alone = "" if found.engine == "duckdb" else "; Spark computed both, no second engine checked it"
    if found.equal:
        output.text(f"{found.name} equals its query at data snapshot {found.b}: {found.rows} rows{alone}")
        return
    counts = f"{found.missing} missing, {found.extra} extra"
    output.text(f"{found.name} differs from its query at data snapshot {found.b}: {counts}{alone}")
    output.rows(["", *found.columns], [(side, *row) for side, row in found.examples])
