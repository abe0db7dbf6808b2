"""The past of a table that is kept for longer than the lake's: stock DuckDB reads it as it was, at every moment."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import lakemill
from lakemill.core.names import parse_name
from lakemill.errors import UnknownSnapshot, UnknownTable
from lakemill.lake.tables import Declared
from lakemill.runtime import ingest_tables, tending, upkeep
from lakemill.store import pins
from tests.conftest import MakeLake

HOUR = timedelta(hours=1)
FLAGS = {
    "upkeep.retention": "2 hours",
    "upkeep.orphan_age": "0s",
    "upkeep.policies": {"main.kept": {"retention": "20 h"}},
}


class Course:
    """A lake whose clock the test moves, and what stock DuckDB saw at each snapshot when it was the newest."""

    def __init__(self, lake: lakemill.Lake, retention: timedelta = 20 * HOUR) -> None:
        self.lake, self.retention = lake, retention
        self.truth: dict[int, dict[str, Any]] = {}

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.lake.sql(statement)
            self.truth[self.lake.snapshot().id] = {table: self.rows(table) for table in ("kept", "other")}

    def rows(self, table: str, at: str = "") -> Any:
        try:
            return sorted(map(repr, self.lake.sql(f"SELECT * FROM {table} {at}").fetchall()))
        except (UnknownTable, UnknownSnapshot):  # before it was made
            return None

    def later(self, by: timedelta = HOUR) -> None:
        self.lake.conn.execute("UPDATE ducklake_snapshot SET snapshot_time = snapshot_time - %s", (by,))

    def left(self) -> dict[int, Any]:
        query = "SELECT snapshot_id, snapshot_time, now() - snapshot_time FROM ducklake_snapshot ORDER BY 1"
        return {row[0]: row[1:] for row in self.lake.conn.execute(query).fetchall()}

    def expire(self, **asked: Any) -> upkeep.UpkeepReport:
        """And delete what is needed by nobody; every snapshot that is left is what it was, and every moment of
        the retention is."""
        before = self.left()
        self.all_as_they_were()
        moments = {n: (time, self.rows("kept", f"AT (TIMESTAMP => '{time}')")) for n, (time, _) in before.items()}
        report = upkeep.expire(self.lake, **asked)
        upkeep.cleanup(self.lake)
        self.all_as_they_were()
        for snapshot, (time, rows) in moments.items():
            if before[snapshot][1] < self.retention:
                assert self.rows("kept", f"AT (TIMESTAMP => '{time}')") == rows, snapshot
        return report

    def all_as_they_were(self) -> None:
        for snapshot in self.left():
            if snapshot in self.truth:
                for table, rows in self.truth[snapshot].items():
                    assert self.rows(table, f"AT (VERSION => {snapshot})") == rows, (snapshot, table)


@pytest.fixture
def course(make_lake: MakeLake) -> Iterator[Course]:
    with lakemill.open(make_lake(flags=FLAGS).settings) as lake:
        yield Course(lake)


def test_only_what_changed_the_table_is_held_back(course: Course) -> None:
    course.sql("CREATE TABLE kept (i INT)", "CREATE TABLE other (i INT)", "INSERT INTO kept VALUES (1), (2)")  # 1 2 3
    course.later()
    course.sql("INSERT INTO other VALUES (1)", "DELETE FROM kept WHERE i = 1", "DELETE FROM other")  # 4 5 6
    course.later()
    course.sql("ALTER TABLE kept ADD COLUMN note VARCHAR", "INSERT INTO other VALUES (5)")  # 7 8
    course.later(3 * HOUR)
    report = course.expire()
    assert list(course.left()) == [1, 3, 5, 7, 8], "8 is the newest"
    why = {item.what: item.why for item in report.kept}
    assert why["snapshot 3"] == "the past of main.kept is kept for 20:00:00"
    course.later(16 * HOUR)  # the delete was 20 hours ago
    course.expire()
    assert list(course.left()) == [5, 7, 8], "5 shows how it was 20 hours ago"
    course.sql("DROP TABLE kept")  # 9
    course.later(3 * HOUR)
    course.sql("INSERT INTO other VALUES (6)")  # 10
    course.expire()
    assert list(course.left()) == [7, 9, 10], "a table that was dropped has a past, too"
    course.later(18 * HOUR)
    course.expire()
    assert list(course.left()) == [10]


@pytest.mark.parametrize("seed", range(3))
def test_a_random_course(course: Course, seed: int) -> None:
    rng = random.Random(seed)
    course.sql(
        "CREATE TABLE kept AS SELECT i FROM range(20) r(i)", "CREATE TABLE other AS SELECT i FROM range(20) r(i)"
    )
    ways = ["INSERT INTO {} SELECT {} FROM range(3)", "DELETE FROM {} WHERE i % 7 = {} % 7", "UPDATE {} SET i = i + 1"]
    for step in range(40):
        table = "kept" if rng.random() < 0.2 else "other"
        course.sql(rng.choice(ways).format(table, step))
        if rng.random() < 0.1:
            course.lake.sql(f"CALL ducklake_merge_adjacent_files('lake', '{table}')")
        course.later(HOUR * rng.choice([0.1, 1, 3]))
        if rng.random() < 0.25:
            course.expire()
    course.expire()
    assert min(course.left()) > 2


def test_what_another_expired_is_not_taken_for_unchanged(course: Course) -> None:
    """Nobody knows whether 3, 4 and 5 changed it: so 6 is held."""
    course.sql("CREATE TABLE kept (i INT)", "CREATE TABLE other (i INT)", "INSERT INTO kept VALUES (1)")
    course.sql("INSERT INTO other VALUES (1)", "INSERT INTO kept VALUES (2)", "INSERT INTO other VALUES (2)")
    course.sql("INSERT INTO other VALUES (3)")
    course.lake.sql("CALL ducklake_expire_snapshots('lake', versions => [3, 4, 5])")
    course.later(3 * HOUR)
    course.sql("INSERT INTO other VALUES (4)")
    course.expire()
    assert list(course.left()) == [1, 6, 8]
    course.expire(versions=[6])
    assert list(course.left()) == [1, 6, 8], "nor when it is named"


def test_a_pin_and_a_retention_hold_together(course: Course) -> None:
    course.sql("CREATE TABLE kept (i INT)", "CREATE TABLE other (i INT)")
    for number in range(4):
        course.sql(f"INSERT INTO other VALUES ({number})")
    pins.pin(course.lake.conn, 4, "reader")
    course.sql("INSERT INTO kept VALUES (1)", "INSERT INTO other VALUES (9)")  # 7 8
    course.later(3 * HOUR)
    course.expire()
    assert list(course.left()) == [1, 4, 7, 8]


def test_a_table_declares_its_retention_and_the_longest_holds(make_lake: MakeLake) -> None:
    flags = {**FLAGS, "upkeep.policies": {"main.pair": {"retention": "5 h"}}}
    with lakemill.open(make_lake(flags=flags).settings) as lake:
        for name, retention in {"kept": 10 * HOUR, "pair": 3 * HOUR, "short": HOUR, "other": None}.items():
            ingest_tables.create(lake, parse_name(name), [Declared("i", "INTEGER")], retention=retention)
        held = {one.name: one.retention for one in upkeep.retained(lake)}
        assert held == {"main.kept": 10 * HOUR, "main.pair": 5 * HOUR}, "a shorter one than the lake's means nothing"
        shown = {one.crowd.table: one.retention for one in tending.status(lake).tables}
        assert shown == {**held, "main.short": 2 * HOUR, "main.other": 2 * HOUR}
        course = Course(lake, 10 * HOUR)
        course.sql("INSERT INTO kept VALUES (1)", "INSERT INTO short VALUES (1)", "INSERT INTO pair VALUES (1)")
        first = lake.snapshot().id
        course.later(3 * HOUR)
        course.sql("INSERT INTO other VALUES (1)")
        course.expire()
        assert set(course.left()) >= {first - 2, first, first + 1}
        assert first - 1 not in course.left()
        course.later(6 * HOUR)
        ingest_tables.alter(lake, parse_name("kept"), retention=2 * HOUR)
        course.retention = 2 * HOUR
        course.sql("INSERT INTO other VALUES (2)")
        course.expire()
        assert list(course.left()) == [first, first + 2], "the pair as it was five hours ago"
