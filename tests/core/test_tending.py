"""What is worth compacting, and when."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lakemill.core.names import parse_name
from lakemill.core.tending import (
    Crowd,
    Outcome,
    Policies,
    Policy,
    Tended,
    Verdict,
    gain,
    judge,
    open_at,
    ranked,
)

NOW = datetime(2026, 1, 10, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MB = 10**6
LAKE = Policy(frozenset({"flush", "compact"}), HOUR, "", 16, 0, DAY, 0.2, 512 * MB, 2 * DAY)


def crowd(table: str, small: int = 0, mb: float = 1, deleted: int = 0, large: float = 0, mark: str = "1") -> Crowd:
    """``small`` files of together ``mb``, ``large`` megabytes in others; ``deleted`` of 100 rows everywhere."""
    small_bytes, bytes_ = round(mb * MB) if small else 0, round(((mb if small else 0) + large) * MB)
    dead, dirty = bytes_ * deleted // 100, round(large * MB) if deleted else 0
    return Crowd(table, small, small_bytes, bytes_, 100, deleted, dead, dirty, newest=NOW - HOUR, mark=mark)


def verdict(one: Crowd, policy: Policy = LAKE, last: Tended | None = None) -> Verdict:
    return judge(one, policy, last, NOW)


def test_many_small_files_or_much_that_is_deleted() -> None:
    found = ranked(
        verdict(one)
        for one in (
            crowd("few", small=15),
            crowd("many", small=16),
            crowd("cheap", small=16, mb=0.1),
            crowd("crowded", small=200, mb=2),
            crowd("deleted", deleted=20, large=100),
            crowd("hardly", deleted=19, large=100),
            crowd("empty"),
        )
    )
    assert [one.table for one in found] == ["crowded", "cheap", "many", "deleted"]
    assert found[0].why == "it has 200 small files"
    assert found[-1].why == "20% of what its files hold is deleted"


@pytest.mark.parametrize(
    ("better", "worse", "why"),
    [
        (crowd("a", small=20), crowd("b", small=16), "more files go for the same bytes"),
        (crowd("a", small=16, mb=1), crowd("b", small=16, mb=1000), "fewer bytes are written for the same files"),
        (crowd("a", small=100, mb=5000), crowd("b", small=20, mb=2000), "five times the files for the bytes of 2.5"),
        (crowd("a", deleted=90, large=1000), crowd("b", deleted=20, large=1000), "more is dropped, and less written"),
        (crowd("a", deleted=95, large=1000), crowd("b", small=16, mb=100), "nearly all of it goes"),
        (crowd("a", small=16, mb=1), crowd("b", deleted=60, large=1000), "12 files' worth of opening for 1 MB"),
        (crowd("a", small=16, deleted=50), crowd("b", small=16), "files go, and what is deleted of them"),
        (crowd("a", deleted=100, large=500), crowd("b", deleted=99, large=500), "nothing at all is written"),
    ],
)
def test_those_first_that_save_most_for_what_is_written(better: Crowd, worse: Crowd, why: str) -> None:
    assert gain(better) > gain(worse) >= 0, why


def test_small_files_that_fill_target_sizes_remain_as_many() -> None:
    """1000 files of 100 MB become 196, not one."""
    one = Crowd("t", 1000, 100_000 * MB, 100_000 * MB, 100, 0)
    assert gain(one) == pytest.approx((1000 - 196) * 4 / (4 + 100_000), rel=0.01)


def test_a_few_small_files_to_which_nobody_adds() -> None:
    assert not verdict(crowd("t", small=2)).due
    rested = replace(crowd("t", small=2), newest=NOW - DAY)
    assert verdict(rested).why == "its 2 small files have waited since 2026-01-09 00:00"
    assert not verdict(replace(rested, small=1)).due, "one alone is as it is"
    assert not verdict(rested, replace(LAKE, small_age=2 * DAY)).due


def test_why_not() -> None:
    assert verdict(crowd("t", small=3, deleted=5)).why == "3 small files of 16, 5% of 20% deleted"
    off = verdict(crowd("t", small=20), replace(LAKE, jobs=frozenset({"flush"}), name="sales"))
    assert (off.due, off.why) == (False, "it has 20 small files, but the policy of sales leaves compacting out")


def test_what_could_not_be_done_waits_for_a_change() -> None:
    kept = Tended("compact", 1, NOW - DAY, Outcome.KEPT, "it has two delete files at once", mark="1")
    waits = verdict(crowd("t", small=20), last=kept)
    assert not waits.due
    assert waits.why == "nothing has changed since 2026-01-09 00:00: it has two delete files at once"
    assert verdict(crowd("t", small=20, mark="2"), last=kept).due


@pytest.mark.parametrize(
    ("count", "hours", "due"),
    [
        (1, 0.5, False),
        (1, 1, True),
        (2, 1.5, False),
        (2, 2, True),
        (4, 7, False),
        (4, 8, True),
        (9, 23, False),
        (99, 24, True),
    ],
)
def test_what_failed_is_tried_again_ever_later(count: int, hours: float, due: bool) -> None:
    last = Tended("compact", 1, NOW - hours * HOUR, Outcome.FAILED, "a conflict", mark="1", count=count)
    assert verdict(crowd("t", small=20), last=last).due is due
    assert verdict(crowd("t", small=20, mark="2"), last=last).due is due, "others change it all the time"


@pytest.mark.parametrize(
    ("window", "hour", "expected"),
    [
        ("", 12, True),
        ("01:00-05:00", 0, False),
        ("01:00-05:00", 1, True),
        ("01:00-05:00", 4, True),
        ("01:00-05:00", 5, False),
        ("22:00-02:00", 23, True),
        ("22:00-02:00", 1, True),
        ("22:00-02:00", 2, False),
        ("22:00-02:00", 12, False),
    ],
)
def test_windows(window: str, hour: int, expected: bool) -> None:
    assert open_at(window, datetime(2026, 1, 1, hour, tzinfo=UTC)) is expected


GIVEN = {
    "sales": {"window": "22:00-02:00", "small_files": 4},
    "Sales.Orders": {"jobs": frozenset(), "small_files": 8},
    '"a.b"."c"': {"interval": DAY},
}


@pytest.mark.parametrize(
    ("table", "name", "window", "small_files", "whence"),
    [
        ("main.t", "", "", 16, {}),
        ("main.sales", "", "", 16, {}),
        ("sales.t", "sales", "22:00-02:00", 4, {"window": "sales", "small_files": "sales"}),
        ('"Sales"."T"', "sales", "22:00-02:00", 4, {"window": "sales", "small_files": "sales"}),
        (
            '"SALES".orders',
            "Sales.Orders",
            "22:00-02:00",
            8,
            {"window": "sales", "small_files": "Sales.Orders", "jobs": "Sales.Orders"},
        ),
        ('"a.b".C', '"a.b"."c"', "", 16, {"interval": '"a.b"."c"'}),
    ],
)
def test_the_most_specific_policy_wins_value_by_value(
    table: str, name: str, window: str, small_files: int, whence: dict[str, str]
) -> None:
    found = Policies(LAKE, GIVEN).of(parse_name(table))
    assert (found.name, found.window, found.small_files, found.whence) == (name, window, small_files, whence)


def test_policies_of_what_is_not_there() -> None:
    policies = Policies(LAKE, {**GIVEN, "sale": {}, "sales.order": {}})
    assert policies.nowhere([parse_name("SALES.orders"), parse_name('"a.b".c')]) == ("sale", "sales.order")
    assert [one.name for one in policies.named()][:3] == ["", "sales", "Sales.Orders"]
    assert [one.window for one in policies.named()][:3] == ["", "22:00-02:00", "22:00-02:00"]
