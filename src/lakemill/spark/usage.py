"""Who is at work on the process's Spark, so that its JVM is started anew only when nobody is.

A worker's slots, a coordinator's and requests of the API may share one JVM, and each finds by itself that it should be
another. Whoever wants that asks again and again; until it is done nobody begins. What was done on it is counted here,
whoever did it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from lakemill.spark import session

_changed = threading.Condition()
_users: dict[object, float] = {}
"""Since when each of those at work is."""
_done = 0
_wanted = False
PATIENCE = 60.0
"""Seconds after which somebody begins all the same: whoever wanted another JVM may be gone."""


@contextmanager
def used() -> Iterator[object]:
    """The body works on Spark; it begins when nobody waits to start that anew. What it is given stands for it."""
    global _done, _wanted
    user = object()
    with _changed:
        if not _changed.wait_for(lambda: not _wanted, PATIENCE):
            _wanted = False
        _users[user] = time.monotonic()
    try:
        yield user
    finally:
        with _changed:
            _done += 1
        give_up(user)


def give_up(user: object) -> None:
    """Nobody waits for it any more, whether it has ended or hangs."""
    with _changed:
        _users.pop(user, None)
        _changed.notify_all()


def done() -> int:
    """How often somebody has worked on it since it was last started anew."""
    return _done


def longest() -> float:
    """For how many seconds the one who is at work longest has been; 0 where nobody is."""
    with _changed:
        return time.monotonic() - min(_users.values()) if _users else 0.0


def recycle_later() -> None:
    """It need not be now: whoever waits may begin."""
    global _wanted
    with _changed:
        _wanted = False
        _changed.notify_all()


def recycle_when_idle() -> bool:
    """Start the JVM anew if nobody is at work; else nobody begins until this was asked again. Whether it was done."""
    global _wanted, _done
    with _changed:
        _wanted = bool(_users)
        if _wanted:
            return False
        session.recycle()
        _done = 0
        _changed.notify_all()
        return True
