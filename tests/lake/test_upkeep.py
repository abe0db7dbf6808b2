"""Expiry, cleanup and orphans on a real catalog: what goes, what stays, and that stock DuckDB is content afterwards."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from lakemill.errors import ForeignLock, PublishConflict, SnapshotGone, UnknownSnapshot
from lakemill.lake import expiry, upkeep
from lakemill.lake.catalog import reading
from lakemill.lake.scan import Lakefront, count_rows
from lakemill.lake.stamps import Stamps
from lakemill.lake.storage import open_storage
from lakemill.store import db, pins
from lakemill.store.migrate import migrate

NO_TIME = timedelta(0)
LONG = timedelta(days=1)


class Opened:
    """A lake with everything that upkeep needs."""

    def __init__(self, lake):
        self.conn = db.connect(lake.dsn)
        self.duck = lake.duck()
        migrate(self.conn)
        self.front = Lakefront(self.conn, "public", Stamps(self.duck))
        self.storage = open_storage(lake.data_path, lake.settings.s3)

    def expire(self, **asked):
        return expiry.expire(self.front, self.duck, self.plan(**asked))

    def plan(self, **asked):
        return expiry.plan_expire(self.front, NO_TIME, **asked)

    def snapshots(self):
        return [row[0] for row in self.conn.execute("SELECT snapshot_id FROM ducklake_snapshot ORDER BY 1")]

    def rows(self, at=None):
        when = "" if at is None else f" AT (VERSION => {at})"
        return sorted(self.duck.execute(f"SELECT rowid, * FROM t{when}").fetchall())

    def files(self):
        return {file.path for file in self.storage.list()}


@pytest.fixture
def opened(lake):
    found = Opened(lake)
    yield found
    found.duck.close()
    found.conn.close()


@pytest.fixture
def history(opened):
    """t at snapshots 1..6: created, 3 inserts, a delete, all deleted and one row inserted."""
    run = opened.duck.execute
    run("CREATE TABLE t (id INT)")
    for part in range(3):
        run(f"INSERT INTO t SELECT i FROM range({part * 10}, {part * 10 + 10}) r(i)")
    run("DELETE FROM t WHERE id < 5")
    run("BEGIN; DELETE FROM t; INSERT INTO t VALUES (99); COMMIT")
    return opened


def age_everything(opened, days=2):
    opened.conn.execute(
        "UPDATE ducklake_files_scheduled_for_deletion SET schedule_start = schedule_start - make_interval(days => %s)",
        (days,),
    )
    for path in opened.files():
        os.utime(path, (time.time() - days * 86400,) * 2)


# ---------------------------------------------------------------- expiry
def test_expire_keeps_the_newest_and_the_rest_goes(history):
    now = history.rows()
    done = history.expire()
    assert history.snapshots() == [6]
    assert done.versions == (0, 1, 2, 3, 4, 5)
    assert done.files_scheduled == 4  # three data files and a delete file
    assert history.rows() == now
    assert history.conn.execute("SELECT count(*) FROM lakemill.condemned").fetchone() == (0,)


def test_a_pin_and_a_position_keep_what_they_need(history):
    truth = {at: history.rows(at) for at in (2, 4)}
    pins.pin(history.conn, 2, "reader", "a report")
    table = history.conn.execute("SELECT table_id FROM ducklake_table").fetchone()[0]
    pins.record_position(history.conn, "consumer", table, 4)
    plan = history.plan()
    assert {k.snapshot: k.reason for k in plan.kept} == {
        2: "pinned by reader: a report",
        4: f"recorded position of consumer on table {table}",
        6: "it is the newest",
    }
    history.expire()
    assert history.snapshots() == [2, 4, 6]
    assert {at: history.rows(at) for at in truth} == truth
    pins.drop_positions(history.conn, "consumer")
    history.expire()
    assert history.snapshots() == [2, 6]


def test_positions_move_together(history):
    """All of a consumer's, or none: what it no longer reads is let go."""
    where = {"holder": "consumer"}

    def held():
        return {(p.table_id, p.snapshot_id) for p in pins.needed_snapshots(history.conn).positions}

    pins.move_positions(history.conn, **where, positions={1: 2, 7: 3})
    pins.record_position(history.conn, "other", 1, 4)
    pins.move_positions(history.conn, **where, positions={1: 5, 8: 5})
    assert held() == {(1, 5), (8, 5), (1, 4)}
    history.expire()
    with pytest.raises(SnapshotGone):
        pins.move_positions(history.conn, **where, positions={1: 6, 8: 3})
    assert held() == {(1, 5), (8, 5), (1, 4)}


