"""Looks of the scheduler on a real lake that stock DuckDB writes: what becomes due, and what does not. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

import lakemill
from lakemill.core.ddl import parse_definition
from lakemill.core.lag import Version, lag
from lakemill.core.names import parse_name
from lakemill.runtime import dynamic, halting, show
from lakemill.runtime.scheduler import Scheduler, Ticked
from lakemill.runtime.standings import Looks
from lakemill.store import claims, definitions, versions, work
from lakemill.store.versions import SourceRead
from lakemill.store.work import Kind
from tests.conftest import MakeLake
from tests.counting import counted

LONG = timedelta(minutes=1)


class Service:
    """A lake, and its scheduler at moments that the test chooses."""

    def __init__(self, lake: lakemill.Lake) -> None:
        self.lake, self.scheduler, self.looks = lake, Scheduler(lake.settings), Looks(lake)
        self.now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=400)
        lake.sql("CREATE TABLE r AS SELECT i AS id, i % 3 AS k FROM range(9) t(i)")
        lake.sql("CREATE TABLE s AS SELECT 1 AS k")

    def create(self, name: str, query: str, lag: str = "'1 minute'", options: str = "") -> None:
        text = f"CREATE DYNAMIC TABLE {name} TARGET_LAG = {lag} INITIALIZE = ON_SCHEDULE {options} AS {query}"
        dynamic.create(self.lake, parse_definition(text))

    def tick(self, later: float = 64) -> Ticked:
        self.now += timedelta(seconds=later)
        return self.scheduler.tick(self.lake, self.looks.look(), self.now)

    def due(self, later: float = 64) -> list[str]:
        return [str(run.name).removeprefix("main.") for one in self.tick(later).rounds for run in one.runs]

    def work(self) -> list[str]:
        """Take and end all work, as if it had been done at its snapshot."""
        did = []
        while (found := work.take(self.lake.conn, "test", (Kind.REFRESH,), LONG)) is not None:
            assert found.dynamic_id is not None
            assert found.b is not None
            self.publish(found.dynamic_id, found.b)
            did.append(str(definitions.by_id(self.lake.conn, found.dynamic_id).name.name))
            work.done(self.lake.conn, "test", [found.id])
        return did

    def publish(self, dynamic_id: int, b: int) -> None:
        """A version at ``b``, in a table of the lake that stands for the dynamic table's."""
        table = definitions.by_id(self.lake.conn, dynamic_id)
        frontier = versions.frontier(self.lake.conn, dynamic_id)
        stand_in = f"stand_in_{dynamic_id}"
        self.lake.sql(f"CREATE TABLE IF NOT EXISTS {stand_in} (x INT)")
        own, snapshot = self.lake.table(stand_in).describe(), self.lake.snapshot(b)
        reads = [
            SourceRead(source.table_id, 1, b)
            for source in definitions.sources(self.lake.conn, table)
            if source.table_id is not None
        ]
        for supplier in (one.supplier_id for one in definitions.sources(self.lake.conn, table)):
            if supplier is not None and (held := versions.version_at(self.lake.conn, supplier, b)) is not None:
                reads.append(SourceRead(held.table_id, 1, held.commit))
        claim = claims.claim(self.lake.conn, dynamic_id, "test", LONG)
        assert claim is not None
        claims.release(self.lake.conn, claim)
        head = self.lake.snapshot().id
        version = Version(head, b, b, table.definition_version, own.id)
        expected = frontier.version_id if frontier else None
        versions.move_frontier(self.lake.conn, dynamic_id, version, snapshot.time, reads, expected)


@pytest.fixture
def service(make_lake: MakeLake) -> Iterator[Service]:
    with lakemill.open(make_lake().settings) as lake:
        yield Service(lake)


def test_what_was_never_loaded_is_due_once(service: Service) -> None:
    service.create("a", "SELECT k, count(*) AS n FROM r GROUP BY k")
    service.create("b", "SELECT count(*) AS n FROM a")
    assert service.due() == ["a", "b"]
    assert service.due() == [], "its work is there"
    assert service.work() == ["a", "b"]
    assert service.due() == [], "nothing changed"


def test_a_commit_to_a_base_makes_those_due_that_reach_it(service: Service) -> None:
    service.create("a", "SELECT k FROM r")
    service.create("b", "SELECT k FROM a")
    service.create("c", "SELECT k FROM s")
    service.tick()
    service.work()
    service.lake.sql("INSERT INTO r VALUES (100, 1)")
    assert service.due() == ["a", "b"]
    service.work()
    service.lake.sql("CREATE TABLE unrelated AS SELECT 1 AS x")
    assert service.due() == []
    service.lake.sql("DELETE FROM s")
    assert service.due() == ["c"]


