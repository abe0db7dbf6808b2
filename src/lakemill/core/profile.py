"""Which settings Spark gets for a refresh: the profile that the table names, or the one that its size asks for.

Part of line 7 of a refresh, after the action is decided. What a profile sets is the settings' business and Spark's
(``spark/profiles``); here are names, thresholds and reasons only.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from lakemill.core.plan import BY_SIZE, Plan, Profile, Reason, SourceSize
from lakemill.core.refresh import Action
from lakemill.errors import UnknownProfile

SMALL, BATCH = "small", "batch"
BUILT_IN = (SMALL, BATCH)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Settings: above how many affected keys a refresh is batch work, and above how many it is staged in parts."""

    batch: int
    staged: int


def require_profile(name: str | None, known: Collection[str], place: str | None = None) -> None:
    """A profile that a definition names is one of ours, or of the settings."""
    names = [*BUILT_IN, *known]
    if name is None or name in names:
        return
    near = difflib.get_close_matches(name, names, 1)
    told = f"write '{near[0]}', or define" if near else f"write {' or '.join(map(repr, BUILT_IN))}, or define"
    raise UnknownProfile(
        f"SPARK_PROFILE: there is no profile '{name}'",
        remedy=f"{told} it in the settings: [spark.profiles.{name}]",
        place=place,
    )


def with_profile(
    plan: Plan, declared: str | None, sources: Iterable[SourceSize], above: Thresholds, *, divisible: bool = True
) -> Plan:
    """The plan, with the profile that it is carried out in; what a table declares holds at any size.

    ``divisible``: there are columns by which the result can be computed in parts (``core/parts``).
    """
    if plan.action is Action.NO_DATA:
        return plan
    affected = sum(size.rows if plan.delta is None else size.delta_rows for size in sources)
    batches = -(-affected // above.staged) if affected > above.staged and divisible else 1
    if declared is not None:
        found = Profile(declared, Reason("DECLARED", f"SPARK_PROFILE = '{declared}'"))
    elif affected > above.batch:
        text = f"up to {affected:,} keys are affected, above spark.batch_keys = {above.batch:,}"
        found = Profile(BATCH, Reason("MANY_KEYS", text))
    else:
        found = BY_SIZE
    return replace(plan, profile=replace(found, affected=affected, batches=batches))
