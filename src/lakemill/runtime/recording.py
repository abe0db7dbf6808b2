"""What is remembered of a refresh that did not publish, and of one whose publish was not answered.

A success is saved by the publish itself, in its transaction; so the record is also what tells, afterwards, whether an
unanswered publish happened. What never got to work, because somebody else was at it, is told and not remembered.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakemill.core.experience import AGAIN, Experience, Past, learnt
from lakemill.core.refresh import Outcome, Trigger
from lakemill.errors import (
    ClaimLost,
    FrontierMoved,
    LakemillError,
    OutcomeUnknown,
    PublishTimedOut,
    Stopped,
    UpstreamFailed,
)
from lakemill.store import db, history
from lakemill.store.history import RefreshRecord, SourceDelta

if TYPE_CHECKING:
    from lakemill.core.scan import Snapshot
    from lakemill.runtime.open import Lake
    from lakemill.runtime.window import Window
    from lakemill.store.definitions import DynamicTable


def failed(lake: Lake, record: RefreshRecord, error: LakemillError) -> RefreshRecord:
    """The record of a failure, saved; not so where all that it did was to wait for somebody else."""
    waited = isinstance(error, ClaimLost) and record.fence is None
    how = Outcome.SKIPPED if waited else Outcome.CANCELLED if isinstance(error, Stopped) else Outcome.FAILED
    ended = _ended(record, error, how)
    if not waited:
        history.save_refresh(lake.conn, ended)
    return ended


def settled(lake: Lake, record: RefreshRecord, error: OutcomeUnknown) -> RefreshRecord:
    """What became of a publish that was not answered; where even that can't be asked, the next refresh finds out.

    Then nothing is saved: the record in the store is the publish's, or says EXECUTING until somebody closes it.
    """
    try:
        with db.connect(lake.dsn) as conn:  # the lake's own connection may be what was lost
            found = history.settled(conn, record.id)
            if found is not None and found.outcome is Outcome.SUCCEEDED:
                return found
            ended = _ended(record, PublishTimedOut("the answer to COMMIT was lost; nothing was published"))
            history.save_refresh(conn, ended)
            return ended
    except LakemillError:
        return _ended(record, error)


def left_behind(
    lake: Lake,
    table: DynamicTable,
    trigger: Trigger,
    b: Snapshot,
    holder: str,
    since: datetime,
    error: LakemillError,
) -> RefreshRecord:
    """The record of one whose thread does not come back: the one that it began, where it came that far."""
    begun = [
        record
        for record in history.history(lake.conn, table.id)
        if record.outcome is Outcome.EXECUTING and record.holder == holder
    ]
    new = RefreshRecord(uuid.uuid4(), table.id, table.name, table.definition_version, trigger, since, b=b.id)
    ended = _ended(begun[0] if begun else new, error)
    history.save_refresh(lake.conn, ended)
    history.end_progress(lake.conn, ended.id)
    return ended


def overtaken(lake: Lake, record: RefreshRecord, error: FrontierMoved) -> None:
    """One that had begun, and is not needed any more: somebody brought the table further."""
    if record.fence is not None:
        history.save_refresh(lake.conn, _ended(record, error, Outcome.SKIPPED))


def skipped(lake: Lake, table: DynamicTable, cause: RefreshRecord, trigger: Trigger, b: Snapshot) -> RefreshRecord:
    """The record of one that was not tried, because what it reads could not be refreshed."""
    now = datetime.now(UTC)
    record = RefreshRecord(
        uuid.uuid4(),
        table.id,
        table.name,
        table.definition_version,
        trigger,
        now,
        outcome=Outcome.UPSTREAM_FAILED,
        b=b.id,
        ended_at=now,
        error_code=UpstreamFailed.code,
        error_text=f"{cause.name} could not be refreshed",
    )
    if cause.outcome is not Outcome.SKIPPED:
        history.save_refresh(lake.conn, record)
    return record


def deltas(window: Window) -> tuple[SourceDelta, ...]:
    return tuple(
        SourceDelta(
            found.source.name, found.table.id, found.a, found.b, found.delta.rows_changed if found.delta else None
        )
        for found in window.sources
    )


def experience(lake: Lake, table: DynamicTable, *, stateful: bool) -> Experience | None:
    """What the last refreshes by this definition teach; ``stateful``: its query has hidden states."""
    past = [
        Past(record.action, (record.reason or "").partition(":")[0], record.seconds or 0, record.rows_in or 0)
        for record in history.history(lake.conn, table.id, most=5 * AGAIN, worked=True)
        if record.outcome is Outcome.SUCCEEDED and record.definition_version == table.definition_version
    ]
    return learnt(past, stateful=stateful)


def rows_in(window: Window) -> int | None:
    found = [source.delta for source in window.sources]
    return None if None in found else sum(delta.rows_changed for delta in found if delta is not None)


def _ended(record: RefreshRecord, error: LakemillError, outcome: Outcome = Outcome.FAILED) -> RefreshRecord:
    """What a publish that was rolled back had written into the record did not happen."""
    return replace(
        record,
        outcome=outcome,
        commit=None,
        rows_inserted=None,
        rows_deleted=None,
        bytes_written=None,
        error_code=error.code,
        error_text=error.message + (f" → {error.remedy}" if error.remedy else ""),
        ended_at=datetime.now(UTC),
    )
