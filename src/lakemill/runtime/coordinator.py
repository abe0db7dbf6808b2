"""The coordinator: looks what waits in the bus, and lets its slots make batches of it.

A table is due when its oldest request has waited for ``ingest.interval``, or much waits. It looks when somebody accepts
a request, when a batch is passed, and once a second. Any number may run: a table is claimed for one batch, by one of
them. It holds nothing that another could not read anew, so that it may be killed at any line; what a batch is,
``materialise`` knows. A slot whose batch hangs, and can't be stopped, is left behind for another one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING

from lakemill.core.batch import Pending
from lakemill.errors import EngineLost, EngineUnreachable, InternalError, LakemillError
from lakemill.runtime import overtime
from lakemill.runtime.claiming import free_the_dead
from lakemill.runtime.materialise import materialise, warm
from lakemill.runtime.meaning import meaning
from lakemill.runtime.open import open as open_lake
from lakemill.spark import session, usage
from lakemill.store import db, work
from lakemill.telemetry import metrics
from lakemill.telemetry.failures import failed
from lakemill.telemetry.log import log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakemill.ingest_settings import IngestSettings
    from lakemill.runtime.open import Lake
    from lakemill.settings import Settings

LOOK = 1.0
"""Seconds between looks where nobody tells of anything."""
SETTLE = 0.03
"""Seconds at least between two looks: requests come in bursts."""
MEASURE = 5.0
TIDY = 60.0


def is_due(one: Pending, ingest: IngestSettings) -> bool:
    """Whether a batch of it is worth beginning; nobody else must have it."""
    if one.pause > 0 or one.held > 0:
        return False
    many = one.records >= ingest.batch_records or one.bytes >= ingest.batch_bytes
    return many or one.requests >= ingest.batch_requests or one.age >= ingest.interval.total_seconds()


def patience(found: Sequence[Pending], ingest: IngestSettings) -> float:
    """Seconds until one of these is due, as far as is known now."""
    due = (max(one.pause, one.held, ingest.interval.total_seconds() - one.age) for one in found)
    return max(SETTLE, min(LOOK, *due, LOOK))


@dataclass(slots=True, eq=False)
class Slot:
    """A thread that makes batches, one after the other, and what it is at."""

    number: int
    own: session.Own | None = None
    table_id: int | None = None
    since: float | None = None
    """When it began that, by the monotonic clock; None: it waits for something to do."""
    user: object = None
    """Of Spark."""
    left_behind: bool = False

    @contextmanager
    def at_work(self, table_id: int | None) -> Iterator[None]:
        with usage.used() as user:
            self.table_id, self.user, self.since = table_id, user, time.monotonic()
            try:
                yield
            finally:
                self.since = None

    def interrupt(self) -> None:
        if self.own is not None:
            self.own.interrupt(self.own.tag)


class Coordinator:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._todo: SimpleQueue[int] = SimpleQueue()
        self._doing: set[int] = set()
        """Tables that a slot has, or will have next."""
        self._slots: list[Slot] = []
        self._threads: list[Thread] = []
        self._lost = Event()
        """Spark must be started anew, once nobody is at work."""
        self._wanted = Event()
        """Some table takes requests: until then there is no need of Spark."""
        self._measured = self._tidied = self._freed = 0.0
        self._stop = Event()
        self.ready = False

    # ------------------------------------------------------------ life
    def run(self, stop: Event) -> None:
        """Until it is told to stop; then what was begun may end, for a while, and the rest is left to others."""
        self._stop = stop
        for number in range(self._settings.ingest.slots):
            self._start(Slot(number))
        pause = self._settings.service.retry_base.total_seconds()
        while not stop.is_set():
            try:
                with open_lake(self._settings) as lake, closing(db.connect(lake.dsn)) as heard:
                    self._look_on(lake, heard)
            except db.LOST as error:
                failed("coordinate", db.unavailable(error))
            except Exception as error:  # whatever it is, the next look is tried
                failed("coordinate", error)
            metrics.set_pending({})  # what it saw last would stay for ever
            stop.wait(pause)
        self._end()

    def _start(self, slot: Slot) -> None:
        self._slots.append(slot)
        name = f"lakemill-ingest-{slot.number}"
        self._threads.append(Thread(target=self._slot, args=(slot,), name=name, daemon=True))
        self._threads[-1].start()

    def _end(self) -> None:
        deadline = time.monotonic() + self._settings.service.stop_grace.total_seconds()
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for slot in self._slots:
            slot.interrupt()  # the batch fails, and is left to others
        for thread in self._threads:
            thread.join(1.0)
        log().info("stopped", left=sorted(self._doing))

    # ------------------------------------------------------------ looking
    def _look_on(self, lake: Lake, heard: db.Connection) -> None:
        ingest = self._settings.ingest
        log().info("coordinating", slots=ingest.slots, lake=lake.settings.data_path)
        with work.listening(heard, work.ACCEPTED, work.PASSED):
            while not self._stop.is_set():
                if not self._wanted.is_set() and not lake.consumer.any_table():
                    self.ready = True
                    work.wait(heard, LOOK)
                    continue
                self._wanted.set()
                found = lake.consumer.pending()
                others = [one for one in found if one.table_id not in self._doing]
                for one in others:
                    if len(self._doing) < ingest.slots and is_due(one, ingest) and not self._lost.is_set():
                        self._doing.add(one.table_id)
                        self._todo.put(one.table_id)
                self._tend(lake, found)
                waiting = [one for one in others if one.table_id not in self._doing]
                full = len(self._doing) >= ingest.slots
                work.wait(heard, LOOK if full else patience(waiting, ingest))
                self._stop.wait(SETTLE)

    def _tend(self, lake: Lake, found: Sequence[Pending]) -> None:
        """What has to be done now and then, beside the batches."""
        now = time.monotonic()
        self._leave_behind(now)
        if self._lost.is_set() and usage.recycle_when_idle():
            log().info("Spark was started anew")
            self._lost.clear()
        if any(one.held for one in found if one.table_id not in self._doing) and now - self._freed > LOOK:
            self._freed = now
            free_the_dead(lake.conn, lake.consumer)
        if now - self._measured > MEASURE:
            self._measured = now
            _measure(lake, found)
        if now - self._tidied > TIDY:
            self._tidied = now
            _tidy(lake)

    def _leave_behind(self, now: float) -> None:
        """A slot whose time is over for long has not returned although its jobs were stopped: another takes its place.

        Spark is started anew as soon as the others are idle, which ends the thread, too.
        """
        most = self._settings.ingest.batch_timeout.total_seconds() + 2 * overtime.GRACE
        for slot in [one for one in self._slots if one.since is not None and now - one.since > most]:
            log().error("a batch hangs, and can't be stopped: its slot is replaced", table_id=slot.table_id)
            slot.left_behind = True
            self._slots.remove(slot)
            usage.give_up(slot.user)
            if slot.table_id is not None:
                self._doing.discard(slot.table_id)
            self._lost.set()
            self._start(Slot(slot.number))

    # ------------------------------------------------------------ one slot
    def _slot(self, slot: Slot) -> None:
        pause = self._settings.service.retry_base.total_seconds()
        while not self._stop.is_set() and not slot.left_behind:
            if not self._wanted.wait(LOOK):
                continue
            try:
                with open_lake(self._settings) as lake:
                    slot.own = session.own(f"ingest-{slot.number}")
                    slot.own.tag = f"lakemill-ingest-{slot.number}"
                    with slot.at_work(None):
                        warm(lake)
                    self.ready = True
                    self._pass_all(lake, slot)
            except db.LOST as error:
                failed("ingest", db.unavailable(error))
            except Exception as error:  # whatever it is, the next batch is tried
                told = meaning(error)  # a JVM that is gone has several ways of saying so
                failed("ingest", error if isinstance(told, InternalError) else told)
                if isinstance(told, EngineLost | EngineUnreachable) and not slot.left_behind:
                    self._lost.set()
            self._stop.wait(pause)

    def _pass_all(self, lake: Lake, slot: Slot) -> None:
        while not self._stop.is_set() and not slot.left_behind:
            try:
                table_id = self._todo.get(timeout=LOOK)
            except Empty:
                continue
            try:
                with slot.at_work(table_id):
                    materialise(lake, table_id, self._stop.is_set, slot.interrupt)
            finally:
                if not slot.left_behind:
                    self._doing.discard(table_id)


def _measure(lake: Lake, found: Sequence[Pending]) -> None:
    names: dict[int, str] = {}
    if not found:
        metrics.set_pending({})
        return
    with lake.catalog() as catalog:
        head = catalog.head().id
        for one in found:
            table = catalog.table_by_id(one.table_id, head)
            names[one.table_id] = f"table {one.table_id}" if table is None else table.full_name
    metrics.set_pending({names[one.table_id]: (one.age, one.records, one.bytes) for one in found})


def _tidy(lake: Lake) -> None:
    """Requests that are passed go, and old parts of the ledger; any coordinator may do it."""
    lake.consumer.tidy(lake.settings.ingest.ledger)
    with suppress(LakemillError):
        if gone := lake.consumer.requeue_expired():
            log().warning("their coordinator was silent for too long: others go on with these tables", tables=gone)
