"""Processes and turns: what ends a query, who waits, and that one query's end is nobody else's."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lakemill import errors
from lakemill.gateway.gate import Gateway
from lakemill.gateway.question import At, Question
from lakemill.store import db, pins
from lakemill.store.migrate import migrate
from tests.conftest import TestLake, make_lakes

ENDLESS = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a > b"
LONG = timedelta(seconds=60)


@pytest.fixture(scope="module")
def lake(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestLake]:
    with make_lakes(postgres, tmp_path_factory.mktemp("pool")) as make:
        lake = make(flags={"query.executors": 2, "query.queue": 1, "query.queue_timeout": "2s"})
        with db.connect(lake.dsn) as conn:
            migrate(conn, "public")
        with lake.duck() as duck:
            duck.execute("CREATE TABLE t AS SELECT i AS id FROM range(300000) r(i)")
        yield lake


@pytest.fixture(scope="module")
def gateway(lake: TestLake) -> Iterator[Gateway]:
    with Gateway(lake.settings, lake.dsn) as gateway:
        gateway.warm()
        yield gateway


def count(gateway: Gateway) -> Any:
    with gateway.query(Question("SELECT count(*) AS n FROM t")) as answer:
        return answer.table().to_pylist()[0]["n"]


def until(condition: Any, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def asked(gateway: Gateway, **options: Any) -> tuple[threading.Thread, list[BaseException]]:
    """An endless query in a thread of its own, and what it ends with."""
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            gateway.query(Question(ENDLESS, **{"timeout": LONG, **options})).table()
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, ended


def executors(of: Gateway | None = None) -> set[int]:
    """Processes that were forked by a nursery of this one, or by a gateway's own."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
    nurseries = {pid for pid, parent in found.items() if parent == os.getpid() and b"gateway.nursery" in command(pid)}
    if of is not None:
        own = of._pool._nursery._process
        nurseries = set() if own is None else {own.pid}
    return {pid for pid, parent in found.items() if parent in nurseries}


def sockets(pid: int) -> set[str]:
    """Those that it holds; the nursery's own goes when it is born."""
    held = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
    return {name for name in held if name.startswith("socket:")}


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_query_is_cancelled_by_its_id(gateway: Gateway) -> None:
    thread, ended = asked(gateway, id="mine")
    until(lambda: "mine" in gateway.running)
    time.sleep(0.3)
    began = time.monotonic()
    assert gateway.cancel("mine")
    thread.join(20)
    assert isinstance(ended[0], errors.QueryCancelled)
    assert time.monotonic() - began < 10
    assert not gateway.cancel("mine")
    assert count(gateway) == 300_000


def test_a_query_that_takes_too_long_is_ended(gateway: Gateway) -> None:
    with pytest.raises(errors.QueryTimedOut, match=r"0\.3 s"):
        gateway.query(Question(ENDLESS, timeout=timedelta(seconds=0.3))).table()
    assert not gateway.running


def test_a_reader_that_stands_still_does_not_hold_a_process(gateway: Gateway) -> None:
    answer = gateway.query(Question("SELECT range, repeat('x', 100) FROM range(1000000)", timeout=timedelta(seconds=1)))
    until(lambda: answer.id not in gateway.running)
    with pytest.raises(errors.QueryTimedOut):
        answer.table()
    assert count(gateway) == 300_000


def test_an_answer_that_is_left_is_stopped(gateway: Gateway) -> None:
    with gateway.query(Question("SELECT range, repeat('x', 100) FROM range(100000000)", timeout=LONG)) as answer:
        assert next(iter(answer)).num_rows > 0
        assert answer.statistics is None
    assert answer.id not in gateway.running


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_a_process_that_dies_takes_only_its_own_query(gateway: Gateway, how: signal.Signals) -> None:
    """As the kernel ends one that takes too much memory, or as it crashes."""
    thread, ended = asked(gateway, id="dies")
    other, ended_too = asked(gateway, id="lives")
    until(lambda: set(gateway.running) == {"dies", "lives"})
    victim = gateway._pool._turns["dies"].executor.pid
    until(lambda: victim in executors())
    time.sleep(0.3)
    os.kill(victim, how)
    thread.join(20)
    assert isinstance(ended[0], errors.EngineLost)
    assert "lives" in gateway.running
    gateway.cancel("lives")
    other.join(20)
    assert isinstance(ended_too[0], errors.QueryCancelled)
    assert count(gateway) == 300_000


