"""The DAG of dynamic tables: order, cycles, who depends on whom, effective lags, pictures."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from lakemill.core.definition import DOWNSTREAM, TargetLag, parse_lag
from lakemill.core.drawing import draw_json, draw_mermaid, draw_text
from lakemill.core.graph import Node, build_graph, require_no_dependents, warnings
from lakemill.core.names import parse_name
from lakemill.errors import Cycle, HasDependents


def graph(text, off=()):
    """``b: a x 5m`` on each line: b reads a and x, with that lag (none: DOWNSTREAM)."""
    nodes = []
    for line in text.strip().splitlines():
        name, _, rest = line.strip().partition(":")
        words = rest.split()
        lag = parse_lag(words.pop()) if words and words[-1][0].isdigit() else DOWNSTREAM
        nodes.append(Node(parse_name(name), lag, tuple(map(parse_name, words)), name not in off))
    return build_graph(nodes)


def n(*names):
    return tuple(map(parse_name, names))


# orders → a → (b, c) → d, beside it e on the same base, and f on nothing
DIAMOND = """
    d: b c x 1h
    c: a
    b: A orders 5m
    a: orders
    e: orders 10s
"""


def test_order_is_by_supply_and_then_by_name():
    assert graph(DIAMOND).order == n("a", "b", "c", "d", "e")
    assert graph("a: b 1s\nb: c 1s\nc: 1s").order == n("c", "b", "a")


def test_relations():
    g = graph(DIAMOND)
    a, b, d, orders = n("a", "b", "d", "orders")
    assert g.suppliers(d) == n("b", "c")
    assert g.suppliers(b) == n("a"), "case does not count"
    assert g.consumers(a) == n("b", "c")
    assert g.ancestors(d) == n("a", "b", "c")
    assert g.dependents(a) == n("b", "c", "d")
    assert g.dependents(orders) == n("a", "b", "c", "d", "e")
    assert g.bases(d) == n("orders", "x")
    assert g.bases(n("c")[0]) == n("orders")
    assert g.only(n("b", "d")).bases(d) == n("a", "c", "orders", "x")


def test_components_are_not_joined_by_base_tables():
    assert graph(DIAMOND).components() == (n("a", "b", "c", "d"), n("e"))
    assert graph("").components() == ()
    assert graph("b: x a 1s\na: x 1s\nd: c 1s\nc: x 1s").components() == (n("a", "b"), n("c", "d"))


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("a: a 1s", "main.a reads main.a"),
        ("a: b 1s\nb: a 1s", "main.a reads main.b reads main.a"),
        ("z: a 1s\na: c x 1s\nb: a 1s\nc: b 1s\nx: 1s", "main.a reads main.c reads main.b reads main.a"),
        ("a: b 1s\nb: c 1s\nc: b 1s", "main.b reads main.c reads main.b"),
        ("a: B 1s\nb: A 1s", "main.a reads main.b reads main.a"),
    ],
)
def test_cycles_are_refused_with_the_way_round(text, way):
    with pytest.raises(Cycle) as caught:
        graph(text)
    assert caught.value.message.lower().endswith(f": {way}")
    assert caught.value.remedy


def minutes(count):
    return None if count is None else timedelta(minutes=count)


@pytest.mark.parametrize(
    ("text", "off", "lags"),
    [
        ("a: x\nb: a 5m\nc: a 3m", (), {"a": 3, "b": 5, "c": 3}),
        ("a: x\nb: a\nc: b 5m\nd: a 9m", (), {"a": 5, "b": 5, "c": 5, "d": 9}),
        ("a: x\nb: a", (), {"a": None, "b": None}),
        ("a: x\nb: a 5m\nc: a 3m", ("c",), {"a": 5, "b": 5, "c": 3}),  # a suspended consumer needs nothing
        ("a: x\nb: a 3m", ("b",), {"a": None, "b": 3}),
        ("a: x 7m\nb: a 3m", (), {"a": 7, "b": 3}),  # an own lag stands
    ],
)
def test_effective_lags(text, off, lags):
    found = graph(text, off).effective_lags()
    assert found == {parse_name(name): minutes(count) for name, count in lags.items()}


def test_dependents_hold_a_drop():
    g = graph(DIAMOND)
    require_no_dependents(g, *n("d"))
    with pytest.raises(HasDependents, match=r"main\.a is read by main\.b, main\.c, main\.d → .*CASCADE"):
        require_no_dependents(g, *n("a"))


def test_warnings():
    assert warnings(graph(DIAMOND)) == ()
    (found,) = warnings(graph("a: x"))
    assert "no table reads it" in found.message
    assert "TARGET_LAG" in found.remedy
    (found,) = warnings(graph("a: x\nb: a 1m", off=("b",)))
    assert "every table that reads it is suspended" in found.message
    (found,) = warnings(graph("a: x 5m\nb: a 1m"))
    assert found.message == "main.b may lag 1 minute, but main.a, which it reads, 5 minutes"


def test_a_big_graph_is_quick():
    nodes = [Node(parse_name("t0"), DOWNSTREAM, n("x"))]
    nodes += [Node(parse_name(f"t{i}"), TargetLag(timedelta(days=1)), n(f"t{i // 2}", "x")) for i in range(1, 5000)]
    nodes[1] = Node(parse_name("t1"), DOWNSTREAM, n("t0"))
    g = build_graph(nodes)
    assert len(g.components()) == 1
    assert len(g.dependents(parse_name("t0"))) == 4999
    assert draw_mermaid(g).count("-->") == len(draw_json(g)["edges"])


# ---------------------------------------------------------------- pictures
def test_text():
    assert draw_text(graph(DIAMOND, off=("e",))) == "\n".join(
        [
            "main.orders",
            "├─ main.a · DOWNSTREAM (5 minutes)",
            "│  ├─ main.b · 5 minutes",
            "│  │  └─ main.d · 1 hour",
            "│  └─ main.c · DOWNSTREAM (1 hour)",
            "│     └─ main.d ↑",
            "├─ main.b ↑",
            "└─ main.e · 10 seconds · not scheduled",
            "main.x",
            "└─ main.d ↑",
        ]
    )
    assert draw_text(graph("a: 1s\nb: a 1s")) == "main.a · 1 second\n└─ main.b · 1 second"


def test_json():
    drawn = draw_json(graph("b: a\na: x 5m"))
    assert json.loads(json.dumps(drawn)) == drawn
    assert drawn["tables"] == [
        {"name": "main.x", "kind": "base"},
        {"name": "main.a", "kind": "dynamic", "target_lag": "5 minutes", "effective_lag": 300.0}
        | {"active": True, "component": 1},
        {"name": "main.b", "kind": "dynamic", "target_lag": "DOWNSTREAM", "effective_lag": None}
        | {"active": True, "component": 1},
    ]
    assert drawn["edges"] == [{"from": "main.x", "to": "main.a"}, {"from": "main.a", "to": "main.b"}]


def test_mermaid_labels_can_not_break_out():
    g = build_graph([Node(parse_name('"a""]-->b"'), DOWNSTREAM, n("x"))])
    assert draw_mermaid(g).splitlines() == [
        "flowchart LR",
        '  t0[("main.x")]',
        '  t1["main.#34;a#34;#34;#93;#45;#45;#62;b#34; · DOWNSTREAM"]',
        "  t0 --> t1",
    ]
