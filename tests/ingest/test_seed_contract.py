"""The contract of seed 004, and the eleven ways in which DuckMesh breaks it: one test each, none needs Spark.

    1  a token is drawn before its write commits: a reader misses its own write       test_way_01_…
    2  a watermark goes back                                                          test_way_02_…
    3  what a crashed coordinator had claimed stays claimed for ever                  test_way_03_…
    4  a coordinator that was paused publishes what another has published             test_way_04_…
    5  a snapshot that was read changes, because a lower id commits later             test_way_05_…
    6  two compactions of the same files double the rows                              test_way_06_…
    7  a file goes while a snapshot that shows it can still be read                   test_way_07_…
    8  upsert and delete are accepted and not applied; columns are not checked        test_way_08_…
    9  the same key with another payload counts as a duplicate                        test_way_09_…
   10  SQL is guarded by its first word: two statements, the server's files           test_way_10_…
   11  one bad record is tried for ever, and nobody is told to slow down              test_way_11_…

The same, at length and with Spark, processes and kills: tests/accept/test_bus.py (1, 9), tests/bus (2, 3, 4),
tests/ingest/test_kills.py (3, 4), tests/lake/test_publish.py (5), tests/spark/test_compact.py (6),
tests/lake/test_upkeep.py (7), tests/ingest/test_materialise.py (8, 11), tests/gateway/test_hostile.py (10).
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from uuid import uuid4

import pytest

from lakemill.core.batch import Limits
from lakemill.core.names import parse_name
from lakemill.core.records import Op
from lakemill.errors import (
    Backlogged,
    BadRecords,
    ClaimLost,
    IdempotencyConflict,
    LakemillError,
    PublishConflict,
    QueryRefused,
    SnapshotGone,
    WrongType,
)
from lakemill.gateway.gate import Gateway
from lakemill.gateway.question import At, Question
from lakemill.lake.compaction import MergedFile, merge_intent, plan_compact
from lakemill.lake.tables import parse_columns
from lakemill.runtime import barrier, ingest_tables, upkeep
from lakemill.runtime.bisect import Piece, refused
from lakemill.runtime.bodies import Given
from lakemill.runtime.claiming import free_the_dead
from lakemill.runtime.ingest import Ingest
from lakemill.store import db, pins
from lakemill.store.bus import QUERIES
from tests.accept.conftest import number, rows
from tests.conftest import MakeLake, TestLake, make_lakes
from tests.ingest.by_hand import pass_by_hand
from tests.ingest.requests import marks

TTL = timedelta(minutes=1)
NOW = timedelta(milliseconds=-1)
DEAD = "{host}:999999:1"


@pytest.fixture
def lake(make_lake: MakeLake) -> TestLake:
    return make_lake(flags={"upkeep.retention": "0s", "upkeep.orphan_age": "0s"})


@pytest.fixture
def ingest(lake: TestLake) -> Iterator[Ingest]:
    with Ingest(lake.settings) as made:
        for name in ("t", "u"):
            table(made, name, "k INTEGER")
        yield made


def table(ingest: Ingest, name: str, columns: str, key: Sequence[str] = ()) -> int:
    return ingest_tables.create(ingest.lake, parse_name(name), parse_columns(columns), key=key).table_id


def send(ingest: Ingest, name: str, *values: int, key: str | None = None) -> int:
    return number(ingest, ingest.ingest(parse_name(name), rows(*({"k": value} for value in values), key=key)))


def stock(ingest: Ingest, query: str) -> list[tuple[object, ...]]:
    ingest.lake.renew_duck()
    return ingest.lake.sql(query).fetchall()


def test_way_01_a_token_is_not_given_out_while_one_below_it_is_open(ingest: Ingest, lake: TestLake) -> None:
    done = threading.Event()

    def write() -> None:
        send(ingest, "t", 2)
        done.set()

    with db.connect(lake.dsn) as slow, slow.transaction(force_rollback=True):
        slow.execute(QUERIES["lock_head"].compose())  # a writer that has its token, and has not committed
        slow.execute("UPDATE lakemill.bus_head SET token = token + 1")
        second = threading.Thread(target=write)
        second.start()
        assert not done.wait(0.3), "nobody gets a higher token, and nobody can see one"
        assert marks(ingest.lake.conn) == (0, 0)
    second.join(30)
    assert marks(ingest.lake.conn)[1] == 1


def test_way_01_nor_does_a_table_pass_a_token_of_another(ingest: Ingest) -> None:
    first, second = send(ingest, "t", 1), send(ingest, "u", 2)
    pass_by_hand(ingest.lake, "u")
    assert marks(ingest.lake.conn)[0] < first < second
    seen = barrier.look(ingest.lake, first, [parse_name("t"), parse_name("u")])
    assert seen.waits_for == ("main.t",)


def test_way_02_a_watermark_never_goes_back(ingest: Ingest) -> None:
    seen = []
    for name in ("t", "u", "u", "t", "u"):
        send(ingest, name, 1)
        seen.append(marks(ingest.lake.conn)[0])
        pass_by_hand(ingest.lake, name)
        seen.append(marks(ingest.lake.conn)[0])
    send(ingest, "t", 1)
    upkeep.flush(ingest.lake)
    ingest.lake.sql("CREATE TABLE other AS SELECT 1 AS x")  # a snapshot of somebody else's
    seen.append(marks(ingest.lake.conn)[0])
    assert seen == sorted(seen)
    assert seen[-1] == 5


def test_way_03_what_a_dead_coordinator_held_is_free(ingest: Ingest) -> None:
    token = send(ingest, "t", 7)
    table_id = ingest.lake.table("t").describe().id
    ingest.lake.consumer.claim(table_id, DEAD.format(host=socket.gethostname()), TTL)
    assert pass_by_hand(ingest.lake, "t") is None, "somebody has it, as far as anybody knows"
    free_the_dead(ingest.lake.conn, ingest.lake.consumer)  # of this machine: at once
    ingest.lake.consumer.claim(table_id, "elsewhere:1:1", NOW)  # of another: when its claim has run out
    assert pass_by_hand(ingest.lake, "t") is not None
    assert stock(ingest, "FROM t") == [(7,)]
    assert marks(ingest.lake.conn)[0] == token


def test_way_04_who_was_paused_can_not_publish(ingest: Ingest) -> None:
    send(ingest, "t", 7)
    table_id = ingest.lake.table("t").describe().id
    paused = ingest.lake.consumer.claim(table_id, "paused:1:1", NOW)
    assert paused is not None
    batch = ingest.lake.consumer.read(paused, Limits())
    assert batch is not None
    assert pass_by_hand(ingest.lake, "t") is not None
    with pytest.raises(ClaimLost), ingest.lake.conn.transaction():
        ingest.lake.consumer.require(ingest.lake.conn, paused)
    with pytest.raises(ClaimLost), ingest.lake.conn.transaction():
        ingest.lake.consumer.ack(ingest.lake.conn, paused, batch, 99, 1)
    assert stock(ingest, "FROM t") == [(7,)]
    assert pass_by_hand(ingest.lake, "t") is None


def test_way_05_a_snapshot_that_was_read_stays_what_it_was(ingest: Ingest, lake: TestLake) -> None:
    send(ingest, "t", 1)
    held, ids, done = threading.Event(), list[int](), threading.Event()

    def publish() -> None:
        with Ingest(lake.settings) as other:
            at = pass_by_hand(other.lake, "t", lambda step: held.set() if step == "claimed" else None)
            assert at is not None
            ids.append(at)
            done.set()

    with db.connect(lake.dsn) as first, first.transaction():
        # ids are drawn by the commit's own lock: while one is open, no other has an id at all
        first.execute("LOCK TABLE ducklake_snapshot IN SHARE ROW EXCLUSIVE MODE")
        before = first.execute("SELECT max(snapshot_id) FROM ducklake_snapshot").fetchone()
        thread = threading.Thread(target=publish)
        thread.start()
        assert held.wait(30)
        assert not done.wait(0.5)
        assert first.execute("SELECT max(snapshot_id) FROM ducklake_snapshot").fetchone() == before
    thread.join(30)
    truth = stock(ingest, f"SELECT k FROM t AT (VERSION => {ids[0]})")
    send(ingest, "t", 2)
    assert pass_by_hand(ingest.lake, "t") == ids[0] + 1
    assert stock(ingest, f"SELECT k FROM t AT (VERSION => {ids[0]})") == truth == [(1,)]
    times = ingest.lake.conn.execute("SELECT snapshot_time FROM ducklake_snapshot ORDER BY snapshot_id").fetchall()
    assert times == sorted(set(times)), "a time names one snapshot"


def test_way_06_a_merge_of_files_that_were_merged_meanwhile_is_refused(ingest: Ingest) -> None:
    """Its requirements alone, without what Spark would have written; with that: tests/spark/test_compact.py."""
    for value in (1, 2):
        send(ingest, "t", value)
        pass_by_hand(ingest.lake, "t")
    plan = plan_compact(ingest.lake.front, ingest.lake.duck, "main", "t", 10**9)
    (group,) = plan.groups
    assert len(group.sources) == 2
    stock(ingest, "CALL ducklake_merge_adjacent_files('lake')")  # somebody else was first
    late = merge_intent(ingest.lake.duck, plan, [MergedFile(group, None, 0, plan.base)], uuid4())
    with pytest.raises(PublishConflict):
        ingest.lake.publisher.publish(late)
    assert stock(ingest, "FROM t ORDER BY k") == [(1,), (2,)]


def test_way_07_a_pinned_snapshot_keeps_its_files_and_others_are_refused_by_name(ingest: Ingest) -> None:
    send(ingest, "t", 1)
    pinned = pass_by_hand(ingest.lake, "t")
    assert pinned is not None
    pin = pins.pin(ingest.lake.conn, pinned, "a report")
    ingest.lake.sql("DELETE FROM t")
    for _ in range(2):
        upkeep.expire(ingest.lake)
        upkeep.cleanup(ingest.lake)
        upkeep.orphans(ingest.lake)
        assert stock(ingest, f"SELECT k FROM t AT (VERSION => {pinned})") == [(1,)]
    pins.unpin(ingest.lake.conn, pin.id)
    upkeep.expire(ingest.lake)
    with pytest.raises(SnapshotGone):  # an error, and not fewer rows
        ingest.lake.table("t").plan_scan(pinned)


def test_way_08_every_write_is_checked_and_known_by_its_operation(ingest: Ingest) -> None:
    name, bare = parse_name("keyed"), parse_name("t")
    table(ingest, "keyed", "k INTEGER NOT NULL, v DECIMAL(9,2)", key=["k"])
    operations: tuple[Op, ...] = ("insert", "upsert", "delete")
    for op in operations:
        ingest.ingest(name, Given([b'{"k": 1}'], op=op))
    bodies = ingest.lake.conn.execute("SELECT left(body, 8) FROM lakemill.bus ORDER BY token").fetchall()
    assert [body for (body,) in bodies] == ['{"o":"i"', '{"o":"u"', '{"o":"d"']
    for wrong in ({"k": "x"}, {"k": 1, "v": 1.005}, {"k": 1, "w": 1}, {"v": 1}, {"k": None}):
        with pytest.raises(BadRecords):
            ingest.ingest(name, rows(wrong))
    for op in operations[1:]:  # what can't be applied is not accepted
        with pytest.raises(LakemillError):
            ingest.ingest(bare, Given([b'{"k": 1}'], op=op))


def test_way_09_a_key_with_another_payload_is_a_conflict(ingest: Ingest) -> None:
    first = send(ingest, "t", 1, key="order-7")
    assert send(ingest, "t", 1, key="order-7") == first
    with pytest.raises(IdempotencyConflict):
        send(ingest, "t", 2, key="order-7")
    name = parse_name("t")
    ingest.ingest(name, rows(({"k": 5}, "a")))
    with pytest.raises(IdempotencyConflict):
        ingest.ingest(name, rows(({"k": 6}, "a")))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1; CREATE TABLE x (i INTEGER)",
        "SELECT 1; SELECT 2",
        "WITH x AS (SELECT 1) INSERT INTO t SELECT 1",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "/* SELECT */ DROP TABLE t",
        "SELECT * FROM postgres_scan('', 'lakemill', 'api_keys')",
    ],
)
def test_way_10_only_a_select_of_lake_tables_runs(shared_gateway: Gateway, sql: str) -> None:
    with pytest.raises(LakemillError) as told:
        shared_gateway.query(Question(sql)).close()
    assert isinstance(told.value, QueryRefused) or told.value.code in ("UNKNOWN_TABLE", "BAD_STATEMENT"), told.value


def test_way_10_a_table_without_files_is_there_and_parameters_are_taken(shared_gateway: Gateway) -> None:
    with shared_gateway.query(Question("SELECT count(*) AS n, $x AS x FROM t", {"x": 3}, At())) as answer:
        assert answer.table().to_pylist() == [{"n": 0, "x": 3}]


@pytest.fixture(scope="module")
def shared_gateway(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with make_lakes(postgres, tmp_path_factory.mktemp("contract")) as make:
        lake = make()
        with lake.duck() as duck:
            duck.execute("CREATE TABLE t (k INTEGER)")
        with Gateway(lake.settings, lake.dsn) as gateway:
            yield gateway


def test_way_11_a_bad_record_is_found_and_the_rest_goes_on(ingest: Ingest) -> None:
    send(ingest, "t", 1)
    table_id = ingest.lake.table("t").describe().id
    for attempt in (1, 2):
        held = ingest.lake.consumer.claim(table_id, "me", TTL)
        assert held is not None
        assert held.attempts == attempt - 1, "how often it was tried is known"
        assert ingest.lake.consumer.nack(held, "no", timedelta(0)) == attempt
    bad = refused([(1, 4), (2, 4)], lambda piece: WrongType("no") if _holds(piece, 2, 3) else None)
    assert [(letter.token, letter.position, letter.code) for letter in bad] == [(2, 3, "WRONG_TYPE")]


def _holds(piece: Piece, token: int, position: int) -> bool:
    return piece.token <= token <= piece.last_token and piece.first <= position <= piece.last


def test_way_11_who_sends_too_much_is_told_to_wait(make_lake: MakeLake) -> None:
    small = make_lake(flags={"ingest.backlog_records": 2})
    with Ingest(small.settings) as ingest:
        table(ingest, "t", "k INTEGER")
        send(ingest, "t", 1, 2, 3)
        with pytest.raises(Backlogged) as told:
            keep_sending(ingest)
        assert told.value.wait > 0


def keep_sending(ingest: Ingest) -> None:
    for _ in range(100):
        send(ingest, "t", 4)
        time.sleep(0.05)
