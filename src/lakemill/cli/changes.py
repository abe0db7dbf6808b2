"""`lakemill changes`: what happened to a table between two snapshots, row by row.

Built on the delta: rows that came and went with a weight, not on a log of statements. A row that was changed shows as
one that went and one that came.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakemill.cli.options import FormatOption, given
from lakemill.cli.output import Format, Output, size
from lakemill.errors import BadArgument

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakemill.runtime.open import Delta, Table

WEIGHT = "__weight"


def command(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="`table` or `schema.table`.")],
    first: Annotated[int, typer.Option("--from", metavar="SNAPSHOT", help="Changes after this snapshot …")],
    last: Annotated[
        int | None, typer.Option("--to", metavar="SNAPSHOT", help="… up to this one; the newest by default.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="How many rows to show; 0 for all.")] = 100,
    plan: Annotated[bool, typer.Option("--plan", help="Only say what would be read; Spark is not started.")] = False,
    format_: FormatOption = None,
) -> None:
    """Show the rows that came and went between two snapshots.

    It is the exact difference of the two, each row with its count; Spark computes it.

        lakemill changes sales.orders --from 12 --to 20
        lakemill changes sales.orders --from 12 --plan
    """
    output = given(context).output(format_)
    with given(context).lake() as lake:
        newest = lake.snapshot(last).id
        if last is None:
            lake.snapshot(first)
        if newest < first:
            raise BadArgument(f"--to {newest} lies before --from {first}", remedy="swap them")
        found = lake.table(table).plan_delta(first, newest)
        if plan:
            facts = {"table": found.table.full_name, "from": first, "to": newest, "files": len(found.files)}
            facts |= {"delete_files": len(found.deletes), "rows_to_read": found.rows_to_read}
            as_people = output.format is Format.TABLE
            output.record(facts | {"bytes_to_read": size(found.bytes_to_read) if as_people else found.bytes_to_read})
            return
        columns = [column.name for column in found.table.columns]
        rows = iter(()) if found.empty else _collected(lake.table(table), first, newest, limit)
        shown = ([*_sign(row[WEIGHT], output), *(row[name] for name in columns)] for row in islice(rows, limit or None))
        output.rows(["change", "count", *columns], shown, empty=f"no changes after {first} up to {newest}")
        more = bool(limit) and next(iter(rows), None) is not None
    if more:
        output.warning(f"… and more; --limit 0 shows all, --limit {limit * 10} the first {limit * 10}")


def _sign(weight: int, output: Output) -> tuple[str, int]:
    return ("+" if weight > 0 else "−" if output.format is Format.TABLE else "-"), abs(weight)


def _collected(table: Table, first: int, last: int, limit: int) -> Iterator[Any]:
    """Rows in an order that is the same every time: by value, what went before what came; one more than the limit."""
    delta = table.changes(first, last)
    sortable = [
        field.name for field in delta.frame.schema.fields if not _is_map(field.dataType) and field.name != WEIGHT
    ]
    ordered = delta.frame.orderBy(*(_quoted(name) for name in [*sortable, WEIGHT]))
    if not limit:
        return _all(delta, ordered)
    collected = ordered.limit(limit + 1).collect()
    delta.check()
    return iter(collected)


def _all(delta: Delta, ordered: DataFrame) -> Iterator[Any]:
    """Nobody knows how many: never all of them in memory. The last one is followed by the check, so by a failure."""
    total = 0
    for row in ordered.toLocalIterator():
        total += row[WEIGHT]
        yield row
    delta.check(total)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _is_map(data_type: Any) -> bool:
    return "map<" in str(data_type.simpleString())
