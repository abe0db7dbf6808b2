"""`lakemill describe`: everything about one dynamic table."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import typer

from lakemill.cli import records
from lakemill.cli.options import FormatOption, NameArgument, given
from lakemill.cli.output import Format, Output, moment, size, span

if TYPE_CHECKING:
    from lakemill.core.names import QualifiedName
    from lakemill.runtime.open import Lake
    from lakemill.runtime.show import Described

SHOWN = 5


def command(context: typer.Context, name: NameArgument, format_: FormatOption = None) -> None:
    """Show a dynamic table: definition, columns, sources, versions.

    For each source it says what was read of it: the table's id in the lake, the commit, and the rows that it had.

        lakemill describe by_day
        lakemill describe sales.by_customer --format json
    """
    from lakemill.core.names import parse_name

    output = given(context).output(format_)
    with given(context).lake() as lake:
        describe(lake, parse_name(name), output)


def describe(lake: Lake, name: QualifiedName, output: Output) -> None:
    from lakemill.runtime import facts, show

    found = show.describe(lake, name)
    if output.format is Format.TABLE:
        _print(found, output)
    else:
        output.record(facts.described(found))


def _print(found: Described, output: Output) -> None:
    from lakemill.core.ddl import to_sql

    shown, table = found.shown, found.shown.table
    frontier = shown.frontier
    output.text(to_sql(table.definition) + ";\n")
    state, why, _ = table.standing
    reason = f" ({why})" if why else ""
    facts = {
        "state": f"{state.value}{reason}",
        "mode": f"{table.resolved.mode.value}: {table.resolved.mode_reason.partition(': ')[2]}",
        "data snapshot": f"{frontier.version.b_hi} of {moment(frontier.b_time)}" if frontier else "never loaded",
        "lag": f"{span(shown.lag)}; target {table.definition.target_lag}",
        "within target": _within(found),
        "next due": moment(shown.due),
        "rows": shown.rows,
        "size": size(shown.bytes),
        "read by": ", ".join(map(str, found.consumers)) or "no dynamic table",
        "last refresh": f"{moment(shown.last.started_at)} {records.summary(shown.last)}" if shown.last else "never",
    }
    output.record(facts)
    output.text("")
    output.rows(["column", "type"], [[column.name, column.type] for column in table.resolved.columns])
    output.text("")
    columns = ["source", "kind", "columns used", "table id", "commit", "rows"]
    output.rows(columns, [_source(one) for one in found.sources], empty="it reads no table")
    if found.versions:
        output.text("")
        newest = [[v.commit, f"{v.b_lo} … {v.b_hi}", v.t, v.definition_version] for v in found.versions[:SHOWN]]
        output.rows(["commit", "right for data snapshots", "at time", "definition"], newest)
    for one in found.warnings:
        output.remark(f"warning: {one.message} → {one.remedy}")


def _within(found: Described) -> str:
    hour, day = (found.within.get(span) for span in (timedelta(hours=1), timedelta(days=1)))
    if hour is None or day is None:
        return "unknown"
    return f"{hour:.1%} of the last hour, {day:.1%} of the last day"


def _source(one: Any) -> list[Any]:
    read = one.read
    table_id = read.table_id if read else one.source.table_id
    used = ", ".join(one.source.columns)
    return [str(one.source.name), one.source.kind.value, used, table_id, read and read.commit, read and read.rows]
