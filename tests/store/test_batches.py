"""Claims, cursors, the ledger and the watermark, on a real PostgreSQL: who may pass what, and how far all are."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from lakemill.errors import ClaimLost
from lakemill.store import batches, db, ingest
from lakemill.store.batches import Batch, Claim, Letter, Limits
from tests.ingest.requests import put, take

TTL = timedelta(minutes=1)
NOW = timedelta(0)


@pytest.fixture
def bus(migrated: str) -> Iterator[db.Connection]:
    with db.connect(migrated) as conn:
        for table_id in (1, 2, 3):
            take(conn, table_id, ["k"] if table_id == 3 else [])
        yield conn
        conn.execute("TRUNCATE lakemill.ingest_tables CASCADE")
        conn.execute("UPDATE lakemill.bus_head SET token = 0, watermark = 0")


def claim(conn: db.Connection, table_id: int, holder: str = "me", ttl: timedelta = TTL) -> Claim:
    held = batches.claim(conn, table_id, holder, ttl)
    assert held is not None
    return held


def read(conn: db.Connection, held: Claim, limits: Limits | None = None) -> Batch:
    batch = batches.read(conn, held, limits or Limits())
    assert batch is not None
    return batch


def ack(
    conn: db.Connection, held: Claim, batch: Batch, snapshot: int | None = 7, letters: list[Letter] | None = None
) -> None:
    with conn.transaction():
        batches.require(conn, held)
        batches.ack(conn, held, batch, snapshot, batch.records, letters or [])


def test_one_holder_at_a_time_and_a_growing_number(bus: db.Connection) -> None:
    first = claim(bus, 3)
    assert (first.fence, first.cursor, first.key, first.policy) == (1, 0, ("k",), "reject")
    assert batches.claim(bus, 3, "you", TTL) is None
    assert batches.held(bus) == ((3, "me"),)
    batches.extend(bus, first, TTL)
    batches.release(bus, first)
    second = claim(bus, 3, "you", NOW)
    assert second.fence == 2
    with pytest.raises(ClaimLost, match="run out"):
        batches.extend(bus, second, TTL)
    with pytest.raises(ClaimLost, match="run out"), bus.transaction():
        batches.require(bus, second)
    assert batches.requeue_expired(bus) == (3,)
    third = claim(bus, 3)
    with pytest.raises(ClaimLost, match="passed to me"), bus.transaction():
        batches.require(bus, second)
    batches.take_away(bus, 3, "me")
    assert claim(bus, 3, "you").fence == third.fence + 1
    assert batches.claim(bus, 99, "me", TTL) is None


def test_what_waits_is_counted_and_cut(bus: db.Connection) -> None:
    assert batches.pending(bus) == ()
    put(bus, 1, [["a"] * 3, ["b" * 100], ["c"]], "v1")
    put(bus, 2, [["x"]], "v1")
    put(bus, 1, [["d"]], "v2")
    one, two = batches.pending(bus)
    assert (one.table_id, one.requests, one.records, one.bytes) == (1, 4, 6, 5 + 100 + 1 + 1)
    assert (two.table_id, two.requests, two.pause, two.held) == (2, 1, 0, 0)
    assert one.age >= two.age > 0
    assert batches.pending(bus, most=2)[0].requests == 2
    held = claim(bus, 1)
    assert batches.pending(bus)[0].held > 50
    whole = read(bus, held)
    assert (whole.first, whole.upto, whole.requests, whole.records, whole.bytes) == (1, 5, 4, 6, 107)
    assert whole.versions == {"v1", "v2"}
    assert len(whole.parts) == 1
    for limits, upto, parts in (
        (Limits(requests=2), 2, 1),
        (Limits(records=3), 1, 1),
        (Limits(records=4), 2, 1),
        (Limits(bytes=5), 1, 1),
        (Limits(bytes=1), 1, 1),  # one at least
        (Limits(bytes=106), 3, 1),
        (Limits(part=50), 5, 2),
    ):
        batch = read(bus, held, limits)
        assert (batch.upto, len(batch.parts)) == (upto, parts), limits
        assert batch.parts[0].after == 0
        assert all(a.upto == b.after for a, b in zip(batch.parts, batch.parts[1:], strict=False))
    assert batches.tokens(bus, 1, 0, 3) == ((1, 3), (2, 1), (3, 1))
    assert batches.records(bus, [(1, 2), (2, 0)]) == {(1, 2): "a", (2, 0): "b" * 100}


def test_executors_read_what_their_parts_hold(bus: db.Connection, migrated: str) -> None:
    import pyarrow as pa

    put(bus, 1, [["a", "ß"], ["b"]])
    put(bus, 2, [["x"]])
    put(bus, 1, [["c"]])
    parts = read(bus, claim(bus, 1), Limits(part=1)).parts
    numbers = pa.RecordBatch.from_pydict({"id": list(range(len(parts)))})
    rows = [row for found in batches.reader(migrated, 1, parts)([numbers]) for row in found.to_pylist()]
    assert rows == [{"token": 1, "body": "a\nß"}, {"token": 2, "body": "b"}, {"token": 4, "body": "c"}]


def test_a_batch_is_passed_once(bus: db.Connection) -> None:
    put(bus, 1, [["a", "b"]])
    held = claim(bus, 1)
    batch = read(bus, held)
    ack(bus, held, batch, 7, [Letter(1, 1, "WRONG_TYPE", "no number", "k", "b")])
    assert bus.execute("SELECT first, token, snapshot_id, letters FROM lakemill.batches").fetchall() == [(1, 1, 7, 1)]
    assert bus.execute("SELECT token, position, body, place FROM lakemill.dead_letters").fetchall() == [
        (1, 1, "b", "k")
    ]
    with pytest.raises(ClaimLost):
        ack(bus, held, batch)
    again = claim(bus, 1)
    assert (again.cursor, batches.read(bus, again, Limits())) == (1, None)
    with pytest.raises(ClaimLost):  # the one that was paused, after another has come and gone
        ack(bus, held, batch)
    assert batches.letters_of(bus, 1) == 1
    assert batches.letters_of(bus, 1, [2]) == 0
    assert batches.watermark(bus) == (1, 1)


def test_a_batch_under_a_key_that_is_no_longer_the_tables_is_not_passed(bus: db.Connection) -> None:
    """It was claimed when nothing waited, the key was changed, and requests were accepted under the new one."""
    held = claim(bus, 3)
    ingest.change(bus, 3, key=["other"])
    put(bus, 3, [["a"]])
    with pytest.raises(ClaimLost, match="another key"):
        ack(bus, held, read(bus, held))
    batches.release(bus, held)
    again = claim(bus, 3)
    assert again.key == ("other",)
    ack(bus, again, read(bus, again))


def test_a_failure_leaves_the_table_alone_for_a_while(bus: db.Connection) -> None:
    put(bus, 1, [["a"]])
    held = claim(bus, 1)
    assert batches.nack(bus, held, "no space", timedelta(hours=1)) == 1
    assert batches.claim(bus, 1, "you", TTL) is None
    found = batches.pending(bus)[0]
    assert (found.attempts, found.pause > 3000, found.held) == (1, True, 0)
    assert batches.watermark(bus) == (0, 1)
    bus.execute("UPDATE lakemill.ingest_tables SET not_before = '-infinity'")
    assert claim(bus, 1).attempts == 1
    assert batches.nack(bus, held, "late", NOW) is None


def test_all_records_of_a_table_that_is_gone(bus: db.Connection) -> None:
    put(bus, 1, [["a", "b"], ["c"]])
    held = claim(bus, 1)
    batches.bury(bus, held, read(bus, held), "TABLE_GONE", "dropped")
    found = bus.execute("SELECT token, position, body, code FROM lakemill.dead_letters ORDER BY 1, 2").fetchall()
    assert found == [(1, 0, "a", "TABLE_GONE"), (1, 1, "b", "TABLE_GONE"), (2, 0, "c", "TABLE_GONE")]
    assert bus.execute("SELECT letters, snapshot_id FROM lakemill.batches").fetchall() == [(3, None)]


def test_a_publish_and_somebody_who_accepts_wait_for_each_other_and_never_lock_up(
    bus: db.Connection, migrated: str
) -> None:
    """The one holds the head and asks for the table's row, the other holds that and asks for the head."""
    put(bus, 1, [["a"]])
    held = claim(bus, 1)
    batch = read(bus, held)
    with db.connect(migrated) as accepting:
        accepting.execute("BEGIN")
        accepting.execute("UPDATE lakemill.bus_head SET token = token + 1")
        thread = threading.Thread(target=_ack, args=(migrated, held, batch))
        thread.start()
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        while bus.execute(waiting).fetchone() == (0,):
            pass
        accepting.execute(
            "INSERT INTO lakemill.bus (token, table_id, columns, records, bytes, body) VALUES (2, 1, '', 1, 1, 'b')"
        )
        accepting.execute("COMMIT")
        thread.join(20)
    assert batches.watermark(bus) == (1, 2)  # what was accepted while the publish waited is seen


