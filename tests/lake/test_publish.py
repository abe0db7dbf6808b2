"""Each kind of publish, judged by stock DuckDB: it reads, prunes, travels in time, compacts and writes on top."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import lakemill
from lakemill.core.commit import (
    AddFiles,
    Check,
    DeletePositions,
    DropTable,
    EndFiles,
    FilesUnchanged,
    Intent,
    NoConflict,
    Purpose,
    RenameTable,
    SwapGeneration,
)
from lakemill.errors import ClaimLost, NameTaken, PublishConflict, PublishTimedOut
from lakemill.lake import duck
from lakemill.lake import rows as layout
from lakemill.lake.footer import new_files
from lakemill.lake.staging import Staged, StagedFile
from lakemill.lake.target import read_target
from lakemill.settings import Settings
from lakemill.store.migrate import migrate, migrations
from tests.conftest import new_database
from tests.publishing import Desk, one_desk, one_lake


@pytest.fixture(scope="module")
def desk(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with one_lake(postgres, tmp_path_factory.mktemp("publish")) as lake, one_desk(lake) as desk:
        yield desk


def numbers(first: int, last: int) -> str:
    return f"SELECT range::INTEGER AS id, 's' || range AS s FROM range({first}, {last})"


def ids(desk: Desk, at: int | None = None) -> list[int]:
    when = "" if at is None else f" AT (VERSION => {at})"
    return [row[0] for row in desk.stock(f"SELECT id FROM t{when} ORDER BY id")]


# ---------------------------------------------------------------- append
def test_an_append_is_like_an_insert(desk: Desk) -> None:
    table_id = desk.make("id INTEGER, s VARCHAR")
    desk.duck.execute(f"INSERT INTO t {numbers(0, 10)}")
    before = desk.head()
    done = desk.append(numbers(100, 110), author="me", message="hello", extra={"data_snapshot": 7})
    assert done.snapshot_id == before + 1 == desk.head()
    assert ids(desk) == [*range(10), *range(100, 110)]
    assert ids(desk, before) == list(range(10))
    assert desk.stock("SELECT min(id), max(id), min(s), max(s) FROM t") == [(0, 109, "s0", "s9")]
    assert desk.stock("SELECT s FROM t WHERE id = 105") == [("s105",)]
    assert desk.stock("SELECT rowid FROM t ORDER BY rowid") == [(i,) for i in range(20)]
    assert desk.rows("SELECT record_count, next_row_id FROM ducklake_table_stats WHERE table_id = %s", table_id) == [
        (20, 20)
    ]
    label = desk.one(
        "SELECT changes_made, author, commit_message, commit_extra_info::json ->> 'data_snapshot',"
        " commit_extra_info::json ->> 'publish_id' FROM ducklake_snapshot_changes WHERE snapshot_id = %s",
        done.snapshot_id,
    )
    assert label == (f"inserted_into_table:{table_id}", "me", "hello", "7", str(done.publish_id))
    # stock goes on: insert, delete, update, merge
    desk.duck.execute(f"INSERT INTO t {numbers(200, 210)}")
    desk.duck.execute("DELETE FROM t WHERE id = 101")
    desk.duck.execute("UPDATE t SET s = 'new' WHERE id = 102")
    desk.duck.execute("CALL ducklake_merge_adjacent_files('lake')")
    assert ids(desk) == [*range(10), 100, *range(102, 110), *range(200, 210)]
    assert ids(desk, done.snapshot_id) == [*range(10), *range(100, 110)]
    assert desk.stock("SELECT s FROM t WHERE id = 102") == [("new",)]


def test_a_table_whose_partitioning_was_reset(desk: Desk) -> None:
    table = desk.make("id INTEGER", by="id")
    desk.duck.execute("ALTER TABLE t RESET PARTITIONED BY")
    desk.publish(AddFiles(table, desk.stage("SELECT 1::INTEGER AS id")), requires=desk.target().requirements)
    assert desk.stock("FROM t") == [(1,)]


def test_snapshot_times_increase_and_file_ids_never_repeat(desk: Desk) -> None:
    desk.make("id INTEGER, s VARCHAR")
    published = [desk.append(numbers(i, i + 1)) for i in range(3)]
    times = [
        row[0] for row in desk.rows("SELECT snapshot_time FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 3")
    ]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == 3
    # the clock of an earlier writer was ahead
    desk.conn.execute(
        "UPDATE ducklake_snapshot SET snapshot_time = now() + interval '1 hour' WHERE snapshot_id = %s", (desk.head(),)
    )
    later = desk.append(numbers(5, 6))
    (ahead,) = desk.one(
        "SELECT b.snapshot_time - a.snapshot_time FROM ducklake_snapshot a, ducklake_snapshot b"
        " WHERE b.snapshot_id = %s AND a.snapshot_id = %s",
        later.snapshot_id,
        published[-1].snapshot_id,
    )
    assert ahead.total_seconds() == pytest.approx(1e-6)
    desk.conn.execute(
        "UPDATE ducklake_snapshot SET snapshot_time = now() WHERE snapshot_id > %s", (published[-1].snapshot_id - 1,)
    )
    desk.conn.execute("UPDATE ducklake_snapshot SET next_file_id = 0 WHERE snapshot_id = %s", (desk.head(),))
    desk.append(numbers(6, 7))  # as if the newest snapshots had been expired
    assert ids(desk) == [0, 1, 2, 5, 6]


def test_absent_statistics_stay_absent(desk: Desk) -> None:
    """Traps 2: a NULL bound would be replaced by those of DuckDB's next file alone."""
    table_id = desk.make("id INTEGER, s VARCHAR")
    desk.duck.execute("INSERT INTO t VALUES (1, 'a')")
    desk.append("SELECT 5::INTEGER AS id, repeat('x', 9000) AS s")
    desk.append("SELECT 6::INTEGER AS id, chr(0) || 'zero' AS s")
    known = "SELECT column_id, min_value, max_value FROM ducklake_table_column_stats WHERE table_id = %s"
    assert desk.rows(known, table_id) == [(1, "1", "6")]
    desk.duck.execute("INSERT INTO t VALUES (500, 'b')")
    assert desk.rows(known, table_id) == [(1, "1", "500")]
    assert desk.stock("SELECT count(*) FROM t WHERE s >= 'x'") == [(1,)]
    assert desk.stock("SELECT min(s) = chr(0) || 'zero', length(max(s)), min(id), max(id) FROM t") == [
        (True, 9000, 1, 500)
    ]
    desk.append("SELECT 7::INTEGER AS id, 'c' AS s")
    assert desk.rows(known, table_id) == [(1, "1", "500")]
    assert desk.stock("SELECT count(*) FROM t WHERE s = 'c'") == [(1,)]


