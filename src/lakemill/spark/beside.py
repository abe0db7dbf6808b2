"""Two Spark jobs of one refresh at once: a thread that counts as the one that started it.

Half of a small job is Spark's planning, on one core of the driver. The thread has the caller's job group, tags and
scheduler pool, so that its jobs are counted and stopped with the caller's, and the caller's session. It must not touch
the lake's connections, which belong to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from pyspark.util import InheritableThread

from lakemill.spark.session import adopt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


@contextmanager
def beside(spark: SparkSession, work: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """``work``, while the body goes on; what is yielded waits for it and says what it returned, or raises what it did.

    The body is not left before it has ended, however the body ends.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            adopt(spark)
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    thread = InheritableThread(target=run, session=spark, name="lakemill-beside")
    thread.start()
    try:
        yield future.result
    finally:
        thread.join()
