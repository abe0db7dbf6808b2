"""What Spark says of a refresh's jobs: how far they are, what they hold, and in the end tasks, executors and spill.

Jobs are found by their group, which is set for the thread that works. Counts of tasks come from PySpark's status
tracker; executors and spill, which that does not have, from the status store behind it, as the values of Spark's REST
API (``status.api.v1``). Through Spark Connect nothing is known. It only asks: a JVM that is gone is told by others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from lakemill.spark.executors import has_executors

if TYPE_CHECKING:
    from pyspark import SparkJobInfo
    from pyspark.sql import SparkSession

SETTLE = 0.5
"""Seconds: events reach the status store a moment after a job has ended; longer is not waited."""


@dataclass(frozen=True, slots=True)
class Spent:
    jobs: int
    tasks: int
    executors: int
    spilled_bytes: int


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes that the jobs hold: in memory at the same time, at most, and all that they have spilled to disk so far."""

    memory: int
    spilled: int

    @property
    def total(self) -> int:
        return self.memory + self.spilled


@dataclass(frozen=True, slots=True)
class Tasks:
    """Of the stages that are known so far; more may come."""

    done: int
    total: int
    stages: int


class Status:
    def __init__(self, spark: SparkSession, group: str) -> None:
        connect = type(spark).__module__ != "pyspark.sql.session"
        self._context: Any = None if connect else spark.sparkContext
        self._group, self._apart = group, has_executors(spark)

    @property
    def known(self) -> bool:
        """Whether the session can tell; Spark Connect can't."""
        return self._context is not None

    def tasks(self) -> Tasks | None:
        """How far it is; from any thread."""
        if self._context is None:
            return None
        with suppress(OSError, Py4JError):
            tracker = self._context.statusTracker()
            found = [stage for number in _stages(self._jobs()) if (stage := tracker.getStageInfo(number)) is not None]
            known = [stage for stage in found if stage.numTasks]
            return Tasks(sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known), len(known))
        return None

    def spent(self) -> Spent | None:
        """What its jobs took, of every stage its last attempt."""
        if self._context is None:
            return None
        with suppress(OSError, Py4JError):
            jobs = self._ended_jobs()
            store = self._context._jsc.sc().statusStore()
            stages = [stage for number in _stages(jobs) if (stage := _stage(store, number)) is not None]
            tasks = [stage.numCompleteTasks() for stage in stages]
            ran = [stage for stage, count in zip(stages, tasks, strict=True) if count]
            spilled = sum(stage.diskBytesSpilled() for stage in ran)
            return Spent(len(jobs), sum(tasks), len(self._executors(store, ran)), spilled)
        return None

    def held(self) -> Held | None:
        """What the jobs hold, as far as that is known; from any thread.

        Of tasks that are done Spark knows the peak, so the mean of a stage counts as often as tasks run at a time. Of
        those that run it knows nothing but in its own process, where the memory's manager is asked.
        """
        if self._context is None:
            return None
        with suppress(OSError, Py4JError):
            store, cores = self._context._jsc.sc().statusStore(), int(self._context.defaultParallelism)
            stages = [stage for number in _stages(self._jobs()) if (stage := _stage(store, number)) is not None]
            peaks = [_peak(stage, cores) for stage in stages]
            running = 0 if self._apart else sum(self._running(store, stage) for stage in stages)
            return Held(max([running, *peaks]), sum(stage.diskBytesSpilled() for stage in stages))
        return None

    def cancel(self) -> None:
        """Its jobs fail, from any thread; nobody else's."""
        with suppress(OSError, Py4JError):
            if self._context is not None:
                self._context.cancelJobGroup(self._group)

    def _running(self, store: Any, stage: Any) -> int:
        """What the tasks of a stage hold at this moment."""
        if not stage.numActiveTasks():
            return 0
        jvm = self._context._jvm
        wanted = jvm.java.util.ArrayList()
        wanted.add(jvm.org.apache.spark.status.api.v1.TaskStatus.RUNNING)
        none, most = jvm.scala.Option.empty(), 2 * int(self._context.defaultParallelism)
        tasks = store.taskList(stage.stageId(), stage.attemptId(), 0, most, none, True, wanted)
        manager = jvm.org.apache.spark.SparkEnv.get().memoryManager()
        ids = [tasks.apply(place).taskId() for place in range(tasks.size())]
        return sum(int(manager.getExecutionMemoryUsageForTask(task)) for task in ids)

    def _executors(self, store: Any, stages: list[Any]) -> set[str]:
        if not self._apart:
            return {"driver"} if stages else set()
        found: set[str] = set()
        for stage in stages:
            keys = store.executorSummary(stage.stageId(), stage.attemptId()).keysIterator()
            while keys.hasNext():
                found.add(keys.next())
        return found

    def _ended_jobs(self) -> list[SparkJobInfo]:
        """All of them; those that have just ended are waited for."""
        end = time.monotonic() + SETTLE
        while (jobs := self._jobs()) and any(job.status == "RUNNING" for job in jobs) and time.monotonic() < end:
            time.sleep(0.01)
        return jobs

    def _jobs(self) -> list[SparkJobInfo]:
        tracker = self._context.statusTracker()
        found = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group))
        return [job for job in found if job is not None]


def _stages(jobs: list[SparkJobInfo]) -> list[int]:
    return sorted({int(stage) for job in jobs for stage in job.stageIds})


def _peak(stage: Any, cores: int) -> int:
    """What those tasks of a stage that are done held together, as many of them as run at a time."""
    done = int(stage.numCompleteTasks())
    return int(stage.peakExecutionMemory()) * min(done, cores) // done if done else 0


def _stage(store: Any, number: int) -> Any:
    try:
        return store.lastStageAttempt(number)
    except Py4JError:  # it was skipped, because what it makes was there, or is forgotten by now
        return None


@contextmanager
def grouped_jobs(spark: SparkSession, group: str) -> Iterator[Status]:
    """Jobs that are started in the body, by this thread, are a group that can be asked about."""
    status = Status(spark, group)
    if not status.known:
        yield status
        return
    context: Any = spark.sparkContext
    context.setJobGroup(group, f"refresh {group}")
    try:
        yield status
    finally:
        with suppress(OSError, Py4JError):  # a JVM that is gone counts nothing, and its loss is being told
            context.setLocalProperty("spark.jobGroup.id", None)
