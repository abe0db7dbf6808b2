"""``make bench-query``: what the gateway costs, beside stock DuckDB in this process on the same lake.

*Small*: a lookup of one row and a count, one after the other: how long until the last row is there. DuckDB is asked on
a connection that is open and warm, and on one that is opened for the query, as somebody must who has no gateway.
*Stream*: a million rows as Arrow. *Crowd*: small queries of several threads, how many a second. PostgreSQL is the
embedded one with fsync on.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bench.measure import Report, ratio, take_turns
from lakemill.gateway.gate import Gateway
from lakemill.gateway.question import Question
from lakemill.lake import duck
from lakemill.settings import Settings
from lakemill.store.embedded import EmbeddedPostgres

ROWS = 1_000_000
SMALL = {"one row": "SELECT * FROM events WHERE id = 777777", "count": "SELECT count(*) FROM events WHERE kind = 3"}
STREAM = "SELECT * FROM events"
MAKE = f"""CREATE TABLE events AS SELECT i AS id, (i % 10)::INTEGER AS kind, (i * 7 % 1000) / 8.0 AS amount,
  TIMESTAMP '2026-01-01' + INTERVAL (i) SECOND AS at, 'customer ' || i % 5000 AS customer FROM range({ROWS}) r(i)"""


@contextmanager
def new_lake(executors: int) -> Iterator[tuple[Settings, str]]:
    root = Path(tempfile.mkdtemp(prefix="lakemill-bench-"))
    server = EmbeddedPostgres(root / ".lakemill" / "postgres")
    try:
        settings = Settings.load(root, {"duck.threads": 2, "query.executors": executors, "query.queue_timeout": "1m"})
        dsn = server.start()
        with duck.connect(settings, dsn, create=True, inline=0) as connection:
            connection.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
            connection.execute(MAKE)
        yield settings, dsn
    finally:
        server.stop()
        shutil.rmtree(root, ignore_errors=True)


def through(gateway: Gateway, sql: str) -> int:
    """Every row is taken off the stream; how many bytes."""
    with gateway.query(Question(sql)) as answer:
        return sum(batch.nbytes for batch in answer)


def in_process(connection: duck.Connection, sql: str) -> int:
    return sum(batch.nbytes for batch in connection.execute(sql).to_arrow_reader(8192))


def opened(settings: Settings, dsn: str, sql: str) -> int:
    with duck.connect(settings, dsn, read_only=True) as connection:
        return in_process(connection, sql)


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, round(share * len(values)))]


def small(report: Report, settings: Settings, dsn: str, gateway: Gateway, rounds: int) -> None:
    with duck.connect(settings, dsn, read_only=True) as connection:
        for name, sql in SMALL.items():
            seconds = take_turns(
                {
                    "gateway": lambda sql=sql: through(gateway, sql),  # type: ignore[misc]
                    "in process, open": lambda sql=sql: in_process(connection, sql),  # type: ignore[misc]
                    "in process, opened for it": lambda sql=sql: opened(settings, dsn, sql),  # type: ignore[misc]
                },
                rounds=rounds,
                warm_up=3,
            )
            for who, runs in seconds.items():
                report.add(f"small: {name}", f"{who}, p50", 1000 * statistics.median(runs), unit="ms")
                report.add(f"small: {name}", f"{who}, p99", 1000 * percentile(runs, 0.99), unit="ms")


def stream(report: Report, settings: Settings, dsn: str, gateway: Gateway, rounds: int) -> None:
    with duck.connect(settings, dsn, read_only=True) as connection:
        size = in_process(connection, STREAM)
        seconds = take_turns(
            {"gateway": lambda: through(gateway, STREAM), "in process": lambda: in_process(connection, STREAM)},
            rounds=rounds,
        )
    for who, runs in seconds.items():
        report.add("stream of 1M rows", who, size / statistics.median(runs) / 1e6, unit="MB/s")
    share = 1 / ratio(seconds, "gateway", "in process")
    report.add("stream of 1M rows", "gateway / in process", share, unit="×", target="≥ 0.5", met=share >= 0.5)


def crowd(report: Report, gateway: Gateway, queries: int) -> None:
    for threads in (1, 2, 4):
        with ThreadPoolExecutor(threads) as pool:
            began = time.perf_counter()
            list(pool.map(lambda _: through(gateway, SMALL["one row"]), range(queries)))
            rate = queries / (time.perf_counter() - began)
        report.add("crowd", f"{threads} at a time", rate, unit="queries/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--output", type=Path, default=Path("bench/results/query.json"))
    given = parser.parse_args()
    report = Report()
    with new_lake(executors=4) as (settings, dsn), Gateway(settings, dsn) as gateway:
        gateway.warm()
        small(report, settings, dsn, gateway, given.rounds)
        stream(report, settings, dsn, gateway, max(3, given.rounds // 10))
        crowd(report, gateway, given.rounds)
    report.finish(given.output)


if __name__ == "__main__":
    main()
