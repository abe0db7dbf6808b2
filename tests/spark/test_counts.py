"""Rows are counted from the catalog, and the count is what a scan gives, also where one row was deleted twice."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from lakemill.core.scan import ALL_DELETED, NONE_DELETED, DataFile, DeleteFile, DeleteRead, FileRead, ReadPlan, TableAt
from tests.conftest import MakeLake
from tests.story import Story

SMALL, BIG = "DELETE FROM t WHERE id = 5", "DELETE FROM t WHERE id < 10"
EARLIER = ("DELETE FROM t WHERE id BETWEEN 30 AND 36", "DELETE FROM t WHERE id BETWEEN 40 AND 46")


def test_a_row_that_two_transactions_deleted(make_lake: MakeLake, spark: Any) -> None:
    """Small deletes are inlined, and the extension checks them only against a flush: both may take row 5.

    Stock DuckDB then misreads the file (it shows rows 6 to 8 again), so the truth is what the statements mean.
    """
    stories = []
    with ExitStack() as opened:
        for deletes, before in (((SMALL, BIG), ()), ((BIG, SMALL), ()), ((BIG, SMALL), EARLIER)):
            story = opened.enter_context(Story(make_lake(inline=5)))
            for statement in ("CREATE TABLE t (id INT)", "INSERT INTO t SELECT * FROM range(50)", *before):
                story.main.execute(statement)
            writers = [opened.enter_context(story.lake.duck()) for _ in deletes]
            for writer, delete in zip(writers, deletes, strict=True):
                writer.execute("BEGIN")
                writer.execute(delete)
            for writer in writers:
                writer.execute("COMMIT")
            stories.append((story, 50 - 7 * len(before), 1 if deletes[0] is SMALL else 10))
        for story, rows, first in stories:
            head = story.head
            assert [story.table.count(at) for at in (head - 2, head - 1, head)] == [rows, rows - first, rows - 10]
            assert story.table.scan().count() == rows - 10
            for a in (2, head - 2, head - 1):
                delta = story.table.changes(a)
                assert sum(row["__weight"] for row in delta.frame.collect()) == rows - 10 - story.table.count(a)
                delta.check()


def test_no_delta_holds_more_rows_than_the_plan_says() -> None:
    """At a the delete file counts in part (its stamps), at b another one holds all and one more."""
    data = DataFile(1, "d", 2, None, None, 100, 1, 0, None, None, False, "parquet")
    older = DeleteFile(2, 1, "older", 3, 6, 4, 1, 4, False, "parquet")
    newer = DeleteFile(3, 1, "newer", 6, None, 5, 1, None, False, "parquet")
    table = TableAt(1, "", 0, "main", "t", "", (), 0)
    reads = (FileRead(data, at_a=True, at_b=True),)
    after = DeleteRead(newer, NONE_DELETED, ALL_DELETED)
    for cut, changed in ((3, 5), (ALL_DELETED, 1)):
        plan = ReadPlan(table, 3, 6, reads, (DeleteRead(older, cut, NONE_DELETED), after))
        assert plan.rows_changed == changed


def test_a_small_delete_after_a_big_one_is_small(make_lake: MakeLake) -> None:
    """Stock DuckDB writes the positions of the first delete again with the second: they are no change of the second."""
    with Story(make_lake(inline=0)) as story:
        for statement in (
            "CREATE TABLE t (id INT)",
            "INSERT INTO t SELECT * FROM range(100)",
            "DELETE FROM t WHERE id < 40",
            "DELETE FROM t WHERE id = 50",
            "DELETE FROM t WHERE id IN (60, 61)",
        ):
            story.main.execute(statement)
        head = story.head
        changed = [
            story.table.plan_delta(a, b).rows_changed for a, b in ((head - 2, head - 1), (head - 1, head), (2, head))
        ]
        assert changed[1:] == [2, 43]
        assert 1 <= changed[0] <= 3  # at an older b the later positions still count


def test_a_small_change_is_small_after_a_compaction(make_lake: MakeLake) -> None:
    """A merged file holds rows of several snapshots: those that came before the interval are no change of it."""
    with Story(make_lake(inline=0)) as story:
        for statement in (
            "CREATE TABLE t (id INT)",
            "INSERT INTO t SELECT * FROM range(100)",
            "INSERT INTO t SELECT * FROM range(100, 103)",
            "INSERT INTO t SELECT * FROM range(103, 108)",
        ):
            story.main.execute(statement)
        head = story.head
        story.main.execute("CALL ducklake_merge_adjacent_files('lake')")
        pairs = ((head - 1, head), (head - 2, head), (head - 1, story.head), (head - 2, head - 1))
        assert [story.table.plan_delta(a, b).rows_changed for a, b in pairs] == [5, 8, 5, 3]
