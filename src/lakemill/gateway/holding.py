"""Snapshots that running queries read are pinned: one pin a snapshot for all queries of this process.

A pin costs a commit in PostgreSQL; on a quiet lake the next query finds it there, because it is kept for a while after
the last one let go. It runs out by itself when the process dies, and is renewed long before. Upkeep honours it.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from lakemill.errors import SnapshotGone
from lakemill.store import db, pins

_TTL = timedelta(minutes=10)
_LINGER = 30.0
"""Seconds for which an unused pin is kept."""


@dataclass(slots=True)
class _Held:
    pin: pins.Pin
    until: float
    """When it runs out, by this process's clock."""
    users: int = 0
    idle_since: float = 0.0


class Holding:
    def __init__(self, catalog_schema: str) -> None:
        self._schema = catalog_schema
        self._holder = f"query {socket.gethostname()}:{os.getpid()}"
        self._lock = threading.Lock()
        self._held: dict[int, _Held] = {}

    def take(self, conn: db.Connection, snapshots: Iterable[int], seconds: float) -> tuple[int, ...]:
        """Keep these for at least so long; refused where one is gone."""
        taken: list[int] = []
        with self._lock:
            try:
                for snapshot in snapshots:
                    self._take(conn, snapshot, seconds)
                    taken.append(snapshot)
            except BaseException:
                self._let_go(taken)
                raise
            self._sweep(conn)
        return tuple(taken)

    def let_go(self, snapshots: Iterable[int]) -> None:
        with self._lock:
            self._let_go(snapshots)

    def close(self, conn: db.Connection) -> None:
        with self._lock:
            for held in self._held.values():
                pins.unpin(conn, held.pin.id)
            self._held.clear()

    def _take(self, conn: db.Connection, snapshot: int, seconds: float) -> None:
        now = time.monotonic()
        ttl = max(_TTL, timedelta(seconds=2 * seconds))
        held = self._held.get(snapshot)
        if held is None:
            pin = pins.pin(conn, snapshot, self._holder, "queries", ttl, catalog_schema=self._schema)
            held = self._held[snapshot] = _Held(pin, now + ttl.total_seconds())
        elif held.until - now < seconds + _LINGER:
            if not pins.renew(conn, held.pin.id, ttl):
                del self._held[snapshot]
                raise SnapshotGone(f"the pin of snapshot {snapshot} ran out")
            held.until = now + ttl.total_seconds()
        held.users += 1

    def _let_go(self, snapshots: Iterable[int]) -> None:
        for snapshot in snapshots:
            if (held := self._held.get(snapshot)) is not None:
                held.users -= 1
                held.idle_since = time.monotonic()

    def _sweep(self, conn: db.Connection) -> None:
        """Those that nobody has used for a while; whoever takes the next one pays for it."""
        now = time.monotonic()
        for snapshot, held in list(self._held.items()):
            if not held.users and now - held.idle_since > _LINGER:
                pins.unpin(conn, held.pin.id)
                del self._held[snapshot]
