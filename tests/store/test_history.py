"""What refreshes did, and the views for SQL tools."""

from __future__ import annotations

import threading
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest

from lakemill.core.definition import DOWNSTREAM, Definition
from lakemill.core.lag import Version
from lakemill.core.names import parse_name
from lakemill.core.refresh import Action, Outcome, State, Trigger
from lakemill.store import claims, db, definitions, history
from lakemill.store.history import RefreshRecord, SourceDelta, save_refresh
from lakemill.store.versions import SourceRead, move_frontier
from tests.store.conftest import RESOLVED

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def record(table, minutes=0, **values):
    started = NOON + timedelta(minutes=minutes)
    return RefreshRecord(uuid4(), table.id, table.name, 1, Trigger.SCHEDULED, started, **values)


def full(table):
    return record(
        table,
        outcome=Outcome.FAILED,
        action=Action.KEYS,
        reason="2 of 7 keys",
        remedy="partition it",
        a=4,
        b=9,
        t=NOON,
        commit=10,
        holder="w1",
        fence=3,
        ended_at=NOON + timedelta(seconds=2.5),
        rows_in=7,
        rows_inserted=2,
        rows_deleted=1,
        rows_recomputed=6,
        records_read=100,
        bytes_read=2**40,
        bytes_written=9,
        spark_jobs=2,
        spark_profile="batch",
        spark_tasks=400,
        spark_executors=2,
        spilled_bytes=2**33,
        phases={"plan": 0.25, "execute": 2.0, "commit": 0.01},
        error_code="CLAIM_LOST",
        error_text="it's late",
        sources=(
            SourceDelta(parse_name("x"), 5, 4, 9, 7),
            SourceDelta(parse_name('s."Y y"'), 6, None, 8),
        ),
    )


def test_everything_comes_back(where, make):
    saved = full(make("t"))
    told = {"files", "affected_keys", "cardinality_ratio", "cause"}  # by whoever did it, and not remembered
    for field in fields(saved):
        assert field.name in told or getattr(saved, field.name) not in (None, (), {}), field.name
    save_refresh(where, replace(saved, **dict.fromkeys(told, 3)))
    (found,) = history.history(where)
    assert found == saved
    assert list(found.phases) == ["plan", "execute", "commit"], "in their order"


def test_what_is_unknown_is_none(where, make):
    saved = record(make("t"))
    save_refresh(where, saved)
    assert history.history(where) == (saved,)


def test_it_is_saved_again_when_it_ends(where, make):
    table = make("t")
    done = full(table)
    started = replace(record(table), id=done.id)
    save_refresh(where, started)
    save_refresh(where, done)
    save_refresh(where, done)  # a publish that is tried again
    assert history.history(where) == (done,)


def test_what_succeeded_stays_so(where, make):
    """Whatever its worker was told: the publish itself has saved it."""
    done = replace(full(make("t")), outcome=Outcome.SUCCEEDED)
    save_refresh(where, done)
    save_refresh(where, replace(done, outcome=Outcome.FAILED, commit=None))
    assert history.settled(where, done.id) == done
    assert history.settled(where, uuid4()) is None


def test_what_became_of_it_is_known_when_its_publish_has_ended(conn, migrated):
    definition = Definition(parse_name("t"), "SELECT 1", DOWNSTREAM)
    begun = record(definitions.create(conn, definition, RESOLVED, []))
    save_refresh(conn, begun)
    found: list[RefreshRecord | None] = []

    def ask():
        with db.connect(migrated) as other:
            found.append(history.settled(other, begun.id))

    thread = threading.Thread(target=ask)
    with conn.transaction():
        save_refresh(conn, replace(begun, outcome=Outcome.SUCCEEDED))
        thread.start()
        thread.join(0.3)
        assert thread.is_alive(), "it waits for the publish"
    thread.join()
    assert found == [replace(begun, outcome=Outcome.SUCCEEDED)]


def test_the_newest_come_first(where, make):
    one, other = make("a"), make("b")
    saved = [record(table, minutes) for minutes, table in enumerate([one, other, one, one])]
    for each in saved:
        save_refresh(where, each)
    assert history.history(where) == tuple(reversed(saved))
    assert history.history(where, one.id) == (saved[3], saved[2], saved[0])
    assert history.history(where, one.id, most=1) == (saved[3],)
    assert history.history(where, one.id, before=saved[3].started_at) == (saved[2], saved[0])
    assert history.history(where, 999) == ()


