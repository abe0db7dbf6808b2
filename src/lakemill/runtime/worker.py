"""A worker: takes due work, does it in its slots, and says that it lives.

Lines 5 to 11 of a refresh. Each slot is a thread with its own connections and its own session on the one JVM. A slot
ends what it took, whatever happens: done, failed and counted, or handed back. One that was paused past its claim finds
its work given to others, and its publish refused.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from lakemill.core.scan import Snapshot
from lakemill.errors import (
    ClaimLost,
    EngineLost,
    EngineUnreachable,
    LakemillError,
    RefreshTimedOut,
    SnapshotGone,
    Stopped,
    UnknownDynamicTable,
)
from lakemill.runtime import buses
from lakemill.runtime.accounting import account, trigger_of
from lakemill.runtime.claiming import forget_the_dead, free, free_the_dead, holder
from lakemill.runtime.open import open as open_lake
from lakemill.runtime.refresh import refresh_at
from lakemill.runtime.slots import Doing, Slot, leave_behind
from lakemill.runtime.tending import tend
from lakemill.spark import session, usage
from lakemill.store import db, work
from lakemill.store.embedded import store_dsn
from lakemill.store.work import Kind, Work
from lakemill.telemetry import metrics, tracing
from lakemill.telemetry.failures import failed
from lakemill.telemetry.log import log, refreshed

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake
    from lakemill.settings import Settings
    from lakemill.store.history import RefreshRecord

POLL = 5.0
"""Seconds between looks for work where nobody tells of any."""
WATCH = 1.0
DRAIN = 60.0
"""Seconds that all others may stand idle before the JVM is started anew, because one is still at work."""


def default_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


class Worker:
    def __init__(
        self, settings: Settings, name: str = "", slots: int = 0, kinds: Iterable[Kind] = (Kind.REFRESH, Kind.UPKEEP)
    ) -> None:
        self._settings = settings
        self.name = name or default_name()
        self.slots = slots or settings.service.slots
        self.kinds = tuple(kinds)
        self._slots: dict[int, Slot] = {}
        self._behind: list[Thread] = []
        """Threads that did not come back; some may have ended since."""
        self._doing: dict[int, Doing] = {}
        self._taking = Lock()
        self._pause = Event()
        """Nobody takes new work: the JVM is about to be started anew."""
        self._lost = Event()
        """It must be: it is gone."""
        self._left: set[int] = set()
        """Work that could not be handed back, because PostgreSQL did not answer."""
        self._stop = Event()
        self.ready = False
        self.broken: str | None = None
        """Why it has stopped by itself."""

    @property
    def doing(self) -> tuple[Work, ...]:
        return tuple(one.work for one in list(self._doing.values()))

    # ------------------------------------------------------------ life
    def run(self, stop: Event) -> None:
        """Until it is told to stop; then what is at work may end, for a while, and the rest is handed back."""
        self._stop = stop
        with suppress(LakemillError, *db.LOST), closing(self._connect()) as conn:
            work.leave(conn, self.name)  # what one of this name had, and did not end
            forget_the_dead(conn)  # in whose place it may have been started
        for number in range(self.slots):
            self._start(number)
        if Kind.INGEST in self.kinds:
            log().warning("no work of the kind ingest exists yet: none will be taken", worker=self.name)
        log().info("working", worker=self.name, slots=self.slots, kinds=[kind.value for kind in self.kinds])
        last = 0.0
        while not stop.wait(WATCH):
            try:
                if time.monotonic() - last >= self._settings.service.heartbeat.total_seconds():
                    last = time.monotonic()
                    self._beat()
                self._watch()
                self._recycle()
            except Exception as error:  # slots whose worker is not heard of would lose all their work
                failed("watch", error)
        self._end()

    def _start(self, number: int) -> None:
        thread = Thread(name=f"lakemill-slot-{number}", daemon=True, target=lambda: self._slot(slot))
        slot = self._slots[number] = Slot(number, thread)
        thread.start()

    def _end(self) -> None:
        threads = [slot.thread for slot in self._slots.values()]
        deadline = time.monotonic() + self._settings.service.stop_grace.total_seconds()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for one in list(self._doing.values()):
            one.cancel(Stopped("the worker was told to stop"))
        deadline = time.monotonic() + WATCH * 2
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with suppress(LakemillError, *db.LOST), closing(self._connect()) as conn:
            work.leave(conn, self.name)
            free(conn, [holder(thread) for thread in threads])
        log().info("stopped", worker=self.name, left=[one.subject for one in self.doing])

    def _beat(self) -> None:
        """Tell that it lives; what others have been given meanwhile is stopped."""
        doing = list(self._doing.values())
        service = self._settings.service
        try:
            with closing(self._connect()) as conn:
                ids = [one.work.id for one in doing]
                mine = work.extend(conn, self.name, self.slots, self.kinds, ids, service.claim_expiry)
                free_the_dead(conn, buses.consumer(conn, store_dsn(self._settings)))
        except db.LOST as error:
            failed("heartbeat", db.unavailable(error))
        except LakemillError as error:
            failed("heartbeat", error)
        else:
            for one in doing:
                if one.work.id not in mine and one in self._doing.values():  # it may have been done meanwhile
                    one.cancel(ClaimLost("the claim has passed to another worker"))

    def _watch(self) -> None:
        service = self._settings.service
        most = service.refresh_timeout.total_seconds()
        for number, one in list(self._doing.items()):
            if one.hangs(service.hang_grace.total_seconds()):
                self._leave_behind(self._slots[number], one)
            elif one.lost is not None:
                one.interrupt()  # it may have been between two jobs
            elif time.monotonic() - one.since > most:
                one.cancel(RefreshTimedOut(f"it took longer than {most:.0f} s"))

    def _leave_behind(self, slot: Slot, doing: Doing) -> None:
        """It was stopped, and did not come back: another takes its place, or this process has had its time."""
        with self._taking:
            if self._doing.get(slot.number) is not doing:
                return  # it came back just now
            slot.left_behind = doing.left_behind = True
            del self._doing[slot.number], self._slots[slot.number]
        usage.give_up(doing.user)
        self._behind.append(slot.thread)
        place, in_spark = slot.is_at()
        log().error("a slot hangs, and can't be stopped: it is left behind", work=doing.work.subject, at=place)
        if in_spark:
            self._lose_engine()  # another JVM also ends what waits for this one
        leave_behind(self._settings, self.name, slot, doing)
        hanging = sum(thread.is_alive() for thread in self._behind)
        if hanging < self._settings.service.left_behind:
            self._start(slot.number)
            return
        self.broken = f"slots that hang: {hanging}"
        log().error(f"{self.broken}; the process ends, to be started anew", worker=self.name)
        self._stop.set()

    def _recycle(self) -> None:
        """After so many refreshes, or when it has grown too large, Spark's JVM is started anew; nobody works then.

        What a coordinator and the API of the same process did on it counts as well. One that is at work for long does
        not hold up all others: as long as the JVM lives, that can wait.
        """
        service = self._settings.service
        if not self._lost.is_set():
            often = service.recycle_jobs and usage.done() >= service.recycle_jobs
            if not often and _jvm_memory() < service.recycle_memory:
                self._pause.clear()  # the coordinator beside us may have done it
                return
            if usage.longest() > DRAIN:
                usage.recycle_later()
                self._pause.clear()
                return
        self._pause.set()
        with self._taking:
            after = usage.done()
            if not self._doing and usage.recycle_when_idle():
                log().info("Spark was started anew", after=after)
                self._lost.clear()
                self._pause.clear()

    def _lose_engine(self) -> None:
        self._lost.set()
        self._pause.set()

    def _connect(self) -> db.Connection:
        return db.connect(store_dsn(self._settings))

    # ------------------------------------------------------------ one slot
    def _slot(self, slot: Slot) -> None:
        pause = self._settings.service.retry_base.total_seconds()
        while not self._stop.is_set() and not slot.left_behind:
            try:
                with open_lake(self._settings) as lake, closing(db.connect(lake.dsn)) as heard:
                    self._hand_back(lake.conn)
                    self.ready = True
                    self._take_all(slot, lake, heard)
            except db.LOST as error:
                failed("work", db.unavailable(error))
            except Exception as error:  # whatever it is, the next piece of work is tried
                failed("work", error)
            self._stop.wait(pause)

    def _take_all(self, slot: Slot, lake: Lake, heard: db.Connection) -> None:
        spark = session.own(f"slot-{slot.number}")
        with work.listening(heard, work.DUE, work.DONE):
            while not self._stop.is_set() and not slot.left_behind:
                doing = self._take(slot, lake, spark)
                if doing is None:
                    work.wait(heard, POLL if not self._pause.is_set() else WATCH)
                    continue
                spark.tag = doing.tag
                try:
                    with usage.used() as doing.user:
                        if doing.work.kind is Kind.REFRESH:
                            self._refresh(lake, doing)
                        elif doing.work.kind is Kind.UPKEEP:
                            self._tend(lake, doing.work)
                except UnknownDynamicTable:
                    pass  # dropped meanwhile; its work went with it
                except BaseException:
                    if not slot.left_behind:
                        self._left.add(doing.work.id)
                    raise
                finally:
                    with self._taking:
                        if self._doing.get(slot.number) is doing:
                            del self._doing[slot.number]

    def _take(self, slot: Slot, lake: Lake, spark: session.Own) -> Doing | None:
        with self._taking:
            if self._pause.is_set():
                return None
            expiry, patience = self._settings.service.claim_expiry, self._settings.upkeep.patience
            found = work.take(lake.conn, self.name, self.kinds, expiry, patience)
            if found is not None:
                self._doing[slot.number] = Doing(found, spark)
            return self._doing.get(slot.number)

    def _hand_back(self, conn: db.Connection) -> None:
        left = list(self._left)
        work.hand_back(conn, self.name, left)
        self._left.difference_update(left)

    def _refresh(self, lake: Lake, doing: Doing) -> None:
        found = doing.work
        assert found.dynamic_id is not None  # noqa: S101  (a refresh is of a table, at a b and a t)
        assert found.b is not None  # noqa: S101
        assert found.t is not None  # noqa: S101
        b: Snapshot | None = None
        record: RefreshRecord | None = None
        try:
            b = lake.snapshot(found.b)
            with tracing.carried(found.traceparent):
                record = refresh_at(lake, found.dynamic_id, b, found.t, lambda: doing.lost, trigger_of(found))
        except SnapshotGone as error:  # it was expired before anybody came to it: a later one is planned
            failed("refresh", error, dynamic_id=found.dynamic_id)
        with lake.conn.transaction():
            if not work.has(lake.conn, self.name, found.id):
                pass  # another was given it, and does or did it
            elif isinstance(doing.lost, Stopped):
                work.hand_back(lake.conn, self.name, [found.id])
            else:
                if record is None or b is None or record.error_code == ClaimLost.code:
                    work.pass_over(lake.conn, [found.dynamic_id])
                else:
                    account(lake, found, b, record)
                work.done(lake.conn, self.name, [found.id])
            work.tell(lake.conn, work.DONE)
        if record is not None and not doing.left_behind:
            refreshed(record)
            metrics.observe_refresh(record)
            if record.error_code in (EngineLost.code, EngineUnreachable.code):  # half a JVM may be left
                self._lose_engine()

    def _tend(self, lake: Lake, found: Work) -> None:
        """One job of upkeep; what it could not do is tried again when there is a reason to."""
        if isinstance(tend(lake, found), EngineLost | EngineUnreachable):
            self._lose_engine()
        work.done(lake.conn, self.name, [found.id])


def _jvm_memory() -> int:
    """Bytes that Spark's own process holds; 0 where there is none here, or the machine does not say."""
    process = session.process()
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text("ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
