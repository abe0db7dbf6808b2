"""Ranges of columns: from the statistics of files, and put together so that they are few."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import types as t

from lakemill.spark.ends import BUCKETS, Ends, joined, stated, within

INT, TEXT, DAY = t.IntegerType(), t.StringType(), t.DateType()


@pytest.mark.parametrize(
    ("found", "type_", "expected"),
    [
        ([(3, 0, "1", "5"), (2, 0, "9", "9")], INT, "(`k` BETWEEN 1 AND 5 OR `k` BETWEEN 9 AND 9)"),
        ([(3, 0, "1", "5"), (2, 0, "4", "-2")], INT, "`k` BETWEEN 1 AND 5"),
        ([(3, 0, "-7", "5"), (0, 0, None, None)], INT, "`k` BETWEEN -7 AND 5"),
        ([(0, 0, None, None)], INT, "1 = 0"),
        ([(3, 1, "1", "5")], INT, None),
        ([(3, None, "1", "5")], INT, None),
        ([(None, 0, None, None)], INT, None),
        ([(3, 0, "1", None)], INT, None),
        ([(3, 0, "a", "b c")], TEXT, "`k` BETWEEN 'a' AND 'b c'"),
        ([(1, 0, "a", "a"), (1, 0, "c", "c")], TEXT, "`k` IN ('a', 'c')"),
        ([(3, 0, "it's", "z")], TEXT, None),
        ([(3, 0, "a\\", "z")], TEXT, None),
        ([(3, 0, "2026-01-01", "2026-02-01")], DAY, "`k` BETWEEN DATE '2026-01-01' AND DATE '2026-02-01'"),
        ([(3, 0, "0044-03-15 (BC)", "2026-02-01")], DAY, None),
        ([(3, 0, "2026-01-01", "12026-02-01")], DAY, None),
        ([(1, 0, "a", "a")] * 100, TEXT, "`k` IN ('a')"),
        ([(1, 0, f"x{i}", f"x{i}") for i in range(100)], TEXT, None),
    ],
)
def test_what_the_catalog_says(found: list[Any], type_: t.DataType, expected: str | None) -> None:
    ends = stated(found, type_)
    assert (None if ends is None else within({"k": ends})) == expected


@pytest.mark.parametrize("width", [0, 998])
@pytest.mark.parametrize("step", [1000, 1500])
@pytest.mark.parametrize("count", [BUCKETS, BUCKETS + 1, 1000])
def test_ranges_are_few_however_even_the_gaps(width: int, step: int, count: int) -> None:
    found = [(1, 0, str(i * step), str(i * step + width)) for i in range(count)]
    ends = stated(found, INT)
    assert ends is not None
    assert len(ends) <= BUCKETS
    assert (ends[0][0], ends[-1][1]) == (0, (count - 1) * step + width)
    covered: Ends = joined([*ends, *((i * step, i * step + width) for i in range(count))])
    assert covered == ends
