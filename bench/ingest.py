"""``make bench-ingest``: how many events a second are accepted, and how long a request takes to be durable.

1, 100 and 1,000 records a request from 1, 4 and 16 clients, with one key a request and with one a record: straight into
`runtime/ingest` in one process (*direct*), and through `lakemill api` in a process of its own (*http*). The same rows
by INSERT of the DuckDB extension, for comparison. PostgreSQL is the embedded one with fsync on, as a user has it;
clients, service and PostgreSQL share the machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from bench.measure import Report
from lakemill.core.names import parse_name
from lakemill.lake import duck
from lakemill.lake.tables import parse_columns
from lakemill.runtime import ingest_tables
from lakemill.runtime.bodies import parse
from lakemill.runtime.ingest import Ingest
from lakemill.settings import Settings
from lakemill.store.embedded import EmbeddedPostgres
from tests.s3.server import free_ports

COLUMNS = "id BIGINT NOT NULL, customer INTEGER, price DECIMAL(10,2), at TIMESTAMPTZ, note VARCHAR"
NAME = parse_name("events")
GOALS = {("direct", 1000, "request"): 100_000, ("direct", 1000, "record"): 30_000}
"""Events a second that issue 6 asks for, by the best number of clients."""
FLAGS = {"ingest.backlog_records": 10**9, "ingest.backlog_bytes": 10**12, "ingest.backlog_age": "1 day"}
"""Nobody makes it visible here: that half is measured by itself."""
Send = Callable[[bytes, str | None], None]


def body(records: int, keyed: bool) -> bytes:
    """A request of small events, about 120 bytes each; each has a key of its own where ``keyed``."""
    mark = uuid.uuid4().hex
    rows = (
        {"id": n, "customer": n % 997, "price": f"{n % 500 + 1}.25", "at": "2026-01-01T12:00:00Z", "note": f"event {n}"}
        for n in range(records)
    )
    made = [{"payload": row, **({"idempotency_key": f"{mark}.{n}"} if keyed else {})} for n, row in enumerate(rows)]
    return json.dumps({"records": made}).encode()


def measure(report: Report, way: str, send: Callable[[], Send], seconds: float, clients: list[int]) -> None:
    for per in ("request", "record"):
        for records in (1, 100, 1000):
            best = 0.0
            for count in clients:
                rate, times = _run(send, records, per == "record", count, seconds)
                best = max(best, rate)
                what = f"{way}, a key a {per}, {records:,} records, {count} clients"
                report.add(what, "events a second", rate, unit="")
                for share, at in (("half", 0.5), ("95 of 100", 0.95), ("99 of 100", 0.99)):
                    value = times[min(len(times) - 1, int(len(times) * at))] * 1000
                    moderate = way == "http" and records == 100 and count == 4 and at == 0.95 and per == "request"
                    report.at_most(what, f"accepted within, {share}", value, 50 if moderate else None, unit="ms")
            goal = GOALS.get((way, records, per))
            if goal is not None:
                report.add(
                    f"{way}, a key a {per}, {records:,} records",
                    "most",
                    best,
                    unit="",
                    target=f"≥ {goal:,}",
                    met=best >= goal,
                )


def _run(
    send: Callable[[], Send], records: int, keyed: bool, clients: int, seconds: float
) -> tuple[float, list[float]]:
    bodies = [[body(records, keyed) for _ in range(40 if keyed else 1)] for _ in range(clients)]
    times: list[float] = []
    senders = [send() for _ in range(clients)]
    until = time.monotonic() + seconds

    def client(own: list[bytes], sending: Send) -> None:
        number = 0
        while time.monotonic() < until:
            if keyed and number >= len(own):
                own.append(body(records, keyed))
            started = time.perf_counter()
            sending(own[number if keyed else 0], None if keyed else uuid.uuid4().hex)
            times.append(time.perf_counter() - started)
            number += 1

    started = time.monotonic()
    threads = [threading.Thread(target=client, args=pair) for pair in zip(bodies, senders, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(times) * records / (time.monotonic() - started), sorted(times)


def direct(ingest: Ingest) -> Callable[[], Send]:
    def sender() -> Send:
        def send(sent: bytes, key: str | None) -> None:
            ingest.ingest(NAME, parse(sent, most=10**8).under(key))

        return send

    return sender


def http(url: str) -> Callable[[], Send]:
    def sender() -> Send:
        client = httpx.Client(timeout=60, verify=False)  # to make a context for TLS takes longer than a case

        def send(sent: bytes, key: str | None) -> None:
            headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
            client.post(f"{url}/v1/ingest/events", content=sent, headers=headers).raise_for_status()

        return send

    return sender


def extension(report: Report, settings: Settings, dsn: str, seconds: float) -> None:
    """What a client that writes by itself gets: one INSERT, one snapshot."""
    with duck.connect(settings, dsn) as connection:
        connection.execute("CREATE TABLE compared AS FROM events LIMIT 0")
        for records in (1, 100, 1000):
            row = "(1, 2, 3.25, TIMESTAMPTZ '2026-01-01 12:00:00Z', 'event')"
            statement = f"INSERT INTO compared VALUES {', '.join([row] * records)}"
            until, times = time.monotonic() + seconds, []
            while time.monotonic() < until:
                started = time.perf_counter()
                connection.execute(statement)
                times.append(time.perf_counter() - started)
            report.add(
                f"INSERT of the extension, {records:,} rows",
                "events a second",
                records / statistics.mean(times),
                unit="",
            )


@contextmanager
def served(root: Path) -> Iterator[str]:
    """`lakemill api`, in a process of its own."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    (root / "lakemill.toml").touch()  # a lake's folder has one
    flags = [word for name, value in FLAGS.items() for word in ("--set", f"{name}={value}")]
    words = [sys.executable, "-m", "lakemill.cli.main", "-C", str(root), *flags, "api", "--port", str(port)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            with suppress(httpx.TransportError):
                if httpx.get(f"{url}/readyz").is_success:
                    break
            assert process.poll() is None, "the API ended"
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def _settings(root: Path) -> Settings:
    return Settings.load(root, FLAGS)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ingest", description=__doc__)
    parser.add_argument("--parts", default="direct,http,extension")
    parser.add_argument("--clients", default="1,4,16")
    parser.add_argument("--seconds", type=float, default=5, help="how long each case runs")
    parser.add_argument("--out", type=Path, default=Path("bench/results/ingest.json"))
    given = parser.parse_args()
    report, clients = Report(), [int(count) for count in given.clients.split(",")]
    root = Path(tempfile.mkdtemp(prefix="lakemill-bench-"))
    server = EmbeddedPostgres(root / ".lakemill" / "postgres")
    try:
        settings, dsn = _settings(root), server.start()
        with duck.connect(settings, dsn, create=True, inline=0) as connection:
            connection.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
        with Ingest(settings) as ingest:
            ingest_tables.create(ingest.lake, NAME, parse_columns(COLUMNS))
            if "direct" in given.parts:
                measure(report, "direct", direct(ingest), given.seconds, clients)
        if "http" in given.parts:
            with served(root) as url:
                measure(report, "http", http(url), given.seconds, clients)
        if "extension" in given.parts:
            extension(report, settings, dsn, given.seconds)
    finally:
        server.stop()
        shutil.rmtree(root, ignore_errors=True)
    report.finish(given.out)


if __name__ == "__main__":
    main()
