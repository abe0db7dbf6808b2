"""`lakemill validate`: what would come of a definition, check by check; nothing is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from lakemill.cli.options import FormatOption, given
from lakemill.cli.output import Format, Output
from lakemill.cli.script import FileOption, SqlArgument, read_script

if TYPE_CHECKING:
    from lakemill.runtime.validate import Validation

MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "wrong": ("✗", "red"), "not checked": ("·", "white")}


def command(
    context: typer.Context, text: SqlArgument = None, file: FileOption = None, format_: FormatOption = None
) -> None:
    """Check definitions of dynamic tables, and change nothing.

    A line a check: syntax, whether the name is free and the sources exist, the columns as both engines see them, keys,
    how it would be refreshed and why, properties, warnings. The exit code is 2 when something is wrong. A statement may
    read what an earlier one of the same file declares. JSON is a list, with an object a statement.

        lakemill validate -f reports.sql
        lakemill validate -f reports.sql --format json
        lakemill validate "CREATE DYNAMIC TABLE n TARGET_LAG = '1 hour' AS SELECT count(*) AS n FROM orders"
    """
    from lakemill.runtime.validate import validate

    script = read_script(text, file, "validate")
    output = given(context).output(format_)
    with given(context).lake() as lake:
        found = validate(lake, script.text, script.name)
    _tell(found, output)
    if not all(one.valid for one in found):
        raise typer.Exit(2)


def _tell(found: tuple[Validation, ...], output: Output) -> None:
    if output.format is Format.TABLE:
        for number, one in enumerate(found):
            if number:
                output.text("")
            for check in one.checks:
                mark, colour = MARKS[check.verdict.value]
                remedy = f" → {check.remedy}" if check.remedy else ""
                said = check.found or check.verdict.value
                typer.echo(f"{typer.style(mark, fg=colour)} {check.name:<13} {said}{remedy}")
    else:
        output.facts([_facts(one) for one in found])


def _facts(one: Validation) -> dict[str, Any]:
    from lakemill.runtime.facts import properties

    definition, analysis = one.definition, one.analysis
    errors = []
    if one.error is not None:
        errors.append(
            {
                "code": one.error.code,
                "place": one.error.place,
                "message": one.error.message,
                "remedy": one.error.remedy or None,
            }
        )
    return {
        "valid": one.valid,
        "table_name": definition and str(definition.name),
        "syntax_ok": one.passed("syntax"),
        "source_tables": [str(name) for name in one.named],
        "all_sources_exist": one.passed("sources"),
        "refresh_strategy": analysis and analysis.mode.mode.value,
        "refresh_strategy_reason": analysis and analysis.resolved.mode_reason,
        "group_by_columns": list(one.keys),
        "columns": [{"name": name, "type": duck, "spark_type": spark} for name, duck, spark in one.columns],
        "dependencies": [str(name) for name in one.suppliers],
        "properties": properties(definition) if definition else {},
        "warnings": [{"message": warned.message, "remedy": warned.remedy} for warned in one.warned],
        "errors": errors,
        "checks": [
            {"check": check.name, "verdict": check.verdict.value, "found": check.found, "remedy": check.remedy}
            for check in one.checks
        ],
    }
