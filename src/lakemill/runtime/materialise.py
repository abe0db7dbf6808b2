"""One batch of one table, from requests in the bus to rows in a snapshot, exactly once.

Top to bottom: claim the table, read which requests wait, let Spark make rows of them, stage files (and, where the table
has a key, what goes), publish. The publish requires claim and cursor and moves the cursor: rows, dead letters, ledger
and watermark are one transaction. A record that can't become a row is a dead letter; a table that is gone makes dead
letters of all. What fails is left to the next attempt, after a pause, and nothing of it is visible.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakemill.core.batch import Batch, Claim, Letter, Limits, Part
from lakemill.core.commit import Check, Intent, Purpose, Update
from lakemill.core.names import QualifiedName
from lakemill.core.scan import TableAt
from lakemill.core.schema import Column
from lakemill.errors import (
    ClaimLost,
    EngineLost,
    EngineUnreachable,
    InternalError,
    LakemillError,
    PublishConflict,
    TableGone,
)
from lakemill.runtime import write
from lakemill.runtime.claiming import holder
from lakemill.runtime.layouts import MixedColumnsError, layout_of
from lakemill.runtime.meaning import meaning
from lakemill.runtime.overtime import give_back, watched
from lakemill.runtime.sifting import LETTERS, Sifting, TooManyLettersError
from lakemill.spark import bus
from lakemill.spark.profiles import profiled, size_conf
from lakemill.store import db
from lakemill.telemetry import metrics
from lakemill.telemetry.log import failed, log

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake
    from lakemill.runtime.write import Writing


@dataclass(frozen=True, slots=True)
class Passed:
    """What became of a batch."""

    table_id: int
    table: str
    first: int
    upto: int
    requests: int
    records: int
    snapshot_id: int | None
    """None: nothing of it became a row, or all rows were so already."""
    inserted: int
    updated: int
    deleted: int
    letters: int
    seconds: float
    waited: float
    """Seconds from the acceptance of its first request until it was visible."""


def materialise(
    lake: Lake,
    table_id: int,
    stopping: Callable[[], bool] = lambda: False,
    cancel: Callable[[], None] = lambda: None,
) -> Passed | None:
    """Pass the next batch of a table; None when there is none, somebody else has it, or it failed (and was told).

    Where a failure comes while it is ``stopping``, the batch is left to others at once. One that takes too long is
    given back, and its jobs are stopped by ``cancel``. Without Spark, or without PostgreSQL, nobody here can go on:
    that is raised.
    """
    held = lake.consumer.claim(table_id, holder(), lake.settings.ingest.claim_expiry)
    if held is None:
        return None
    started = time.monotonic()
    with watched(lake.settings, lake.dsn, held, cancel) as watch:
        try:
            passed = _fitting(lake, held, started)
        except ClaimLost as error:
            if not watch.late.is_set():
                metrics.count_fenced()
                metrics.count_error(error.code)
                failed("ingest", error, table_id=table_id)
                lake.consumer.release(held)  # should it be ours after all, and only the key another
            return None
        except db.LOST as error:
            failed("ingest", db.unavailable(error), table_id=table_id)
            raise
        except Exception as error:  # whatever it is, the table is tried again, after a pause
            if watch.late.is_set():
                return None  # it was given back, and its jobs were stopped: that is what it says
            if stopping():
                lake.consumer.release(held)
                return None
            told = meaning(error)  # a JVM that is gone has several ways of saying so
            why = error if isinstance(told, InternalError) else told
            if not give_back(lake.consumer, lake.settings, held, why, "failed"):
                failed("ingest", why, table_id=table_id)  # others have it by now, but this should be known
            if isinstance(told, EngineLost | EngineUnreachable):
                raise told from (None if told is error else error)
            return None
    if passed is None:
        lake.consumer.release(held)
    else:
        _tell(passed)
    return passed


def warm(lake: Lake) -> None:
    """Let Spark do once, for nothing, what takes seconds the first time."""
    layout = bus.Layout((Column(1, "k", "int32"),))
    with profiled(lake.spark, size_conf(0)):
        found = bus.judged(bus.requests(lake.spark, lake.consumer, -1, (Part(0, 0, 0, 0),)), layout)
        bus.refusal(bus.sound(found, layout), layout, 0, 0, 0, 0)


def _limits(lake: Lake) -> Limits:
    ingest = lake.settings.ingest
    return Limits(ingest.batch_requests, ingest.batch_records, ingest.batch_bytes, ingest.task_bytes)


def _fitting(lake: Lake, held: Claim, started: float) -> Passed | None:
    """The next batch; a smaller one where all of it can't be one."""
    limits = _limits(lake)
    while True:
        try:
            return _next(lake, held, limits, started)
        except TooManyLettersError:
            if limits.records <= LETTERS:
                raise
            limits = replace(limits, records=LETTERS)
        except MixedColumnsError as mixed:
            limits = replace(limits, requests=mixed.requests)


