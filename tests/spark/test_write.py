"""What Spark publishes, stock DuckDB reads, prunes, time-travels, changes and compacts; and so does Spark again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from lakemill.errors import (
    BadArgument,
    LakemillError,
    PublishConflict,
    UnknownColumn,
    UnknownSnapshot,
    WrongType,
)
from tests.conftest import MakeLake
from tests.story import Story

pytestmark = pytest.mark.spark
# ruff: noqa: E501


@pytest.fixture
def begin(make_lake: MakeLake, spark: Any) -> Iterator[Callable[..., Story]]:
    with ExitStack() as opened:
        yield lambda **options: opened.enter_context(Story(make_lake(**options)))


@pytest.fixture
def story(begin: Callable[..., Story]) -> Story:
    story = begin()
    story.tell(
        "CREATE TABLE t (id INT, v VARCHAR)",
        "INSERT INTO t SELECT i, 'v' || i FROM range(20) r(i)",
        "INSERT INTO t SELECT i, 'v' || i FROM range(20, 40) r(i)",
    )
    return story


def row_ids(story: Story) -> dict[int, int]:
    with story.lake.duck() as fresh:
        return dict(fresh.execute("SELECT id, rowid FROM t").fetchall())


def files(story: Story) -> int:
    return len(list(story.opened.conn.execute("SELECT 1 FROM ducklake_data_file WHERE end_snapshot IS NULL")))


def on_disk(story: Story) -> set[str]:
    """The data files of the table's folder, whether a snapshot has them or not."""
    root = story.opened.storage.root
    return {file.path for file in story.opened.storage.list(root) if file.path.endswith(".parquet")}


def somebody_is_first(story: Story, monkeypatch: pytest.MonkeyPatch, statement: str) -> list[int]:
    """The statement is committed just before the first publish; one entry per publish that was tried."""
    publish, calls = story.opened.publisher.publish, []

    def late(*arguments: Any) -> Any:
        if not calls:
            story.tell(statement)
        calls.append(1)
        return publish(*arguments)

    monkeypatch.setattr(story.opened.publisher, "publish", late)
    return calls


def test_append(story: Story, spark: Any) -> None:
    published = story.table.append(spark.sql("SELECT CAST(id AS INT) AS id, 'new' AS v FROM range(100, 110)"))
    assert published is not None
    assert published.snapshot_id == story.head
    story.capture()
    with story.lake.duck() as fresh:
        assert fresh.execute("SELECT count(*), min(id), max(id) FROM t").fetchone() == (50, 0, 109)
        assert fresh.execute("SELECT count(*) FROM t WHERE id = 105 AND v = 'new'").fetchone() == (1,)
    story.tell("UPDATE t SET v = 'u' WHERE id IN (1, 105)", "DELETE FROM t WHERE id = 106")
    story.check()
    story.main.execute("CALL ducklake_merge_adjacent_files('lake')")
    story.capture()
    story.check()


def test_an_append_of_nothing_makes_no_snapshot(story: Story, spark: Any) -> None:
    """Nor does a task without rows leave a file."""
    head, before = story.head, on_disk(story)
    assert story.table.append(spark.sql("SELECT 1 AS id, 'x' AS v WHERE false")) is None
    assert story.head == head
    assert on_disk(story) == before
    story.table.append(spark.range(7, 9, 1, 8).selectExpr("CAST(id AS INT) AS id", "'x' AS v").where("id = 7"))
    assert len(on_disk(story)) == len(before) + 1


def test_delete_is_cumulative_and_ends_whole_files(story: Story) -> None:
    story.table.delete("id IN (1, 2, 21)")
    story.capture()
    story.table.delete("id BETWEEN 3 AND 5")
    story.capture()
    live = story.opened.conn.execute(
        "SELECT count(*), count(DISTINCT data_file_id) FROM ducklake_delete_file WHERE end_snapshot IS NULL"
    ).fetchone()
    assert live == (2, 2)
    story.table.delete("id < 20")
    story.capture()
    assert files(story) == 1
    assert story.table.delete("id < 20") is None
    story.tell("DELETE FROM t WHERE id = 30", "INSERT INTO t VALUES (7, 'late')")
    story.check()


def test_delete_after_a_stock_delete(story: Story) -> None:
    story.tell("DELETE FROM t WHERE id = 0", "DELETE FROM t WHERE id = 1")
    story.table.delete("id = 2")
    story.capture()
    story.tell("DELETE FROM t WHERE id = 3", "UPDATE t SET v = 'u' WHERE id = 4")
    story.table.delete("id = 5 OR v = 'u'")
    story.capture()
    story.check()


def test_merge_keeps_row_ids_and_leaves_equal_rows_alone(story: Story, spark: Any) -> None:
    before = row_ids(story)
    source = spark.sql("SELECT * FROM VALUES (1, 'one'), (2, 'v2'), (39, 'last'), (100, 'new') AS s(id, v)")
    story.table.merge(source, on=["id"])
    story.capture()
    after = row_ids(story)
    assert {key: after[key] for key in before} == before
    assert after[100] not in before.values()
    plan = story.table.plan_delta(story.head - 1, story.head)
    assert sum(read.file.positions for read in plan.deletes if read.cut_b > 0) == 2  # id 2 was equal already
    assert story.table.merge(source, on=["id"]) is None
    story.tell("UPDATE t SET v = 'stock' WHERE id = 1", "CALL ducklake_merge_adjacent_files('lake')")
    story.check()
    assert row_ids(story)[39] == before[39]


