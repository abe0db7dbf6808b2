"""What a refresh that ended means for the next ones: of its table, and of those that wait for it.

After line 11, in the transaction that ends the work. A worker does it for what its slots have done, and for a slot that
does not come back (``runtime/slots``).
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from lakemill.core.refresh import Action, Outcome, Trigger
from lakemill.core.retry import suspends
from lakemill.errors import UnknownDynamicTable, of_code
from lakemill.runtime import recording
from lakemill.runtime.halting import suspend_failing
from lakemill.store import definitions, work

if TYPE_CHECKING:
    from lakemill.core.scan import Snapshot
    from lakemill.runtime.open import Lake
    from lakemill.store.history import RefreshRecord
    from lakemill.store.work import Work


def trigger_of(found: Work) -> Trigger:
    return Trigger.MANUAL if found.manual else Trigger.SCHEDULED


def account(lake: Lake, found: Work, b: Snapshot, record: RefreshRecord) -> None:
    if record.outcome is Outcome.SUCCEEDED:
        work.recovered(lake.conn, [record.dynamic_id])
        if record.action is not Action.NO_DATA and record.seconds is not None:
            work.took(lake.conn, record.dynamic_id, timedelta(seconds=record.seconds))
        return
    if record.outcome is Outcome.FAILED and not found.manual:  # whoever asked is told, and may ask again
        error = of_code(record.error_code or "")
        failure = work.failed(lake.conn, record.dynamic_id, b.id, error)
        others = work.most_lost(lake.conn, record.dynamic_id, error.code)
        if failure is not None and suspends(failure, error, lake.settings.service.suspend_after, others):
            suspend_failing(lake, record.dynamic_id, f"{failure.count} refreshes failed in a row: {error.code}")
    for work_id, dynamic_id, manual in work.waiting_for(lake.conn, found.id):
        with suppress(UnknownDynamicTable):
            trigger = Trigger.MANUAL if manual else Trigger.SCHEDULED
            recording.skipped(lake, definitions.by_id(lake.conn, dynamic_id), record, trigger, b)
        work.pass_over(lake.conn, [dynamic_id])
        work.done(lake.conn, "", [work_id])
