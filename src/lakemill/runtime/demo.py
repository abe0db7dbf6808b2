"""A lake in a minute: DuckDB and Spark share it, then a chain of dynamic tables follows what a writer does.

A list of steps, each a function that does something real and returns what there is to show; the command line prints
them. Those of the dynamic tables are in ``runtime/demo_tables``; what comes after them is told by the caller, for HTTP
is above us. Spark starts in the background while DuckDB already works. It makes a folder of its own, and replaces only
one that an earlier demo made.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakemill.errors import InternalError, LakeExists, LakemillError
from lakemill.runtime.create import create_lake
from lakemill.runtime.demo_step import Shown
from lakemill.runtime.demo_tables import Chain
from lakemill.runtime.open import Lake
from lakemill.settings import Settings
from lakemill.spark import session
from lakemill.store.embedded import EmbeddedPostgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

After = Callable[[Lake], AbstractContextManager[Sequence[Callable[[], Shown]]]]
MARK = "made-by-lakemill-demo"
ORDERS = 100_000

CREATE = """\
CREATE TABLE orders AS
SELECT i AS id,
       'customer-' || i % 97 AS customer,
       ['DE', 'FR', 'JP', 'BR', 'KE'][1 + i % 5] AS country,
       ((1 + i * 7919 % 50000) / 100)::DECIMAL(9, 2) AS amount,
       DATE '2026-01-01' + (i % 90)::INTEGER AS day
