"""``make bench-refresh``: a refresh of each TPC-H query after a small change, against computing the query whole.

The whole is computed by Spark, which writes it as Parquet (as its own declarative pipelines do), and by DuckDB, which
throws it away, in the same run and on the same snapshot; a refresh also finds what differs, and publishes. A thousandth
of the orders changes: half come with their lines, half go. *Contiguous*: new keys at the end, the oldest go, as orders
arrive, which have been loaded in 60 parts; *uniform*: any keys. *Inserts*: that half comes, none goes; *one key*: one
order's lines change. Every table is verified by DuckDB after every refresh. PostgreSQL is the embedded one with fsync
on, as a user has it.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb

import lakemill
from bench.measure import Report
from lakemill.core.ddl import parse_definition
from lakemill.core.names import QualifiedName, parse_name
from lakemill.core.refresh import Action, Outcome
from lakemill.lake import duck
from lakemill.runtime import dynamic
from lakemill.runtime.open import Lake
from lakemill.runtime.refresh import refresh
from lakemill.runtime.verify import verify
from lakemill.settings import Settings
from lakemill.store.embedded import EmbeddedPostgres
from tests.fuzz.sandbox import extension

TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
FILES = 60
NO_DATA = 200
TARGETS = {1, 3, 5, 6, 12}


@dataclass(slots=True)
class Bench:
    lake: Lake
    report: Report
    queries: dict[int, str]
    orders: int
    warm: int
    rounds: int
    scratch: Path

    def change(self, kind: str, number: int) -> None:
        """Half a thousandth of the orders comes, half a thousandth goes."""
        some = max(1, self.orders // 2000)
        (top,) = self.lake.sql("SELECT max(o_orderkey) FROM orders").fetchone() or (0,)
        if kind == "one key":
            one = f"(SELECT o_orderkey FROM orders ORDER BY hash(o_orderkey, {number}) LIMIT 1)"
            self.lake.sql(f"UPDATE lineitem SET l_quantity = l_quantity + 1 WHERE l_orderkey = {one}")
            return
        if kind == "contiguous":
            (low,) = self.lake.sql(
                f"SELECT max(o_orderkey) FROM (FROM orders ORDER BY o_orderkey LIMIT {some})"
            ).fetchone() or (0,)
            gone = f"key <= {low}"
        else:
            gone = f"hash(key, {number}) % 2000 = 0"
        chosen = f"(SELECT o_orderkey FROM orders ORDER BY hash(o_orderkey, {number}) LIMIT {some})"
        for table, key in (("lineitem", "l_orderkey"), ("orders", "o_orderkey")):
            self.lake.sql(
                f"INSERT INTO {table} SELECT * REPLACE ({key} + {top} AS {key}) FROM {table} WHERE {key} IN {chosen}"
            )
        if kind == "inserts":
            return
        for table, key in (("lineitem", "l_orderkey"), ("orders", "o_orderkey")):
            self.lake.sql(f"DELETE FROM {table} WHERE {gone.replace('key', key, 1)}")

    def measure(self, kind: str) -> None:
        few = kind in ("inserts", "one key")
        names = {number: parse_name(f"q{number}") for number in self.queries if number in TARGETS or not few}
        views = {name: self.lake.table(name) for name in TABLES}
        found: dict[int, list[tuple[float, float, float, float]]] = {number: [] for number in names}
        actions: dict[int, str] = {}
        for turn in range(self.warm + self.rounds):
            self.change(kind, turn)
            at = self.lake.snapshot().id
            rows = 0
            for name, table in views.items():
                table.scan(at).createOrReplaceTempView(name)
            for number in names:
                query = self.queries[number]
                rows = sum(views[name].plan_scan(at).rows_to_read for name in TABLES if name in query.lower())
                started = time.perf_counter()
                (record,) = refresh(self.lake, [names[number]])
                refreshed = time.perf_counter()
                assert record.outcome is Outcome.SUCCEEDED, record
                self.lake.spark.sql(_spark(query)).write.mode("overwrite").parquet(str(self.scratch))
                by_spark = time.perf_counter()
                self.lake.sql(query).fetchall()
                by_duck = time.perf_counter()
                assert verify(self.lake, names[number]).equal, names[number]
                actions[number] = f"{record.action.value if record.action else '?'}, {record.spark_jobs} jobs"
                if turn >= self.warm:
                    share = (record.records_read or 0) / max(rows, 1)
                    spark, by_d = by_spark - refreshed, by_duck - by_spark
                    found[number].append((refreshed - started, spark, by_d, share))
        for number, measured in found.items():
            ours, spark, by_d, share = (statistics.median(one) for one in zip(*measured, strict=True))
            question = f"Q{number}, {kind} ({actions[number]})"
            most = 0.01 if few else 0.1 if kind == "contiguous" and number in TARGETS else None
            self.report.at_most(question, "records / whole", share, most, unit="×")
            quick = max(0.1 * spark, 1.5) if most == 0.1 else None
            self.report.at_most(question, "refresh", ours, quick, unit="s")
            self.report.add(question, "Spark whole", spark, unit="s")
            self.report.add(question, "refresh / Spark whole", ours / spark, unit="×")
            self.report.add(question, "refresh / DuckDB whole", ours / by_d, unit="×")

    def no_data(self) -> None:
        name = [parse_name(f"q{next(iter(self.queries))}")]
        seconds = []
        for _ in range(NO_DATA):
            started = time.perf_counter()
            (record,) = refresh(self.lake, name)
            seconds.append(time.perf_counter() - started)
            assert record.action is Action.NO_DATA, record
        p99 = statistics.quantiles(seconds, n=100)[98] * 1000
        self.report.at_most("NO_DATA", "p99", p99, 10, unit="ms")
        self.report.add("NO_DATA", "p50", statistics.median(seconds) * 1000, unit="ms")


def _spark(query: str) -> str:
    import sqlglot

    return sqlglot.transpile(query, read="duckdb", write="spark")[0]


def load(lake: Lake, folder: Path, sf: float) -> None:
    """TPC-H's tables; the two big ones in order of their keys, in several files."""
    with duckdb.connect() as source:
        source.execute(f"LOAD {extension('tpch')}; CALL dbgen(sf = {sf})")
        for name in TABLES:
            source.execute(f"COPY {name} TO '{folder / name}.parquet'")
    for name in TABLES:
        lake.sql(f"CREATE TABLE {name} AS FROM '{folder / name}.parquet' LIMIT 0")
        key = {"lineitem": "l_orderkey", "orders": "o_orderkey"}.get(name)
        if key is None:
            lake.sql(f"INSERT INTO {name} FROM '{folder / name}.parquet'")
            continue
        top = int(6_000_000 * sf) + 1
        for part in range(FILES):
            low, high = part * top // FILES, (part + 1) * top // FILES
            lake.sql(
                f"INSERT INTO {name} FROM '{folder / name}.parquet'"
                f" WHERE {key} >= {low} AND {key} < {high} ORDER BY {key}"
            )


