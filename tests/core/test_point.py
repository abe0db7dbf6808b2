"""What several tables hold together: cases, and random versions against trying every snapshot."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from lakemill.core.lag import Version
from lakemill.core.point import Agreed, agree

T = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute) for minute in range(4)]


def held(*intervals: tuple[int, int] | tuple[int, int, int]) -> list[Version]:
    """(lo, hi), or (b, b, number of a time)."""
    return [Version(one[1], one[0], one[1], 1, 7, T[one[2]] if len(one) == 3 else None) for one in intervals]


@pytest.mark.parametrize(
    ("tables", "found"),
    [
        ([], None),
        ([held()], None),  # never loaded
        ([held((3, 9))], Agreed(9)),
        ([held((3, 5), (6, 9)), held((4, 4))], Agreed(4)),
        ([held((3, 5), (8, 9)), held((6, 7))], None),
        ([held((3, 5), (8, 9)), held((2, 4), (6, 7), (9, 9))], Agreed(9)),
        ([held((1, 2), (5, 6), (9, 9)), held((2, 3), (7, 8)), held((1, 9))], Agreed(2)),  # down in several steps
        ([held((5, 5, 0), (5, 5, 1)), held((5, 5, 0))], Agreed(5, T[0])),  # another time, another content
        ([held((5, 5, 0), (7, 7, 1)), held((3, 9))], Agreed(7, T[1])),
        ([held((5, 5, 0)), held((5, 5, 1))], None),
    ],
)
def test_agree(tables: list[list[Version]], found: Agreed | None) -> None:
    assert agree(tables) == found


def test_it_is_the_newest_of_all_that_hold() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        tables = []
        for _ in range(rng.randint(1, 4)):
            at, versions = 0, []
            clocked = rng.random() < 0.3
            for number in range(rng.randint(1, 4)):
                lo = at + rng.randint(0, 3)
                at = lo if clocked else lo + rng.randint(0, 4)
                versions.append((lo, at, number) if clocked else (lo, at))
            tables.append(held(*versions))
        times = {version.t for table in tables for version in table} - {None} or {None}
        right = [
            (t, b)
            for t in times
            for b in range(40)
            if all(any(version.holds(b, t) for version in table) for table in tables)
        ]
        found = agree(tables)
        newest = max(right, key=lambda pair: (pair[0] or T[0], pair[1]), default=None)
        assert (found and (found.t, found.b)) == newest, seed
