"""What only the bus in PostgreSQL has, its rows and its locks; what every bus does is in ``tests/bus``."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from lakemill.core.batch import Batch, Claim, Letter, Limits
from lakemill.errors import ClaimLost
from lakemill.runtime.buses import consuming
from lakemill.store import consumer, db, watermarks
from lakemill.store.consumer import PostgresConsumer
from tests.ingest.requests import marks, put, take

LEASE = timedelta(minutes=1)
NOW = timedelta(0)


@pytest.fixture
def bus(migrated: str) -> Iterator[PostgresConsumer]:
    with db.connect(migrated) as conn:
        for table_id in (1, 2, 3):
            take(conn, table_id, ["k"] if table_id == 3 else [])
        yield PostgresConsumer(conn, migrated)
        conn.execute("TRUNCATE lakemill.ingest_tables CASCADE")
        conn.execute("UPDATE lakemill.bus_head SET token = 0, watermark = 0")


def taken(bus: PostgresConsumer, table_id: int, limits: Limits | None = None) -> tuple[Claim, Batch]:
    held = bus.claim(table_id, "me", LEASE)
    assert held is not None
    batch = bus.read(held, limits or Limits())
    assert batch is not None
    return held, batch


def ack(bus: PostgresConsumer, held: Claim, batch: Batch, snapshot: int = 7) -> None:
    with bus.conn.transaction():
        bus.require(bus.conn, held)
        bus.ack(bus.conn, held, batch, snapshot, batch.records)


def test_a_batch_leaves_a_row_in_the_ledger_and_its_letters(bus: PostgresConsumer) -> None:
    put(bus.conn, 1, [["a", "it's 100 %"]])
    held, batch = taken(bus, 1)
    with bus.conn.transaction():
        cursor = psycopg.ClientCursor(bus.conn)  # as a publish has it
        bus.require(cursor, held)
        bus.ack(cursor, held, batch, 7, 1, [Letter(1, 1, "WRONG_TYPE", "it's 100 %", "k", "it's 100 %")])
    ledger = bus.conn.execute("SELECT first, token, snapshot_id, records, letters FROM lakemill.batches").fetchall()
    assert ledger == [(1, 1, 7, 1, 1)]
    letters = bus.conn.execute("SELECT token, position, body, reason, place FROM lakemill.dead_letters").fetchall()
    assert letters == [(1, 1, "it's 100 %", "it's 100 %", "k")]
    assert watermarks.letters_of(bus.conn, 1) == 1
    assert watermarks.letters_of(bus.conn, 1, [2]) == 0
    assert marks(bus.conn) == (1, 1)


def test_why_a_claim_is_lost_is_told(bus: PostgresConsumer) -> None:
    held = bus.claim(1, "me", NOW)
    assert held is not None
    with pytest.raises(ClaimLost, match="run out"):
        bus.require(bus.conn, held)
    bus.claim(1, "you", LEASE)
    with pytest.raises(ClaimLost, match="passed to you"):
        bus.require(bus.conn, held)
    bus.conn.execute("DELETE FROM lakemill.ingest_tables WHERE table_id = 1")
    with pytest.raises(ClaimLost, match="takes no requests"):
        bus.require(bus.conn, held)


def test_a_publish_and_somebody_who_accepts_wait_for_each_other_and_never_lock_up(bus: PostgresConsumer) -> None:
    """The one holds the head and asks for the table's row, the other holds that and asks for the head."""
    put(bus.conn, 1, [["a"]])
    held, batch = taken(bus, 1)
    with db.connect(bus.dsn) as accepting:
        accepting.execute("BEGIN")
        accepting.execute("UPDATE lakemill.bus_head SET token = token + 1")
        thread = threading.Thread(target=_pass_by, args=(bus.dsn, held, batch))
        thread.start()
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        while bus.conn.execute(waiting).fetchone() == (0,):
            pass
        accepting.execute(
            "INSERT INTO lakemill.bus (token, table_id, columns, records, bytes, body) VALUES (2, 1, '', 1, 1, 'b')"
        )
        accepting.execute("COMMIT")
        thread.join(20)
    assert marks(bus.conn) == (1, 2)  # what was accepted while the publish waited is seen


def _pass_by(dsn: str, held: Claim, batch: Batch) -> None:
    with consuming(dsn) as bus:
        bus.pass_by(held, batch)


def test_old_requests_and_old_ledgers_go(bus: PostgresConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "REMOVED", 1)
    put(bus.conn, 1, [["a"], ["b"], ["c"]])
    put(bus.conn, 2, [["x"]])
    for snapshot in (5, 6):
        ack(bus, *taken(bus, 1, Limits(requests=1)), snapshot)
    bus.tidy(timedelta(days=1))
    assert [row[0] for row in bus.conn.execute("SELECT token FROM lakemill.bus ORDER BY 1").fetchall()] == [3, 4]
    assert watermarks.shown_by(bus.conn, 1) == {1: 5}
    for _ in range(2):
        bus.tidy(NOW)
        assert watermarks.shown_by(bus.conn, 1) == {1: 6}  # later than it was, never earlier
        assert watermarks.shown_by(bus.conn, 0) == {}


@pytest.mark.parametrize("seed", range(3))
def test_how_far_tables_are_after_random_batches(bus: PostgresConsumer, seed: int) -> None:
    chance = random.Random(seed)
    sent: dict[int, list[int]] = {1: [], 2: [], 3: []}
    passed: dict[int, list[tuple[int, int]]] = {1: [], 2: [], 3: []}
    for snapshot in range(1, 60):
        table_id = chance.choice([1, 2, 3])
        waiting = {each: sent[each][len(passed[each]) :] for each in sent}
        if not waiting[table_id] or chance.random() < 0.5:
            sent[table_id] += put(bus.conn, table_id, [["r"]] * chance.randrange(1, 4))
        else:
            held, batch = taken(bus, table_id, Limits(requests=chance.randrange(1, 4)))
            ack(bus, held, batch, snapshot)
            passed[table_id] += [(token, snapshot) for token in waiting[table_id] if token <= batch.upto]
        waiting = {each: sent[each][len(passed[each]) :] for each in sent}
        low, head = marks(bus.conn)
        assert low <= min((tokens[0] for tokens in waiting.values() if tokens), default=head + 1) - 1
        for each, tokens in waiting.items():
            assert bus.table_watermark(each) == (tokens[0] - 1 if tokens else head)
        k = chance.randrange(head + 1)
        late = tuple(each for each, tokens in waiting.items() if any(token <= k for token in tokens))
        assert bus.not_passed(k) == late
        shown = {each: max((s for token, s in passed[each] if token <= k), default=None) for each in passed}
        found = watermarks.shown_by(bus.conn, k)
        assert found == {each: at for each, at in shown.items() if at is not None}
    assert bus.table_watermark(99) is None
