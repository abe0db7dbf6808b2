"""`lakemill explain`: what the next refresh of a dynamic table would do, at what cost, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from lakemill.cli.options import FormatOption, NameArgument, given
from lakemill.cli.output import Format, Output, size

if TYPE_CHECKING:
    from lakemill.core.names import QualifiedName
    from lakemill.core.plan import Profile
    from lakemill.runtime.explain import Explained
    from lakemill.runtime.open import Lake
    from lakemill.runtime.window import SourceWindow


def command(context: typer.Context, name: NameArgument, format_: FormatOption = None) -> None:
    """Say what the next refresh would do, and why.

    It is the plan that `lakemill refresh` would carry out now: the action with its reason, what it would read against
    what the whole query reads, and what changed in each source. What it reads comes first where it must be refreshed
    too. Only the catalog is asked; Spark is not started.

        lakemill explain by_day
        lakemill explain by_day --format json
    """
    from lakemill.core.names import parse_name

    output = given(context).output(format_)
    with given(context).lake() as lake:
        explain(lake, parse_name(name), output)


def explain(lake: Lake, name: QualifiedName, output: Output) -> None:
    from lakemill.runtime.explain import explain_chain
    from lakemill.runtime.facts import explained

    *first, own = explain_chain(lake, name)
    if output.format is not Format.TABLE:
        output.record(explained(own) | {"first": [explained(one) for one in first]})
        return
    for one in first:
        output.text(f"first, because it is read: {_line(one)}")
    _print(own, output)


def _line(one: Explained) -> str:
    if one.planned is None:
        return f"{one.name}: known when {', '.join(map(str, one.waits_for))} is refreshed"
    plan = one.planned[0]
    return f"{one.name}: {plan.action.value}, {plan.reason.text}"


def _print(one: Explained, output: Output) -> None:
    if one.planned is None:
        output.text(_line(one))
        return
    plan, window = one.planned
    facts = {
        "action": plan.action.value,
        "reason": f"{plan.reason.code}: {plan.reason.text}",
        "remedy": plan.reason.remedy,
        "data snapshot": one.b.id,
        "from deltas": size(plan.incremental_bytes),
        "whole query": size(plan.full_bytes),
        "changed share": None if plan.share is None else f"{plan.share:.1%}",
        "hidden states": "given up" if window.states and not plan.states else None,
        "spark profile": _profile(plan.profile),
    }
    output.record({name: value for name, value in facts.items() if value is not None})
    output.text("")
    columns = ["source", "a → b", "rows", "size", "changed rows", "to read"]
    output.rows(columns, [_for_people(source) for source in window.sources], empty="it reads no table")


def _profile(found: Profile) -> str | None:
    """Nothing to say where it is fitted to the size, as always."""
    parts = "" if found.batches == 1 else f", staged in {found.batches} parts"
    if found.name is None:
        return parts.removeprefix(", ") or None
    return f"{found.name}: {found.reason.text}{parts}"


def _for_people(source: SourceWindow) -> list[Any]:
    found = source.size
    way = f"{'nothing' if source.a is None else source.a} → {source.b}"
    rows = "none" if not found.changed else f"{found.delta_rows}{', only added' if found.only_inserts else ''}"
    return [str(source.source.name), way, found.rows, size(found.bytes), rows, size(found.delta_bytes)]
