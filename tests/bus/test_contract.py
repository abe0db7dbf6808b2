"""What every bus keeps to, seen from outside: publish, claim, read, ack, nack, extend, requeue_expired."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from lakemill.core.batch import Batch, Claim, Letter, Limits
from lakemill.core.bus import Accepted, Request
from lakemill.core.records import Bad
from lakemill.errors import BadArgument, ClaimLost, DefinitionChanged, IdempotencyConflict, NoIngestTable
from lakemill.store import ingest, watermarks, work
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


def letters(line: Line) -> list[tuple[int, int, str, str]]:
    """Token, position, code and body of each, the oldest first."""
    found = ingest.letters(line.lake)
    return sorted((one.token, one.position, one.code, one.body) for one in found)


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


def test_a_record_that_was_refused_is_a_letter_and_its_replay_takes_it(line: Line) -> None:
    bad = Bad(0, b'{"k":1', "records[0]", "no JSON")
    (told,) = line.bus.publish([Request(PLAIN, "v1", [], [], letters=[bad])])
    assert told == Accepted(1, 0, rejected=1)
    assert letters(line) == [(1, 0, "BAD_RECORDS", '{"k":1')]
    (letter,) = ingest.letters(line.lake)
    replay = Request(PLAIN, "v1", [b"{}"], [0], replays=letter.id)
    first, again = line.bus.publish([replay, replay])
    assert first == Accepted(2, 1)
    assert isinstance(again, BadArgument)
    assert [(one.state, one.replayed) for one in ingest.letters(line.lake)] == [("replayed", 2)]


def test_keys_are_forgotten_when_their_window_is_over(line: Line) -> None:
    asked = Request(PLAIN, "v1", [b"{}"], [0], key="a", digest=b"d" * 32)
    line.bus.publish([asked])
    line.bus.forget()
    assert line.bus.publish([asked]) == [Accepted(1, 1, repeated=True)]
    ingest.change(line.lake, PLAIN, dedupe=NOW)
    line.bus.forget()
    assert line.bus.publish([asked]) == [Accepted(2, 1)]


def test_who_waits_for_requests_and_for_batches_is_told(line: Line) -> None:
    with work.listening(line.lake, work.ACCEPTED, work.PASSED):
        line.send(PLAIN, ["a"])
        assert work.wait(line.lake, 10)
        held = claim(line)
        ack(line, held, read(line, held))
        assert work.heard(line.lake, 10) == (str(PLAIN),)


# ---------------------------------------------------------------- claims
def test_one_holder_at_a_time_and_a_growing_number(line: Line) -> None:
    first = claim(line, KEYED)
    assert (first.cursor, first.key, first.policy, first.attempts) == (0, ("k",), "reject", 0)
    assert line.consumer.claim(KEYED, "you", LEASE) is None
    assert line.consumer.held() == ((KEYED, "me"),)
    line.consumer.release(first)
    second = claim(line, KEYED, "you")
    assert second.fence > first.fence
    line.consumer.take_away(KEYED, "you")
    assert claim(line, KEYED).fence > second.fence
    assert line.consumer.claim(99, "me", LEASE) is None, "it takes no requests"


def test_of_many_who_want_it_one_gets_it(line: Line) -> None:
    def want(name: int) -> Claim | None:
        with line.another() as consumer:
            ready.wait()
            return consumer.claim(PLAIN, f"{name}", LEASE)

    for _ in range(10):
        ready = threading.Barrier(8)
        with ThreadPoolExecutor(8) as threads:
            got = [one for one in threads.map(want, range(8)) if one is not None]
        assert len(got) == 1
        line.consumer.release(got[0])


def test_a_claim_lives_for_its_lease_and_longer_when_it_is_extended(line: Line) -> None:
    line.send(PLAIN, ["a"])
    held = claim(line, lease=timedelta(seconds=20))
    assert 10 < line.consumer.pending()[0].held <= 20
    line.consumer.extend(held, LEASE)
    assert 50 < line.consumer.pending()[0].held <= 60
    assert line.consumer.requeue_expired() == ()


def test_what_a_publish_requires_stays_so_until_it_ends(line: Line) -> None:
    """Else another could begin the same batch between the check and the commit."""
    line.send(PLAIN, ["a"])
    held = claim(line)
    batch = read(line, held)
    taken = threading.Event()

    def take() -> Claim | None:
        with line.another() as other:
            other.take_away(PLAIN, "me")
            taken.set()
            return other.claim(PLAIN, "you", LEASE)

    with ThreadPoolExecutor(1) as threads:
        with line.transaction() as transaction:
            line.consumer.require(transaction, held)
            waiting = threads.submit(take)
            assert not taken.wait(0.5)
            line.consumer.ack(transaction, held, batch, 7, 1)
        after = waiting.result(10)
    assert after is not None
    assert (after.cursor, line.consumer.read(after, Limits())) == (batch.upto, None)


def test_a_batch_under_a_key_that_is_no_longer_the_tables_is_not_passed(line: Line) -> None:
    """It was claimed when nothing waited, the key was changed, and requests were accepted under the new one."""
    held = claim(line, KEYED)
    ingest.change(line.lake, KEYED, key=[])
    (outcome,) = line.bus.publish([Request(KEYED, "v1", [b"{}"], [0])])
    assert isinstance(outcome, Accepted)
    with pytest.raises(ClaimLost):
        ack(line, held, read(line, held))
    line.consumer.release(held)
    again = claim(line, KEYED)
    assert again.key == ()
    ack(line, again, read(line, again))


LOST: dict[str, Callable[[Line, Claim], object]] = {
    "given back": lambda line, held: line.consumer.nack(held, "no", NOW),
    "released": lambda line, held: line.consumer.release(held),
    "taken away": lambda line, held: line.consumer.take_away(PLAIN, held.holder),
    "passed": lambda line, held: ack(line, held, read(line, held)),
    "run out": lambda line, held: line.consumer.extend(held, NOW),
    "another's": lambda line, held: (line.consumer.release(held), claim(line, holder="you")),
}


@pytest.mark.parametrize("how", LOST)
def test_nothing_can_be_done_by_a_claim_that_is_lost(line: Line, how: str) -> None:
    line.send(PLAIN, ["a"], ["b"])
    held = claim(line)
    batch = read(line, held, Limits(requests=1))
    LOST[how](line, held)
    before = [(one.attempts, one.requests, one.pause) for one in line.consumer.pending()]
    passed = watermark(line)
    assert line.consumer.nack(held, "late", timedelta(hours=1)) is None
    for late in (
        lambda: ack(line, held, batch),
        lambda: line.consumer.pass_by(held, batch),
        lambda: line.consumer.bury(held, batch, "TABLE_GONE", "dropped"),
        lambda: line.consumer.extend(held, LEASE),
    ):
        with pytest.raises(ClaimLost):
            late()
    assert [(one.attempts, one.requests, one.pause) for one in line.consumer.pending()] == before
    assert watermark(line) == passed
    assert letters(line) == []


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
    reader = cloudpickle.loads(cloudpickle.dumps(line.consumer.reader(PLAIN, parts)))  # it travels
    rows = [row for found in reader([numbers]) for row in found.to_pylist()]
    assert rows == [{"token": 1, "body": "a\nß"}, {"token": 2, "body": "b"}, {"token": 4, "body": "c"}]


# ---------------------------------------------------------------- passing
def test_a_batch_is_passed_once(line: Line) -> None:
    line.send(PLAIN, ["a", "b"])
    held = claim(line)
    batch = read(line, held)
    ack(line, held, batch, 7, (Letter(1, 1, "WRONG_TYPE", "no number", "k", "b"),))
    assert watermark(line) == 1
    assert letters(line) == [(1, 1, "WRONG_TYPE", "b")]
    assert watermarks.shown_by(line.lake, 1) == {PLAIN: 7}
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
        dead = [(1, 0, "TABLE_GONE", "a"), (1, 1, "TABLE_GONE", "b"), (2, 0, "TABLE_GONE", "c")]
    else:
        line.consumer.pass_by(held, batch, [Letter(2, 0, "WRONG_TYPE", "why", "k", "c")])
        dead = [(2, 0, "WRONG_TYPE", "c")]
    assert letters(line) == dead
    assert watermark(line) == 2
    assert watermarks.shown_by(line.lake, 2) == {}, "no snapshot has it"
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


def test_tidying_takes_what_is_passed_and_what_is_old(line: Line) -> None:
    line.send(PLAIN, ["a"], ["b"], ["c"])
    for snapshot in (7, 8):
        held = claim(line)
        ack(line, held, read(line, held, Limits(requests=1)), snapshot)
    line.consumer.tidy(timedelta(days=1))
    assert line.consumer.records([(1, 0), (2, 0), (3, 0)]) == {(3, 0): "c"}
    assert watermarks.shown_by(line.lake, 1) == {PLAIN: 7}
    line.consumer.tidy(NOW)
    assert watermarks.shown_by(line.lake, 1) == {PLAIN: 8}, "later than it was, never earlier"
    assert watermarks.shown_by(line.lake, 0) == {}
    assert read(line, claim(line)).first == 3


def test_tidying_raises_the_watermark_over_what_no_batch_will_have(line: Line) -> None:
    line.bus.publish([Request(PLAIN, "v1", [], [], letters=[Bad(0, b"?", "records[0]", "no JSON")])])
    assert (watermark(line), line.consumer.pending()) == (0, ())
    line.consumer.tidy(LEASE)
    assert watermark(line) == 1


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
        k = chance.randrange(head.token + 1)
        assert line.consumer.not_passed(k) == tuple(
            each for each in tables if any(token <= k for token in sent[each] if token not in passed[each])
        )
        for each in tables:
            low = min((token for token in sent[each] if token not in passed[each]), default=head.token + 1)
            assert line.consumer.table_watermark(each) == low - 1
        assert head.token == max((token for each in sent for token in sent[each]), default=0)
        assert head.watermark < min(waiting, default=head.token + 1)
    line.consumer.tidy(LEASE)
    assert watermark(line) == min(waiting, default=head.token + 1) - 1
