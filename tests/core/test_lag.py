"""How far behind, which data snapshots are held, how often a promise was kept: tables of cases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lakemill.core.lag import Commit, Past, Seen, Standing, Version, attainment, lag, lag_since, largest_common
from lakemill.core.names import parse_name

NOW = datetime.fromtimestamp(2**12 * 438_000, UTC)  # slots of all periods up to 4096 s begin here
HEAD = 100


def ago(**time):
    return NOW - timedelta(**time)


def standing(name, *intervals, change=None, t=None, expected=0, newest=None, **more):
    """Versions as (lo, hi); ``change`` and ``newest`` are (snapshot, minutes ago)."""
    versions = tuple(Version(hi, lo, hi, 1, 7, t) for lo, hi in intervals)
    first, last = (Commit(each[0], ago(minutes=each[1])) if each else None for each in (change, newest or change))
    return Standing(parse_name(name), versions, first, timedelta(minutes=expected), newest=last, **more)


@pytest.mark.parametrize(
    ("given", "minutes"),
    [
        (standing("a"), None),
        (standing("a", (1, 5)), 0),  # quiet: fresh, however long ago it was refreshed
        (standing("a", (1, 5), change=(6, 3)), 3),
        (standing("a", (1, 5), t=ago(minutes=8)), 8),  # time passes where the query depends on the clock
        (standing("a", (1, 5), change=(6, 3), t=ago(minutes=8)), 8),
        (standing("a", (1, 5), change=(6, 9), t=ago(minutes=8)), 9),
        (standing("a", (1, 5), change=(6, -1)), 0),  # the database's clock is ahead of ours
    ],
)
def test_lag(given, minutes):
    assert lag(given, NOW) == (None if minutes is None else timedelta(minutes=minutes))
    since = 20 if minutes is None else minutes  # nothing is there since it was declared
    assert lag_since(given, NOW, ago(minutes=20)) == timedelta(minutes=since)


def test_the_lag_of_what_was_declared_just_now_is_not_negative():
    assert lag_since(standing("a"), NOW, NOW + timedelta(seconds=1)) == timedelta(0)


@pytest.mark.parametrize(
    ("given", "b", "usable"),
    [
        (standing("a"), 5, False),
        (standing("a", (3, 5)), 2, False),
        (standing("a", (3, 5)), 4, True),
        (standing("a", (3, 5)), 9, True),  # nothing changed: it may be widened
        (standing("a", (3, 5), change=(9, 1)), 8, True),
        (standing("a", (3, 5), change=(9, 1)), 9, False),
        (standing("a", (3, 5), (8, 8)), 6, False),
        (standing("a", (3, 5), (8, 8)), 5, True),
        (standing("a", (5, 5), t=NOW), 5, True),
        (standing("a", (5, 5), t=NOW), 6, False),  # never widened
        (standing("a", (5, 5), t=ago(minutes=1)), 5, False),  # another time, another content
    ],
)
def test_usable(given, b, usable):
    assert given.usable(b, NOW) is usable


@pytest.mark.parametrize(
    ("given", "b"),
    [
        ([], HEAD),
        ([standing("a", (1, 5))], HEAD),
        ([standing("a", (1, 5), change=(50, 1))], 49),
        ([standing("a", (1, 5), change=(50, 1)), standing("b", (10, 20), change=(30, 1))], 29),
        ([standing("a", (1, 5), change=(6, 1)), standing("b", (2, 3), (10, 20))], 3),
        ([standing("a", (1, 5), change=(6, 1)), standing("b", (10, 20))], None),
        ([standing("a")], None),
    ],
)
def test_the_largest_b_that_all_hold(given, b):
    assert largest_common(given, HEAD) == b


@pytest.mark.parametrize(
    ("given", "behind"),
    [
        (standing("a"), True),
        (standing("a", (1, 5)), False),
        (standing("a", (1, 5), change=(6, 1)), True),
        (standing("a", (1, 5), change=(6, -1)), True),  # the database's clock is ahead of ours
        (standing("a", (1, 5), t=ago(minutes=1)), True),
    ],
)
def test_behind(given, behind):
    assert given.behind is behind


# ---------------------------------------------------------------- looking back
def past(seen, changes):
    """Versions as (minutes ago, b), changes as (snapshot, minutes ago)."""
    return Past(
        tuple(Seen(ago(minutes=minutes), b) for minutes, b in seen),
        tuple(Commit(snapshot, ago(minutes=minutes)) for snapshot, minutes in changes),
    )


@pytest.mark.parametrize(
    ("seen", "changes", "share"),
    [
        ([], [(1, 70)], None),
        ([(70, 1)], [], 1.0),  # quiet
        ([(70, 1)], [(2, 3)], 1.0),  # behind, within the target
        ([(70, 1)], [(2, 35)], 0.5),  # too far behind for the last half hour
        ([(70, 1)], [(2, 65)], 0.0),  # all the time
        ([(70, 1), (5, 2)], [(2, 35)], 35 / 60),  # … until it came
        ([(70, 1), (5, 2)], [(2, 35), (3, 30)], 30 / 60),  # … too late for what came next
        ([(70, 1), (5, 2)], [(2, 35), (3, 9)], 31 / 60),  # the next began to count four minutes ago
        ([(70, 1), (20, 3)], [(2, 35), (3, 30)], 50 / 60),  # one refresh for both
        ([(30, 1)], [(2, 20)], 15 / 30),  # counted from the first load on
        ([(90, 1), (80, 2)], [(2, 85)], 1.0),  # all before
    ],
)
def test_attainment_within_an_hour(seen, changes, share):
    found = attainment(past(seen, changes), timedelta(minutes=5), ago(minutes=60), NOW)
    assert found == (None if share is None else pytest.approx(share))


def test_time_that_passes_counts_where_the_query_depends_on_the_clock():
    seen = tuple(Seen(ago(minutes=minutes), 1, ago(minutes=minutes + 1)) for minutes in (60, 50, 40))
    # each is a minute old when it is seen, and right for four more
    assert attainment(Past(seen, ()), timedelta(minutes=5), ago(minutes=60), NOW) == pytest.approx(12 / 60)
