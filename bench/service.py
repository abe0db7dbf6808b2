"""``make bench-service``: what the service costs, and what it keeps up with.

*Tick*: one look of the scheduler over 100, 1,000 and 10,000 dynamic tables, when nothing changed and when a hundredth
of the base tables did. *Slots*: refreshes a minute that one worker does with 1, 2 and 4 slots, over tables that all
have something to do. *Stream*: from a commit of stock DuckDB to the commit of the table derived from it, at a target
lag of a second. *Soak*: lags in a graph of three levels under a writer that never rests. PostgreSQL is the embedded
one with fsync on, as a user has it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread

from bench import keys
from bench.lakes import new_lake
from bench.measure import Report
from lakemill.core.lag import lag
from lakemill.core.names import parse_name
from lakemill.lake import duck
from lakemill.runtime.open import Lake
from lakemill.runtime.scheduler import Scheduler
from lakemill.runtime.standings import Looks
from lakemill.runtime.verify import verify
from lakemill.runtime.worker import Worker
from lakemill.settings import Settings
from lakemill.store import work
from tests.counting import counted

BASES = 100
TICKS = 20


# ---------------------------------------------------------------- ticks
_TABLES = """
WITH added AS (
  INSERT INTO lakemill.dynamic_tables (schema_name, table_name, definition_version, state, table_id, round_at)
  SELECT 'main', 'd' || i, 1, 'ACTIVE', 1000000 + i, now() FROM generate_series(1, %(count)s) i
  RETURNING dynamic_id, table_name),
defined AS (
  INSERT INTO lakemill.definitions (dynamic_id, version, query, target_lag, column_names, refresh_mode, strict,
    cardinality_threshold, initialize, scheduler, priority, dialect, partition_by, resolved_query, resolved_mode,
    mode_reason, clocked, output_names, output_types)
  SELECT dynamic_id, 1, 'SELECT 1', '5 minutes', '{}', 'AUTO', false, 0.3, 'ON_CREATE', true, 0, 'duckdb', '{}',
    'SELECT 1', 'INCREMENTAL', '', false, '{x}', '{INTEGER}' FROM added),
read AS (
  INSERT INTO lakemill.sources (dynamic_id, version, position, kind, schema_name, table_name, table_id, supplier_id,
    column_names)
  SELECT dynamic_id, 1, 0, CASE WHEN dynamic_id %% 10 = 0 THEN 'TABLE' ELSE 'DYNAMIC' END, 'main',
    CASE WHEN dynamic_id %% 10 = 0 THEN 'b' || dynamic_id / 10 %% %(bases)s ELSE 'd' || dynamic_id - 1 END,
    CASE WHEN dynamic_id %% 10 = 0 THEN (%(ids)s::bigint[])[1 + dynamic_id / 10 %% %(bases)s] END,
    CASE WHEN dynamic_id %% 10 <> 0 THEN dynamic_id - 1 END, '{x}'
  FROM added WHERE dynamic_id > 1),
came AS (
  INSERT INTO lakemill.frontier_sources (dynamic_id, table_id, columns_version, commit_snapshot)
  SELECT dynamic_id, CASE WHEN dynamic_id %% 10 = 0 THEN (%(ids)s::bigint[])[1 + dynamic_id / 10 %% %(bases)s]
                     ELSE 1000000 + dynamic_id - 1 END, 1, %(head)s
  FROM added WHERE dynamic_id > 1),
held AS (
  INSERT INTO lakemill.versions (dynamic_id, commit_snapshot, b_lo, b_hi, b_time, definition_version, table_id)
  SELECT dynamic_id, %(head)s, %(head)s, %(head)s, now(), 1, 1000000 + dynamic_id FROM added
  RETURNING dynamic_id, version_id)
