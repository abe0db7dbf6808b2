"""A few open things, lent to one thread at a time: lakes for requests, connections for what stands before them.

Opening takes longer than most requests do. What comes back broken, or was idle while PostgreSQL went away, is closed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, Protocol, TypeVar

from lakemill.errors import Busy
from lakemill.runtime.open import Lake
from lakemill.runtime.open import open as open_lake
from lakemill.settings import Settings
from lakemill.store import db
from lakemill.store.embedded import store_dsn

PATIENCE = 10.0
"""Seconds that a request waits for its turn."""
FRESH = 1.0
"""What was idle for longer is asked whether it still works."""
KEPT_DUCKS = 2
"""Idle lakes that keep their DuckDB, which has memory of its own."""


class Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)


class Pool(Generic[T]):
    """``works`` says whether one can be lent again; ``answers`` asks PostgreSQL."""

    def __init__(self, open_: Callable[[], T], works: Callable[[T], bool], most: int) -> None:
        self._open, self._works = open_, works
        self._turns = threading.BoundedSemaphore(most)
        self._idle: list[tuple[float, T]] = []
        self._lock = threading.Lock()

    @contextmanager
    def lent(self) -> Iterator[T]:
        if not self._turns.acquire(timeout=PATIENCE):
            raise Busy("too many requests are under way")
        try:
            one = self._found() or self._open()
            try:
                yield one
            finally:
                self._back(one)
        finally:
            self._turns.release()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for _, one in idle:
            one.close()

    def _found(self) -> T | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                since, one = self._idle.pop()
            if time.monotonic() - since < FRESH or self._works(one):
                return one
            one.close()

    def _back(self, one: T) -> None:
        if not healthy(one):
            with suppress(*db.LOST):
                one.close()
            return
        with self._lock:
            if isinstance(one, Lake) and len(self._idle) >= KEPT_DUCKS:
                one.renew_duck()
            self._idle.append((time.monotonic(), one))


def healthy(one: object) -> bool:
    """Whether its connection is there, and in no transaction."""
    conn: db.Connection = one.conn if isinstance(one, Lake) else one  # type: ignore[assignment]
    return not conn.closed and not conn.broken and conn.info.transaction_status.name == "IDLE"


def answers(one: object) -> bool:
    conn: db.Connection = one.conn if isinstance(one, Lake) else one  # type: ignore[assignment]
    try:
        conn.execute("SELECT 1")
    except db.LOST:
        return False
    return True


def lakes(settings: Settings) -> Pool[Lake]:
    return Pool(lambda: open_lake(settings), answers, settings.api.connections)


def connections(settings: Settings, most: int) -> Pool[db.Connection]:
    """Of their own, so that a request that has a lake never waits for another one that waits for it."""
    seconds = settings.lake.connect_seconds
    return Pool(lambda: db.connect(store_dsn(settings), connect_timeout=seconds), answers, most)
