"""When a stamped position was deleted: each case is one delete file in a small history of labels."""

from __future__ import annotations

import pytest

from lakemill.core.timing import Labels, WrittenBy, deleted_up_to
from lakemill.errors import DeleteInDoubt

D, INS, F, N = "deleted_from_table", "inserted_into_table", "inline_flush", "inlined_delete"
DATA = WrittenBy(2, 2)


def labels(**kinds: str) -> Labels:
    """``s5="D"``, ``s6="D+I"``; snapshots that are not named are there and did nothing to the table."""
    words = {"D": D, "I": INS, "F": F, "N": N}
    named = {int(key[1:]): value for key, value in kinds.items()}
    found = {s: frozenset[str]() for s in range(20) if named.get(s) != "gone"}
    found |= {s: frozenset(words[k] for k in v.split("+")) for s, v in named.items() if v != "gone"}
    return Labels(found)


@pytest.mark.parametrize(
    ("why", "stamps", "at", "written", "history", "expected"),
    [
        ("two deletes without anybody in between", [3, 4], 3, 4, labels(s3="D", s4="D"), 3),
        ("the second one committed later than its stamp", [3, 4], 5, 6, labels(s3="D", s6="D"), 3),
        ("before the first", [3, 4], 2, 4, labels(s3="D", s4="D"), -1),
        (
            "an old group's true commit is the only delete before the next stamp",
            [3, 4, 7],
            5,
            7,
            labels(s3="D", s6="D", s7="D"),
            3,
        ),
        ("the same, after that commit", [3, 4, 7], 6, 7, labels(s3="D", s6="D", s7="D"), 4),
        ("the smallest stamp is the first delete itself", [4, 9], 4, 9, labels(s4="D", s6="D", s9="D"), 4),
        ("a flush copies: the last stamp is not the flush", [5], 6, 9, labels(s5="D", s9="D+F"), 5),
        ("a flushed inlined delete is exact", [5], 5, 9, labels(s5="N", s9="D+F"), 5),
        ("a flush that only found inlined deletes calls itself a delete", [5], 5, 6, labels(s5="N", s6="D"), 5),
        ("the same with two inlined deletes", [5, 7], 7, 8, labels(s5="N", s7="N", s8="D"), 7),
        ("an inlined and then a large delete, flushed as a delete", [3, 4], 5, 6, labels(s3="N", s4="D", s6="D"), 4),
        ("an open delete over an inlined one", [3, 4, 6], 5, 9, labels(s3="D", s6="N", s8="D", s9="D"), 3),
        ("before a file of three groups", [3, 4, 5], 3, 7, labels(s3="N", s4="D", s5="D", s7="D"), 3),
        ("an update at the stamp excludes a later one", [3, 4, 9], 4, 9, labels(s3="D", s4="D+I", s6="D", s9="D"), 4),
        (
            "an update would have been refused over a flush of deletes",
            [3, 4, 6],
            5,
            7,
            labels(s3="N", s4="N", s5="D+F", s6="D+I+N", s7="D"),
            4,
        ),
        ("a group from before the data file was written", [1, 4], 1, 4, labels(s1="D", s2="D", s4="D"), 1),
        ("a group that came with the data file was not inlined", [2, 4], 4, 5, labels(s2="I+N", s5="D+N"), 2),
    ],
)
def test_certain(why: str, stamps: list[int], at: int, written: int, history: Labels, expected: int) -> None:
    by = WrittenBy(written, written)
    assert deleted_up_to(stamps, at, DATA, by, history) == expected, why


@pytest.mark.parametrize(
    ("why", "stamps", "at", "written", "history"),
    [
        ("two deletes before the next stamp", [3, 4, 9], 4, WrittenBy(9, 9), labels(s3="D", s4="D", s6="D", s9="D")),
        ("and between them", [3, 4, 9], 5, WrittenBy(9, 9), labels(s3="D", s4="D", s6="D", s9="D")),
        ("a hole in the labels", [3, 4, 9], 5, WrittenBy(9, 9), labels(s3="D", s4="gone", s6="D", s9="D")),
        (
            "a flush, or a delete that began before the inlined one",
            [3, 5],
            5,
            WrittenBy(6, 6),
            labels(s3="D", s5="N", s6="D"),
        ),
        (
            "an inlined delete does not exclude an open one: the group before it is younger, and one cut can't say so",
            [3, 4, 6],
            6,
            WrittenBy(9, 9),
            labels(s3="D", s6="N", s8="D", s9="D"),
        ),
        ("no delete at all", [3, 4, 9], 5, WrittenBy(9, 9), labels(s3="D", s9="D")),
        (
            "the writer is gone and may have been a flush",
            [3, 5],
            6,
            WrittenBy(7, 9),
            labels(s3="D", s5="D", s7="gone", s8="gone"),
        ),
    ],
)
def test_in_doubt(why: str, stamps: list[int], at: int, written: WrittenBy, history: Labels) -> None:
    with pytest.raises(DeleteInDoubt) as caught:
        deleted_up_to(stamps, at, DATA, written, history)
    assert caught.value.code == "DELETE_IN_DOUBT", why
    assert caught.value.remedy


def test_outside_the_doubtful_span_the_answer_is_certain() -> None:
    history = labels(s3="D", s4="D", s6="D", s9="D")
    written = WrittenBy(9, 9)
    assert deleted_up_to([3, 4, 9], 3, DATA, written, history) == 3
    assert [deleted_up_to([3, 4, 9], at, DATA, written, history) for at in (6, 7, 8)] == [4, 4, 4]
