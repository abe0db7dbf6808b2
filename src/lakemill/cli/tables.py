"""`lakemill tables`: what the lake holds."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakemill.cli.options import FormatOption, given, quoted
from lakemill.cli.output import Format, size
from lakemill.errors import LakemillError

if TYPE_CHECKING:
    from lakemill.lake.listing import ListedTable
    from lakemill.runtime.open import Lake


def command(
    context: typer.Context,
    pattern: Annotated[
        str | None, typer.Argument(help="Only tables whose `schema.name` matches; * stands for anything.")
    ] = None,
    at: Annotated[int | None, typer.Option("--at", metavar="SNAPSHOT", help="As they were at this snapshot.")] = None,
    format_: FormatOption = None,
) -> None:
    """List tables and views, with their rows and files.

    Rows are those that are visible at the snapshot; deleted ones don't count.

        lakemill tables
        lakemill tables "sales.*" --at 12 --format json
    """
    from lakemill.lake.listing import list_tables

    output = given(context).output(format_)
    with given(context).lake() as lake:
        snapshot = lake.snapshot(at)
        rows: list[list[Any]] = []
        for found in list_tables(lake.conn, lake.settings.lake.catalog_schema, snapshot.id):
            name = f"{found.schema}.{found.name}"
            if pattern is not None and not (fnmatch(name, pattern) or fnmatch(found.name, pattern)):
                continue
            count = found.rows if found.rows is not None else _count(lake, found, snapshot.id)
            shown_size = size(found.bytes) if output.format is Format.TABLE else found.bytes
            rows.append([name, found.kind, found.columns, count, found.files, found.delete_files, shown_size])
    output.rows(
        ["table", "kind", "columns", "rows", "files", "delete_files", "bytes"],
        rows,
        empty="no tables" if pattern is None else f"no tables match {pattern}",
    )


def _count(lake: Lake, table: ListedTable, at: int) -> int | None:
    """Visible rows; None where they can't be told, which is no reason not to list the table."""
    if table.kind != "table":
        return None
    try:
        return lake.table(f"{quoted(table.schema)}.{quoted(table.name)}").count(at)
    except LakemillError:
        return None
