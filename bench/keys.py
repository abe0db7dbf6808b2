"""``make bench-service KEYS=50000000``: one refresh in which so many keys are affected, on a cluster on loopback.

With two executors of one core and the same memory each: how long it takes, how much the processes held at most, what
was spilled, and that both worked. A tenth of it is done with one executor and with two, to see that they share it. The
driver is a process of its own each time: this file, run as a script. The table is compared with DuckDB's answer in the
end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.lakes import new_lake
from bench.measure import Report
from lakemill.core.names import parse_name
from lakemill.core.refresh import Outcome
from lakemill.runtime.verify import verify
from lakemill.spark import session
from lakemill.store.history import RefreshRecord
from tests.spark.cluster import cluster, executors

MB = 1_000_000


def keys(report: Report, count: int, memory: str) -> None:
    tenth = max(1, count // 10)
    alone, shared = (_keys(report, tenth, memory, number) for number in (1, 2))
    report.add(f"{tenth:,} keys", "one executor against two", alone / shared, unit="×")
    _keys(report, count, memory, 2)


def _keys(report: Report, count: int, memory: str, number: int) -> float:
    """The refresh's seconds."""
    temporary = tempfile.TemporaryDirectory(prefix="lakemill-cluster-")
    with temporary as folder, cluster(Path(folder), number, memory) as found:
        told = {"count": count, "workers": found.workers, "flags": found.flags(memory)}
        words = [sys.executable, "-m", "bench.keys", json.dumps(told)]
        child = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    measured: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    question = f"{count:,} keys, {number} executor{'' if number == 1 else 's'} of {memory}"
    for figure, (value, unit) in measured.items():
        report.add(question, figure, value, unit=unit)
    took_part = measured["executors that took tasks"][0]
    report.add(question, "all took part", took_part, unit="", target=f"= {number}", met=took_part == number)
    return float(measured["refresh"][0])


def measure(count: int, workers: list[int], flags: dict[str, object]) -> dict[str, tuple[float, str]]:
    with new_lake({**flags, "spark.batch_keys": max(1, count // 2)}) as lake:
        lake.sql(f"CREATE TABLE r AS SELECT i AS k, i % 1000 AS v FROM range({count}) t(i)")
        words = "TARGET_LAG = '1 hour' REFRESH_MODE = INCREMENTAL"
        created = lake.create(f"CREATE DYNAMIC TABLE d {words} AS SELECT k, median(v) AS m FROM r GROUP BY k")
        lake.sql(f"INSERT INTO r SELECT i, i % 1000 + 7 FROM range({count}) t(i)")  # every key
        started = time.perf_counter()
        (done,) = lake.refresh("d")
        took = time.perf_counter() - started
        driver, others = session.process(), executors(workers)
        found = _spent(created.records[-1], "load, ") | {"refresh": (took, "s")} | _spent(done, "")
        found["driver's JVM at most"] = (_peak(driver) / MB, "MB")
        found["an executor at most"] = (max(map(_peak, others)) / MB, "MB")
        assert verify(lake, parse_name("d")).equal
    return found


def _spent(record: RefreshRecord, of: str) -> dict[str, tuple[float, str]]:
    assert record.outcome is Outcome.SUCCEEDED, record
    facts = {
        f"{of}seconds recorded": (record.seconds, "s"),
        f"{of}tasks": (record.spark_tasks, ""),
        f"{of}executors that took tasks": (record.spark_executors, ""),
        f"{of}spilled": ((record.spilled_bytes or 0) / MB, "MB"),
    }
    return {name: (value or 0, unit) for name, (value, unit) in facts.items()}


def _peak(process: int | None) -> int:
    """Bytes that a process has held at most, as the machine counts them."""
    lines = Path(f"/proc/{process}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps(measure(given["count"], given["workers"], given["flags"])))