def test_history_outlives_its_table(where, make):
    table = make("t")
    save_refresh(where, record(table))
    definitions.drop(where, [table.id])
    assert history.history(where, table.id)[0].name == table.name


# ---------------------------------------------------------------- failures
def later(table, seconds, outcome, trigger=Trigger.SCHEDULED):
    started = table.state_since + timedelta(seconds=seconds)
    return replace(record(table), started_at=started, outcome=outcome, trigger=trigger)


@pytest.mark.parametrize(
    ("outcomes", "count"),
    [
        ([], 0),
        ([Outcome.FAILED] * 3, 3),
        ([Outcome.FAILED, Outcome.SUCCEEDED, Outcome.FAILED], 1),
        ([Outcome.FAILED, Outcome.SKIPPED, Outcome.UPSTREAM_FAILED, Outcome.FAILED], 2),
        ([Outcome.FAILED, Outcome.SUCCEEDED], 0),
    ],
)
def test_failures_in_a_row(where, make, outcomes, count):
    table = make("t")
    for seconds, outcome in enumerate(outcomes, 1):
        save_refresh(where, later(table, seconds, outcome))
    assert history.failures_in_a_row(where, table.id) == count


def test_failures_by_hand_do_not_count_nor_those_before_a_resume(where, make):
    table = make("t", state=State.ACTIVE)
    save_refresh(where, later(table, 1, Outcome.FAILED, Trigger.MANUAL))
    save_refresh(where, later(table, -5, Outcome.FAILED))
    assert history.failures_in_a_row(where, table.id) == 0
    save_refresh(where, later(table, 2, Outcome.SUCCEEDED, Trigger.MANUAL))
    save_refresh(where, later(table, 3, Outcome.FAILED))
    assert history.failures_in_a_row(where, table.id) == 1


def test_what_a_dead_worker_left_is_closed(where, make):
    alive, dead, unclaimed = (make(name) for name in "adu")
    held = claims.claim(where, alive.id, "w", timedelta(minutes=1))
    lost = claims.claim(where, dead.id, "w", timedelta(seconds=-1))
    running = record(alive, fence=held.fence)
    left = [record(dead, fence=lost.fence), record(unclaimed), record(alive, fence=held.fence - 1)]
    done = record(dead, fence=lost.fence, outcome=Outcome.SUCCEEDED)
    for each in (running, *left, done):
        save_refresh(where, each)
    assert set(history.close_abandoned(where)) == {each.id for each in left}
    found = {each.id: each for each in history.history(where)}
    assert found[running.id].outcome is Outcome.EXECUTING
    assert found[done.id].outcome is Outcome.SUCCEEDED
    assert found[left[0].id].outcome is Outcome.FAILED
    assert found[left[0].id].error_code == "CLAIM_LOST"
    assert found[left[0].id].ended_at is not None
    assert history.close_abandoned(where) == ()


def test_forgetting_keeps_the_newest_of_each_table(where, make):
    one, other = make("a"), make("b")
    saved = [record(one, 0), record(one, 1), record(one, 2), record(other, 0)]
    for each in saved:
        save_refresh(where, each)
    assert history.forget_refreshes(where, NOON + timedelta(minutes=1)) == 1
    assert history.forget_refreshes(where, NOON + timedelta(days=1)) == 1
    assert {each.id for each in history.history(where)} == {saved[2].id, saved[3].id}


def test_words_that_are_none_are_refused(conn):
    with pytest.raises(psycopg.errors.CheckViolation):
        conn.execute(
            "INSERT INTO lakemill.refreshes (refresh_id, dynamic_id, schema_name, table_name, definition_version,"
            " trigger, outcome, started_at) VALUES (gen_random_uuid(), 1, 's', 't', 1, 'SCHEDULED', 'DONE', now())"
        )


@pytest.mark.parametrize(
    ("column", "words"), [("state", State), ("trigger", Trigger), ("action", Action), ("outcome", Outcome)]
)
def test_the_database_knows_the_same_words(conn, column, words):
    (text,) = conn.execute(
        "SELECT string_agg(pg_get_constraintdef(oid), ' ') FROM pg_constraint WHERE contype = 'c'"
        " AND conname IN (%s, %s)",
        (f"refreshes_{column}_check", f"dynamic_tables_{column}_check"),
    ).fetchone()
    assert {word for word in text.split("'") if word.isupper() and word.replace("_", "").isalpha()} - {"CHECK"} >= {
        word.value for word in words
    }
    assert text.count("::text") >= len(words)


