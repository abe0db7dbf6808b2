"""Random histories, a bounded number with fixed seeds; `make fuzz-lake N=1000` runs as many as you like."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.check import QUICK
from tests.fuzz.run import Options, run

BATCH = int(os.environ.get("LAKEMILL_TEST_FUZZ_BATCH", "20"))
BATCHES = range(3)
FIRST_SEED = int(os.environ.get("LAKEMILL_TEST_FUZZ_SEED", "1"))


@pytest.fixture
def quick(spark: Any) -> Iterator[None]:
    """The session belongs to other tests too: after ours it is as it was."""
    yield
    for key in QUICK:
        spark.conf.unset(key)


@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("kind", ["stock", "mixed"])
@pytest.mark.parametrize("batch", BATCHES)
def test_random_histories(kind: str, batch: int, postgres: str, tmp_path: Path) -> None:
    first = FIRST_SEED + batch * BATCH
    report = run([kind], range(first, first + BATCH), Options(postgres, tmp_path, frames=4))
    print(report.text())
    assert not report.failed, report.text()
    assert report.questions["scans"] > BATCH
