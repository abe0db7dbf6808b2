"""The leaves of a refresh's trees: its sources at both ends, their deltas and its states, as DataFrames.

Line 8 of a refresh: for ``spark/execute``, from the window that the plan stands on. What was read is remembered, for
the record. Of a delta it is also known, from the catalog alone, between which values a column of it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakemill.core.algebra import End, scans
from lakemill.core.names import fold
from lakemill.core.plan import Shape
from lakemill.core.scan import ReadPlan
from lakemill.core.shape import NotIncremental
from lakemill.runtime.window import SourceWindow, StateWindow, Window, narrowed, plan_leaf
from lakemill.spark import types
from lakemill.spark.ends import NOTHING, ORDERED, Ends, stated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakemill.runtime.open import Lake, Table


@dataclass(slots=True)
class Leaves:
    lake: Lake
    window: Window
    shape: Shape
    reads: list[ReadPlan] = field(default_factory=list)
    _bounds: dict[tuple[int, str], Ends] = field(default_factory=dict)
    _plans: dict[tuple[int, End, str | None], ReadPlan] = field(default_factory=dict)
    """Whoever asks for the size of a leaf mostly reads it next."""

    def frame(self, number: int, end: End, where: str | None) -> DataFrame:
        """A source, or after them a state, at an end; ``where`` is what all rows meet that are needed."""
        plan = self._plan(number, end, where)
        self.reads.append(plan)
        state = self._state(number)
        own = self.lake.table(str(self.window.sources[number].source.name)) if state is None else self.table_of(state)
        return own.frame(plan, where)

    def size(self, number: int, end: End, where: str) -> int:
        """How many bytes it would read."""
        return self._plan(number, end, where).bytes_to_read

    def bounds(self, number: int, column: str) -> Ends:
        """Between which values those of a column lie in a source's delta, by the statistics of its files."""
        if (number, column) not in self._bounds:
            self._bounds[number, column] = self._stated(number, column)
        return self._bounds[number, column]

    def _stated(self, number: int, column: str) -> Ends:
        plan = None if self._state(number) else self.window.sources[number].delta
        if plan is None or any(inlined.rows for inlined in plan.inlined_rows):
            return None
        found = next((own for own in plan.table.columns if fold(own.name) == column), None)
        if found is None or found.id in plan.retyped or not isinstance(type_ := types.shown(found), ORDERED):
            return None
        files = {read.file.id for read in plan.files}
        with self.lake.catalog() as catalog:
            rows = catalog.bounds(plan.table, list(files), [found.id])
        known = {file: (values, nulls, low, high) for file, _, _, values, nulls, low, high, *_ in rows}
        return stated(known.values(), type_) if known.keys() == files else None

    def table_of(self, state: StateWindow) -> Table:
        return self.lake.table(state.table.full_name)

    def _state(self, number: int) -> StateWindow | None:
        place = number - len(self.window.sources)
        return self.window.states[place] if place >= 0 else None

    def _plan(self, number: int, end: End, where: str | None) -> ReadPlan:
        if (number, end, where) not in self._plans:
            self._plans[number, end, where] = self._planned(number, end, where)
        return self._plans[number, end, where]

    def _planned(self, number: int, end: End, where: str | None) -> ReadPlan:
        state = self._state(number)
        if state is None:
            source = self.window.sources[number]
            return narrowed(plan_leaf(self.lake, source, end, where), self._used(number, source))
        if where is None:
            return state.scan
        none = ReadPlan(state.table, None, state.scan.b, ())
        return none if where == NOTHING else self.table_of(state).plan_scan(state.scan.b, where)

    def _used(self, number: int, source: SourceWindow) -> Sequence[str]:
        if isinstance(self.shape, NotIncremental):
            return source.source.columns
        return tuple({own for scan in scans(self.shape) if scan.source == number for _, own in scan.columns})
