"""What all requests of a process share: lakes, authentication, quotas, the audit log, and whether Spark is here.

Made once with the application (``api/app``), closed with it. Each request gets a ``Caller``, which asks here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from lakemill.api import pool
from lakemill.api.authentication import Authentication, Granted
from lakemill.api.queries import Queries
from lakemill.core.quota import Resource
from lakemill.errors import Busy, LakemillError, MissingPart
from lakemill.gateway.gate import check_confinement
from lakemill.runtime import barrier
from lakemill.runtime.ingest import Ingest
from lakemill.runtime.meaning import meaning
from lakemill.runtime.metering import Meter
from lakemill.runtime.open import Lake
from lakemill.settings import Settings
from lakemill.spark import usage
from lakemill.store import audit, db
from lakemill.store.embedded import store_dsn
from lakemill.telemetry.log import failed

AT_THE_DOOR = 4
"""Connections for what stands before a request: keys, quotas, the audit log."""


class Desk:
    """``works``: a worker is in this process, so that refreshes can be done here."""

    def __init__(self, settings: Settings, host: str, *, works: bool = False) -> None:
        self.settings, self.works = settings, works
        self._lakes = pool.lakes(settings)
        self._door = pool.connections(settings, AT_THE_DOOR)
        self._working = threading.BoundedSemaphore(settings.service.slots)
        self.authentication = Authentication(settings, self._door.lent, host)
        self.meter = Meter(self._door.lent)
        self.queries = Queries(settings)
        self._lock = threading.Lock()
        self._ingest: Ingest | None = None

    def start(self) -> None:
        """Refuses what can't work at all."""
        with self._lakes.lent():  # which brings the database to what this version needs
            pass
        self.authentication.start()
        try:
            check_confinement(self.settings)
        except MissingPart as error:  # all else can be served
            failed("every query will be refused", error)

    def close(self) -> None:
        self.queries.close()
        if self._ingest is not None:
            self._ingest.close()
        self._lakes.close()
        self._door.close()

    def ready(self) -> Mapping[str, str | None]:
        """What the probe asks of a process that is nothing but the API."""
        try:
            with self._door.lent() as conn:
                conn.execute("SELECT 1")
        except (LakemillError, *db.LOST) as error:
            return {"postgres": str(error)}
        return {"postgres": None}

    # ------------------------------------------------------------ for requests
    @property
    def ingest(self) -> Ingest:
        """The process's own, made with the first request."""
        with self._lock:
            if self._ingest is None:
                wait = partial(barrier.passed, store_dsn(self.settings), self._door.lent)
                self._ingest = Ingest(self.settings, wait=wait)
            return self._ingest

    def at_hand(self, headers: Mapping[str, str]) -> Granted | None:
        """The caller, let in and charged for a request, where that needs nobody else; it never blocks."""
        granted = self.authentication.at_hand(headers)
        if granted is None or not self.meter.at_hand(granted.limits, Resource.REQUESTS, 1):
            return None
        return granted

    def admitted(self, headers: Mapping[str, str], address: str = "") -> Granted:
        """The same, however long it takes; ``address`` is the client's."""
        granted = self.authentication.granted(headers, address)
        self.meter.charge(granted.limits, Resource.REQUESTS, 1)
        return granted

    @contextmanager
    def lake(self) -> Iterator[Lake]:
        """A lake for one thread, for as long as the body takes."""
        with self._lakes.lent() as lake:
            yield lake

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """For work that needs Spark: refused where no worker is, or all of it is busy."""
        if not self.works:
            raise MissingPart(
                f"{what} needs Spark, which this process does not have", remedy="ask a `lakemill serve` instead"
            )
        if not self._working.acquire(timeout=pool.PATIENCE):
            raise Busy(f"{what}: as many are under way as service.slots allows")
        try:
            with usage.used():  # or the worker might start the JVM anew meanwhile
                yield
        finally:
            self._working.release()

    def record(self, done: audit.Action) -> None:
        """Into the audit log; what was done is done, so that its failure is only logged."""
        try:
            with self._door.lent() as conn:
                audit.record(conn, done)
        except (LakemillError, *db.LOST) as error:
            failed(f"audit of {done.action} by {done.who}", meaning(error))
