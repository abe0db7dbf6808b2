"""Quotas that hold across all API processes: levels of buckets, and slots of queries at a time.

What is decided is ``core/quota``'s; here the level is read and written under the row's lock. How seldom that happens is
up to who asks (``runtime/metering``).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID, uuid4

from lakemill.core.quota import Bucket, Leased, Resource, lease
from lakemill.store.db import Executor, transaction
from lakemill.store.queries import load_queries

QUERIES = load_queries("quotas")
_SPACE = 0x6C6D6B71  # any constant will do, as long as nobody else in this database uses it


def take(where: Executor, subject: str, resource: Resource, bucket: Bucket, need: float, spare: float) -> Leased:
    """Out of the bucket that all share."""
    values = {"subject": subject, "resource": resource.value, "burst": bucket.burst}
    with transaction(where):
        row = where.execute(QUERIES["lock_bucket"].compose(), values).fetchone()
        assert row is not None  # noqa: S101  (INSERT … RETURNING)
        level, elapsed, at = row
        leased = lease(bucket, level, elapsed, need, spare)
        where.execute(QUERIES["set_bucket"].compose(), {**values, "level": leased.level, "at": at})
    return leased


def take_slot(where: Executor, subject: str, most: int, ttl: timedelta) -> UUID | None:
    """One of the ``most`` queries that this subject may run at a time; None where all are taken."""
    values = {"slot_id": uuid4(), "subject": subject, "most": most, "ttl": ttl, "space": _SPACE}
    with transaction(where):
        where.execute(QUERIES["lock_slots"].compose(), values)
        taken = where.execute(QUERIES["take_slot"].compose(), values).rowcount == 1
    return values["slot_id"] if taken else None  # type: ignore[return-value]


def free_slots(where: Executor, slots: Iterable[UUID]) -> None:
    where.execute(QUERIES["free_slots"].compose(), {"slot_ids": list(slots)})


def forget(where: Executor) -> None:
    """Buckets that nobody has used for long."""
    where.execute(QUERIES["forget_buckets"].compose())
