"""What a refresh will do, and why: a frozen plan, which the executor walks and ``EXPLAIN REFRESH`` prints.

Line 7 of a refresh. Decided from the query's shape, from what changed in each source (known from the catalog before
Spark is asked) and from how the table stands. Both estimates and the reason go into the plan: nothing is ever computed
whole in silence. Bytes are what is compared, because reading is what costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakemill.core.algebra import (
    Filter,
    Join,
    Node,
    Project,
    Restrict,
    Scan,
    SetOp,
    Stored,
    Unnest,
    asks_for_time,
    children,
    scans,
    states,
    timely,
)
from lakemill.core.definition import RefreshMode
from lakemill.core.delta import Delta, derive
from lakemill.core.experience import AGAIN, FULL_IS_CHEAPER, LARGE_DELTA, STATES_FILLED, Experience
from lakemill.core.refresh import Action
from lakemill.core.shape import NotIncremental

LEAST_SHARE = 0.01
"""Of a source that is read for some keys: no estimate goes below it, because files are read whole."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why: a stable code, the sentence, and what would help where something would."""

    code: str
    text: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class SourceSize:
    """A source at b, and what changed in it over (a, b]."""

    rows: int
    bytes: int
    delta_rows: int = 0
    delta_bytes: int = 0
    changed: bool = False
    only_inserts: bool = False
    """No row was taken away: known without reading when no file ended and nothing was deleted."""

    @property
    def share(self) -> float:
        return min(1.0, self.delta_rows / self.rows) if self.rows else 1.0


@dataclass(frozen=True, slots=True)
class Profile:
    """How Spark is set for a refresh, and why."""

    name: str | None
    """Of the settings; None: the session's own settings, fitted to the bytes that are read."""
    reason: Reason
    affected: int = 0
    """Keys that are touched, at most: rows that changed, or all rows where the whole query is computed."""
    batches: int = 1
    """In how many parts, by a hash of the keys, the result is staged; it is published once."""


BY_SIZE = Profile(None, Reason("BY_SIZE", "it is fitted to what is read"))


@dataclass(frozen=True, slots=True)
class Plan:
    action: Action
    reason: Reason
    delta: Delta | None = None
    incremental_bytes: int | None = None
    """None where there is no incremental way."""
    full_bytes: int = 0
    share: float | None = None
    """Of the changed source that changed most: what CARDINALITY_THRESHOLD is held against before keys are counted."""
    profile: Profile = BY_SIZE
    states: bool = True
    """Whether its hidden states are kept up; else the query alone is computed, and those that are there are dropped."""


@dataclass(frozen=True, slots=True)
class ResolvedMode:
    """The mode that a table is kept in: AUTO becomes INCREMENTAL or FULL when it is created."""

    declared: RefreshMode
    mode: RefreshMode
    reason: Reason


Shape = Node | NotIncremental


def wanted_states(shape: Shape) -> list[Stored]:
    """The states that deltas of such a query need."""
    return [] if isinstance(shape, NotIncremental) else states(shape)


def resolve(mode: RefreshMode, shape: Shape) -> ResolvedMode:
    """What AUTO means for this query; INCREMENTAL stays what it is, and ``obstacle`` says why it can't be."""
    found = obstacle(shape)
    if mode is RefreshMode.AUTO:
        if found is not None:
            return ResolvedMode(mode, RefreshMode.FULL, found)
        return ResolvedMode(mode, RefreshMode.INCREMENTAL, Reason("INCREMENTAL", "every part of the query has a rule"))
    return ResolvedMode(mode, mode, Reason("DECLARED", f"REFRESH_MODE = {mode.value}"))


def obstacle(shape: Shape) -> Reason | None:
    """Why a query can't be maintained from deltas at less than its own cost; None when it can."""
    if isinstance(shape, NotIncremental):
        return Reason(shape.reason, shape.text, shape.remedy)
    sources = frozenset(scan.source for scan in scans(shape))
    if not sources and not asks_for_time(shape):
        return None  # constants: nothing ever changes
    whole = derive(shape, sources).whole
    return _WHOLE[whole[0]] if whole else None


_WHOLE = {
    "Aggregate": Reason("GLOBAL_AGGREGATE", "an aggregate over everything has no key", "group it by something"),
    "Window": Reason(
        "WINDOW_WITHOUT_KEY", "its windows share no PARTITION BY", "give all windows a common PARTITION BY"
    ),
    "Join": Reason("JOIN_WITHOUT_KEY", "an outer, semi or anti join without an equality has no key", "add an equality"),
    "Clock": Reason(
        "CLOCK_IN_A_VALUE", "the time is in a value, so every row changes with it", "ask for the time in WHERE only"
    ),
    "Top": Reason(
        "TOP_WITHOUT_KEY",
        "no state can hold so many rows of an order, or rows of such types",
        "limit it to fewer rows, of plain types",
    ),
}


