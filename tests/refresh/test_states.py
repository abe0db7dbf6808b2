"""Hidden states: what is kept beside a table, when it is used, and what happens when it can't be."""

from __future__ import annotations

from typing import Any

import pytest

from lakemill.core import top
from lakemill.core.refresh import Action
from lakemill.lake.listing import list_tables
from lakemill.runtime import carry
from tests.refresh.mill import Mill, counts, did, hidden, run, states_of

pytestmark = pytest.mark.spark
PARTS = (
    "SELECT k, count(*) AS n, count(name) AS c, sum(id) AS t, avg(id) AS a, min(id) AS lo, max(name) AS hi"
    " FROM r GROUP BY k"
)


def test_a_group_changes_by_what_is_added(mill: Mill) -> None:
    mill.create("parts", PARTS)
    mill.tell("INSERT INTO r VALUES (200, 3, 1, NULL), (200, 3, 1, NULL), (-7, NULL, 1, 'zz')")
    record = mill.refresh("parts")
    assert (did(record), counts(record)) == ((Action.MERGE, "MERGE"), (2, 1))
    assert record.records_read is not None
    assert record.records_read < 40, "the source is not read"
    mill.tell("UPDATE r SET id = id + 1 WHERE id = 5", "DELETE FROM r WHERE k = 4")
    assert counts(mill.refresh("parts")) == (1, 2)


def test_a_group_that_lost_its_least_is_computed_anew(mill: Mill) -> None:
    mill.create("parts", PARTS)
    mill.tell("DELETE FROM r WHERE id = 13")  # of the group of 3, neither the least nor the largest
    within = mill.refresh("parts")
    mill.tell("DELETE FROM r WHERE id = 3")
    least = mill.refresh("parts")
    assert [did(record)[0] for record in (within, least)] == [Action.MERGE, Action.MERGE]
    assert (within.records_read or 0) < (least.records_read or 0), "only then is the source read"
    assert mill.rows("SELECT lo FROM parts WHERE k = 3") == [(23,)]


def test_everything_over_groups_is_computed_from_the_state(mill: Mill) -> None:
    mill.create("total", "SELECT count(*) AS n, sum(id) AS t, max(k) AS z FROM r")
    mill.create("best", "SELECT k, sum(id) AS t FROM r GROUP BY k ORDER BY t DESC, k LIMIT 3")
    mill.create("missing", "SELECT k FROM s WHERE k NOT IN (SELECT k FROM r WHERE id > 3)")
    for change in ("DELETE FROM r WHERE k IN (2, 9)", "INSERT INTO r VALUES (60, NULL, 1, NULL)", "DELETE FROM r"):
        mill.tell(change)
        for name in ("total", "best", "missing"):
            assert mill.refresh(name).action is Action.MERGE, (change, name)


def test_the_first_rows_of_an_order(mill: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "SPARE", 2)  # the state begins with 8 rows, of which 3 are needed
    mill.create("last", "SELECT id, k, name FROM r ORDER BY id DESC LIMIT 3")
    mill.create("first", "SELECT k FROM r ORDER BY name DESC NULLS LAST, id LIMIT 2 OFFSET 1")
    read = {}
    for why, change in {
        "beyond": "DELETE FROM r WHERE id < 3",
        "on top": "INSERT INTO r VALUES (900, 1, 1, 'z'), (900, 1, 1, 'z'), (901, NULL, 1, NULL)",
        "one of two": "DELETE FROM r WHERE id IN (901, 39)",
        "too many": "DELETE FROM r WHERE id >= 20",
        "all": "DELETE FROM r",
        "again": "INSERT INTO r VALUES (1, 1, 1, NULL)",
    }.items():
        mill.tell(change)
        for name in ("last", "first"):
            record = mill.refresh(name)
            assert record.action is Action.MERGE, (why, name)
            read[why, name] = record.records_read or 0
    assert read["on top", "last"] < 25, "the source is not read"
    assert read["too many", "last"] > read["one of two", "last"], "only then is it"


def test_extremes_of_rows_that_were_never_there(mill: Mill) -> None:
    mill.create("low", "SELECT s.w, min(r.id) AS lo, max(r.id) AS hi FROM r JOIN s ON r.k = s.k GROUP BY s.w")
    mill.tell("INSERT INTO r VALUES (-5, 3, 1, 'x'), (500, 3, 1, 'x')", "DELETE FROM s WHERE k = 3")
    assert mill.refresh("low").action is Action.MERGE


def test_what_is_kept_of_no_rows_is_read_back(mill: Mill) -> None:
    mill.tell("DELETE FROM r")
    mill.create("total", "SELECT max(t) AS m, count(*) AS n FROM (SELECT k, sum(id) AS t FROM r GROUP BY k)")
    assert mill.rows("FROM total") == [(None, 0)]
    mill.tell("INSERT INTO r VALUES (4, 1, 1, 'x')")
    assert did(mill.refresh("total"))[0] is Action.MERGE


