"""The names that we give columns of ours, all of which are refused of users' columns, and none other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lakemill
from lakemill.core.reserved import is_reserved

_WORDS = re.compile(r"(?<![A-Za-z0-9_])__[a-z][a-z_]*(?:\{\w+\})?(?![A-Za-z0-9_}])")
_NO_COLUMNS = {"__future__", "__name__", "__main__", "__postfix", "__magic", "__ducklake_metadata_7"}


def test_every_name_of_ours_is_reserved() -> None:
    root = Path(lakemill.__file__).parent
    files = [file for room in ("core", "spark", "runtime", "lake") for file in (root / room).glob("*.py")]
    found = {word for file in files for word in _WORDS.findall(file.read_text("utf-8"))}
    ours = {re.sub(r"\{\w+\}", "7", word) for word in found if not word.endswith("__")} - _NO_COLUMNS
    assert {"__weight", "__row_id", "__copy", "__c7", "__k7"} <= ours
    assert [word for word in sorted(ours) if not is_reserved(word)] == []


@pytest.mark.parametrize(
    "name", ["__index_level_0__", "__typename", "_weight", "weight", "__weights", "__cost", "__", "n"]
)
def test_others_are_free(name: str) -> None:
    assert not is_reserved(name)
