"""Who is at work on the process's Spark, so that its JVM is started anew only when nobody is.

A worker's slots and a coordinator's may share one JVM, and each finds by itself that it should be another. Whoever
wants that asks again and again; until it is done nobody begins.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lakemill.spark import session

_changed = threading.Condition()
_users: set[object] = set()
_wanted = False
PATIENCE = 60.0
"""Seconds after which somebody begins all the same: whoever wanted another JVM may be gone."""


@contextmanager
def used() -> Iterator[object]:
    """The body works on Spark; it begins when nobody waits to start that anew. What it is given stands for it."""
    global _wanted
    user = object()
    with _changed:
        if not _changed.wait_for(lambda: not _wanted, PATIENCE):
            _wanted = False
        _users.add(user)
    try:
        yield user
    finally:
        give_up(user)


def give_up(user: object) -> None:
    """Nobody waits for it any more, whether it has ended or hangs."""
    with _changed:
        _users.discard(user)
        _changed.notify_all()


def recycle_when_idle() -> bool:
    """Start the JVM anew if nobody is at work; else nobody begins until this was asked again. Whether it was done."""
    global _wanted
    with _changed:
        _wanted = bool(_users)
        if _wanted:
            return False
        session.recycle()
        _changed.notify_all()
        return True