# ---------------------------------------------------------------- views
def test_the_views_tell_the_same(where, make):
    a = make("a", comment="first")
    b = make("b", "a x")
    version_id = move_frontier(where, a.id, Version(11, 10, 10, 1, 70), NOON, [SourceRead(120, 1, 9, 5)], None)
    save_refresh(where, full(a))

    def one(query):
        cursor = where.execute(query)
        names = [column.name for column in cursor.description]
        (row,) = cursor.fetchall()
        return dict(zip(names, row, strict=True))

    listed = one("SELECT * FROM lakemill.dynamic_table_list WHERE table_name = 'a'")
    assert (
        listed
        | {
            "state": "ACTIVE",
            "target_lag": "00:05:00",
            "resolved_mode": "INCREMENTAL",
            "data_snapshot": 10,
            "data_time": NOON,
            "commit_snapshot": 11,
            "last_action": "KEYS",
            "last_error_code": "CLAIM_LOST",
            "comment": "first",
            "table_id": 70,
        }
        == listed
    )
    waiting = one("SELECT * FROM lakemill.dynamic_table_list WHERE table_name = 'b'")
    assert (waiting["state"], waiting["data_snapshot"], waiting["last_action"]) == ("PENDING_INIT", None, None)
    told = one("SELECT * FROM lakemill.refresh_history")
    assert (told["from_snapshot"], told["to_snapshot"], float(told["seconds"]), told["dedup_ratio"]) == (4, 9, 2.5, 0.5)
    assert told["sources"] == [
        {"schema": "main", "table": "x", "table_id": 5, "from_commit": 4, "to_commit": 9, "rows": 7},
        {"schema": "s", "table": "Y y", "table_id": 6, "from_commit": None, "to_commit": 8, "rows": None},
    ]
    held = one("SELECT * FROM lakemill.dynamic_table_versions")
    assert (held["b_lo"], held["b_hi"], held["current"]) == (10, 10, True)
    read = one("SELECT * FROM lakemill.dynamic_table_sources WHERE table_name = 'a'")
    assert (read["source_name"], read["commit_read"], read["rows_read"]) == ("x", 9, 5)
    edge = one("SELECT * FROM lakemill.dynamic_table_sources WHERE table_name = 'b' AND source_kind = 'DYNAMIC'")
    assert (edge["source_name"], edge["source_table_id"], edge["columns_used"]) == ("a", 70, ["k"])
    assert version_id
    assert b.id


def test_every_view_and_column_says_what_it_is(conn):
    silent = conn.execute(
        "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
        " WHERE c.relnamespace = 'lakemill'::regnamespace AND c.relkind IN ('v', 'r') AND a.attnum >= 0"
        " AND (obj_description(c.oid) IS NULL OR c.relkind = 'v' AND a.attnum > 0"
        "      AND col_description(c.oid, a.attnum) IS NULL) AND c.relname <> 'migrations'"
    ).fetchall()
    assert silent == []


def test_progress_is_of_refreshes_that_run(where, make):
    one, other = record(make("t")), record(make("u"))
    for begun in (one, other):
        save_refresh(where, begun)
        history.tell_progress(where, begun.id, "compute: 3 s")
    history.tell_progress(where, one.id, "compute: 1 of 4 tasks of 1 stage, 5 s")
    assert history.progress(where) == {
        one.dynamic_id: "compute: 1 of 4 tasks of 1 stage, 5 s",
        other.dynamic_id: "compute: 3 s",
    }
    told = where.execute("SELECT table_name, progress FROM lakemill.dynamic_table_list ORDER BY 1").fetchall()
    assert told == [("t", "compute: 1 of 4 tasks of 1 stage, 5 s"), ("u", "compute: 3 s")]
    save_refresh(where, replace(one, outcome=Outcome.SUCCEEDED))
    assert history.progress(where) == {other.dynamic_id: "compute: 3 s"}
    history.end_progress(where, one.id)
    history.close_abandoned(where)  # the other's worker has no claim any more
    assert where.execute("SELECT count(*) FROM lakemill.progress").fetchone() == (0,)
