"""The queries of a process: its gateway, who asked each one that runs, and cancelling across processes.

A gateway is made with the first query. Whoever cancels may be connected to another process than the one that runs the
query, so the word goes through PostgreSQL to all of them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict

from lakemill.core.rights import ANYBODYS, Reach
from lakemill.errors import Busy, LakemillError, QueryCancelled, QueryRuns
from lakemill.gateway.gate import Gateway
from lakemill.settings import Settings
from lakemill.store import db, work
from lakemill.store.embedded import store_dsn
from lakemill.telemetry.log import failed

POLL, PAUSE, AGAIN = 2.0, 1.0, 0.05
"""Seconds: between looks whether it is to end, before another try when PostgreSQL is away, and to cancel."""


WAITERS = 100
"""Queries that may wait for a token at the same time: fewer than the threads for queries, or nobody else had one."""


class Queries:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._gateway: Gateway | None = None
        self._asked: dict[str, str] = {}
        self._stopped: set[str] = set()
        self._waiting = threading.BoundedSemaphore(WAITERS)
        self._closed = threading.Event()

    @property
    def gateway(self) -> Gateway:
        with self._lock:
            if self._gateway is None:
                self._gateway = Gateway(self._settings, store_dsn(self._settings))
                threading.Thread(target=self._listen, name="cancels", daemon=True).start()
            return self._gateway

    @property
    def running(self) -> dict[str, str]:
        """By id, who asked it."""
        return dict(self._asked)

    @contextmanager
    def run(self, id_: str, who: str) -> Iterator[None]:
        with self._lock:
            if id_ in self._asked:
                raise QueryRuns(f"a query {id_} runs already")
            self._asked[id_] = who
        try:
            yield
        finally:
            self._stopped.discard(id_)
            self._asked.pop(id_, None)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A query waits for a token, in the body; refused where too many do."""
        if not self._waiting.acquire(blocking=False):
            raise Busy(f"{WAITERS} queries wait for their tokens already")
        try:
            yield
        finally:
            self._waiting.release()

    def stopped(self, id_: str) -> LakemillError | None:
        """Why it is not to go on, for who has not come to the gateway yet."""
        return QueryCancelled("it was cancelled") if id_ in self._stopped else None

    def cancel(self, conn: db.Connection, id_: str, reach: Reach) -> None:
        """Stop it, here or elsewhere, if it is within this reach."""
        if not self.stop(id_, reach):
            work.tell(conn, work.CANCEL, json.dumps({"id": id_, "reach": asdict(reach)}))

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            if self._gateway is not None:
                self._gateway.close()

    def stop(self, id_: str, reach: Reach = ANYBODYS) -> bool:
        """The same, here alone; whether it runs here."""
        asked = self._asked.get(id_)
        if asked is None or not reach.covers(asked):
            return False
        self._stopped.add(id_)
        threading.Thread(target=self._insist, args=(id_,), name="cancel", daemon=True).start()
        return True

    def _insist(self, id_: str) -> None:
        """A query that still waits for its turn can't be stopped yet."""
        while id_ in self._asked and not self.gateway.cancel(id_):
            self._closed.wait(AGAIN)

    def _heed(self, told: str) -> None:
        """A word of another process; one of another version may say it in another way."""
        with suppress(ValueError, KeyError, TypeError):
            word = json.loads(told)
            self.stop(word["id"], Reach(**word["reach"]))

    def _listen(self) -> None:
        """For words from other processes, until this one ends, through every failure."""
        while not self._closed.is_set():
            try:
                with closing(db.connect(store_dsn(self._settings))) as conn, work.listening(conn, work.CANCEL):
                    while not self._closed.is_set():
                        for told in work.heard(conn, POLL):
                            self._heed(told)
            except (LakemillError, *db.LOST) as error:
                if not self._closed.wait(PAUSE):
                    failed("listening for cancels", db.unavailable(error))
