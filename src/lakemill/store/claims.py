"""The right to work on a dynamic table, until it expires, with a fencing number.

A worker claims before it computes, renews while it does, and its publish requires the claim: one that was paused past
its time finds its number out of date, and nothing that it computed becomes visible. The queue is elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from lakemill.errors import ClaimLost
from lakemill.store.db import Executor
from lakemill.store.queries import load_queries

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
    row = where.execute(QUERIES["claim"].compose(), values).fetchone()
    return None if row is None else Claim(dynamic_id, holder, *row)


def renew(where: Executor, held: Claim, ttl: timedelta) -> Claim:
    """For longer, from now."""
    values = {"dynamic_id": held.dynamic_id, "fence": held.fence, "ttl": ttl}
    row = where.execute(QUERIES["renew"].compose(), values).fetchone()
    if row is None:
        raise ClaimLost("the claim has run out")
    return Claim(held.dynamic_id, held.holder, held.fence, row[0])


def release(where: Executor, held: Claim) -> None:
    where.execute(QUERIES["release"].compose(), {"dynamic_id": held.dynamic_id, "fence": held.fence})


def require_claim(where: Executor, held: Claim) -> None:
    """For a publish: the claim is ours and not over, and stays so until the transaction ends."""
    row = where.execute(QUERIES["lock_claim"].compose(), {"dynamic_id": held.dynamic_id}).fetchone()
    if row is None:
        raise ClaimLost("the dynamic table was dropped")
    fence, holder, alive = row
    if fence != held.fence:
        raise ClaimLost(f"the claim has passed to {holder}")
    if not alive:
        raise ClaimLost("the claim has run out")
