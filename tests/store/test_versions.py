"""Versions and the frontier: b never decreases, and a publish is held to what it was planned with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lakemill.core.lag import Version
from lakemill.core.refresh import State
from lakemill.errors import DefinitionChanged, FrontierMoved
from lakemill.store import definitions, pins, versions
from lakemill.store.versions import SourceRead, move_frontier, raise_b_hi, version_at, version_visible
from tests.store.conftest import RESOLVED

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def v(commit, b, *, hi=None, t=None, definition=1, table=70):
    return Version(commit, b, b if hi is None else hi, definition, table, t)


@pytest.fixture
def table(make):
    return make("t")


def moved(where, table, *steps, sources=(), expected=None):
    """Move the frontier step by step; the ids of the versions."""
    ids = []
    for step in steps:
        expected = move_frontier(where, table.id, step, NOON + timedelta(minutes=step.b_hi), sources, expected)
        ids.append(expected)
    return ids


def test_the_first_load(where, table):
    assert versions.frontier(where, table.id) is None
    reads = (SourceRead(3, 1, 9, 100), SourceRead(5, 2, 8))
    (version_id,) = moved(where, table, v(11, 10), sources=reads)
    found = versions.frontier(where, table.id)
    assert found == versions.Frontier(version_id, v(11, 10), NOON + timedelta(minutes=10), reads)
    after = definitions.by_id(where, table.id)
    assert (after.state, after.table_id) == (State.ACTIVE, 70)
    assert after.state_since > table.state_since


def test_the_next_one_takes_its_place_with_what_it_read(where, table):
    (first,) = moved(where, table, v(11, 10), sources=(SourceRead(3, 1, 9, 100), SourceRead(5, 2, 8)))
    reads = (SourceRead(3, 1, 20, None), SourceRead(7, 1, 19, 0))
    (second,) = moved(where, table, v(22, 20), sources=reads, expected=first)
    found = versions.frontier(where, table.id)
    assert (found.version_id, found.version, found.sources) == (second, v(22, 20), reads)
    assert versions.versions(where) == {table.id: (v(11, 10), v(22, 20))}
    assert versions.versions(where, []) == {}


@pytest.mark.parametrize("state", [State.SUSPENDED, State.SUSPENDED_DUE_TO_ERRORS, State.UPSTREAM_SUSPENDED])
def test_a_refresh_of_a_suspended_table_leaves_it_suspended(where, table, state):
    definitions.set_state(where, [table.id], state, "why")
    moved(where, table, v(11, 10))
    after = definitions.by_id(where, table.id)
    assert (after.state, after.state_reason) == (state, "why")


def test_a_stale_table_is_what_it_was_after_its_refresh(where, table):
    (first,) = moved(where, table, v(11, 10))
    definitions.set_state(where, [table.id], State.SUSPENDED, "why")
    assert versions.let_go(where, [pins.dynamic(table.id)])
    stale = definitions.by_id(where, table.id)
    told = "its past is no longer kept, and it will be loaded anew; SUSPENDED; why"
    assert (stale.state, stale.standing[:2]) == (State.SUSPENDED, (State.STALE, told))
    shown = where.execute("SELECT state, state_reason FROM lakemill.dynamic_table_list").fetchone()
    assert shown == ("STALE", told)
    (second,) = moved(where, table, v(12, 10), expected=first)
    assert definitions.by_id(where, table.id).stale_since is not None, "the same content, of another commit"
    moved(where, table, v(13, 12), expected=second)
    assert definitions.by_id(where, table.id).standing[:2] == (State.SUSPENDED, "why")


# ---------------------------------------------------------------- what is refused
def test_another_frontier(where, table):
    first, _ = moved(where, table, v(11, 10), v(12, 11))
    for expected in (None, first, 999):
        with pytest.raises(FrontierMoved, match="refreshed meanwhile, to data snapshot 11"):
            moved(where, table, v(21, 20), expected=expected)
    assert versions.frontier(where, table.id).version == v(12, 11)


def test_a_b_that_decreases(where, table):
    first, second = moved(where, table, v(11, 10), v(12, 11))
    with pytest.raises(FrontierMoved, match="at data snapshot 11 already, and can't go back to 10"):
        moved(where, table, v(21, 10), expected=second)
    raise_b_hi(where, [second], 15, NOON)
    with pytest.raises(FrontierMoved, match="at data snapshot 15 already"):
        moved(where, table, v(21, 14), expected=second)
    moved(where, table, v(21, 15), expected=second)  # the same b again: reinitialised, or another time
    assert version_at(where, table.id, 15) == v(21, 15), "the newest counts"
    assert version_at(where, table.id, 14) == v(12, 11, hi=15)
    assert first


def test_another_definition(where, table):
    definitions.declare(where, table, table.definition, RESOLVED, [])
    with pytest.raises(DefinitionChanged, match="altered"):
        moved(where, table, v(11, 10))
    moved(where, table, v(11, 10, definition=2))
    definitions.drop(where, [table.id])
    with pytest.raises(DefinitionChanged, match="dropped"):
        moved(where, table, v(12, 11, definition=2))
    assert versions.versions(where) == {}


# ---------------------------------------------------------------- intervals
def test_raising(where, table, make):
    other, clocked = make("o"), make("c")
    (old, new), (others,) = moved(where, table, v(11, 10), v(12, 11)), moved(where, other, v(13, 11))
    (timed,) = moved(where, clocked, v(14, 11, t=NOON))
    assert raise_b_hi(where, [old, new, others, timed, 999], 15, NOON) == {new, others}
    assert versions.frontier(where, table.id).version == v(12, 11, hi=15)
    assert versions.frontier(where, table.id).b_time == NOON
    assert raise_b_hi(where, [new, others], 15, NOON) == frozenset(), "there already"
    assert raise_b_hi(where, [new], 14, NOON) == frozenset(), "never lowered"
    assert raise_b_hi(where, [], 99, NOON) == frozenset()


def test_which_version_holds_b(where, table):
    first, *_ = moved(where, table, v(11, 10))
    raise_b_hi(where, [first], 15, NOON)
    moved(where, table, v(11, 20), v(31, 30), expected=first)  # the second found no difference: the same commit
    holds = {b: version_at(where, table.id, b) for b in (9, 10, 13, 15, 16, 20, 21, 30, 31)}
    assert {b: found and found.commit for b, found in holds.items()} == {
        9: None,
        10: 11,
        13: 11,
        15: 11,
        16: None,
        20: 11,
        21: None,
        30: 31,
        31: None,
    }
    assert version_at(where, 999, 10) is None


def test_where_the_clock_counts_b_and_t_must_be_the_same(where, table):
    later = NOON + timedelta(hours=1)
    moved(where, table, v(11, 10, t=NOON), v(12, 10, t=later))
    assert version_at(where, table.id, 10) is None
    assert version_at(where, table.id, 10, NOON) == v(11, 10, t=NOON)
    assert version_at(where, table.id, 10, later) == v(12, 10, t=later)
    assert version_at(where, table.id, 10, later + timedelta(microseconds=1)) is None


def test_what_a_reader_of_the_lake_sees(where, table):
    moved(where, table, v(11, 10), v(11, 12), v(21, 20))
    seen = {at: version_visible(where, table.id, at) for at in (10, 11, 20, 21, 99)}
    assert seen == {10: None, 11: v(11, 12), 20: v(11, 12), 21: v(21, 20), 99: v(21, 20)}


def test_forgetting_what_nobody_can_read(where, table):
    moved(where, table, v(11, 10), v(11, 12), v(21, 20), v(31, 30))
    assert versions.forget_versions(where, 20) == 0, "the commit 11 is still visible at 20"
    assert versions.forget_versions(where, 21) == 2
    assert versions.forget_versions(where, 99) == 1
    assert versions.versions(where)[table.id] == (v(31, 30),)
