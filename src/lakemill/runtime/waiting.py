"""Waiting until requests are visible: many threads of a process, one ear.

For writers, who wait for their own table; readers wait at the barrier (``runtime/barrier``), for all that they read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from lakemill.runtime.ear import Ear
from lakemill.settings import Settings
from lakemill.store import batches
from lakemill.store.db import Connection

POLL = 1.0
"""Seconds between looks where nothing is heard."""


class Waiting:
    """``connect`` lends a connection for a moment."""

    def __init__(self, settings: Settings, connect: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._connect = connect
        self._told, self._count = threading.Condition(), 0
        self._ear = Ear(settings, batches.PASSED, self._hear)

    def wait(self, table_id: int, token: int, seconds: float) -> bool:
        """Whether the table has passed the token by then."""
        ends = time.monotonic() + seconds
        while True:
            with self._told:
                count = self._count
            with self._connect() as conn:
                if not batches.not_passed(conn, token, {table_id}):
                    return True
            left = ends - time.monotonic()
            if left <= 0:
                return False
            with self._told:
                self._told.wait_for(lambda seen=count: self._count != seen, min(left, POLL))  # type: ignore[misc]

    def close(self) -> None:
        self._ear.close()

    def _hear(self, _: str) -> None:
        with self._told:
            self._count += 1
            self._told.notify_all()
