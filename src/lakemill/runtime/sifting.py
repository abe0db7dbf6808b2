"""The records of a batch → updates of the table and dead letters: Spark's part of ``runtime/materialise``.

Where the table has no key, files with the rows of all records; where it has one, what the last write of each key
changes. Records with a fault are letters at once. What fails the job all the same is left to the next attempt, and in
the end looked for by halves. Everything is staged; nothing is visible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from lakemill.core.batch import Batch, Claim, Letter
from lakemill.core.commit import AddFiles, Update
from lakemill.core.names import QualifiedName
from lakemill.core.prune import within
from lakemill.core.writes import change
from lakemill.errors import ClaimLost, StorageUnavailable, WrongType
from lakemill.lake.lookup import lookup, simple
from lakemill.lake.scan import scan_in
from lakemill.runtime import write
from lakemill.runtime.bisect import refused
from lakemill.spark import bus
from lakemill.spark.changes import DELETE, GONE, INSERT, OPERATION, UPDATE, counted, keyed_diff, told_diff
from lakemill.spark.observed import Observed
from lakemill.spark.positions import FILE_ID, POSITION
from lakemill.telemetry.log import log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakemill.runtime.open import Lake
    from lakemill.runtime.write import Writing

FEW = 10_000
"""Writes by key that are looked up without Spark: they are a literal of its plan."""
LETTERS = 5000
"""Dead letters of one batch, about: they pass through the driver, and are written under the lock of all commits."""


class TooManyLettersError(Exception):
    """A smaller batch, please."""


Stage: TypeAlias = "Callable[[DataFrame], list[Update]]"


@dataclass(slots=True)
class Sifting:
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
            ends, folder = Observed(), self.attempt.scratch()
            last = bus.last_writes(good, self.layout, ends.of, together=self.batch.records <= FEW)
            with write.diff_of(self.attempt, last, folder=folder) as writes:
                if not ends["writes"]:  # no record without a fault
                    return []
                where = self._narrow(ends)
                staged = self.attempt.storage.list(folder)
                if ends["writes"] <= FEW and len(staged) == 1 and simple(self.attempt.state.plan):
                    updates, changed = self._looked_up(writes, staged[0], ends["writes"])
                else:
                    updates, changed = self._compared(writes, where)
                return updates

        updates, letters = self._sifted(stage)
        return updates, changed, letters

    def _looked_up(self, writes: DataFrame, staged: str, count: int) -> tuple[list[Update], tuple[int, int, int]]:
        """Few writes: DuckDB finds their rows, and Spark only writes."""
        state = self.attempt.state
        found = lookup(self.lake.duck, state.plan, staged, self.layout.key, GONE)
        if len(found) != count:
            raise StorageUnavailable(f"Spark wrote {count} rows, but {staged} holds {len(found)}")
        what = change(found)
        updates: list[Update] = []
        if what.going:
            columns = [pa.array([place[i] for place in what.going], pa.int64()) for i in (0, 1)]
            updates += write.deletes(self.attempt, pa.table(dict(zip((FILE_ID, POSITION), columns, strict=True))))
        come = [operation for operation, rows in ((UPDATE, what.updated), (INSERT, what.inserted)) if rows]
        updates += write.changed_rows(self.attempt, told_diff(writes, state.table.columns, what.told), come)
        rows = sum(file.record_count for update in updates if isinstance(update, AddFiles) for file in update.files)
        if rows != what.inserted + what.updated:
            raise StorageUnavailable(f"Spark wrote {rows} rows of {what.inserted + what.updated}")
        return updates, (what.inserted, what.updated, what.deleted)

    def _compared(self, writes: DataFrame, where: str | None) -> tuple[list[Update], tuple[int, int, int]]:
        """Many writes, or a large table: Spark compares them with the table's rows."""
        state = self.attempt.state
        table = self.lake.table(str(QualifiedName(state.table.schema, state.table.name)))
        current = table.frame(state.plan, where, located=True)
        counts = Observed()
        diff_frame = counted(keyed_diff(current, writes, state.table.columns, self.layout.key), counts.of)
        with write.diff_of(self.attempt, diff_frame) as diff:
            updates: list[Update] = []
            if counts[UPDATE] or counts[DELETE]:
                updates += write.deletes(self.attempt, diff.where(f"{OPERATION} <> '{INSERT}'"))
            come = [operation for operation in (UPDATE, INSERT) if counts[operation]]
            updates += write.changed_rows(self.attempt, diff, come)
        return updates, (counts[INSERT], counts[UPDATE], counts[DELETE])

    def _narrow(self, ends: Observed) -> str | None:
        """Leave only those files in the state that can hold a key of the batch; the condition for it."""
        state = self.attempt.state
        first = next(column for column in self.layout.columns if self.layout.is_key(column))
        where = within(first, ends.text("low") or "", ends.text("high") or "")
        if where is not None:
            with self.lake.catalog() as catalog:
                plan = scan_in(catalog, self.lake.front.stamps, state.table, state.snapshot, where)
            self.attempt.state = replace(state, plan=plan)
        return where

    def _sifted(self, stage: Stage) -> tuple[list[Update], list[Letter]]:
        """What the sound records become, and letters for the others."""
        frame = bus.requests(self.lake.spark, self.lake.consumer, self.held.table_id, self.batch.parts)
        counts = Observed()
        good = bus.sound(bus.judged(frame, self.layout, counts.of), self.layout)
        refusals: Sequence[Letter] = ()
        try:
            updates = stage(good)
        except WrongType as error:
            if self.held.attempts + 1 < self.lake.settings.ingest.attempts:
                raise
            log().warning(f"looking for the records that can't be written: {error.message}")
            requests = self.lake.consumer.tokens(self.held, self.batch)
            refusals = refused(requests, lambda piece: bus.refusal(good, self.layout, *astuple(piece)))
            counts = Observed()
            good = bus.sound(bus.judged(frame, self.layout, counts.of), self.layout)
            updates = stage(bus.without(good, [(letter.token, letter.position) for letter in refusals]))
        if counts["faults"] > LETTERS and self.batch.requests > 1 and self.batch.records > LETTERS:
            raise TooManyLettersError
        if counts["records"] != self.batch.records:  # somebody else has passed them, and they were removed
            raise ClaimLost(f"{counts['records']} of {self.batch.records} records were there")
        return updates, self._letters(frame, counts, refusals)

    def _letters(self, frame: DataFrame, counts: Observed, refusals: Sequence[Letter]) -> list[Letter]:
        letters = list(refusals)
        if counts["faults"]:
            found = bus.faults(bus.judged(frame, self.layout))
            letters += [Letter(token, at, code, reason, place) for token, at, code, place, reason in found]
        bodies = self.lake.consumer.records((letter.token, letter.position) for letter in letters)
        return [replace(letter, body=bodies[letter.token, letter.position]) for letter in letters]
