"""What a process does about quotas: spends slices of the shared buckets, and asks for the next one when it must.

In front of every request, so the common case is a look into a dictionary. Where a bucket is empty the refusal is
remembered for a moment too: who is over its quota costs no more than others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from uuid import UUID

from lakemill.core import quota
from lakemill.core.quota import Quotas, Resource, Slice
from lakemill.errors import QuotaExceeded
from lakemill.store import quotas
from lakemill.store.db import Connection
from lakemill.telemetry import metrics

SHORTEST_REFUSAL, LONGEST_REFUSAL = 0.05, 0.25
"""Seconds for which an empty bucket is believed to be empty still: meanwhile enough comes for more than one request."""
MOST = 10_000
"""Subjects that are remembered."""

Limits = Mapping[str, Quotas]
"""Whose quotas a caller is under: by subject, such as ``key:…`` and ``tenant:…``."""


class Meter:
    """For all threads of a process. ``connect`` lends a connection for a moment."""

    def __init__(self, connect: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._slices: dict[tuple[str, Resource], Slice] = {}
        self._empty: dict[tuple[str, Resource], tuple[float, float]] = {}

    def at_hand(self, limits: Limits, resource: Resource, need: float) -> bool:
        """Spend it where no other process must be asked; False where ``charge`` is to be called, which may block."""
        now = time.monotonic()
        with self._lock:
            slices = {}
            for subject, limit in limits.items():
                if limit.bucket(resource) is not None:
                    held = self._slices.get((subject, resource))
                    left = None if held is None else quota.spend(held, need, now)
                    if left is None:
                        return False
                    slices[subject, resource] = left
            self._slices.update(slices)
        return True

    def charge(self, limits: Limits, resource: Resource, need: float) -> None:
        """Spend it, or refuse with the seconds after which to try again."""
        if need <= 0 or self.at_hand(limits, resource, need):
            return
        for subject, limit in limits.items():
            bucket = limit.bucket(resource)
            if bucket is not None:
                self._charge((subject, resource), bucket, need)

    def _charge(self, whose: tuple[str, Resource], bucket: quota.Bucket, need: float) -> None:
        subject, resource = whose
        now = time.monotonic()
        with self._lock:
            held = self._slices.get(whose)
            if held is not None and (left := quota.spend(held, need, now)) is not None:
                self._slices[whose] = left
                return
            known_until, full_at = self._empty.get(whose, (0.0, 0.0))
        if now < known_until:
            raise self._refused(subject, resource, bucket.rate, full_at - now)
        with self._connect() as conn:
            leased = quotas.take(conn, subject, resource, bucket, need, quota.spare(bucket, held, now))
        now = time.monotonic()
        with self._lock:
            if len(self._slices) > MOST:
                self._slices.clear()
                self._empty.clear()
            if leased.granted:
                self._slices[whose] = quota.cut(leased, need, now)
                self._empty.pop(whose, None)
                return
            self._empty[whose] = now + min(max(leased.wait, SHORTEST_REFUSAL), LONGEST_REFUSAL), now + leased.wait
        raise self._refused(subject, resource, bucket.rate, leased.wait)

    @contextmanager
    def query_slot(self, limits: Limits, ttl: timedelta) -> Iterator[None]:
        """One of the queries at a time that the caller and its tenant may run; ``ttl`` ends it if the process dies."""
        held: list[UUID] = []
        counted = {subject: limit.queries for subject, limit in limits.items() if limit.queries is not None}
        try:
            for subject, most in counted.items():
                with self._connect() as conn:
                    slot = quotas.take_slot(conn, subject, most, ttl)
                if slot is None:
                    metrics.count_quota("queries")
                    raise QuotaExceeded(f"{subject} runs {most} queries already, and may run no more at a time")
                held.append(slot)
            yield
        finally:
            if held:
                with self._connect() as conn:
                    quotas.free_slots(conn, held)

    def _refused(self, subject: str, resource: Resource, rate: float, wait: float) -> QuotaExceeded:
        metrics.count_quota(resource.value)
        refused = QuotaExceeded(f"{subject} is over its quota of {rate:g} {resource.value}/s")
        refused.wait = max(wait, 0.001)
        return refused
