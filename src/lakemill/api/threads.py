"""Threads for what endpoints of the event loop have done elsewhere: so many for each kind of work.

Kinds are apart so that those who wait, for visibility or for the rows of a query, can't keep others out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread
from anyio.lowlevel import RunVar

T = TypeVar("T")
WRITERS, WAITERS, READERS = ("writers", 16), ("waiters", 256), ("readers", 200)
"""Requests; those of them that wait; queries that run or wait: more than the gateway lets in, so that it refuses."""
_limiters: RunVar[dict[str, anyio.CapacityLimiter]] = RunVar("lakemill_limiters")


async def threaded(step: Callable[[], T], kind: tuple[str, int], *, abandoned: bool = False) -> T:
    """Do it in a thread of this kind; ``abandoned``: whoever is cancelled does not wait for it."""
    known = _limiters.get(None)
    if known is None:
        known = {}
        _limiters.set(known)
    name, most = kind
    limiter = known.setdefault(name, anyio.CapacityLimiter(most))
    return await anyio.to_thread.run_sync(step, abandon_on_cancel=abandoned, limiter=limiter)
