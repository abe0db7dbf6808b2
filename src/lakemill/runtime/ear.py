"""An ear of a process: a thread that hears what PostgreSQL tells on a channel, and goes on through every failure.

One for all who wait in a process, so that a thousand of them take one connection. What was told while it was deaf is
lost: whoever needs to know looks by itself, too, from time to time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

from lakemill.errors import LakemillError
from lakemill.settings import Settings
from lakemill.store import db, work
from lakemill.store.embedded import store_dsn
from lakemill.telemetry.log import failed

POLL, PAUSE = 2.0, 1.0
"""Seconds: between looks whether it is to end, and before another try when PostgreSQL is away."""


class Ear:
    def __init__(self, settings: Settings, channel: str, heard: Callable[[str], None]) -> None:
        self._settings, self._channel, self._heard = settings, channel, heard
        self._closed = threading.Event()
        threading.Thread(target=self._listen, name=f"ear {channel}", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                with closing(db.connect(store_dsn(self._settings))) as conn, work.listening(conn, self._channel):
                    while not self._closed.is_set():
                        for word in work.heard(conn, POLL):
                            self._heard(word)
            except (LakemillError, *db.LOST) as error:
                if not self._closed.wait(PAUSE):
                    failed(f"listening for {self._channel}", db.unavailable(error))
