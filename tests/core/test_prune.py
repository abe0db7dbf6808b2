from __future__ import annotations

import pytest

from lakemill.core.prune import Compare, Condition, Order, conditions, within
from lakemill.core.schema import Column
from lakemill.errors import BadArgument

COLUMNS = (
    Column(1, "id", "int64"),
    Column(2, "Name", "varchar"),
    Column(3, "price", "decimal(10,2)"),
    Column(4, "day", "date"),
    Column(5, "at", "timestamp"),
    Column(6, "x", "float64"),
    Column(7, "flag", "boolean"),
    Column(8, "nested", "struct", (Column(9, "a", "int32"),)),
)


def number(column: int, test: Compare, *values: str) -> Condition:
    return Condition(column, Order.NUMBER, test, values)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, []),
        ("id = 5", [number(1, Compare.ONE_OF, "5")]),
        ("5 = id", [number(1, Compare.ONE_OF, "5")]),
        ("id < -5", [number(1, Compare.LESS, "-5")]),
        ("10 < id", [number(1, Compare.GREATER, "10")]),
        ("id >= 1 AND (id <= 3 AND flag)", [number(1, Compare.AT_LEAST, "1"), number(1, Compare.AT_MOST, "3")]),
        ("price BETWEEN 1.5 AND 2", [number(3, Compare.AT_LEAST, "1.5"), number(3, Compare.AT_MOST, "2")]),
        ("id IN (1, 2, 3)", [number(1, Compare.ONE_OF, "1", "2", "3")]),
        ("name = 'a%b'", [Condition(2, Order.TEXT, Compare.ONE_OF, ("a%b",))]),
        ("day >= DATE '2026-01-02'", [Condition(4, Order.MOMENT, Compare.AT_LEAST, ("2026-01-02",))]),
        ("day >= '2026-01-02'", [Condition(4, Order.MOMENT, Compare.AT_LEAST, ("2026-01-02",))]),
        ("at < '2026-01-02 03:04:05.500'", [Condition(5, Order.MOMENT, Compare.LESS, ("2026-01-02 03:04:05.5",))]),
        ("x > 1e3", [Condition(6, Order.FLOAT, Compare.GREATER, ("1e3",))]),
        ("name IS NULL", [Condition(2, Order.TEXT, Compare.NULL)]),
        ("id IS NOT NULL", [Condition(1, Order.TEXT, Compare.NOT_NULL)]),
    ],
)
def test_understood(where: str | None, expected: list[Condition]) -> None:
    assert list(conditions(where, COLUMNS)) == expected


@pytest.mark.parametrize(
    "where",
    [
        "id = 5 OR id = 6",
        "NOT id = 5",
        "id + 1 = 5",
        "id = price",
        "name > 5",
        "id = '5'",
        "day = '1.2.2026'",
        "day = '12026-01-01'",
        "at = DATE '2026-01-01'",
        "flag = true",
        "nested.a = 5",
        "other = 5",
        "id NOT IN (1)",
        "lower(name) = 'x'",
    ],
)
def test_what_is_not_plain_rules_nothing_out(where: str) -> None:
    assert conditions(where, COLUMNS) == ()


def test_a_condition_that_does_not_parse_is_told() -> None:
    with pytest.raises(BadArgument):
        conditions("id = = 5", COLUMNS)


@pytest.mark.parametrize(
    ("column", "low", "high", "understood"),
    [
        (Column(1, "a`b", "int32"), "-5", "7", True),
        (Column(1, "k", "varchar"), "it's \\", "ß", True),
        (Column(1, "k", "uint64"), "0", "18446744073709551615", True),
        (Column(1, "d", "date"), "2026-01-01", "2026-02-01", True),
        (Column(1, "d", "date"), "+12026-01-01", "+22026-01-01", False),
    ],
)
def test_a_range_is_understood_again(column: Column, low: str, high: str, understood: bool) -> None:
    found = conditions(within(column, low, high), [column])
    tests = [(one.test, one.values) for one in found]
    assert tests == ([(Compare.AT_LEAST, (low,)), (Compare.AT_MOST, (high,))] if understood else [])


def test_a_type_whose_bounds_say_nothing_has_no_range() -> None:
    assert within(Column(1, "u", "uuid"), "a", "b") is None
