"""What the last writes of a batch change, given what the table has under their keys."""

from __future__ import annotations

import pytest

from lakemill.core.writes import COMES, STAYS, Change, Kept, Write, change

SAME, OTHER, MORE = Kept(1, 5, 50, True), Kept(1, 6, 60, False), Kept(2, 0, 70, True)


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (Write(False), Change((), (COMES,), 1, 0, 0)),
        (Write(True), Change((), (STAYS,), 0, 0, 0)),
        (Write(False, (SAME,)), Change((), (STAYS,), 0, 0, 0)),
        (Write(False, (OTHER,)), Change(((1, 6),), (60,), 0, 1, 0)),
        (Write(True, (SAME,)), Change(((1, 5),), (STAYS,), 0, 0, 1)),
        (Write(False, (SAME, MORE)), Change(((2, 0),), (STAYS,), 0, 0, 1)),
        (Write(False, (OTHER, MORE)), Change(((2, 0), (1, 6)), (60,), 0, 1, 1)),
        (Write(True, (OTHER, MORE)), Change(((1, 6), (2, 0)), (STAYS,), 0, 0, 2)),
    ],
)
def test_one_write(write: Write, expected: Change) -> None:
    assert change([write]) == expected


def test_several_in_their_order() -> None:
    found = change([Write(False), Write(False, (OTHER,)), Write(True, (SAME,))])
    assert found == Change(((1, 6), (1, 5)), (COMES, 60, STAYS), 1, 1, 1)
    assert change([]) == Change((), (), 0, 0, 0)
