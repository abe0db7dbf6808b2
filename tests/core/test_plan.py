"""What a refresh decides, and why: shapes, modes, thresholds, sizes."""

from __future__ import annotations

import pytest

from lakemill.core.definition import RefreshMode
from lakemill.core.experience import AGAIN, Experience, Past, learnt
from lakemill.core.plan import Plan, Reason, Shape, SourceSize, decide, obstacle, resolve, wanted_states
from lakemill.core.profile import Thresholds, require_profile, with_profile
from lakemill.core.refresh import Action
from lakemill.core.shape import NotIncremental
from lakemill.core.state import keep
from lakemill.errors import UnknownProfile
from tests.core.test_delta import QUERIES, TYPES, WHOLE, tree_of

STILL = SourceSize(rows=1_000_000, bytes=100_000_000)
INSERTS = SourceSize(1_000_000, 100_000_000, delta_rows=100, delta_bytes=10_000, changed=True, only_inserts=True)
CHANGES = SourceSize(1_000_000, 100_000_000, delta_rows=100, delta_bytes=10_000, changed=True)


def shape_of(query: str) -> Shape:
    try:
        return tree_of(query)
    except NotIncremental as found:
        return found


def action(
    query: str, sizes: dict[int, SourceSize], mode: RefreshMode = RefreshMode.AUTO, threshold: float = 0.3
) -> str:
    shape = shape_of(query)
    plan = decide(shape, resolve(mode, shape), {0: STILL, 1: STILL, 2: STILL} | sizes, threshold=threshold)
    assert plan.reason.code
    assert plan.reason.text
    return f"{plan.action.value} {plan.reason.code}"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("filter", "APPEND ONLY_INSERTS"),
        ("union all", "APPEND ONLY_INSERTS"),
        ("inner join", "APPEND ONLY_INSERTS"),
        ("unnest in from", "APPEND ONLY_INSERTS"),
        ("left join", "KEYS KEYS"),
        ("group by", "KEYS KEYS"),
        ("distinct", "KEYS KEYS"),
        ("global aggregate", "FULL GLOBAL_AGGREGATE"),
        ("window without partition", "FULL WINDOW_WITHOUT_KEY"),
        ("theta left join", "FULL JOIN_WITHOUT_KEY"),
        ("top", "FULL TOP_WITHOUT_KEY"),
    ],
)
def test_only_inserts(name: str, expected: str) -> None:
    assert action(QUERIES[name], {0: INSERTS}) == expected


@pytest.mark.parametrize(("name", "expected"), [("filter", "DELTA DELTA"), ("inner join", "DELTA DELTA")])
def test_changes(name: str, expected: str) -> None:
    assert action(QUERIES[name], {0: CHANGES}) == expected


def test_nothing_changed() -> None:
    assert action(QUERIES["group by"], {}) == "NO_DATA NO_CHANGE"
    assert action("SELECT DISTINCT ON (k) id FROM r", {}) == "NO_DATA NO_CHANGE"


def test_a_source_that_nobody_reads_changed() -> None:
    query = "WITH c AS (SELECT w FROM s) SELECT id, rank() OVER (PARTITION BY k ORDER BY id) AS n FROM r"
    assert action(query, {1: CHANGES}) == "NO_DATA NO_CHANGE"
    assert action(query, {0: CHANGES, 1: CHANGES}) == "KEYS KEYS"


def test_time_passes_without_changes() -> None:
    shape = shape_of(QUERIES["now in a filter"])
    resolved = resolve(RefreshMode.AUTO, shape)
    assert decide(shape, resolved, {0: STILL}, threshold=0.3).action is Action.NO_DATA
    assert decide(shape, resolved, {0: STILL}, threshold=0.3, clock_moved=True).action is Action.DELTA
    assert decide(shape, resolved, {0: INSERTS}, threshold=0.3, clock_moved=True).action is Action.DELTA


