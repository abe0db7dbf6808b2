"""What PARTITION BY may say: a column, a part of a time or a bucket, of columns and types that both engines know."""

from __future__ import annotations

import pytest

from lakemill.core.partition import check_keys
from lakemill.errors import BadStatement

COLUMNS = {
    "id": "INTEGER",
    "Key one": "VARCHAR",
    "day": "DATE",
    "ts": "TIMESTAMP WITH TIME ZONE",
    "f": "DOUBLE",
    "d": "DECIMAL(9,2)",
    "l": "INTEGER[]",
}


@pytest.mark.parametrize(
    "key",
    ["id", "ID", '"Key one"', "d", "year(day)", "MONTH(ts)", "day(ts)", "hour(ts)", "bucket(4, id)", "bucket(2, f)"],
)
def test_taken(key: str) -> None:
    check_keys([key], COLUMNS)


@pytest.mark.parametrize(
    ("key", "about", "remedy"),
    [
        ("nix", "names nix, which is no column", "its columns are id, Key one"),
        ("year(nix)", "names nix", "its columns are"),
        ("id + 1", r"id \+ 1 is no partition key", "bucket"),
        ("upper(id)", "no partition key", "bucket"),
        ("date_trunc('month', day)", "no partition key", "month"),
        ("t.id", "no partition key", "write a column"),
        ("bucket(id)", "no partition key", "bucket"),
        ("year(", "no partition key", "year"),
        ("year(id)", "id is INTEGER", "cast it"),
        ("f", "f is DOUBLE", "another column"),
        ("l", "INTEGER", "another column"),
        ("bucket(2, d)", "DECIMAL", "another column"),
        ("bucket(0, id)", "0 buckets", "between 1 and 2147483647"),
        ("bucket(2147483648, id)", "2147483648 buckets", "between 1 and 2147483647"),
    ],
)
def test_refused_with_its_place(key: str, about: str, remedy: str) -> None:
    with pytest.raises(BadStatement, match=about) as refused:
        check_keys(["id", key], COLUMNS, "line 3, column 5")
    assert refused.value.place == "line 3, column 5"
    assert remedy in refused.value.remedy
