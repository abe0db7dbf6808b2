"""One listening connection for all who wait in a process: many may, and PostgreSQL's connections are few.

The thread lives as long as somebody waits. What it hears it passes on as a number that grows; a connection that is lost
is opened again, and those who wait look by themselves now and then in any case.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from lakemill.errors import LakemillError
from lakemill.store import db, work

CHANNELS = (work.PASSED, work.COMMIT, work.DONE)
_BREATH = 0.5
_ears: dict[str, Ears] = {}
_lock = threading.Lock()


class Ears:
    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._heard = threading.Condition()
        self._number = 0
        self.users = 0

    @property
    def number(self) -> int:
        """Of what was heard so far; to be taken before one looks."""
        return self._number

    def wait(self, number: int, seconds: float) -> None:
        """Until something was heard after that, or the time is over."""
        with self._heard:
            self._heard.wait_for(lambda: self._number != number, seconds)

    def _tell(self) -> None:
        with self._heard:
            self._number += 1
            self._heard.notify_all()

    def run(self) -> None:
        while True:
            try:
                with closing(db.connect(self._dsn)) as conn, work.listening(conn, *CHANNELS):
                    self._tell()  # whatever happened before it listened
                    while self._wanted():
                        if work.wait(conn, _BREATH):
                            self._tell()
                    return
            except (LakemillError, *db.LOST):
                time.sleep(_BREATH)
            if not self._wanted():
                return

    def _wanted(self) -> bool:
        with _lock:
            if self.users == 0 and _ears.get(self._dsn) is self:
                del _ears[self._dsn]
            return self.users > 0


@contextmanager
def listening(dsn: str) -> Iterator[Ears]:
    """For the body, somebody listens."""
    with _lock:
        found = _ears.get(dsn)
        if found is None:
            found = _ears[dsn] = Ears(dsn)
            found.users = 1
            threading.Thread(target=found.run, name="lakemill-ears", daemon=True).start()
        else:
            found.users += 1
    try:
        yield found
    finally:
        with _lock:
            found.users -= 1
