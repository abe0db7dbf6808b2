"""A standalone Spark cluster on loopback: a master and workers from the PySpark distribution, a process each; and a
Spark Connect server, which has its cluster in itself.

For tests and benches whose driver is a process of its own; what is started here is ended here, executors included.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from lakemill.spark import java

SECONDS = 60
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options that suit what lives for a minute."""
_NO_UI = ("--webui-port", "0")
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
_EXECUTOR = b"CoarseGrainedExecutorBackend"
_HOME = Path(pyspark.__path__[0])


@dataclass(slots=True)
class Cluster:
    url: str
    workers: list[int] = field(default_factory=list)
    """Process ids."""

    def flags(self, memory: str = "512m", options: str = "") -> dict[str, object]:
        """Settings of a lake whose work is done here; memory and Java options are of each executor."""
        conf = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": memory,
            "spark.executor.cores": "1",
            "spark.cores.max": str(len(self.workers)),
            "spark.executor.extraJavaOptions": options,
            "spark.scheduler.minRegisteredResourcesRatio": "1",  # else the first tasks all go to whoever comes first
        }
        return {"spark.master": self.url, "spark.conf": conf}


def executors(workers: Sequence[int]) -> list[int]:
    """The process ids of the executors that these workers have started."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may end meanwhile
            parent = int((process / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
            if parent in workers and _EXECUTOR in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


@contextmanager
def cluster(folder: Path, workers: int = 2, memory: str = "640m") -> Iterator[Cluster]:
    """``memory``: of each worker, for its executor, which has one core."""
    java.prepare()
    with ExitStack() as started:
        log = folder / "master.log"
        master = started.enter_context(_running(log, "master.Master", "--host", "127.0.0.1", "--port", "0", *_NO_UI))
        found = Cluster(_told(log, r"Starting Spark master at (spark://\S+)", master))
        begun: list[subprocess.Popen[bytes]] = []
        for number in range(workers):
            place = ("--host", "127.0.0.1", "--work-dir", str(folder / f"w{number}"))
            words = ("--cores", "1", "--memory", memory, *place, *_NO_UI, found.url)
            begun.append(started.enter_context(_running(folder / f"worker{number}.log", "worker.Worker", *words)))
        for number, worker in enumerate(begun):
            _told(folder / f"worker{number}.log", r"(Successfully registered) with master", worker)
            found.workers.append(worker.pid)
        yield found


@contextmanager
def connect_server(folder: Path, memory: str = "1g") -> Iterator[str]:
    """The address of a Spark Connect server, at a port that was free, with two cores of its own."""
    java.prepare()
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.ui.enabled": "false",
    }
    words = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    words += ["--master", "local[2]", "--class", _CONNECT, "spark-internal"]
    log = folder / "connect.log"
    with _running(log, "SparkSubmit", *words, memory=memory) as server:  # of a daemon, as Spark sees it
        port = _told(log, r"Spark Connect server started at: \S*:(\d+)", server)
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def _running(log: Path, kind: str, *words: str, memory: str = "128m") -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **os.environ,
        "SPARK_HOME": str(_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_DIRS": str(log.parent),
        "SPARK_DAEMON_MEMORY": memory,
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            [_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", *words],
            env=environment,
            stdout=out,
            stderr=out,
        )
    try:
        yield process
    finally:
        left = executors([process.pid])
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for one in left:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)


def _told(log: Path, words: str, by: subprocess.Popen[bytes]) -> str:
    """What it says once it is up; its whole log where it ends, or does not come that far."""
    end = time.monotonic() + SECONDS
    while (found := re.search(words, log.read_text("utf-8", "replace"))) is None:
        assert by.poll() is None, f"it ended with {by.returncode}:\n{log.read_text('utf-8', 'replace')}"
        assert time.monotonic() < end, f"not up after {SECONDS} s:\n{log.read_text('utf-8', 'replace')}"
        time.sleep(0.1)
    return found[1]