def test_consumers_come_after_their_suppliers(service: Service) -> None:
    service.create("a", "SELECT k FROM r", "DOWNSTREAM")
    service.create("b", "SELECT k FROM a")
    service.tick()
    assert service.work() == ["a", "b"]
    service.lake.sql("INSERT INTO r VALUES (100, 1)")
    assert service.due() == ["a", "b"], "b pulls a"
    first = work.take(service.lake.conn, "w1", (Kind.REFRESH,), LONG)
    assert first is not None
    assert work.take(service.lake.conn, "w2", (Kind.REFRESH,), LONG) is None, "b waits for a"


def test_a_foreign_write_or_a_new_table_of_the_name_is_noticed(service: Service) -> None:
    service.create("a", "SELECT k FROM r")
    service.create("b", "SELECT k FROM s")
    service.tick()
    service.work()
    own = definitions.get(service.lake.conn, parse_name("a")).id
    service.lake.sql(f"INSERT INTO stand_in_{own} VALUES (1)")
    assert service.due() == ["a"]
    service.work()
    service.lake.sql("ALTER TABLE s RENAME TO was_s")
    service.lake.sql("CREATE TABLE s AS SELECT 2 AS k")
    assert service.due() == ["b"]


def test_suspended_tables_rest(service: Service) -> None:
    service.create("a", "SELECT k FROM r")
    service.create("b", "SELECT k FROM a")
    service.create("off", "SELECT k FROM r", options="SCHEDULER = DISABLE")
    service.tick()
    service.work()
    halting.suspend(service.lake, [parse_name("a")])
    service.lake.sql("INSERT INTO r VALUES (100, 1)")
    assert service.due() == []
    halting.resume(service.lake, [parse_name("a")])
    assert service.due() == ["a", "b"]


def test_an_altered_definition_is_due(service: Service) -> None:
    service.create("a", "SELECT k FROM r")
    service.tick()
    service.work()
    text = "CREATE OR REPLACE DYNAMIC TABLE a TARGET_LAG = '1 minute' INITIALIZE = ON_SCHEDULE AS SELECT id AS k FROM r"
    dynamic.create(service.lake, parse_definition(text))
    assert service.due() == ["a"]


def test_idle_tables_hold_no_snapshots_back(service: Service) -> None:
    service.create("a", "SELECT k FROM r")
    service.create("b", "SELECT k FROM s")
    service.tick()
    service.work()
    for number in range(3):
        service.lake.sql(f"INSERT INTO s VALUES ({number})")
    service.tick()
    head = service.lake.snapshot().id
    found = {str(one.name): one.version for one in work.known(service.lake.conn)}
    assert found["main.a"] is not None
    assert found["main.a"].b_hi == head, "nothing that it reads changed"
    assert found["main.b"] is not None
    assert found["main.b"].b_hi < head
    frontier = versions.frontier(service.lake.conn, definitions.get(service.lake.conn, parse_name("a")).id)
    assert frontier is not None
    assert [read.commit for read in frontier.sources] == [head]


def test_two_schedulers_add_nothing_twice(service: Service) -> None:
    service.create("a", "SELECT k FROM r")
    look = service.looks.look()
    first = service.scheduler.tick(service.lake, look, service.now)
    second = Scheduler(service.lake.settings).tick(service.lake, look, service.now)
    assert (first.added > 0, second.added) == (True, 0)


def test_a_look_reads_what_came_since_the_last(service: Service) -> None:
    service.create("a", "SELECT k FROM r")
    service.tick()
    service.work()
    service.lake.sql("INSERT INTO r VALUES (100, 1)")
    first = service.looks.look()
    fresh = Looks(service.lake).look()
    assert {name: replace(one, newest=None) for name, one in first.standings.items()} == {
        name: replace(one, newest=None) for name, one in fresh.standings.items()
    }
    (standing,) = first.standings.values()
    assert standing.change is not None
    assert standing.change.snapshot == service.lake.snapshot().id


@pytest.mark.parametrize("tables", [1, 40])
def test_an_idle_look_is_one_query_whatever_the_number_of_tables(service: Service, tables: int) -> None:
    """Tables of each kind that asks for more: suppliers, one that was never loaded, one that is halted and behind."""
    for number in range(tables):
        service.create(f"a{number}", "SELECT k FROM r")
        service.create(f"b{number}", f"SELECT k FROM a{number}")
    service.create("never", "SELECT k FROM s", options="SCHEDULER = DISABLE")
    service.create("halted", "SELECT k FROM s")
    service.tick()
    service.work()
    halting.suspend(service.lake, [parse_name("halted")])
    service.lake.conn.execute("UPDATE lakemill.dynamic_tables SET stale_since = now() WHERE table_name = 'halted'")
    service.lake.sql("DROP TABLE s")
    service.tick()
    service.tick(1)  # the kept points follow what that one raised
    with counted(service.lake.conn) as idle:
        assert service.tick(1).added == 0
    assert idle.count == 1
    service.lake.sql("CREATE TABLE unrelated AS SELECT 1 AS x")
    with counted(service.lake.conn) as committed:
        assert service.tick(1).added == 0
    assert committed.count == 2, "what was committed since is asked for, too"


