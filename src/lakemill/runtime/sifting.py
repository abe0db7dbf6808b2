"""The records of a batch → updates of the table and dead letters: Spark's part of ``runtime/materialise``.

Where the table has no key, files with the rows of all records; where it has one, what the last write of each key
changes. Records with a fault are letters at once. What fails the job all the same is left to the next attempt, and in
the end looked for by halves. Everything is staged; nothing is visible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from lakemill.core.commit import AddFiles, Update
from lakemill.core.names import QualifiedName
from lakemill.core.prune import within
from lakemill.errors import ClaimLost, WrongType
from lakemill.lake.scan import scan_in
from lakemill.runtime import write
from lakemill.runtime.bisect import refused
from lakemill.spark import bus
from lakemill.spark.changes import DELETE, INSERT, OPERATION, UPDATE, counted, keyed_diff
from lakemill.spark.observed import Observed
from lakemill.store import batches
from lakemill.store.batches import Batch, Claim, Letter
from lakemill.telemetry.log import log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakemill.runtime.open import Lake
    from lakemill.runtime.write import State, Writing

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
        bodies = batches.records(self.lake.conn, ((letter.token, letter.position) for letter in letters))
        return [replace(letter, body=bodies[letter.token, letter.position]) for letter in letters]