def test_without_a_rule() -> None:
    assert action("SELECT DISTINCT ON (k) id FROM r", {0: INSERTS}) == "FULL DISTINCT_ON"


@pytest.mark.parametrize("name", QUERIES)
def test_what_whole_means_for_the_mode(name: str) -> None:
    shape = shape_of(QUERIES[name])
    resolved = resolve(RefreshMode.AUTO, shape)
    assert (resolved.mode is RefreshMode.FULL) == (name in WHOLE) == (obstacle(shape) is not None)
    if name in WHOLE:
        assert resolved.reason.remedy


@pytest.mark.parametrize(
    ("delta_rows", "expected"), [(300_000, "KEYS KEYS"), (300_001, "FULL ABOVE_THRESHOLD")], ids=["at", "above"]
)
def test_threshold(delta_rows: int, expected: str) -> None:
    """Exactly at the threshold is not above it; who asked for INCREMENTAL gets it."""
    size = SourceSize(1_000_000, 100_000_000, delta_rows=delta_rows, delta_bytes=1, changed=True)
    for mode in (RefreshMode.AUTO, RefreshMode.ADAPTIVE):
        assert action(QUERIES["group by"], {0: size}, mode) == expected
    assert action(QUERIES["group by"], {0: size}, RefreshMode.INCREMENTAL) == "KEYS KEYS"


def test_adaptive_takes_the_cheaper_way() -> None:
    size = SourceSize(1_000_000, 100_000_000, delta_rows=1000, delta_bytes=100_000_001, changed=True)
    assert action(QUERIES["filter"], {0: size}, RefreshMode.ADAPTIVE) == "FULL FULL_IS_CHEAPER"
    assert action(QUERIES["filter"], {0: size}, RefreshMode.AUTO) == "DELTA DELTA"


def test_estimates() -> None:
    shape = shape_of(QUERIES["group by"])
    plan = decide(shape, resolve(RefreshMode.AUTO, shape), {0: CHANGES}, threshold=0.3)
    assert plan.action is Action.KEYS
    assert plan.full_bytes == 100_000_000
    assert plan.incremental_bytes == 10_000 + 2 * 1_000_000  # the delta, and a hundredth of the source at both ends


# ---------------------------------------------------------------- experience
@pytest.mark.parametrize(
    ("experience", "expected"),
    [
        (Experience(deltas=2, rows=10, whole=3), False),
        (Experience(deltas=4, rows=10, whole=3), True),
        (Experience(deltas=4, rows=19, whole=3), True),
        (Experience(deltas=4, rows=20, whole=3), False),  # half as many rows now: worth a try
        (Experience(deltas=4, rows=10, whole=3, whole_since=9), True),
        (Experience(deltas=4, rows=10, whole=3, whole_since=10), False),
        (Experience(deltas=None, rows=0, whole=3, whole_since=1), False),  # nothing is known against them
    ],
)
def test_what_was_slower_is_left_for_a_while(experience: Experience, expected: bool) -> None:
    assert experience.against_deltas(10) == expected


@pytest.mark.parametrize(
    ("experience", "expected"),
    [
        (Experience(deltas=4, rows=10, whole=3, whole_since=1), True),
        (Experience(deltas=2, rows=10, whole=3, whole_since=1), False),
        (Experience(deltas=4, rows=20, whole=3, whole_since=1), False),
        (Experience(deltas=4, rows=20, whole=3, whole_since=1, in_vain=True), True),  # few rows came to nothing before
        (Experience(deltas=2, rows=10, whole=3, whole_since=9, in_vain=True), True),
        (Experience(deltas=2, rows=10, whole=3, whole_since=10, in_vain=True), False),
        (Experience(deltas=None, rows=0, whole=3, whole_since=0), False),  # it was another definition that had none
        (Experience(deltas=None, rows=0, whole=3, whole_since=9), True),
        (Experience(deltas=None, rows=0, whole=3, whole_since=10), False),
    ],
)
def test_states_that_were_given_up_stay_so_for_a_while(experience: Experience, expected: bool) -> None:
    assert experience.against_states(10) == expected


