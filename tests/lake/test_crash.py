"""A publisher that dies, stops or loses its connection: the lake is before or after, and nobody waits for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

import lakemill
from lakemill.core.commit import AddFiles
from lakemill.errors import OutcomeUnknown, PublishTimedOut
from lakemill.lake import publish as publishing
from lakemill.lake import upkeep
from lakemill.lake.publish import STEPS, Publisher
from lakemill.lake.storage import open_storage
from lakemill.runtime.write import writing
from lakemill.store import db
from tests.conftest import TestLake
from tests.publishing import Desk, one_desk, one_lake
from tests.wire import DELAY, Fault, cut_wire

HERE = Path(__file__).parents[2]
IDLE = 1.0
BEFORE = list(range(20))
AFTER = [*range(2, 20), *range(1000, 1010)]


@pytest.fixture(scope="module")
def lake(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestLake]:
    with one_lake(postgres, tmp_path_factory.mktemp("crash")) as lake:
        yield lake


@pytest.fixture
def desk(lake: TestLake) -> Iterator[Desk]:
    with one_desk(lake) as desk:
        desk.make("id INTEGER, s VARCHAR")
        desk.duck.execute("INSERT INTO t SELECT range, 'old' FROM range(20)")
        desk.conn.execute("DROP TABLE IF EXISTS lakemill.notes")
        desk.conn.execute("CREATE TABLE lakemill.notes (snapshot_id bigint)")
        yield desk


def start(desk: Desk, step: str, how: str, publish_id: uuid.UUID, *, temporary: bool = False) -> subprocess.Popen[str]:
    lake = desk.lake
    words = {"root": str(lake.settings.root), "dsn": lake.dsn, "step": step, "how": how, "publish_id": str(publish_id)}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.lake.child", json.dumps({**words, "idle": IDLE, "temporary": temporary})],
        cwd=HERE,
        env={**os.environ, "PYTHONPATH": str(HERE / "src")},
        stdout=subprocess.PIPE,
        text=True,
    )


def ids(desk: Desk, at: int | None = None) -> list[int]:
    when = "" if at is None else f" AT (VERSION => {at})"
    return [row[0] for row in desk.stock(f"SELECT id FROM t{when} ORDER BY id")]


def known_paths(desk: Desk) -> set[str]:
    table = desk.table()
    query = (
        "SELECT path FROM ducklake_data_file WHERE table_id = %s"
        " UNION ALL SELECT path FROM ducklake_delete_file WHERE table_id = %s"
    )
    return {table.path + path for (path,) in desk.rows(query, table.id, table.id)}


@pytest.mark.parametrize("temporary", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_kill_9(desk: Desk, step: str, temporary: bool) -> None:
    before, publish_id = desk.head(), uuid.uuid4()
    child = start(desk, step, "kill", publish_id, temporary=temporary)
    assert child.wait(120) == -signal.SIGKILL
    assert child.stdout is not None
    assert child.stdout.read().split() == [step]
    child.stdout.close()
    happened = step == "committed"
    # stock goes on at once: the server has ended the dead one's transaction
    begun = time.monotonic()
    desk.duck.execute("INSERT INTO t VALUES (-1, 'stock')")
    assert time.monotonic() - begun < 30
    assert ids(desk) == [-1, *(AFTER if happened else BEFORE)]
    assert desk.head() == before + 1 + happened
    assert ids(desk, before) == BEFORE
    assert desk.rows("SELECT snapshot_id FROM lakemill.notes") == [(before + 1,)] * happened
    # whoever finds the publish id can say what became of it
    assert desk.publisher.settle(publish_id) == (before + 1 if happened else None)
    # what was left is an orphan, and only that
    storage = open_storage(desk.lake.data_path, desk.lake.settings.s3)
    plan = upkeep.plan_orphans(desk.conn, "public", storage, timedelta(0))
    left = {file.path for file in plan.files if file.path.startswith(desk.table().path)}
    assert len(left) == (0 if happened else 2)
    upkeep.remove_orphans(desk.conn, "public", storage, plan)
    on_disk = {str(path) for path in Path(desk.table().path).rglob("*.parquet")}
    assert on_disk >= known_paths(desk)
    assert ids(desk) == [-1, *(AFTER if happened else BEFORE)]


@pytest.mark.parametrize("step", [step for step in STEPS if step not in ("connected", "committed")])
def test_a_stopped_publisher_does_not_stop_the_lake(desk: Desk, step: str) -> None:
    before = desk.head()
    child = start(desk, step, "stop", uuid.uuid4())
    assert child.stdout is not None
    assert child.stdout.readline().strip() == step
    begun = time.monotonic()
    desk.duck.execute("INSERT INTO t VALUES (-1, 'stock')")
    waited = time.monotonic() - begun
    child.send_signal(signal.SIGCONT)
    assert child.wait(120) == 0
    said = child.stdout.read().split()
    child.stdout.close()
    assert waited < IDLE + 10, "the server ends a transaction that idles"
    # when it wakes up it publishes the same files under the same id, once
    assert said[0] == "published"
    assert ids(desk) == [-1, *AFTER]
    assert desk.head() == before + 2
    assert desk.rows("SELECT snapshot_id FROM lakemill.notes") == [(int(said[1]),)]


@pytest.mark.parametrize(
    ("fault", "published"), [("lose commit", False), ("lose answer", True), ("delay commit", True)]
)
def test_a_connection_cut_at_commit_is_settled(desk: Desk, fault: Fault, published: bool) -> None:
    table_id, before = desk.table().id, desk.head()
    files = desk.stage("SELECT range::INTEGER AS id, 'new' AS s FROM range(1000, 1010)")
    with cut_wire(desk.lake.dsn) as wire:
        desk.publisher.close()
        desk.publisher = Publisher(wire.dsn)
        wire.fault = fault
        begun = time.monotonic()
        if published:
            done = desk.publish(AddFiles(table_id, files))
            assert done.snapshot_id == before + 1 == desk.head()
            if fault == "delay commit":
                assert time.monotonic() - begun > DELAY / 2, "it waited for the transaction in flight"
        else:
            with pytest.raises(PublishTimedOut, match="nothing was published"):
                desk.publish(AddFiles(table_id, files))
            assert desk.head() == before
            done = desk.publish(AddFiles(table_id, files))  # same files, new publish id
        assert ids(desk) == [*BEFORE, *range(1000, 1010)]
        assert desk.head() == before + 1
        desk.publisher.close()


@pytest.mark.parametrize(("fault", "published"), [("lose commit", False), ("lose answer", True)])
def test_a_failover_at_commit_is_looked_up_at_the_other_host(desk: Desk, fault: Fault, published: bool) -> None:
    """The host that was asked is gone for good; the one that takes its place has the commit, or does not."""
    table_id, before = desk.table().id, desk.head()
    files = desk.stage("SELECT range::INTEGER AS id, 'new' AS s FROM range(1000, 1010)")
    with cut_wire(desk.lake.dsn) as first, cut_wire(desk.lake.dsn) as second:
        ports = [str(db.parse(wire.dsn)["port"]) for wire in (first, second)]
        both = make_conninfo(first.dsn, host="127.0.0.1,127.0.0.1", port=",".join(ports))
        desk.publisher.close()
        desk.publisher = Publisher(both, trace=lambda step: first.close() if step == "bookkept" else None)
        first.fault = fault
        if published:
            assert desk.publish(AddFiles(table_id, files)).snapshot_id == before + 1
        else:
            with pytest.raises(PublishTimedOut, match="nothing was published"):
                desk.publish(AddFiles(table_id, files))
            desk.publish(AddFiles(table_id, files))
        assert desk.publisher._conn is not None
        assert str(desk.publisher._conn.info.port) == ports[1]
        assert ids(desk) == [*BEFORE, *range(1000, 1010)]
        assert desk.head() == before + 1
        desk.publisher.close()


def test_a_connection_cut_before_commit_is_only_tried_again(desk: Desk) -> None:
    table_id, before = desk.table().id, desk.head()
    files = desk.stage("SELECT range::INTEGER AS id, 'new' AS s FROM range(1000, 1010)")
    cuts = {"locked", "written", "bookkept"}

    def trace(step: str) -> None:
        if step in cuts:
            cuts.discard(step)
            assert publisher._conn is not None
            desk.conn.execute("SELECT pg_terminate_backend(%s)", (publisher._conn.info.backend_pid,))

    publisher = Publisher(desk.lake.dsn, trace=trace)
    desk.publisher.close()
    desk.publisher = publisher
    try:
        done = desk.publish(AddFiles(table_id, files))
    except PublishTimedOut:  # the last cut is seen at COMMIT, where it must be settled
        assert desk.head() == before
        done = desk.publish(AddFiles(table_id, files))
    assert done.snapshot_id == before + 1 == desk.head()
    assert ids(desk) == [*BEFORE, *range(1000, 1010)]


def test_what_can_not_be_settled_is_said(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "_SETTLE_SECONDS", 0.0)
    table_id = desk.table().id
    files = desk.stage("SELECT range::INTEGER AS id, 'new' AS s FROM range(1000, 1010)")
    publish_id = uuid.uuid4()
    with cut_wire(desk.lake.dsn) as wire:
        publisher = Publisher(wire.dsn, trace=lambda step: wire.close() if step == "bookkept" else None)
        desk.publisher.close()
        desk.publisher = publisher
        wire.fault = "lose answer"
        with pytest.raises(OutcomeUnknown):
            desk.publish(AddFiles(table_id, files), publish_id=publish_id)
        publisher.close()
    with Publisher(desk.lake.dsn) as later:
        assert later.settle(publish_id) == desk.head()


def test_ctrl_c_leaves_nothing_half_done(desk: Desk) -> None:
    before = desk.head()
    files = desk.stage("SELECT range::INTEGER AS id, 'new' AS s FROM range(1000, 1010)")

    def interrupt(cursor: Any, snapshot_id: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        desk.publish(AddFiles(desk.table().id, files), more=interrupt)
    thread = threading.Thread(target=desk.duck.execute, args=("INSERT INTO t VALUES (-1, 'stock')",))
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "the transaction is over"
    assert desk.head() == before + 1
    assert ids(desk) == [-1, *BEFORE]


@pytest.mark.parametrize("committed", [True, False])
def test_ctrl_c_at_commit_leaves_files_and_connection_sound(desk: Desk, committed: bool) -> None:
    """It may have happened: the files stay, and nothing goes on inside the old transaction."""

    class Interrupted(Publisher):
        def _commit(self, cursor: Any) -> None:
            Interrupted._commit = Publisher._commit  # type: ignore[method-assign]
            if committed:
                super()._commit(cursor)
            raise KeyboardInterrupt

    before, publish_id = desk.head(), uuid.uuid4()
    files = desk.stage("SELECT range::INTEGER AS id, 'new' AS s FROM range(1000, 1010)")
    desk.publisher.close()
    desk.publisher = Interrupted(desk.lake.dsn)
    with pytest.raises(KeyboardInterrupt):
        desk.publish(AddFiles(desk.table().id, files), publish_id=publish_id)
    assert desk.publisher.settle(publish_id) == (before + 1 if committed else None)
    again = desk.stage("SELECT range::INTEGER AS id, 'new' AS s FROM range(2000, 2001)")
    desk.publish(AddFiles(desk.table().id, again))
    assert ids(desk) == [*BEFORE, *(range(1000, 1010) if committed else ()), 2000]


def test_ctrl_c_while_publishing_removes_no_file(desk: Desk) -> None:
    with lakemill.open(desk.lake.settings) as lake:
        for publishing in (True, False):
            file = Path(desk.table().path) / f"staged-{publishing}.parquet"
            file.write_bytes(b"x")
            with pytest.raises(KeyboardInterrupt), writing(lake.table("t")) as attempt:  # noqa: PT012
                attempt.staged.append(str(file))
                attempt.publishing = publishing
                raise KeyboardInterrupt
            assert file.exists() == publishing
            file.unlink(missing_ok=True)
