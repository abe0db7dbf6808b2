"""Dynamic tables as they are remembered."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from lakemill.core.definition import DOWNSTREAM, Definition, Dialect, Initialize, RefreshMode, TargetLag
from lakemill.core.graph import build_graph
from lakemill.core.names import QualifiedName, parse_name
from lakemill.core.refresh import State
from lakemill.errors import DefinitionChanged, HasDependents, TableExists, UnknownDynamicTable
from lakemill.store import db, definitions
from lakemill.store.definitions import OutputColumn, Resolved, Source, SourceKind
from tests.store.conftest import RESOLVED


def names(tables):
    return [str(table.name) for table in tables]


def test_everything_comes_back(where):
    definition = Definition(
        QualifiedName("S", 'a "b"'),
        "SELECT '%s' -- ü",
        TargetLag(timedelta(days=2, seconds=1)),
        ("x", "ÿ"),
        RefreshMode.ADAPTIVE,
        True,
        0.1,
        Initialize.ON_SCHEDULE,
        False,
        -7,
        "big",
        Dialect.SPARK,
        ("year(d)", "bucket(4, k)"),
        "why, 'so'",
    )
    columns = (OutputColumn("x", "STRUCT(a INTEGER)"), OutputColumn("ÿ", "DECIMAL(9,2)"))
    resolved = Resolved("SELECT 1", RefreshMode.FULL, "because", columns, clocked=True)
    view = Source(SourceKind.VIEW, parse_name("v"), (), table_id=9)
    table = Source(SourceKind.TABLE, parse_name("s.t"), ("a", "b"), table_id=7)
    made = definitions.create(where, definition, resolved, [view, table])
    assert (made.definition, made.resolved, made.definition_version) == (definition, resolved, 1)
    assert (made.state, made.state_reason, made.table_id) == (State.PENDING_INIT, None, None)
    assert definitions.sources(where, made) == (view, table)
    assert definitions.get(where, parse_name('s."A ""B"""')) == made, "case does not count"
    assert definitions.by_id(where, made.id) == made


def test_a_plain_one_comes_back(where, make):
    made = make("t", target_lag=DOWNSTREAM)
    assert made.definition == Definition(parse_name("t"), "SELECT k FROM x", DOWNSTREAM)


def test_unknown_ones_are_told(where):
    assert definitions.find(where, parse_name("t")) is None
    with pytest.raises(UnknownDynamicTable, match=r"no dynamic table main\.t → list them with SHOW"):
        definitions.get(where, parse_name("t"))
    with pytest.raises(UnknownDynamicTable):
        definitions.by_id(where, 17)


def test_a_name_is_given_once(where, make):
    made = make("t")
    with pytest.raises(TableExists, match="OR REPLACE"):
        make("T")
    make('"Ä"')
    make('"ä"')
    definitions.drop(where, [made.id])
    assert make("T").id != made.id, "ids are never given twice"


def test_listing(where, make):
    for name in ("b.z", "A", "b.a_1"):
        make(name)
    assert names(definitions.list_all(where)) == ["b.a_1", "b.z", "main.A"]
    assert names(definitions.list_all(where, "a%")) == ["b.a_1", "main.A"]
    assert names(definitions.list_all(where, "B.%")) == ["b.a_1", "b.z"]
    assert definitions.list_all(where, "none") == ()


# ---------------------------------------------------------------- versions of a definition
def test_old_versions_stay(where, make):
    make("a")
    first = make("t", "a")
    again = replace(first.definition, query="SELECT 2", comment="new")
    second = definitions.declare(where, first, again, RESOLVED, [Source(SourceKind.TABLE, parse_name("y"), ("c",), 5)])
    assert (second.definition_version, second.definition, second.id) == (2, again, first.id)
    old = definitions.by_id(where, first.id, 1)
    assert old.definition == first.definition
    assert [source.name for source in definitions.sources(where, old)] == [parse_name("a")]
    assert [source.name for source in definitions.sources(where, second)] == [parse_name("y")]
    assert definitions.list_all(where)[1] == second
    with pytest.raises(UnknownDynamicTable, match="never had a version 3"):
        definitions.by_id(where, first.id, 3)


def test_only_the_definition_that_was_read_is_changed(where, make):
    first = make("t")
    definitions.declare(where, first, first.definition, RESOLVED, [])
    with pytest.raises(DefinitionChanged):
        definitions.declare(where, first, first.definition, RESOLVED, [])


def test_a_publish_requires_its_definition(where, make):
    made = make("t")
    definitions.require_definition(where, made.id, 1)
    definitions.declare(where, made, made.definition, RESOLVED, [])
    with pytest.raises(DefinitionChanged, match="altered"):
        definitions.require_definition(where, made.id, 1)
    definitions.drop(where, [made.id])
    with pytest.raises(DefinitionChanged, match="dropped"):
        definitions.require_definition(where, made.id, 2)


# ---------------------------------------------------------------- the graph
def test_nodes_make_the_graph(where, make):
    make("a", target_lag=DOWNSTREAM)
    make("b", "a x", scheduler=False)
    make("c", "a b", state=State.SUSPENDED)
    graph = build_graph(definitions.nodes(where))
    assert graph.order == tuple(map(parse_name, "abc"))
    assert [graph.nodes[name].active for name in graph.order] == [True, False, False]
    assert graph.bases(parse_name("c")) == (parse_name("x"),)
    assert graph.nodes[parse_name("b")].target_lag == TargetLag(timedelta(minutes=5))


