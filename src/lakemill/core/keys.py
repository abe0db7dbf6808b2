"""What an API key looks like: a public id, by which it is found, and a secret of 256 random bits.

    lmk_ab3k5m2q7xyz_3Q2…                (mark, id, secret)

Only a digest of the secret is ever stored. A plain SHA-256 is enough for it: nobody guesses 256 random bits, however
fast a guess is. Whatever is written down for people goes through `masked`.
"""

from __future__ import annotations

import hashlib
import hmac
import re

MARK = "lmk"
ID_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
ID_LENGTH = 12
SECRET_BYTES = 32
_SHAPE = rf"{MARK}_([a-z2-7]{{{ID_LENGTH}}})_([A-Za-z0-9_-]{{43}})"
_WHOLE = re.compile(_SHAPE)
_INSIDE = re.compile(rf"({MARK}_[a-z2-7]{{{ID_LENGTH}}})_[A-Za-z0-9_-]{{8,}}")
_JWT = re.compile(r"\beyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")


def joined(key_id: str, secret: str) -> str:
    return f"{MARK}_{key_id}_{secret}"


def split(text: str) -> tuple[str, str] | None:
    """Id and secret; None where it is no key."""
    found = _WHOLE.fullmatch(text)
    return None if found is None else (found[1], found[2])


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def matches(secret: str, stored: bytes) -> bool:
    """In a time that tells nothing about where they differ."""
    return hmac.compare_digest(digest(secret), stored)


def masked(text: str) -> str:
    """A text without the secrets of keys, and without the JWTs, that may stand in it."""
    if MARK in text:
        text = _INSIDE.sub(r"\1_***", text)
    return _JWT.sub("***", text) if "eyJ" in text else text
