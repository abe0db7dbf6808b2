"""Which snapshots may go: a table of cases."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from lakemill.core.expiry import Retained, changed_at, evidence_for, gaps, held_for, plan_expiry
from lakemill.core.scan import Snapshot
from lakemill.core.timing import Labels, WrittenBy, deleted_up_to
from lakemill.errors import BadArgument

NOW = datetime(2026, 11, 15, tzinfo=UTC)
DAYS = [Snapshot(i, NOW - timedelta(days=10 - i), 0, i) for i in range(10)]  # snapshot 9 is a day old
TWO_DAYS = timedelta(days=2)


@pytest.mark.parametrize(
    ("asked", "needed", "evidence", "going", "kept"),
    [
        ({}, {}, {}, range(8), []),
        ({"older_than": NOW - timedelta(days=5)}, {}, {}, range(5), []),
        ({"older_than": NOW}, {}, {}, range(8), [8, 9]),
        ({"versions": [3, 9]}, {}, {}, [3], [9]),
        ({"versions": [8]}, {}, {}, [], [8]),
        ({}, {4: "pinned"}, {}, [0, 1, 2, 3, 5, 6, 7], [4]),
        ({}, {4: "pinned"}, {5: "label"}, [0, 1, 2, 3, 6, 7], [4, 5]),
    ],
)
def test_what_goes(asked, needed, evidence, going, kept):
    plan = plan_expiry(DAYS, NOW, TWO_DAYS, needed, evidence, **asked)
    assert list(plan.versions) == list(going)
    assert [k.snapshot for k in plan.kept] == kept
    assert plan.needed == tuple(needed)


def test_the_newest_stays_however_old_it_is():
    plan = plan_expiry(DAYS[:3], NOW, timedelta(0), {}, {})
    assert plan.versions == (0, 1)
    assert plan.kept[0].reason == "it is the newest"


def test_a_time_and_versions_at_once_are_refused():
    with pytest.raises(BadArgument):
        plan_expiry(DAYS, NOW, TWO_DAYS, {}, {}, older_than=NOW, versions=[1])


DELETED, INSERTED, NOTHING = frozenset({"deleted_from_table"}), frozenset({"inserted_into_table"}), frozenset()


@pytest.mark.parametrize(
    ("kinds", "stamps", "at", "evidence"),
    [
        # the delete stamped 5 came at 8: what shows it are the labels of 5, 6, 7 that say nothing
        ({3: DELETED, 5: NOTHING, 6: NOTHING, 7: NOTHING, 8: DELETED, 9: DELETED}, [3, 5, 9], 7, range(3, 10)),
        # it came at 5, and nothing up to the next group's stamp deletes
        ({3: DELETED, 5: DELETED, 6: NOTHING, 7: NOTHING, 8: NOTHING, 9: DELETED}, [3, 5, 9], 6, range(3, 10)),
        # an insert ends the doubt: no delete can be open over it
        ({3: DELETED, 5: DELETED, 6: INSERTED, 7: NOTHING, 8: NOTHING, 9: DELETED}, [3, 5, 9], 7, range(3, 10)),
        # the last group is the writer's, whatever else was deleted since its transaction began
        ({3: DELETED, 5: DELETED, 6: DELETED, 7: NOTHING, 8: NOTHING, 9: DELETED}, [3, 5], 7, range(3, 10)),
        # the first group's stamp is exact by itself
        ({3: DELETED, 5: DELETED, 9: DELETED}, [3, 9], 5, range(0)),
        # the group was stamped later than the read: nobody's label is needed
        ({3: DELETED, 5: NOTHING, 9: DELETED}, [3, 9], 2, range(0)),
        # in doubt as it is
        ({3: DELETED, 5: DELETED, 6: NOTHING, 7: DELETED, 8: NOTHING, 9: DELETED}, [3, 5, 9], 6, range(0)),
    ],
)
def test_evidence(kinds, stamps, at, evidence):
    data, delete = WrittenBy(2, 2), WrittenBy(9, 9)
    found = evidence_for(stamps, at, data, delete, Labels(kinds))
    assert found == evidence
    if found:  # with only the evidence left, the answer is the same
        left = Labels({snapshot: k for snapshot, k in kinds.items() if snapshot in found})
        assert deleted_up_to(stamps, at, data, delete, left) == deleted_up_to(stamps, at, data, delete, Labels(kinds))


def at(*days: float) -> list[Snapshot]:
    """Snapshots 0, 1, … so many days ago."""
    return [Snapshot(i, NOW - timedelta(days=ago), 0, i) for i, ago in enumerate(days)]


@pytest.mark.parametrize(
    ("days", "changed", "begin", "end", "held", "why"),
    [
        ([9, 8, 7, 6, 5], {1, 3}, 0, None, [0, 1, 3], "all within its retention of ten days"),
        ([30, 20, 15, 6, 5], {1, 3}, 0, None, [1, 3], "1 shows how it was ten days ago; 0 was over by then"),
        ([30, 20, 15, 12, 5], {1, 2, 3}, 0, None, [3], "as it was since 12 days"),
        ([9, 8, 7, 6], set(), 2, None, [2], "it was made by 2"),
        ([9, 8, 7, 6, 5], {2, 3}, 0, 3, [0, 2, 3], "dropped by 3: nothing after that is its past"),
        ([50, 40, 30, 20, 15], {2, 3}, 0, 3, [], "dropped for longer than its retention"),
        ([50, 40, 30, 20, 5], set(), 0, None, [3, 4], "one in each ten days: 3 is to be gone when 4 is ten days old"),
        ([50, 5, 4, 3], set(), 0, None, [0, 1], "0 until 1 can stand for it"),
        ([], set(), 0, None, [], "nothing"),
        ([9], set(), 5, None, [], "it is not there yet"),
    ],
)
def test_what_is_held_for_the_past_of_a_table(days, changed, begin, end, held, why):
    table = Retained(7, "main.t", timedelta(days=10), begin, end)
    assert held_for(table, at(*days), changed, NOW) == held, why


def test_every_moment_of_the_retention_can_be_read_however_often_it_is_expired():
    """The last snapshot before a moment shows what the table was then; and nothing is held for much longer."""
    rng = random.Random(7)
    for _ in range(12):
        kept, truth, gone, content = [], {}, [], 0
        retention, lake = timedelta(hours=rng.randint(20, 60)), timedelta(hours=rng.randint(0, 12))
        start, often = NOW, rng.random() ** 3
        changes = {0}
        for hour in range(200):
            now = start + timedelta(hours=hour)
            if rng.random() < often:
                content += 1
                changes.add(hour)
            kept.append(Snapshot(hour, now, 0, 0))
            truth[hour] = content
            if rng.random() < 0.3:
                found = changed_at(gaps(kept), changes & {one.id for one in kept}, gone)
                held = held_for(Retained(1, "t", retention, 0), kept, found, now)
                going = {one.id for one in kept if one.time < now - lake} - set(held) - {kept[-1].id}
                gone = _ranges({*(i for known in gone for i in known), *(going - found)})
                kept = [one for one in kept if one.id not in going]
            for ago in range(min(hour, int(retention.total_seconds() // 3600) - 1)):
                seen = max(one.id for one in kept if one.time <= now - timedelta(hours=ago))
                assert truth[seen] == truth[hour - ago]
            assert kept[0].time > now - 2 * retention - timedelta(hours=24)


def _ranges(ids):
    found = []
    for one in sorted(ids):
        if found and found[-1].stop == one:
            found[-1] = range(found[-1].start, one + 1)
        else:
            found.append(range(one, one + 1))
    return found


def test_what_somebody_else_expired_may_have_changed_it():
    snapshots = [one for one in at(9, 8, 7, 6, 5, 4) if one.id in (0, 3, 5)]
    assert changed_at(gaps(snapshots), {5}, []) == {3, 5}
    assert changed_at(gaps(snapshots), set(), [range(1, 3)]) == {5}
    assert changed_at(gaps(snapshots), set(), [range(1, 2), range(2, 3), range(4, 5)]) == {3}, (
        "ranges are as wide as can be"
    )
