"""How far a refresh is that takes long: told to PostgreSQL, where ``lakemill list`` finds it, and to the log.

Beside lines 8 to 10 of a refresh, in a thread that sleeps for the first seconds, so that short ones pay nothing. It
only tells: what it can't ask or write is left out, and the refresh goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING

from lakemill.errors import LakemillError
from lakemill.store import db, history
from lakemill.telemetry.log import log

if TYPE_CHECKING:
    from lakemill.runtime.refresh import Refresh
    from lakemill.spark.status import Status, Tasks

EVERY, LOGGED = 2.0, 10.0
"""Seconds between words to PostgreSQL, and to the log."""


@contextmanager
def telling(work: Refresh, status: Status) -> Iterator[None]:
    """While the body works it is told how far it is; afterwards nothing is left of that."""
    done = Event()
    thread = Thread(target=_tell, args=(work, status, done), name="lakemill-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()


def _tell(work: Refresh, status: Status, done: Event) -> None:
    """What was told is removed by whoever told it: it has a connection, and nobody waits for it."""
    began = logged = time.monotonic()
    if done.wait(EVERY):
        return
    refresh = work.record.id
    with suppress(LakemillError, *db.LOST), db.connect(work.lake.dsn) as conn:
        try:
            while True:
                text = told(work.doing, status.tasks(), time.monotonic() - began)
                history.tell_progress(conn, refresh, text)
                if time.monotonic() - logged >= LOGGED:
                    logged = time.monotonic()
                    log().info(f"{work.table.name}: {text}", refresh=str(refresh))
                if done.wait(EVERY):
                    return
        finally:
            history.end_progress(conn, refresh)


def told(phase: str | None, tasks: Tasks | None, seconds: float) -> str:
    """``compute: 120 of 400 tasks of 3 stages, 14 s``."""
    parts = [f"{seconds:.0f} s"]
    if tasks is not None and tasks.total:
        of = f"{tasks.stages} stage{'' if tasks.stages == 1 else 's'}"
        parts.insert(0, f"{tasks.done} of {tasks.total} tasks of {of}")
    return f"{phase or 'working'}: {', '.join(parts)}"