def _ack(dsn: str, held: Claim, batch: Batch) -> None:
    with db.connect(dsn) as conn:
        ack(conn, held, batch)


def test_old_requests_and_old_ledgers_go(bus: db.Connection) -> None:
    put(bus, 1, [["a"], ["b"], ["c"]])
    put(bus, 2, [["x"]])
    for snapshot in (5, 6):
        held = claim(bus, 1)
        ack(bus, held, read(bus, held, Limits(requests=1)), snapshot)
    assert batches.remove_passed(bus, most=1) == 1
    assert batches.remove_passed(bus) == 1
    assert [row[0] for row in bus.execute("SELECT token FROM lakemill.bus ORDER BY 1").fetchall()] == [3, 4]
    assert batches.shown_by(bus, 1) == {1: 5}
    assert batches.forget(bus, timedelta(days=1)) == 0
    assert batches.forget(bus, NOW) == 1
    assert batches.shown_by(bus, 1) == {1: 6}  # later than it was, never earlier
    assert batches.shown_by(bus, 0) == {}
    assert batches.forget(bus, NOW) == 0


@pytest.mark.parametrize("seed", range(6))
def test_random_orders_of_everything(bus: db.Connection, seed: int) -> None:
    """Requests, claims, acks, nacks, lost claims and removals, against a model of what was passed, in which order."""
    chance = random.Random(seed)
    sent: dict[int, list[int]] = {1: [], 2: [], 3: []}
    passed: dict[int, list[int]] = {1: [], 2: [], 3: []}
    working: list[tuple[Claim, Batch]] = []
    snapshot = 0
    for _ in range(120):
        table_id = chance.choice([1, 2, 3])
        match chance.choice(["send", "send", "claim", "claim", "ack", "ack", "nack", "lose", "remove"]):
            case "send":
                sent[table_id] += put(bus, table_id, [["r"]] * chance.randrange(1, 4))
            case "claim":
                held = batches.claim(bus, table_id, "h", TTL)
                if held is None:
                    continue
                batch = batches.read(bus, held, Limits(requests=chance.randrange(1, 4)))
                if batch is None:
                    batches.release(bus, held)
                else:
                    working.append((held, batch))
            case "ack" if working:
                held, batch = working.pop(chance.randrange(len(working)))
                snapshot += 1
                try:
                    ack(bus, held, batch, snapshot)
                except ClaimLost:
                    continue
                passed[held.table_id] += [t for t in sent[held.table_id] if held.cursor < t <= batch.upto]
            case "nack" if working:
                held, _ = working.pop(chance.randrange(len(working)))
                batches.nack(bus, held, "why", NOW)
            case "lose" if working:  # somebody was silent for too long, and goes on working all the same
                bus.execute(
                    "UPDATE lakemill.ingest_tables SET expires_at = '-infinity' WHERE table_id = %s", (table_id,)
                )
            case "remove":
                batches.remove_passed(bus)
        for each in sent:
            assert passed[each] == sent[each][: len(passed[each])]
        waiting = [token for each in sent for token in sent[each] if token not in passed[each]]
        low, head = batches.watermark(bus)
        with bus.transaction():
            batches.raise_watermark(bus)
        high = batches.watermark(bus)[0]
        assert low <= high == min(waiting, default=head + 1) - 1
        k = chance.randrange(head + 1)
        assert batches.not_passed(bus, k) == tuple(
            e for e in sent if any(t <= k for t in sent[e] if t not in passed[e])
        )


def test_the_cursor_of_a_publish_can_do_it(bus: db.Connection) -> None:
    put(bus, 1, [["it's 100 %"]])
    held = claim(bus, 1)
    batch = read(bus, held)
    with bus.transaction():
        cursor = psycopg.ClientCursor(bus)
        batches.require(cursor, held)
        batches.ack(cursor, held, batch, 9, 0, [Letter(1, 0, "WRONG_TYPE", "it's 100 %", "k", "it's 100 %")])
    assert bus.execute("SELECT reason FROM lakemill.dead_letters").fetchall() == [("it's 100 %",)]
