"""What names in a record meant: the columns of then and now, compared by their ids."""

from __future__ import annotations

import pytest

from lakemill.core.meant import SAME, Meant, doubtful, meant
from lakemill.core.schema import Column


def column(id_: int, name: str, *children: Column) -> Column:
    return Column(id_, name, "struct" if children else "varchar", children)


A, B = column(1, "a"), column(2, "b")
S = column(5, "s", column(6, "x"))


@pytest.mark.parametrize(
    ("then", "now", "found"),
    [
        ([A, B], [A, B], SAME),
        ([A], [A, B], SAME),
        ([A, B], [A], SAME),
        ([A], [column(1, "c")], SAME),
        ([A], [column(3, "a")], Meant(("a",))),
        ([A], [column(3, "A")], Meant(("A",))),
        ([A, B], [column(2, "a")], Meant(("a",), (("b", 2),))),
        ([A, B], [column(2, "a"), column(1, "b")], Meant(("a", "b"), (("a", 1), ("b", 2)))),
        ([S], [column(5, "s", column(6, "x"), column(7, "y"))], SAME),
        ([S], [column(5, "s", column(7, "x"))], Meant(("s",))),
        ([S, A], [column(5, "a", column(7, "x"))], Meant(("a",))),
        ([S, A], [column(5, "a", column(6, "x"))], Meant(("a",), (("s", 5),))),
    ],
)
def test_what_names_meant(then: list[Column], now: list[Column], found: Meant) -> None:
    assert meant(then, now) == found


def test_where_nobody_knows_what_they_meant() -> None:
    now = [column(3, "a"), B, S]
    assert doubtful({}, now) == SAME
    assert doubtful({(0, "a"): frozenset({1, 3})}, now) == Meant(("a",))
    assert doubtful({(5, "x"): frozenset({6, 9}), (9, "b"): frozenset({2, 8})}, now) == Meant(("s",))
