"""What compaction decides: tables of cases, no files."""

from __future__ import annotations

import pytest

from lakemill.core.compact import (
    UNSTAMPED,
    Deleted,
    Source,
    group_sources,
    last_before,
    overlapping,
    time_deletes,
    unmergeable,
)
from lakemill.core.scan import DataFile, DeleteFile
from lakemill.core.schema import Column
from lakemill.core.timing import Labels, WrittenBy

MB = 10**6
TARGET = 100 * MB
COLUMNS = {0: (Column(1, "id", "int32"),), 9: (Column(1, "id", "int64"),)}


def file(
    id_: int, size: int = MB, rows: int = 100, begin: int | None = None, partition_id: int | None = None
) -> DataFile:
    start = id_ if begin is None else begin
    return DataFile(id_, f"/t/{id_}", start, None, None, rows, size, 0, None, partition_id, False, "parquet")


def source(id_: int, size: int = MB, *, version: int = 0, key: str | None = None, dropped: int = 0) -> Source:
    deleted = (Deleted("/d", UNSTAMPED, 5, -1, dropped),) if dropped else ()
    made = file(id_, size, partition_id=None if key is None else 1)
    return Source(made, version, () if key is None else (key,), None, deleted)


@pytest.mark.parametrize(
    ("why", "sources", "groups"),
    [
        ("nothing to do", [source(1)], []),
        ("two small files", [source(1), source(2)], [[1, 2]]),
        ("in the order of their writing", [source(3), source(1), source(2)], [[1, 2, 3]]),
        ("never over a change of the columns", [source(1), source(2), source(3, version=9)], [[1, 2]]),
        ("never over partitions", [source(1, key="a"), source(2, key="b"), source(3, key="a")], [[1, 3]]),
        ("a NULL partition is one of its own", [source(1, key="a"), source(2), source(3)], [[2, 3]]),
        ("up to the target size", [source(i, 40 * MB) for i in range(5)], [[0, 1], [2, 3]]),
        ("a large file stays as it is", [source(1, 80 * MB), source(2), source(3)], [[2, 3]]),
        ("a big file is not written anew for a small one", [source(1, 60 * MB), source(2, MB)], []),
        ("but for several", [source(1, 60 * MB), *(source(i, 4 * MB) for i in range(2, 5))], [[1, 2, 3, 4]]),
        ("few rows to drop", [source(1, 80 * MB, dropped=10)], []),
        ("many rows to drop", [source(1, 80 * MB, dropped=50)], [[1]]),
        ("a large file that shrinks is small", [source(1, 90 * MB, dropped=90), source(2, 5 * MB)], [[1, 2]]),
    ],
)
def test_groups(why: str, sources: list[Source], groups: list[list[int]]) -> None:
    found = group_sources(sources, COLUMNS, TARGET)
    assert [[s.file.id for s in group.sources] for group in found] == groups, why
    assert all(group.columns == COLUMNS[group.sources[0].version] and group.reason for group in found)


@pytest.mark.parametrize(("share", "worth"), [(0.1, True), (0.2, True), (0.21, False), (1, False)])
def test_a_policy_says_what_is_worth_dropping(share: float, worth: bool) -> None:
    assert bool(group_sources([source(1, 80 * MB, dropped=20)], COLUMNS, TARGET, share)) is worth


def test_a_group_begins_with_its_oldest_file() -> None:
    (group,) = group_sources([source(7), source(3)], COLUMNS, TARGET)
    assert (group.begin, group.rows, group.bytes) == (3, 200, 2 * MB)


@pytest.mark.parametrize(
    ("snapshot", "last"), [(0, -1), (1, -1), (2, 1), (5, 1), (6, 5), (100, 7)], ids=lambda value: str(value)
)
def test_last_readable_before(snapshot: int, last: int) -> None:
    assert last_before([1, 5, 7], snapshot) == last


# ---------------------------------------------------------------- when were they deleted?
D = frozenset({"deleted_from_table"})
NOTHING = frozenset[str]()


def delete_file(begin: int, end: int | None = None, positions: int = 9) -> DeleteFile:
    return DeleteFile(20, 1, "/d", begin, end, positions, 10, None, False, "parquet")


@pytest.mark.parametrize(
    ("why", "counts", "kinds", "readable", "timed"),
    [
        ("no stamps: the commit is the file's begin", {}, {}, range(10), [(UNSTAMPED, 4, 3, 9)]),
        ("no stamps, and nobody saw the rows", {}, {}, [4, 5], [(UNSTAMPED, 4, -1, 9)]),
        (
            "the first group has the file's begin, whatever others did next",
            {4: 1, 8: 2},
            {4: D, 6: D, 8: D},
            range(10),
            [(4, 4, 3, 1), (8, 8, 7, 2)],
        ),
        (
            "a stamp that is too small moves up to the commit",
            {4: 1, 5: 1, 8: 2},
            {4: D, 5: NOTHING, 6: NOTHING, 7: D, 8: D},
            range(10),
            [(4, 4, 3, 1), (5, 7, 6, 1), (8, 8, 7, 2)],
        ),
        ("two commits are possible", {4: 1, 5: 1, 8: 2}, {4: D, 5: D, 6: NOTHING, 7: D, 8: D}, range(10), None),
        (
            "two are possible, but no snapshot between them can be read",
            {4: 1, 5: 1, 8: 2},
            {4: D, 7: D, 8: D},
            [3, 4, 7, 8, 9],
            [(4, 4, 3, 1), (5, 7, 4, 1), (8, 8, 7, 2)],
        ),
    ],
)
def test_times(
    why: str, counts: dict[int, int], kinds: dict[int, frozenset[str]], readable: list[int], timed: object
) -> None:
    found = time_deletes(delete_file(4), counts, WrittenBy(2, 2), WrittenBy(8, 8), Labels(kinds), list(readable))
    got = None if found is None else [(d.stamp, d.at, d.last_seen, d.count) for d in found]
    assert got == timed, why


@pytest.mark.parametrize(
    ("lives", "wrong"),
    [([(3, 5), (5, None)], False), ([(3, None)], False), ([(3, None), (5, None)], True), ([(3, 6), (5, None)], True)],
)
def test_two_delete_files_at_once(lives: list[tuple[int, int | None]], wrong: bool) -> None:
    assert overlapping([delete_file(begin, end) for begin, end in lives]) is wrong


@pytest.mark.parametrize(
    ("column", "word"),
    [
        (Column(1, "a", "int32"), None),
        (Column(1, "a", "struct", (Column(2, "b", "uuid"),)), None),
        (Column(1, "a", "list", (Column(2, "element", "int32"),)), "list"),
        (Column(1, "a", "struct", (Column(2, "b", "map", (Column(3, "k", "int32"), Column(4, "v", "int32"))),)), "map"),
        (Column(1, "a", "interval"), "interval"),
        (Column(1, "a", "struct", (Column(2, "b", "timetz"),)), "timetz"),
    ],
)
def test_columns_that_spark_cannot_write(column: Column, word: str | None) -> None:
    reason = unmergeable([column])
    assert (reason is None) if word is None else (reason is not None and word in reason)