def test_an_average_of_decimals_is_rounded_once(mill: Mill) -> None:
    mill.tell("CREATE TABLE d (k INTEGER, x DECIMAL(5, 2))", "INSERT INTO d VALUES (1, 0.1), (1, 0.2), (2, 5)")
    mill.create("enough", "SELECT k, avg(x) AS a FROM d GROUP BY k HAVING avg(x) >= 0.2")
    mill.tell("INSERT INTO d VALUES (1, 0.3)")
    assert mill.refresh("enough").action is Action.MERGE
    assert mill.rows("SELECT a FROM enough WHERE k = 1") == [(0.2,)]


def expire(mill: Mill, *snapshots: int) -> None:
    """As somebody else does it, who asks nobody."""
    mill.tell(f"CALL ducklake_expire_snapshots('lake', versions => {list(snapshots)})")


def test_what_computes_nothing_new_makes_no_snapshot(mill: Mill) -> None:
    first = mill.create("parts", PARTS)
    mill.create("first", "SELECT id, v FROM r ORDER BY v DESC, id LIMIT 3")
    mill.create("reader", "SELECT k FROM parts WHERE n > 1")
    assert first is not None
    mill.tell("INSERT INTO s VALUES (1, 1)")
    head = mill.lake.snapshot().id
    whole = mill.refresh("parts", full=True)
    assert (did(whole), counts(whole), whole.commit) == ((Action.FULL, "REQUESTED"), (0, 0), first.commit)
    mill.tell("CREATE OR REPLACE TABLE r AS FROM r")
    for name in ("parts", "first"):
        replaced = mill.refresh(name)
        assert (did(replaced), counts(replaced)) == ((Action.REINITIALIZE, "TABLE_REPLACED"), (0, 0))
    assert mill.refresh("parts").commit == first.commit, "it is the same content"
    assert did(mill.refresh("reader"))[0] is Action.NO_DATA
    run(mill, "ALTER DYNAMIC TABLE parts SET REFRESH_MODE = INCREMENTAL")
    assert mill.lake.snapshot().id == head + 1, "nothing but the replaced source"
    mill.tell("INSERT INTO r VALUES (70, 3, 100, 'x')")
    assert [did(mill.refresh(name))[0] for name in ("parts", "first")] == [Action.MERGE, Action.MERGE]


def test_the_commit_moves_where_somebody_wrote_what_is_right(mill: Mill) -> None:
    first = mill.create("parts", PARTS)
    assert first is not None
    mill.tell("UPDATE parts SET n = n + 1", "UPDATE parts SET n = n - 1")
    head = mill.lake.snapshot().id
    record = mill.refresh("parts")
    assert (did(record), counts(record)) == ((Action.REINITIALIZE, "FOREIGN_WRITE"), (0, 0))
    assert record.commit == mill.lake.snapshot().id >= head
    mill.tell("INSERT INTO r VALUES (70, 3, 1, 'x')")
    assert did(mill.refresh("parts"))[0] is Action.MERGE


TAMPERED = {
    "rows": ["DELETE FROM {} WHERE key0 = 3", "UPDATE {} SET part0 = part0 + 1 WHERE key0 = 4"],
    "rows, and back": ["UPDATE {} SET part0 = part0 + 1", "UPDATE {} SET part0 = part0 - 1"],
    "columns": ["ALTER TABLE {} ADD COLUMN more INTEGER"],
    "NOT NULL": ["ALTER TABLE {} ALTER key0 SET NOT NULL"],
    "name": ["ALTER TABLE {} RENAME TO other"],
    "no table": ["DROP TABLE {}"],
}


@pytest.mark.parametrize("past", ["replaced", "gone"])
@pytest.mark.parametrize("what", TAMPERED)
def test_a_state_that_somebody_changed_is_put_right(mill: Mill, what: str, past: str) -> None:
    first = mill.create("parts", PARTS)
    assert first is not None
    assert first.commit is not None
    (name,) = hidden(mill)
    mill.tell(*(statement.format(f"_lakemill.{name}") for statement in TAMPERED[what]))
    written = range(first.commit, mill.lake.snapshot().id + 1)
    mill.tell("CREATE OR REPLACE TABLE r AS FROM r")
    if past == "gone":  # and with the commits the knowledge that somebody wrote
        expire(mill, *written)
    assert did(mill.refresh("parts")) == (
        Action.REINITIALIZE,
        "SNAPSHOT_GONE" if past == "gone" else "TABLE_REPLACED",
    )
    assert hidden(mill) == [name]
    head = mill.lake.snapshot().id
    assert did(mill.refresh("parts"))[0] is Action.NO_DATA
    assert counts(mill.refresh("parts", full=True)) == (0, 0)
    assert mill.lake.snapshot().id == head, "the state is what it should be"
    mill.tell("INSERT INTO r VALUES (70, 3, 1, 'x'), (71, NULL, 1, 'x')", "DELETE FROM r WHERE id = 14")
    assert did(mill.refresh("parts"))[0] is Action.MERGE


