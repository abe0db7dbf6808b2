"""The form of keys, and what is left of them in a text."""

from __future__ import annotations

import pytest

from lakemill.core import keys

SECRET = "aB3-_" + "x" * 38
KEY = keys.joined("ab3k5m2q7xyz", SECRET)


def test_there_and_back() -> None:
    assert keys.split(KEY) == ("ab3k5m2q7xyz", SECRET)
    assert keys.matches(SECRET, keys.digest(SECRET))
    assert not keys.matches(SECRET[:-1] + "y", keys.digest(SECRET))


@pytest.mark.parametrize("text", ["", "lmk_", KEY[:-1], KEY + "x", KEY.upper(), " " + KEY, KEY + "\n", "Bearer " + KEY])
def test_what_is_no_key(text: str) -> None:
    assert keys.split(text) is None


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("nothing here", "nothing here"),
        (f"key {KEY}, and {KEY}.", "key lmk_ab3k5m2q7xyz_***, and lmk_ab3k5m2q7xyz_***."),
        (f"cut {KEY[:40]}", "cut lmk_ab3k5m2q7xyz_***"),
        ("Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.sig-_x", "Bearer ***"),
    ],
)
def test_masked(text: str, masked: str) -> None:
    assert keys.masked(text) == masked
