"""What every bus keeps to, seen from outside: publish, claim, read, ack, nack, extend, requeue_expired."""

from __future__ import annotations

import random
from datetime import timedelta

import pyarrow as pa
import pytest

from lakemill.core.batch import Batch, Claim, Letter, Limits
from lakemill.core.bus import Accepted, Request
from lakemill.errors import ClaimLost, DefinitionChanged, IdempotencyConflict, NoIngestTable
from tests.bus.conftest import KEYED, OTHER, PLAIN, Line

LEASE = timedelta(minutes=1)
NOW = timedelta(0)


def claim(line: Line, table_id: int = PLAIN, holder: str = "me", lease: timedelta = LEASE) -> Claim:
    held = line.consumer.claim(table_id, holder, lease)
    assert held is not None
    return held


def read(line: Line, held: Claim, limits: Limits | None = None) -> Batch:
    batch = line.consumer.read(held, limits or Limits())
    assert batch is not None
    return batch


def ack(line: Line, held: Claim, batch: Batch, snapshot: int = 7, letters: tuple[Letter, ...] = ()) -> None:
    with line.transaction() as transaction:
        line.consumer.require(transaction, held)
        line.consumer.ack(transaction, held, batch, snapshot, batch.records, letters)


def watermark(line: Line) -> int:
    return line.bus.head().watermark


# ---------------------------------------------------------------- publishing
def test_tokens_have_no_gap_and_a_repetition_gets_the_first(line: Line) -> None:
    def asked(key: str, *lines: bytes, digest: bytes = b"d" * 32, table_id: int = PLAIN) -> Request:
        return Request(table_id, "v1", lines, range(len(lines)), key=key, digest=digest)

    first, other = line.bus.publish([asked("a", b"1", b"2"), asked("a", b"1", table_id=OTHER)])
    assert (first, other) == (Accepted(1, 2), Accepted(2, 1)), "a key is of a table"
    again, new, conflict = line.bus.publish(
        [asked("a", b"1", b"2"), asked("b", b"3"), asked("a", b"4", digest=b"e" * 32)]
    )
    assert again == Accepted(1, 2, repeated=True)
    assert new == Accepted(3, 1)
    assert isinstance(conflict, IdempotencyConflict)
    assert line.bus.head().token == 3
    assert (line.bus.backlog().requests, line.bus.backlog().records) == (3, 4)


def test_a_record_that_was_there_is_a_duplicate(line: Line) -> None:
    def asked(*keys: str) -> Request:
        lines = [f'{{"o":"i","p":{{"k":"{key}"}}}}'.encode() for key in keys]
        numbered = dict(enumerate(keys))
        return Request(PLAIN, "v1", lines, range(len(lines)), numbered, dict.fromkeys(numbered, b"d"))

    line.bus.publish([asked("a", "b")])
    (partly,) = line.bus.publish([asked("b", "c", "c")])
    assert partly == Accepted(2, 1, duplicate=2, originals=(1,))
    (whole,) = line.bus.publish([asked("a", "c")])
    assert whole == Accepted(2, 0, duplicate=2, originals=(1, 2))
    held = claim(line)
    assert line.consumer.tokens(held, read(line, held)) == ((1, 2), (2, 1))


def test_who_is_refused_harms_nobody(line: Line) -> None:
    outcomes = line.bus.publish(
        [
            Request(99, "v1", [b"{}"], [0]),
            Request(KEYED, "v1", [b"{}"], [0]),  # checked when the table had no key
            Request(PLAIN, "v1", [b"{}"], [0]),
        ]
    )
    assert [type(one) for one in outcomes] == [NoIngestTable, DefinitionChanged, Accepted]
    assert line.bus.head().token == 1


# ---------------------------------------------------------------- claims
def test_one_holder_at_a_time_and_a_growing_number(line: Line) -> None:
    first = claim(line, KEYED)
    assert (first.cursor, first.key, first.policy, first.attempts) == (0, ("k",), "reject", 0)
    assert line.consumer.claim(KEYED, "you", LEASE) is None
    assert line.consumer.held() == ((KEYED, "me"),)
    line.consumer.extend(first, LEASE)
    line.consumer.release(first)
    second = claim(line, KEYED, "you")
    assert second.fence > first.fence
    line.consumer.take_away(KEYED, "you")
    assert claim(line, KEYED).fence > second.fence
    assert line.consumer.claim(99, "me", LEASE) is None, "it takes no requests"


