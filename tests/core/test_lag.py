"""How far behind, what is due, and at which data snapshot: tables of cases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemill.core.definition import DOWNSTREAM, parse_lag
from lakemill.core.graph import Node, build_graph
from lakemill.core.lag import Commit, Standing, Version, lag, largest_common, plan_rounds
from lakemill.core.names import parse_name

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
HEAD = 100


def ago(**time):
    return NOW - timedelta(**time)


def standing(name, *intervals, change=None, t=None, expected=0):
    """Versions as (lo, hi); ``change`` is (snapshot, minutes ago)."""
    versions = tuple(Version(hi, lo, hi, 1, 7, t) for lo, hi in intervals)
    commit = Commit(change[0], ago(minutes=change[1])) if change else None
    return Standing(parse_name(name), versions, commit, timedelta(minutes=expected))


@pytest.mark.parametrize(
    ("given", "minutes"),
    [
        (standing("a"), None),
        (standing("a", (1, 5)), 0),  # quiet: fresh, however long ago it was refreshed
        (standing("a", (1, 5), change=(6, 3)), 3),
        (standing("a", (1, 5), t=ago(minutes=8)), 8),  # time passes where the query depends on the clock
        (standing("a", (1, 5), change=(6, 3), t=ago(minutes=8)), 8),
        (standing("a", (1, 5), change=(6, 9), t=ago(minutes=8)), 9),
        (standing("a", (1, 5), change=(6, -1)), 0),  # the database's clock is ahead of ours
    ],
)
def test_lag(given, minutes):
    assert lag(given, NOW) == (None if minutes is None else timedelta(minutes=minutes))


@pytest.mark.parametrize(
    ("given", "b", "usable"),
    [
        (standing("a"), 5, False),
        (standing("a", (3, 5)), 2, False),
        (standing("a", (3, 5)), 4, True),
        (standing("a", (3, 5)), 9, True),  # nothing changed: it may be widened
        (standing("a", (3, 5), change=(9, 1)), 8, True),
        (standing("a", (3, 5), change=(9, 1)), 9, False),
        (standing("a", (3, 5), (8, 8)), 6, False),
        (standing("a", (3, 5), (8, 8)), 5, True),
        (standing("a", (5, 5), t=NOW), 5, True),
        (standing("a", (5, 5), t=NOW), 6, False),  # never widened
        (standing("a", (5, 5), t=ago(minutes=1)), 5, False),  # another time, another content
    ],
)
def test_usable(given, b, usable):
    assert given.usable(b, NOW) is usable


@pytest.mark.parametrize(
    ("given", "b"),
    [
        ([], HEAD),
        ([standing("a", (1, 5))], HEAD),
        ([standing("a", (1, 5), change=(50, 1))], 49),
        ([standing("a", (1, 5), change=(50, 1)), standing("b", (10, 20), change=(30, 1))], 29),
        ([standing("a", (1, 5), change=(6, 1)), standing("b", (2, 3), (10, 20))], 3),
        ([standing("a", (1, 5), change=(6, 1)), standing("b", (10, 20))], None),
        ([standing("a")], None),
    ],
)
def test_the_largest_b_that_all_hold(given, b):
    assert largest_common(given, HEAD) == b


def rounds(tables, standings, **options):
    """``{"b": ("a x", "5m")}``: b reads a and x; no lag: DOWNSTREAM; ``!`` before it: not scheduled."""
    nodes = []
    for name, (sources, text) in tables.items():
        off, text = text.startswith("!"), text.removeprefix("!")
        names = tuple(map(parse_name, sources.split()))
        nodes.append(Node(parse_name(name), parse_lag(text) if text else DOWNSTREAM, names, not off))
    found = plan_rounds(build_graph(nodes), standings, HEAD, NOW, **options)
    assert all(r.b == HEAD and r.t == NOW for r in found)
    runs = [[(run.name.name, run.b) for run in r.runs] for r in found]
    return runs, [(wait.name.name, wait.supplier.name) for r in found for wait in r.waits]


CHAIN = {"a": ("x", ""), "b": ("a", ""), "c": ("b", "5m")}
LATE = (90, 5)  # the first change, five minutes ago
NEW = (99, 1)


@pytest.mark.parametrize(
    ("tables", "standings", "runs", "waits"),
    [
        # nothing changed; a little; enough
        ({"a": ("x", "5m")}, [standing("a", (1, 5))], [], []),
        ({"a": ("x", "5m")}, [standing("a", (1, 5), change=NEW)], [], []),
        ({"a": ("x", "5m")}, [standing("a", (1, 5), change=LATE)], [[("a", HEAD)]], []),
        ({"a": ("x", "!5m")}, [standing("a", (1, 5), change=LATE)], [], []),
        ({"a": ("x", "5m")}, [standing("a")], [[("a", HEAD)]], []),  # never loaded
        ({"a": ("x", "")}, [standing("a", (1, 5), change=LATE)], [], []),  # nobody needs it
        ({"a": ("x", "5m")}, [standing("a", (1, 5), t=ago(minutes=6))], [[("a", HEAD)]], []),  # time passed
        # its refresh takes two minutes, and those that it pulls one each
        ({"a": ("x", "5m")}, [standing("a", (1, 5), change=(90, 3), expected=2)], [[("a", HEAD)]], []),
        (
            CHAIN,
            [standing(name, (1, 5), change=(90, 2), expected=1) for name in "abc"],
            [[("a", HEAD), ("b", HEAD), ("c", HEAD)]],
            [],
        ),
        (CHAIN, [standing(name, (1, 5), change=(90, 1), expected=1) for name in "abc"], [], []),
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
            [standing("a", (50, 60), change=(80, 4)), standing("b", (1, 5), change=LATE)],
            [[("b", 79)]],
            [],
        ),
        # … and waits where it is there already
        (
            {"a": ("x", "1h"), "b": ("a y", "5m")},
            [standing("a", (50, 60), change=(80, 4)), standing("b", (79, 79), change=(80, 4), expected=1)],
            [],
            [("b", "a")],
        ),
        # … and pulls nothing along for that
        (
            {"a": ("x", "1h"), "p": ("y", ""), "b": ("a p", "5m")},
            [
                standing("a", (50, 60), change=(61, 6)),
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
        # never loaded, on a supplier that is fresh enough: its b is used, no second refresh of it
        (
            {"a": ("x", "1h"), "b": ("a", "5m")},
            [standing("a", (50, 60), change=(61, 6)), standing("b")],
            [[("b", 60)]],
            [],
        ),
        # a suspended supplier, never loaded
        ({"a": ("x", "!1h"), "b": ("a", "5m")}, [standing("a"), standing("b")], [], [("b", "a")]),
        # a supplier that depends on the clock is usable at its own time only
        (
            {"a": ("x", "1h"), "b": ("a", "5m")},
            [standing("a", (60, 60), t=ago(minutes=6)), standing("b", (60, 60), t=ago(minutes=6))],
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


def test_a_table_that_can_not_wait_for_the_next_tick_is_due():
    tables, given = {"a": ("x", "5m")}, [standing("a", (1, 5), change=(90, 4))]
    assert rounds(tables, given) == ([], [])
    assert rounds(tables, given, tick=timedelta(minutes=1)) == ([[("a", HEAD)]], [])


def test_reasons_are_told():
    graph = build_graph(
        [Node(parse_name("a"), DOWNSTREAM, ()), Node(parse_name("b"), parse_lag("5m"), (parse_name("a"),))]
    )
    (found,) = plan_rounds(graph, [standing("a", (1, 5), change=LATE), standing("b", (1, 5), change=LATE)], HEAD, NOW)
    assert [run.reason for run in found.runs] == ["main.b needs it", "it lags 0:05:00 of 5 minutes"]


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
        standings.append(standing(name, *pairs, change=change, expected=draw(st.integers(0, 2))))
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
