"""What is kept as the newest consistent point, judged by DuckDB while refreshes move on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import lakemill
from lakemill.store import points, work
from tests.conftest import MakeLake
from tests.refresh.mill import Mill
from tests.service.conftest import until
from tests.service.test_worker import QUICK, create, fresh, serving

QUERIES = {
    "a": "SELECT k, count(*) AS n FROM r GROUP BY k",
    "b": "SELECT max(n) AS most FROM a",
    "c": "SELECT a.k, b.most FROM a JOIN b ON a.n <= b.most",
}
SECONDS = 240
LAGS = {"a": "'1 second'", "b": "'1 second'", "c": "'4 seconds'"}


@pytest.fixture
def mill(make_lake: MakeLake, spark: Any) -> Iterator[Mill]:
    with lakemill.open(make_lake(flags=QUICK).settings) as lake:
        yield Mill(lake)


def judge(mill: Mill, point: points.KeptPoint) -> None:
    """Every table of the point is what DuckDB computes from the base table at the point's b."""
    reads = {name.name: f"SELECT * FROM {name} AT (VERSION => {commit})" for name, commit in point.tables}
    assert reads.keys() == QUERIES.keys()
    base = f"r AS (SELECT * FROM lake.main.r AT (VERSION => {point.b}))"
    views = ", ".join([base, *(f"{name} AS ({query})" for name, query in QUERIES.items())])
    for name, read in reads.items():
        assert sorted(mill.rows(read)) == sorted(mill.rows(f"WITH {views} SELECT * FROM {name}")), (name, point)


def further(mill: Mill, b: int) -> bool:
    return any(one.version is not None and one.version.b_lo > b for one in work.known(mill.lake.conn))


def test_the_kept_point_is_right_while_refreshes_move_on(mill: Mill) -> None:
    for name, query in QUERIES.items():
        create(mill, name, query, LAGS[name])
    seen: list[int] = []
    moved = 0
    with serving(mill):
        until(lambda: fresh(mill, *QUERIES) and points.kept(mill.lake.conn), SECONDS)

        def look() -> bool:
            nonlocal moved
            mill.tell(f"INSERT INTO r SELECT * FROM r LIMIT {1 + len(seen) % 3}")
            (point,) = points.kept(mill.lake.conn)
            seen.append(point.b)
            moved += further(mill, point.b)
            judge(mill, point)
            return len(set(seen)) > 3 and moved > 0

        until(look, SECONDS)
    assert seen == sorted(seen), "it moves forward only"
