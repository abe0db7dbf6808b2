"""One batch of one table, from requests in the bus to rows in a snapshot, exactly once.

Top to bottom: claim the table, read which requests wait, let Spark make rows of them, stage files (and, where the table
has a key, what goes), publish. The publish requires claim and cursor and moves the cursor: rows, dead letters, ledger
and watermark are one transaction. A record that can't become a row is a dead letter; a table that is gone makes dead
letters of all. What fails is left to the next attempt, after a pause, and nothing of it is visible.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from lakemill.core.commit import AddFiles, Check, Intent, Purpose, Update
from lakemill.core.names import QualifiedName
from lakemill.core.prune import within
from lakemill.core.records import columns_version
from lakemill.core.retry import Backoff
from lakemill.core.scan import TableAt
from lakemill.core.schema import Column
from lakemill.errors import ClaimLost, EngineLost, LakemillError, PublishConflict, TableGone, UnknownColumn, WrongType
from lakemill.lake.scan import scan_in
from lakemill.runtime import write
from lakemill.runtime.bisect import refused
from lakemill.runtime.claiming import holder
from lakemill.spark import bus
from lakemill.spark.changes import DELETE, INSERT, OPERATION, UPDATE, counted, keyed_diff
from lakemill.spark.observed import Observed
from lakemill.spark.session import sized_work
from lakemill.store import batches, db
from lakemill.store.batches import Batch, Claim, Letter, Limits, Part
from lakemill.telemetry import metrics
from lakemill.telemetry.log import failed, log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakemill.runtime.open import Lake
    from lakemill.runtime.write import State, Writing


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


def materialise(lake: Lake, table_id: int, stopping: Callable[[], bool] = lambda: False) -> Passed | None:
    """Pass the next batch of a table; None when there is none, somebody else has it, or it failed (and was told).

    Where a failure comes while it is ``stopping``, the batch is left to others at once. Without Spark, or without
    PostgreSQL, nobody here can go on: that is raised.
    """
    held = batches.claim(lake.conn, table_id, holder(), lake.settings.ingest.claim_expiry)
    if held is None:
        return None
    started = time.monotonic()
    with _alive(lake, held):
        try:
            batch = batches.read(lake.conn, held, _limits(lake))
            passed = None if batch is None else _pass(lake, held, batch, started)
        except ClaimLost as error:
            metrics.count_fenced()
            failed("ingest", error, table_id=table_id)
            return None
        except db.LOST as error:
            failed("ingest", db.unavailable(error), table_id=table_id)
            raise
        except Exception as error:  # whatever it is, the table is tried again, after a pause
            if stopping():
                batches.release(lake.conn, held)
                return None
            _nack(lake, held, error)
            if isinstance(error, EngineLost):
                raise
            return None
    if passed is None:
        batches.release(lake.conn, held)
    else:
        _tell(passed)
    return passed


def warm(lake: Lake) -> None:
    """Let Spark do once, for nothing, what takes seconds the first time."""
    layout = bus.Layout((Column(1, "k", "int32"),))
    with sized_work(lake.spark, 0):
        found = bus.judged(bus.requests(lake.spark, lake.dsn, -1, (Part(0, 0, 0, 0),)), layout)
        bus.refusal(bus.sound(found, layout), layout, 0, 0, 0, 0)


def _limits(lake: Lake) -> Limits:
    ingest = lake.settings.ingest
    return Limits(ingest.batch_requests, ingest.batch_records, ingest.batch_bytes, ingest.task_bytes)


def _pass(lake: Lake, held: Claim, batch: Batch, started: float) -> Passed:
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
    table: str
    snapshot_id: int | None
    changed: tuple[int, int, int]
    letters: int


def _once(lake: Lake, held: Claim, batch: Batch) -> _Done:
    found = _table(lake, held.table_id)
    if found is None:
        reason = "the table was dropped or replaced after the request was accepted"
        batches.bury(lake.conn, held, batch, TableGone.code, reason)
        return _Done(f"table {held.table_id}", None, (0, 0, 0), batch.records)
    table = lake.table(str(QualifiedName(found.schema, found.name)))
    with write.writing(table, changes=bool(held.key)) as attempt:
        if attempt.state.table.id != held.table_id:
            raise PublishConflict(f"{found.full_name} is another table by now")
        layout = _layout(lake, attempt.state.table, held, batch)
        size = batch.bytes + (sum(read.file.bytes for read in attempt.state.plan.files) if held.key else 0)
        with sized_work(lake.spark, size):
            staging = _Staging(lake, attempt, held, batch, layout)
            updates, changed, letters = staging.keyed() if held.key else staging.appended()
        return _publish(lake, attempt, held, batch, updates, changed, letters)


def _table(lake: Lake, table_id: int) -> TableAt | None:
    with lake.catalog() as catalog:
        found: TableAt | None = catalog.table_by_id(table_id, catalog.head().id)
        return found


def _layout(lake: Lake, table: TableAt, held: Claim, batch: Batch) -> bus.Layout:
    """What records become; where they were accepted for other columns, with what those were called."""
    checked = batch.versions != {columns_version(table.columns)}
    names = {column.name.lower(): column.name for column in table.columns}
    renamed: dict[str, int] = {}
    if checked:
        with lake.catalog():
            older = batches.old_names(lake.conn, table.id)
        renamed = {name: column_id for name, column_id in older.items() if name not in names.values()}
        of_id = {column.id: column.name for column in table.columns}
        names = {name.lower(): of_id[column_id] for name, column_id in renamed.items()} | names
    if lost := [name for name in held.key if name.lower() not in names]:
        raise UnknownColumn(
            f"{table.full_name} has no column {lost[0]!r} any more, which is of its key",
            remedy="declare another key, or let the table take no requests",
        )
    key = tuple(names[name.lower()] for name in held.key)
    return bus.Layout(table.columns, key, checked, held.policy == "drop_field", tuple(renamed.items()))


# ---------------------------------------------------------------- rows and files
Stage: TypeAlias = "Callable[[DataFrame], list[Update]]"


@dataclass(slots=True)
class _Staging:
    """Spark's part of a batch."""

    lake: Lake
    attempt: Writing
    held: Claim
    batch: Batch
    layout: bus.Layout

    def appended(self) -> tuple[list[Update], tuple[int, int, int], list[Letter]]:
        """Files with the rows of all records."""

        def stage(good: DataFrame) -> list[Update]:
            files = self.attempt.files(bus.rows(good, self.layout))
            return [AddFiles(self.held.table_id, files)] if files else []

        updates, letters = self._sifted(stage)
        rows = sum(file.record_count for update in updates if isinstance(update, AddFiles) for file in update.files)
        if rows + len(letters) != self.batch.records:
            raise ClaimLost(f"{rows} rows and {len(letters)} dead letters of {self.batch.records} records")
        return updates, (rows, 0, 0), letters

    def keyed(self) -> tuple[list[Update], tuple[int, int, int], list[Letter]]:
        """What the last write of each key changes: rows that come, positions of those that go."""
        changed = (0, 0, 0)

        def stage(good: DataFrame) -> list[Update]:
            nonlocal changed
            ends = Observed()
            with write.diff_of(self.attempt, bus.last_writes(good, self.layout, ends.of)) as writes:
                if ends.text("low") is None:  # no record without a fault
                    return []
                state, where = self._narrowed(ends)
                table = self.lake.table(str(QualifiedName(state.table.schema, state.table.name)))
                current = table.frame(state.plan, where, located=True)
                counts = Observed()
                diff_frame = counted(keyed_diff(current, writes, state.table.columns, self.layout.key), counts.of)
                with write.diff_of(self.attempt, diff_frame) as diff:
                    changed = (counts[INSERT], counts[UPDATE], counts[DELETE])
                    updates: list[Update] = []
                    if counts[UPDATE] or counts[DELETE]:
                        updates += write.deletes(self.attempt, diff.where(f"{OPERATION} <> '{INSERT}'"))
                    come = [operation for operation in (UPDATE, INSERT) if counts[operation]]
                    return updates + write.changed_rows(self.attempt, diff, come)

        updates, letters = self._sifted(stage)
        return updates, changed, letters

    def _narrowed(self, ends: Observed) -> tuple[State, str | None]:
        """The state, with only those files that can hold a key of the batch."""
        state = self.attempt.state
        first = next(column for column in self.layout.columns if self.layout.is_key(column))
        where = within(first, ends.text("low") or "", ends.text("high") or "")
        if where is not None:
            with self.lake.catalog() as catalog:
                plan = scan_in(catalog, self.lake.front.stamps, state.table, state.snapshot, where)
            state = self.attempt.state = replace(state, plan=plan)
        return state, where

    def _sifted(self, stage: Stage) -> tuple[list[Update], list[Letter]]:
        """What the sound records become, and letters for the others."""
        frame = bus.requests(self.lake.spark, self.lake.dsn, self.held.table_id, self.batch.parts)
        counts = Observed()
        good = bus.sound(bus.judged(frame, self.layout, counts.of), self.layout)
        refusals: Sequence[Letter] = ()
        try:
            updates = stage(good)
        except WrongType as error:
            if self.held.attempts + 1 < self.lake.settings.ingest.attempts:
                raise
            log().warning(f"looking for the records that can't be written: {error.message}")
            requests = batches.tokens(self.lake.conn, self.held.table_id, self.held.cursor, self.batch.upto)
            refusals = refused(requests, lambda piece: bus.refusal(good, self.layout, *astuple(piece)))
            counts = Observed()
            good = bus.sound(bus.judged(frame, self.layout, counts.of), self.layout)
            updates = stage(bus.without(good, [(letter.token, letter.position) for letter in refusals]))
        if counts["records"] != self.batch.records:  # somebody else has passed them, and they were removed
            raise ClaimLost(f"{counts['records']} of {self.batch.records} records were there")
        return updates, self._letters(frame, counts, refusals)

    def _letters(self, frame: DataFrame, counts: Observed, refusals: Sequence[Letter]) -> list[Letter]:
        letters = list(refusals)
        if counts["faults"]:
            found = bus.faults(bus.judged(frame, self.layout))
            letters += [Letter(token, at, code, reason, place) for token, at, code, place, reason in found]
        bodies = batches.records(self.lake.conn, ((letter.token, letter.position) for letter in letters))
        return [replace(letter, body=bodies[letter.token, letter.position]) for letter in letters]


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
        with lake.conn.transaction():
            batches.require(lake.conn, held)
            batches.ack(lake.conn, held, batch, None, 0, letters)
        return _Done(name, None, changed, len(letters))
    purpose = Purpose.CHANGE if held.key else Purpose.APPEND
    needed = attempt.requirements(purpose, attempt.state.snapshot.id)
    intent = Intent(
        uuid.uuid4(),
        tuple(updates),
        (*needed, Check("claim and cursor", lambda cursor, _: batches.require(cursor, held))),
        author="lakemill",
        message=f"ingest into {name}",
        extra={"tokens": [batch.first, batch.upto]},
    )
    attempt.publishing = True
    published = lake.publisher.publish(
        intent, lambda cursor, snapshot_id: batches.ack(cursor, held, batch, snapshot_id, rows, letters)
    )
    return _Done(name, published.snapshot_id, changed, len(letters))


# ---------------------------------------------------------------- around it
@contextmanager
def _alive(lake: Lake, held: Claim) -> Iterator[None]:
    """The claim lives while the body works, however long that takes."""
    done = threading.Event()
    expiry = lake.settings.ingest.claim_expiry
    threading.Thread(target=_extend, args=(lake.dsn, held, expiry, done), daemon=True, name="lakemill-ingest").start()
    try:
        yield
    finally:
        done.set()


def _extend(dsn: str, held: Claim, expiry: timedelta, done: threading.Event) -> None:
    """A claim that can't be extended is lost, which the publish finds out by itself."""
    while not done.wait(expiry.total_seconds() / 3):
        with suppress(LakemillError, *db.LOST), db.connect(dsn) as conn:
            batches.extend(conn, held, expiry)


def _nack(lake: Lake, held: Claim, error: Exception) -> None:
    service = lake.settings.service
    backoff = Backoff(service.retry_base, service.retry_factor, service.retry_cap)
    pause = backoff.delay(held.attempts + 1, QualifiedName("ingest", str(held.table_id)))
    failed("ingest", error, table_id=held.table_id, attempt=held.attempts + 1)
    metrics.count_batch("failed")
    batches.nack(lake.conn, held, str(error), pause)


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
