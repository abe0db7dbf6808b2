"""Tokens as clients see them: opaque text that is comparable inside one lake.

A token is a number that the bus gave out, the lake that gave it, and a check that a typing error fails:
``lm1-<lake>-<number>-<check>``. Written where a request is answered, read where a query or a wait names one. Nothing
here knows how far the lake has come; that is the watermark's matter.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from uuid import UUID

from lakemill.errors import BadToken, TokenOfAnotherLake

_TOKEN = re.compile(r"lm1-([0-9a-f]{12})-(0|[1-9]\d{0,18})-([0-9a-f]{4})")
LARGEST = 2**63 - 1


def write_token(lake_id: UUID, number: int) -> str:
    """The text of a token; zero is before every request."""
    lake = lake_id.hex[:12]
    return f"lm1-{lake}-{number}-{_check(lake, number)}"


def read_token(lake_id: UUID, text: str) -> int:
    """The number of a token of this lake."""
    match = _TOKEN.fullmatch(text.strip())
    if match is None or match[3] != _check(match[1], int(match[2])) or int(match[2]) > LARGEST:
        raise BadToken(f"{text[:80]!r} is not a token")
    if match[1] != lake_id.hex[:12]:
        raise TokenOfAnotherLake("the token was given out by another lake, or before this one was made anew")
    return int(match[2])


def later(one: str | None, other: str) -> str:
    """The later of two tokens of one lake."""
    return other if one is None or _number(other) > _number(one) else one


def _number(text: str) -> int:
    match = _TOKEN.fullmatch(text)
    if match is None:
        raise BadToken(f"{text[:80]!r} is not a token")
    return int(match[2])


def _check(lake: str, number: int) -> str:
    return blake2b(f"{lake}-{number}".encode(), digest_size=2).hexdigest()