def test_merge_goes_by_names_of_struct_fields_and_by_what_a_uuid_is(begin: Callable[..., Story], spark: Any) -> None:
    story = begin()
    first, second = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", "00112233-4455-6677-8899-aabbccddeeff"
    story.tell(
        "CREATE TABLE t (u UUID, s STRUCT(a INT, b INT), l STRUCT(a INT, b INT)[])",
        f"INSERT INTO t VALUES ('{first}', {{'a': 1, 'b': 2}}, NULL)",
    )
    values = "named_struct('b', 20, 'a', 10) AS s, array(named_struct('B', 20, 'A', 10)) AS l"
    story.table.merge(spark.sql(f"SELECT '{first.upper()}' AS u, {values}"), on=["u"])
    story.table.merge(spark.sql(f"SELECT X'{second.replace('-', '')}' AS u, {values}"), on=["u"])
    with story.lake.duck() as fresh:
        rows = fresh.execute("SELECT u::VARCHAR, s, l FROM t ORDER BY u").fetchall()
    new = {"a": 10, "b": 20}
    assert rows == [(second, new, [new]), (first, new, [new])]


def test_a_delete_or_scan_without_a_condition_is_refused(story: Story) -> None:
    for where in ("", "  "):
        with pytest.raises(BadArgument, match="needs a condition"):
            story.table.delete(where)
        with pytest.raises(BadArgument, match="is empty"):
            story.table.scan(where=where)
    assert story.table.count() == 40


@pytest.mark.parametrize(
    ("where", "error", "told"),
    [
        ("zz = 1", UnknownColumn, "zz"),
        ("id", BadArgument, "boolean"),
        ("id ==", BadArgument, "condition"),
        ("v = 'x", BadArgument, "condition"),
        ("nix(id) = 1", BadArgument, "nix"),
        ("NULL", BadArgument, "boolean"),
        ("__weight > 0", UnknownColumn, "__weight"),
    ],
)
def test_what_is_no_condition_is_told_once(
    story: Story, capfd: pytest.CaptureFixture[str], where: str, error: type[LakemillError], told: str
) -> None:
    head = story.head
    for ask in (story.table.delete, lambda text: story.table.scan(where=text)):
        with pytest.raises(error, match=told) as caught:
            ask(where)
        assert caught.value.place == where
        assert "\n" not in str(caught.value)
    assert story.head == head
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", ["__file_id", "__POSITION", "__row_id", "__operation"])
def test_columns_with_names_of_ours(begin: Callable[..., Story], spark: Any, name: str) -> None:
    story = begin()
    story.tell(f"CREATE TABLE t (id INT, {name} INT)", "INSERT INTO t VALUES (1, 2), (3, 4)")
    source = spark.sql(f"SELECT 1 AS id, 9 AS {name}")
    with pytest.raises(BadArgument, match=f"a column named {name}"):
        story.table.merge(source, on=["id"])
    if name != "__operation":
        with pytest.raises(BadArgument, match=f"a column named {name}"):
            story.table.delete("id = 1")
    story.table.append(source)
    story.capture()
    story.check()


def test_arguments_that_no_write_can_use(story: Story, spark: Any) -> None:
    head, frame = story.head, spark.sql("SELECT 1 AS id, 'x' AS v")
    table: Any = story.table
    for wrong, told in {
        lambda: table.merge(frame, on=["id"], matched="nope"): "matched='nope'",
        lambda: table.merge(frame, on=["id"], unmatched="nope"): "unmatched='nope'",
        lambda: table.merge(frame, on=""): "'' to merge on",
        lambda: table.append([1, 2]): "not a list",
        lambda: table.replace(None): "not a NoneType",
        lambda: table.append(frame, message="a\0b"): "NUL",
        lambda: table.delete("true", message="\0"): "NUL",
        lambda: table.replace(frame, base=99999): "no snapshot 99999",
    }.items():
        with pytest.raises((BadArgument, UnknownSnapshot, UnknownColumn), match=told):
            wrong()
    assert story.head == head
    story.table.merge(frame, on="id")
    assert story.head == head + 1


def test_merge_deletes_or_ignores(story: Story, spark: Any) -> None:
    source = spark.sql("SELECT * FROM VALUES (1, 'x'), (CAST(NULL AS INT), 'null'), (100, 'new') AS s(id, v)")
    story.table.merge(source, on=["id"], matched="delete", unmatched="ignore")
    story.capture()
    story.table.merge(source, on=["id"], matched="ignore")
    story.capture()
    assert story.truth[story.head].total() == 40 - 1 + 3
    story.check()


