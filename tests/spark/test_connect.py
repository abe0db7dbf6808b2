"""The same code through Spark Connect: a server of its own, at a port that was free.

A process has one kind of session, so the story is told by a child process: this file, run as a script.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lakemill
from lakemill.core.ddl import parse_definition
from lakemill.core.names import parse_name
from lakemill.core.refresh import Action
from lakemill.runtime import dynamic, refresh, verify
from tests.conftest import TestLake
from tests.ingest.intake import Intake
from tests.ingest.requests import record as sent
from tests.spark.cluster import connect_server
from tests.story import Story


@pytest.mark.spark
def test_reads_and_writes_through_spark_connect(lake: TestLake, tmp_path: Path) -> None:
    with connect_server(tmp_path) as address:
        child = subprocess.run(
            [sys.executable, "-m", "tests.spark.test_connect", str(lake.settings.root)],
            env={**os.environ, "LAKEMILL_SPARK__REMOTE": address},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        told = (tmp_path / "connect.log").read_text("utf-8", "replace")[-3000:]
    assert child.returncode == 0, f"{child.stderr[-3000:]}\n{told}"
    assert "told through Connect" in child.stdout


def tell(root: str) -> None:
    from lakemill.settings import Settings

    settings = Settings.load(root)
    with Story(TestLake(settings, settings.lake.postgres, settings.data_path)) as story:
        spark = story.opened.spark
        assert "connect" in type(spark).__module__, type(spark)
        story.tell(
            "CREATE TABLE t (id INT, v VARCHAR, m MAP(VARCHAR, INT))",
            "INSERT INTO t SELECT i, 'v' || i, MAP {'k': NULL} FROM range(20) r(i)",
            "DELETE FROM t WHERE id = 1",
        )
        rows = spark.sql("SELECT CAST(id AS INT) AS id, 'new' AS v, map('k', 1) AS m FROM range(18, 22)")
        story.table.append(rows.where("id > 19"))
        story.capture()
        story.table.delete("id IN (2, 3)")
        story.capture()
        story.table.merge(rows, on=["id"])
        story.capture()
        story.check(pairs=4)
        keep(story.opened)
        ingest(story.opened)
    spark.stop()
    print("told through Connect")


def keep(lake: lakemill.Lake) -> None:
    """Dynamic tables of three kinds, through a change that touches all of them."""
    lake.sql("CREATE TABLE orders AS SELECT i AS id, i % 5 AS customer, i / 2 AS price FROM range(50) r(i)")
    tables = {
        "large": ("SELECT id, customer FROM orders WHERE id > 20", Action.DELTA),
        "totals": ("SELECT customer, count(*) AS n, max(id) AS last FROM orders GROUP BY customer", Action.MERGE),
        "middle": ("SELECT customer, median(price) AS m FROM orders GROUP BY customer", Action.KEYS),
    }
    for name, (query, _) in tables.items():
        words = "CARDINALITY_THRESHOLD = 1 SPARK_PROFILE = 'small'"
        text = f"CREATE DYNAMIC TABLE {name} TARGET_LAG = '1 minute' {words} AS {query}"
        dynamic.create(lake, parse_definition(text))
    lake.sql("DELETE FROM orders WHERE id IN (7, 49)")
    lake.sql("INSERT INTO orders VALUES (100, 1, 0.5), (101, NULL, 1)")
    for record in refresh.refresh(lake, [parse_name(name) for name in tables]):
        assert (record.action, record.error_text) == (tables[record.name.name][1], None), record
        found = (record.spark_jobs, record.spark_tasks, record.spark_executors, record.spilled_bytes)
        assert found == (None,) * 4, "a Connect session can't tell"
        assert record.spark_profile == "small"
        assert verify.verify(lake, record.name).equal, record.name


def ingest(lake: lakemill.Lake) -> None:
    """Two batches of a table with a key: executors read the bus."""
    intake = Intake(lake)
    intake.table("taken", "k INTEGER, v DECIMAL(10,2)", key=["k"])
    intake.send("taken", sent("u", k=1, v="1.25"), sent("u", k=2, v="no number"))
    assert intake.make("taken").letters == 1
    intake.send("taken", sent("u", k=1, v="2.5"), sent("u", k=3))
    intake.make("taken")
    assert [(k, None if v is None else str(v)) for k, v in intake.stock("FROM taken ORDER BY k")] == [
        (1, "2.50"),
        (3, None),
    ]


if __name__ == "__main__":
    tell(sys.argv[1])