def test_a_claim_that_ran_out_is_anybodys(line: Line) -> None:
    line.send(PLAIN, ["a"])
    late = claim(line, lease=NOW)
    batch = read(line, late)
    with pytest.raises(ClaimLost):
        line.consumer.extend(late, LEASE)
    with pytest.raises(ClaimLost):
        ack(line, late, batch)
    assert line.consumer.requeue_expired() == (PLAIN,)
    assert line.consumer.requeue_expired() == ()
    held = claim(line, holder="you")
    with pytest.raises(ClaimLost):
        ack(line, late, batch)
    line.consumer.release(late)  # not its own any more
    assert line.consumer.held() == ((PLAIN, "you"),)
    ack(line, held, read(line, held))
    with pytest.raises(ClaimLost):  # whoever was paused, after another has come and gone
        ack(line, late, batch)
    assert line.consumer.nack(late, "late", NOW) is None


def test_a_claim_is_needed_for_every_way_to_pass(line: Line) -> None:
    line.send(PLAIN, ["a"])
    late = claim(line, lease=NOW)
    batch = read(line, late)
    claim(line, holder="you")
    with pytest.raises(ClaimLost):
        line.consumer.pass_by(late, batch)
    with pytest.raises(ClaimLost):
        line.consumer.bury(late, batch, "TABLE_GONE", "dropped")
    assert watermark(line) == 0


# ---------------------------------------------------------------- reading
def test_what_waits_is_counted_and_cut(line: Line) -> None:
    assert line.consumer.any_table()
    assert line.consumer.pending() == ()
    line.send(PLAIN, ["a"] * 3, ["b" * 100], ["c"])
    line.send(OTHER, ["x"])
    line.send(PLAIN, ["d"], columns="v2")
    one, two = line.consumer.pending()
    assert (one.table_id, one.requests, one.records, one.bytes) == (PLAIN, 4, 6, 5 + 100 + 1 + 1)
    assert (two.table_id, two.requests, two.pause, two.held) == (OTHER, 1, 0, 0)
    assert one.age >= two.age > 0
    assert line.consumer.pending(most=2)[0].requests == 2
    held = claim(line)
    assert line.consumer.pending()[0].held > 50
    whole = read(line, held)
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
        batch = read(line, held, limits)
        assert (batch.upto, len(batch.parts)) == (upto, parts), limits
        assert batch.parts[0].after == 0
        assert all(a.upto == b.after for a, b in zip(batch.parts, batch.parts[1:], strict=False))
    assert line.consumer.tokens(held, read(line, held, Limits(requests=3))) == ((1, 3), (2, 1), (3, 1))
    assert line.consumer.versions(held, whole) == ("v1", "v1", "v1", "v2")
    assert line.consumer.records([(1, 2), (2, 0)]) == {(1, 2): "a", (2, 0): "b" * 100}


def test_executors_read_what_their_parts_hold(line: Line) -> None:
    line.send(PLAIN, ["a", "ß"], ["b"])
    line.send(OTHER, ["x"])
    line.send(PLAIN, ["c"])
    parts = read(line, claim(line), Limits(part=1)).parts
    numbers = pa.RecordBatch.from_pydict({"id": list(range(len(parts)))})
    rows = [row for found in line.consumer.reader(PLAIN, parts)([numbers]) for row in found.to_pylist()]
    assert rows == [{"token": 1, "body": "a\nß"}, {"token": 2, "body": "b"}, {"token": 4, "body": "c"}]


# ---------------------------------------------------------------- passing
def test_a_batch_is_passed_once(line: Line) -> None:
    line.send(PLAIN, ["a", "b"])
    held = claim(line)
    batch = read(line, held)
    ack(line, held, batch, 7, (Letter(1, 1, "WRONG_TYPE", "no number", "k", "b"),))
    assert watermark(line) == 1
    assert line.consumer.held() == ()
    with pytest.raises(ClaimLost):
        ack(line, held, batch)
    again = claim(line)
    assert (again.cursor, line.consumer.read(again, Limits())) == (1, None)


def test_a_publish_that_fails_passes_nothing(line: Line) -> None:
    line.send(PLAIN, ["a"])
    held = claim(line)
    batch = read(line, held)
    with pytest.raises(ClaimLost), line.transaction() as transaction:  # noqa: PT012 (the first one works)
        line.consumer.ack(transaction, held, batch, 7, 1)
        line.consumer.ack(transaction, held, batch, 7, 1)  # whatever it fails by
    assert watermark(line) == 0
    ack(line, held, batch)
    assert watermark(line) == 1


