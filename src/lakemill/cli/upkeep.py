"""`lakemill upkeep`: flush, compact, expire, cleanup, orphans; a dry run shows the plan that a run carries out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakemill.cli.options import DryRunOption, FormatOption, given, quoted, taught
from lakemill.cli.output import Format, Output, size
from lakemill.errors import BadArgument

if TYPE_CHECKING:
    from lakemill.runtime.upkeep import UpkeepReport

SHOWN = 20


def group() -> None:
    """Keep a lake small and tidy.

    Flush rows out of the catalog, compact small files, expire old snapshots, remove files that nobody needs. Each shows
    what it would do with `--dry-run`. What a pin or a recorded position needs is never touched.
    """


def flush(
    context: typer.Context,
    table: Annotated[str | None, typer.Argument(help="Only this table; all of them by default.")] = None,
    dry_run: DryRunOption = False,
    format_: FormatOption = None,
) -> None:
    """Write rows that DuckDB left in the catalog to files.

    Stock DuckDB inlines small writes where the lake allows it; no row and no snapshot changes.

        lakemill upkeep flush --dry-run
        lakemill upkeep flush sales.orders
    """
    from lakemill.runtime import upkeep

    output = given(context).output(format_)
    with given(context).lake() as lake:
        _tell(output, upkeep.flush(lake, table, dry_run=dry_run))


def compact(
    context: typer.Context,
    table: Annotated[str | None, typer.Argument(help="Only this table; all of them by default.")] = None,
    dry_run: DryRunOption = False,
    format_: FormatOption = None,
) -> None:
    """Merge small files with Spark.

    Every old snapshot and every delta stays what it was.

        lakemill upkeep compact --dry-run
        lakemill upkeep compact sales.orders
    """
    from lakemill.lake.listing import list_tables
    from lakemill.runtime import upkeep

    output = given(context).output(format_)
    with given(context).lake() as lake:
        listed = list_tables(lake.conn, lake.settings.lake.catalog_schema, lake.snapshot().id)
        every = [f"{quoted(found.schema)}.{quoted(found.name)}" for found in listed if found.kind == "table"]
        _tell(output, *(upkeep.compact(lake, name, dry_run=dry_run) for name in ([table] if table else every)))


def expire(
    context: typer.Context,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE|TIME", help="'7 days' or 2026-01-31; upkeep.retention by default."),
    ] = None,
    versions: Annotated[
        list[int] | None, typer.Option("--snapshot", help="This snapshot instead; may be repeated.")
    ] = None,
    dry_run: DryRunOption = False,
    format_: FormatOption = None,
) -> None:  # fmt: skip
    """Forget old snapshots that nobody needs.

    One that a pin or a recorded position needs is kept. Their files go with `lakemill upkeep cleanup`.

        lakemill upkeep expire --older-than "7 days" --dry-run
        lakemill upkeep expire --snapshot 3 --snapshot 4
    """
    from lakemill.runtime import upkeep

    output = given(context).output(format_)
    before = None if older_than is None else _moment(older_than)
    with given(context).lake() as lake:
        _tell(output, upkeep.expire(lake, older_than=before, versions=versions or None, dry_run=dry_run))


def cleanup(context: typer.Context, dry_run: DryRunOption = False, format_: FormatOption = None) -> None:
    """Delete the files of expired snapshots.

    Only those that nobody can still be reading (setting upkeep.orphan_age).

        lakemill upkeep cleanup --dry-run
    """
    from lakemill.runtime import upkeep

    output = given(context).output(format_)
    with given(context).lake() as lake:
        _tell(output, upkeep.cleanup(lake, dry_run=dry_run))


def orphans(context: typer.Context, dry_run: DryRunOption = False, format_: FormatOption = None) -> None:
    """Delete files that no snapshot knows.

    Jobs that died left them under the data path. Only those older than the longest job (setting upkeep.orphan_age).

        lakemill upkeep orphans --dry-run
    """
    from lakemill.runtime import upkeep

    output = given(context).output(format_)
    with given(context).lake() as lake:
        _tell(output, upkeep.orphans(lake, dry_run=dry_run))


commands = typer.Typer(help=taught(group), no_args_is_help=True, rich_markup_mode=None)
for function in (flush, compact, expire, cleanup, orphans):
    commands.command(help=taught(function))(function)


def _moment(text: str) -> datetime | timedelta:
    from lakemill.values import parse_duration

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            age = parse_duration(text)
        except ValueError as error:
            cure = "write an age like '7 days', or a time like 2026-01-31T12:00"
            raise BadArgument(f"'{text}' is neither an age nor a time", place="--older-than", remedy=cure) from error
        assert isinstance(age, timedelta)  # noqa: S101 - parse_duration gives nothing else
        return age
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _tell(output: Output, *reports: UpkeepReport) -> None:
    done = [item for report in reports for item in report.done]
    kept = [item for report in reports for item in report.kept]
    removed, sizes = sum(r.files_removed for r in reports), [r.bytes_removed for r in reports]
    freed = None if None in sizes else sum(filter(None, sizes))
    scheduled = sum(r.files_scheduled for r in reports)
    dry_run = any(report.dry_run for report in reports)
    if output.format is Format.JSON:
        facts: dict[str, Any] = {"job": reports[0].job if reports else None, "dry_run": dry_run}
        facts |= {
            name: [{"what": i.what, "why": i.why} for i in items] for name, items in (("done", done), ("kept", kept))
        }
        facts |= {"snapshots": [snapshot for report in reports for snapshot in report.snapshots]}
        output.record(facts | {"files_removed": removed, "bytes_removed": freed, "files_scheduled": scheduled})
        return
    verb = "would be done" if dry_run else "done"
    items = [[verb, item.what, item.why] for item in done] + [["kept", item.what, item.why] for item in kept]
    shown = items if output.format is Format.CSV else items[:SHOWN]
    output.rows(["outcome" if output.format is Format.CSV else "", "what", "why"], shown, empty="nothing to do")
    if len(shown) < len(items):
        output.remark(f"… and {len(items) - len(shown)} more; --format json lists all")
    told = [f"{removed} files removed" if removed else "", f"{size(freed)} freed" if freed else ""]
    told += [f"{scheduled} files left to `lakemill upkeep cleanup`" if scheduled else ""]
    if any(told):
        output.remark(", ".join(fact for fact in told if fact))
