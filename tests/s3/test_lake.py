"""The lake suite's core on a real S3 server: what stock DuckDB and Lakemill write there, each reads of the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import lakemill
from lakemill.runtime.open import Lake
from tests.conftest import TestLake

pytestmark = pytest.mark.s3

Bag = Counter[tuple[Any, ...]]


@pytest.fixture
def opened(lake: TestLake, spark: Any) -> Iterator[Lake]:
    with lakemill.open(lake.settings) as opened:
        yield opened


def rows(frame: Any) -> Bag:
    return Counter(tuple(row) for row in frame.collect())


def told_by_duckdb(lake: Lake, table: str, at: int | None = None) -> Bag:
    when = "" if at is None else f" AT (VERSION => {at})"
    return Counter(lake.sql(f"SELECT * FROM {table}{when}").fetchall())


def test_what_stock_duckdb_writes_is_read_at_every_snapshot(opened: Lake) -> None:
    opened.sql("CREATE TABLE t AS SELECT i AS id, 'v' || i AS name FROM range(1000) r(i)")
    first = opened.snapshot().id
    opened.sql("DELETE FROM t WHERE id % 10 = 0")
    opened.sql("UPDATE t SET name = 'changed' WHERE id < 20")
    opened.sql("INSERT INTO t SELECT i, 'new' FROM range(2000, 2010) r(i)")
    last = opened.snapshot().id
    table = opened.table("t")
    before, after = told_by_duckdb(opened, "t", first), told_by_duckdb(opened, "t", last)
    assert rows(table.scan(first)) == before
    assert rows(table.scan()) == after
    delta = {tuple(row)[:-1]: row["__weight"] for row in table.delta(first).collect()}
    assert delta == {row: after[row] - before[row] for row in before | after if after[row] != before[row]}
