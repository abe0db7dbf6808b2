"""A lake that takes requests, and Spark to make rows of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import lakemill
from tests.conftest import MakeLake
from tests.ingest.intake import Intake

QUICK = {"service.retry_base": "1ms", "service.retry_cap": "1ms"}


@pytest.fixture
def intake(make_lake: MakeLake, spark: Any) -> Iterator[Intake]:
    with lakemill.open(make_lake(flags=QUICK).settings) as lake:
        yield Intake(lake)
