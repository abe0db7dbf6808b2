"""`lakemill create`: declare dynamic tables, and load them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from lakemill.cli import failure, records
from lakemill.cli.options import FormatOption, given
from lakemill.cli.output import Format, Output
from lakemill.cli.script import FileOption, SqlArgument, read_script
from lakemill.errors import BadStatement, LakemillError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakemill.core.statement import Create, Statement
    from lakemill.runtime.dynamic import Created
    from lakemill.runtime.open import Lake


def command(
    context: typer.Context, text: SqlArgument = None, file: FileOption = None, format_: FormatOption = None
) -> None:
    """Create dynamic tables: a query and a lag become a table.

    The table is loaded at once, unless it says INITIALIZE = ON_SCHEDULE; a load that fails leaves nothing behind.
    Several statements are carried out one after the other. `lakemill validate` says beforehand what would come of it.

        lakemill create "CREATE DYNAMIC TABLE big TARGET_LAG = '5 minutes' AS FROM orders WHERE amount > 100"
        lakemill create -f reports.sql
        lakemill create -f reports.sql --format json

    OR REPLACE computes it anew, OR ALTER keeps the content where the query is the same, IF NOT EXISTS leaves it as it
    is.
    """
    from lakemill.core.ddl import parse_script

    script = read_script(text, file, "create")
    output = given(context).output(format_)
    statements = _only_create(list(parse_script(script.text, script.name)), script.name)
    with given(context).lake() as lake:
        create(lake, statements, output, script.name)


def create(lake: Lake, statements: Sequence[Create], output: Output, file: str | None = None) -> None:
    """Carry them out in order and print what was done, of those before one that fails too."""
    from lakemill.runtime import dynamic
    from lakemill.runtime.statements import placed

    done: list[Created] = []
    try:
        for statement in statements:
            with placed(statement, file):
                done.append(dynamic.create(lake, statement, file))
            if output.format is Format.TABLE:
                _tell(done[-1], output)
    except LakemillError as error:
        if done:
            stay = "the one before it stays" if len(done) == 1 else f"the {len(done)} before it stay"
            failure.cured(error, stay, "correct it")
        raise
    finally:
        if done:
            _tell_all(lake, done, output)


def _tell_all(lake: Lake, done: Sequence[Created], output: Output) -> None:
    """Of warnings only those that still hold: what one statement lacked, a later one may have brought."""
    from lakemill.runtime import dynamic, facts

    told = [facts.created(one, () if one.kept else dynamic.warned(lake, one.table.name)) for one in done]
    if output.format is not Format.TABLE:
        output.rows(list(told[0]), [list(one.values()) for one in told])
    for found in (found for one in told for found in one["warnings"]):
        output.remark(f"warning: {found['message']} → {found['remedy']}")


def _tell(created: Created, output: Output) -> None:
    table = created.table
    for record in created.records[:-1]:
        output.remark(f"first, because it is read: {records.summary(record)}")
    if created.kept:
        output.text(f"{table.name}: there already, left as it is")
    elif created.records:
        output.text(records.summary(created.records[-1]))
    else:
        output.text(f"{table.name}: {table.state.value}, nothing loaded")
    if not created.kept:
        output.text(f"  {table.resolved.mode.value}: {table.resolved.mode_reason.partition(': ')[2]}")


def _only_create(statements: list[Statement], file: str | None) -> list[Create]:
    from lakemill.core.statement import Create

    found = []
    for statement in statements:
        if not isinstance(statement, Create):
            raise BadStatement(
                "this is no CREATE DYNAMIC TABLE",
                remedy="run other statements with `lakemill sql`",
                place=statement.at.place(file),
            )
        found.append(statement)
    if not found:
        raise BadStatement("there is no statement", remedy="see `lakemill create --help`", place=file)
    return found
