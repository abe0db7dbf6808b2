"""`lakemill explain`: what the next refresh of a dynamic table would do, at what cost, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from lakemill.cli.options import FormatOption, NameArgument, given
from lakemill.cli.output import Format, Output, size

if TYPE_CHECKING:
    from lakemill.core.names import QualifiedName
    from lakemill.core.plan import Plan
    from lakemill.core.scan import Snapshot
    from lakemill.runtime.open import Lake
    from lakemill.runtime.window import SourceWindow, Window


def command(context: typer.Context, name: NameArgument, format_: FormatOption = None) -> None:
    """Say what the next refresh would do, and why.

    It is the plan that `lakemill refresh` would carry out now: the action with its reason, what it would read against
    what the whole query reads, and what changed in each source. Only the catalog is asked; Spark is not started.

        lakemill explain by_day
        lakemill explain by_day --format json
    """
    from lakemill.core.names import parse_name

    output = given(context).output(format_)
    with given(context).lake() as lake:
        explain(lake, parse_name(name), output)


def explain(lake: Lake, name: QualifiedName, output: Output) -> None:
    from lakemill.runtime.refresh import explain as planned

    plan, window, b = planned(lake, name)
    if output.format is not Format.TABLE:
        output.record(_facts(name, plan, window, b))
        return
    output.record(
        {
            "action": plan.action.value,
            "reason": f"{plan.reason.code}: {plan.reason.text}",
            "remedy": plan.reason.remedy,
            "data snapshot": b.id,
            "from deltas": "not possible" if plan.incremental_bytes is None else size(plan.incremental_bytes),
            "whole query": size(plan.full_bytes),
            "changed share": None if plan.share is None else f"{plan.share:.1%}",
        }
    )
    output.text("")
    columns = ["source", "a → b", "rows", "size", "changed rows", "to read"]
    output.rows(columns, [_for_people(source) for source in window.sources], empty="it reads no table")


def _facts(name: QualifiedName, plan: Plan, window: Window, b: Snapshot) -> dict[str, Any]:
    return {
        "table": str(name),
        "action": plan.action.value,
        "reason_code": plan.reason.code,
        "reason": plan.reason.text,
        "remedy": plan.reason.remedy,
        "b": b.id,
        "incremental_bytes": plan.incremental_bytes,
        "full_bytes": plan.full_bytes,
        "changed_share": plan.share,
        "sources": [
            {
                "name": str(source.source.name),
                "table_id": source.table.id,
                "a": source.a,
                "b": source.b,
                "rows": source.size.rows,
                "bytes": source.size.bytes,
                "changed": source.size.changed,
                "only_inserts": source.size.only_inserts,
                "delta_rows": source.size.delta_rows,
                "delta_bytes": source.size.delta_bytes,
            }
            for source in window.sources
        ],
    }


def _for_people(source: SourceWindow) -> list[Any]:
    found = source.size
    way = f"{'nothing' if source.a is None else source.a} → {source.b}"
    rows = "none" if not found.changed else f"{found.delta_rows}{', only added' if found.only_inserts else ''}"
    return [str(source.source.name), way, found.rows, size(found.bytes), rows, size(found.delta_bytes)]
