"""A worker's slots: what each is at, how it is stopped, and what becomes of one that does not come back.

Cancelling stops Spark's jobs. A thread that waits for something else (a lock in PostgreSQL, a storage that never
answers, a JVM that hangs) can't be stopped from outside, so it is left behind: its claim, pins and work are taken from
it, its refresh has failed, and another thread takes its place. Should it wake, its publish is refused.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from lakemill.errors import LakemillError, RefreshTimedOut, SnapshotGone, UnknownDynamicTable
from lakemill.runtime import recording
from lakemill.runtime.accounting import account, trigger_of
from lakemill.runtime.claiming import free, holder
from lakemill.runtime.open import open as open_lake
from lakemill.store import db, definitions, work
from lakemill.store.work import Work
from lakemill.telemetry import metrics
from lakemill.telemetry.failures import failed
from lakemill.telemetry.log import refreshed

if TYPE_CHECKING:
    from lakemill.core.scan import Snapshot
    from lakemill.runtime.open import Lake
    from lakemill.settings import Settings
    from lakemill.spark import session
    from lakemill.store.definitions import DynamicTable

PATIENCE = 2.0
"""Seconds that Spark has to take a word: a JVM that hangs must not hold up whoever watches."""
_LOCKED_MS = 2000
_OURS = Path(__file__).parents[1]


@dataclass(slots=True, eq=False)
class Doing:
    """What a slot is at."""

    work: Work
    spark: session.Own
    since: float = field(default_factory=time.monotonic)
    lost: LakemillError | None = None
    """Why it must not go on."""
    lost_at: float = 0.0
    user: object = None
    """Of Spark (``spark/usage``)."""
    left_behind: bool = False
    _stopping: Thread | None = None

    @property
    def tag(self) -> str:
        """What Spark knows its jobs by."""
        return f"lakemill-work-{self.work.id}"

    def cancel(self, why: LakemillError) -> None:
        if self.lost is None:
            self.lost, self.lost_at = why, time.monotonic()
            self.interrupt()

    def interrupt(self) -> None:
        """Only this: its slot may have gone on to another meanwhile."""
        if self._stopping is None or not self._stopping.is_alive():
            self._stopping = Thread(target=self.spark.interrupt, args=(self.tag,), daemon=True)
            self._stopping.start()
            self._stopping.join(PATIENCE)

    def hangs(self, grace: float) -> bool:
        """Whether it was stopped, and has not returned for so many seconds."""
        return self.lost is not None and time.monotonic() - self.lost_at > grace


@dataclass(slots=True, eq=False)
class Slot:
    """A thread that does one piece of work after the other, and its place among the others."""

    number: int
    thread: Thread
    left_behind: bool = False

    def is_at(self) -> tuple[str, bool]:
        """The line of code that its thread stands at, and whether that waits for Spark."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        stack = traceback.extract_stack(frame) if frame is not None else []
        if not stack:
            return "nowhere", False
        ours = [line for line in stack if Path(line.filename).is_relative_to(_OURS)]
        named = dict.fromkeys(
            f"{Path(line.filename).name}:{line.lineno} {line.name}" for line in (*ours[-1:], stack[-1])
        )
        return " → ".join(named), any({"py4j", "grpc"} & set(Path(line.filename).parts) for line in stack)


def leave_behind(settings: Settings, worker: str, slot: Slot, doing: Doing) -> None:
    """What it held is free, and its work has failed; where somebody else holds these rows, it runs out by itself."""
    metrics.count_left_behind()
    with _told(doing), open_lake(settings) as lake:
        held = holder(slot.thread)
        with _told(doing):
            free(lake.conn, [held])
        table, b = _subject(lake, doing.work)
        with lake.conn.transaction():
            lake.conn.execute("SELECT set_config('lock_timeout', %s, true)", (f"{_LOCKED_MS}ms",))
            if not work.has(lake.conn, worker, doing.work.id):
                return  # another was given it
            if table is not None and b is not None:
                why = doing.lost or RefreshTimedOut("it hangs")
                since = datetime.now(UTC) - timedelta(seconds=time.monotonic() - doing.since)
                record = recording.left_behind(lake, table, trigger_of(doing.work), b, held, since, why)
                account(lake, doing.work, b, record)
                refreshed(record)
                metrics.observe_refresh(record)
            elif doing.work.dynamic_id is not None:
                work.pass_over(lake.conn, [doing.work.dynamic_id])
            work.done(lake.conn, worker, [doing.work.id])
            work.tell(lake.conn, work.DONE)


def _subject(lake: Lake, found: Work) -> tuple[DynamicTable | None, Snapshot | None]:
    """The table of a refresh, and the snapshot that it was to come to; None where they are gone, or it is upkeep."""
    if found.dynamic_id is None or found.b is None:
        return None, None
    with suppress(UnknownDynamicTable, SnapshotGone):
        return definitions.by_id(lake.conn, found.dynamic_id), lake.snapshot(found.b)
    return None, None


@contextmanager
def _told(doing: Doing) -> Iterator[None]:
    """Whatever the body can't do is told, and left out: whoever watches the slots goes on."""
    try:
        yield
    except db.LOST as error:
        failed("leave behind", db.unavailable(error), work=doing.work.subject)
    except Exception as error:
        failed("leave behind", error, work=doing.work.subject)
