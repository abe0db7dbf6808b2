"""When a table whose scheduled refresh failed is tried again, and when no more.

Part of line 4 of a refresh; ``core/rounds`` asks here. The class of the error decides (``lakemill.errors``). The delays
of tables that failed together are spread by a hash of name and count. Pure: no clock, no dice.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakemill.core.lag import Failure
from lakemill.core.names import QualifiedName
from lakemill.errors import Retry

_ITS_OWN = (Retry.NEVER, Retry.REPLAN)
"""Failures of the table itself; those of a part that does not answer are tried until it does."""


@dataclass(frozen=True, slots=True)
class Backoff:
    base: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    cap: timedelta = timedelta(minutes=5)
    jitter: float = 0.2
    """The share of a delay by which it is shortened at most."""

    def delay(self, count: int, name: QualifiedName) -> timedelta:
        """After the ``count``-th failure in a row."""
        grown = self.base.total_seconds() * self.factor ** min(count - 1, 100)
        spread = zlib.crc32(f"{'.'.join(name.key)} {count}".encode()) / 2**32
        return timedelta(seconds=min(grown, self.cap.total_seconds()) * (1 - self.jitter * spread))


BACKOFF = Backoff()


def retry_at(failure: Failure, backoff: Backoff, name: QualifiedName) -> datetime | None:
    """The moment from which it may be tried again; None: not before a change newer than ``failure.b``."""
    match failure.retry:
        case Retry.NEVER:
            return None
        case Retry.REPLAN:
            return failure.at
        case Retry.BACK_OFF | Retry.LOOK_FIRST:
            return failure.at + backoff.delay(failure.count, name)


def suspends(failure: Failure, most: int) -> bool:
    """Whether so many in a row are enough: an outage, however long, must not leave every table suspended."""
    return failure.count >= most and failure.retry in _ITS_OWN