def test_a_list_is_as_many_queries_for_many_tables_as_for_one(service: Service) -> None:
    def create(*names: str) -> None:
        for name in names:
            service.create(name, "SELECT k FROM r")
            service.create(f"{name}_reads", f"SELECT k FROM {name}")
        service.tick()
        service.work()
        service.tick(1)

    def listed() -> int:
        with counted(service.lake.conn) as sent:
            found = show.show(service.lake)
        assert all(one.lag == timedelta(0) and one.frontier is not None and one.point is not None for one in found)
        return sent.count

    create("a")
    one = listed()
    create(*(f"a{number}" for number in range(15)))
    assert listed() == one <= 15
    with counted(service.lake.conn) as sent:
        assert [found.name.name for found in show.show(service.lake, "a1")] == ["a1"]
    assert sent.count == one


def test_a_list_and_the_scheduler_say_the_same(service: Service) -> None:
    """Also of a write into the table itself, of a name that is another's, and of a supplier that changes with it."""
    service.create("a", "SELECT k FROM r")
    service.create("b", "SELECT k FROM a")
    service.create("c", "SELECT k FROM s")
    service.tick()
    service.work()
    service.lake.sql(f"INSERT INTO stand_in_{definitions.get(service.lake.conn, parse_name('a')).id} VALUES (1)")
    service.lake.sql("ALTER TABLE s RENAME TO was_s")
    now, look = datetime.now(UTC) + LONG, Looks(service.lake).look()
    found = {one.name: one.lag for one in show.show(service.lake, now=now)}
    assert found == {name: lag(standing, now) for name, standing in look.standings.items()}
    assert {name.name for name, behind in found.items() if behind} == {"a", "c"}


def test_upkeep_is_due_after_its_interval_and_comes_last(service: Service) -> None:
    for number in range(20):
        service.lake.sql(f"INSERT INTO r VALUES ({number}, 0)")
    service.create("a", "SELECT k FROM s")
    service.tick(3601)
    service.tick(3601)
    due = [work.take(service.lake.conn, "w", (Kind.REFRESH, Kind.UPKEEP), LONG) for _ in range(6)]
    assert [one and one.subject for one in due][1:] == ["cleanup", "orphans", "compact main.r", None, None]
    assert due[0] is not None
    assert due[0].kind is Kind.REFRESH
    assert service.tick(10).added == 0


def test_the_share_of_time_within_target(service: Service) -> None:
    service.create("a", "SELECT k FROM r", "'10 minutes'")
    described = show.describe(service.lake, parse_name("a"))
    assert set(described.within.values()) == {None}, "it was never loaded"
    service.tick()
    service.work()
    loaded = service.lake.conn.execute("SELECT max(added_at) FROM lakemill.versions").fetchone()
    assert loaded is not None
    assert set(show.describe(service.lake, parse_name("a"), loaded[0] + timedelta(hours=5)).within.values()) == {1.0}
    service.lake.sql("INSERT INTO r VALUES (100, 1)")
    changed = service.lake.snapshot().time
    within = show.describe(service.lake, parse_name("a"), changed + timedelta(minutes=40)).within
    assert within[timedelta(hours=1)] == pytest.approx(10 / 40, abs=0.01)
    assert within[timedelta(days=1)] == pytest.approx(10 / 40, abs=0.01)
    later = show.describe(service.lake, parse_name("a"), changed + timedelta(hours=2)).within
    assert later[timedelta(hours=1)] == 0


def test_a_table_that_nobody_refreshes_does_not_fill_the_memory(service: Service) -> None:
    """Its lag goes on from its first change; what came after that is remembered for others only."""
    service.create("halted", "SELECT k FROM r")
    service.create("going", "SELECT k FROM r")
    service.tick()
    service.work()
    halting.suspend(service.lake, [parse_name("halted")])
    name = parse_name("halted")
    firsts = []
    for number in range(6):
        service.lake.sql(f"INSERT INTO r VALUES ({number}, 1)")
        service.tick()
        assert service.work() == ["going"]
        firsts.append(service.looks.look().standings[name].change)
    assert firsts[0] is not None
    assert set(firsts) == {firsts[0]}
    remembered = max(map(len, service.looks._index._by_table.values()))
    assert remembered <= 2, "the last, and what came since"
    halting.resume(service.lake, [name])
    standing = service.looks.look().standings[name]
    assert (standing.change, standing.newest) != (firsts[0], firsts[0])
    assert standing.change == firsts[0]
    assert "halted" in service.due()
