"""ADAPTIVE: deltas or the whole query, whichever was quicker; and what becomes of hidden states meanwhile."""

from __future__ import annotations

import pytest

from lakemill.core import experience
from lakemill.core.names import parse_name
from lakemill.core.refresh import Action
from lakemill.runtime import show, upkeep
from lakemill.runtime.refresh import explain
from lakemill.store import history
from tests.conftest import SECOND_JVM
from tests.refresh.mill import Mill, did, hidden, run, states_of

pytestmark = [pytest.mark.spark, SECOND_JVM]
ADAPTIVE = "REFRESH_MODE = ADAPTIVE CARDINALITY_THRESHOLD = 1"
SUMS = "SELECT k, count(*) AS n, sum(id) AS t FROM r GROUP BY k"
INITIAL, MERGE = (Action.INITIALIZE, "FIRST_LOAD"), (Action.MERGE, "MERGE")
CHEAPER, FILLED = (Action.FULL, "FULL_IS_CHEAPER"), (Action.FULL, "STATES_FILLED")


def more(mill: Mill, rows: int) -> None:
    mill.tell(f"INSERT INTO r SELECT i, i % 3, 0, 'x' || i FROM range({rows}) t(i)")


def slow(mill: Mill, action: str = "MERGE") -> None:
    """As if refreshes of this kind had taken an hour."""
    mill.lake.conn.execute(
        "UPDATE lakemill.refreshes SET ended_at = started_at + interval '1 hour' WHERE action = %s", [action]
    )


@pytest.fixture
def large(mill: Mill) -> Mill:
    """Of a small table all bytes are fewer than those of a delta and a state."""
    more(mill, 50_000)
    return mill


def test_what_is_slower_is_given_up_and_tried_again(large: Mill) -> None:
    mill = large
    created = mill.create("sums", SUMS, ADAPTIVE)
    assert created is not None
    assert did(created) == INITIAL
    more(mill, 10)
    assert did(mill.refresh("sums")) == MERGE
    slow(mill)
    more(mill, 6)
    plan, *_ = explain(mill.lake, parse_name("sums"))
    assert (plan.reason.code, plan.states) == ("FULL_IS_CHEAPER", False)
    assert len(hidden(mill)) == 1
    assert did(mill.refresh("sums")) == CHEAPER
    assert "3600.0 s" in (history.history(mill.lake.conn, most=1)[0].reason or "")
    assert (states_of(mill, "sums"), hidden(mill)) == ((), [])
    assert did(mill.refresh("sums"))[0] is Action.NO_DATA
    more(mill, 6)
    assert did(mill.refresh("sums")) == CHEAPER
    assert did(mill.refresh("sums", full=True)) == (Action.FULL, "REQUESTED")
    assert hidden(mill) == [], "who asks for FULL does not ask for states"
    more(mill, 5)  # half as many rows as it took an hour for
    assert did(mill.refresh("sums")) == FILLED
    assert len(hidden(mill)) == len(states_of(mill, "sums")) == 1
    more(mill, 5)
    assert did(mill.refresh("sums")) == MERGE
    slow(mill)
    more(mill, 5)
    assert did(mill.refresh("sums")) == CHEAPER
    run(mill, "DROP DYNAMIC TABLE sums")
    assert hidden(mill) == []


def test_after_a_while_deltas_are_tried_again(large: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experience, "AGAIN", 2)
    mill = large
    # two states: the groups, and the first of them
    mill.create("best", "SELECT k, count(*) AS n FROM r GROUP BY k ORDER BY n DESC, k LIMIT 3", ADAPTIVE)
    assert len(hidden(mill)) == 2
    found = []
    for _ in range(7):
        more(mill, 10)
        found.append(did(mill.refresh("best")))
        assert len(hidden(mill)) == len(states_of(mill, "best")) == (0 if found[-1] == CHEAPER else 2)
        slow(mill)
    assert found == [MERGE, CHEAPER, CHEAPER, FILLED, MERGE, CHEAPER, CHEAPER]


