"""The lake that the tests of this folder work on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import lakemill
from tests.conftest import MakeLake
from tests.refresh.mill import Mill


@pytest.fixture
def mill(make_lake: MakeLake, spark: Any) -> Iterator[Mill]:
    with lakemill.open(make_lake().settings) as lake:
        yield Mill(lake)