@pytest.mark.parametrize("way", ["passed by", "buried"])
def test_what_changes_nothing_is_passed_too(line: Line, way: str) -> None:
    line.send(PLAIN, ["a", "b"], ["c"])
    held = claim(line)
    batch = read(line, held)
    if way == "buried":
        line.consumer.bury(held, batch, "TABLE_GONE", "dropped")
    else:
        line.consumer.pass_by(held, batch)
    assert watermark(line) == 2
    assert line.consumer.pending() == ()


def test_what_is_tried_in_vain_waits_and_so_does_all_that_came_after(line: Line) -> None:
    line.send(PLAIN, ["a"], ["b"])
    line.send(OTHER, ["x"])
    held = claim(line)
    assert line.consumer.nack(held, "no space", timedelta(hours=1)) == 1
    found = {one.table_id: one for one in line.consumer.pending()}
    assert (found[PLAIN].attempts, found[PLAIN].pause > 3000, found[PLAIN].held) == (1, True, 0)
    assert line.consumer.claim(PLAIN, "you", LEASE) is None
    other = claim(line, OTHER)
    ack(line, other, read(line, other))
    assert watermark(line) == 0, "nothing of the table is passed"


def test_a_second_attempt_knows_of_the_first_and_success_forgets_them(line: Line) -> None:
    line.send(PLAIN, ["a"])
    for attempt in (1, 2):
        assert line.consumer.nack(claim(line), "no", NOW) == attempt
    held = claim(line)
    assert held.attempts == 2
    assert read(line, held).first == 1
    ack(line, held, read(line, held))
    line.send(PLAIN, ["b"])
    assert claim(line).attempts == 0


def test_tidying_takes_what_is_passed_and_raises_the_watermark(line: Line) -> None:
    line.send(PLAIN, ["a"], ["b"])
    held = claim(line)
    ack(line, held, read(line, held, Limits(requests=1)))
    line.consumer.tidy(NOW)
    assert watermark(line) == 1
    assert line.consumer.records([(1, 0), (2, 0)]) == {(2, 0): "b"}
    held = claim(line)
    assert read(line, held).first == 2
    ack(line, held, read(line, held))
    (token,) = line.send(OTHER, ["x"])
    assert watermark(line) == token - 1


@pytest.mark.parametrize("seed", range(6))
def test_random_orders_of_everything(line: Line, seed: int) -> None:
    """Requests, claims, acks, nacks, lost claims and tidying, against a model of what was passed, in which order."""
    chance = random.Random(seed)
    tables = (PLAIN, OTHER, KEYED)
    sent: dict[int, list[int]] = {each: [] for each in tables}
    passed: dict[int, list[int]] = {each: [] for each in tables}
    working: list[tuple[Claim, Batch]] = []
    snapshot = 0
    for _ in range(120):
        table_id = chance.choice(tables)
        match chance.choice(["send", "send", "claim", "claim", "ack", "ack", "nack", "lose", "tidy"]):
            case "send":
                sent[table_id] += line.send(table_id, *[["r"]] * chance.randrange(1, 4))
            case "claim":
                held = line.consumer.claim(table_id, "h", LEASE)
                if held is None:
                    continue
                batch = line.consumer.read(held, Limits(requests=chance.randrange(1, 4)))
                if batch is None:
                    line.consumer.release(held)
                else:
                    working.append((held, batch))
            case "ack" if working:
                held, batch = working.pop(chance.randrange(len(working)))
                snapshot += 1
                try:
                    if chance.random() < 0.2:
                        line.consumer.pass_by(held, batch)
                    else:
                        ack(line, held, batch, snapshot)
                except ClaimLost:
                    continue
                passed[held.table_id] += [t for t in sent[held.table_id] if held.cursor < t <= batch.upto]
            case "nack" if working:
                held, _ = working.pop(chance.randrange(len(working)))
                line.consumer.nack(held, "why", NOW)
            case "lose" if working:  # somebody was silent for too long, and goes on working all the same
                line.consumer.take_away(table_id, "h")
            case "tidy":
                line.consumer.tidy(LEASE)
        for each in sent:
            assert passed[each] == sent[each][: len(passed[each])]
        waiting = [token for each in sent for token in sent[each] if token not in passed[each]]
        head = line.bus.head()
        assert head.token == max((token for each in sent for token in sent[each]), default=0)
        assert head.watermark < min(waiting, default=head.token + 1)
    line.consumer.tidy(LEASE)
    assert watermark(line) == min(waiting, default=head.token + 1) - 1
