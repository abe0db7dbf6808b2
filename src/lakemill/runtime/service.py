"""A process of the service: a scheduler, a worker, a coordinator, or some of them, until it is told to stop.

Each part is a thread that goes on by itself through every failure; here they are started, watched and ended.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from threading import Event, Thread

from lakemill.errors import LakemillError
from lakemill.runtime.coordinator import Coordinator
from lakemill.runtime.open import open as open_lake
from lakemill.runtime.scheduler import Scheduler
from lakemill.runtime.worker import Worker
from lakemill.settings import Settings
from lakemill.store import db
from lakemill.store.embedded import store_dsn
from lakemill.telemetry.log import log

LATEST = 5.0
"""Seconds beyond the worker's grace after which a part is left to the process's end."""


class Service:
    def __init__(
        self,
        settings: Settings,
        *,
        scheduler: Scheduler | None = None,
        worker: Worker | None = None,
        coordinator: Coordinator | None = None,
    ) -> None:
        self._settings = settings
        self._parts: dict[str, Scheduler | Worker | Coordinator] = {}
        if scheduler is not None:
            self._parts["scheduler"] = scheduler
        if worker is not None:
            self._parts["worker"] = worker
        if coordinator is not None:
            self._parts["coordinator"] = coordinator
        self._threads: list[Thread] = []

    def start(self, stop: Event) -> None:
        """Refuses what can't work at all; from then on the parts are on their own."""
        with open_lake(self._settings):
            pass
        for name, part in self._parts.items():
            self._threads.append(Thread(target=part.run, args=(stop,), name=f"lakemill-{name}", daemon=True))
            self._threads[-1].start()

    def join(self) -> None:
        """After ``stop`` was set: until all parts have ended, but not for ever."""
        deadline = time.monotonic() + self._settings.service.stop_grace.total_seconds() + LATEST
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        late = [thread.name for thread in self._threads if thread.is_alive()]
        if late:
            log().warning("left behind", parts=late)

    # ------------------------------------------------------------ what probes ask
    @property
    def broken(self) -> str | None:
        """Why the process ends although nobody asked for it; None where that is not so."""
        return next((part.broken for part in self._parts.values() if isinstance(part, Worker) and part.broken), None)

    def alive(self) -> str | None:
        if self.broken is not None:
            return self.broken
        dead = [thread.name for thread in self._threads if not thread.is_alive()]
        return f"{', '.join(dead)} has ended" if dead else None

    def ready(self) -> Mapping[str, str | None]:
        found: dict[str, str | None] = {
            name: None if part.ready else "has not begun yet" for name, part in self._parts.items()
        }
        try:
            with closing(db.connect(store_dsn(self._settings))) as conn:
                conn.execute("SELECT 1")
            found["postgres"] = None
        except (LakemillError, *db.LOST) as error:
            found["postgres"] = str(error)
        return found
