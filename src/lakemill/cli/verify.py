"""`lakemill verify`: DuckDB computes the query of a dynamic table and compares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakemill.cli import failure
from lakemill.cli.options import FormatOption, NamesArgument, given, some_names
from lakemill.cli.output import Format, Output
from lakemill.errors import LakemillError, SnapshotGone, UnknownSnapshot
from lakemill.runtime.meaning import is_interrupt

if TYPE_CHECKING:
    from lakemill.core.names import QualifiedName
    from lakemill.runtime.verify import Verified

DIFFERENT = 1
"""No error has it: a table that differs is not one that can't be judged."""


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
    shown, and the exit code is 1. A table that can't be judged does not keep the others from it; where none differs,
    the exit code is that of the first such error. A table with DIALECT = 'spark' is compared with what Spark computes
    for its whole query, and it is said that no second engine checked it.

        lakemill verify by_day
        lakemill verify by_day --at 17
        lakemill verify by_day sales.by_customer --format json
    """
    from lakemill.runtime.statements import told_plainly
    from lakemill.runtime.verify import judge, verify

    wanted = some_names(names, "verify")
    output = given(context).output(format_)
    facts: list[dict[str, Any]] = []
    errors: list[LakemillError] = []
    try:
        with given(context).lake() as lake, judge(lake) as by:
            for name in wanted:
                try:
                    with told_plainly(lake):
                        found = verify(lake, name, at, by)
                except Exception as error:
                    if is_interrupt(error):
                        raise
                    told = _placed(failure.explain(error), name, at)
                    told.__cause__ = error.__cause__ if told is error else error
                    errors.append(told)
                    facts.append(_unjudged(name, told))
                else:
                    facts.append(_tell(found, output))
    finally:
        if facts and output.format is not Format.TABLE:
            output.facts(facts)
    different = any(one["equal"] is False for one in facts)
    if len(errors) == 1 and not different:
        raise errors[0]
    for told in errors:
        output.warning(failure.line(told))
    if different or errors:
        raise typer.Exit(DIFFERENT if different else errors[0].exit_code)


def _tell(found: Verified, output: Output) -> dict[str, Any]:
    """Said to people at once; as facts it waits for the others."""
    from lakemill.runtime.facts import verified

    if output.format is Format.TABLE:
        alone = "" if found.engine == "duckdb" else "; Spark computed both, no second engine checked it"
        if found.equal:
            output.text(f"{found.name} equals its query at data snapshot {found.b}: {found.rows} rows{alone}")
        else:
            counts = f"{found.missing} missing, {found.extra} extra"
            output.text(f"{found.name} differs from its query at data snapshot {found.b}: {counts}{alone}")
            output.rows(["", *found.columns], [(side, *row) for side, row in found.examples])
    return verified(found)


def _unjudged(name: QualifiedName, error: LakemillError) -> dict[str, Any]:
    from lakemill.runtime.facts import unjudged

    return unjudged(name, error)


def _placed(error: LakemillError, name: QualifiedName, at: int | None) -> LakemillError:
    if str(name) not in error.message:
        error.place = error.place or str(name)
    if isinstance(error, SnapshotGone):
        error.remedy = f"lakemill refresh {name}" if at is None else "name a later snapshot, or leave --at out"
    elif at is not None and isinstance(error, UnknownSnapshot) and error.remedy != UnknownSnapshot.default_remedy:
        error.remedy = "name a later snapshot, or leave --at out"  # no refresh brings content to the past
    return error
