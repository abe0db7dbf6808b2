"""A few random courses in every run; ``make fuzz-refresh`` does them at length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import lakemill
from tests.conftest import SECOND_JVM, make_lakes
from tests.core.fuzz import refusal
from tests.core.test_delta import SCHEMA
from tests.refresh.course import CORPUS, Course

pytestmark = [pytest.mark.spark, SECOND_JVM]
EACH = 2
NAMES = sorted(name for name, query in CORPUS.items() if refusal(query, SCHEMA["main"]) is None)


@pytest.fixture(scope="module")
def lake(postgres: str, spark_session: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[lakemill.Lake]:
    with make_lakes(postgres, tmp_path_factory.mktemp("courses")) as make, lakemill.open(make().settings) as lake:
        yield lake


@pytest.mark.parametrize("first", range(0, len(NAMES), EACH * 10))
def test_every_tenth_group_of_queries(lake: lakemill.Lake, first: int) -> None:
    Course(lake, 1000 + first, tuple(NAMES[first : first + EACH])).run()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_drawn_queries(lake: lakemill.Lake, seed: int) -> None:
    Course(lake, seed).run()
