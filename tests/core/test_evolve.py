"""Which columns records need: the matrix of types, and how far a column can widen."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from lakemill.core.evolve import Add, Widen, changes, joined
from lakemill.core.schema import Column

COLUMNS = [
    Column(1, "i", "int8"),
    Column(2, "u", "uint8"),
    Column(3, "f", "float32"),
    Column(4, "d", "decimal(4,2)"),
    Column(5, "b", "int64"),
]
CASES: list[tuple[list[dict[str, Any]], list[Any]]] = [
    ([{"i": 1, "u": 1, "f": 1.5, "d": 100000, "b": 2**70}], []),
    ([{"i": 300}, {"i": 5}], [Widen("i", "SMALLINT")]),
    ([{"i": 300}, {"i": -(2**40)}], [Widen("i", "BIGINT")]),
    ([{"i": 2**70}, {"i": "x"}, {"i": True}, {"i": 1.5}], []),
    ([{"u": 2**20}], [Widen("u", "UINTEGER")]),
    ([{"u": -1}, {"u": 2**40}], []),
    ([{"f": Decimal("1e300")}], [Widen("f", "DOUBLE")]),
    ([{"n": None}], []),
    ([{"n": None}, {"n": 1}, {"n": None}], [Add("n", "BIGINT")]),
    ([{"n": 1}, {"n": Decimal("1.5")}], [Add("n", "DOUBLE")]),
    ([{"n": 1}, {"n": 2**70}], [Add("n", "DECIMAL(38,0)")]),
    ([{"n": 10**40}], [Add("n", "JSON")]),
    ([{"n": True}, {"n": 1}], [Add("n", "JSON")]),
    ([{"n": "2026-01-01"}, {"m": [1]}, {"o": {"a": 1}}], [Add("n", "VARCHAR"), Add("m", "JSON"), Add("o", "JSON")]),
    ([{"I": 1}, {"N": 1}, {"n": 1}, {"": 1}], [Add("N", "BIGINT")]),
]


@pytest.mark.parametrize(("payloads", "expected"), CASES)
def test_changes(payloads: list[dict[str, Any]], expected: list[Any]) -> None:
    assert list(changes(COLUMNS, payloads)) == expected


def test_the_matrix_does_not_depend_on_the_order() -> None:
    types = ["BOOLEAN", "BIGINT", "DOUBLE", "VARCHAR", "JSON", "DECIMAL(38,0)"]
    for one in types:
        for other in types:
            assert joined(one, other) == joined(other, one)
            for third in types:
                assert joined(joined(one, other), third) in (joined(one, joined(other, third)), "JSON")