def test_what_nobody_can_vouch_for_is_compared(mill: Mill) -> None:
    first = mill.create("parts", PARTS)
    assert first is not None
    assert first.commit is not None
    (state,) = states_of(mill, "parts")
    mill.tell("INSERT INTO s VALUES (1, 1)")
    expire(mill, first.commit)
    head = mill.lake.snapshot().id
    record = mill.refresh("parts", full=True)
    assert (did(record), counts(record)) == ((Action.REINITIALIZE, "SNAPSHOT_GONE"), (0, 0))
    assert (mill.lake.snapshot().id, record.commit) == (head, head)
    (now,) = states_of(mill, "parts")
    assert (now.table_id, now.commit) == (state.table_id, head)
    mill.tell("INSERT INTO r VALUES (70, 3, 1, 'x')")
    assert did(mill.refresh("parts"))[0] is Action.MERGE


def test_a_state_that_is_written_while_it_is_compared(mill: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    mill.create("parts", PARTS)
    (name,) = hidden(mill)
    compare, struck = carry._Carrying.compared_states, []

    def late(self: Any, *arguments: Any) -> Any:
        found = compare(self, *arguments)
        if not struck:
            struck.append(True)
            mill.tell(f"DELETE FROM _lakemill.{name} WHERE key0 = 3")
        return found

    monkeypatch.setattr(carry._Carrying, "compared_states", late)
    assert counts(mill.refresh("parts", full=True)) == (0, 0)
    mill.tell("INSERT INTO r VALUES (70, 3, 1, 'x')")
    assert did(mill.refresh("parts")) == (Action.REINITIALIZE, "STATE_LOST")
    struck.clear()
    mill.tell("INSERT INTO r VALUES (71, 3, 1, 'x')", "CREATE OR REPLACE TABLE r AS FROM r")
    assert did(mill.refresh("parts"))[0] is Action.REINITIALIZE
    assert struck
    mill.tell("INSERT INTO r VALUES (72, 3, 1, 'x')")
    assert did(mill.refresh("parts"))[0] is Action.MERGE


def test_states_are_ours(mill: Mill) -> None:
    mill.create("parts", PARTS)
    (name,) = hidden(mill)
    listed = list_tables(mill.lake.conn, mill.lake.settings.lake.catalog_schema, mill.lake.snapshot().id)
    assert [found.name for found in listed] == ["parts", "r", "s"]
    mill.tell(f"DELETE FROM _lakemill.{name} WHERE key0 = 3")
    assert did(mill.refresh("parts"))[0] is Action.NO_DATA, "its content is right as it is"
    mill.tell("INSERT INTO r VALUES (70, 3, 1, 'x')")
    assert did(mill.refresh("parts")) == (Action.REINITIALIZE, "STATE_LOST")
    mill.tell("INSERT INTO r VALUES (71, 3, 1, 'x')")
    assert did(mill.refresh("parts"))[0] is Action.MERGE
    run(mill, "DROP DYNAMIC TABLE parts")
    assert hidden(mill) == []


def test_a_mode_without_states_and_back(mill: Mill) -> None:
    mill.create("parts", PARTS)
    run(mill, "ALTER DYNAMIC TABLE parts SET REFRESH_MODE = FULL")
    mill.tell("INSERT INTO r VALUES (70, 3, 1, 'x')")
    assert did(mill.refresh("parts"))[0] is Action.FULL
    assert (states_of(mill, "parts"), hidden(mill)) == ((), [])
    mill.tell("DELETE FROM r WHERE id = 70")
    assert did(mill.refresh("parts"))[0] is Action.FULL, "and stays so"
    run(mill, "ALTER DYNAMIC TABLE parts SET REFRESH_MODE = INCREMENTAL")
    mill.tell("INSERT INTO r VALUES (71, 3, 1, 'x')")
    assert did(mill.refresh("parts")) == (Action.REINITIALIZE, "STATE_LOST")
    mill.tell("INSERT INTO r VALUES (72, 3, 1, 'x')")
    assert did(mill.refresh("parts"))[0] is Action.MERGE


def test_a_quiet_table_outlives_the_snapshots_after_it(mill: Mill) -> None:
    mill.create("parts", PARTS)
    mill.tell(*(f"INSERT INTO s VALUES ({i}, {i})" for i in range(3)))
    gone = mill.lake.snapshot().id - 1  # its label goes with it
    mill.tell(f"CALL ducklake_expire_snapshots('lake', versions => [{gone}])")
    mill.tell("INSERT INTO r VALUES (70, 3, 1, 'x')")
    assert did(mill.refresh("parts"))[0] is Action.MERGE
