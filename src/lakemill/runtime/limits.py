"""Beside a refresh: what its Spark jobs hold is watched, and one that holds more than it may is stopped.

A thread a refresh, while lines 8 to 10 run, where ``service.refresh_memory`` is set. Only its own jobs are cancelled:
others in the same JVM go on. What it was stopped by it finds in ``Refresh.stopped``, and tells as its error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from lakemill.errors import RefreshTooLarge
from lakemill.telemetry.log import size_text

if TYPE_CHECKING:
    from lakemill.runtime.refresh import Refresh
    from lakemill.spark.status import Held, Status

EVERY = 0.5
"""Seconds between looks; what takes less time may pass unseen, and does no harm."""


@contextmanager
def limited(work: Refresh, status: Status) -> Iterator[None]:
    """The body works; above the limit its jobs fail."""
    most = work.lake.settings.service.refresh_memory
    if most is None or not status.known:
        yield
        return
    done = Event()
    Thread(target=_watch, args=(work, status, most, done), name="lakemill-limits", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _watch(work: Refresh, status: Status, most: int, done: Event) -> None:
    while not done.wait(EVERY):
        if work.stopped is None:
            held = status.held()
            if held is None or held.total <= most:
                continue
            work.stopped = too_large(held, most)
        status.cancel()  # again and again: it may have been between two jobs


def too_large(held: Held, most: int) -> RefreshTooLarge:
    parts = f"{size_text(held.memory)} of memory, {size_text(held.spilled)} spilled to disk"
    return RefreshTooLarge(
        f"its Spark jobs held {size_text(held.total)} ({parts}), which is more than service.refresh_memory,"
        f" {size_text(most)}"
    )
