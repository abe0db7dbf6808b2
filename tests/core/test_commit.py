"""Which changes of others a commit survives, and what it does when it does not."""

from __future__ import annotations

from uuid import UUID

import pytest

from lakemill.core.commit import (
    AddFiles,
    DeletePositions,
    DropTable,
    EndFiles,
    Intent,
    MergeFiles,
    NameFree,
    NameHeldBy,
    NoConflict,
    Purpose,
    RenameTable,
    Requirement,
    SameColumns,
    SamePartition,
    SwapGeneration,
    Update,
    changes_made,
)
from lakemill.core.conflict import Facts, Failure, Step, after_failure, conflicts, wanted_bases, wanted_names
from lakemill.core.schema import Column

ID = UUID(int=1)
A, C, E, M, G = Purpose.APPEND, Purpose.CHANGE, Purpose.EQUATION, Purpose.MERGE, Purpose.GENERATION


def intent(*requirements: Requirement, updates: tuple[Update, ...] = (AddFiles(2, ()),)) -> Intent:
    return Intent(ID, updates, requirements)


# label of a foreign commit on table 2 → purposes that it hurts
@pytest.mark.parametrize(
    ("label", "hurts"),
    [
        ("inserted_into_table:2", {C, E, G}),
        ("inlined_insert:2", {C, E, G}),
        ("deleted_from_table:2", {C, E, G}),
        ("inlined_delete:2", {C, E, M, G}),
        ("inline_flush:2", {C, G}),
        ("merge_adjacent:2,inline_flush:2", {C, G}),
        ("merge_adjacent:2", {C}),
        ("rewrite_delete:2", {C}),
        ("altered_table:2", {C, E, M, G}),
        ("dropped_table:2", {C, E, M, G}),
        ("inserted_into_table:22", set()),
        ("inserted_into_table:3,deleted_from_table:3", set()),
        ('created_table:"main"."t:2"', set()),
        ("inserted_into_table:3,deleted_from_table:2", {C, E, G}),
    ],
)
@pytest.mark.parametrize("purpose", list(Purpose))
def test_what_a_foreign_commit_hurts(label: str, hurts: set[Purpose], purpose: Purpose) -> None:
    facts = Facts(8, labels={7: label}, counts={6: 2}, live=frozenset({2}))
    found = conflicts(intent(NoConflict(2, 6, purpose)), facts)
    assert bool(found) == (purpose in hurts)


def test_older_labels_and_our_own_do_not_count() -> None:
    facts = Facts(
        8,
        labels={6: "deleted_from_table:2", 8: "deleted_from_table:2,inline_flush:2"},
        counts={6: 2},
        live=frozenset({2}),
    )
    assert conflicts(intent(NoConflict(2, 6, C)), facts) == ()


@pytest.mark.parametrize("purpose", [C, E, M, G])
def test_a_hole_in_the_labels_is_a_conflict(purpose: Purpose) -> None:
    asked = intent(NoConflict(2, 4, purpose))
    expired = Facts(8, labels={}, counts={4: 3}, live=frozenset({2}))
    assert "expired" in conflicts(asked, expired)[0].reason
    unlabelled = Facts(8, labels={6: None}, counts={4: 4}, live=frozenset({2}))
    assert "does not say" in conflicts(asked, unlabelled)[0].reason


def test_of_many_foreign_commits_a_few_are_named() -> None:
    labels: dict[int, str | None] = dict.fromkeys(range(7, 30), "deleted_from_table:2")
    facts = Facts(30, labels=labels, counts={6: 24}, live=frozenset({2}))
    found = [conflict.reason for conflict in conflicts(intent(NoConflict(2, 6, C)), facts)]
    assert found[0] == "table 2 was changed at snapshot 7 (deleted_from_table)"
    assert found[3:] == ["and at 20 snapshots more"]


def test_an_append_needs_no_labels() -> None:
    asked = intent(NoConflict(2, 4, A))
    assert wanted_bases(asked) == ()
    assert conflicts(asked, Facts(8, live=frozenset({2}))) == ()
    assert conflicts(asked, Facts(8, live=frozenset()))[0].reason == "table 2 is gone"


COLUMN = Column(1, "a", "int32")


@pytest.mark.parametrize(
    ("now", "same"),
    [
        (COLUMN, True),
        (Column(1, "a", "int32", initial_default="7", default="8"), True),
        (Column(1, "b", "int32"), False),
        (Column(1, "a", "int64"), False),
        (Column(2, "a", "int32"), False),
        (Column(1, "a", "int32", nulls_allowed=False), False),
        (Column(1, "a", "int32", (Column(2, "x", "int32"),)), False),
    ],
)
def test_columns_must_be_those_that_were_written_for(now: Column, same: bool) -> None:
    facts = Facts(8, live=frozenset({2}), columns={2: (now,)})
    assert (conflicts(intent(SameColumns(2, (COLUMN,))), facts) == ()) == same


