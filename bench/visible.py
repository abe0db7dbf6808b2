"""What becomes visible, and how soon: a part of ``make bench-ingest``; alone: ``python -m bench.visible``.

Requests are put into the bus at a steady rate, as the accepting half would, while a coordinator makes batches of them
in this process. Of every request the time from its acceptance to the commit of its batch is taken, after a warm-up;
then the rate at which a backlog is worked off, with nobody sending.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from bench.lakes import new_lake
from bench.measure import Report
from lakemill.core.records import columns_version
from lakemill.runtime.coordinator import Coordinator
from lakemill.runtime.open import Lake
from lakemill.store import db, watermarks, work

_LINE = (
    '{{"o":"{o}","p":{{"id":{id},"name":"customer {id}","amount":"12.34","sent":"2026-01-01T00:00:00.123456Z",'
    '"flag":true,"note":"a text that makes an event of about two hundred and fifty bytes, as events are"}}}}'
)
_COLUMNS = "id BIGINT, name VARCHAR, amount DECIMAL(10,2), sent TIMESTAMPTZ, flag BOOLEAN, note VARCHAR"
_PUT = """
WITH head AS (UPDATE lakemill.bus_head SET token = token + 1 RETURNING token)
INSERT INTO lakemill.bus (token, table_id, columns, records, bytes, body)
SELECT token, %(table_id)s, %(columns)s, %(records)s, %(bytes)s, %(body)s FROM head
"""
_WAITED = """
SELECT extract(epoch FROM (SELECT passed_at FROM lakemill.batches p WHERE p.table_id = b.table_id AND p.token >= b.token
                           ORDER BY p.token LIMIT 1) - b.accepted_at)::float8
FROM lakemill.bus b WHERE b.table_id = %s AND b.token > %s ORDER BY b.token
"""


def put(conn: db.Connection, table_id: int, version: str, records: int, start: int, operation: str = "i") -> None:
    body = "\n".join(_LINE.format(o=operation, id=start + i) for i in range(records))
    values = {"table_id": table_id, "columns": version, "records": records, "bytes": len(body), "body": body}
    conn.execute(_PUT, values)
    conn.execute("SELECT pg_notify(%s, '')", (work.ACCEPTED,))


def make(lake: Lake, name: str, key: tuple[str, ...] = ()) -> tuple[int, str]:
    lake.sql(f"CREATE TABLE {name} ({_COLUMNS})")
    table = lake.table(name).describe()
    lake.conn.execute("INSERT INTO lakemill.ingest_tables (table_id, key) VALUES (%s, %s)", (table.id, list(key)))
    return table.id, columns_version(table.columns)


@contextmanager
def coordinating(lake: Lake) -> Iterator[None]:
    stop, coordinator = Event(), Coordinator(lake.settings)
    coordinator._tidied = time.monotonic()  # requests stay, to be looked at afterwards
    thread = Thread(target=coordinator.run, args=(stop,))
    thread.start()
    while not coordinator.ready:
        time.sleep(0.05)
    try:
        yield
    finally:
        stop.set()
        thread.join(60)


def stream(lake: Lake, name: str, key: tuple[str, ...], records: int, per_second: int, seconds: int) -> list[float]:
    """Seconds from acceptance to visibility of each request of a steady stream, the first third left out."""
    table_id, version = make(lake, name, key)
    begun, sent = time.monotonic(), 0
    while (now := time.monotonic() - begun) < seconds:
        if sent <= now * per_second:
            ids = sent * records % 20_000 if key else sent * records
            put(lake.conn, table_id, version, records, ids, "u" if key else "i")
            sent += 1
        else:
            time.sleep(0.002)
    drained(lake, table_id)
    rows = lake.conn.execute(_WAITED, (table_id, 0)).fetchall()
    return sorted(row[0] for row in rows[len(rows) // 3 :])


def backlog(lake: Lake, name: str, requests: int, records: int) -> float:
    """Records a second that a coordinator makes visible when much waits."""
    table_id, version = make(lake, name)
    with lake.conn.transaction():
        for number in range(requests):
            put(lake.conn, table_id, version, records, number * records)
    begun = time.monotonic()
    drained(lake, table_id)
    return requests * records / (time.monotonic() - begun)


def drained(lake: Lake, table_id: int) -> None:
    while lake.consumer.not_passed(watermarks.head(lake.conn).token, [table_id]):
        time.sleep(0.02)


def visible(report: Report, seconds: int = 20) -> None:
    """All of it, for the report of ``bench/ingest.py``."""
    with new_lake({"spark.profile": "small"}) as lake, coordinating(lake):  # as a user has it
        stream(lake, "warm", (), 10, 10, 8)
        for name, key, records, per_second in (
            ("appends", (), 10, 20),
            ("appends_100", (), 100, 50),
            ("by_key", ("id",), 10, 20),
        ):
            waited = stream(lake, name, key, records, per_second, seconds)
            question = f"{'by key' if key else 'appends'}, {records * per_second:,} records/s in requests of {records}"
            at = statistics.quantiles(waited, n=100, method="inclusive")
            for share, most in ((50, None), (95, 3.0), (99, None)):
                report.at_most(question, f"write to visible, p{share}", at[share - 1], most, unit="s")
        rate = backlog(lake, "backlog", 600, 1000)
        report.add("a backlog of 600,000 records", "made visible", rate, unit="records/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("bench/results/visible.json"))
    given = parser.parse_args()
    report = Report()
    visible(report, given.seconds)
    report.finish(given.out)
