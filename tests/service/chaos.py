"""``python -m tests.service.chaos --kills N --seed S``: the service under kills, judged by DuckDB when it has settled.

A scheduler and two workers, each a process, keep a graph of six tables fresh while stock DuckDB writes. One after the
other a process is killed (−9), a worker is paused past its claim and goes on, PostgreSQL is killed; each time while a
refresh runs, and after others have succeeded. Of what a paused worker was at, nothing may be published after its pause.
Afterwards nobody is harmed: every table becomes fresh, equals its query, no refresh is left half done, and no publish
came after one with a later fence. Spark runs in the workers' own JVMs, so there are no executors to kill:
``tests/spark/test_cluster`` does that.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

import lakemill
from lakemill.core.names import parse_name
from lakemill.errors import LakemillError
from lakemill.lake import duck
from lakemill.runtime.verify import verify
from lakemill.store import db, work
from tests.stage import Stage, main

SERVICE = """
[service]
tick = "300ms"
claim_expiry = "8s"
heartbeat = "2s"
retry_base = "200ms"
stop_grace = "5s"
[spark]
master = "local[1]"
driver_memory = "600m"
[duck]
threads = 1
"""
PAUSE = 10.0
"""Seconds: longer than a claim lives."""
SETTLED = 400.0
WORK = 40.0
"""Seconds for which work is awaited: two workers that were just killed have two JVMs to start."""
_AT_WORK = """
SELECT bool_or(outcome = 'SUCCEEDED' AND action <> 'NO_DATA' AND ended_at > %s),
  bool_or(outcome = 'EXECUTING' AND started_at > %s)
