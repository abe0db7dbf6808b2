"""A claim that stays alive while its holder works: a thread renews it, on a connection of its own.

Whoever comes second waits until the first is done, or its claim has run out, and then mostly finds nothing to do.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from lakemill.core.batch import Consumer
from lakemill.errors import ClaimLost, LakemillError
from lakemill.store import claims, db, definitions, pins, work
from lakemill.store.definitions import DynamicTable
from lakemill.telemetry.log import log

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake

WAIT = timedelta(minutes=1)
"""Beyond what a claim lives by itself: who waits for a worker that was killed comes after it."""
_SHORTEST, _LONGEST, _QUIET = 0.05, 2.0, 3.0
_GOODBYE_MS = 2000


def holder(thread: threading.Thread | None = None) -> str:
    """What this thread, or another of this process, is called where it holds something."""
    return f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident() if thread is None else thread.ident}"


@contextmanager
def claimed(
    lake: Lake, table: DynamicTable, stopped: Callable[[], LakemillError | None] = lambda: None
) -> Iterator[claims.Claim]:
    """Ours for the body; refused where somebody else works on the table for longer than one can wait.

    One that was ``stopped`` waits no more, and its claim runs out: its thread may hang, and never give it back.
    """
    held = _wait(lake, table, stopped)
    done = threading.Event()
    service = lake.settings.service
    beat = threading.Thread(
        target=_renew,
        args=(lake.dsn, held, service.claim_expiry, service.heartbeat, done, stopped),
        daemon=True,
        name="lakemill-claim",
    )
    beat.start()
    try:
        yield held
    finally:
        done.set()
        claims.release(lake.conn, held)


def _wait(lake: Lake, table: DynamicTable, stopped: Callable[[], LakemillError | None]) -> claims.Claim:
    expiry = lake.settings.service.claim_expiry
    begun, pause, told = time.monotonic(), _SHORTEST, False
    while (held := claims.claim(lake.conn, table.id, holder(), expiry)) is None:
        definitions.by_id(lake.conn, table.id)  # one that was dropped is not waited for
        if (why := stopped()) is not None:
            raise why
        other = claims.holder_of(lake.conn, table.id)
        if other is not None and is_dead(other[0]):
            claims.take_away(lake.conn, table.id, other[0])
            continue
        waited = time.monotonic() - begun
        if other is not None and waited > _QUIET and not told:
            log().info(f"{table.name} is being refreshed by {other[0]}, since {other[1]:%H:%M:%S%z}: waiting for it")
            told = True
        if waited > (expiry + WAIT).total_seconds():
            by = f"{other[0]}, since {other[1]:%Y-%m-%d %H:%M:%S%z}" if other else "one after the other"
            raise ClaimLost(f"{table.name} is being refreshed by {by}", remedy="try again when they are done")
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST)
    return held


def free(conn: db.Connection, holders: Sequence[str]) -> None:
    """What these threads still hold is free at once, for other machines too: the process is about to end.

    A publish that is in its transaction is waited for, but not for long: its claim runs out by itself.
    """
    with conn.transaction():
        conn.execute("SELECT set_config('lock_timeout', %s, true)", (f"{_GOODBYE_MS}ms",))
        claims.take_away_all(conn, holders)
        pins.unpin_all(conn, holders)
    work.tell(conn, work.DUE)  # what was theirs can be taken


def free_the_dead(conn: db.Connection, consumer: Consumer) -> None:
    """What processes of this machine held that are no more is free at once: claims, work, tables with requests.

    Workers that are gone stay known, as ``worker_up`` 0: somebody should look.
    """
    for dynamic_id, name in claims.held(conn):
        if is_dead(name):
            claims.take_away(conn, dynamic_id, name)
    for name in work.holders(conn):
        if is_dead(f"{name}:"):
            work.hand_back(conn, name)
    for table_id, name in consumer.held():
        if is_dead(name):
            consumer.take_away(table_id, name)


def forget_the_dead(conn: db.Connection) -> None:
    """Workers of this machine that are no more: one that is started here takes their place."""
    for name in work.holders(conn):
        if is_dead(f"{name}:"):
            work.leave(conn, name)


def is_dead(name: str) -> bool:
    """Whether a holder was a process of this machine that is no more; its publish would be refused in any case."""
    host, _, process = name.rpartition(":")[0].rpartition(":")
    if host != socket.gethostname() or not process.isdigit():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _renew(
    dsn: str,
    held: claims.Claim,
    expiry: timedelta,
    pause: timedelta,
    done: threading.Event,
    stopped: Callable[[], LakemillError | None],
) -> None:
    """A claim that can't be renewed is lost, which the publish finds out by itself."""
    while not done.wait(pause.total_seconds()) and stopped() is None:
        with suppress(LakemillError, *db.LOST), db.connect(dsn) as conn:
            claims.renew(conn, held, expiry)
