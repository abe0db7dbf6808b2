"""Compaction: every snapshot, every row id and every delta stays what it was, for Spark and for stock DuckDB.

The truth is taken from stock DuckDB right after each commit, when its reads are right (traps 1), and compared with
what both engines say at every snapshot after the compaction and after stock maintenance on top of it.
"""

from __future__ import annotations

from collections import Counter
from functools import reduce

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from lakemill.errors import InternalError
from lakemill.runtime import upkeep
from lakemill.runtime.open import Lake
from lakemill.store import db

SMALL = {"upkeep.retention": "0 seconds", "upkeep.orphan_age": "0 seconds"}


class History:
    """A table written by stock DuckDB connections, and what it held after each commit."""

    def __init__(self, lake, spark):
        self.settings, self.dsn = lake.settings, lake.dsn
        self.main, self.other = lake.duck(), lake.duck()
        self.lake = Lake(lake.settings)
        self.truth: dict[int, list] = {}

    def close(self):
        self.lake.close()
        self.main.close()
        self.other.close()

    def run(self, *statements):
        for statement in statements:
            self.main.execute(statement)
        return self.note()

    def note(self):
        """Remember what the newest snapshot holds."""
        at = self.main.execute("FROM lake.current_snapshot()").fetchone()[0]
        self.truth[at] = self.stock(at)
        return at

    def stock(self, at, connection=None):
        connection = connection or self.main
        connection.execute("SET disabled_optimizers = 'statistics_propagation'")
        return sorted(connection.execute(f"SELECT rowid, * FROM t AT (VERSION => {at})").fetchall(), key=repr)

    def files(self):
        """How many live data files the table has, and how many rows are in them."""
        with db.connect(self.dsn) as conn:
            return conn.execute(
                "SELECT count(*), coalesce(sum(record_count), 0)::int FROM ducklake_data_file f"
                " JOIN ducklake_table t USING (table_id) WHERE table_name = 't' AND f.end_snapshot IS NULL"
                " AND t.end_snapshot IS NULL"
            ).fetchone()

    def snapshots(self):
        with db.connect(self.dsn) as conn:
            return [row[0] for row in conn.execute("SELECT snapshot_id FROM ducklake_snapshot ORDER BY 1")]

    def compact(self):
        report = upkeep.compact(self.lake, "t")
        for at in report.snapshots:
            self.truth[at] = self.truth[max(s for s in self.truth if s < at)]
        return report

    def check(self, *, spark=True):
        """Both engines say at every readable snapshot what was captured, and so do deltas."""
        readable = [at for at in self.snapshots() if at in self.truth]
        for at in readable:
            assert repr(self.stock(at)) == repr(self.truth[at]), f"stock DuckDB at {at}"
        if spark:
            self.check_scans(readable)
            self.check_deltas(readable)

    def check_scans(self, readable):
        table = self.lake.table("t")
        frames = {}
        for at in readable:
            frame = table.frame(table.plan_scan(at), located=True)
            names = [name for name in frame.columns if not name.startswith("__")]
            frames[at] = frame.select("__row_id", *names)
        for at, rows in collect(frames).items():
            assert repr(sorted(rows, key=repr)) == repr(self.truth[at]), f"Spark at {at}"

    def check_deltas(self, readable):
        table = self.lake.table("t")
        pairs = [(a, b) for a, b in zip(readable, readable[2:], strict=False) if self.shape(a) == self.shape(b)]
        chosen = pairs[:: max(1, len(pairs) // 5)]
        for (a, b), rows in collect({(a, b): table.delta(a, b) for a, b in chosen}).items():
            found = Counter({row[:-1]: row[-1] for row in rows})
            want = Counter(tuple(row[1:]) for row in self.truth[b])
            want.subtract(Counter(tuple(row[1:]) for row in self.truth[a]))
            assert found == Counter({row: n for row, n in want.items() if n}), f"delta over ({a}, {b}]"

    def shape(self, at):
        return self.lake.table("t").describe(at).columns


def collect(frames):
    """The rows of several frames, those of one shape in one Spark job."""
    found = {key: [] for key in frames}
    shapes = {}
    for number, (key, frame) in enumerate(frames.items()):
        shapes.setdefault(str(frame.schema), []).append((number, key, frame))
    for alike in shapes.values():
        keys = {number: key for number, key, _ in alike}
        tagged = [frame.withColumn("__number", F.lit(number)) for number, _, frame in alike]
        for *row, number in reduce(DataFrame.unionAll, tagged).collect():
            found[keys[number]].append(tuple(row))
    return found


@pytest.fixture
def history(make_lake, spark):
    found = History(make_lake(flags=SMALL), spark)
    yield found
    found.close()


def many_commits(history):
    """Inserts, first and further deletes, updates, a merge, and a delete whose transaction spans another commit."""
    run = history.run
    run("CREATE TABLE t (id BIGINT, v INT, s VARCHAR)")
    for part in range(4):
        run(f"INSERT INTO t SELECT i, {part}, 's' || i FROM range({part * 20}, {part * 20 + 20}) r(i)")
    run("DELETE FROM t WHERE id IN (3, 25)")
    run("UPDATE t SET v = -1 WHERE id BETWEEN 10 AND 12")
    run("DELETE FROM t WHERE id IN (4, 26, 11)")
    history.main.execute("CREATE TABLE IF NOT EXISTS elsewhere (i INT)")
    history.main.execute("BEGIN")
    history.main.execute("DELETE FROM t WHERE id IN (5, 27)")
    history.other.execute("INSERT INTO elsewhere VALUES (1)")
    between = history.other.execute("FROM lake.current_snapshot()").fetchone()[0]
    history.truth[between] = history.stock(between, history.other)
    run("COMMIT")
    run("UPDATE t SET v = v + 100 WHERE id % 10 = 7")
    run("MERGE INTO t USING (SELECT 1 AS id, 7 AS v) x ON t.id = x.id WHEN MATCHED THEN UPDATE SET v = x.v")
    run("INSERT INTO t VALUES (900, NULL, NULL)")


def test_every_snapshot_and_every_delta_stay(history):
    many_commits(history)
    before = history.files()
    dry = upkeep.compact(history.lake, "t", dry_run=True)
    assert history.files() == before
    report = history.compact()
    assert report.done == dry.done
    assert not report.kept
    assert history.files() == (1, before[1])  # every row is shown by some snapshot
    history.check()
    assert not upkeep.compact(history.lake, "t").done  # nothing is left to do


def test_stock_goes_on_with_the_merged_files(history):
    many_commits(history)
    history.compact()
    history.run("DELETE FROM t WHERE id IN (2, 30, 900)")
    history.run("UPDATE t SET s = 'new' WHERE id BETWEEN 40 AND 45")
    history.run("INSERT INTO t SELECT i, 1, 'x' FROM range(100, 120) r(i)")
    history.run("DELETE FROM t WHERE id IN (41, 101)")
    history.check(spark=False)
    history.compact()
    history.check(spark=False)
    history.run("INSERT INTO t VALUES (1000, 1, 'x')")
    history.run("INSERT INTO t VALUES (1001, 1, 'x')")
    history.run("CALL ducklake_merge_adjacent_files('lake')")
    history.check(spark=False)
    gone = history.snapshots()[2:-3]
    history.main.execute("CALL ducklake_expire_snapshots('lake', versions => ?::UBIGINT[])", [gone])
    history.main.execute("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    assert not history.main.execute(
        "CALL ducklake_delete_orphaned_files('lake', cleanup_all => true, dry_run => true)"
    ).fetchall()
    history.check()


def test_rows_that_no_snapshot_shows_are_dropped(history):
    many_commits(history)
    history.run("DELETE FROM t WHERE id < 40 AND id % 20 > 0")  # no file whole: that would end it
    keep = history.snapshots()[4]
    others = [at for at in history.snapshots()[:-1] if at != keep]
    upkeep.expire(history.lake, versions=others)
    head = history.snapshots()[-1]
    assert history.snapshots() == [keep, head]
    shown = {tuple(row) for at in (keep, head) for row in history.truth[at]}
    history.compact()
    assert history.files()[1] < 100
    assert history.files()[1] == len(shown)  # each version of a row once
    history.check(spark=False)
    upkeep.expire(history.lake)
    history.compact()
    assert history.files()[1] == len(history.truth[head])
    assert upkeep.cleanup(history.lake).files_removed
    assert not upkeep.orphans(history.lake).done
    history.check()


def test_a_table_whose_rows_are_all_gone_loses_its_files(history):
    history.run("CREATE TABLE t (id INT)", "INSERT INTO t SELECT i FROM range(10) r(i)")
    history.run("DELETE FROM t WHERE id < 5")
    history.run("INSERT INTO t VALUES (7)")
    history.run("DELETE FROM t WHERE id > 0")
    upkeep.expire(history.lake)
    history.compact()
    assert history.files() == (0, 0)
    history.run("INSERT INTO t VALUES (8)")
    history.check()


def test_partitions_and_versions_of_columns_stay_apart(history):
    run = history.run
    run("CREATE TABLE t (id INT, k VARCHAR)", "ALTER TABLE t SET PARTITIONED BY (k)")
    for part in range(3):
        run(f"INSERT INTO t SELECT i, 'a b' || i % 2 FROM range({part * 10}, {part * 10 + 10}) r(i)")
    run("DELETE FROM t WHERE id IN (1, 2, 13)")
    run("ALTER TABLE t ADD COLUMN x INT DEFAULT 42")
    run("INSERT INTO t SELECT i, 'a b' || i % 2, i FROM range(30, 40) r(i)")
    run("ALTER TABLE t DROP COLUMN x")
    run("INSERT INTO t SELECT i, 'a b' || i % 2 FROM range(40, 50) r(i)")
    run("INSERT INTO t SELECT i, 'a b' || i % 2 FROM range(50, 60) r(i)")
    report = history.compact()
    assert len(report.done) == 4  # two partitions in two of the three versions
    assert history.files()[0] == 6
    history.check(spark=False)
    run("DELETE FROM t WHERE id = 59")
    run("INSERT INTO t SELECT i, 'a b' || i % 2 FROM range(60, 70) r(i)")
    run("CALL ducklake_merge_adjacent_files('lake')")
    history.check()


TYPES = {
    "a": ("BOOLEAN", "i % 2 = 0"),
    "b": ("TINYINT", "i - 5"),
    "c": ("SMALLINT", "i * 1000"),
    "d": ("UTINYINT", "i + 240"),
    "e": ("USMALLINT", "i + 65000"),
    "f": ("UINTEGER", "i + 4294967000"),
    "g": ("UBIGINT", "i + 18446744073709551000"),
    "h": ("HUGEINT", "i * 1000000"),
    "j": ("FLOAT", "CASE i WHEN 3 THEN 'nan' WHEN 4 THEN '-inf' ELSE '1.5' END::FLOAT"),
    "k": ("DOUBLE", "i / 3"),
    "l": ("DECIMAL(5, 2)", "i / 4"),
    "m": ("DECIMAL(38, 10)", "i / 4"),
    "n": ("DATE", "DATE '0099-01-01' + i::INT * 300000"),
    "o": ("TIME", "TIME '12:34:56.789012'"),
    "p": ("TIMESTAMP", "TIMESTAMP '1500-01-01 00:00:00.000001' + to_days(i::INT * 70000)"),
    "q": ("TIMESTAMPTZ", "TIMESTAMPTZ '2026-01-01 00:00:00+02' + to_days(i::INT)"),
    "r": ("TIMESTAMP_S", "TIMESTAMP_S '2026-01-01 00:00:01'"),
    "s": ("TIMESTAMP_MS", "TIMESTAMP_MS '2026-01-01 00:00:00.001'"),
    "u": ("VARCHAR", "'ß\U0001f986' || i"),
    "v": ("BLOB", "'\\x00\\xFF'::BLOB"),
    "w": ("UUID", "('00000000-0000-4000-8000-00000000000' || i)::UUID"),
    "x": ("JSON", "'{\"a\": 1}'"),
    "y": ("STRUCT(p INT, q STRUCT(r VARCHAR, w UUID))", "{'p': i, 'q': {'r': 'x', 'w': uuid()}}"),
}


def test_every_type_passes_unchanged(history):
    columns = ", ".join(f"{name} {type_}" for name, (type_, _) in TYPES.items())
    values = ", ".join(f"CASE WHEN i <> 1 THEN {value} END" for _, value in TYPES.values())
    history.run(f"CREATE TABLE t (id INT, {columns})")
    for part in range(2):
        history.run(f"INSERT INTO t SELECT {part} * 10 + i, {values} FROM range(10) r(i)")
    history.run("DELETE FROM t WHERE id = 12")
    history.compact()
    assert history.files() == (1, 20)
    history.check(spark=False)
    for name in TYPES:  # statistics of the merged file lead readers right
        lost = history.main.execute(f"SELECT count(*) FROM t mine WHERE NOT EXISTS (FROM t WHERE {name} = mine.{name})")
        assert lost.fetchone()[0] == 2, name  # the NULLs


def test_a_sorted_table_is_sorted_across_its_files(history):
    history.run("CREATE TABLE t (id INT, v INT)", "ALTER TABLE t SET SORTED BY (v DESC)")
    for part in range(3):
        history.run(f"INSERT INTO t SELECT i, i * 7 % 30 FROM range({part * 10}, {part * 10 + 10}) r(i)")
    history.run("DELETE FROM t WHERE v IN (3, 20)")
    history.compact()
    history.check()
    with db.connect(history.dsn) as conn:
        path = conn.execute("SELECT path FROM ducklake_data_file").fetchone()[0]
    values = history.main.execute(f"SELECT v FROM '{history.settings.data_path}main/t/{path}'").fetchall()
    assert values == sorted(values, reverse=True)


def test_lists_are_merged_by_stock_duckdb_where_that_loses_nothing(history):
    history.run("CREATE TABLE t (id INT, tags VARCHAR[])")
    for part in range(3):
        history.run(f"INSERT INTO t SELECT {part} * 10 + i, ['a', NULL, 'b' || i] FROM range(10) r(i)")
    dry = upkeep.compact(history.lake, "t", dry_run=True)
    report = history.compact()
    assert [item.why for item in report.done] == ["3 files become one by stock DuckDB"]
    assert report.done == dry.done
    assert history.files()[0] == 1
    history.run("UPDATE t SET tags = ['new'] WHERE id = 3")
    history.run("INSERT INTO t VALUES (77, NULL)")
    history.run("INSERT INTO t VALUES (78, [])")
    report = history.compact()
    assert not report.done
    assert {item.why.partition("'tags' is a list")[0] for item in report.kept} == {"column "}
    assert sum("would change row ids" in item.why for item in report.kept) == 3
    assert sum("no file with deletes" in item.why for item in report.kept) == 1
    history.check(spark=False)


def test_a_delete_that_comes_in_between_wins(history, monkeypatch):
    many_commits(history)
    publish = history.lake.publisher.publish

    def late(intent, more=None):
        history.run("DELETE FROM t WHERE id = 70")
        return publish(intent, more)

    monkeypatch.setattr(history.lake.publisher, "publish", late)
    before = history.files()
    report = upkeep.compact(history.lake, "t")
    assert not report.done
    assert "deleted from" in report.kept[-1].why
    assert history.files() == before
    assert not upkeep.orphans(history.lake).done  # what was staged is gone
    monkeypatch.undo()
    history.compact()
    history.check()


def test_a_job_that_fails_leaves_nothing_behind(history, monkeypatch):
    history.run("CREATE TABLE t (id INT)")
    for part in range(2):
        history.run(f"INSERT INTO t SELECT i FROM range({part * 10}, {part * 10 + 10}) r(i)")
    history.run("DELETE FROM t WHERE id = 5")

    def fail(*_):
        raise InternalError("not the right rows")

    monkeypatch.setattr("lakemill.spark.compact._check", fail)
    with pytest.raises(InternalError):
        upkeep.compact(history.lake, "t")
    assert not upkeep.orphans(history.lake, dry_run=True).done
    assert history.files()[0] == 2
    assert history.lake.conn.execute("SELECT count(*) FROM lakemill.pins").fetchone() == (0,)
    history.check(spark=False)


def test_files_of_lakemill_s_own_publishes(history):
    history.run("CREATE TABLE t (id BIGINT, v INT)")
    history.run("INSERT INTO t SELECT i, 0 FROM range(50) r(i)")
    table, spark = history.lake.table("t"), history.lake.spark
    for low in (3, 20):
        table.delete(f"id BETWEEN {low} AND {low + 4}")  # the second ends the first one's delete file
        history.note()
    table.merge(spark.range(30, 60).selectExpr("id", "9 AS v"), ["id"])
    history.note()
    table.append(spark.range(100, 110).selectExpr("id", "1 AS v"))
    history.note()
    history.run("DELETE FROM t WHERE id IN (31, 45, 105, 1)")
    history.compact()
    assert history.files()[0] == 1
    history.check()
