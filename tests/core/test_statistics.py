"""Statistics are exact or absent, and absent for ever."""

from __future__ import annotations

import pytest

from lakemill.core.statistics import FileColumn, StatisticsChange, TableColumn, merge_statistics, sort_key


def column(
    low: str | None, high: str | None, values: int | None = 10, nulls: int | None = 0, **more: object
) -> FileColumn:
    return FileColumn(1, str(more.get("type", "int32")), 100, values, nulls, low, high, more.get("nan"))  # type: ignore[arg-type]


def row(low: str | None, high: str | None, nulls: bool | None = False, nan: bool | None = None) -> TableColumn:
    return TableColumn(1, nulls, nan, low, high)


ALL_NULL = column(None, None, values=0, nulls=5)
UNKNOWN = column(None, None)


@pytest.mark.parametrize(
    ("why", "before", "files", "inserted", "updated", "removed"),
    [
        ("first file", None, [column("1", "9")], [row("1", "9")], [], []),
        ("two first files", None, [column("10", "20"), column("9", "11")], [row("9", "20")], [], []),
        ("first file all NULL", None, [ALL_NULL], [row(None, None, True)], [], []),
        ("first file without bounds", None, [UNKNOWN], [], [], []),
        ("one of two without bounds", None, [column("1", "9"), UNKNOWN], [], [], []),
        ("wider", row("5", "6"), [column("-1", "100")], [], [row("-1", "100")], []),
        ("nothing new", row("1", "9"), [column("2", "3")], [], [], []),
        ("only NULLs new", row("1", "9"), [ALL_NULL], [], [row("1", "9", True)], []),
        ("bounds lost", row("1", "9"), [UNKNOWN], [], [], [1]),
        ("bounds in doubt before", row(None, None, True), [column("1", "9")], [], [], [1]),
        ("no row before", "empty", [column("1", "9")], [], [], []),
        ("null count unknown", row("1", "9"), [column("1", "9", nulls=None)], [], [row("1", "9", None)], []),
        ("text that can't be placed", row("1", "9"), [column("x", "9")], [], [], [1]),
    ],
)  # fmt: skip
def test_merging(
    why: str, before: object, files: list[FileColumn], inserted: object, updated: object, removed: object
) -> None:
    known = None if before is None else {} if before == "empty" else {1: before}
    change = merge_statistics(known, [[file] for file in files])  # type: ignore[arg-type]
    assert change == StatisticsChange(tuple(inserted), tuple(updated), tuple(removed)), why  # type: ignore[arg-type]


def test_a_column_that_a_file_lacks_loses_its_statistics() -> None:
    other = FileColumn(2, "int32", 1, 1, 0, "1", "1")
    assert merge_statistics({1: row("1", "9")}, [[other]]).removed == (1,)
    assert merge_statistics(None, [[other], [column("1", "1"), other]]).inserted == (
        TableColumn(2, False, None, "1", "1"),
    )


def test_nan_is_known_only_when_every_file_knows() -> None:
    def nans(*flags: bool | None) -> bool | None:
        change = merge_statistics(None, [[column("1", "2", type="float64", nan=flag)] for flag in flags])
        return change.inserted[0].contains_nan

    assert nans(False, False) is False
    assert nans(False, True) is True
    assert nans(False, None) is None


@pytest.mark.parametrize(
    ("type_", "ordered"),
    [
        ("int64", ["-10", "-9", "0", "5", "10"]),
        ("uint64", ["0", "18446744073709551615"]),
        ("decimal(10,2)", ["-1.50", "1.5", "10.00"]),
        ("float64", ["-inf", "-1e+300", "-0.5", "1e-10", "2.0", "inf"]),
        ("boolean", ["0", "1"]),
        ("date", ["-infinity", "0044-03-15 (BC)", "0001-01-01", "9999-12-31", "10000-01-01", "infinity"]),
        ("time", ["00:00:00", "00:00:00.000001", "23:59:59.999999", "24:00:00"]),
        ("timestamp", ["0001-01-01 00:00:00 (BC)", "1969-01-01 00:00:00", "2020-01-01 00:00:00.09"]),
        ("timestamp", ["2020-01-01 00:00:00.09", "2020-01-01 00:00:00.1", "2020-01-01 00:00:01"]),
        ("timestamptz", ["1969-01-01 00:00:00+00", "2020-01-01 00:00:00.5+00"]),
        ("varchar", ["", "Z", "a", "z", "é", "😀"]),
        ("uuid", ["00000000-0000-0000-0000-000000000001", "8f14e45f-ceea-467f-a8d3-5d1f3e1a2b3c"]),
        ("blob", ["00FF", "7A7A"]),
    ],
)  # fmt: skip
def test_order_is_that_of_the_type(type_: str, ordered: list[str]) -> None:
    keys = [sort_key(type_, text) for text in ordered]
    assert None not in keys
    assert keys == sorted(keys, key=lambda key: key)  # type: ignore[type-var,arg-type,return-value]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("type_", "text"), [("int32", "x"), ("float64", "nan"), ("date", "tomorrow"), ("timestamp", "12")]
)
def test_what_has_no_place(type_: str, text: str) -> None:
    assert sort_key(type_, text) is None
