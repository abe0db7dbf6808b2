"""A publish with the bookkeeping of a refresh: content, frontier, record and claim move together or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lakemill.core.commit import Check
from lakemill.core.definition import DOWNSTREAM, Definition, RefreshMode
from lakemill.core.lag import Version
from lakemill.core.names import parse_name
from lakemill.core.refresh import Action, Outcome, State, Trigger
from lakemill.errors import ClaimLost, DefinitionChanged, FrontierMoved, LakemillError
from lakemill.store import claims, definitions, history, versions
from lakemill.store.definitions import DynamicTable, OutputColumn, Resolved
from lakemill.store.history import RefreshRecord
from lakemill.store.versions import SourceRead
from tests.conftest import TestLake
from tests.publishing import Desk, one_desk

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
RESOLVED = Resolved("SELECT 1 AS k", RefreshMode.FULL, "a test", (OutputColumn("k", "INTEGER"),))


@pytest.fixture
def desk(lake: TestLake) -> Iterator[Desk]:
    with one_desk(lake) as desk:
        yield desk


def refresh(desk: Desk, table: DynamicTable, held: claims.Claim, expected: int | None) -> None:
    """One row more, as a refresh would publish it."""
    b, lake_table = desk.head(), desk.table()
    started = NOON + timedelta(seconds=len(history.history(desk.conn)))
    record = RefreshRecord(uuid.uuid4(), table.id, table.name, 1, Trigger.MANUAL, started, b=b, fence=held.fence)
    history.save_refresh(desk.conn, record)

    def more(cursor, snapshot):
        version = Version(snapshot, b, b, table.definition_version, lake_table.id)
        versions.move_frontier(cursor, table.id, version, NOON, [SourceRead(3, 0, b, 1)], expected)
        done = replace(record, outcome=Outcome.SUCCEEDED, action=Action.INITIALIZE, commit=snapshot, ended_at=NOON)
        history.save_refresh(cursor, done)

    claimed = Check("claim", lambda cursor, _: claims.require_claim(cursor, held))
    desk.append("SELECT 1::INTEGER AS k", requires=[claimed], more=more)


def test_they_move_together_or_not_at_all(desk: Desk) -> None:
    desk.make("k INTEGER")
    table = definitions.create(desk.conn, Definition(parse_name("t"), "SELECT 1", DOWNSTREAM), RESOLVED, [])
    held = claims.claim(desk.conn, table.id, "w1", timedelta(minutes=5))
    assert held is not None
    refresh(desk, table, held, None)
    front = versions.frontier(desk.conn, table.id)
    assert front is not None
    assert front.version.commit == desk.head()
    after = definitions.by_id(desk.conn, table.id)
    assert (after.state, after.table_id) == (State.ACTIVE, desk.table().id)
    (done,) = history.history(desk.conn)
    assert (done.outcome, done.commit) == (Outcome.SUCCEEDED, desk.head())

    def refused(error: type[LakemillError], held: claims.Claim, expected: int | None) -> None:
        head = desk.head()
        with pytest.raises(error):
            refresh(desk, table, held, expected)
        assert desk.head() == head
        assert desk.stock("SELECT count(*) FROM t") == [(1,)]
        assert versions.frontier(desk.conn, table.id) == front
        assert history.history(desk.conn, most=1)[0].outcome is Outcome.EXECUTING
        history.forget_refreshes(desk.conn, NOON + timedelta(days=1))
        desk.conn.execute("DELETE FROM lakemill.refreshes")

    refused(FrontierMoved, held, None)
    claims.release(desk.conn, held)
    refused(ClaimLost, held, front.version_id)
    other = claims.claim(desk.conn, table.id, "w2", timedelta(minutes=5))
    assert other is not None
    refused(ClaimLost, held, front.version_id)
    definitions.declare(desk.conn, table, table.definition, RESOLVED, [])
    refused(DefinitionChanged, other, front.version_id)
