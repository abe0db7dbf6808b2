"""What upkeep the service did by itself, and when it last looked for some: so that the next process goes on from there.

``core/tending`` decides by it; ``runtime/tending`` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from lakemill.core.tending import Outcome, Tended
from lakemill.store.db import Executor
from lakemill.store.queries import load_queries

QUERIES = load_queries("tended")
LAKE = 0
"""Stands for the table of a job that is of the whole lake."""


def looked(where: Executor, policies: Iterable[str], now: datetime) -> Mapping[str, datetime]:
    """When each of these policies was last looked at; one that nobody has heard of is from now on."""
    values = {"policies": list(policies), "now": now}
    return {row[0]: row[1] for row in where.execute(QUERIES["looked"].compose(), values).fetchall()}


def last_looks(where: Executor) -> Mapping[str, datetime]:
    """When each policy was last looked at."""
    return dict(where.execute(QUERIES["last_looks"].compose()).fetchall())


def look(where: Executor, policies: Iterable[str], now: datetime) -> None:
    where.execute(QUERIES["look"].compose(), {"policies": list(policies), "now": now})


def remember(where: Executor, job: str, table_id: int, outcome: Outcome, reason: str = "", mark: str = "") -> None:
    values = {"job": job, "table_id": table_id, "outcome": outcome.value, "reason": reason, "mark": mark}
    where.execute(QUERIES["remember"].compose(), values)


def tended(where: Executor) -> Mapping[tuple[str, int], Tended]:
    """By job and table: how the last one went."""
    rows = where.execute(QUERIES["tended"].compose()).fetchall()
    return {(row[0], row[1]): Tended(row[0], row[1], row[2], Outcome(row[3]), *row[4:]) for row in rows}


def forget(where: Executor, tables: Iterable[int]) -> None:
    """Of all but these tables, and the lake."""
    where.execute(QUERIES["forget"].compose(), {"tables": list(tables)})