FROM lakemill.refreshes
"""
_PAUSED = """
SELECT refresh_id, clock_timestamp() FROM lakemill.refreshes WHERE outcome = 'EXECUTING' AND holder LIKE %s
"""
_ENDED = "SELECT refresh_id, outcome, error_code, ended_at FROM lakemill.refreshes WHERE refresh_id = ANY(%s)"
_OVERTAKEN = """
SELECT table_name, fence, before FROM (
  SELECT table_name, fence, max(fence) OVER (PARTITION BY dynamic_id ORDER BY commit_snapshot, ended_at
                                             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
  FROM lakemill.refreshes WHERE outcome = 'SUCCEEDED' AND action <> 'NO_DATA' AND fence IS NOT NULL) r
WHERE fence < before
"""
TRIES = 20
TABLES = {
    "a": ("SELECT k, count(*) AS n, sum(v) AS v FROM r GROUP BY k", "'2 seconds'"),
    "b": ("SELECT r.id, s.w FROM r JOIN s ON r.k = s.k", "'3 seconds'"),
    "c": ("SELECT n, count(*) AS m FROM a GROUP BY n", "DOWNSTREAM"),
    "d": ("SELECT a.k, a.n, b.id FROM a JOIN b ON a.n = b.w", "'5 seconds'"),
    "e": ("SELECT sum(m) AS m FROM c", "'4 seconds'"),
    "f": ("SELECT k, max(id) AS top FROM d GROUP BY k", "'5 seconds'"),
}


class Chaos(Stage):
    def __init__(self, root: Path, seed: int) -> None:
        super().__init__(root, SERVICE, fast=True)
        self.rng = Random(f"chaos {seed}")
        self.writes: Counter[str] = Counter()
        self.at_work = 0
        self.met: list[tuple[str, Any, datetime]] = []
        """Refreshes that a worker was at when it was paused, and when that was."""
        self.paused: Counter[str] = Counter()
        """How these ended."""

    # ------------------------------------------------------------ the service
    def start(self, name: str) -> None:
        words = ["scheduler"] if name == "scheduler" else ["worker", "--name", name, "--slots", "2"]
        self.spawn(name, [*self.command, *words, "--port", "0"])

    def kill(self, name: str) -> None:
        process = self.processes[name]
        process.kill()
        process.wait()
        self.start(name)

    def harm(self) -> None:
        """One of the ways in which things go wrong, at a random moment; the first is a pause, in a short run too."""
        self.await_work()
        way = self.rng.choices(["worker", "scheduler", "pause", "postgres"], [6, 2, 2, 1])[0]
        way = way if self.did else "pause"
        if way != "pause":  # that wants to meet a refresh
            time.sleep(self.rng.uniform(0, 1.5))
        worker = self.rng.choice(["w1", "w2"])
        self.did[way] += 1
        if way == "worker":
            self.kill(worker)
        elif way == "scheduler":
            self.kill("scheduler")
        elif way == "pause":
            self.pause(worker)
        else:
            if (postmaster := self.server.status().pid) is not None:  # else somebody is just starting it
                os.kill(postmaster, signal.SIGKILL)
            time.sleep(1)
            self.server.start()

    def pause(self, worker: str) -> None:
        """Past its claim; whatever it was at must not be published any more."""
        process = self.processes[worker]
        holder = f"{socket.gethostname()}:{process.pid}:%"
        for _ in range(TRIES):
            process.send_signal(signal.SIGSTOP)
            met = self._ask(_PAUSED, holder)
            if met:
                break
            process.send_signal(signal.SIGCONT)
            time.sleep(self.rng.uniform(0.1, 0.6))
        process.send_signal(signal.SIGSTOP)
        time.sleep(PAUSE)
        process.send_signal(signal.SIGCONT)
        self.met += [(worker, row[0], row[1]) for row in met]
        self.paused["idle"] += not met

    def judge_paused(self) -> None:
        """Each was refused, or had nothing to publish; one that came to its COMMIT before the pause may be there."""
        found = {row[0]: row[1:] for row in self._ask(_ENDED, [refresh for _, refresh, _ in self.met])}
        for worker, refresh, stopped in self.met:
            outcome, code, ended = found[refresh]
            assert outcome != "EXECUTING", f"{worker} never ended what it was at when it was paused"
            late = outcome == "SUCCEEDED" and ended > stopped
            assert not late, f"{worker} was paused at {stopped}, and at {ended} it published what it was at"
            self.paused["before" if outcome == "SUCCEEDED" else code or outcome] += 1

    def _ask(self, query: str, *values: Any) -> list[Any]:
        with closing(db.connect(self.server.start())) as conn:
            return conn.execute(query, values).fetchall()

    def await_work(self) -> None:
        """Until a refresh has succeeded and another runs since the last harm: who is idle has nothing to lose."""
        until, since = time.monotonic() + WORK, datetime.now(UTC)
        while time.monotonic() < until:
            with suppress(LakemillError, *db.LOST), closing(db.connect(self.server.start())) as conn:
                while time.monotonic() < until:
                    if conn.execute(_AT_WORK, [since, since]).fetchone() == (True, True):
                        self.at_work += 1
                        return
                    time.sleep(0.05)
            time.sleep(0.5)

    # ------------------------------------------------------------ the writer
    def write(self, stop: Event) -> None:
        number = 0
        while not stop.is_set():
            with (
                suppress(LakemillError, duck.DuckError),
                duck.connect(self.settings, self.server.start()) as connection,
            ):
                while not stop.wait(self.rng.uniform(0.1, 0.6)):
                    number += 1
                    statement = self.rng.choice(
                        [
                            f"INSERT INTO r SELECT {number * 100} + i, i % 7, i FROM range(20) t(i)",
                            f"DELETE FROM r WHERE id % 170 = {number % 170}",
                            f"UPDATE r SET k = (k + 1) % 7 WHERE id % 130 = {number % 130}",
                            f"UPDATE s SET w = w + 1 WHERE k = {number % 7}",
                        ]
                    )
                    try:
                        connection.execute(statement)
                        self.writes["done"] += 1
                    except duck.DuckError:  # two commits met, or PostgreSQL was killed: it did not happen, or it did
                        self.writes["failed"] += 1
                        break

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Beside the body."""
        stop = Event()
        writer = Thread(target=self.write, args=(stop,))
        writer.start()
        try:
            yield
        finally:
            stop.set()
            writer.join()

    # ------------------------------------------------------------ all of it
    def run(self, kills: int) -> None:
        with lakemill.open(self.settings) as lake:
            lake.sql("CREATE TABLE r AS SELECT i AS id, i % 7 AS k, i AS v FROM range(5000) t(i)")
            lake.sql("CREATE TABLE s AS SELECT i AS k, i * 2 AS w FROM range(7) t(i)")
            for name, (query, lag) in TABLES.items():
                lake.create(f"CREATE DYNAMIC TABLE {name} TARGET_LAG = {lag} INITIALIZE = ON_SCHEDULE AS {query}")
        try:
            for name in ("scheduler", "w1", "w2"):
                self.start(name)
            self.settle()  # loaded once, so that kills meet refreshes of every kind
            with self.writing():
                for number in range(1, kills + 1):
                    self.harm()
                    if number % 10 == 0:
                        told = f"{number} kills: {dict(self.did)}, {dict(self.writes)}"
                        print(f"{time.strftime('%H:%M:%S')} {told}", flush=True)
            self.settle()
            self.judge()
        finally:
            self.end()

    def settle(self) -> None:
        """Until every table has seen the last write, and nothing is left to do."""
        until = time.monotonic() + SETTLED
        while True:
            with suppress(LakemillError, *db.LOST), lakemill.open(self.settings) as lake:
                row = lake.sql("SELECT max(snapshot_id) FROM lake.snapshots() WHERE author IS NULL").fetchone()
                known = work.known(lake.conn)
                if row and all(one.version is not None and one.version.b_hi >= row[0] for one in known):
                    return
            assert time.monotonic() < until, f"it does not settle: {self.told(lake)}"
            time.sleep(0.5)

    def told(self, lake: Any) -> list[str]:
        return [f"{one.name}: {one.table.state.value}, lag {one.lag}" for one in lake.dynamic_tables()]

    def judge(self) -> None:
        with lakemill.open(self.settings) as lake:
            for name in TABLES:
                found = verify(lake, parse_name(name))
                assert found.equal, found
            states = {str(one.name): one.table.state.value for one in lake.dynamic_tables()}
            assert set(states.values()) == {"ACTIVE"}, states
            outcomes = lake.conn.execute(
                "SELECT outcome, coalesce(error_code, action), count(*) FROM lakemill.refreshes"
                " GROUP BY 1, 2 ORDER BY 1, 2"
            ).fetchall()
            internal = [row for row in outcomes if row[1] == "INTERNAL_ERROR"]
            assert not internal, self.logs()
            self.judge_paused()
            overtaken = lake.conn.execute(_OVERTAKEN).fetchall()
            assert not overtaken, f"published after one with a later fence: {overtaken}"
            harmed = f"{dict(self.did)}, {self.at_work} of them while a refresh ran; paused {dict(self.paused)}"
            print(f"{harmed}; writes {dict(self.writes)}; refreshes {outcomes}", flush=True)


if __name__ == "__main__":
    sys.exit(main("tests.service.chaos", __doc__, Chaos, Chaos.run))