FIRST = Past(Action.INITIALIZE, "FIRST_LOAD", 8)
MERGE = Past(Action.MERGE, "MERGE", 5, 100)
CHEAPER = Past(Action.FULL, "FULL_IS_CHEAPER", 3, 90)
FILLED = Past(Action.FULL, "STATES_FILLED", 9, 20)
ABOVE = Past(Action.FULL, "ABOVE_THRESHOLD", 7)
NOTHING = Past(Action.NO_DATA, "NO_CHANGE", 0)


@pytest.mark.parametrize(
    ("past", "expected"),
    [
        ([], None),
        ([MERGE], None),
        ([FIRST], Experience(None, 0, 4)),  # states take about as long again as the query
        ([MERGE, FIRST], Experience(5, 100, 4)),
        ([ABOVE, MERGE, FIRST], Experience(5, 100, 3.5)),
        ([CHEAPER, FIRST], Experience(None, 0, 3, 1)),  # by bytes: exact, and deltas were never tried
        ([NOTHING, CHEAPER, ABOVE, CHEAPER, MERGE, FIRST], Experience(5, 100, 3, 2)),
        ([FILLED, CHEAPER, CHEAPER, MERGE, FIRST], Experience(5, 100, 3, 2)),  # the trial is still due
        ([ABOVE, FILLED, CHEAPER, CHEAPER, MERGE, FIRST], Experience(5, 100, 3, 2)),
        ([CHEAPER, FILLED, CHEAPER, CHEAPER, MERGE, FIRST], Experience(5, 100, 3, 1, in_vain=True)),
        ([MERGE, FILLED, CHEAPER, CHEAPER, MERGE, FIRST], Experience(5, 100, 3)),  # tried, and slow again
        ([CHEAPER, MERGE, FILLED, CHEAPER, MERGE, FIRST], Experience(5, 100, 3, 1)),
    ],
)
def test_what_the_past_teaches(past: list[Past], expected: Experience | None) -> None:
    assert learnt(past, stateful=True) == expected


def test_without_states_every_whole_refresh_is_exact() -> None:
    assert learnt([ABOVE, CHEAPER, MERGE, FIRST], stateful=False) == Experience(5, 100, 7, 1)


SLOW = Experience(deltas=4, rows=100, whole=3, whole_since=1)
QUICK = Experience(deltas=2, rows=100, whole=3, whole_since=1)
BYTES = SourceSize(1_000_000, 100_000_000, delta_rows=100, delta_bytes=100_000_001, changed=True)
MANY = SourceSize(1_000_000, 100_000_000, delta_rows=400_000, delta_bytes=10_000, changed=True)


