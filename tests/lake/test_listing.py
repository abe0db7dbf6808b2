"""What happened after a snapshot, as the lag of dynamic tables needs it: in doubt, everything may have changed."""

from __future__ import annotations

from lakemill.lake.listing import list_commits, list_tables
from lakemill.store import db
from tests.conftest import TestLake


def test_commits_and_the_tables_they_changed(lake: TestLake) -> None:
    with lake.duck() as duck:
        for statement in (
            "CREATE TABLE a AS SELECT i FROM range(10) r(i)",
            "CREATE TABLE b AS SELECT 1 AS x",
            "INSERT INTO a VALUES (11)",
            "DELETE FROM a WHERE i = 1",
            "ALTER TABLE b ADD COLUMN y INTEGER",
            "CALL ducklake_merge_adjacent_files('lake')",
            "DROP TABLE b",
        ):
            duck.execute(statement)
        ids = dict(duck.execute("SELECT table_name, table_id FROM ducklake_table_info('lake')").fetchall())
        (a,) = ids.values()
        with db.connect(lake.dsn) as conn:
            found = list_commits(conn, "public", 2)
            assert [one.commit.snapshot for one in found] == list(range(3, 3 + len(found)))
            changed = [one.commit.snapshot for one in found if one.changed(frozenset({a}))]
            assert changed == [3, 4], "neither compaction nor what happened to another table changes it"
            duck.execute("CALL ducklake_expire_snapshots('lake', versions => [4])")
            found = list_commits(conn, "public", 3)
    assert [one.commit.snapshot for one in found][:2] == [5, 6]
    assert found[0].changed(frozenset({a})), "the commit before it no longer says what it did"
    assert not found[1].changed(frozenset({a}))


def test_a_delete_file_whose_data_file_ended_counts_no_more(lake: TestLake) -> None:
    """Stock DuckDB ends a file all of whose rows are gone, and leaves its delete file as it is."""
    with lake.duck() as duck:
        duck.execute("CREATE TABLE a AS SELECT i FROM range(2) r(i)")
        duck.execute("UPDATE a SET i = 10 WHERE i = 1")
        duck.execute("DELETE FROM a WHERE i = 0")
        (head,) = duck.execute("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')").fetchone() or (0,)
        assert duck.execute("SELECT count(*) FROM a").fetchall() == [(1,)]
    with db.connect(lake.dsn) as conn:
        (found,) = list_tables(conn, "public", head)
    assert (found.files, found.delete_files, found.rows) == (1, 0, 1)
