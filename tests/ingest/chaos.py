"""``python -m tests.ingest.chaos --kills N --seed S``: ingest and query under kills, judged by a model when it is over.

Two APIs, two coordinators with a JVM each, and PostgreSQL, each a process; 64 producers in four processes write to
three tables, and four checkers read their own writes. One after the other something is killed (−9): a producer, an API,
a coordinator, its JVM, PostgreSQL or one of its backends; or a coordinator is paused past its claim, and goes on.
Afterwards everything that was acknowledged is there once, and nobody saw anything too early or too late.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import httpx

import lakemill
from lakemill.errors import LakemillError
from lakemill.store import db
from tests.conftest import CONFINEMENT
from tests.ingest.journal import Journals, Kind
from tests.ingest.model import Kept, judge
from tests.s3.server import free_ports
from tests.stage import Stage, main

SERVICE = f"""
[service]
retry_base = "200ms"
retry_cap = "2s"
stop_grace = "5s"
[ingest]
interval = "200ms"
claim_expiry = "6s"
[query]
executors = 2
threads = 1
confinement = "{CONFINEMENT}"
[spark]
master = "local[1]"
driver_memory = "600m"
[duck]
threads = 1
"""
CLAIM = 6.0
CALM = 8
"""Of so many kills one waits until everything is visible."""
SETTLED = 240.0
LOOKS = ("read", "visible", "glance")
TABLES: dict[Kind, dict[str, object]] = {
    "plain": {"columns": "req VARCHAR, i INTEGER, v BIGINT"},
    "keyed": {"columns": "k INTEGER, v BIGINT, req VARCHAR, i INTEGER", "key": ["k"]},
    "noted": {"columns": "req VARCHAR, i INTEGER, v BIGINT", "policy": "dead_letter"},
}
WAYS = {"producer": 3, "api": 4, "coordinator": 4, "jvm": 3, "pause": 2, "backend": 2, "postgres": 2}


@dataclass(frozen=True, slots=True)
class Size:
    coordinators: int = 2
    producers: int = 4
    threads: int = 16
    checkers: int = 4


class Chaos(Stage):
    def __init__(self, root: Path, seed: int, size: Size | None = None) -> None:
        super().__init__(root, SERVICE)  # durable, unlike that of other tests: what it acknowledged stays after a kill
        self.rng, self.size = Random(f"chaos of ingest {seed}"), size or Size()
        self.journals = root / "journals"
        self.journals.mkdir()
        self.ports = dict(zip(("api0", "api1"), free_ports(2), strict=True))
        self.urls = [f"http://127.0.0.1:{port}" for port in self.ports.values()]
        self.coordinators = [f"coordinator{number}" for number in range(self.size.coordinators)]
        self.producers = [f"p{number}" for number in range(self.size.producers)]
        self.checkers = [f"c{number}" for number in range(self.size.checkers)]
        self.found = Journals()

    # ------------------------------------------------------------ processes
    def start(self, name: str) -> None:
        if name in self.ports:
            words = [*self.command, "api", "--port", str(self.ports[name])]
        elif name in self.coordinators:
            words = [*self.command, "coordinator", "--port", "0"]
        elif name in self.producers:
            words = ["-m", "tests.ingest.producers", str(self.journals), name, str(self.size.threads), *self.urls]
        else:
            words = ["-m", "tests.ingest.checkers", str(self.journals), name, *self.urls]
        self.spawn(name, words)

    def kill(self, name: str) -> None:
        process = self.processes[name]
        process.kill()
        process.wait()
        time.sleep(self.rng.choice((0, 0, 1, 3)))
        self.start(name)

    def at_work(self, patience: float = 60.0) -> str:
        """A coordinator that has a table at this moment; any, where none does."""
        until = time.monotonic() + patience
        while time.monotonic() < until:
            with suppress(LakemillError, *db.LOST), db.connect(self.server.start()) as conn:
                query = "SELECT holder FROM lakemill.ingest_tables WHERE expires_at > clock_timestamp()"
                holders = {int(holder.split(":")[1]) for (holder,) in conn.execute(query).fetchall()}
                if busy := [name for name in self.coordinators if self.processes[name].pid in holders]:
                    return self.rng.choice(busy)
            time.sleep(0.02)
        return self.rng.choice(self.coordinators)

    def calm(self, patience: float = 60.0) -> None:
        """All that was accepted so far has passed, or it takes long: nobody would read anything otherwise."""
        head, until = self._head()[0], time.monotonic() + patience
        while self._head()[1] < head and time.monotonic() < until:
            time.sleep(0.3)

    # ------------------------------------------------------------ harm
    def harm(self, way: str) -> None:
        """One of the ways in which things go wrong, at a random moment."""
        time.sleep(self.rng.uniform(0.5, 6))
        self.did[way] += 1
        {
            "producer": lambda: self.kill(self.rng.choice(self.producers)),
            "api": lambda: self.kill(self.rng.choice(list(self.ports))),
            "coordinator": self._kill_at_work,
            "jvm": self._kill_jvm,
            "pause": self._pause,
            "backend": self._kill_backend,
            "postgres": self._kill_postgres,
        }[way]()

    def _kill_at_work(self) -> None:
        name = self.at_work()
        time.sleep(self.rng.uniform(0, 0.7))
        self.kill(name)

    def _kill_jvm(self) -> None:
        """The coordinator lives on, and has to find another."""
        below = _below(self.processes[self.at_work()].pid)
        for pid in [pid for pid, name in below if name == "java"]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _pause(self) -> None:
        """Past its claim; what it held passes to others, where there are any, before it goes on."""
        process = self.processes[self.at_work()]
        time.sleep(self.rng.uniform(0, 0.3))
        process.send_signal(signal.SIGSTOP)
        time.sleep(CLAIM + self.rng.uniform(0.2, 4))
        process.send_signal(signal.SIGCONT)

    def _kill_backend(self) -> None:
        """Any of those that serve us: PostgreSQL ends all others, and recovers by itself."""
        with suppress(LakemillError, *db.LOST), db.connect(self.server.start()) as conn:
            query = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            pids = [row[0] for row in conn.execute(query).fetchall()]
            with suppress(ProcessLookupError):
                os.kill(self.rng.choice(pids), signal.SIGKILL)

    def _kill_postgres(self) -> None:
        if (postmaster := self.server.status().pid) is not None:  # else somebody is just starting it
            with suppress(ProcessLookupError):
                os.kill(postmaster, signal.SIGKILL)
        time.sleep(self.rng.choice((0, 1, 4)))
        self.server.start()

    # ------------------------------------------------------------ all of it
    def some(self, kills: int) -> list[str]:
        """Ways in which things go wrong."""
        return self.rng.choices(list(WAYS), list(WAYS.values()), k=kills)

    def run(self, ways: Sequence[str]) -> None:
        try:
            for name in (*self.ports, *self.coordinators):
                self.start(name)
            self._until(lambda: all(_answers(url) for url in self.urls), "the APIs do not answer")
            for table, words in TABLES.items():
                pairs = [column.split(" ") for column in str(words["columns"]).split(", ")]
                columns = [{"name": name, "type": type_} for name, type_ in pairs]
                body = {"name": f"main.{table}", **words, "columns": columns}
                httpx.post(f"{self.urls[0]}/v1/tables", json=body, timeout=60, trust_env=False).raise_for_status()
            for name in (*self.producers, *self.checkers):
                self.start(name)
            self._until(lambda: self._head()[1] > 0, "nothing becomes visible")
            for number, way in enumerate(ways):
                if number % CALM == CALM - 1:
                    self.calm()
                self.harm(way)
                if (number + 1) % 10 == 0:
                    print(f"{time.strftime('%H:%M:%S')} {number + 1} kills: {self.told()}", flush=True)
            self.settle()
            self.judge()
        finally:
            self.end()

    def settle(self) -> None:
        """Nobody sends any more, and all that was sent has passed."""
        clients = [self.processes[name] for name in (*self.producers, *self.checkers)]
        for process in clients:
            process.terminate()
        for process in clients:
            process.wait(180)
        self._until(lambda: len(set(self._head())) == 1, "it does not settle")

    def judge(self) -> None:
        self.found = Journals.read(self.journals.glob("*.jsonl"))
        with lakemill.open(self.settings) as lake:
            wrong = judge(Kept.read(lake), self.found, lake.sql)
        for name in (*self.ports, *self.coordinators):
            lines = (self.root / f"{name}.log").read_text().splitlines()
            wrong += [f"{name} logs {line}" for line in lines if "INTERNAL_ERROR" in line]
        print(self.told(), flush=True)
        assert not wrong, "\n".join(wrong[:40])

    def told(self) -> str:
        found = Journals.read(self.journals.glob("*.jsonl"))
        keys = Counter(told.key for told in found.answers)
        looks = {what: sorted(seconds for one, seconds in found.seen if one == what) for what in LOOKS}
        fenced = sum((self.root / f"{name}.log").read_text().count("CLAIM_LOST") for name in self.coordinators)
        times = {
            what: f"{len(of)} (p50 {of[len(of) // 2]:.2f} s, p95 {of[len(of) * 95 // 100]:.2f} s)"
            for what, of in looks.items()
            if of
        }
        return (
            f"{dict(self.did)}; {len(found.requests)} requests, {len(keys)} answered,"
            f" {sum(count > 1 for count in keys.values())} of them several times, head and watermark {self._head()};"
            f" turned away {dict(Counter(found.turned_away))}; looks {times}; fenced {fenced};"
            f" wrong {len(found.wrong)} {found.wrong[:2]}"
        )

    def _head(self) -> tuple[int, int]:
        """The last token, and the watermark; while nobody can tell, anything that is not settled."""
        with suppress(LakemillError, *db.LOST), db.connect(self.server.start()) as conn:
            row = conn.execute("SELECT token, watermark FROM lakemill.bus_head").fetchone()
            return (0, 0) if row is None else (row[0], row[1])
        return (-1, 0)

    def _until(self, done: Callable[[], bool], otherwise: str) -> None:
        end = time.monotonic() + SETTLED
        while not done():
            assert time.monotonic() < end, f"{otherwise}: {self.told()}"
            time.sleep(0.5)


def _answers(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"{url}/readyz", timeout=5, trust_env=False).is_success
    return False


def _below(pid: int) -> list[tuple[int, str]]:
    """Processes that a process started, and those started; with their names."""
    parents: dict[int, list[tuple[int, str]]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            number, _, rest = stat.read_text().partition(" (")
            name, _, fields = rest.rpartition(") ")
            parents.setdefault(int(fields.split()[1]), []).append((int(number), name))
    found, todo = [], [pid]
    while todo:
        below = parents.get(todo.pop(), [])
        found += below
        todo += [number for number, _ in below]
    return found


if __name__ == "__main__":
    sys.exit(main("tests.ingest.chaos", __doc__, Chaos, lambda chaos, kills: chaos.run(chaos.some(kills))))