def test_a_source_with_a_key_twice_is_refused(story: Story, spark: Any) -> None:
    head, staged = story.head, files(story)
    with pytest.raises(BadArgument, match="same key twice"):
        story.table.merge(spark.sql("SELECT * FROM VALUES (1, 'a'), (1, 'b') AS s(id, v)"), on=["id"])
    assert (story.head, files(story)) == (head, staged)


def test_replace(story: Story, spark: Any) -> None:
    base = story.head
    story.table.replace(story.table.scan().where("id % 2 = 0"), base=base)
    story.capture()
    assert story.truth[story.head].total() == 20
    with pytest.raises(PublishConflict) as caught:
        story.table.replace(story.table.scan(base), base=base)
    assert caught.value.place == "main.t"
    story.check()


def test_inlined_rows_are_flushed_before_positions_are_taken(begin: Callable[..., Story], spark: Any) -> None:
    story = begin(inline=50)
    story.tell(
        "CREATE TABLE t (id INT, v VARCHAR)",
        "INSERT INTO t SELECT i, 'v' FROM range(10) r(i)",
        "DELETE FROM t WHERE id = 3",
    )
    story.table.delete("id = 4")
    story.capture()
    story.table.merge(spark.sql("SELECT 5 AS id, 'm' AS v"), on=["ID"])
    story.capture()
    assert story.truth[story.head].total() == 8
    story.check()


def test_inlined_rows_that_somebody_else_flushed_once(begin: Callable[..., Story], spark: Any) -> None:
    """Their flush dropped a table of inlined rows that our DuckDB still knows: only a new one can flush again."""
    story = begin(inline=50)
    story.tell("CREATE TABLE t (id INT)", "INSERT INTO t SELECT * FROM range(9)", "ALTER TABLE t ADD COLUMN v INT")
    assert story.opened.sql("SELECT count(*) FROM t").fetchall() == [(9,)]
    story.tell("CALL ducklake_flush_inlined_data('lake')", "DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (9, 9)")
    story.table.delete("id = 2")
    story.capture()
    assert story.truth[story.head].total() == 8
    assert story.opened.sql("SELECT count(*) FROM t").fetchall() == [(8,)]
    story.check_scans()


def test_rows_that_are_inlined_while_a_merge_runs(begin: Callable[..., Story], spark: Any, monkeypatch: Any) -> None:
    story = begin(inline=50)
    story.tell("CREATE TABLE t (id INT, v VARCHAR)", "INSERT INTO t VALUES (1, 'a')")
    calls = somebody_is_first(story, monkeypatch, "INSERT INTO t VALUES (5, 'inlined')")
    story.table.merge(spark.sql("SELECT 5 AS id, 'merged' AS v"), on=["id"])
    story.capture()
    assert len(calls) == 2
    assert story.truth[story.head].total() == 2
    story.check()


def test_partitioned_nested_and_typed(begin: Callable[..., Story], spark: Any) -> None:
    story = begin()
    story.tell(
        "CREATE TABLE t (id BIGINT, day DATE, l INT[], m MAP(VARCHAR, INT), s STRUCT(a INT, b VARCHAR[]), u UUID, d DECIMAL(12, 3))",
        "ALTER TABLE t SET PARTITIONED BY (year(day), id)",
        "INSERT INTO t VALUES (1, DATE '2025-01-01', [1], MAP {'k': 1}, {'a': 1, 'b': ['x']}, uuid(), 1.5)",
    )
    frame = spark.sql(
        """SELECT id, CAST(date_add(DATE '2025-12-30', CAST(id AS INT)) AS DATE) AS day, array(CAST(id AS INT), NULL) AS l,
        map('k', CAST(id AS INT)) AS m, named_struct('a', 1, 'b', array('y')) AS s,
        '01234567-89ab-cdef-0123-456789abcdef' AS u, CAST(id AS DECIMAL(12, 3)) AS d FROM range(4)"""
    )
    story.table.append(frame)
    story.capture()
    story.table.merge(frame.where("id = 1").selectExpr("id", "day", "l", "m", "s", "u", "d + 1 AS d"), on=["id", "day"])
    story.capture()
    story.tell(
        "UPDATE t SET d = 0 WHERE id = 2", "CALL ducklake_merge_adjacent_files('lake')", "DELETE FROM t WHERE id = 3"
    )
    story.check()


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT 1 AS id", UnknownColumn),
        ("SELECT 1 AS id, 'x' AS v, 2 AS w", UnknownColumn),
        ("SELECT 'abc' AS id, 'x' AS v", WrongType),
        ("SELECT 99999999999 AS id, 'x' AS v", WrongType),
    ],
)
def test_a_frame_that_does_not_fit_changes_nothing(
    story: Story, spark: Any, query: str, error: type[Exception]
) -> None:
    head = story.head
    with pytest.raises(error):
        story.table.append(spark.sql(query))
    assert story.head == head


def test_a_delete_is_planned_again_when_somebody_else_was_first(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = somebody_is_first(story, monkeypatch, "DELETE FROM t WHERE id = 0")
    story.table.delete("id < 5")
    story.capture()
    assert len(calls) == 2
    assert story.truth[story.head].total() == 35
    story.check()