def test_a_column_that_was_all_null_loses_its_row_when_values_come(desk: Desk) -> None:
    table_id = desk.make("id INTEGER, s VARCHAR")
    desk.append("SELECT NULL::INTEGER AS id, 'a' AS s")
    known = "SELECT column_id, contains_null, min_value FROM ducklake_table_column_stats WHERE table_id = %s ORDER BY 1"
    assert desk.rows(known, table_id) == [(1, True, None), (2, False, "a")]
    desk.append(numbers(3, 5))
    assert desk.rows(known, table_id) == [(2, False, "a")]
    desk.duck.execute("INSERT INTO t VALUES (100, 'z')")
    assert desk.stock("SELECT min(id), max(id), count(*) FILTER (id < 50) FROM t") == [(3, 100, 2)]


def test_many_rows_wait_in_temporary_tables(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    table_id = desk.make("id INTEGER, s VARCHAR")
    monkeypatch.setattr(layout, "INLINE_ROWS", 3)
    files = tuple(file for i in range(5) for file in desk.stage(numbers(i * 10, i * 10 + 10)))
    done = desk.publish(AddFiles(table_id, files))
    assert ids(desk) == list(range(50))
    targets = [(id_, [1, 2]) for id_, _, _ in desk.data_files()]
    desk.publish(DeletePositions(table_id, desk.stage_deletes(dict(targets))), EndFiles(desk.table().id, ()))
    assert ids(desk) == [i for i in range(50) if i % 10 not in (1, 2)]
    desk.publish(EndFiles(table_id, tuple(id_ for id_, _, _ in desk.data_files())))
    assert ids(desk) == []
    assert ids(desk, done.snapshot_id) == list(range(50))
    assert desk.publisher._conn is not None
    left = desk.publisher._conn.execute(
        "SELECT count(*) FROM pg_class WHERE relname LIKE 'lakemill\\_files%'"
    ).fetchone()
    assert left == (0,)


# ---------------------------------------------------------------- deletes and changes
def test_deletes_pile_up_in_one_live_file(desk: Desk) -> None:
    """Traps 3: two live delete files for one data file would return rows twice."""
    table_id = desk.make("id INTEGER, s VARCHAR")
    desk.duck.execute(f"INSERT INTO t {numbers(0, 100)}")
    ((file_id, _, _),) = desk.data_files()
    seen = {desk.head(): list(range(100))}
    for taken in ([0, 1, 2], [0, 1, 2, 3, 4]):
        done = desk.publish(DeletePositions(table_id, desk.stage_deletes({file_id: taken})))
        seen[done.snapshot_id] = [i for i in range(100) if i not in taken]
    live = "SELECT count(*) FROM ducklake_delete_file WHERE table_id = %s AND end_snapshot IS NULL"
    assert desk.one(live, table_id) == (1,)
    desk.duck.execute("DELETE FROM t WHERE id IN (10, 11)")
    seen[desk.head()] = [i for i in range(5, 100) if i not in (10, 11)]
    desk.duck.execute("UPDATE t SET s = 'u' WHERE id = 50")
    seen[desk.head()] = seen[desk.head() - 1]
    desk.duck.execute(f"INSERT INTO t {numbers(100, 105)}")
    desk.duck.execute("CALL ducklake_merge_adjacent_files('lake')")
    for snapshot, expected in seen.items():
        assert ids(desk, snapshot) == expected, snapshot
    assert desk.one(live, table_id) == (1,)


def test_a_delete_that_does_not_know_the_live_one_is_refused(desk: Desk) -> None:
    table_id = desk.make("id INTEGER, s VARCHAR")
    desk.duck.execute(f"INSERT INTO t {numbers(0, 10)}")
    ((file_id, _, _),) = desk.data_files()
    stale = desk.stage_deletes({file_id: [0]})
    desk.duck.execute("DELETE FROM t WHERE id = 5")
    before = desk.head()
    with pytest.raises(PublishConflict, match="data files"):
        desk.publish(DeletePositions(table_id, stale))
    with pytest.raises(PublishConflict):
        desk.publish(
            AddFiles(table_id, desk.stage(numbers(50, 51))), requires=[FilesUnchanged(table_id, ((file_id, None),))]
        )
    assert desk.head() == before


def test_an_update_keeps_row_ids(desk: Desk) -> None:
    table_id = desk.make("id INTEGER, s VARCHAR")
    desk.duck.execute(f"INSERT INTO t {numbers(0, 10)}")
    before = desk.head()
    ((file_id, _, _),) = desk.data_files()
    updated = desk.stage("SELECT range::INTEGER AS id, 'new' AS s FROM range(3, 5)", row_ids=[3, 4])
    desk.publish(DeletePositions(table_id, desk.stage_deletes({file_id: [3, 4]})), AddFiles(table_id, updated))
    assert desk.stock("SELECT rowid, id FROM t ORDER BY id") == [(i, i) for i in range(10)]
    assert desk.stock("SELECT id FROM t WHERE s = 'new' ORDER BY id") == [(3,), (4,)]
    changes = desk.stock(
        f"SELECT change_type, id FROM lake.table_changes('t', {before + 1}, {before + 1}) ORDER BY ALL"
    )
    assert changes == [("update_postimage", 3), ("update_postimage", 4), ("update_preimage", 3), ("update_preimage", 4)]
    desk.append(numbers(20, 22))
    desk.duck.execute("CALL ducklake_merge_adjacent_files('lake')")
    assert desk.stock("SELECT rowid, id FROM t ORDER BY id") == [*((i, i) for i in range(10)), (10, 20), (11, 21)]
    assert ids(desk, before) == list(range(10))


def test_whole_files_end(desk: Desk) -> None:
    table_id = desk.make("id INTEGER, s VARCHAR")
    desk.duck.execute(f"INSERT INTO t {numbers(0, 10)}")
    desk.duck.execute("DELETE FROM t WHERE id = 0")
    before = desk.head()
    files = tuple(id_ for id_, _, _ in desk.data_files())
    desk.publish(EndFiles(table_id, files), AddFiles(table_id, desk.stage(numbers(90, 95))))
    assert ids(desk) == list(range(90, 95))
    assert ids(desk, before) == list(range(1, 10))
    assert desk.stock("SELECT count(*) FROM t WHERE id < 50") == [(0,)]
    assert desk.stock("SELECT min(id) FROM t") == [(90,)]
    assert desk.one(
        "SELECT count(*) FROM ducklake_delete_file WHERE table_id = %s AND end_snapshot IS NULL", table_id
    ) == (0,)
    with pytest.raises(PublishConflict):
        desk.publish(EndFiles(table_id, files))


def test_several_tables_in_one_snapshot(desk: Desk) -> None:
    t, u = desk.make("id INTEGER, s VARCHAR"), desk.make("id INTEGER, s VARCHAR", name="u")
    before = desk.head()
    desk.publish(AddFiles(t, desk.stage(numbers(0, 5))), AddFiles(u, desk.stage(numbers(5, 7), "u")))
    assert desk.head() == before + 1
    assert desk.stock("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM u)") == [(5, 2)]
    label = desk.one("SELECT changes_made FROM ducklake_snapshot_changes WHERE snapshot_id = %s", before + 1)
    assert label == (f"inserted_into_table:{t},inserted_into_table:{u}",)


def test_totals_and_statistics_of_every_kind_in_one_commit(desk: Desk) -> None:
    """Rows inserted, grown, taken away and left alone, of two tables, by one statement."""
    t, u = desk.make("id INTEGER, s VARCHAR"), desk.make("id INTEGER, s VARCHAR", name="u")
    desk.append(numbers(0, 5))
    grown = desk.stage("SELECT 7::INTEGER AS id, 'a' || chr(0) AS s")  # a bound that PostgreSQL can't hold
    desk.publish(AddFiles(t, grown), AddFiles(u, desk.stage(numbers(5, 7), "u")))
    totals = "SELECT table_id, record_count, next_row_id FROM ducklake_table_stats WHERE table_id = ANY(%s) ORDER BY 1"
    assert desk.rows(totals, [t, u]) == [(t, 6, 6), (u, 2, 2)]
    columns = "SELECT table_id, column_id, min_value, max_value, contains_null FROM ducklake_table_column_stats"
    assert desk.rows(columns + " WHERE table_id = ANY(%s) ORDER BY 1, 2", [t, u]) == [
        (t, 1, "0", "7", False),
        (u, 1, "5", "6", False),
        (u, 2, "s5", "s6", False),
    ]
    starts = "SELECT table_id, row_id_start FROM ducklake_data_file WHERE table_id = ANY(%s) ORDER BY data_file_id"
    assert desk.rows(starts, [t, u]) == [(t, 0), (t, 5), (u, 0)]
    assert desk.stock("SELECT max(id), max(s), count(*) FROM t") == [(7, "s4", 6)]


# ---------------------------------------------------------------- our own rows in the same transaction
def test_our_rows_come_with_the_snapshot_or_not_at_all(desk: Desk) -> None:
    desk.make("id INTEGER, s VARCHAR")
    desk.conn.execute("CREATE TABLE IF NOT EXISTS lakemill.test_notes (snapshot_id bigint)")

    def note(cursor: Any, snapshot_id: int) -> None:
        cursor.execute("INSERT INTO lakemill.test_notes VALUES (%s)", (snapshot_id,))

    done = desk.append(numbers(0, 5), more=note)
    assert desk.rows("SELECT snapshot_id FROM lakemill.test_notes") == [(done.snapshot_id,)]

    def fail(cursor: Any, snapshot_id: int) -> None:
        note(cursor, snapshot_id)
        raise ClaimLost("somebody else has it")

    for how in ({"more": fail}, {"requires": [Check("claim", fail)]}):
        with pytest.raises(ClaimLost):
            desk.append(numbers(5, 9), **how)
    assert desk.rows("SELECT snapshot_id FROM lakemill.test_notes") == [(done.snapshot_id,)]
    assert desk.head() == done.snapshot_id
    assert ids(desk) == list(range(5))


@pytest.mark.parametrize("left", ["SET search_path TO pg_catalog", "DEALLOCATE ALL"])
def test_what_our_rows_do_to_the_connection_is_forgotten(desk: Desk, left: str) -> None:
    desk.make("id INTEGER, s VARCHAR")
    desk.append(numbers(0, 2), more=lambda cursor, _: cursor.execute(left))
    if left.startswith("SET"):
        desk.append(numbers(2, 4))
    else:  # the statements that were prepared are gone: the publish after it fails, the one after that does not
        with pytest.raises(psycopg.Error):
            desk.append(numbers(2, 4))
        desk.append(numbers(2, 4))
    assert ids(desk) == list(range(4))


def test_the_same_publish_id_publishes_once(desk: Desk) -> None:
    table_id = desk.make("id INTEGER, s VARCHAR")
    files, publish_id = desk.stage(numbers(0, 5)), uuid.uuid4()
    first = desk.publish(AddFiles(table_id, files), publish_id=publish_id)
    again = desk.publish(AddFiles(table_id, files), publish_id=publish_id)
    assert (again.snapshot_id, again.attempts) == (first.snapshot_id, 0)
    assert desk.head() == first.snapshot_id
    assert ids(desk) == list(range(5))


def test_a_publish_that_was_given_up_never_happens(desk: Desk) -> None:
    table_id = desk.make("id INTEGER, s VARCHAR")
    files, publish_id = desk.stage(numbers(0, 5)), uuid.uuid4()
    assert desk.publisher.settle(publish_id) is None
    with pytest.raises(PublishTimedOut, match="given up"):
        desk.publish(AddFiles(table_id, files), publish_id=publish_id)
    assert ids(desk) == []
    done = desk.publish(AddFiles(table_id, files))
    assert desk.publisher.settle(done.publish_id) == done.snapshot_id


# ---------------------------------------------------------------- conflicts
@pytest.mark.parametrize(
    ("statement", "append", "change", "equation"),
    [
        ("INSERT INTO t VALUES (1, 'x')", True, False, False),
        ("DELETE FROM t WHERE id = 3", True, False, False),
        ("UPDATE t SET s = 'y' WHERE id = 3", True, False, False),
        ("CALL ducklake_merge_adjacent_files('lake')", True, False, True),
        ("INSERT INTO other VALUES (1)", True, True, True),
        ("ALTER TABLE t ADD COLUMN z INTEGER", False, False, False),
        ("ALTER TABLE t SET PARTITIONED BY (id)", False, False, False),
        ("ALTER TABLE t ALTER COLUMN s SET DEFAULT 'q'", True, False, False),
        ("ALTER TABLE t SET SORTED BY (id)", True, False, False),
        ("DROP TABLE t", False, False, False),
        ("CREATE OR REPLACE TABLE t AS SELECT 1 AS id, 's' AS s", False, False, False),
        ("ALTER TABLE t RENAME TO t9", True, True, True),
    ],
)
def test_what_a_publish_survives(desk: Desk, statement: str, append: bool, change: bool, equation: bool) -> None:
    desk.duck.execute("CREATE TABLE IF NOT EXISTS other (id INTEGER)")
    for purpose, survives in ((Purpose.APPEND, append), (Purpose.CHANGE, change), (Purpose.EQUATION, equation)):
        desk.duck.execute("DROP TABLE IF EXISTS t9")
        table_id = desk.make("id INTEGER, s VARCHAR")
        for i in (0, 5):
            desk.duck.execute(f"INSERT INTO t {numbers(i, i + 5)}")
        target, base = desk.target(), desk.head()
        files = desk.stage(numbers(50, 55))
        desk.duck.execute(statement)
        before = desk.head()
        requires = [NoConflict(table_id, base, purpose), *target.requirements]
        if survives:
            desk.publish(AddFiles(table_id, files), requires=requires)
            assert desk.head() == before + 1
        else:
            with pytest.raises(PublishConflict):
                desk.publish(AddFiles(table_id, files), requires=requires)
            assert desk.head() == before, "nothing was published"


# ---------------------------------------------------------------- generations, drop, rename
def generation(desk: Desk, name: str = "t__g2") -> int:
    desk.make("id INTEGER, s VARCHAR, w DOUBLE", name=name)
    desk.duck.execute(f"INSERT INTO {name} SELECT range, 'g', 1 FROM range(7)")
    return desk.table(name).id


def test_a_generation_takes_the_name(desk: Desk) -> None:
    old = desk.make("id INTEGER, s VARCHAR")
    desk.duck.execute(f"INSERT INTO t {numbers(0, 5)}")
    new, before = generation(desk), desk.head()
    schema_id = desk.table().schema_id
    with desk.lake.duck() as reader:  # opened before, used after
        assert reader.execute("SELECT count(*) FROM t").fetchone() == (5,)
        added = desk.stage("SELECT 100::INTEGER AS id, 'a' AS s, 2::DOUBLE AS w", "t__g2")
        desk.publish(SwapGeneration(schema_id, "main", "t", old, new), AddFiles(new, added))
        assert reader.execute("SELECT count(*), max(w) FROM t").fetchone() == (8, 2.0)
        assert reader.execute(f"SELECT count(*) FROM t AT (VERSION => {before})").fetchone() == (5,)
        reader.execute("INSERT INTO t VALUES (200, 'x', 3)")
        reader.execute("UPDATE t SET s = 'y' WHERE id < 3")
        reader.execute("CALL ducklake_merge_adjacent_files('lake')")
        reader.execute("ALTER TABLE t ADD COLUMN z INTEGER")
    assert desk.stock("SELECT count(*), count(z), max(w) FROM t") == [(9, 0, 3.0)]
    assert desk.table().id == new
    assert (
        desk.rows("SELECT table_name FROM ducklake_table WHERE end_snapshot IS NULL AND table_name LIKE 't\\_\\_g%%'")
        == []
    )
    assert desk.stock(f"SELECT count(*) FROM t AT (VERSION => {before})") == [(5,)]
    desk.duck.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")
    desk.duck.execute("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    assert desk.stock("SELECT count(*) FROM t") == [(9,)]


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE w (id INTEGER)", "CREATE VIEW w AS SELECT 1", "CREATE TABLE W (x INTEGER)"]
)
def test_a_name_is_given_once(desk: Desk, statement: str) -> None:
    """Traps 6: the catalog has no key on names."""
    desk.duck.execute("DROP VIEW IF EXISTS w") if "VIEW" in statement else None
    new = generation(desk, "w__g1")
    schema_id = desk.table("w__g1").schema_id
    desk.duck.execute(statement)
    before = desk.head()
    for update in (SwapGeneration(schema_id, "main", "w", None, new), RenameTable(new, schema_id, "main", "w")):
        with pytest.raises(NameTaken):
            desk.publish(update)
    with pytest.raises(NameTaken):
        desk.publish(SwapGeneration(schema_id, "main", "w", desk.make("id INTEGER"), new))
    assert desk.head() == before + 1
    desk.duck.execute("DROP VIEW w" if "VIEW" in statement else "DROP TABLE w")
    desk.publish(SwapGeneration(schema_id, "main", "w", None, new))
    assert desk.stock("SELECT count(*) FROM w") == [(7,)]
    desk.publish(DropTable(new))
    assert desk.stock("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'w'") == [(0,)]


def test_rename_and_drop(desk: Desk) -> None:
    table_id = desk.make("id INTEGER, s VARCHAR", by="id")
    desk.duck.execute(f"INSERT INTO t {numbers(0, 3)}")
    desk.duck.execute("COMMENT ON TABLE t IS 'hello'")
    before = desk.head()
    desk.publish(RenameTable(table_id, desk.table().schema_id, "main", "Renamed"))
    assert desk.stock("SELECT count(*) FROM renamed") == [(3,)]
    assert desk.stock(f"SELECT count(*) FROM t AT (VERSION => {before})") == [(3,)]
    desk.duck.execute("INSERT INTO renamed VALUES (9, 'x')")
    desk.publish(DropTable(table_id))
    assert desk.stock("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'Renamed'") == [(0,)]
    assert desk.stock(f"SELECT count(*) FROM renamed AT (VERSION => {desk.head() - 1})") == [(4,)]
    live = "SELECT count(*) FROM {} WHERE table_id = %s AND end_snapshot IS NULL"
    for name in ("ducklake_table", "ducklake_column", "ducklake_data_file", "ducklake_partition_info"):
        assert desk.one(live.format(name), table_id) == (0,), name


def test_rename_into_another_schema(desk: Desk) -> None:
    """Its files stay where they are, and stock DuckDB reads, writes and cleans up there."""
    table_id = desk.make("id INTEGER, s VARCHAR", name="goes")
    home = desk.table("goes").schema_id
    desk.duck.execute(f"INSERT INTO goes {numbers(0, 3)}")
    desk.duck.execute("CREATE SCHEMA other")
    before = desk.head()
    (schema_id,) = desk.one("SELECT schema_id FROM ducklake_schema WHERE schema_name = 'other'")
    desk.publish(RenameTable(table_id, schema_id, "other", "moved"))
    desk.publish(RenameTable(table_id, schema_id, "other", "Moved"))
    assert desk.stock("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'other'") == [("Moved",)]
    assert desk.stock("SELECT count(*) FROM other.moved") == [(3,)]
    assert desk.stock(f"SELECT count(*) FROM goes AT (VERSION => {before})") == [(3,)]
    files = Path(str(desk.one("SELECT path FROM ducklake_table WHERE table_name = 'Moved'")[0]))
    assert len(list(files.glob("*.parquet"))) == 1
    desk.duck.execute("INSERT INTO other.moved VALUES (9, 'x')")
    desk.duck.execute("DELETE FROM other.moved WHERE id = 1")
    assert len(list(files.glob("*.parquet"))) == 3
    assert desk.stock("SELECT count(*) FROM other.moved") == [(3,)]
    desk.publish(RenameTable(table_id, home, "main", "back"))
    assert desk.stock("SELECT count(*) FROM back") == [(3,)]
    desk.publish(DropTable(table_id))
    desk.duck.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")
    desk.duck.execute("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    assert list(files.glob("*.parquet")) == []


# ---------------------------------------------------------------- our schema
def test_migrations_are_applied_once(desk: Desk) -> None:
    assert migrate(desk.conn) == []
    assert desk.rows("SELECT number FROM lakemill.migrations ORDER BY 1") == [
        (number,) for number, _, _ in migrations()
    ]
    indexes = desk.rows(
        "SELECT indexname FROM pg_indexes WHERE schemaname = 'public' AND indexname LIKE 'lakemill\\_%%'"
    )
    assert len(indexes) > 10


def test_the_catalog_may_be_in_another_schema(postgres: str, tmp_path: Path) -> None:
    with new_database(postgres) as dsn:
        settings = Settings.load(tmp_path, {"lake.postgres": dsn, "lake.catalog_schema": "Its own"})
        duck.connect(settings, dsn, create=True, inline=0).close()
        with lakemill.open(settings) as lake:
            lake.duck.execute("CREATE TABLE t AS SELECT 1 AS id")
            with lake.catalog() as catalog:
                target = read_target(lake.conn, catalog.table("main", "t", catalog.head().id))
            path = f"{target.path}new.parquet"
            lake.duck.execute(f"COPY (SELECT 2 AS id) TO '{path}' (FORMAT parquet, FIELD_IDS {{id: 1}})")
            files = new_files(lake.duck, Staged((StagedFile(path, "new.parquet"),), 1), target)
            for publisher in (lake.publisher, lake.publisher):  # a new connection, and one that is known
                intent = Intent(uuid.uuid4(), (AddFiles(target.table_id, files),), target.requirements)
                publisher.publish(intent)
            assert lake.duck.execute("SELECT id FROM t ORDER BY id").fetchall() == [(1,), (2,), (2,)]
