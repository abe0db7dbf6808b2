"""`lakemill list`: the dynamic tables, and how each stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakemill.cli.options import FormatOption, given
from lakemill.cli.output import Format, Output, moment, size, span

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake
    from lakemill.runtime.show import Shown


def command(
    context: typer.Context,
    like: Annotated[
        str | None,
        typer.Option("--like", metavar="PATTERN", help="Only those whose name is like it; % stands for anything."),
    ] = None,
    format_: FormatOption = None,
) -> None:
    """List dynamic tables: state, lag, last refresh.

    The lag is the age of the first change, after the data snapshot, of a base table that the table comes from; it is
    zero while nothing changes. `next due` is when it will reach the target. `point` is the newest data snapshot that
    all tables of its part of the graph hold together.

        lakemill list
        lakemill list --like "by_%" --format json
    """
    output = given(context).output(format_)
    with given(context).lake() as lake:
        list_tables(lake, like, output)


def list_tables(lake: Lake, like: str | None, output: Output) -> None:
    from lakemill.runtime.facts import standing
    from lakemill.runtime.show import show

    found = show(lake, like)
    facts = [_for_people(shown) if output.format is Format.TABLE else standing(shown) for shown in found]
    empty = "no dynamic tables" if like is None else f"no dynamic tables are like {like}"
    output.facts(facts, empty=empty)


def _for_people(shown: Shown) -> dict[str, Any]:
    table, frontier, last = shown.table, shown.frontier, shown.last
    why = table.resolved.mode_reason.partition(": ")[2]
    failed = last.error_text if last and last.error_code else None
    return {
        "table": str(table.name),
        "state": table.standing[0].value,
        "mode": table.resolved.mode.value,
        "data snapshot": frontier and frontier.version.b_hi,
        "of": moment(frontier.b_time) if frontier else None,
        "point": shown.point,
        "lag": span(shown.lag),
        "target": str(table.definition.target_lag),
        "last action": _last(shown),
        "rows": shown.rows,
        "size": size(shown.bytes),
        "next due": moment(shown.due),
        "why": table.standing[1] or failed or why,
    }


def _last(shown: Shown) -> str | None:
    """``KEYS``; of one that runs and takes long ``EXECUTING, compute: 3 of 8 tasks of 2 stages, 14 s``."""
    if shown.last is None:
        return None
    found = shown.last.action or shown.last.outcome
    return found.value if shown.progress is None else f"{found.value}, {shown.progress}"
