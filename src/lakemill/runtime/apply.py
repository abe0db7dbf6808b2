"""A staged diff, put to a table: files of the rows that come, delete positions of those that go.

Between ``runtime/carry``, which stages the diff, and ``spark/diff``, which knows how rows are found. Each row that goes
must be found, as often as it goes; else nothing is written, and the caller computes the table whole (``Lost``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakemill.core.commit import AddFiles, EndFiles, Update
from lakemill.core.plan import Reason
from lakemill.core.scan import ReadPlan
from lakemill.lake.scan import rows_of
from lakemill.runtime.write import Writing, deletes, diff_of, older_positions
from lakemill.spark import diff as diffs
from lakemill.spark.beside import beside
from lakemill.spark.deletes import DRIVER_POSITIONS
from lakemill.spark.positions import FILE_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakemill.runtime.open import Table

SMALL_ROWS = 500_000
"""A table that has fewer to look through is shuffled rather than met by a broadcast, which is a job of its own."""


class Lost(Exception):
    """The table must be computed whole after all."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.text)
        self.reason = reason


def applied(attempt: Writing, own: Table, diff: DataFrame, size: diffs.Size, *, computed: bool) -> list[Update]:
    """What goes and what comes; where more than half of the table goes, all of its files do.

    ``computed``: rows that go were computed, not read from the table, so that a float may differ in its last bits.
    """
    table, plan = attempt.state.table, attempt.state.plan
    if size.deleted * 2 > plan.rows_to_read - plan.positions:
        rest = diffs.copies(diffs.changed(own.frame(plan), diff, table.columns))
        files = attempt.files(rest)
        before = rows_of(plan, attempt.lake.front.stamps)
        found = before + size.inserted - sum(file.record_count for file in files)
        _require_found(found, size.deleted)
        ended = EndFiles(table.id, tuple(read.file.id for read in plan.files))
        return [ended, AddFiles(table.id, files)] if files else [ended]
    if not size.inserted:
        return _deleted_rows(attempt, own, diff, size, computed) if size.deleted else []
    if not size.deleted:
        return [AddFiles(table.id, attempt.files(diffs.inserted(diff)))]
    with beside(diff.sparkSession, lambda: attempt.written(diffs.inserted(diff))) as written:
        updates = _deleted_rows(attempt, own, diff, size, computed)
    return [*updates, AddFiles(table.id, attempt.named(written()))]


def _deleted_rows(attempt: Writing, own: Table, diff: DataFrame, size: diffs.Size, computed: bool) -> list[Update]:
    """All of them must have been found, and are looked for once: what is written derives from what was found."""
    columns = attempt.state.table.columns
    plan = own.plan_scan(attempt.state.plan.b, size.where)
    few = size.deleted <= DRIVER_POSITIONS
    if few and (places := _few_places(attempt, own, diff, plan, size)) is not None:
        return deletes(attempt, places)
    current = own.frame(plan, size.where, located=True)
    try:
        return _staged(attempt, diffs.located(diff, current, columns, few=few), size.deleted)
    except Lost:
        if not computed or not diffs.has_floats(columns):
            raise
        return _staged(attempt, diffs.located(diff, current, columns, few=few, near=True), size.deleted)


def _few_places(attempt: Writing, own: Table, diff: DataFrame, plan: ReadPlan, size: diffs.Size) -> pa.Table | None:
    """The places of a few rows, in one job; None where there are many equal rows, or not all were found."""
    raw = own.frame(replace(plan, deletes=()), size.where, located=True)
    small = plan.rows_to_read <= SMALL_ROWS
    columns = attempt.state.table.columns
    found = diffs.candidates(diff, raw, columns, most=4 * DRIVER_POSITIONS, small=small)
    if found is None:
        return None
    gone = older_positions(attempt, set(found.column(FILE_ID).to_pylist()))
    if gone is None:
        return None
    places = diffs.chosen(found, gone)
    return places if places.num_rows == size.deleted else None


def _staged(attempt: Writing, hits: DataFrame, expected: int) -> list[Update]:
    with diff_of(attempt, hits) as staged:
        _require_found(staged.count(), expected)
        return deletes(attempt, staged)


def _require_found(found: int, expected: int) -> None:
    if found != expected:
        text = f"{expected} rows should have gone, {found} were found in the table"
        raise Lost(Reason("ROWS_NOT_FOUND", text))
