"""`lakemill serve` as a user runs it: one process, told to stop by a signal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import lakemill
from lakemill.core.names import parse_name
from lakemill.runtime.verify import verify
from tests.conftest import MakeLake

ROOT = Path(__file__).parents[2]
SECONDS = 120


def ask(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.xdist_group("processes")  # with a JVM of its own: one such test at a time
def test_it_serves_until_it_is_told_to_stop(make_lake: MakeLake) -> None:
    given = make_lake()
    log = given.settings.root / "serve.log"
    with lakemill.open(given.settings) as lake:
        lake.sql("CREATE TABLE r AS SELECT i AS id, i % 3 AS k FROM range(9) t(i)")
        lake.create(
            "CREATE DYNAMIC TABLE d TARGET_LAG = '1 second' INITIALIZE = ON_SCHEDULE"
            " AS SELECT k, count(*) AS n FROM r GROUP BY k"
        )
        words = ["-C", str(given.settings.root), "--set", "service.log_format=json", "serve", "--port", "0"]
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "lakemill.cli.main", *words],
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
                stdout=out,
                stderr=out,
            )
        try:
            end = time.monotonic() + SECONDS
            while not (found := re.search(r"listening on (http://\S+?)\"", log.read_text())):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.2)
            while ask(f"{found[1]}/readyz")[0] != 200:
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.2)
            assert ask(f"{found[1]}/healthz") == (200, '{"status":"alive"}')
            code, tables = ask(f"{found[1]}/v1/tables")  # the API is on the same port
            assert (code, [one["table"] for one in json.loads(tables)][-1:]) == (200, ["main.r"])
            done = 'lakemill_refresh_total{action="INITIALIZE",status="SUCCEEDED"} 1.0'
            while done not in ask(f"{found[1]}/metrics")[1]:
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.2)
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)
        assert code == 0, log.read_text()
        assert verify(lake, parse_name("d")).equal
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        (refreshed,) = (line for line in lines if line.get("event") == "refresh")
        assert (refreshed["table"], refreshed["action"], refreshed["rows_inserted"]) == ("main.d", "INITIALIZE", 3)
        assert lake.conn.execute("SELECT count(*) FROM lakemill.workers").fetchone() == (0,), "it said goodbye"
