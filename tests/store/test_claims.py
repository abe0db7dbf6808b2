"""Claims: one at a time, with a number that only grows."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from lakemill.core.definition import DOWNSTREAM, Definition
from lakemill.core.names import parse_name
from lakemill.errors import ClaimLost
from lakemill.store import claims, db, definitions
from lakemill.store.claims import claim, release, renew, require_claim
from tests.store.conftest import RESOLVED

LONG, OVER = timedelta(minutes=1), timedelta(seconds=-1)


@pytest.fixture
def table(make):
    return make("t")


def test_one_at_a_time(where, table, make):
    held = claim(where, table.id, "w1", LONG)
    assert (held.fence, held.holder) == (1, "w1")
    assert claim(where, table.id, "w2", LONG) is None
    assert claim(where, table.id, "w1", LONG) is None, "not even for the same worker: its jobs are two"
    assert claim(where, make("o").id, "w2", LONG) is not None
    require_claim(where, held)
    release(where, held)
    assert claim(where, table.id, "w2", LONG).fence == 2
    assert claim(where, 999, "w", LONG) is None


def test_a_late_worker_is_known_by_its_number(where, table):
    late = claim(where, table.id, "w1", OVER)
    with pytest.raises(ClaimLost, match="run out"):
        require_claim(where, late)
    with pytest.raises(ClaimLost, match="run out"):
        renew(where, late, LONG)
    held = claim(where, table.id, "w2", LONG)
    assert held.fence == 2
    with pytest.raises(ClaimLost, match="passed to w2"):
        require_claim(where, late)
    release(where, late)  # can't free what is another's
    require_claim(where, held)
    definitions.drop(where, [table.id])
    with pytest.raises(ClaimLost, match="dropped"):
        require_claim(where, held)


def test_renewing(where, table):
    held = claim(where, table.id, "w", timedelta(seconds=30))
    longer = renew(where, held, timedelta(hours=1))
    assert longer.expires_at > held.expires_at + timedelta(minutes=50)
    assert longer.fence == held.fence
    require_claim(where, longer)


def test_of_many_one_wins(conn, migrated):
    table = definitions.create(conn, Definition(parse_name("t"), "SELECT 1", DOWNSTREAM), RESOLVED, [])
    won: list[claims.Claim] = []

    def work(name):
        with db.connect(migrated) as other:
            held = claim(other, table.id, name, LONG)
            if held is not None:
                won.append(held)

    threads = [threading.Thread(target=work, args=(f"w{i}",)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


def test_a_publish_holds_its_claim_until_it_ends(conn, migrated):
    table = definitions.create(conn, Definition(parse_name("t"), "SELECT 1", DOWNSTREAM), RESOLVED, [])
    held = claim(conn, table.id, "w1", timedelta(seconds=0.4))
    taken: list[claims.Claim | None] = []

    def take():
        with db.connect(migrated) as other:
            other.execute("SELECT pg_sleep(0.5)")  # until it has run out
            taken.append(claim(other, table.id, "w2", LONG))

    thread = threading.Thread(target=take)
    with conn.transaction():
        require_claim(conn, held)
        thread.start()
        thread.join(0.9)
        assert thread.is_alive(), "it waits for the publish"
    thread.join()
    assert taken[0] is not None
    assert taken[0].fence == 2


def test_who_has_it(where, table):
    assert claims.holder_of(where, table.id) is None
    held = claim(where, table.id, "w1", LONG)
    holder, since = claims.holder_of(where, table.id)
    assert (holder, since < held.expires_at) == ("w1", True)
    release(where, held)
    assert claims.holder_of(where, table.id) is None


def test_a_table_that_is_dropped_at_this_moment_can_not_be_claimed(conn, migrated):
    table = definitions.create(conn, Definition(parse_name("t"), "SELECT 1", DOWNSTREAM), RESOLVED, [])
    found: list[claims.Claim | None] = []

    def take():
        with db.connect(migrated) as other:
            found.append(claim(other, table.id, "w", LONG))

    thread = threading.Thread(target=take)
    with conn.transaction():
        definitions.drop(conn, [table.id])
        thread.start()
        thread.join(0.3)
        assert thread.is_alive(), "it waits for the drop"
    thread.join()
    assert found == [None]


def test_a_claim_is_let_go_where_nobody_answers(conn, migrated):
    table = definitions.create(conn, Definition(parse_name("t"), "SELECT 1", DOWNSTREAM), RESOLVED, [])
    other = db.connect(migrated)
    held = claim(other, table.id, "w", LONG)
    conn.execute("SELECT pg_terminate_backend(%s)", (other.info.backend_pid,))
    release(other, held)
    release(other, held)
    other.close()
    require_claim(conn, held)
