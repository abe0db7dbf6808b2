"""``make bench-lake``: what the lake costs, side by side with plain Spark and with stock DuckDB, in one run.

Each question has a function; ``--only scan,delta`` asks some of them, ``--rows`` and ``--files`` scale them. The data
is made by DuckDB and the same every time. PostgreSQL is the embedded one with fsync on, as a user has it.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import lakemill
from bench.measure import Report, ratio, take_turns
from lakemill.core.commit import AddFiles, Intent, NoConflict, Purpose
from lakemill.lake import duck
from lakemill.lake.footer import new_files
from lakemill.lake.publish import Publisher
from lakemill.lake.staging import Staged, StagedFile
from lakemill.lake.target import read_target
from lakemill.runtime.open import Lake
from lakemill.settings import Settings
from lakemill.spark.paths import reader_path
from lakemill.store.embedded import EmbeddedPostgres

COLUMNS = """SELECT i AS id, i % 1000 AS k, (hash(i) % 1000000)::INTEGER AS v, hash(i, 7) % 100 / 7.0 AS x,
 'name ' || (hash(i, 3) % 50000) AS s, DATE '2020-01-01' + (i % 2000)::INTEGER AS day,
 (hash(i, 5) % 100000 / 100.0)::DECIMAL(12, 2) AS amount, TIMESTAMP '2026-01-01' + to_seconds(i) AS at"""


@dataclass(slots=True)
class Bench:
    root: Path
    lake: Lake
    report: Report
    rows: int
    files: int
    rounds: int

    def fill(self, table: str, rows: int, files: int = 10) -> list[str]:
        """A table of several files, written by stock DuckDB; the files' paths."""
        connection = self.lake.duck
        connection.execute(f"CREATE OR REPLACE TABLE {table} AS {COLUMNS} FROM range(0) r(i)")
        step = rows // files
        for k in range(files):
            connection.execute(f"INSERT INTO {table} {COLUMNS} FROM range({k * step}, {(k + 1) * step}) r(i)")
        return [read.file.path for read in self.lake.table(table).plan_scan().files]


def noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


# ---------------------------------------------------------------- questions
def scan(bench: Bench) -> None:
    """Reading a lake table against reading the same files as plain Parquet; then with 1 % of the rows deleted."""
    rows = bench.rows * 10  # seconds, so that not Spark's start of a query is measured
    paths = bench.fill("scanned", rows)
    table, spark = bench.lake.table("scanned"), bench.lake.spark
    schema = spark.read.parquet(reader_path(paths[0])).schema

    def plain() -> None:
        noop(spark.read.schema(schema).parquet(*map(reader_path, paths)))

    seconds = take_turns({"lake": lambda: noop(table.scan()), "plain": plain}, rounds=bench.rounds, warm_up=2)
    share = ratio(seconds, "lake", "plain")
    bench.report.add(f"scan of {rows:,} rows", "plain Spark", statistics.median(seconds["plain"]), unit="s")
    bench.report.add(
        f"scan of {rows:,} rows", "lake / plain Spark", share, unit="×", target="≤ 1.05", met=share <= 1.05
    )
    bench.lake.duck.execute("DELETE FROM scanned WHERE hash(id, 11) % 100 = 0")
    seconds = take_turns({"lake": lambda: noop(table.scan()), "plain": plain}, rounds=bench.rounds)
    share = ratio(seconds, "lake", "plain")
    bench.report.add(
        f"scan of {rows:,} rows", "with 1 % deleted / plain Spark", share, unit="×", target="≤ 1.5", met=share <= 1.5
    )


def delta(bench: Bench) -> None:
    """The delta of 0.1 % new and changed rows against a full scan."""
    bench.fill("changed", bench.rows, files=20)
    table = bench.lake.table("changed")
    a = bench.lake.snapshot().id
    some = bench.rows // 2000
    bench.lake.duck.execute(f"INSERT INTO changed {COLUMNS} FROM range({bench.rows}, {bench.rows + some}) r(i)")
    bench.lake.duck.execute(
        f"UPDATE changed SET v = -1 WHERE id BETWEEN {bench.rows // 3} AND {bench.rows // 3 + some}"
    )
    b = bench.lake.snapshot().id
    plan, whole = table.plan_delta(a, b), table.plan_scan(b)
    seconds = take_turns(
        {"delta": lambda: noop(table.delta(a, b)), "scan": lambda: noop(table.scan(b))}, rounds=bench.rounds
    )
    bench.report.add("delta of 0.1 %", "files opened", len(plan.files), unit=f"of {len(whole.files)}")
    bench.report.add("delta of 0.1 %", "bytes / full scan", plan.bytes_to_read / whole.bytes_to_read, unit="×")
    bench.report.add("delta of 0.1 %", "rows read / full scan", plan.rows_to_read / whole.rows_to_read, unit="×")
    bench.report.add("delta of 0.1 %", "time / full scan", ratio(seconds, "delta", "scan"), unit="×")


