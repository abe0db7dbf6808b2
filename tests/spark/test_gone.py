"""A file that the catalog names and that somebody removed: one error with its path, whoever meets it, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lakemill.errors import FileGone, SqlFailed
from lakemill.runtime import upkeep
from tests.cli.conftest import Lakemill, lakemill  # noqa: F401  (a fixture)
from tests.conftest import MakeLake
from tests.story import Story

pytestmark = pytest.mark.spark


@pytest.fixture
def story(make_lake: MakeLake, spark: Any) -> Iterator[Story]:
    """Two data files; one of them has deletes of three commits, in one delete file that was back-dated."""
    with Story(make_lake()) as story:
        for statement in (
            "CREATE TABLE t (id INT, v INT)",
            "INSERT INTO t SELECT i, i FROM range(100) r(i)",
            "DELETE FROM t WHERE id < 3",
            "DELETE FROM t WHERE id = 5",
            "DELETE FROM t WHERE id = 6",
            "INSERT INTO t VALUES (200, 0)",
        ):
            story.main.execute(statement)
        yield story


def remove(story: Story, kind: str) -> str:
    """Remove the file with the deletes, or the one that they are about; the path."""
    deletes = "ducklake_delete_file WHERE end_snapshot IS NULL"
    source = (
        deletes
        if kind == "deletes"
        else "ducklake_data_file WHERE data_file_id IN (SELECT data_file_id FROM ducklake_delete_file)"
    )
    (name,) = story.opened.conn.execute(f"SELECT path FROM {source}").fetchone() or ("",)
    file = Path(story.lake.data_path) / "main" / "t" / name
    file.unlink()
    return str(file)


READS: dict[str, Callable[[Story], Any]] = {
    "a scan": lambda story: story.table.scan(),
    "a scan of the past": lambda story: story.table.scan(4),
    "a delta": lambda story: story.table.delta(2),
    "a delta of the past": lambda story: story.table.delta(3, 4),
    "a delete": lambda story: story.table.delete("id = 50"),
    "a merge": lambda story: story.table.merge(story.opened.spark.sql("SELECT 7 AS id, 8 AS v"), on=["id"]),
    "compaction": lambda story: upkeep.compact(story.opened, "t"),
    "DuckDB": lambda story: story.opened.sql("SELECT sum(v) FROM t WHERE id < 1000").fetchall(),
}


@pytest.mark.parametrize("kind", ["rows", "deletes"])
def test_a_file_that_is_gone_is_told_with_its_path(story: Story, kind: str) -> None:
    head, path = story.head, remove(story, kind)
    for what, read in READS.items():
        with pytest.raises(FileGone) as raised:
            read(story)
        assert raised.value.place == path, what
        assert "backup" in raised.value.remedy
    assert story.head == head


def test_a_file_that_goes_after_the_plan_was_made(story: Story) -> None:
    frame = story.table.scan()
    head, path = story.head, remove(story, "rows")
    with pytest.raises(FileGone) as raised:
        story.table.append(frame)
    assert raised.value.place == path
    assert story.head == head


def test_what_does_not_need_it_goes_on(story: Story) -> None:
    remove(story, "rows")
    assert story.table.scan(where="id = 200").count() == 1
    assert [tuple(row) for row in story.table.delta(5).collect()] == [(200, 0, 1)]


def test_on_the_command_line(story: Story, lakemill: Lakemill) -> None:  # noqa: F811
    path = remove(story, "rows")
    lakemill(story.lake, "changes", "t", "--from", "1").failed("FILE_GONE", 2, about=path, remedy="backup")
    lakemill(story.lake, "sql", "SELECT sum(v) FROM t").failed("FILE_GONE", 2, about=path, remedy="backup")


def test_a_users_own_files_are_not_the_lakes(story: Story, tmp_path: Path) -> None:
    for query in (
        f"FROM read_parquet('{tmp_path}/nothing.parquet')",
        f"COPY t TO '{tmp_path}/no-folder/t.parquet'",
        f"COPY t FROM '{tmp_path}/nothing.csv'",
    ):
        with pytest.raises(SqlFailed):
            story.opened.sql(query)
