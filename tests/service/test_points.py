"""The newest consistent point of each part of the graph: it moves forward, as a whole, and stays readable. No Spark."""

from __future__ import annotations

import json
import random

import pytest

from lakemill.core.names import parse_name
from lakemill.core.position import START
from lakemill.core.statement import Drop
from lakemill.errors import SnapshotGone
from lakemill.runtime import dynamic, halting, upkeep
from lakemill.store import db, definitions, points, versions
from tests.counting import counted
from tests.service.conftest import id_of, version_of
from tests.service.test_scheduler import Service
from tests.service.test_stale import age, snapshots


def kept(service: Service) -> dict[str, tuple[int, int]]:
    """By table: the data snapshot of its point, and where it is read for it."""
    return {name.name: (point.b, commit) for point in points.kept(service.lake.conn) for name, commit in point.tables}


def at(service: Service, name: str, b: int) -> int:
    version = versions.version_at(service.lake.conn, id_of(service, name), b)
    assert version is not None
    return version.commit


def change(service: Service, table: str = "r") -> int:
    service.lake.sql(f"INSERT INTO {table} SELECT * FROM {table} LIMIT 1")
    return service.lake.snapshot().id


@pytest.fixture
def chain(service: Service) -> Service:
    """a ← b, and c for itself; all loaded."""
    service.create("a", "SELECT k FROM r")
    service.create("b", "SELECT k FROM a")
    service.create("c", "SELECT k FROM s")
    service.tick()
    service.work()
    service.tick(1)
    return service


def test_each_part_of_the_graph_has_its_own(chain: Service) -> None:
    found = kept(chain)
    assert found["a"][0] == found["b"][0]
    assert [[name.name for name, _ in one.tables] for one in points.kept(chain.lake.conn)] == [["a", "b"], ["c"]]
    for name, (b, commit) in found.items():
        assert commit == at(chain, name, b)


def test_it_waits_for_the_last_and_moves_as_a_whole(chain: Service) -> None:
    before = kept(chain)
    b = change(chain)
    chain.publish(id_of(chain, "a"), b)
    chain.tick(1)
    assert kept(chain) == before, "b is not there yet"
    later = change(chain)
    chain.publish(id_of(chain, "a"), later)
    chain.publish(id_of(chain, "b"), b)
    chain.tick(1)
    assert kept(chain) == before | {"a": (b, at(chain, "a", b)), "b": (b, at(chain, "b", b))}
    assert at(chain, "a", b) < version_of(chain, "a").commit, "it is not the newest version of a"


def test_a_look_that_moves_nothing_asks_nothing(chain: Service) -> None:
    chain.tick(1)
    with counted(chain.lake.conn) as sent:
        chain.tick(1)
    assert sent.count == 1


def test_a_table_that_joins_moves_it_when_it_is_loaded(chain: Service) -> None:
    before = kept(chain)
    chain.create("joins", "SELECT a.k FROM a, c WHERE a.k = c.k")
    chain.tick(1)
    assert kept(chain) == before
    chain.work()
    change(chain)
    change(chain, "s")
    chain.tick()
    chain.work()
    chain.tick(1)
    (one,) = points.kept(chain.lake.conn)
    assert {name.name for name, _ in one.tables} == {"a", "b", "c", "joins"}
    dynamic.drop(chain.lake, Drop(START, parse_name("joins")))
    chain.tick(1)
    assert kept(chain).keys() == {"a", "b", "c"}


def test_a_table_in_somebodys_hands_is_waited_for(chain: Service) -> None:
    """Whoever drops or renames holds the table, and may ask for the lock of pins next: nobody waits in a circle."""
    before, b = kept(chain), change(chain)
    chain.publish(id_of(chain, "a"), b)
    chain.publish(id_of(chain, "b"), b)
    with db.connect(chain.lake.dsn) as other, other.transaction():
        definitions.require_definition(other, id_of(chain, "b"), 1)
        chain.tick(1)
        assert kept(chain) == before
    chain.tick(1)
    assert kept(chain)["b"][0] == b


