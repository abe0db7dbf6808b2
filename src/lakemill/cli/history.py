"""`lakemill history`: what every refresh did, why, and what it cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakemill.cli import records
from lakemill.cli.options import FormatOption, given
from lakemill.cli.output import Format, Output, moment, size

if TYPE_CHECKING:
    from lakemill.store.history import RefreshRecord, SourceDelta


def command(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="Only this dynamic table, dropped ones too; all by default.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="How many; 0 for all.")] = 10,
    format_: FormatOption = None,
) -> None:
    """List refreshes, the newest first.

    Who asked, what was done and why, from which data snapshot to which, rows in and out, what was read, and how long
    each phase took. What can't be measured is unknown. Of one table, and in JSON, also what was read of each source.

        lakemill history
        lakemill history by_day --limit 3
        lakemill history by_day --format json
    """
    output = given(context).output(format_)
    with given(context).lake() as lake:
        found = lake.history(name, limit=limit)
    _tell(found, output, detailed=name is not None)


def _tell(found: tuple[RefreshRecord, ...], output: Output, *, detailed: bool) -> None:
    from lakemill.runtime.facts import refreshed

    facts = [_for_people(one, detailed) if output.format is Format.TABLE else refreshed(one) for one in found]
    output.facts(facts, empty="no refreshes yet")


def _for_people(record: RefreshRecord, detailed: bool) -> dict[str, Any]:
    taken = record.seconds
    sources = {"read": ", ".join(map(_source, record.sources)) or None} if detailed else {}
    return {
        "started": moment(record.started_at),
        "table": str(record.name),
        "trigger": record.trigger.value,
        "action": record.action.value if record.action else record.outcome.value,
        "a → b": f"{_known(record.a, 'nothing')} → {_known(record.b)}",
        "rows in": _known(record.rows_in),
        "rows out": records.rows_out(record),
        "records read": _known(record.records_read),
        "bytes read": _known(size(record.bytes_read)),
        "jobs": _known(record.spark_jobs),
        "tasks": _known(record.spark_tasks),
        "executors": _known(record.spark_executors),
        "spilled": _known(size(record.spilled_bytes)),
        "profile": record.spark_profile,
        "seconds": records.UNKNOWN if taken is None else f"{taken:.1f}",
        "phases": ", ".join(f"{name} {seconds:.2f}" for name, seconds in record.phases.items()) or records.UNKNOWN,
        **sources,
        "why": _why(record),
    }


def _source(one: SourceDelta) -> str:
    """``main.orders 3 → 8: 5 rows``: the delta between two commits of the source; or the whole of it at one."""
    if one.a is None:
        return f"{one.name} at {one.b}"
    return f"{one.name} {one.a} → {one.b}: {_known(one.rows)} row{'' if one.rows == 1 else 's'}"


def _why(record: RefreshRecord) -> str | None:
    if record.error_code:
        return f"{record.error_code}: {record.error_text}"
    return f"{record.reason} → {record.remedy}" if record.remedy else record.reason


def _known(value: Any, missing: str = records.UNKNOWN) -> Any:
    return missing if value is None else value
