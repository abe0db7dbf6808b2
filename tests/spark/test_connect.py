"""The same code through Spark Connect: a server that the session starts, in a process of its own.

A process has one kind of session, so the story is told by a child process: this file, run as a script.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import TestLake
from tests.story import Story


@pytest.mark.spark
def test_reads_and_writes_through_spark_connect(lake: TestLake) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "tests.spark.test_connect", str(lake.settings.root)],
        env={**os.environ, "LAKEMILL_SPARK__REMOTE": "local[2]"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert child.returncode == 0, child.stderr[-3000:]
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
    spark.stop()
    print("told through Connect")


if __name__ == "__main__":
    tell(sys.argv[1])