def test_expiry_keeps_what_it_is_made_of(chain: Service) -> None:
    b = change(chain)
    chain.publish(id_of(chain, "a"), b)
    chain.publish(id_of(chain, "b"), b)
    chain.tick(1)
    for _ in range(3):
        chain.publish(id_of(chain, "a"), change(chain))  # b stays behind
    chain.tick(1)
    found = kept(chain)
    assert found["a"][0] == found["b"][0] == b
    age(chain)
    chain.publish(id_of(chain, "a"), change(chain))
    chain.lake.conn.execute("UPDATE ducklake_snapshot SET snapshot_time = now() WHERE snapshot_id > %s", (b,))
    gone = set(upkeep.expire(chain.lake).snapshots)
    assert gone, "older ones went"
    assert not gone & {b, found["a"][1], found["b"][1]}
    assert kept(chain) | {"c": found["c"]} == found
    for snapshot in (b, found["a"][1], found["b"][1]):
        assert chain.lake.snapshot(snapshot).id == snapshot


def test_a_part_that_is_left_behind_has_none(chain: Service) -> None:
    """One table that rests for longer than the retention must not hold the lake for ever."""
    halting.suspend(chain.lake, [parse_name("b")])
    held = kept(chain)["b"]
    change(chain)
    age(chain)
    chain.publish(id_of(chain, "a"), change(chain))
    upkeep.expire(chain.lake)
    assert held[0] not in snapshots(chain)
    assert kept(chain).keys() == {"c"}
    chain.tick(1)
    assert kept(chain).keys() == {"c"}, "it is not taken up again before it is loaded anew"
    with pytest.raises(SnapshotGone):
        chain.lake.snapshot(held[0])


def test_it_is_what_duckdb_computes_whatever_was_refreshed_when(service: Service) -> None:
    """A random course: tables come to snapshots that their suppliers hold, each in its own time, while r is written."""
    queries = {"a": "SELECT k FROM r WHERE id > 2", "b": "SELECT DISTINCT k FROM a", "c": "SELECT k + 1 AS k FROM a"}
    for name, query in queries.items():
        service.create(name, query)
    rng, seen = random.Random(5), set()
    for step in range(60):
        service.lake.sql(f"INSERT INTO r VALUES ({step}, {rng.randrange(9)})")
        name = rng.choice("abbcc")
        frontiers = {one: versions.frontier(service.lake.conn, id_of(service, one)) for one in ("a", name)}
        supplier, own = frontiers["a"], frontiers[name]
        b = service.lake.snapshot().id if name == "a" else supplier.version.b_hi if supplier else 0
        if b > (own.version.b_hi if own else 0):
            truth = _computed(queries, name, b)
            stand_in = f"stand_in_{id_of(service, name)}"
            service.lake.sql(f"CREATE TABLE IF NOT EXISTS {stand_in} (x INT)")
            service.lake.sql(f"BEGIN; DELETE FROM {stand_in}; INSERT INTO {stand_in} {truth}; COMMIT")
            service.publish(id_of(service, name), b)
        service.tick(1)
        for point in points.kept(service.lake.conn):
            assert {one.name for one, _ in point.tables} == queries.keys()
            seen.add(point.b)
            for one, commit in point.tables:
                read = f"FROM stand_in_{id_of(service, one.name)} AT (VERSION => {commit})"
                found, truth = (
                    service.lake.sql(each).fetchall() for each in (read, _computed(queries, one.name, point.b))
                )
                assert sorted(found) == sorted(truth), (step, one, point)
    assert len(seen) > 2, "it moved"


def _computed(queries: dict[str, str], name: str, b: int) -> str:
    base = f"r AS (FROM lake.main.r AT (VERSION => {b}))"
    views = ", ".join([base, *(f"{each} AS ({query})" for each, query in queries.items())])
    return f"(WITH {views} SELECT k FROM {name})"


def test_whoever_asks_has_the_newest_without_a_service(service: Service) -> None:
    service.create("a", "SELECT k FROM r")
    service.publish(id_of(service, "a"), service.lake.snapshot().id)
    change(service, "s")
    (one,) = service.lake.points()
    assert one.b == service.lake.snapshot().id, "nothing happened to it"
    row = service.lake.conn.execute("SELECT to_json(p) FROM lakemill.dynamic_table_points p").fetchone()
    assert row is not None
    told = row[0] if isinstance(row[0], dict) else json.loads(row[0])
    assert (told["table_name"], told["data_snapshot"], told["commit_snapshot"]) == ("a", one.b, one.tables[0][1])