def test_young_snapshots_stay_also_when_they_are_named(history):
    plan = expiry.plan_expire(history.front, LONG, versions=[1, 2])
    assert plan.empty
    assert len(plan.kept) == 2


def test_an_unknown_version_is_an_error(history):
    with pytest.raises(UnknownSnapshot):
        history.plan(versions=[77])


def test_what_is_pinned_after_the_plan_stays(history):
    plan = history.plan()
    pins.pin(history.conn, 3, "late")
    assert 3 in plan.versions
    assert expiry.expire(history.front, history.duck, plan).versions == tuple(sorted(set(plan.versions) - {3}))
    assert history.snapshots() == [3, 6]
    assert history.rows(3)


def test_a_plan_of_which_nothing_is_left_is_refused(history):
    plan = history.plan(versions=[3])
    pins.pin(history.conn, 3, "late")
    with pytest.raises(PublishConflict):
        expiry.expire(history.front, history.duck, plan)
    assert history.snapshots() == list(range(7))


def test_what_is_condemned_cannot_be_pinned_or_recorded(history):
    assert pins.condemn(history.conn, lambda needed: (3,)) == (3,)
    with pytest.raises(SnapshotGone):
        pins.pin(history.conn, 3, "reader")
    with pytest.raises(SnapshotGone):
        pins.record_position(history.conn, "consumer", 1, 3)
    with pytest.raises(UnknownSnapshot):
        pins.pin(history.conn, 70, "reader")
    pins.absolve(history.conn, [3])
    assert pins.pin(history.conn, 3, "reader").snapshot_id == 3


def test_one_expiry_at_a_time(history, lake):
    with db.connect(lake.dsn) as other, pins.turn(other), pytest.raises(ForeignLock):
        history.expire()
    assert history.expire().versions


def test_pins_and_expiry_race_and_no_promise_is_broken(history, lake):
    """Readers pin any snapshot they can while expiries run: each one is told "gone", or can read it."""
    for part in range(20):
        history.duck.execute(f"INSERT INTO t VALUES ({part})")

    def reader(_):
        held = []
        with db.connect(lake.dsn) as conn:
            for at in range(2, 27):
                try:
                    held.append(pins.pin(conn, at, "reader").snapshot_id)
                except SnapshotGone:
                    held.append(None)
        return held

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(reader, number) for number in range(3)]
        expired = 0
        while not all(found.done() for found in readers):
            try:
                expired += len(history.expire().versions)
            except PublishConflict:
                continue
    held = {at for found in readers for at in found.result() if at is not None}
    assert held <= set(history.snapshots())
    assert 26 in held, "the newest is never expired"
    for at in held:
        history.rows(at)


def test_a_pin_runs_out(history):
    short = pins.pin(history.conn, 2, "reader", ttl=timedelta(milliseconds=1))
    time.sleep(0.01)
    assert not pins.renew(history.conn, short.id, LONG)
    history.expire()
    assert history.snapshots() == [6]


def test_labels_that_time_a_delete_for_a_pinned_snapshot_stay(lake, opened):
    """Traps 1: the delete stamped 4 was committed at 6; only the labels of 4 and 5 show that 5 still had the rows."""
    a, b = opened.duck, lake.duck()
    a.execute("CREATE TABLE t (id INT)")
    a.execute("CREATE TABLE other (id INT)")
    a.execute("INSERT INTO t SELECT i FROM range(100) r(i)")
    a.execute("DELETE FROM t WHERE id = 0")
    a.execute("BEGIN")
    a.execute("DELETE FROM t WHERE id IN (1, 2)")
    b.execute("INSERT INTO other VALUES (1)")
    pinned = opened.snapshots()[-1]
    a.execute("COMMIT")
    b.execute("DELETE FROM t WHERE id = 50")
    b.execute("INSERT INTO other VALUES (2)")
    b.close()
    pins.pin(opened.conn, pinned, "reader")

    def count():
        with reading(opened.conn) as catalog:
            return count_rows(
                catalog, opened.front.stamps, catalog.table("main", "t", pinned), catalog.snapshot(pinned)
            )

    assert count() == 99
    opened.expire()
    assert count() == 99
    assert pinned in opened.snapshots()