def publish(bench: Bench) -> None:
    """Publishing prewritten files, one each, against ``ducklake_add_data_files``; statistics on both sides."""
    connection, count = bench.lake.duck, 250
    connection.execute(f"CREATE OR REPLACE TABLE ours AS {COLUMNS} FROM range(1) r(i)")
    connection.execute(f"CREATE OR REPLACE TABLE theirs AS {COLUMNS} FROM range(1) r(i)")
    with bench.lake.catalog() as catalog:
        found = catalog.table("main", "ours", catalog.head().id)
        target = read_target(bench.lake.conn, found)
    ids = ", ".join(f"'{column.name}': {column.id}" for column in found.columns)
    places: dict[str, list[str]] = {}
    for side in ("ours", "theirs"):
        folder = Path(found.path).parent / side
        folder.mkdir(parents=True, exist_ok=True)
        places[side] = [str(folder / f"{uuid4()}.parquet") for _ in range(count)]
        for file in places[side]:
            connection.execute(
                f"COPY ({COLUMNS} FROM range(100) r(i)) TO '{file}' (FORMAT parquet, FIELD_IDS {{{ids}}})"
            )
    publisher: Publisher = bench.lake.publisher
    queues: dict[str, Callable[[str], object]] = {
        "ours": lambda file: _publish_one(bench.lake, publisher, target, file),
        "theirs": lambda file: connection.execute(f"CALL ducklake_add_data_files('lake', 'theirs', '{file}')"),
    }
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for index in range(0, count, 10):  # ten of ours, ten of theirs, in turns
        for side, do in queues.items():
            started = time.perf_counter()
            for file in places[side][index : index + 10]:
                do(file)
            seconds[side].append((time.perf_counter() - started) / 10)
    seconds = {side: values[1:] for side, values in seconds.items()}
    faster = 1 / ratio(seconds, "ours", "theirs")
    bench.report.add("publish", "ours", 1 / statistics.median(seconds["ours"]), unit="/s")
    bench.report.add("publish", "ducklake_add_data_files", 1 / statistics.median(seconds["theirs"]), unit="/s")
    bench.report.add("publish", "ours / add_data_files", faster, unit="×", target="≥ 5", met=faster >= 5)
    total = connection.execute("SELECT (SELECT count(*) FROM ours), (SELECT count(*) FROM theirs)").fetchone()
    assert total == (1 + count * 100, 1 + count * 100), total


def _publish_one(lake: Lake, publisher: Publisher, target: Any, file: str) -> None:
    staged = Staged((StagedFile(file, file.removeprefix(target.path)),), rows=100)
    files = new_files(lake.duck, staged, target)
    requirements = (NoConflict(target.table_id, 0, Purpose.APPEND), *target.requirements)
    publisher.publish(Intent(uuid4(), (AddFiles(target.table_id, files),), requirements))


