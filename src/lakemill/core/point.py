"""The newest data snapshot that several tables hold together: what a consistent point is made at.

A version is right for the data snapshots of its interval; one that depends on the clock, for one time as well, so that
two of these agree only where they were computed for the same. Pure: the versions are given.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from lakemill.core.lag import Version


@dataclass(frozen=True, slots=True)
class Agreed:
    b: int
    t: datetime | None = None
    """What now() is in all of it; None where it does not matter."""


def agree(held: Sequence[Sequence[Version]]) -> Agreed | None:
    """The newest b for which each of these tables has a version, at the newest t for which all have one.

    ``held`` are the versions of each table, oldest first: a table's data snapshot never decreases. None: there is none.
    """
    times = sorted({version.t for versions in held for version in versions if version.t is not None}, reverse=True)
    for t in times or (None,):
        b = _largest([[version for version in versions if version.t in (None, t)] for versions in held])
        if b is not None:
            return Agreed(b, t)
    return None


def _largest(held: Sequence[Sequence[Version]]) -> int | None:
    """Down from the least of the ends: whoever has no version there says how far down it must go."""
    if not held or not all(held):
        return None
    b = min(versions[-1].b_hi for versions in held)
    while True:
        lower = b
        for versions in held:
            place = bisect_right(versions, lower, key=lambda version: version.b_lo)
            if place == 0:
                return None
            lower = min(lower, versions[place - 1].b_hi)
        if lower == b:
            return b
        b = lower
