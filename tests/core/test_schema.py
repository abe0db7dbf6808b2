from __future__ import annotations

import pytest

from lakemill.core.schema import (
    Column,
    build_columns,
    build_name_map,
    converts,
    duck_type,
    shown_type,
    stored_default,
    stored_type,
)
from lakemill.errors import UnsupportedLake, UnsupportedType

ROWS = [
    (1, "id", "int64", None, None, False, None),
    (2, "s", "struct", None, None, True, None),
    (3, "a", "int32", None, None, True, 2),
    (4, "l", "list", None, None, True, 2),
    (5, "element", "uuid", None, None, True, 4),
    (6, "m", "map", None, None, True, None),
    (7, "key", "varchar", None, None, True, 6),
    (8, "value", "decimal(10,2)", None, None, True, 6),
]


def test_trees_and_their_types() -> None:
    columns = build_columns(ROWS)
    assert [column.name for column in columns] == ["id", "s", "m"]
    assert [".".join(path) for path, _ in columns[1].leaves()] == ["s.a", "s.l.element"]
    assert shown_type(columns[1]) == "struct<`a`:int,`l`:array<string>>"
    assert duck_type(columns[1]) == 'STRUCT("a" INTEGER, "l" UUID[])'
    assert duck_type(columns[1], shown=True) == 'STRUCT("a" INTEGER, "l" VARCHAR[])'
    assert duck_type(columns[2]) == "MAP(VARCHAR, DECIMAL(10,2))"
    assert [converts(column) for column in columns] == [False, True, False]


@pytest.mark.parametrize(
    "type_", ["timestamp_ns", "time_ns", "timetz", "interval", "variant", "geometry", "unknown", "x"]
)
def test_types_that_spark_cannot_hold_are_refused_by_name(type_: str) -> None:
    with pytest.raises(UnsupportedType) as caught:
        stored_type(Column(1, "c", type_))
    assert "'c'" in str(caught.value)
    assert type_ in str(caught.value)


@pytest.mark.parametrize(
    ("type_", "default", "expected"),
    [
        ("int32", "42", "CAST('42' AS int)"),
        ("varchar", "it's \\x", "CAST('it\\'s \\\\x' AS string)"),
        ("uuid", "01234567-89ab-cdef-0123-456789abcdef", "X'0123456789abcdef0123456789abcdef'"),
        ("blob", r"a\xFFb", "X'61ff62'"),
        ("int128", "7", "CAST('7' AS double)"),
        ("int32", None, None),
    ],
)
def test_defaults(type_: str, default: str | None, expected: str | None) -> None:
    assert stored_default(Column(1, "c", type_, initial_default=default)) == expected


def test_a_nested_default_is_refused() -> None:
    with pytest.raises(UnsupportedLake):
        stored_default(Column(1, "c", "list", (Column(2, "element", "int32"),), initial_default="[1]"))


def test_name_maps_are_trees() -> None:
    (first, second) = build_name_map([(0, "s", 2, None, False), (1, "a", 3, 0, False), (2, "p", 9, None, True)])
    assert [child.source for child in first.children] == ["a"]
    assert second.is_partition
