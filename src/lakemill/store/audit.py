"""The audit log: queries and administrative actions, with who asked and how it ended. Never a secret.

Texts are cut to a length and rid of keys and JWTs on the way in, whatever the caller did about that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from lakemill.core.keys import masked
from lakemill.settings import without_password
from lakemill.store.db import Executor
from lakemill.store.queries import load_queries

QUERIES = load_queries("audit")
LONGEST = 10_000
"""Characters of a query that are kept."""


class Ended(StrEnum):
    DONE = "done"
    REFUSED = "refused"
    """The caller may not, or what it asked for can't be meant."""
    FAILED = "failed"


@dataclass(slots=True)
class Action:
    """What somebody does; whoever does it fills in the rest as it becomes known."""

    who: str
    action: str
    trace_id: str
    tenant: str | None = None
    about: str | None = None
    sql: str | None = None
    tables: Sequence[str] = ()
    snapshot: int | None = None
    rows: int | None = None
    seconds: float | None = None
    outcome: Ended = Ended.DONE
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    id: int
    at: datetime
    who: str
    tenant: str | None
    action: str
    about: str | None
    outcome: Ended
    code: str | None
    trace_id: str
    sql: str | None
    tables: tuple[str, ...]
    snapshot: int | None
    rows: int | None
    seconds: float | None


def record(where: Executor, done: Action) -> None:
    values = {
        "who": _clean(done.who),
        "tenant": done.tenant,
        "action": done.action,
        "about": done.about and _clean(done.about),
        "outcome": done.outcome.value,
        "code": done.code,
        "trace_id": done.trace_id,
        "sql": done.sql and _clean(done.sql),
        "tables": list(map(_clean, done.tables)),
        "snapshot": done.snapshot,
        "rows": done.rows,
        "seconds": done.seconds,
    }
    where.execute(QUERIES["record"].compose(), values)


def entries(
    where: Executor,
    limit: int,
    *,
    before: int | None = None,
    tenant: str | None = None,
    who: str | None = None,
    action: str | None = None,
) -> tuple[Entry, ...]:
    """The newest first; ``before`` starts below that id."""
    values = {"limit": limit, "before": before, "tenant": tenant, "who": who, "action": action}
    return tuple(map(_entry, where.execute(QUERIES["entries"].compose(), values).fetchall()))


def forget(where: Executor, before: datetime) -> int:
    return where.execute(QUERIES["forget"].compose(), {"before": before}).rowcount


def _clean(text: str) -> str:
    text = masked(without_password(text)).replace("\x00", "�")
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _entry(row: Sequence[Any]) -> Entry:
    id_, at, who, tenant, action, about, outcome, code, trace_id, sql, tables, snapshot, rows, seconds = row
    ended = Ended(outcome)
    return Entry(
        id_, at, who, tenant, action, about, ended, code, trace_id, sql, tuple(tables), snapshot, rows, seconds
    )
