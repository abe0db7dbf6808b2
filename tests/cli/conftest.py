"""Runs the command line in this process, so that its tests share the suite's PostgreSQL and its one JVM."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from lakemill.cli.main import run
from tests.conftest import TestLake


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def failed(self, code: str, exit_code: int, *, about: str = "", remedy: str = "") -> None:
        """One clear line with a code, what is wrong and what to do; nothing on standard output."""
        assert self.code == exit_code, self.err
        lines = self.err.strip().splitlines()
        assert len(lines) == 1, self.err
        match = re.fullmatch(r"error\[(\w+)\] (.+) → (.+)", lines[0])
        assert match is not None, lines[0]
        assert match[1] == code
        assert about in match[2], match[2]
        assert remedy in match[3], match[3]
        assert self.out == ""


Lakemill = Callable[..., Ran]


@pytest.fixture
def lakemill(capfd: pytest.CaptureFixture[str]) -> Lakemill:
    """``lakemill("tables", "--format", "json")``; a `TestLake` as first argument stands for its folder."""

    def call(*words: object) -> Ran:
        capfd.readouterr()
        if words and isinstance(words[0], TestLake):
            words = ("-C", words[0].settings.root, *words[1:])
        code = run([str(word) for word in words])
        out, err = capfd.readouterr()
        return Ran(code, out, err)

    return call
