"""kill −9 and SIGSTOP at each step of a request and of a batch: nothing lost, nothing twice, who is late is refused."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import lakemill
from lakemill.core.names import parse_name
from lakemill.core.receipts import write_token
from lakemill.lake import publish
from lakemill.runtime.claiming import free_the_dead
from lakemill.runtime.ingest import Ingest
from lakemill.runtime.materialise import materialise
from tests.conftest import MakeLake
from tests.ingest.by_hand import pass_by_hand
from tests.ingest.child import ACCEPTING, request
from tests.ingest.intake import Intake
from tests.ingest.requests import marks, record

STEPS = ("claimed", "read", "filed", *publish.STEPS)


def test_killed_at_each_step_of_an_acceptance(make_lake: MakeLake) -> None:
    """Whoever sends it again, elsewhere, is told what it was told, or would have been; and it is there once."""
    made = make_lake()
    with lakemill.open(made.settings) as lake, Ingest(made.settings) as ingest:
        intake = Intake(lake)
        intake.table("t", "k INTEGER")
        for number, step in enumerate(ACCEPTING):
            words = [sys.executable, "-m", "tests.ingest.child", str(made.settings.root), "accept", step]
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
            assert (done.returncode, done.stdout.split()) == (-signal.SIGKILL, [step]), done.stderr
            again = [ingest.ingest(parse_name("t"), request(step)) for _ in range(2)]
            assert [one.repeated for one in again] == [step == "COMMIT", True]
            assert {one.token for one in again} == {write_token(ingest.lake_id, number + 1)}
        bodies = intake.rows("SELECT token, body::json->'p'->>'k' FROM lakemill.bus ORDER BY token")
        assert bodies == [(number + 1, str(number)) for number in range(len(ACCEPTING))]


@pytest.fixture(scope="module")
def killed(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Intake]:
    """One lake for all: making one takes longer than a kill."""
    from tests.conftest import make_lakes

    with make_lakes(postgres, tmp_path_factory.mktemp("kills")) as make, lakemill.open(make().settings) as lake:
        intake = Intake(lake)
        intake.table("t", "k INTEGER")
        yield intake


@pytest.mark.xdist_group("kills of a batch")  # they share a lake, one after the other
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_each_step(killed: Intake, step: str) -> None:
    sent = 100 * STEPS.index(step)
    killed.send("t", record("i", k=sent), record("i", k=sent + 1))
    killed.send("t", record("i", k=sent + 2))
    words = [sys.executable, "-m", "tests.ingest.child", str(killed.lake.settings.root), "by hand", step]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.split()) == (-signal.SIGKILL, [step]), done.stderr
    free_the_dead(killed.lake.conn, killed.lake.consumer)
    again = pass_by_hand(killed.lake, "t")
    assert (again is None) == (step == "committed")
    rows = killed.stock(f"SELECT k FROM t WHERE k >= {sent} ORDER BY k")
    assert rows == [(sent,), (sent + 1,), (sent + 2,)]
    head = marks(killed.lake.conn)
    assert head[0] == head[1]
    whole = killed.rows("SELECT count(*), sum(records) FROM lakemill.batches")
    assert whole == [(STEPS.index(step) + 1, 3 * (STEPS.index(step) + 1))]


def test_paused_past_its_claim_and_killed_before_its_commit(make_lake: MakeLake, spark: Any) -> None:
    """With Spark on both sides. The paused one goes on after another has passed the batch: it is refused."""
    with lakemill.open(make_lake().settings) as lake:
        intake = Intake(lake)
        table_id = intake.table("t", "k INTEGER, v INTEGER", key=["k"])
        words = [sys.executable, "-m", "tests.ingest.child", str(lake.settings.root), "at command"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child, _ended(child):
            intake.send("t", record("u", k=1, v=1), record("u", k=2, v=2))
            assert _told(child) == "ready"
            _tell(child, "connected SIGSTOP")
            assert _told(child) == "connected"
            passed = _after_expiry(intake, table_id)
            assert passed.inserted == 2
            intake.send("t", record("u", k=1, v=3), record("d", k=2))
            child.send_signal(signal.SIGCONT)
            assert _told(child) == "nothing"
            assert intake.stock("FROM t ORDER BY k") == [(1, 1), (2, 2)]
            _tell(child, "bookkept SIGKILL")
            assert _told(child) == "bookkept"
            assert child.wait(30) == -signal.SIGKILL
            assert intake.stock("FROM t ORDER BY k") == [(1, 1), (2, 2)]
            free_the_dead(lake.conn, lake.consumer)
            passed = intake.make("t")
            assert (passed.updated, passed.deleted) == (1, 1)
            assert intake.stock("FROM t") == [(1, 3)]
            assert intake.rows("SELECT first, token FROM lakemill.batches ORDER BY 1") == [(1, 1), (2, 2)]


@contextmanager
def _ended(child: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        child.kill()


def _after_expiry(intake: Intake, table_id: int) -> Any:
    end = time.monotonic() + 60
    while (passed := materialise(intake.lake, table_id)) is None:
        assert time.monotonic() < end
        time.sleep(0.1)
    return passed


def _tell(child: subprocess.Popen[str], line: str) -> None:
    assert child.stdin is not None
    child.stdin.write(line + "\n")
    child.stdin.flush()


def _told(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()