FROM range(100_000) r(i)"""
CHANGE = """\
UPDATE orders SET amount = amount * 2 WHERE id = 4711;
DELETE FROM orders WHERE id < 20000 AND customer = 'customer-13' AND day = DATE '2026-01-14'"""
TOTALS = "SELECT country, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY country ORDER BY country"
NOW_AND_THEN = """\
SELECT 'now' AS at, count(*) AS orders, sum(amount) AS amount FROM orders
UNION ALL
SELECT 'snapshot {before}', count(*), sum(amount) FROM orders AT (VERSION => {before})"""
CORRECTIONS = """\
SELECT id, customer, country, cast(amount + 100 AS decimal(9, 2)) AS amount, day
FROM orders WHERE id IN (1, 2)
UNION ALL
SELECT cast(100000 AS bigint), 'customer-new', 'KE', cast(9.99 AS decimal(9, 2)), DATE '2026-04-01'"""


def run_demo(folder: Path, flags: dict[str, object] | None = None, after: After | None = None) -> Iterator[Shown]:
    """Do the steps one by one, then those of ``after``; the embedded PostgreSQL and Spark are stopped afterwards."""
    folder = folder.expanduser().resolve()
    _clear(folder)
    demo = _Demo(folder, {"spark.master": "local[2]", **(flags or {})})
    try:
        yield from _timed(demo.create, demo.write, demo.read, demo.change, demo.publish, demo.read_back, demo.delta)
        chain = Chain(demo.open)
        yield from _timed(
            chain.declare, chain.insert, chain.update, chain.delete, chain.nothing, chain.meanwhile, chain.top
        )
        if after is not None:
            with after(demo.open) as steps:
                yield from _timed(*steps)
    finally:
        demo.close()


def _timed(*steps: Callable[[], Shown]) -> Iterator[Shown]:
    for step in steps:
        started = time.monotonic()
        shown = step()
        yield replace(shown, seconds=time.monotonic() - started)


def _clear(folder: Path) -> None:
    """Remove what an earlier demo left; anything else is not ours to remove."""
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / ".lakemill" / MARK).exists():
        raise LakeExists(
            f"{folder} holds something that no demo made", remedy="name another folder: lakemill demo my-demo"
        )
    EmbeddedPostgres(folder / ".lakemill" / "postgres").remove()
    shutil.rmtree(folder)


def _start_spark(settings: Settings) -> None:
    with suppress(LakemillError):  # the step that needs Spark meets the same error, and tells it
        session.start(settings)


class _Demo:
    def __init__(self, folder: Path, flags: dict[str, object]) -> None:
        self.folder, self.flags = folder, flags
        self.lake: Lake | None = None
        self.before = self.after = 0
        self.spark_starts: threading.Thread | None = None

    @property
    def open(self) -> Lake:
        if self.lake is None:
            raise InternalError("the demo's lake is not there yet")
        return self.lake

    def close(self) -> None:
        if self.spark_starts is not None:
            self.spark_starts.join()
        if self.lake is not None:
            embedded = not self.lake.settings.lake.postgres
            self.lake.close()
            if embedded:
                EmbeddedPostgres(self.lake.settings.embedded_dir).stop()

    # ------------------------------------------------------------ the steps
    def create(self) -> Shown:
        created = create_lake(self.folder, self.flags)
        (self.folder / ".lakemill").mkdir(exist_ok=True)
        (self.folder / ".lakemill" / MARK).touch()
        self.lake = Lake(created.settings)
        self.spark_starts = threading.Thread(target=_start_spark, args=(created.settings,), name="demo-spark")
        self.spark_starts.start()
        return Shown(
            "Make a lake",
            "PostgreSQL",
            f"lakemill init {self.folder.name}",
            "bash",
            "A DuckLake catalog in a PostgreSQL of the lake's own, a folder for Parquet files, a settings file.",
        )

    def write(self) -> Shown:
        self.open.sql(CREATE)
        self.before = self.open.snapshot().id
        files = len(self.open.table("orders").plan_scan().files)
        said = f"{ORDERS:,} rows in {files} Parquet file{'' if files == 1 else 's'}, visible at snapshot {self.before}."
        return Shown("Write with DuckDB", "DuckDB", CREATE, "sql", said)

    def read(self) -> Shown:
        if self.spark_starts is not None:
            self.spark_starts.join()
        code = 'orders = lake.table("orders")\norders.scan().createOrReplaceTempView("orders")\nspark.sql("""' + (
            TOTALS.replace(" FROM", "\n             FROM") + '""").show()'
        )
        orders = self.open.table("orders")
        orders.scan().createOrReplaceTempView("orders")
        frame: DataFrame = self.open.spark.sql(TOTALS)
        said = "Spark's own vectorised reader on the files that the catalog names; nothing was copied."
        return Shown(
            "Read with Spark", "Spark", code, "python", said, tuple(frame.columns), tuple(map(tuple, frame.collect()))
        )

    def change(self) -> Shown:
        changed = [self.open.sql(statement).fetchall()[0][0] for statement in CHANGE.split(";\n")]
        said = (
            f"{changed[0]} row updated, {changed[1]} rows deleted: two more snapshots, up to {self.open.snapshot().id}."
        )
        return Shown("Change rows with DuckDB", "DuckDB", CHANGE + ";", "sql", said)

    def publish(self) -> Shown:
        orders = self.open.table("orders")
        orders.scan().createOrReplaceTempView("orders")
        published = orders.merge(self.open.spark.sql(CORRECTIONS), on=["id"], message="corrections")
        if published is None:
            raise InternalError("the demo's merge changed nothing")
        self.after = published.snapshot_id
        code = (
            f'corrections = spark.sql("""{CORRECTIONS}""")\norders.merge(corrections, on=["id"], message="corrections")'
        )
        said = f"Files, delete positions and statistics in one PostgreSQL transaction: snapshot {self.after}."
        return Shown("Publish with Spark", "Spark", code, "python", said)

    def read_back(self) -> Shown:
        query = NOW_AND_THEN.format(before=self.before)
        cursor = self.open.sql(query)
        columns = tuple(column[0] for column in cursor.description or [])
        rows = tuple(cursor.fetchall())
        if [row[1:] for row in rows] != [self._spark_sum(None), self._spark_sum(self.before)]:
            raise InternalError("Spark and DuckDB do not agree about the demo's lake")
        said = (
            "Stock DuckDB with the stock extension reads what Spark published, and what was there before. Spark gives "
            "the same answers: compared."
        )
        return Shown("Read with DuckDB, now and then", "DuckDB", query, "sql", said, columns, rows)

    def delta(self) -> Shown:
        orders = self.open.table("orders")
        plan = orders.plan_delta(self.before, self.after)
        frame = orders.frame(plan).orderBy("id", "__weight")
        rows = tuple(tuple(row) for row in frame.collect())
        code = f'orders.delta({self.before}, {self.after}).orderBy("id", "__weight").show()'
        said = (
            f"What changed over ({self.before}, {self.after}], by Spark and DuckDB alike: each row with the number of "
            f"copies that came or went. {len(plan.files)} files were opened, the catalog had told which."
        )
        shown = (*rows[:6], *rows[-4:]) if len(rows) > 12 else rows
        said += f" {len(shown)} of {len(rows)} rows are shown." if len(shown) < len(rows) else ""
        return Shown("Show the delta", "Spark", code, "python", said, tuple(frame.columns), shown)

    def _spark_sum(self, at: int | None) -> tuple[Any, ...]:
        rows = self.open.table("orders").scan(at).selectExpr("count(*)", "sum(amount)").collect()
        return tuple(rows[0])
