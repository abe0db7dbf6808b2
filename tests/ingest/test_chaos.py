"""A short one of `make chaos-ingest`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ingest.chaos import Chaos, Size


@pytest.mark.timeout(900)
@pytest.mark.xdist_group("processes")  # with a JVM of its own: one such test at a time
def test_nothing_is_lost_or_doubled_under_kills(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path, seed=1, size=Size(coordinators=1, producers=2, threads=8, checkers=2))
    chaos.run(["api", "producer", "backend"])
    answered = {told.key for told in chaos.found.answers}
    assert len(chaos.found.answers) > len(answered) > 50
    assert any(what == "read" for what, _ in chaos.found.seen)