def test_the_nursery_can_die_too(gateway: Gateway) -> None:
    process = gateway._pool._nursery._process
    assert process is not None
    before = executors()
    process.kill()
    until(lambda: not before & executors())  # they end with it
    for _ in range(4):  # those that were ready are gone: their queries fail, the next ones do not
        try:
            count(gateway)
        except errors.EngineLost:
            continue
    assert count(gateway) == 300_000


def test_who_comes_too_late_waits_and_who_comes_later_is_refused(gateway: Gateway) -> None:
    running = [asked(gateway, id=f"busy{n}") for n in range(2)]
    until(lambda: len(gateway.running) == 2)
    with ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        waiting = pool.submit(count, gateway)
        until(lambda: gateway._pool._waiting == 1)
        with pytest.raises(errors.QueriesQueued, match="1 queries wait"):
            count(gateway)
        with pytest.raises(errors.QueriesQueued, match="within 2 s"):
            waiting.result()
        assert time.monotonic() - began >= 2
        waiting = pool.submit(count, gateway)
        until(lambda: gateway._pool._waiting == 1)
        gateway.cancel("busy0")
        assert waiting.result() == 300_000
    gateway.cancel("busy1")
    for thread, _ in running:
        thread.join(20)


def test_many_at_once_get_what_is_theirs(lake: TestLake) -> None:
    settings = lake.settings.model_copy(update={"query": lake.settings.query.model_copy(update={"queue": 50})})
    patient = settings.query.model_copy(update={"queue_timeout": LONG})
    with Gateway(settings.model_copy(update={"query": patient}), lake.dsn) as gateway, ThreadPoolExecutor(6) as pool:

        def ask(n: int) -> Any:
            with gateway.query(Question("SELECT sum(id) AS s FROM t WHERE id < $1", params=[n])) as answer:
                return answer.table().to_pylist()[0]["s"]

        assert list(pool.map(ask, range(1, 19))) == [n * (n - 1) // 2 for n in range(1, 19)]


def test_rows_are_cut_where_asked_and_the_answer_says_so(gateway: Gateway) -> None:
    for limit, truncated in ((0, True), (10, True), (300_000, False), (10**7, False)):
        with gateway.query(Question("FROM t", row_limit=limit)) as answer:
            assert answer.table().num_rows == min(limit, 300_000)
            assert answer.statistics is not None
            assert answer.statistics.truncated == truncated
            assert answer.statistics.files == 1
    with pytest.raises(errors.BadArgument):
        gateway.query(Question("FROM t", row_limit=-1))


def test_what_a_query_reads_is_pinned_while_it_runs(gateway: Gateway, lake: TestLake) -> None:
    with db.connect(lake.dsn) as conn, lake.duck() as duck:
        (head,) = conn.execute("SELECT max(snapshot_id) FROM ducklake_snapshot").fetchone() or (0,)
        with gateway.query(Question("SELECT * FROM range(100000000)", at=At(snapshot=head), timeout=LONG)):
            duck.execute("CREATE TABLE more AS SELECT 1 AS x")
            needed = pins.needed_snapshots(conn)
            assert head in {pin.snapshot_id for pin in needed.pins}
            assert all(pin.expires_at is not None for pin in needed.pins)


def test_nothing_is_left_when_it_is_closed(lake: TestLake) -> None:
    with db.connect(lake.dsn) as conn:
        pinned = {pin.id for pin in pins.needed_snapshots(conn).pins}
    with Gateway(lake.settings, lake.dsn) as gateway:
        folder = Path(gateway._folder.name)
        thread, ended = asked(gateway)
        until(lambda: gateway.running)
        assert count(gateway) == 300_000
        born = executors(gateway)
        assert born
    thread.join(20)
    assert isinstance(ended[0], errors.Stopped)
    until(lambda: not born & executors())
    assert not folder.exists()
    with db.connect(lake.dsn) as conn:
        assert {pin.id for pin in pins.needed_snapshots(conn).pins} == pinned
    with pytest.raises(errors.Stopped):
        count(gateway)


def test_who_forks_has_nothing_else_at_work(gateway: Gateway) -> None:
    """Besides its own there is one thread that importing DuckDB leaves, which does nothing."""
    count(gateway)
    process = gateway._pool._nursery._process
    assert process is not None
    assert len(list(Path(f"/proc/{process.pid}/task").iterdir())) <= 2


def test_executors_are_born_with_nothing(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEMILL_LAKE__POSTGRES", "postgresql://me:hunter2@there/db")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    with Gateway(lake.settings, lake.dsn) as gateway:
        gateway.warm()
        for pid in executors(gateway):
            assert b"hunter2" not in Path(f"/proc/{pid}/environ").read_bytes()
            assert lake.dsn.encode() not in command(pid)
            until(lambda pid=pid: len(sockets(pid)) <= 1)
