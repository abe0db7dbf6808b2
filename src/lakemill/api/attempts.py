"""How often an address failed to say who it is: a bucket each, which failures empty and time fills again.

Asked before a credential is looked up, told of after it did not hold. Of a process's own: what is guarded is the work
that a guess costs, and guessing itself, which against keys of 160 bits is hopeless at any rate. Memory is bounded: an
attacker with many addresses only makes us forget those that failed longest ago.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import OrderedDict

from lakemill.core.quota import Bucket, lease
from lakemill.errors import TooManyFailures

MOST = 10_000
"""Addresses that are remembered."""


class Attempts:
    """``per_minute`` failures of an address, also all at once; 0: no limit."""

    def __init__(self, per_minute: int, most: int = MOST) -> None:
        self._bucket = Bucket(per_minute / 60, per_minute) if per_minute else None
        self._most = most
        self._lock = threading.Lock()
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """By source: the level of its bucket, and when that was."""

    def __len__(self) -> int:
        return len(self._levels)

    def check(self, address: str) -> None:
        """Refuse an address that failed too often."""
        if self._bucket is None or (found := self._levels.get(source(address))) is None:
            return
        taken = lease(self._bucket, found[0], time.monotonic() - found[1], 1, 0)
        if not taken.granted:
            error = TooManyFailures("too many keys from this address did not hold")
            error.wait = taken.wait
            raise error

    def failed(self, address: str) -> None:
        if self._bucket is None:
            return
        with self._lock:
            now, own = time.monotonic(), source(address)
            level, then = self._levels.pop(own, (self._bucket.burst, now))
            self._levels[own] = lease(self._bucket, level, now - then, 1, 0).level, now
            if len(self._levels) > self._most:
                self._levels.popitem(last=False)


def source(address: str) -> str:
    """What counts as one: an IPv4 address, the network of an IPv6 address, of which everybody has plenty."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:100]
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