# ---------------------------------------------------------------- cleanup
def test_cleanup_waits_since_removal_and_for_readers(history):
    age_everything(history)  # the files are old, their removal is not
    reader = pins.pin(history.conn, 6, "reader", ttl=timedelta(hours=1))
    history.expire()
    before = history.files()
    assert upkeep.plan_cleanup(history.conn, "public", LONG).empty
    plan = upkeep.plan_cleanup(history.conn, "public", NO_TIME)
    assert plan.empty  # the reader was there before the removal
    assert {file.reason for file in plan.kept} == {"it left the catalog while reader was already reading"}
    pins.unpin(history.conn, reader.id)
    plan = upkeep.plan_cleanup(history.conn, "public", NO_TIME)
    assert upkeep.clean(history.conn, "public", history.storage, plan) == 4
    assert before - history.files() == {file.path for file in plan.files}
    assert upkeep.plan_cleanup(history.conn, "public", NO_TIME).empty
    assert history.rows() == [(30, 99)]


def registered_and_deleted(opened, lake):
    """A file that somebody else wrote and registered, and whose rows are deleted; its path."""
    run = opened.duck.execute
    run("CREATE TABLE t (id INT)")
    path = f"{lake.data_path}main/t/given.parquet"
    Path(path).parent.mkdir(parents=True)
    run(f"COPY (SELECT 7 AS id) TO '{path}' (FORMAT parquet)")
    run("CALL ducklake_add_data_files('lake', 't', ?)", [path])
    run("DELETE FROM t")
    return path


def test_a_path_that_another_row_names_is_released_and_stays(opened, lake):
    path = registered_and_deleted(opened, lake)
    opened.duck.execute("CALL ducklake_add_data_files('lake', 't', ?)", [path])
    opened.expire()
    plan = upkeep.plan_cleanup(opened.conn, "public", NO_TIME)
    assert [file.path for file in plan.released] == [path]
    upkeep.clean(opened.conn, "public", opened.storage, plan)
    assert Path(path).exists()
    assert [row[1] for row in opened.rows()] == [7]
    assert upkeep.plan_cleanup(opened.conn, "public", NO_TIME).empty


def test_a_path_that_is_registered_again_after_the_plan_stays(opened, lake):
    path = registered_and_deleted(opened, lake)
    opened.expire()
    plan = upkeep.plan_cleanup(opened.conn, "public", NO_TIME)
    assert path in [file.path for file in plan.files]
    opened.duck.execute("CALL ducklake_add_data_files('lake', 't', ?)", [path])
    assert upkeep.clean(opened.conn, "public", opened.storage, plan) == len(plan.files) - 1
    assert [row[1] for row in opened.rows()] == [7]
    assert upkeep.plan_cleanup(opened.conn, "public", NO_TIME).empty


# ---------------------------------------------------------------- orphans
def test_orphans_are_old_unknown_and_of_our_kind(history, lake):
    known = history.files()
    folder = Path(lake.data_path) / "main" / "t" / f"lakemill-{uuid4()}"
    folder.mkdir()
    job = folder.parent / f"lakemill-{uuid4()}"
    (job / "_temporary" / "0").mkdir(parents=True)
    rest = job / "_temporary" / "0" / "part-0"
    rest.write_bytes(b"x")
    os.utime(rest, (time.time() - 2 * 86400,) * 2)
    old, young, foreign = folder / "a.parquet", folder / "b.parquet", Path(lake.data_path) / "notes.txt"
    for file in (old, young, foreign):
        file.write_bytes(b"x")
    for file in (old, foreign):
        os.utime(file, (time.time() - 2 * 86400,) * 2)
    plan = upkeep.plan_orphans(history.conn, "public", history.storage, LONG)
    assert {file.path for file in plan.files} == {str(old), str(rest)}
    assert {file.path for file in plan.kept} == {str(young), str(foreign)}
    assert upkeep.remove_orphans(history.conn, "public", history.storage, plan) == 2
    assert not job.exists()
    assert history.files() == known | {str(young), str(foreign)}


def test_files_of_old_snapshots_dropped_tables_and_removals_are_no_orphans(history):
    history.duck.execute("CREATE TABLE gone AS SELECT 1 AS i")
    history.duck.execute("DROP TABLE gone")
    history.expire(versions=[1, 2, 5])
    age_everything(history)
    assert upkeep.plan_orphans(history.conn, "public", history.storage, LONG).files == ()
    history.expire()
    age_everything(history)
    assert upkeep.plan_orphans(history.conn, "public", history.storage, LONG).files == ()
