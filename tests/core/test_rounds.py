"""What is due, at which data snapshot, who waits for whom, and when to look again: tables of cases."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemill.core.definition import DOWNSTREAM, TargetLag, parse_lag
from lakemill.core.graph import Node, build_graph, warnings
from lakemill.core.lag import Failure
from lakemill.core.names import QualifiedName, parse_name
from lakemill.core.retry import BACKOFF, Backoff, retry_at, suspends
from lakemill.core.rounds import next_look, period, periods, plan_rounds, shortfalls
from lakemill.errors import (
    EngineLost,
    OutcomeUnknown,
    PublishConflict,
    RefreshTimedOut,
    RefreshTooLarge,
    Retry,
    SqlFailed,
    StorageUnavailable,
)
from tests.core.test_lag import HEAD, NOW, ago, standing


def seconds(number):
    return timedelta(seconds=number)


def graph_of(tables):
    """``{"b": ("a x", "5m")}``: b reads a and x; no lag: DOWNSTREAM; ``!`` before it: not scheduled."""
    nodes = []
    for name, (sources, text) in tables.items():
        off, text = text.startswith("!"), text.removeprefix("!")
        names = tuple(map(parse_name, sources.split()))
        nodes.append(Node(parse_name(name), parse_lag(text) if text else DOWNSTREAM, names, not off))
    return build_graph(nodes)


def rounds(tables, standings, **options):
    found = plan_rounds(graph_of(tables), standings, HEAD, NOW, **options)
    assert all(r.b == HEAD and r.t == NOW for r in found)
    runs = [[(run.name.name, run.b) for run in r.runs] for r in found]
    return runs, [(wait.name.name, wait.supplier.name) for r in found for wait in r.waits]


CHAIN = {"a": ("x", ""), "b": ("a", ""), "c": ("b", "5m")}
LATE = (90, 5)  # the first change, five minutes ago
NEW = (99, 1)


@pytest.mark.parametrize(
    ("tables", "standings", "runs", "waits"),
    [
        # nothing changed; changed, in a slot that is used; in a new one
        ({"a": ("x", "5m")}, [standing("a", (1, 5))], [], []),
        ({"a": ("x", "5m")}, [standing("a", (1, 5), change=NEW, round_at=NOW)], [], []),
        ({"a": ("x", "5m")}, [standing("a", (1, 5), change=NEW, round_at=ago(seconds=1))], [[("a", HEAD)]], []),
        ({"a": ("x", "5m")}, [standing("a", (1, 5), change=NEW)], [[("a", HEAD)]], []),
        ({"a": ("x", "5m")}, [standing("a", (1, 5), change=LATE)], [[("a", HEAD)]], []),
        ({"a": ("x", "!5m")}, [standing("a", (1, 5), change=LATE)], [], []),
        ({"a": ("x", "5m")}, [standing("a")], [[("a", HEAD)]], []),  # never loaded
        ({"a": ("x", "")}, [standing("a", (1, 5), change=LATE)], [], []),  # nobody needs it
        ({"a": ("x", "5m")}, [standing("a", (1, 5), t=ago(minutes=6))], [[("a", HEAD)]], []),  # time passed
        ({"a": ("x", "5m")}, [standing("a", (1, 5), t=ago(minutes=6), round_at=NOW)], [], []),
        # work that is under way is not planned again
        ({"a": ("x", "5m")}, [standing("a", (1, 5), change=LATE, busy=True)], [], []),
        ({"a": ("x", "5m")}, [standing("a", busy=True)], [], []),
        # a consumer pulls the whole DOWNSTREAM chain, but not what holds the newest already
        (
            CHAIN,
            [standing("a", (1, 95)), standing("b", (1, 5), change=LATE), standing("c", (1, 5), change=LATE)],
            [[("b", HEAD), ("c", HEAD)]],
            [],
        ),
        # a supplier with a lag of its own, not due: the consumer goes as far as it has come
        (
            {"a": ("x", "1h"), "b": ("a y", "5m")},
            [standing("a", (50, 60), change=(80, 4), round_at=NOW), standing("b", (1, 5), change=LATE)],
            [[("b", 79)]],
            [],
        ),
        # … and waits where it is there already
        (
            {"a": ("x", "1h"), "b": ("a y", "5m")},
            [standing("a", (50, 60), change=(80, 4), round_at=NOW), standing("b", (79, 79), change=(80, 4))],
            [],
            [("b", "a")],
        ),
        # … and pulls nothing along for that
        (
            {"a": ("x", "1h"), "p": ("y", ""), "b": ("a p", "5m")},
            [
                standing("a", (50, 60), change=(61, 6), round_at=NOW),
                standing("p", (60, 60), change=(61, 6)),
                standing("b", (60, 60), change=(61, 6)),
            ],
            [],
            [("b", "a")],
        ),
        # both are due: one round, one b
        (
            {"a": ("x", "5m"), "b": ("a", "5m")},
            [standing("a", (1, 5), change=LATE), standing("b", (1, 5), change=LATE)],
            [[("a", HEAD), ("b", HEAD)]],
            [],
        ),
        # a supplier at work counts as far as it has come
        (
            {"a": ("x", "5m"), "b": ("a y", "5m")},
            [standing("a", (50, 60), change=(80, 4), busy=True), standing("b", (1, 5), change=LATE)],
            [[("b", 79)]],
            [],
        ),
        (
            CHAIN,
            [standing("a", (5, 5), change=LATE, busy=True), *(standing(name, (5, 5), change=(6, 9)) for name in "bc")],
            [],
            [("c", "b")],
        ),
        # never loaded, on suppliers that are fresh enough: their b is used, none is refreshed for it
        (
            {"a": ("x", "1h"), "b": ("a", "5m")},
            [standing("a", (50, 60), change=(61, 4), round_at=NOW), standing("b")],
            [[("b", 60)]],
            [],
        ),
        (
            {"p": ("x", ""), "q": ("y", ""), "b": ("p q", "5m")},
            [standing("p", (50, 60), change=(61, 4)), standing("q", (55, 55), change=(59, 5)), standing("b")],
            [[("b", 58)]],
            [],
        ),
        # … or not: what is DOWNSTREAM comes along
        (
            {"p": ("x", ""), "q": ("y", ""), "b": ("p q", "5m")},
            [standing("p", (50, 60), change=(61, 4)), standing("q", (55, 55), change=(59, 6)), standing("b")],
            [[("p", HEAD), ("q", HEAD), ("b", HEAD)]],
            [],
        ),
        # … what is not, stays where it is
        (
            {"a": ("x", "1h"), "b": ("a", "5m")},
            [standing("a", (50, 60), change=(61, 6), round_at=NOW), standing("b")],
            [[("b", 60)]],
            [],
        ),
        # … and who reads the new table waits for it
        (
            {"a": ("x", ""), "b": ("a", "5m"), "c": ("b", "5m")},
            [standing("a", (50, 60), change=(61, 1)), standing("b"), standing("c")],
            [[("b", 60)]],
            [("c", "b")],
        ),
        # a suspended supplier, never loaded
        ({"a": ("x", "!1h"), "b": ("a", "5m")}, [standing("a"), standing("b")], [], [("b", "a")]),
        # a supplier that depends on the clock is usable at its own time only
        (
            {"a": ("x", "1h"), "b": ("a", "5m")},
            [standing("a", (60, 60), t=ago(minutes=6), round_at=NOW), standing("b", (60, 60), t=ago(minutes=6))],
            [],
            [("b", "a")],
        ),
        # components are rounds of their own
        (
            {"a": ("x", "5m"), "b": ("x", "5m")},
            [standing("a", (1, 5), change=LATE), standing("b", (1, 5), change=LATE)],
            [[("a", HEAD)], [("b", HEAD)]],
            [],
        ),
    ],
)
def test_rounds(tables, standings, runs, waits):
    found_runs, found_waits = rounds(tables, standings)
    assert [run for run in found_runs if run] == runs
    assert found_waits == waits


def test_reasons_are_told():
    graph = graph_of({"a": ("x", ""), "b": ("a", "5m")})
    (found,) = plan_rounds(graph, [standing("a", (1, 5), change=LATE), standing("b", (1, 5), change=LATE)], HEAD, NOW)
    assert [run.reason for run in found.runs] == ["main.b needs it", "it lags 0:05:00 of 5 minutes"]


@pytest.mark.parametrize(
    ("supplier", "off", "reason"),
    [
        ({"busy": True}, "", "main.a is being refreshed"),
        ({"round_at": NOW}, "", "main.a has not come further"),
        ({}, "!", "main.a is not scheduled"),
        (
            {"failure": Failure(2, NOW, 99, Retry.BACK_OFF)},
            "",
            "main.a failed 2 times in a row and is tried again at 1",
        ),
        (
            {"failure": Failure(1, NOW, 99, Retry.NEVER)},
            "",
            "main.a failed once and is not tried again before its sources change",
        ),
    ],
)
def test_reasons_to_wait(supplier, off, reason):
    tables = {"a": ("x", off + "5m"), "b": ("a", "5m")}
    given = [standing("a", (5, 5), change=(6, 9), **supplier), standing("b", (5, 5), change=(6, 9))]
    (found,) = plan_rounds(graph_of(tables), given, HEAD, NOW)
    assert not found.runs
    assert found.waits[0].reason.startswith(reason)


# ---------------------------------------------------------------- the grid
@pytest.mark.parametrize(
    ("target", "lead", "tick", "length"),
    [
        (1, 0, 0, 1),
        (1, 5, 0, 0.125),  # can't be kept
        (2, 0, 0, 2),
        (2, 0.1, 0, 1),
        (10, 1, 1, 8),
        (10, 1, 1.1, 4),
        (10, 2, 0, 8),
        (60, 2, 0.5, 32),
        (86400, 600, 1, 65536),
    ],
)
def test_period(target, lead, tick, length):
    assert period(seconds(target), seconds(lead), seconds(tick)) == seconds(length)


@pytest.mark.parametrize(
    ("tables", "lengths"),
    [  # each takes a minute
        ({"a": ("x", "5m")}, {"a": 128}),
        ({"a": ("x", "6m")}, {"a": 256}),
        (CHAIN, {"c": 64}),  # for what it pulls
        ({"a": ("x", "6m"), "b": ("a", "6m")}, {"a": 256, "b": 128}),  # for what runs in the same rounds
        ({"a": ("x", "1h"), "b": ("a", "6m")}, {"a": 2048, "b": 256}),  # not for what seldom does
        ({"a": ("x", "1h"), "p": ("a", ""), "b": ("p", "6m")}, {"a": 2048, "b": 128}),
        ({"a": ("x", "!6m"), "b": ("a", "6m")}, {"a": 256, "b": 256}),  # nor for what never does
    ],
)
def test_periods_leave_time_for_the_work(tables, lengths):
    found = periods(graph_of(tables), [standing(name, expected=1) for name in tables])
    assert {name.name: length.total_seconds() for name, length in found.items()} == lengths


def test_a_promise_that_the_work_does_not_allow_is_told_with_numbers():
    graph = graph_of({"a": ("x", ""), "b": ("a", "2m"), "c": ("x", "2m"), "d": ("x", "1m"), "e": ("x", "!1m")})
    found = shortfalls(graph, [standing(name, expected=1) for name in "abcde"])
    assert [one.message for one in found] == [
        "main.b may lag 2 minutes, but its refresh takes 60.0 s, 120.0 s with the suppliers that it waits for",
        "main.d may lag 1 minute, but its refresh takes 60.0 s",
    ]


def test_a_promise_that_a_supplier_does_not_make_is_told_however_far_it_is():
    (found,) = warnings(graph_of({"a": ("x", "1h"), "p": ("a", ""), "q": ("p", ""), "b": ("q", "5m")}))
    assert found.message == "main.b may lag 5 minutes, but main.a, which it reads through main.p, 1 hour"


# ---------------------------------------------------------------- failures
@pytest.mark.parametrize(
    ("retry", "count", "least", "most"),
    [
        (Retry.REPLAN, 4, 0, 0),
        (Retry.BACK_OFF, 1, 0.8, 1),
        (Retry.LOOK_FIRST, 2, 1.6, 2),
        (Retry.BACK_OFF, 5, 12.8, 16),
        (Retry.BACK_OFF, 50, 240, 300),
        (Retry.BACK_OFF, 5000, 240, 300),
    ],
)
def test_retry_at(retry, count, least, most):
    delays = {retry_at(Failure(count, NOW, 7, retry), BACKOFF, parse_name(f"t{i}")) - NOW for i in range(50)}
    assert all(seconds(least) <= delay <= seconds(most) for delay in delays)
    assert len(delays) == (50 if most else 1), "spread"


def test_retries_are_the_same_each_time_one_looks():
    failure = Failure(3, NOW, 7, Retry.BACK_OFF)
    assert retry_at(failure, BACKOFF, parse_name("T")) == retry_at(failure, BACKOFF, parse_name("t"))
    assert retry_at(failure, Backoff(seconds(2), 3, jitter=0), parse_name("t")) == NOW + seconds(18)
    assert retry_at(Failure(1, NOW, 7, Retry.NEVER), BACKOFF, parse_name("t")) is None


def test_five_failures_suspend_unless_a_part_does_not_answer():
    cases = {
        SqlFailed: True,
        PublishConflict: True,
        RefreshTimedOut: True,
        RefreshTooLarge: True,
        EngineLost: True,
        StorageUnavailable: False,
        OutcomeUnknown: False,
    }
    for error, own in cases.items():
        found = [suspends(Failure(count, NOW, 7, error.retry), error, 5) for count in (1, 4, 5, 6)]
        assert found == [False, False, own, own], error


def test_a_lost_engine_suspends_only_whoever_loses_it_alone():
    lost = Failure(5, NOW, 7, EngineLost.retry)
    assert [suspends(lost, EngineLost, 5, others) for others in (0, 1, 2, 9)] == [True, True, False, False]
    assert suspends(lost, RefreshTimedOut, 5, 9)


def test_what_failed_for_good_is_not_tried_again_where_its_supplier_still_is():
    reads = {"a": ("x", "5m"), "b": ("a", "5m")}
    busy = standing("a", (90, 90), change=LATE, busy=True)
    for failed_at, runs, waits in ((90, [[]], [("b", "a")]), (89, [[("b", 90)]], [])):
        given = standing(
            "b", (80, 80), change=LATE, newest=(95, 1), failure=Failure(1, ago(hours=1), failed_at, Retry.NEVER)
        )
        assert rounds(reads, [busy, given]) == (runs, waits)


@pytest.mark.parametrize(
    ("failure", "more", "due"),
    [
        (Failure(1, NOW, 90, Retry.BACK_OFF), {}, False),
        (Failure(1, ago(seconds=1), 90, Retry.BACK_OFF), {}, True),
        (Failure(1, ago(seconds=1), 90, Retry.BACK_OFF), {"round_at": NOW}, True),  # no slot is used by a failure
        (Failure(1, NOW, 90, Retry.REPLAN), {"round_at": NOW}, True),
        (Failure(1, ago(hours=1), 90, Retry.NEVER), {}, False),
        (Failure(1, ago(hours=1), 90, Retry.NEVER), {"newest": (91, 1)}, True),
        (Failure(1, ago(hours=1), 90, Retry.NEVER), {"newest": (91, 1), "round_at": NOW}, False),
        (Failure(1, ago(seconds=1), 90, Retry.BACK_OFF), {"busy": True}, False),
    ],
)
@pytest.mark.parametrize("pulled", [False, True])
def test_a_failed_table_is_due_again(failure, more, due, pulled):
    given = standing("a", (1, 5), change=LATE, failure=failure, **more)
    if not pulled:
        assert rounds({"a": ("x", "5m")}, [given]) == (([[("a", HEAD)]] if due else []), [])
    elif "round_at" not in more:
        runs, waits = rounds({"a": ("x", ""), "b": ("a", "5m")}, [given, standing("b", (89, 89), change=LATE)])
        assert (runs, waits) == (([[("a", HEAD), ("b", HEAD)]], []) if due else ([[]], [("b", "a")]))


# ---------------------------------------------------------------- company
TWO = {"a": ("x", "10s"), "b": ("x", "10s"), "c": ("a b", "10s")}


@pytest.mark.parametrize(
    ("holds", "expected", "runs"),
    [  # a is at work since an earlier slot, b and c are due: b waits for a, unless that takes longer than b itself
        ((5, 5), 1, []),
        ((5, 5), 0.5, ["b"]),
        ((5, 6), 1, ["b", "c"]),  # c can go on meanwhile
    ],
)
def test_late_suppliers_wait_for_each_other(holds, expected, runs):
    before = ago(minutes=1)
    a = standing("a", holds, change=(holds[1] + 1, 1), busy=True, round_at=before, expected=1)
    b = standing("b", (6, 6), change=(7, 1), round_at=before, expected=expected)
    c = standing("c", (5, 5), change=(6, 1), round_at=before)
    found, _ = rounds(TWO, [a, b, c])
    assert [name for each in found for name, _ in each] == runs
    found, _ = rounds(TWO, [replace(a, round_at=NOW), b, c])
    assert found[0][0] == ("b", HEAD), "a will not begin again before the next slot"


# ---------------------------------------------------------------- sleeping
@pytest.mark.parametrize(
    ("tables", "standings", "after"),
    [
        ({"a": ("x", "5m")}, [standing("a", (1, 5), round_at=NOW)], None),  # quiet
        ({"a": ("x", "5m")}, [standing("a", (1, 5), change=NEW, round_at=NOW)], 256),
        ({"a": ("x", "5m")}, [standing("a", (1, 5), change=NEW, round_at=NOW, busy=True)], None),
        ({"a": ("x", "!5m")}, [standing("a", (1, 5), change=NEW, round_at=NOW)], None),
        ({"a": ("x", "")}, [standing("a", (1, 5), change=NEW, round_at=NOW)], None),
        ({"a": ("x", "5m")}, [standing("a", (1, 5), change=NEW)], None),  # due now
        ({"a": ("x", "5m")}, [standing("a", (1, 5), t=NOW, round_at=NOW)], 256),  # time passes
        (
            {"a": ("x", "5m"), "b": ("y", "1m")},
            [standing("a", (1, 5), change=NEW, round_at=NOW), standing("b", (1, 5), change=NEW, round_at=NOW)],
            32,
        ),
        (
            {"a": ("x", "5m"), "b": ("a", "1m")},  # b is quiet
            [standing("a", (1, 5), change=NEW, round_at=NOW), standing("b", (1, 5), round_at=NOW)],
            256,
        ),
        ({"a": ("x", "5m")}, [standing("a", change=NEW, failure=Failure(3, NOW, 7, Retry.BACK_OFF))], 4),
        ({"a": ("x", "5m")}, [standing("a", change=NEW, failure=Failure(3, NOW, 99, Retry.NEVER), round_at=NOW)], None),
        ({"a": ("x", "5m")}, [standing("a", change=NEW, failure=Failure(3, NOW, 98, Retry.NEVER), round_at=NOW)], 256),
        (
            CHAIN,  # c waits for the retry of what it pulls
            [
                standing("a", (1, 5), change=LATE, failure=Failure(4, NOW, 99, Retry.LOOK_FIRST)),
                *(standing(name, (1, 5), change=LATE) for name in "bc"),
            ],
            8,
        ),
    ],
)
def test_next_look(tables, standings, after):
    found = next_look(graph_of(tables), standings, NOW, backoff=Backoff(jitter=0))
    assert found == (None if after is None else NOW + seconds(after))


def idle(number):
    """Chains of five, quiet."""
    names = [QualifiedName("main", f"t{i}") for i in range(number)]
    nodes = [
        Node(name, TargetLag(seconds(60)) if i % 3 else DOWNSTREAM, (names[i - 1] if i % 5 else parse_name("x"),))
        for i, name in enumerate(names)
    ]
    return build_graph(nodes), [standing(f"t{i}", (1, 5), round_at=NOW) for i in range(number)]


def calls(work, *arguments):
    counted = 0

    def count(frame, event, argument):
        nonlocal counted
        counted += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work(*arguments)
    finally:
        sys.setprofile(before)
    return counted


def test_a_look_at_quiet_tables_costs_little_and_grows_with_their_number_only():
    small, large = idle(1000), idle(10_000)
    assert calls(plan_rounds, *large, HEAD, NOW) < 10 * 10_000  # 15 ms
    assert calls(next_look, *large, NOW) < 10 * 10_000
    pending = [[standing(f"t{i}", (1, 5), change=NEW) for i in range(number)] for number in (1000, 10_000)]
    few, many = (
        calls(plan_rounds, each[0], given, HEAD, NOW) for each, given in zip((small, large), pending, strict=True)
    )
    assert many < 12 * few


# ---------------------------------------------------------------- whatever the graph
names = [f"t{i}" for i in range(6)]


@st.composite
def lakes(draw):
    """A DAG with random lags, versions and changes, consistent in time."""
    nodes, standings = [], []
    for i, name in enumerate(names):
        suppliers = draw(st.lists(st.sampled_from(names[:i]), unique=True, max_size=3)) if i else []
        text = draw(st.sampled_from(["DOWNSTREAM", "1 minute", "5 minutes", "1 hour"]))
        sources = tuple(map(parse_name, [*suppliers, "x"]))
        nodes.append(Node(parse_name(name), parse_lag(text), sources, draw(st.integers(0, 5)) > 0))
        ends = sorted(draw(st.lists(st.integers(1, HEAD), unique=True, max_size=6)))
        pairs = list(zip(ends[::2], ends[1::2], strict=False))
        change = (
            (draw(st.integers(pairs[-1][1] + 1, HEAD)), draw(st.integers(0, 90)))
            if pairs and draw(st.booleans()) and pairs[-1][1] < HEAD
            else None
        )
        more = {"busy": draw(st.integers(0, 4)) == 0, "round_at": draw(st.sampled_from([None, NOW, ago(hours=2)]))}
        if draw(st.integers(0, 4)) == 0:
            retry = draw(st.sampled_from(Retry))
            more["failure"] = Failure(1, draw(st.sampled_from([NOW, ago(hours=1)])), draw(st.integers(1, HEAD)), retry)
        standings.append(standing(name, *pairs, change=change, expected=draw(st.integers(0, 2)), **more))
    return build_graph(nodes), standings


@settings(max_examples=500, deadline=None)
@given(lakes())
def test_every_run_finds_its_suppliers_at_its_b(lake):
    graph, standings = lake
    by_name = {standing.name: standing for standing in standings}
    for found in plan_rounds(graph, standings, HEAD, NOW):
        done: dict[object, int] = {}
        for run in found.runs:
            node, own = graph.nodes[run.name], by_name[run.name]
            assert node.active
            assert not own.busy
            assert run.b <= HEAD
            assert not own.versions or run.b > own.versions[-1].b_hi, "b never decreases"
            for supplier in graph.suppliers(run.name):
                assert done.get(supplier) == run.b or by_name[supplier].usable(run.b, NOW)
            done[run.name] = run.b
        for run in found.runs:
            if graph.nodes[run.name].target_lag == DOWNSTREAM:
                assert any(done.get(consumer) == HEAD for consumer in graph.consumers(run.name)), "pulled by somebody"
        for wait in found.waits:
            assert wait.name not in done
            assert wait.supplier in graph.suppliers(wait.name)
