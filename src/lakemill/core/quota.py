"""How much per second: buckets that fill at a rate, and slices of them that processes spend by themselves.

One bucket stands for one limit of one key or tenant, shared by all API processes (``store/quotas`` keeps its level).
A process takes a slice, as large as what it spent lately, and spends that without asking anybody until it is spent or
too old. So the sum over all processes stays within ``burst + rate × seconds``, and one request more where that was
larger than the burst; what a process took and did not spend is lost, so that the limit errs towards less.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

BURST_SECONDS = 2.0
"""How much a bucket holds: what comes in this time."""
SLICE_SECONDS = 0.5
"""For how long a slice is meant to last; it may be spent for twice as long."""
LONGEST_WAIT = 3600.0


class Resource(StrEnum):
    REQUESTS = "requests"
    ROWS = "rows"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Quotas:
    """Limits per second, and how many queries at a time; None: no limit."""

    requests: float | None = None
    rows: float | None = None
    bytes: float | None = None
    queries: int | None = None

    def bucket(self, resource: Resource) -> Bucket | None:
        rate = {Resource.REQUESTS: self.requests, Resource.ROWS: self.rows, Resource.BYTES: self.bytes}[resource]
        return None if rate is None else Bucket(rate, max(1.0, rate * BURST_SECONDS))


@dataclass(frozen=True, slots=True)
class Bucket:
    rate: float
    burst: float


@dataclass(frozen=True, slots=True)
class Leased:
    """What was taken out of a bucket, the level that it was left at, and how long to wait where nothing was."""

    granted: float
    level: float
    wait: float = 0.0


@dataclass(frozen=True, slots=True)
class Slice:
    """What a process may still spend, and until when (its own clock)."""

    left: float
    until: float
    taken_at: float
    spent: float = 0.0


def lease(bucket: Bucket, level: float, elapsed: float, need: float, spare: float) -> Leased:
    """Take ``need``, and up to ``spare`` more, from a bucket that had this level so many seconds ago.

    What is larger than the bucket is given when that is full, and leaves it below zero: it is paid for afterwards.
    """
    filled = min(bucket.burst, level + max(0.0, elapsed) * bucket.rate)
    least = min(need, bucket.burst)
    if filled < least:
        return Leased(0.0, filled, min(LONGEST_WAIT, (least - filled) / bucket.rate))
    granted = need + min(spare, max(0.0, filled - need))
    return Leased(granted, filled - granted)


def spare(bucket: Bucket, last: Slice | None, now: float) -> float:
    """How much more than needed to take: what will be spent soon, judged by the last slice."""
    if last is None:
        return 0.0
    seconds = max(0.01, now - last.taken_at)
    return min(bucket.rate, last.spent / seconds) * SLICE_SECONDS


def cut(leased: Leased, need: float, now: float) -> Slice:
    """The slice that is left of what was leased, once the need is paid."""
    return Slice(leased.granted - need, now + 2 * SLICE_SECONDS, now, need)


def spend(held: Slice, need: float, now: float) -> Slice | None:
    """The slice after it; None where it does not suffice, or is too old."""
    if now > held.until or held.left < need:
        return None
    return Slice(held.left - need, held.until, held.taken_at, held.spent + need)
