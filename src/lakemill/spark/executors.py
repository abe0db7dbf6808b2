"""A cluster that gives no executor: Spark by itself waits for one for ever, and says so in its log alone.

A thread beside a session whose work is done by others (``spark/session`` starts it). While jobs wait and nobody is
there to do them, time counts; after ``spark.executor_wait`` they are cancelled, with a reason by which ``core/engine``
knows them. Executors that come and go with the work are waited for in the same way.
"""

from __future__ import annotations

import re
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from lakemill.core.engine import NO_EXECUTORS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY = 1.0


def has_executors(spark: SparkSession) -> bool:
    """Whether work is done by processes other than the one that directs it, as far as that is known."""
    if hasattr(spark, "is_stopped"):  # Spark Connect does not say
        return False
    return re.fullmatch(r"local(\[.*\])?", str(spark.sparkContext.master)) is None


def watch(session: SparkSession, patience: timedelta) -> None:
    """From now on until the session ends."""
    words = (session.sparkContext, patience.total_seconds())
    threading.Thread(target=_watch, args=words, name="lakemill-executors", daemon=True).start()


def _watch(context: Any, patience: float) -> None:
    since: float | None = None
    with suppress(OSError, Py4JError, AttributeError):  # the JVM has ended, or Python's side of it has
        while not context._jsc.sc().isStopped():
            time.sleep(EVERY)
            waiting = list(context.statusTracker().getActiveJobsIds())
            if not waiting or _executors(context):
                since = None
                continue
            since = since or time.monotonic()
            if time.monotonic() - since > patience:
                _cancel(context, waiting, patience)


def _executors(context: Any) -> int:
    """How many have said that they are there; the driver is among those that Spark counts."""
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1


def _cancel(context: Any, jobs: list[int], patience: float) -> None:
    for job in jobs:
        context._jsc.sc().cancelJob(job, f"{NO_EXECUTORS} for {patience:g} s")
