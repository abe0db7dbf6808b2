"""Which snapshots may go: a table of cases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lakemill.core.expiry import evidence_for, plan_expiry
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
