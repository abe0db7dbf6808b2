"""A lake with dynamic tables, and the words in which tests speak of it."""

from __future__ import annotations

from typing import Any

import lakemill
from lakemill.core.ddl import parse_definition, parse_script
from lakemill.core.names import parse_name
from lakemill.core.refresh import Action, Outcome, State
from lakemill.core.statement import Change, Drop, Rename
from lakemill.runtime import dynamic, refresh, verify
from lakemill.store import definitions, versions
from lakemill.store.history import RefreshRecord


class Mill:
    """A lake with two tables, and the words of this file."""

    def __init__(self, lake: lakemill.Lake, *, fill: bool = True) -> None:
        self.lake = lake
        if fill:
            self.fill()

    def fill(self) -> None:
        self.tell(
            "CREATE TABLE r (id INTEGER, k INTEGER, v DOUBLE, name VARCHAR)",
            "INSERT INTO r SELECT i, i % 10, i * 1.5, 'n' || (i % 3) FROM range(40) t(i)",
            "CREATE TABLE s (k INTEGER, w INTEGER)",
            "INSERT INTO s SELECT i, i * 10 FROM range(8) t(i)",
        )

    def tell(self, *statements: str) -> None:
        for statement in statements:
            self.lake.sql(statement)

    def create(self, name: str, query: str, options: str = "CARDINALITY_THRESHOLD = 1") -> RefreshRecord | None:
        text = f"CREATE DYNAMIC TABLE {name} TARGET_LAG = '1 minute' {options} AS {query}"
        records = dynamic.create(self.lake, parse_definition(text)).records
        return records[-1] if records else None

    def refresh(self, *names: str, full: bool = False) -> RefreshRecord:
        """The record of the last one; all must be what they should be afterwards."""
        records = refresh.refresh(self.lake, [parse_name(name) for name in names], full=full)
        if records[-1].outcome is Outcome.SUCCEEDED:
            self.judge(*names)
        return records[-1]

    def judge(self, *names: str) -> None:
        for name in names:
            found = verify.verify(self.lake, parse_name(name))
            assert found.equal, found

    def rows(self, query: str) -> list[Any]:
        return self.lake.sql(query).fetchall()

    def state(self, name: str) -> State:
        return definitions.get(self.lake.conn, parse_name(name)).state


def did(record: RefreshRecord) -> tuple[Action | None, str]:
    assert record.outcome is Outcome.SUCCEEDED, record
    return record.action, (record.reason or "").split(":")[0]


def counts(record: RefreshRecord) -> tuple[int | None, int | None]:
    return record.rows_inserted, record.rows_deleted


def hidden(mill: Mill) -> list[str]:
    """The tables of states that there are."""
    found = mill.rows(
        "FROM duckdb_tables() SELECT table_name WHERE database_name = 'lake' AND schema_name = '_lakemill'"
    )
    return sorted(name for (name,) in found)


def states_of(mill: Mill, name: str) -> tuple[versions.SourceRead, ...]:
    frontier = versions.frontier(mill.lake.conn, definitions.get(mill.lake.conn, parse_name(name)).id)
    assert frontier is not None
    return frontier.states


def run(mill: Mill, *script: str) -> None:
    for statement in parse_script(";".join(script)):
        if isinstance(statement, Drop):
            dynamic.drop(mill.lake, statement)
        elif isinstance(statement, Rename):
            dynamic.rename(mill.lake, statement)
        elif isinstance(statement, Change):
            dynamic.change(mill.lake, statement)
        else:
            raise TypeError(statement)