def test_ancestors_come_in_order(where, make):
    a, b = make("a"), make("b", "x")
    c = make("c", "a b")
    d = make("d", "c a x")
    assert definitions.ancestors(where, d.id) == (a.id, b.id, c.id)
    assert definitions.ancestors(where, a.id) == ()


def test_a_table_without_sources_is_a_node(where):
    definitions.create(where, Definition(parse_name("t"), "SELECT 1", DOWNSTREAM), RESOLVED, [])
    assert definitions.nodes(where)[0].sources == ()


def test_a_new_name_is_followed_by_who_reads_it(where, make):
    a = make("a")
    b = make("b", "a")
    definitions.rename(where, a, parse_name("S.new"))
    assert [str(source.name) for source in definitions.sources(where, b)] == ["S.new"]
    assert build_graph(definitions.nodes(where)).order == (parse_name("b"), parse_name("s.new"))[::-1]
    definitions.rename(where, definitions.by_id(where, a.id), parse_name("s.NEW"))


def test_a_name_in_use_is_refused(conn):
    one, other = (
        definitions.create(conn, Definition(parse_name(name), "SELECT 1", DOWNSTREAM), RESOLVED, []) for name in "ab"
    )
    with pytest.raises(TableExists, match=r"main\.B already"):
        definitions.rename(conn, one, parse_name("B"))
    assert names(definitions.list_all(conn)) == ["main.a", "main.b"]
    definitions.drop(conn, [one.id])
    with pytest.raises(DefinitionChanged):
        definitions.rename(conn, one, parse_name("c"))
    assert other.definition_version == 1


# ---------------------------------------------------------------- states
def test_states(where, make):
    a, b, c = (make(name, state=State.ACTIVE) for name in "abc")
    assert definitions.set_state(where, [a.id], State.SUSPENDED, "by hand") == {a.id}
    assert definitions.set_state(
        where, [a.id, b.id, c.id], State.UPSTREAM_SUSPENDED, "main.a", only=[State.ACTIVE]
    ) == {b.id, c.id}
    found = definitions.list_all(where)
    assert [table.state for table in found] == [State.SUSPENDED, *[State.UPSTREAM_SUSPENDED] * 2]
    assert [table.state_reason for table in found] == ["by hand", "main.a", "main.a"]
    assert found[0].state_since > a.state_since
    assert definitions.set_state(where, [a.id], State.SUSPENDED, "again") == frozenset()
    assert definitions.set_state(where, [], State.ACTIVE) == frozenset()


def test_what_was_never_published_waits_for_its_first_load(where, make):
    made = make("t")
    definitions.set_state(where, [made.id], State.SUSPENDED)
    definitions.set_state(where, [made.id], State.ACTIVE)
    assert definitions.by_id(where, made.id).state is State.PENDING_INIT
    assert definitions.set_state(where, [made.id], State.ACTIVE) == frozenset()


# ---------------------------------------------------------------- dropping
def test_readers_hold_a_drop(where, make):
    a = make("a")
    b, c = make("b", "a"), make("c", "a b")
    with pytest.raises(HasDependents, match=r"main\.b, main\.c"):
        definitions.drop(where, [a.id])
    with pytest.raises(HasDependents, match=r"read by main\.c →"):
        definitions.drop(where, [a.id, b.id])
    definitions.drop(where, [a.id, b.id, c.id])
    assert definitions.list_all(where) == ()


def test_only_the_current_definition_holds_a_drop(where, make):
    a = make("a")
    b = make("b", "a")
    definitions.declare(where, b, b.definition, RESOLVED, [])
    definitions.drop(where, [a.id])
    (source,) = definitions.sources(where, definitions.by_id(where, b.id, 1))
    assert (str(source.name), source.supplier_id) == ("main.a", None)


def test_a_drop_knows_what_was_loaded(where, make):
    a = make("a")
    where.execute("UPDATE lakemill.dynamic_tables SET table_id = 7")
    with pytest.raises(DefinitionChanged, match="loaded meanwhile"):
        definitions.drop(where, [a.id], {a.id: None})
    definitions.drop(where, [a.id], {a.id: 7})
    assert not definitions.list_all(where)


def test_a_reader_that_comes_at_the_same_time_holds_it_too(conn, migrated):
    """A drop waits for a CREATE in flight, and sees it."""
    a = definitions.create(conn, Definition(parse_name("a"), "SELECT 1", DOWNSTREAM), RESOLVED, [])
    refused: list[BaseException] = []

    def drop():
        with db.connect(migrated) as other:
            try:
                definitions.drop(other, [a.id])
            except HasDependents as error:
                refused.append(error)

    with conn.transaction():
        source = Source(SourceKind.DYNAMIC, a.name, (), supplier_id=a.id)
        definitions.create(conn, Definition(parse_name("b"), "SELECT 1", DOWNSTREAM), RESOLVED, [source])
        thread = threading.Thread(target=drop)
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
    thread.join()
    assert len(refused) == 1


@pytest.mark.parametrize(
    "source",
    [
        Source(SourceKind.TABLE, parse_name("x"), ()),
        Source(SourceKind.DYNAMIC, parse_name("x"), (), table_id=1),
        Source(SourceKind.TABLE, parse_name("x"), (), table_id=1, supplier_id=1),
        Source(SourceKind.DYNAMIC, parse_name("x"), (), supplier_id=99),
    ],
)
def test_a_source_is_one_thing_that_exists(conn, source):
    with pytest.raises(psycopg.IntegrityError):
        definitions.create(conn, Definition(parse_name("t"), "SELECT 1", DOWNSTREAM), RESOLVED, [source])
    assert definitions.list_all(conn) == (), "nothing is left behind"
