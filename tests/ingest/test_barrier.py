"""The barrier: which tables show a token, at which snapshot; versions are inserted, and nobody needs Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta

import pytest

import lakemill
from lakemill.core.batch import Letter, Limits
from lakemill.core.names import parse_name
from lakemill.core.refresh import State
from lakemill.errors import BadArgument, ConsistencyTimeout, TableSuspended, UnknownTable
from lakemill.runtime import barrier
from lakemill.runtime.barrier import Visibility
from lakemill.store import definitions, versions
from tests.conftest import MakeLake
from tests.ingest.requests import marks, put, take
from tests.service.test_scheduler import Service

SOON = timedelta(milliseconds=1)
TTL = timedelta(minutes=1)


class Gate(Service):
    """Tables r and s take requests; a reads r, b reads a and s."""

    def __init__(self, lake: lakemill.Lake) -> None:
        super().__init__(lake)
        self.ids = {name: lake.table(name).describe().id for name in "rs"}
        for table_id in self.ids.values():
            take(lake.conn, table_id)
        self.create("a", "SELECT k, count(*) AS n FROM r GROUP BY k")
        self.create("b", "SELECT a.n FROM a JOIN s ON a.k = s.k")
        for name in "ab":
            self.publish(self.dynamic(name), lake.snapshot().id)

    def dynamic(self, name: str) -> int:
        return definitions.get(self.lake.conn, parse_name(name)).id

    def send(self, name: str) -> int:
        return put(self.lake.conn, self.ids[name], [["{}"]])[0]

    def pass_(self, name: str, *, letters: int = 0) -> int:
        """Its next batch, which makes a snapshot; the id of that."""
        held = self.lake.consumer.claim(self.ids[name], "me", TTL)
        assert held is not None
        batch = self.lake.consumer.read(held, Limits())
        assert batch is not None
        self.lake.sql(f"INSERT INTO {name} (k) VALUES (1)")
        snapshot = self.lake.snapshot().id
        dead = [Letter(batch.upto, i, "WRONG_TYPE", "why") for i in range(letters)]
        with self.lake.conn.transaction():
            self.lake.consumer.ack(self.lake.conn, held, batch, snapshot, 1, dead)
        return snapshot

    def wait(self, token: int, *names: str, timeout: timedelta = SOON) -> int:
        return barrier.wait(lambda: nullcontext(self.lake), token, [parse_name(name) for name in names], timeout).id

    def waits_for(self, token: int, *names: str) -> tuple[str, ...]:
        return barrier.look(self.lake, token, [parse_name(name) for name in names]).waits_for


@pytest.fixture
def gate(make_lake: MakeLake) -> Iterator[Gate]:
    with lakemill.open(make_lake().settings) as lake:
        yield Gate(lake)


def test_base_tables_show_a_token_when_nothing_below_it_waits(gate: Gate) -> None:
    first, second, third = gate.send("r"), gate.send("s"), gate.send("r")
    assert gate.waits_for(first, "r", "s") == ("main.r",)
    assert gate.waits_for(second, "r", "s") == ("main.r", "main.s")
    assert gate.wait(first, "s") == gate.lake.snapshot().id  # nothing of it is there
    with pytest.raises(ConsistencyTimeout) as told:
        gate.wait(second, "s")
    assert told.value.watermark == 0
    snapshot = gate.pass_("r")
    assert gate.wait(third, "r") == snapshot
    assert gate.waits_for(third, "r", "s") == ("main.s",)
    assert marks(gate.lake.conn)[0] == 1
    snapshot = gate.pass_("s")
    assert gate.wait(third, "r", "s") == snapshot
    assert marks(gate.lake.conn)[0] == 3


def test_what_was_never_given_out_and_what_is_not_there(gate: Gate) -> None:
    with pytest.raises(BadArgument):
        gate.wait(1, "r")
    gate.send("r")
    with pytest.raises(UnknownTable):
        gate.wait(1, "nothing")
    with pytest.raises(BadArgument):
        barrier.status(gate.lake, 2)


def test_a_dynamic_table_shows_it_when_its_data_snapshot_has_come_so_far(gate: Gate) -> None:
    token = gate.send("r")
    other = gate.send("s")
    assert gate.waits_for(token, "a", "b") == ("main.a", "main.b")
    of_r = gate.pass_("r")
    assert gate.waits_for(token, "r", "a", "b") == ("main.a", "main.b")
    gate.publish(gate.dynamic("a"), of_r)
    assert gate.waits_for(token, "a") == ()
    assert gate.waits_for(token, "b") == ("main.b",)
    gate.publish(gate.dynamic("b"), of_r)
    assert gate.waits_for(token, "b") == ()
    assert gate.waits_for(other, "a") == ()  # it reads nothing of s
    assert gate.waits_for(other, "b") == ("main.b",)
    of_s = gate.pass_("s")
    assert gate.waits_for(other, "b") == ("main.b",)
    gate.publish(gate.dynamic("b"), of_s)
    assert gate.wait(other, "a", "b", "r", "s") >= of_s


def test_later_batches_are_not_waited_for(gate: Gate) -> None:
    token = gate.send("r")
    gate.publish(gate.dynamic("a"), gate.pass_("r"))
    later = gate.send("r")
    gate.pass_("r")
    assert gate.waits_for(token, "a") == ()
    assert gate.waits_for(later, "a") == ("main.a",)


@pytest.mark.parametrize("suspended", ["a", "b"])
def test_a_suspended_table_on_the_way_is_told_at_once(gate: Gate, suspended: str) -> None:
    token = gate.send("r")
    definitions.set_state(gate.lake.conn, [gate.dynamic(suspended)], State.SUSPENDED, "why")
    begun = time.monotonic()
    with pytest.raises(TableSuspended, match=f"main.{suspended}"):
        gate.wait(token, "b", timeout=timedelta(minutes=1))
    assert time.monotonic() - begun < 30
    of_r = gate.pass_("r")
    gate.publish(gate.dynamic("a"), of_r)
    gate.publish(gate.dynamic("b"), of_r)
    assert gate.wait(token, "b") == gate.lake.snapshot().id  # what it has seen, it shows


def test_several_wait_until_it_is_there_and_one_listens(gate: Gate) -> None:
    token = gate.send("r")
    found: list[int] = []

    def wait() -> None:
        with lakemill.open(gate.lake.settings) as own:
            found.append(barrier.wait(lambda: nullcontext(own), token, [parse_name("a")], timedelta(seconds=60)).id)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    of_r = gate.pass_("r")
    assert [thread.name for thread in threading.enumerate()].count("lakemill-ears") == 1
    assert found == []
    gate.publish(gate.dynamic("a"), of_r)
    gate.lake.sql("INSERT INTO s VALUES (5)")  # any commit is told
    for thread in threads:
        thread.join(30)
    assert len(found) == 3
    assert min(found) >= of_r
    end = time.monotonic() + 10
    while "lakemill-ears" in [thread.name for thread in threading.enumerate()]:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_tables_that_nothing_happened_to_are_raised(gate: Gate) -> None:
    """The ledger may name a later snapshot than the table's last change: old parts of it are one row."""
    token = gate.send("r")
    of_r = gate.pass_("r")
    gate.publish(gate.dynamic("a"), of_r)
    gate.lake.sql("INSERT INTO s VALUES (7)")
    head = gate.lake.snapshot().id
    gate.lake.conn.execute("UPDATE lakemill.batches SET snapshot_id = %s", (head,))
    assert gate.waits_for(token, "a") == ("main.a",)
    assert gate.wait(token, "a") == head
    frontier = versions.frontier(gate.lake.conn, gate.dynamic("a"))
    assert frontier is not None
    assert frontier.version.b_hi == head


def test_the_status_of_a_token(gate: Gate) -> None:
    first, second = gate.send("r"), gate.send("r")
    assert barrier.status(gate.lake, first).visibility is Visibility.PENDING
    snapshot = gate.pass_("r", letters=2)
    assert barrier.status(gate.lake, second, [gate.ids["r"]]) == barrier.Status(Visibility.PARTLY, snapshot, 2, 2)
    assert barrier.status(gate.lake, first) == barrier.Status(Visibility.VISIBLE, snapshot, 0, 2)