def append(bench: Bench) -> None:
    """Appending rows through Lakemill against the same rows written by plain Spark."""
    bench.fill("source", bench.rows, files=4)
    bench.lake.duck.execute("CREATE OR REPLACE TABLE appended AS FROM source LIMIT 0")
    frame = bench.lake.table("source").scan()
    out = bench.root / "plain"

    def plain() -> None:
        shutil.rmtree(out, ignore_errors=True)
        frame.write.option("compression", "snappy").parquet(str(out))

    seconds = take_turns(
        {"lake": lambda: bench.lake.table("appended").append(frame), "plain": plain}, rounds=max(3, bench.rounds // 2)
    )
    share = ratio(seconds, "lake", "plain")
    bench.report.add(f"append of {bench.rows:,} rows", "plain Spark", statistics.median(seconds["plain"]), unit="s")
    bench.report.add(
        f"append of {bench.rows:,} rows", "lake / plain Spark", share, unit="×", target="≤ 1.15", met=share <= 1.15
    )


def plan(bench: Bench) -> None:
    """Planning on a catalog of many files: whole, pruned, and a delta. The files are rows of the catalog only."""
    lake, conn = bench.lake, bench.lake.conn
    lake.duck.execute("CREATE OR REPLACE TABLE big (id BIGINT, day DATE, name VARCHAR)")
    lake.duck.execute("INSERT INTO big VALUES (0, DATE '2020-01-01', 'x')")
    table = lake.table("big")
    described, base = table.describe(), lake.snapshot()
    values = {"t": described.id, "n": bench.files, "s": base.id, "f": base.next_file_id}
    for statement in CATALOG:
        conn.execute(statement, values)
    lake.duck.execute("INSERT INTO big VALUES (1, DATE '2020-01-01', 'y')")
    head = lake.snapshot().id
    pruned = "id BETWEEN 500000000 AND 500999999"
    questions: dict[str, Callable[[], Any]] = {
        "scan of everything": table.plan_scan,
        "scan of 0.1 % (pruned)": lambda: table.plan_scan(where=pruned),
        "delta of one commit": lambda: table.plan_delta(head - 1, head),
    }
    seconds = take_turns(questions, rounds=3)
    for name, ask in questions.items():
        unit = f"s ({len(ask().files):,} of {bench.files:,} files)"
        bench.report.add(f"plan, {bench.files:,} files", name, statistics.median(seconds[name]), unit=unit)


# A catalog of %(n)s files of a million rows and 100 MB each, as one commit would have made them.
CATALOG = [
    """INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative, file_format,
         record_count, file_size_bytes, footer_size, row_id_start)
       SELECT %(f)s + i, %(t)s, %(s)s, 'ducklake-' || md5(i::text) || '.parquet', true, 'parquet',
         1000000, 100000000, 5000, i::bigint * 1000000 FROM generate_series(0, %(n)s - 1) i""",
    """INSERT INTO ducklake_file_column_stats (data_file_id, table_id, column_id, column_size_bytes, value_count,
         null_count, min_value, max_value)
       SELECT %(f)s + i, %(t)s, c.id, 1000, 1000000, 0,
         CASE c.id WHEN 1 THEN (i::bigint * 1000)::text ELSE (DATE '2020-01-01' + i %% 2000)::text END,
         CASE c.id WHEN 1 THEN (i::bigint * 1000 + 999)::text ELSE (DATE '2020-01-01' + i %% 2000)::text END
       FROM generate_series(0, %(n)s - 1) i, (VALUES (1), (2)) c (id)""",
    "UPDATE ducklake_snapshot SET next_file_id = next_file_id + %(n)s WHERE snapshot_id = %(s)s",
    "ANALYZE ducklake_data_file",
    "ANALYZE ducklake_file_column_stats",
]

QUESTIONS: dict[str, Callable[[Bench], None]] = {
    "scan": scan,
    "delta": delta,
    "publish": publish,
    "append": append,
    "plan": plan,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.lake", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--files", type=int, default=1_000_000, help="files of the synthetic catalog")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default=",".join(QUESTIONS))
    parser.add_argument("--out", type=Path, default=Path("bench/results/lake.json"))
    given = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="lakemill-bench-"))
    server = EmbeddedPostgres(root / ".lakemill" / "postgres")
    report = Report()
    try:
        flags = {"spark.master": "local[2]", "spark.profile": "batch", "spark.driver_memory": "4g"}
        settings = Settings.load(root, flags)
        with duck.connect(settings, server.start(), create=True, inline=0) as connection:
            connection.execute("CALL lake.set_option('data_inlining_row_limit', 0)")  # ATTACH's own is not kept
        with lakemill.open(settings) as lake:
            bench = Bench(root, lake, report, given.rows, given.files, given.rounds)
            for name in given.only.split(","):
                print(f"{name}: {QUESTIONS[name].__doc__}", flush=True)
                QUESTIONS[name](bench)
    finally:
        server.stop()
        shutil.rmtree(root, ignore_errors=True)
    report.finish(given.out)


if __name__ == "__main__":
    main()
