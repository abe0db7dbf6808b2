from __future__ import annotations

import pytest

from lakemill.core.changes import Change, kinds_for, parse_changes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, ()),
        ("", ()),
        ("inserted_into_table:2", (Change("inserted_into_table", "2"),)),
        (
            "inserted_into_table:2,deleted_from_table:12",
            (Change("inserted_into_table", "2"), Change("deleted_from_table", "12")),
        ),
        (
            'created_table:"main"."a,b",inlined_insert:3',
            (Change("created_table", '"main"."a,b"'), Change("inlined_insert", "3")),
        ),
        ('created_table:"main"."q""uote,x"', (Change("created_table", '"main"."q""uote,x"'),)),
    ],
)
def test_parse(text: str | None, expected: tuple[Change, ...]) -> None:
    assert parse_changes(text) == expected


def test_a_quoted_number_is_not_a_table_id() -> None:
    changes = parse_changes('created_table:"main"."2",deleted_from_table:12')
    assert kinds_for(changes, 2) == frozenset()
    assert kinds_for(changes, 12) == {"deleted_from_table"}
    assert kinds_for(changes, 1) == frozenset()
