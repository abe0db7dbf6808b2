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
from lakemill.errors import EngineLost, LakemillError, RefreshTimedOut, RefreshTooLarge, Retry

BLAMED = (EngineLost.code, RefreshTimedOut.code, RefreshTooLarge.code)
"""Failures to be tried again, and yet the table's own: what it computes takes too long, or more than there is. They are
tried again because the cure is not always in the data: a limit is raised, a cluster grows, and no commit tells it. An
engine that did not start (``EngineUnreachable``) is none of them: nothing of the table was begun."""
BYSTANDERS = 1
"""Lost engines in a row that another table may have had: whoever worked beside the cause lost the same one."""


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


def its_own(error: type[LakemillError]) -> bool:
    """Whether the table itself may be the cause; what a part that does not answer fails is tried until it does."""
    return error.retry in (Retry.NEVER, Retry.REPLAN) or error.code in BLAMED


def suspends(failure: Failure, error: type[LakemillError], most: int, others: int = 0) -> bool:
    """Whether so many in a row are enough: an outage, however long, must not leave every table suspended.

    ``others``: the most engines that any other table has lost in a row, up to now. A table that takes the engine down
    stands alone with it, because those beside it succeed when they are tried again; where another keeps losing its
    engine too, the engine is to blame.
    """
    if failure.count < most or not its_own(error):
        return False
    return error.code != EngineLost.code or others <= BYSTANDERS
