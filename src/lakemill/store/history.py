"""What every refresh did, why, and what it cost: the records behind ``lakemill history``.

One value from start to end: it is saved when a refresh begins, and again, inside the publish, when it is done; NO_DATA
is saved once. Saving is idempotent by the refresh's id, so that a publish may be tried again. What can't be measured is
None, which people are shown as "unknown".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Json

from lakemill.core.names import QualifiedName
from lakemill.core.refresh import Action, Outcome, Trigger
from lakemill.errors import ClaimLost
from lakemill.store.db import Executor
from lakemill.store.queries import load_queries

QUERIES = load_queries("history")
RECORD = {"record": QUERIES["record"].compose()}


@dataclass(frozen=True, slots=True)
class SourceDelta:
    """What a refresh read of one source: its delta over (a, b], or all of it at b."""

    name: QualifiedName
    table_id: int
    a: int | None
    b: int
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class RefreshRecord:
    id: UUID
    dynamic_id: int
    name: QualifiedName
    """As it was then."""
    definition_version: int
    trigger: Trigger
    started_at: datetime
    outcome: Outcome = Outcome.EXECUTING
    action: Action | None = None
    reason: str | None = None
    remedy: str | None = None
    a: int | None = None
    b: int | None = None
    t: datetime | None = None
    commit: int | None = None
    holder: str | None = None
    fence: int | None = None
    ended_at: datetime | None = None
    rows_in: int | None = None
    rows_inserted: int | None = None
    rows_deleted: int | None = None
    rows_recomputed: int | None = None
    records_read: int | None = None
    bytes_read: int | None = None
    bytes_written: int | None = None
    spark_jobs: int | None = None
    spark_profile: str | None = None
    """None: the session's own settings, fitted to what was read."""
    spark_tasks: int | None = None
    spark_executors: int | None = None
    spilled_bytes: int | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds, in the order of the phases."""
    error_code: str | None = None
    error_text: str | None = None
    sources: tuple[SourceDelta, ...] = ()
    files: int | None = None
    """Written; this and what follows is told by whoever did it, and not remembered."""
    affected_keys: int | None = None
    """Keys that were computed anew, counted for the service; changed rows where nothing has a key; None for all."""
    cardinality_ratio: float | None = None
    """Of all keys, or rows, that there were."""
    cause: Exception | None = field(default=None, compare=False)
    """What nobody foresaw, with its traceback, where that ended it."""

    @property
    def seconds(self) -> float | None:
        """How long it took; None as long as it is not over."""
        return None if self.ended_at is None else (self.ended_at - self.started_at).total_seconds()

    @property
    def dedup_ratio(self) -> float | None:
        """1 − changed rows / recomputed rows; None where one of them is not known, or nothing was recomputed."""
        if not self.rows_recomputed or self.rows_inserted is None or self.rows_deleted is None:
            return None
        return 1 - (self.rows_inserted + self.rows_deleted) / self.rows_recomputed


def save_refresh(where: Executor, record: RefreshRecord) -> None:
    """Remember the refresh as it stands; one that succeeded stays so, whatever its worker was told."""
    values: dict[str, Any] = {field.name: getattr(record, field.name) for field in fields(record)}
    values |= {
        "refresh_id": record.id,
        "schema": record.name.schema,
        "name": record.name.name,
        "trigger": record.trigger.value,
        "outcome": record.outcome.value,
        "action": record.action and record.action.value,
        "phases": Json(dict(record.phases)),
        "positions": list(range(len(record.sources))),
        "schemas": [source.name.schema for source in record.sources],
        "names": [source.name.name for source in record.sources],
        "table_ids": [source.table_id for source in record.sources],
        "commits_a": [source.a for source in record.sources],
        "commits_b": [source.b for source in record.sources],
        "rows": [source.rows for source in record.sources],
    }
    where.execute(QUERIES["save_refresh"].compose(), values)


def settled(where: Executor, refresh_id: UUID) -> RefreshRecord | None:
    """The record as its publish left it, one in flight included: that holds the record until it has ended."""
    where.execute(QUERIES["lock_refresh"].compose(), {"refresh_id": refresh_id})
    values = {"dynamic_ids": None, "refresh_id": refresh_id, "most": 1, "before": None, "worked": False}
    return next(map(_record, where.execute(QUERIES["history"].compose(RECORD), values).fetchall()), None)


def history(
    where: Executor,
    dynamic_id: int | Collection[int] | None = None,
    most: int | None = 10,
    before: datetime | None = None,
    *,
    worked: bool = False,
) -> tuple[RefreshRecord, ...]:
    """The newest first, of one table, of several or of all; ``most`` None is all of them, ``before`` to page back.

    ``worked``: only those that had something to do.
    """
    ids = [dynamic_id] if isinstance(dynamic_id, int) else dynamic_id and list(dynamic_id)
    values = {"dynamic_ids": ids, "refresh_id": None, "most": most, "before": before, "worked": worked}
    return tuple(map(_record, where.execute(QUERIES["history"].compose(RECORD), values).fetchall()))


def called(where: Executor, name: QualifiedName) -> tuple[int, ...]:
    """The tables that had this name at a refresh that is remembered, whatever became of them."""
    rows = where.execute(QUERIES["called"].compose(), {"schema": name.schema, "name": name.name}).fetchall()
    return tuple(row[0] for row in rows)


def last(where: Executor, dynamic_ids: Iterable[int]) -> dict[int, RefreshRecord]:
    """The newest refresh of each of these tables that had one."""
    rows = where.execute(QUERIES["last"].compose(RECORD), {"dynamic_ids": list(dynamic_ids)}).fetchall()
    return {record.dynamic_id: record for record in map(_record, rows)}


def _record(row: Sequence[Any]) -> RefreshRecord:
    """The columns of the query are the fields of a record, in order; only the name is in two parts."""
    refresh_id, dynamic_id, schema, name, version, trigger, started_at, outcome, action, *plain, sources = row
    values = [
        *(refresh_id, dynamic_id, QualifiedName(schema, name), version, Trigger(trigger), started_at),
        *(Outcome(outcome), None if action is None else Action(action)),
        *plain,
        tuple(SourceDelta(QualifiedName(*source[:2]), *source[2:]) for source in sources),
    ]
    return RefreshRecord(*values)


def failures_in_a_row(where: Executor, dynamic_id: int) -> int:
    """Scheduled refreshes that failed since the last success, and since the table was resumed."""
    row = where.execute(QUERIES["failures"].compose(), {"dynamic_id": dynamic_id}).fetchone()
    return int(row[0]) if row else 0


def close_abandoned(where: Executor) -> tuple[UUID, ...]:
    """Refreshes whose worker is gone are recorded as failed; which ones."""
    rows = where.execute(QUERIES["close_abandoned"].compose(), {"code": ClaimLost.code}).fetchall()
    if rows:
        where.execute(QUERIES["forget_progress"].compose())
    return tuple(row[0] for row in rows)


def tell_progress(where: Executor, refresh_id: UUID, told: str) -> None:
    """How far a refresh is, in words; until ``end_progress``."""
    where.execute(QUERIES["tell_progress"].compose(), {"refresh_id": refresh_id, "told": told})


def end_progress(where: Executor, refresh_id: UUID) -> None:
    where.execute(QUERIES["end_progress"].compose(), {"refresh_id": refresh_id})


def progress(where: Executor) -> dict[int, str]:
    """How far the refreshes are that run and take long, by table."""
    return {row[0]: row[1] for row in where.execute(QUERIES["progress"].compose()).fetchall()}


def forget_refreshes(where: Executor, before: datetime) -> int:
    """Old records go, but for the newest of each table; how many went."""
    return where.execute(QUERIES["forget"].compose(), {"before": before}).rowcount