@pytest.mark.parametrize(
    ("size", "experience", "there", "given_up"),
    [
        (STILL, SLOW, "NO_DATA NO_CHANGE", "NO_DATA NO_CHANGE"),
        (CHANGES, None, "MERGE MERGE kept", "FULL STATES_FILLED kept"),
        (CHANGES, QUICK, "MERGE MERGE kept", "FULL STATES_FILLED kept"),
        (CHANGES, SLOW, "FULL FULL_IS_CHEAPER", "FULL FULL_IS_CHEAPER"),
        (CHANGES, Experience(4, 100, 3, AGAIN), "MERGE MERGE kept", "FULL STATES_FILLED kept"),
        (CHANGES, Experience(None, 0, 3, 1), "MERGE MERGE kept", "FULL FULL_IS_CHEAPER"),
        (CHANGES, Experience(None, 0, 3, AGAIN), "MERGE MERGE kept", "FULL STATES_FILLED kept"),
        (BYTES, None, "FULL FULL_IS_CHEAPER", "FULL FULL_IS_CHEAPER"),
        (BYTES, SLOW, "FULL FULL_IS_CHEAPER", "FULL FULL_IS_CHEAPER"),
        (BYTES, QUICK, "FULL LARGE_DELTA kept", "FULL LARGE_DELTA"),
        (MANY, SLOW, "FULL ABOVE_THRESHOLD kept", "FULL ABOVE_THRESHOLD"),
    ],
)
def test_what_becomes_of_states(size: SourceSize, experience: Experience | None, there: str, given_up: str) -> None:
    """ADAPTIVE keeps them up as long as it counts on deltas; ``kept`` says so."""
    shape = keep(tree_of("SELECT k, count(*) AS n, sum(v) AS t FROM r GROUP BY k"), TYPES)
    (state,) = wanted_states(shape)
    found = {}
    for gone in (False, True):
        sizes = {0: size, 1: STILL, 2: STILL} | ({} if gone else {state.source: SourceSize(10, 1_000)})
        resolved = resolve(RefreshMode.ADAPTIVE, shape)
        plan = decide(shape, resolved, sizes, threshold=0.3, experience=experience, given_up=gone)
        kept = " kept" if plan.states and plan.action is not Action.NO_DATA else ""
        found[gone] = f"{plan.action.value} {plan.reason.code}{kept}"
        assert (plan.delta is not None) == (plan.action is Action.MERGE)
    assert found == {False: there, True: given_up}


# ---------------------------------------------------------------- profiles
@pytest.mark.parametrize(
    ("declared", "size", "expected"),
    [
        (None, INSERTS, (None, "BY_SIZE", 100, 1)),
        ("small", INSERTS, ("small", "DECLARED", 100, 1)),
        (None, SourceSize(1_000, 1, delta_rows=101, changed=True), ("batch", "MANY_KEYS", 101, 1)),
        ("wide", SourceSize(1_000, 1, delta_rows=101, changed=True), ("wide", "DECLARED", 101, 1)),
        (None, SourceSize(1_000, 1, delta_rows=500, changed=True), ("batch", "MANY_KEYS", 500, 1)),
        (None, SourceSize(1_000, 1, delta_rows=501, changed=True), ("batch", "MANY_KEYS", 501, 2)),
        ("small", SourceSize(2_000, 1, delta_rows=1_600, changed=True), ("small", "DECLARED", 1_600, 4)),
    ],
)
def test_the_profile_of_a_refresh(
    declared: str | None, size: SourceSize, expected: tuple[str | None, str, int, int]
) -> None:
    shape = shape_of(QUERIES["group by"])
    plan = decide(shape, resolve(RefreshMode.AUTO, shape), {0: size}, threshold=1)
    found = with_profile(plan, declared, [size], Thresholds(100, 500)).profile
    assert (found.name, found.reason.code, found.affected, found.batches) == expected
    assert "100" in found.reason.text or found.reason.code != "MANY_KEYS"


def test_the_whole_query_affects_all_rows() -> None:
    plan = Plan(Action.INITIALIZE, Reason("FIRST_LOAD", "it was never loaded"))
    found = with_profile(plan, None, [STILL, INSERTS], Thresholds(10**6, 10**9)).profile
    assert (found.name, found.affected) == ("batch", 2_000_000)
    nothing = Plan(Action.NO_DATA, Reason("NO_CHANGE", ""))
    assert with_profile(nothing, "nix", [STILL], Thresholds(1, 1)) == nothing


@pytest.mark.parametrize(
    ("name", "remedy"), [("bach", "write 'batch', or define"), ("xxl", r"or define it .*\[spark.profiles.xxl\]")]
)
def test_an_unknown_profile(name: str, remedy: str) -> None:
    for known in (None, "small", "batch", "wide"):
        require_profile(known, {"wide": {}})
    with pytest.raises(UnknownProfile, match=f"line 3: .*'{name}' → .*{remedy}"):
        require_profile(name, {"wide": {}}, "line 3")