def declare(lake: Lake, wanted: set[int], mode: str) -> dict[int, str]:
    with duckdb.connect() as source:
        source.execute(f"LOAD {extension('tpch')}")
        queries = dict(source.execute("SELECT query_nr, query FROM tpch_queries()").fetchall())
    chosen = {number: text.strip().rstrip(";") for number, text in queries.items() if not wanted or number in wanted}
    for number, text in chosen.items():
        promise = f"TARGET_LAG = '1 minute' REFRESH_MODE = {mode}"
        name = QualifiedName("main", f"q{number}")
        dynamic.create(lake, parse_definition(f"CREATE DYNAMIC TABLE {name} {promise} AS {text}"))
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.refresh", description=__doc__)
    parser.add_argument("--sf", type=float, default=1.0)
    parser.add_argument("--warm", type=int, default=1, help="changes and refreshes before what is measured")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default="contiguous,uniform,inserts,one key")
    parser.add_argument("--queries", default="", help="such as 1,3,6; all of them by default")
    parser.add_argument("--mode", default="AUTO", help="AUTO, or ADAPTIVE: what was slower is computed whole next time")
    parser.add_argument("--out", type=Path, default=Path("bench/results/refresh.json"))
    given = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="lakemill-bench-"))
    server = EmbeddedPostgres(root / ".lakemill" / "postgres")
    report = Report()
    try:
        flags = {"spark.master": "local[2]", "spark.profile": "batch", "spark.driver_memory": "4g"}
        settings = Settings.load(root, flags)
        with duck.connect(settings, server.start(), create=True, inline=0) as connection:
            connection.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
        with lakemill.open(settings) as lake:
            load(lake, root, given.sf)
            queries = declare(lake, {int(number) for number in given.queries.split(",") if number}, given.mode)
            (orders,) = lake.sql("SELECT count(*) FROM orders").fetchone() or (0,)
            bench = Bench(lake, report, queries, orders, given.warm, given.rounds, root / "whole")
            for kind in given.kinds.split(","):
                bench.measure(kind)
            bench.no_data()
    finally:
        server.stop()
        shutil.rmtree(root, ignore_errors=True)
    report.finish(given.out)


if __name__ == "__main__":
    main()