@pytest.mark.parametrize(
    ("now", "wanted", "same"),
    [({}, None, True), ({2: 5}, 5, True), ({2: 6}, 5, False), ({}, 5, False), ({2: 5}, None, False)],
)
def test_the_partition_spec_must_be_the_same(now: dict[int, int], wanted: int | None, same: bool) -> None:
    facts = Facts(8, live=frozenset({2}), partitions=now)
    assert (conflicts(intent(SamePartition(2, wanted)), facts) == ()) == same


SWAP = SwapGeneration(0, "main", "T", 2, 9)
FIRST = SwapGeneration(0, "main", "T", None, 9)


@pytest.mark.parametrize(
    ("update", "requirement", "holders", "fine"),
    [
        (FIRST, None, (), True),
        (FIRST, None, (5,), False),
        (SWAP, None, (2,), True),
        (SWAP, None, (5,), False),
        (SWAP, None, (2, 5), False),
        (SWAP, None, (), False),
        (RenameTable(9, 0, "main", "T"), None, (), True),
        (RenameTable(9, 0, "main", "T"), None, (5,), False),
        (AddFiles(2, ()), NameFree(0, "t"), (5,), False),
        (AddFiles(2, ()), NameHeldBy(0, "t", 2), (2,), True),
    ],
)
def test_names(update: Update, requirement: Requirement | None, holders: tuple[int, ...], fine: bool) -> None:
    asked = intent(*([requirement] if requirement else []), updates=(update,))
    assert wanted_names(asked) == ((0, "t"),)
    found = conflicts(asked, Facts(8, live=frozenset({2, 9}), names={(0, "t"): holders} if holders else {}))
    assert (found == ()) == fine
    assert all(conflict.takes_name for conflict in found)


def test_stale_files_are_a_conflict() -> None:
    facts = Facts(8, live=frozenset({2}), stale_files=(11, 12))
    assert "11, 12" in conflicts(intent(), facts)[0].reason


@pytest.mark.parametrize(
    ("updates", "label"),
    [
        ((AddFiles(2, ()),), "inserted_into_table:2"),
        ((DeletePositions(2, ()), AddFiles(2, ())), "deleted_from_table:2,inline_flush:2,inserted_into_table:2"),
        ((EndFiles(2, ()), DeletePositions(2, ())), "deleted_from_table:2,inline_flush:2"),
        ((AddFiles(2, ()), AddFiles(3, ())), "inserted_into_table:2,inserted_into_table:3"),
        ((MergeFiles(2, (), ()),), "merge_adjacent:2,inline_flush:2"),
        ((DropTable(2),), "dropped_table:2"),
        ((SWAP,), 'dropped_table:2,created_table:"main"."T"'),
        ((SwapGeneration(0, "ma,in", 'a"b', None, 9),), 'created_table:"ma,in"."a""b"'),
        ((RenameTable(2, 0, "main", "u"),), 'created_table:"main"."u"'),
    ],
)
def test_labels_are_the_extensions(updates: tuple[Update, ...], label: str) -> None:
    assert changes_made(Intent(ID, updates)) == label


@pytest.mark.parametrize(
    ("failure", "attempt", "step"),
    [
        (Failure.LOST_RACE, 1, Step.RETRY),
        (Failure.LOST_RACE, 100, Step.RETRY),
        (Failure.LOST_RACE, 101, Step.GIVE_UP),
        (Failure.SERIALIZATION, 1, Step.RETRY),
        (Failure.LOCKED, 1, Step.RETRY),
        (Failure.CONNECTION_LOST, 1, Step.RETRY),
        (Failure.COMMIT_UNANSWERED, 1, Step.SETTLE),
        (Failure.COMMIT_UNANSWERED, 1000, Step.SETTLE),
        (Failure.CONFLICT, 1, Step.REPLAN),
    ],
)
def test_after_a_failure(failure: Failure, attempt: int, step: Step) -> None:
    assert after_failure(failure, attempt, 101) is step


def test_tables_that_an_intent_names() -> None:
    assert intent(NoConflict(4, 1, C), updates=(SWAP, AddFiles(7, ()))).table_ids() == (9, 2, 7, 4)
    assert intent(updates=(SWAP,)).changes_schema()
    assert not intent().changes_schema()
