"""A few hundred random requests; `make fuzz-api` makes as many as there is time for."""

from __future__ import annotations

from tests.api.fuzz import fuzz
from tests.conftest import TestLake


def test_random_requests_find_no_500(made_lake: TestLake) -> None:
    assert fuzz(made_lake, examples=4) > 150
