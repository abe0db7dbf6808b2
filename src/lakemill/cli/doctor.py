"""`lakemill doctor`: what is there, what is wrong, what to do."""

from __future__ import annotations

from typing import Annotated

import typer

from lakemill.cli.options import FormatOption, given
from lakemill.cli.output import Format

MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "wrong": ("✗", "red")}


def command(
    context: typer.Context,
    deep: Annotated[bool, typer.Option("--deep", help="Also start Spark and run a small job.")] = False,
    fetch: Annotated[
        bool,
        typer.Option("--fetch-s3-jars", help="Fetch the jars that Spark needs for S3 now, then say where they are."),
    ] = False,
    format_: FormatOption = None,
) -> None:
    """Check every part that Lakemill needs, and say what to do.

    Versions, Java, PostgreSQL, DuckDB's extensions, Spark, the lake and its data path, S3. The exit code is 1 when
    something is wrong.

        lakemill doctor
        lakemill doctor --deep --format json
        lakemill doctor --fetch-s3-jars
    """
    from lakemill.runtime.doctor import State, examine

    common = given(context)
    output = common.output(format_)
    if fetch:
        from lakemill.spark import jars

        jars.fetch()
    wrong = 0
    rows = []
    for finding in examine(common.folder, dict(common.flags), deep=deep):
        wrong += finding.state is State.WRONG
        rows.append([finding.part, finding.state.value, finding.found, finding.remedy or None])
        if output.format is Format.TABLE:
            mark, colour = MARKS[finding.state.value]
            typer.echo(f"{typer.style(mark, fg=colour)} {finding.part:<24} {finding.found}")
            if finding.remedy:
                typer.echo(f"  {'':<24} → {finding.remedy}")
    if output.format is not Format.TABLE:
        output.rows(["part", "state", "found", "remedy"], rows)
    if wrong:
        output.remark(f"{wrong} thing{'' if wrong == 1 else 's'} wrong")
        raise typer.Exit(1)
