"""`lakemill snapshots`: the lake's history, the newest first."""

from __future__ import annotations

from typing import Annotated

import typer

from lakemill.cli.options import FormatOption, given


def command(
    context: typer.Context,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="How many; 0 for all.")] = 20,
    before: Annotated[
        int | None, typer.Option("--before", metavar="SNAPSHOT", help="Only those before this one.")
    ] = None,
    format_: FormatOption = None,
) -> None:
    """List snapshots and what each one changed.

    The newest come first.

        lakemill snapshots
        lakemill snapshots --limit 5 --format json
    """
    from lakemill.lake.listing import list_snapshots

    output = given(context).output(format_)
    with given(context).lake() as lake:
        found = list_snapshots(lake.conn, lake.settings.lake.catalog_schema, limit + 1 if limit else None, before)
    more = bool(limit) and len(found) > limit
    output.rows(
        ["snapshot", "time", "changes", "author", "message"],
        [[s.id, s.time, s.changes, s.author, s.message] for s in (found[:limit] if more else found)],
        empty="no snapshots",
    )
    if more:
        output.remark(f"… older ones: lakemill snapshots --before {found[limit - 1].id}")
