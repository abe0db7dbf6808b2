"""The right to work on a dynamic table, until it expires, with a fencing number.

A worker claims before it computes, renews while it does, and its publish requires the claim: one that was paused past
its time finds its number out of date, and nothing that it computed becomes visible. The queue is elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg
from psycopg import errors as pg

from lakemill.errors import ClaimLost
from lakemill.store.db import Executor
from lakemill.store.queries import load_queries
from lakemill.telemetry import metrics

QUERIES = load_queries("claims")


@dataclass(frozen=True, slots=True)
class Claim:
    dynamic_id: int
    holder: str
    fence: int
    expires_at: datetime


def claim(where: Executor, dynamic_id: int, holder: str, ttl: timedelta) -> Claim | None:
    """Ours for ``ttl``; None when somebody else has it, or the table is gone."""
    values = {"dynamic_id": dynamic_id, "holder": holder, "ttl": ttl}
    try:
        row = where.execute(QUERIES["claim"].compose(), values).fetchone()
    except pg.ForeignKeyViolation:  # it was dropped at this moment
        return None
    return None if row is None else Claim(dynamic_id, holder, *row)


def renew(where: Executor, held: Claim, ttl: timedelta) -> Claim:
    """For longer, from now."""
    values = {"dynamic_id": held.dynamic_id, "fence": held.fence, "ttl": ttl}
    row = where.execute(QUERIES["renew"].compose(), values).fetchone()
    if row is None:
        raise ClaimLost("the claim has run out")
    return Claim(held.dynamic_id, held.holder, held.fence, row[0])


def holder_of(where: Executor, dynamic_id: int) -> tuple[str, datetime] | None:
    """Who has the table, and since when; None when nobody does."""
    row = where.execute(QUERIES["holder"].compose(), {"dynamic_id": dynamic_id}).fetchone()
    return None if row is None else (row[0], row[1])


def held(where: Executor) -> tuple[tuple[int, str], ...]:
    """All that are claimed now: dynamic tables, and who has them."""
    return tuple((row[0], row[1]) for row in where.execute(QUERIES["held"].compose()).fetchall())


def release(where: Executor, held: Claim) -> None:
    """Done. Where the server does not answer the claim runs out by itself."""
    values = {"dynamic_id": held.dynamic_id, "fence": held.fence}
    with suppress(psycopg.OperationalError, psycopg.InterfaceError):
        where.execute(QUERIES["release"].compose(), values)


def take_away(where: Executor, dynamic_id: int, holder: str) -> None:
    """A holder is known to be gone: the table is free. Should it live after all, its number is out of date."""
    where.execute(QUERIES["take_away"].compose(), {"dynamic_id": dynamic_id, "holder": holder})


def take_away_all(where: Executor, holders: Sequence[str]) -> None:
    """The same for all that these hold."""
    where.execute(QUERIES["take_away_all"].compose(), {"holders": list(holders)})


def lock_claim(where: Executor, dynamic_id: int) -> None:
    """Whoever is about to publish this table has done so, or waits until the transaction ends."""
    where.execute(QUERIES["lock_claim"].compose(), {"dynamic_id": dynamic_id})


def require_claim(where: Executor, held: Claim) -> None:
    """For a publish: the claim is ours and not over, and stays so until the transaction ends."""
    row = where.execute(QUERIES["lock_claim"].compose(), {"dynamic_id": held.dynamic_id}).fetchone()
    if row is None:
        raise ClaimLost("the dynamic table was dropped")
    fence, holder, alive = row
    if fence != held.fence or not alive:
        metrics.count_fenced()
    if fence != held.fence:
        raise ClaimLost(f"the claim has passed to {holder}")
    if not alive:
        raise ClaimLost("the claim has run out")
