"""`lakemill upkeep`: status, flush, compact, expire, cleanup, orphans; a dry run shows the plan that a run does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakemill.cli.options import DryRunOption, FormatOption, given, taught
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
    from lakemill.runtime import upkeep

    output = given(context).output(format_)
    with given(context).lake() as lake:
        _tell(output, upkeep.compact_all(lake, table, dry_run=dry_run))


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


def status(
    context: typer.Context,
    table: Annotated[str | None, typer.Argument(help="Only this table; all of them by default.")] = None,
    format_: FormatOption = None,
) -> None:
    """Show what the service would compact, and why not the rest.

    For every table: its files, the policy that it has, whether it is due by that, and how it went the last time.

        lakemill upkeep status
        lakemill upkeep status sales.orders --format json
    """
    from lakemill.core.names import parse_name
    from lakemill.runtime import facts, tending

    output = given(context).output(format_)
    with given(context).lake() as lake:
        found = tending.status(lake, None if table is None else parse_name(table))
    if output.format is Format.JSON:
        output.record(facts.upkeep_status(found))
        return
    rows = [
        [
            one.crowd.table,
            "due" if one.verdict.due else "",
            one.verdict.why,
            one.policy.name or "the lake's",
            one.crowd.small,
            f"{one.crowd.share:.0%}",
            one.last and f"{one.last.outcome} {one.last.at:%Y-%m-%d %H:%M}",
        ]
        for one in found.tables
    ]
    output.rows(["table", "due", "why", "policy", "small_files", "deleted", "last"], rows, empty="no tables")
    for name in found.nowhere:
        output.remark(f"upkeep.policies: the lake has no schema and no table {name}")


commands = typer.Typer(help=taught(group), no_args_is_help=True, rich_markup_mode=None)
for function in (status, flush, compact, expire, cleanup, orphans):
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


def _tell(output: Output, report: UpkeepReport) -> None:
    if output.format is Format.JSON:
        facts: dict[str, Any] = {"job": report.job, "dry_run": report.dry_run}
        facts |= {
            name: [{"what": i.what, "why": i.why} for i in items]
            for name, items in (("done", report.done), ("kept", report.kept))
        }
        facts |= {"snapshots": list(report.snapshots), "files_removed": report.files_removed}
        output.record(facts | {"bytes_removed": report.bytes_removed, "files_scheduled": report.files_scheduled})
        return
    verb = "would be done" if report.dry_run else "done"
    items = [[verb, item.what, item.why] for item in report.done]
    items += [["kept", item.what, item.why] for item in report.kept]
    shown = items if output.format is Format.CSV else items[:SHOWN]
    output.rows(["outcome" if output.format is Format.CSV else "", "what", "why"], shown, empty="nothing to do")
    if len(shown) < len(items):
        output.remark(f"… and {len(items) - len(shown)} more; --format json lists all")
    removed, freed, scheduled = report.files_removed, report.bytes_removed, report.files_scheduled
    told = [f"{removed} files removed" if removed else "", f"{size(freed)} freed" if freed else ""]
    told += [f"{scheduled} files left to `lakemill upkeep cleanup`" if scheduled else ""]
    if any(told):
        output.remark(", ".join(fact for fact in told if fact))