def decide(
    shape: Shape,
    resolved: ResolvedMode,
    sizes: Mapping[int, SourceSize],
    *,
    threshold: float,
    strict: bool = False,
    clock_moved: bool = False,
    experience: Experience | None = None,
    given_up: bool = False,
) -> Plan:
    """The plan of a refresh whose history can be used; what can't is the caller's REINITIALIZE.

    ``clock_moved``: the query asks for the time, and it is another than that of the last refresh. ``experience``: what
    ADAPTIVE goes by, beside the bytes. ``given_up``: the states that deltas need are not there, by our own choice.
    """
    full_bytes = _full_bytes(shape, sizes)
    changed = frozenset(number for number, size in sizes.items() if size.changed)
    if not isinstance(shape, NotIncremental):  # a source can be named, in a CTE that nobody reads, and not be read
        changed &= {scan.source for scan in scans(shape)}
    if not changed and not (clock_moved and _own_clock(shape)):
        return Plan(Action.NO_DATA, Reason("NO_CHANGE", "nothing that it reads changed"), full_bytes=full_bytes)
    if resolved.mode is RefreshMode.FULL:
        return Plan(Action.FULL, resolved.reason, full_bytes=full_bytes)
    if isinstance(shape, NotIncremental):
        return Plan(Action.FULL, obstacle(shape) or resolved.reason, full_bytes=full_bytes)
    delta = derive(shape, changed)
    share = max((sizes[number].share for number in changed), default=0.0)
    if given_up:  # what they would hold is not known: deltas read at least the rest
        sizes = {**sizes, **{state.source: SourceSize(0, 0) for state in wanted_states(shape)}}
    cost = sum(_bytes(tree, sizes, share) for tree in delta.evaluated)
    if delta.whole and not strict:
        return Plan(Action.FULL, _WHOLE[delta.whole[0]], None, cost, full_bytes, share, states=not given_up)
    if not strict:
        quick = experience is not None and experience.quick
        reason = _dearer(resolved.declared, share, threshold, cost, full_bytes, quick)
        rows = sum(sizes[number].delta_rows for number in changed)
        if reason is None and resolved.declared is RefreshMode.ADAPTIVE and experience is not None:
            reason = _slower(experience, rows, given_up)
        if reason is not None:
            kept = not given_up and reason.code != FULL_IS_CHEAPER
            return Plan(Action.FULL, reason, None, cost, full_bytes, share, states=kept)
    if given_up:
        return Plan(Action.FULL, _FILLED, None, cost, full_bytes, share)
    action, why = _action(shape, delta, all(sizes[number].only_inserts for number in changed))
    return Plan(action, why, delta, cost, full_bytes, share)


_FILLED = Reason(
    STATES_FILLED, "its hidden states are filled again, so that deltas can be tried from the next refresh on"
)


def _own_clock(shape: Shape) -> bool:
    """Whether the query itself asks for the time; a supplier that does changes its rows, or does not."""
    return isinstance(shape, NotIncremental) or asks_for_time(shape)


def _dearer(
    declared: RefreshMode, share: float, threshold: float, cost: int, full_bytes: int, quick: bool
) -> Reason | None:
    """Who asked for INCREMENTAL gets it; AUTO looks at how much changed, ADAPTIVE at what it costs as well.

    ``quick``: others from deltas were, so that this one is an exception, for which states are not given up.
    """
    if declared is not RefreshMode.INCREMENTAL and share > threshold:
        return Reason(
            "ABOVE_THRESHOLD",
            f"{share:.0%} of a source changed, above CARDINALITY_THRESHOLD = {threshold:g}",
            "refresh more often, or raise the threshold",
        )
    if declared is RefreshMode.ADAPTIVE and cost > full_bytes:
        text = f"from deltas it would read {cost:,} bytes, whole {full_bytes:,}"
        return Reason(LARGE_DELTA, f"{text}; smaller ones were quick") if quick else Reason(FULL_IS_CHEAPER, text)
    return None


def _slower(experience: Experience, rows: int, given_up: bool) -> Reason | None:
    if experience.against_deltas(rows):
        took, whole = f"{experience.deltas:.1f} s", f"{experience.whole:.1f} s"
        return Reason(FULL_IS_CHEAPER, f"the last refresh from deltas took {took}, the query alone about {whole}")
    if given_up and experience.against_states(rows):
        text = f"its hidden states were given up; after {AGAIN} whole refreshes they are filled again"
        return Reason(FULL_IS_CHEAPER, f"{text}, this is number {experience.whole_since + 1}")
    return None


def _action(shape: Node, delta: Delta, only_inserts: bool) -> tuple[Action, Reason]:
    if delta.merged:
        return Action.MERGE, Reason("MERGE", "what changed is added to what is kept of groups, or of an order")
    if delta.keyed:
        return Action.KEYS, Reason("KEYS", "the keys that changed rows touch are computed anew")
    if only_inserts and _keeps_signs(shape):
        return Action.APPEND, Reason("ONLY_INSERTS", "rows were only added, so rows are only added")
    return Action.DELTA, Reason("DELTA", "changed rows pass through the query with their sign")


def _keeps_signs(node: Node) -> bool:
    """Whether rows that come can only make rows come."""
    if timely(node) or (isinstance(node, Join) and node.kind != "inner"):
        return False
    if isinstance(node, SetOp) and not (node.kind == "union" and node.all):
        return False
    kept = isinstance(node, Scan | Filter | Project | Unnest | Join | SetOp)
    return kept and all(_keeps_signs(child) for child in children(node))


def _full_bytes(shape: Shape, sizes: Mapping[int, SourceSize]) -> int:
    if isinstance(shape, NotIncremental):
        return sum(size.bytes for size in sizes.values())
    return sum(sizes[scan.source].bytes for scan in scans(shape))


def _bytes(node: Node, sizes: Mapping[int, SourceSize], share: float, restricted: bool = False) -> int:
    """What evaluating a tree reads: deltas as they are, other scans whole, or in part where keys restrict them."""
    match node:
        case Scan(source=source, end="delta"):
            return sizes[source].delta_bytes
        case Scan(source=source):
            part = max(LEAST_SHARE, share) if restricted else 1.0
            return round(sizes[source].bytes * part)
        case Restrict(child=child):
            return _bytes(child, sizes, share, restricted=True)
    return sum(_bytes(child, sizes, share, restricted) for child in children(node))
