"""A claim that stays alive while its holder works: a thread renews it, on a connection of its own.

Whoever comes second waits until the first is done, or its claim has run out, and then mostly finds nothing to do.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from lakemill.errors import ClaimLost, LakemillError
from lakemill.store import claims, db, definitions
from lakemill.store.definitions import DynamicTable

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake

EXPIRY = timedelta(minutes=5)
HEARTBEAT = 30.0
WAIT = timedelta(minutes=6)
"""Longer than a claim lives by itself: who waits for a worker that was killed comes after it."""
_SHORTEST, _LONGEST = 0.05, 2.0


def holder() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"


@contextmanager
def claimed(lake: Lake, table: DynamicTable) -> Iterator[claims.Claim]:
    """Ours for the body; refused where somebody else works on the table for longer than one can wait."""
    held = _wait(lake, table)
    done = threading.Event()
    beat = threading.Thread(target=_renew, args=(lake.dsn, held, done), daemon=True, name="lakemill-claim")
    beat.start()
    try:
        yield held
    finally:
        done.set()
        claims.release(lake.conn, held)


def _wait(lake: Lake, table: DynamicTable) -> claims.Claim:
    deadline, pause = time.monotonic() + WAIT.total_seconds(), _SHORTEST
    while (held := claims.claim(lake.conn, table.id, holder(), EXPIRY)) is None:
        definitions.by_id(lake.conn, table.id)  # one that was dropped is not waited for
        if time.monotonic() > deadline:
            other = claims.holder_of(lake.conn, table.id)
            by = f"{other[0]}, since {other[1]:%Y-%m-%d %H:%M:%S%z}" if other else "one after the other"
            raise ClaimLost(f"{table.name} is being refreshed by {by}", remedy="try again when they are done")
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST)
    return held


def _renew(dsn: str, held: claims.Claim, done: threading.Event) -> None:
    """A claim that can't be renewed is lost, which the publish finds out by itself."""
    while not done.wait(HEARTBEAT):
        with suppress(LakemillError), db.connect(dsn) as conn:
            claims.renew(conn, held, EXPIRY)
