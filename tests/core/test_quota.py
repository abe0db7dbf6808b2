"""Buckets and slices, on a clock that the test turns."""

from __future__ import annotations

import random

import pytest

from lakemill.core import quota
from lakemill.core.quota import Bucket, Leased, Quotas, Resource, Slice

BUCKET = Bucket(rate=10, burst=20)


@pytest.mark.parametrize(
    ("level", "elapsed", "need", "spare", "leased"),
    [
        (20, 0, 1, 0, Leased(1, 19)),
        (20, 100, 1, 0, Leased(1, 19)),  # never fuller than full
        (0, 0.5, 1, 0, Leased(1, 4)),
        (0, 0, 1, 0, Leased(0, 0, 0.1)),
        (0.5, 0, 1, 0, Leased(0, 0.5, 0.05)),
        (20, 0, 1, 5, Leased(6, 14)),
        (3, 0, 1, 5, Leased(3, 0)),  # no more than there is
        (20, 0, 50, 5, Leased(50, -30)),  # larger than the bucket: when it is full, and paid for afterwards
        (19, 0, 50, 5, Leased(0, 19, 0.1)),
        (-30, 1, 1, 0, Leased(0, -20, 2.1)),
        (5, -3, 1, 0, Leased(1, 4)),  # a clock that went back fills nothing
    ],
)
def test_lease(level: float, elapsed: float, need: float, spare: float, leased: Leased) -> None:
    found = quota.lease(BUCKET, level, elapsed, need, spare)
    assert (found.granted, found.level, found.wait) == pytest.approx((leased.granted, leased.level, leased.wait))


def test_slices() -> None:
    held = quota.cut(Leased(10, 0), 1, now=100.0)
    assert held == Slice(9, 101.0, 100.0, 1)
    assert quota.spend(held, 4, 100.5) == Slice(5, 101.0, 100.0, 5)
    assert quota.spend(held, 10, 100.5) is None, "it does not suffice"
    assert quota.spend(held, 1, 101.1) is None, "it is too old"


def test_a_slice_is_as_large_as_what_was_spent_lately() -> None:
    assert quota.spare(BUCKET, None, 0) == 0
    assert quota.spare(BUCKET, Slice(0, 1, 0, spent=4), now=1) == 2  # 4 a second, for half a second
    assert quota.spare(BUCKET, Slice(0, 1, 0, spent=4000), now=1) == 5  # no more than the rate


@pytest.mark.parametrize("limit", [Quotas(), Quotas(queries=3)])
def test_no_limit(limit: Quotas) -> None:
    assert all(limit.bucket(resource) is None for resource in Resource)


def test_bursts() -> None:
    assert Quotas(requests=5).bucket(Resource.REQUESTS) == Bucket(5, 10)
    assert Quotas(rows=0.01).bucket(Resource.ROWS) == Bucket(0.01, 1), "one at least, or nothing would ever pass"


@pytest.mark.parametrize("seed", range(20))
def test_many_processes_stay_within_the_limit(seed: int) -> None:
    """Any number of processes, at any pace: never more than the burst and the rate; and not much less, if they ask."""
    chance = random.Random(seed)
    bucket = Bucket(rate=chance.choice([5, 50, 500]), burst=chance.choice([10, 100, 1000]))
    slices: list[Slice | None] = [None] * chance.choice([1, 4, 16])
    level, at, passed = bucket.burst, 0.0, 0.0
    now, end = 0.0, 10.0
    largest = 1.0
    while now < end:
        now += chance.expovariate(bucket.rate * 3)  # three times what is allowed
        who, need = chance.randrange(len(slices)), float(chance.choice([1, 1, 1, 2]))
        largest = max(largest, need)
        held = slices[who]
        if held is not None and (left := quota.spend(held, need, now)) is not None:
            slices[who] = left
        else:
            leased = quota.lease(bucket, level, now - at, need, quota.spare(bucket, held, now))
            level, at = leased.level, now
            if not leased.granted:
                continue
            slices[who] = quota.cut(leased, need, now)
        passed += need
        assert passed <= bucket.burst + bucket.rate * now + largest
    assert passed >= 0.7 * bucket.rate * end
