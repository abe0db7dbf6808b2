"""A claim that stays alive while its holder works: a thread renews it, on a connection of its own."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from lakemill.errors import ClaimLost, LakemillError
from lakemill.store import claims, db
from lakemill.store.definitions import DynamicTable

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake

EXPIRY = timedelta(minutes=5)
HEARTBEAT = 30.0


def holder() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"


@contextmanager
def claimed(lake: Lake, table: DynamicTable) -> Iterator[claims.Claim]:
    """Ours for the body; refused at once where somebody else works on the table."""
    held = claims.claim(lake.conn, table.id, holder(), EXPIRY)
    if held is None:
        raise ClaimLost(f"{table.name} is being refreshed by somebody else", remedy="try again when they are done")
    done = threading.Event()
    beat = threading.Thread(target=_renew, args=(lake.dsn, held, done), daemon=True, name="lakemill-claim")
    beat.start()
    try:
        yield held
    finally:
        done.set()
        with suppress(LakemillError):
            claims.release(lake.conn, held)


def _renew(dsn: str, held: claims.Claim, done: threading.Event) -> None:
    """A claim that can't be renewed is lost, which the publish finds out by itself."""
    while not done.wait(HEARTBEAT):
        with suppress(LakemillError), db.connect(dsn) as conn:
            claims.renew(conn, held, EXPIRY)
