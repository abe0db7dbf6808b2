"""Some random queries in every run; ``python -m tests.core.fuzz`` does thousands."""

from __future__ import annotations

import pytest

from tests.core import fuzz


@pytest.mark.parametrize("seed", range(40))
def test_a_random_query(seed: int) -> None:
    found = fuzz.run(seed)
    assert found.wrong is None, f"{found.wrong}\n{found.case and found.case.repro()}"
