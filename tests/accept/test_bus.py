"""The bus under many producers, under kill −9, and with connections that are cut at COMMIT: no gap, nothing twice."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakemill.core.bus import Accepted, Request
from lakemill.errors import LakemillError, OutcomeUnknown
from lakemill.runtime.accept import Acceptor
from lakemill.settings import IngestSettings
from lakemill.store import db
from lakemill.store.bus import QUERIES, PostgresBus
from lakemill.store.migrate import migrate
from tests.accept.producer import request
from tests.conftest import new_database
from tests.wire import Fault, cut_wire

TABLE = 7
ROOT = Path(__file__).parents[2]


@pytest.fixture
def bus_dsn(postgres: str) -> Iterator[str]:
    """A database whose bus has one table."""
    with new_database(postgres) as dsn:
        with db.connect(dsn) as conn:
            migrate(conn)
            conn.execute("INSERT INTO lakemill.ingest_tables (table_id) VALUES (%s)", (TABLE,))
        yield dsn


def producer(dsn: str, name: str, threads: int, requests: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.accept.producer", dsn, str(TABLE), name, str(threads), str(requests)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def lines(dsn: str) -> dict[int, list[Any]]:
    """What lies in the bus: token → payloads."""
    with db.connect(dsn) as conn:
        found = conn.execute("SELECT token, body, records FROM lakemill.bus ORDER BY token").fetchall()
    for _, body, count in found:
        assert len(body.split("\n")) == count
    return {token: [json.loads(line)["p"] for line in body.split("\n")] for token, body, _ in found}


def check(dsn: str, answers: list[tuple[str, int, int]]) -> None:
    """Tokens without a gap, no record twice, and everything that was acknowledged is there under its first token."""
    found = lines(dsn)
    assert list(found) == list(range(1, len(found) + 1))
    every = [(row["k"], row["n"]) for rows in found.values() for row in rows]
    assert len(set(every)) == len(every)
    for key, token, accepted in answers:
        assert [row["k"] for row in found[token]] == [key] * accepted


def test_64_producers_in_four_processes(bus_dsn: str) -> None:
    running = [producer(bus_dsn, f"p{n}", threads=16, requests=12) for n in range(4)]
    answers: list[tuple[str, int, int]] = []
    for one in running:
        out, err = one.communicate(timeout=120)
        assert one.returncode == 0, err
        answers += [tuple(json.loads(line)) for line in out.splitlines()]
    keys = {key for key, _, _ in answers}
    assert len(keys) == 64 * 12
    assert len(answers) > len(keys) * 1.2, "some were repeated"
    check(bus_dsn, answers)
    assert len(lines(bus_dsn)) == len(keys)


def test_kill_9_in_the_middle(bus_dsn: str) -> None:
    answers: list[tuple[str, int, int]] = []
    steady = producer(bus_dsn, "steady", threads=4, requests=0)
    for turn in range(3):
        victim = producer(bus_dsn, f"victim{turn}", threads=8, requests=0)
        assert victim.stdout is not None
        for _ in range(150):
            answers.append(tuple(json.loads(victim.stdout.readline())))
        victim.kill()
        rest = victim.communicate()[0].splitlines()
        answers += [tuple(json.loads(line)) for line in rest if line.endswith("]")]
    steady.kill()
    answers += [tuple(json.loads(line)) for line in steady.communicate()[0].splitlines() if line.endswith("]")]
    check(bus_dsn, answers)
    bus = PostgresBus(lambda: db.connect(bus_dsn))
    key, token, accepted = answers[0]  # a client that lives on asks again elsewhere
    again = bus.publish([request(TABLE, key, int(key.rpartition(".")[2]))])[0]
    assert again == Accepted(token, accepted, repeated=True)
    bus.close()


@pytest.mark.parametrize("fault", ["lose commit", "lose answer", "delay commit"])
def test_a_connection_that_is_cut_at_commit(bus_dsn: str, fault: Fault) -> None:
    with cut_wire(bus_dsn) as wire:
        bus = PostgresBus(lambda: db.connect(wire.dsn))
        (first,) = bus.publish([_plain("a")])
        wire.fault = fault
        second, keyed = bus.publish([_plain("b"), request(TABLE, "k", 0)])  # the first has no key that could tell
        (third,) = bus.publish([_plain("c")])
        bus.close()
    assert [one.token for one in (first, second, keyed, third) if isinstance(one, Accepted)] == [1, 2, 3, 4]
    assert [rows[0]["k"] for rows in lines(bus_dsn).values()] == ["a", "b", "k", "c"]


def test_an_outcome_that_nobody_can_tell(bus_dsn: str) -> None:
    with cut_wire(bus_dsn) as wire:
        bus = PostgresBus(lambda: db.connect(wire.dsn, connect_timeout=2), settle_seconds=0.1)
        bus.publish([_plain("a")])
        wire.fault = "lose answer"
        wire.close()  # nobody gets through any more
        with pytest.raises(OutcomeUnknown, match="COMMIT"):
            bus.publish([_plain("b")])
        bus.close()


def test_a_token_is_not_given_out_before_the_one_below_it_is_decided(bus_dsn: str) -> None:
    """DuckMesh drew it at INSERT: a later one became visible first, and a reader missed its own write."""
    bus, done = PostgresBus(lambda: db.connect(bus_dsn)), threading.Event()
    outcome: list[Any] = []

    def publish() -> None:
        outcome.extend(bus.publish([_plain("b")]))
        done.set()

    with db.connect(bus_dsn) as conn:
        with conn.transaction(force_rollback=True):
            conn.execute(QUERIES["lock_head"].compose())
            conn.execute("UPDATE lakemill.bus_head SET token = token + 1")
            thread = threading.Thread(target=publish)
            thread.start()
            assert not done.wait(0.3)
        thread.join(10)
    assert outcome == [Accepted(1, 1)], "what was rolled back left no gap"
    bus.close()


def test_a_poisonous_request_harms_only_itself(bus_dsn: str) -> None:
    acceptor = Acceptor(PostgresBus(lambda: db.connect(bus_dsn)), IngestSettings())
    poison = Request(TABLE, "v", [b'{"o":"i","p":{"k":"\x00"}}'], [0])  # no text for PostgreSQL
    futures = [acceptor.submit(one) for one in (_plain("a"), poison, _plain("b"))]
    assert futures[0].result(10).token
    assert futures[2].result(10).token
    with pytest.raises(LakemillError):
        futures[1].result(10)
    acceptor.close()
    check(bus_dsn, [])


def test_requests_share_transactions(bus_dsn: str) -> None:
    acceptor = Acceptor(PostgresBus(lambda: db.connect(bus_dsn)), IngestSettings())
    for future in [acceptor.submit(_plain(f"r{n}")) for n in range(200)]:
        future.result(10)
    acceptor.close()
    with db.connect(bus_dsn) as conn:
        (commits,) = conn.execute("SELECT count(*) FROM lakemill.bus_commits").fetchone() or (0,)
    assert commits < 50
    check(bus_dsn, [])


def test_a_server_that_went_away_and_came_back(bus_dsn: str) -> None:
    bus = PostgresBus(lambda: db.connect(bus_dsn))
    bus.publish([_plain("a")])
    with db.connect(bus_dsn) as conn:
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert bus.publish([_plain("b")]) == [Accepted(2, 1)]
    assert bus.backlog().records == 2
    bus.close()


def _plain(name: str) -> Request:
    return Request(TABLE, "v", [f'{{"o":"i","p":{{"k":"{name}","n":0}}}}'.encode()], [0])
