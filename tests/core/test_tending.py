"""What is worth compacting, and when."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lakemill.core.tending import Crowd, candidates, open_at, window_of


def crowd(table: str, small: int = 0, mb: float = 1, rows: int = 100, deleted: int = 0) -> Crowd:
    return Crowd(table, small, round(mb * 1e6), round(mb * 1e6), rows, deleted)


def test_many_small_files_or_much_that_is_deleted() -> None:
    found = candidates(
        [
            crowd("few", small=15),
            crowd("many", small=16),
            crowd("cheap", small=16, mb=0.1),
            crowd("crowded", small=200, mb=2),
            crowd("deleted", deleted=20),
            crowd("hardly", deleted=19),
            crowd("empty", rows=0),
        ],
        small_files=16,
        deleted_share=0.2,
    )
    assert [one.table for one in found] == ["crowded", "cheap", "many", "deleted"]
    assert found[0].why == "it has 200 small files"
    assert found[-1].why == "20% of what its files hold is deleted"


@pytest.mark.parametrize(
    ("window", "hour", "expected"),
    [
        ("", 12, True),
        ("01:00-05:00", 0, False),
        ("01:00-05:00", 1, True),
        ("01:00-05:00", 4, True),
        ("01:00-05:00", 5, False),
        ("22:00-02:00", 23, True),
        ("22:00-02:00", 1, True),
        ("22:00-02:00", 2, False),
        ("22:00-02:00", 12, False),
        ("never", 12, False),
    ],
)
def test_windows(window: str, hour: int, expected: bool) -> None:
    assert open_at(window, datetime(2026, 1, 1, hour, tzinfo=UTC)) is expected


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("main.t", "always"),
        ("sales.t", "at night"),
        ('"Sales"."T"', "at night"),
        ("sales.orders", "never"),
        ('"SALES"."Orders"', "never"),
    ],
)
def test_a_table_has_its_own_window_or_that_of_its_schema_or_that_of_all(table: str, expected: str) -> None:
    assert window_of(table, {"sales": "at night", "Sales.Orders": "never"}, "always") == expected