def test_bytes_decide(large: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experience, "AGAIN", 2)
    mill = large
    mill.create("sums", SUMS, ADAPTIVE)
    mill.tell("UPDATE r SET v = v + 1, id = id + 1")  # what goes and what comes are twice the table
    assert did(mill.refresh("sums")) == CHEAPER
    assert hidden(mill) == []
    for expected in (CHEAPER, FILLED, MERGE):  # deltas were never tried, so nothing speaks for states at once
        more(mill, 10)
        assert did(mill.refresh("sums")) == expected
    slow(mill, "FULL")  # so that deltas are known to be quick
    mill.tell("UPDATE r SET v = v + 1, id = id + 1")
    assert did(mill.refresh("sums")) == (Action.FULL, "LARGE_DELTA")
    assert len(hidden(mill)) == 1, "one large change is no reason to give them up"
    more(mill, 10)
    assert did(mill.refresh("sums")) == MERGE


def test_states_as_large_as_their_source(large: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experience, "AGAIN", 2)
    mill = large
    mill.create("names", "SELECT name, count(*) AS n FROM r GROUP BY name ORDER BY n DESC, name LIMIT 3", ADAPTIVE)
    found = []
    for _ in range(5):
        more(mill, 10)
        found.append(did(mill.refresh("names")))
    assert found == [CHEAPER, CHEAPER, FILLED, CHEAPER, CHEAPER], "now and then it is looked at how large they are"


def test_consumers_and_upkeep_go_on(large: Mill) -> None:
    mill = large
    mill.create("sums", SUMS, ADAPTIVE)
    mill.create("large", "SELECT k, t FROM sums WHERE n > 100", "REFRESH_MODE = INCREMENTAL")
    more(mill, 10)
    assert did(mill.refresh("sums")) == MERGE
    slow(mill)
    for rows, expected in ((10, CHEAPER), (10, CHEAPER), (5, FILLED), (5, MERGE)):
        more(mill, rows)
        assert did(mill.refresh("large"))[0] is Action.DELTA
        supplier = history.history(mill.lake.conn, most=2)[1]
        assert (supplier.name.name, did(supplier)) == ("sums", expected)
        mill.judge("sums", "large")
        upkeep.compact_all(mill.lake)
        upkeep.expire(mill.lake)
        assert {one.table.name.name for one in show.show(mill.lake)} == {"sums", "large"}
        assert show.describe(mill.lake, parse_name("sums"))


def test_nothing_but_states_goes(large: Mill) -> None:
    """A whole refresh that finds its table as it should be gives them up all the same."""
    mill = large
    mill.create("sums", SUMS, ADAPTIVE)
    more(mill, 10)
    mill.refresh("sums")
    slow(mill)
    mill.tell("UPDATE r SET name = 'other' WHERE id < 10", "UPDATE r SET id = id WHERE id < 10")
    record = mill.refresh("sums")
    assert (did(record), record.rows_inserted, record.rows_deleted) == (CHEAPER, 0, 0)
    assert hidden(mill) == []
    assert did(mill.refresh("sums"))[0] is Action.NO_DATA


def test_another_mode_and_back(large: Mill) -> None:
    mill = large
    mill.create("sums", SUMS, "REFRESH_MODE = FULL")
    run(mill, "ALTER DYNAMIC TABLE sums SET REFRESH_MODE = ADAPTIVE")
    more(mill, 10)
    assert did(mill.refresh("sums")) == FILLED
    more(mill, 10)
    assert did(mill.refresh("sums")) == MERGE
    slow(mill)
    more(mill, 10)
    assert did(mill.refresh("sums")) == CHEAPER
    run(mill, "ALTER DYNAMIC TABLE sums SET REFRESH_MODE = INCREMENTAL")
    more(mill, 10)
    assert did(mill.refresh("sums")) == (Action.REINITIALIZE, "STATE_LOST")
