"""A short one of `make chaos`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.chaos import Chaos


@pytest.mark.timeout(900)
@pytest.mark.xdist_group("processes")  # with JVMs of their own: one such test at a time
def test_nothing_is_lost_under_kills(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path, seed=3)
    chaos.run(kills=3)
    assert sum(chaos.did.values()) == 3
    assert chaos.writes["done"] > 0
    assert chaos.did["pause"] >= 1
    assert sum(chaos.paused.values()) >= chaos.paused["idle"] + 1, "a pause met a refresh"