INSERT INTO lakemill.frontiers (dynamic_id, version_id) SELECT dynamic_id, version_id FROM held
"""


def ticks(report: Report, counts: list[int]) -> None:
    """Chains of ten tables over a hundred base tables, declared in the store alone: no look asks for their rows."""
    for count in counts:
        with new_lake({"upkeep.auto": ""}) as lake:
            for number in range(BASES):
                lake.sql(f"CREATE TABLE b{number} AS SELECT 1 AS x")
            ids = [lake.table(f"b{number}").describe().id for number in range(BASES)]
            lake.conn.execute("SET session_replication_role = replica")  # the chains refer to each other
            values = {"count": count, "bases": BASES, "ids": ids, "head": lake.snapshot().id}
            lake.conn.execute(_TABLES, values)
            scheduler, looks = Scheduler(lake.settings), Looks(lake)
            found = [_tick(scheduler, lake, looks) for _ in range(TICKS)]
            assert not any(added for _, added in found), "nothing changed, and yet something is due"
            seconds = statistics.median(took for took, _ in found)
            most = 1.0 if count == 10_000 else None
            report.at_most(f"tick, {count:,} tables", "nothing changed", seconds, most, unit="s")
            with counted(lake.conn) as idle:
                _tick(scheduler, lake, looks)
            report.at_most(f"tick, {count:,} tables", "nothing changed: queries", idle.count, 2, unit="")
            lake.sql("INSERT INTO b7 VALUES (2)")
            one, added = _tick(scheduler, lake, looks)
            report.add(f"tick, {count:,} tables", f"a base table changed: {added} due", one, unit="s")


def _tick(scheduler: Scheduler, lake: Lake, looks: Looks) -> tuple[float, int]:
    started = time.perf_counter()
    done = scheduler.tick(lake, looks.look(), datetime.now(UTC) + timedelta(hours=1))
    return time.perf_counter() - started, done.added


# ---------------------------------------------------------------- slots
def slots(report: Report, seconds: float) -> None:
    """Twelve tables that always have something to do."""
    for count in (1, 2, 4):
        with new_lake({"service.tick": "100ms"}) as lake:
            lake.sql("CREATE TABLE r AS SELECT i AS id, i % 100 AS k FROM range(100000) t(i)")
            for number in range(12):
                lake.create(
                    f"CREATE DYNAMIC TABLE d{number} TARGET_LAG = '1 second' INITIALIZE = ON_SCHEDULE"
                    f" AS SELECT k, count(*) AS n, sum(id) AS s FROM r WHERE id % 12 <> {number} GROUP BY k"
                )
            with serving(lake, count):
                _until_loaded(lake)
                stop = Event()
                writer = Thread(target=_write, args=(lake.settings, lake.dsn, stop))
                writer.start()
                time.sleep(seconds / 4)  # warm
                before, started = _refreshes(lake), time.monotonic()
                time.sleep(seconds)
                did, took = _refreshes(lake) - before, time.monotonic() - started
                stop.set()
                writer.join()
            report.add("slots", f"refreshes a minute, {count} slots", did / took * 60, unit="")


def stream(report: Report, seconds: float) -> None:
    """From commit to derived commit, one small table at a target lag of a second."""
    with new_lake() as lake:
        lake.sql("CREATE TABLE r AS SELECT i AS id, i % 100 AS k FROM range(100000) t(i)")
        lake.create(
            "CREATE DYNAMIC TABLE d TARGET_LAG = '1 second' INITIALIZE = ON_SCHEDULE"
            " AS SELECT k, count(*) AS n FROM r GROUP BY k"
        )
        found: list[float] = []
        with serving(lake, 1):
            _until_loaded(lake)
            until = time.monotonic() + seconds
            number = 0
            while time.monotonic() < until:
                number += 1
                lake.sql(f"INSERT INTO r VALUES ({1_000_000 + number}, {number % 100})")
                written = lake.snapshot()
                while (version := work.known(lake.conn)[0].version) is None or version.b_hi < written.id:
                    time.sleep(0.005)
                found.append((lake.snapshot(version.commit).time - written.time).total_seconds())
        found = sorted(found[3:])
        report.add("commit to derived commit", "half of them", statistics.median(found), unit="s")
        report.add("commit to derived commit", "99 of 100", found[int(len(found) * 0.99)], unit="s")


# ---------------------------------------------------------------- soak
SOAK = {"6 tables": (2, timedelta(seconds=10)), "20 tables": (7, timedelta(seconds=60))}


def soak(report: Report, seconds: float) -> None:
    """Three levels of tables, one worker of four slots, a writer that never rests; lags as they are seen meanwhile."""
    for kind, (width, target) in SOAK.items():
        with new_lake({"service.tick": "200ms"}) as lake:
            lake.sql("CREATE TABLE r AS SELECT i AS id, i % 100 AS k FROM range(100000) t(i)")
            names = _three_levels(lake, width, target)
            seen: dict[str, list[float]] = {name: [] for name in names}
            with serving(lake, 4):
                _until_loaded(lake)
                stop = Event()
                writer = Thread(target=_write, args=(lake.settings, lake.dsn, stop))
                writer.start()
                looks, until = Looks(lake), time.monotonic() + seconds
                while time.monotonic() < until:
                    for name, standing in looks.look().standings.items():
                        behind = lag(standing, datetime.now(UTC))
                        seen[name.name].append(behind.total_seconds() if behind is not None else seconds)
                    time.sleep(0.2)
                stop.set()
                writer.join()
            for level, letter in enumerate("abc", 1):
                lags = sorted(lag for name, found in seen.items() if name.startswith(letter) for lag in found)
                at_most = target.total_seconds() if level == 2 and width == 2 else None
                report.add(
                    f"soak, {kind} at {target.seconds} s", f"level {level}, half", statistics.median(lags), unit="s"
                )
                last = lags[int(len(lags) * 0.99)]
                report.at_most(
                    f"soak, {kind} at {target.seconds} s", f"level {level}, 99 of 100", last, at_most, unit="s"
                )
            for table in names:
                assert verify(lake, parse_name(table)).equal, table


def _three_levels(lake: Lake, width: int, target: timedelta) -> list[str]:
    names = []
    for number in range(width):
        queries = {
            f"a{number}": f"SELECT k, count(*) AS n, sum(id) AS s FROM r WHERE id % {width} = {number} GROUP BY k",
            f"b{number}": f"SELECT n, count(*) AS m FROM a{number} GROUP BY n",
            f"c{number}": f"SELECT sum(m) AS m, max(n) AS n FROM b{number}",
        }
        for name, query in list(queries.items())[: 3 if width != 7 or number < 6 else 2]:
            promise = f"TARGET_LAG = '{target.seconds} seconds' INITIALIZE = ON_SCHEDULE"
            lake.create(f"CREATE DYNAMIC TABLE {name} {promise} AS {query}")
            names.append(name)
    return names


@contextmanager
def serving(lake: Lake, count: int) -> Iterator[None]:
    stop = Event()
    parts = (Scheduler(lake.settings), Worker(lake.settings, "bench", count))
    threads = [Thread(target=part.run, args=(stop,)) for part in parts]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _until_loaded(lake: Lake) -> None:
    while any(one.version is None for one in work.known(lake.conn)):
        time.sleep(0.1)


def _refreshes(lake: Lake) -> int:
    row = lake.conn.execute("SELECT count(*) FROM lakemill.refreshes WHERE outcome = 'SUCCEEDED'").fetchone()
    return int(row[0]) if row else 0


def _write(settings: Settings, dsn: str, stop: Event) -> None:
    with duck.connect(settings, dsn) as connection:
        number = 0
        while not stop.wait(0.1):
            number += 1
            connection.execute(f"INSERT INTO r SELECT {10_000_000 + number} + i, i FROM range(100) t(i)")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.service", description=__doc__)
    parser.add_argument("--parts", default="ticks,slots,stream,soak")
    parser.add_argument("--tables", default="100,1000,10000", help="how many tables a tick looks at")
    parser.add_argument("--seconds", type=float, default=60, help="how long slots and stream are watched")
    parser.add_argument(
        "--keys", type=int, default=0, help="only one refresh of so many keys, on 2 executors; a tenth on 1 and 2"
    )
    parser.add_argument("--memory", default="1g", help="of an executor, for --keys")
    parser.add_argument("--out", type=Path, default=Path("bench/results/service.json"))
    given = parser.parse_args()
    report = Report()
    if given.keys:
        keys.keys(report, given.keys, given.memory)
        report.finish(given.out.with_name("keys.json"))
        return
    for part in given.parts.split(","):
        if part == "ticks":
            ticks(report, [int(count) for count in given.tables.split(",")])
        elif part == "slots":
            slots(report, given.seconds)
        elif part == "stream":
            stream(report, given.seconds)
        elif part == "soak":
            soak(report, given.seconds)
        else:
            parser.error(f"there is no part {part}")
    report.finish(given.out)


if __name__ == "__main__":
    main()
