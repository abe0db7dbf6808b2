"""Group commit: requests of all threads of a process share transactions of the bus, one after the other.

A thread takes what waits, publishes it, and tells everybody their outcome; while it does, the next group gathers. The
queue is bounded, and closed while too much is not yet visible: the gate shuts at the limits of the settings and opens
only well below them, so that it does not flutter. Knows nothing of columns or policies; see ``runtime/ingest``.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import suppress

from lakemill.core.bus import Accepted, Backlog, Bus, Outcome, Request
from lakemill.errors import Backlogged, InternalError, LakemillError, OutcomeUnknown, Stopped
from lakemill.ingest_settings import IngestSettings
from lakemill.telemetry import metrics

LOOK = 0.25
"""Seconds between looks at the backlog."""
FORGET = 60.0
PATIENCE = 120.0
"""Seconds that a request waits for its commit; the bus gives up long before."""


class Gate:
    """Open, or shut with a reason."""

    def __init__(self, settings: IngestSettings) -> None:
        self._limits = (
            ("records", settings.backlog_records),
            ("bytes", settings.backlog_bytes),
            ("seconds", settings.backlog_age.total_seconds()),
        )
        self._resume = settings.resume_at
        self.reason: str | None = None

    def look(self, backlog: Backlog) -> None:
        now = dict(zip(("records", "bytes", "seconds"), (backlog.records, backlog.bytes, backlog.age), strict=True))
        share = 1.0 if self.reason is None else self._resume
        over = [f"{now[unit]:,.0f} {unit}" for unit, limit in self._limits if now[unit] > limit * share]
        self.reason = f"not yet visible are {', '.join(over)}" if over else None


class Acceptor:
    """Give it requests from any thread; `close` when done."""

    def __init__(self, bus: Bus, settings: IngestSettings) -> None:
        self._bus, self._settings = bus, settings
        self._gather = settings.gather.total_seconds()
        self.gate = Gate(settings)
        self._waiting: deque[tuple[Request, Future[Accepted]]] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._closed = False
        self._look_at, self._forget_at = 0.0, time.monotonic() + FORGET
        self._forgetting = threading.Thread()
        self._thread = threading.Thread(target=self._run, name="accept", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """What waits is still published; what comes later is refused."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(PATIENCE)
        self._bus.close()
        metrics.set_backlog(0, 0, 0.0)  # what it saw last would stay for ever

    def accept(self, request: Request) -> Accepted:
        """Durable, with a token; or raises."""
        try:
            return self.submit(request).result(PATIENCE)
        except TimeoutError as error:
            raise OutcomeUnknown(
                f"the request was not committed within {PATIENCE:.0f} s, and may still be",
                remedy="send it again under the same key",
            ) from error

    def submit(self, request: Request) -> Future[Accepted]:
        """The same for later."""
        size = request.size
        future: Future[Accepted] = Future()
        with self._changed:
            if self._closed or not self._thread.is_alive():
                raise Stopped("this process takes no more requests", remedy="send it again; another process takes it")
            if self.gate.reason is not None and request.replays is None:
                raise Backlogged(self.gate.reason, wait=2.0)
            if self._bytes and self._bytes + size > self._settings.queue_bytes:
                raise Backlogged(f"{self._bytes:,} bytes of requests wait for their commit", wait=0.5)
            self._waiting.append((request, future))
            self._bytes += size
            self._changed.notify()
        return future

    # ------------------------------------------------------------ the thread
    def _run(self) -> None:
        shared = False
        while True:
            with self._changed:
                if not self._waiting and not self._closed:
                    self._changed.wait(LOOK)
                if self._closed and not self._waiting:
                    return
            self._look()
            if shared and self._waiting and self._gather:
                time.sleep(self._gather)  # others are on their way
            group = self._take()
            shared = len(group) > 1
            if group:
                self._publish(group)

    def _take(self) -> list[tuple[Request, Future[Accepted]]]:
        group: list[tuple[Request, Future[Accepted]]] = []
        size = 0
        with self._changed:
            while self._waiting:
                next_ = self._waiting[0][0].size
                if group and size + next_ > self._settings.group_bytes:
                    break
                group.append(self._waiting.popleft())
                size += next_
            self._bytes -= size
        return group

    def _publish(self, group: list[tuple[Request, Future[Accepted]]]) -> None:
        try:
            outcomes = self._bus.publish([request for request, _ in group])
        except LakemillError as error:
            for _, future in group:
                future.set_exception(error)
        except Exception as error:
            if len(group) == 1:
                group[0][1].set_exception(_internal(error))
            else:  # one of them is poison to the bus: the others must not pay
                for one in group:
                    self._publish([one])
        else:
            for (_, future), outcome in zip(group, outcomes, strict=True):
                _tell(future, outcome)

    def _look(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        with suppress(LakemillError):  # what is wrong with the bus, the next publish will tell
            backlog = self._bus.backlog()
            self.gate.look(backlog)
            metrics.set_backlog(backlog.records, backlog.bytes, backlog.age)
        if now > self._forget_at and not self._forgetting.is_alive():
            self._forget_at = now + FORGET
            self._forgetting = threading.Thread(target=self._forget, name="forget", daemon=True)
            self._forgetting.start()
        after = time.monotonic()
        self._look_at = after + max(LOOK, 10 * (after - now))  # a long backlog takes long to count

    def _forget(self) -> None:
        with suppress(LakemillError):  # the next time will do
            self._bus.forget()


def _tell(future: Future[Accepted], outcome: Outcome) -> None:
    if isinstance(outcome, LakemillError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _internal(error: Exception) -> LakemillError:
    made = InternalError(f"{type(error).__name__}: {error}")
    made.__cause__ = error
    return made