def _next(lake: Lake, held: Claim, limits: Limits, started: float) -> Passed | None:
    batch = lake.consumer.read(held, limits)
    if batch is None:
        return None
    for attempt in range(write.ATTEMPTS):
        try:
            done = _once(lake, held, batch)
            break
        except PublishConflict:  # others changed the table, or its columns: on the newest snapshot again
            metrics.count_conflict()
            if attempt == write.ATTEMPTS - 1:
                raise
    waited = (datetime.now(UTC) - batch.accepted_at).total_seconds()
    return Passed(
        held.table_id,
        done.table,
        batch.first,
        batch.upto,
        batch.requests,
        batch.records,
        done.snapshot_id,
        *done.changed,
        done.letters,
        time.monotonic() - started,
        max(0.0, waited),
    )


@dataclass(frozen=True, slots=True)
class _Done:
    """What `Passed` is made of."""

    table: str
    snapshot_id: int | None
    changed: tuple[int, int, int]
    letters: int


def _once(lake: Lake, held: Claim, batch: Batch) -> _Done:
    found = _table(lake, held.table_id)
    if found is None:
        reason = "the table was dropped or replaced after the request was accepted"
        lake.consumer.bury(held, batch, TableGone.code, reason)
        return _Done(f"table {held.table_id}", None, (0, 0, 0), batch.records)
    table = lake.table(str(QualifiedName(found.schema, found.name)))
    with write.writing(table, changes=bool(held.key)) as attempt:
        if attempt.state.table.id != held.table_id:
            raise PublishConflict(f"{found.full_name} is another table by now")
        layout = layout_of(lake, attempt.state.table, held, batch)
        size = batch.bytes + (sum(read.file.bytes for read in attempt.state.plan.files) if held.key else 0)
        with profiled(lake.spark, size_conf(size)):
            staging = Sifting(lake, attempt, held, batch, layout)
            updates, changed, letters = staging.keyed() if held.key else staging.appended()
        return _publish(lake, attempt, held, batch, updates, changed, letters)


def _table(lake: Lake, table_id: int) -> TableAt | None:
    with lake.catalog() as catalog:
        found: TableAt | None = catalog.table_by_id(table_id, catalog.head().id)
        return found


# ---------------------------------------------------------------- making it visible
def _publish(
    lake: Lake,
    attempt: Writing,
    held: Claim,
    batch: Batch,
    updates: Sequence[Update],
    changed: tuple[int, int, int],
    letters: Sequence[Letter],
) -> _Done:
    name = attempt.state.table.full_name
    rows = sum(changed)
    if not updates:
        with suppress(LakemillError, OSError):  # files without a row
            attempt.storage.remove(attempt.staged)
        lake.consumer.pass_by(held, batch, letters)
        return _Done(name, None, changed, len(letters))
    consumer = lake.consumer
    purpose = Purpose.CHANGE if held.key else Purpose.APPEND
    needed = attempt.requirements(purpose, attempt.state.snapshot.id)
    intent = Intent(
        uuid.uuid4(),
        tuple(updates),
        (*needed, Check("claim and cursor", lambda cursor, _: consumer.require(cursor, held))),
        author="lakemill",
        message=f"ingest into {name}",
        extra={"tokens": [batch.first, batch.upto]},
    )
    attempt.publishing = True
    published = lake.publisher.publish(
        intent, lambda cursor, snapshot_id: consumer.ack(cursor, held, batch, snapshot_id, rows, letters)
    )
    return _Done(name, published.snapshot_id, changed, len(letters))


def _tell(passed: Passed) -> None:
    metrics.observe_batch(passed.snapshot_id is not None, passed.records, passed.letters, passed.seconds, passed.waited)
    where = "nothing changed" if passed.snapshot_id is None else f"snapshot {passed.snapshot_id}"
    dead = f", {passed.letters} dead letters" if passed.letters else ""
    log().info(
        f"{passed.table}: {passed.records} records of {passed.requests} requests, {where}{dead},"
        f" in {passed.seconds:.2f} s",
        table=passed.table,
        token=passed.upto,
        snapshot=passed.snapshot_id,
        inserted=passed.inserted,
        updated=passed.updated,
        deleted=passed.deleted,
        letters=passed.letters,
        seconds=round(passed.seconds, 3),
        waited=round(passed.waited, 3),
    )
