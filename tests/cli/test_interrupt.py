"""Ctrl-C: exit code 130, one word, and nothing half-done; in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import TestLake


def interrupted(words: list[str], ready: Callable[[], bool], **environment: str) -> tuple[int, str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "lakemill.cli.main", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores Ctrl-C
    )
    until = time.monotonic() + 60
    while not ready() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    return process.returncode, err


def test_a_script_on_its_way(lake: TestLake) -> None:
    with lake.duck() as duck:
        duck.execute("CREATE TABLE t AS SELECT 1 AS id")
    before = sorted(lake.settings.root.rglob("*.parquet"))

    def writing() -> bool:
        return len(sorted(lake.settings.root.rglob("*.parquet"))) > len(before)

    script = (
        "INSERT INTO t VALUES (2); CREATE TABLE big AS SELECT i, random() AS r FROM range(2000000000) x(i) ORDER BY r"
    )
    code, err = interrupted(["-C", str(lake.settings.root), "--set", "duck.memory_limit=1GB", "sql", script], writing)
    assert (code, err.strip()) == (130, "interrupted")
    with lake.duck() as duck:
        assert duck.execute("FROM t").fetchall() == [(1,)]
        assert duck.execute("SELECT max(snapshot_id) FROM lake.snapshots()").fetchall() == [(1,)]


@pytest.mark.parametrize("moment", ["server", "catalog"])
def test_a_lake_in_the_making(tmp_path: Path, moment: str) -> None:
    """Interrupted while the embedded server starts, and while it holds a catalog but no settings file yet."""
    root = tmp_path / "lake"
    folder = root / ".lakemill" / "postgres"

    def ready() -> bool:
        return folder.is_dir() if moment == "server" else (root / "data").is_dir()

    code, err = interrupted(["init", str(root)], ready)
    if code == 0:
        pytest.skip("it was ready before the signal came")
    assert (code, err.strip()) == (130, "interrupted")
    assert list(tmp_path.iterdir()) == []


def test_a_closed_pipe(lake: TestLake) -> None:
    """`lakemill sql … | head -1` ends without a word."""
    words = ["-C", str(lake.settings.root), "sql", "FROM range(200000)", "--format", "csv"]
    with subprocess.Popen(
        [sys.executable, "-m", "lakemill.cli.main", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "range\n"
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141
