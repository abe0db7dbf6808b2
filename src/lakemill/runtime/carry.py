"""A plan carried out: Spark computes, files are staged; ``runtime/publishing`` makes all of it visible at once.

Lines 8 to 10 of a refresh. Three ways lead to a publish: a *load* fills a new table that takes the name, an *append*
writes rows as they come, a *change* stages the signed rows once and derives from them what goes and what comes. A
change that turns out empty makes no snapshot: only the frontier moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from sqlglot import exp

from lakemill.core.algebra import Stored, names
from lakemill.core.commit import (
    AddFiles,
    Purpose,
    Requirement,
    Update,
)
from lakemill.core.delta import Delta
from lakemill.core.inexact import inexact_columns
from lakemill.core.names import QualifiedName, fold
from lakemill.core.parts import stable_columns
from lakemill.core.plan import Plan, Shape, wanted_states
from lakemill.core.refresh import Action, Trigger
from lakemill.core.schema import Column, duck_type
from lakemill.core.shape import NotIncremental
from lakemill.core.state import column_types
from lakemill.core.unique import unique_key
from lakemill.errors import PublishConflict, UnknownTable
from lakemill.runtime.apply import applied
from lakemill.runtime.fill import Filling, new_table, state_name
from lakemill.runtime.leaves import Leaves
from lakemill.runtime.limits import limited
from lakemill.runtime.progress import telling
from lakemill.runtime.publishing import Publishing, Written
from lakemill.runtime.window import Window, states_fit
from lakemill.runtime.write import Writing, diff_of, writing
from lakemill.spark import diff as diffs
from lakemill.spark.beside import beside
from lakemill.spark.execute import Execution
from lakemill.spark.executors import has_executors
from lakemill.spark.outputs import explained_write
from lakemill.spark.profiles import profile_conf, profiled
from lakemill.spark.status import Status, grouped_jobs
from lakemill.store import claims, definitions
from lakemill.store.definitions import OutputColumn
from lakemill.store.history import RefreshRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakemill.runtime.open import Table
    from lakemill.runtime.refresh import Refresh


@dataclass(frozen=True, slots=True)
class StagedDiff:
    """Signed rows in scratch files, and what they come to."""

    rows: DataFrame
    size: diffs.Size


def carry_out(work: Refresh, held: claims.Claim, plan: Plan, window: Window) -> RefreshRecord:
    """Do what the plan says; the record, which is in the lake by then."""
    spark = work.lake.spark
    work.record = replace(work.record, spark_profile=plan.profile.name)
    reads = plan.full_bytes if plan.incremental_bytes is None or plan.delta is None else plan.incremental_bytes
    conf = profile_conf(plan.profile, reads, work.lake.settings)
    grouped = grouped_jobs(spark, str(work.record.id))
    with profiled(spark, conf), grouped as status, telling(work, status), limited(work, status):
        carrying = _Carrying(work, held, plan, window, status)
        own = carrying.own_table()
        with explained_write(), ExitStack() as stack:
            return carrying.load(stack) if own is None else carrying.change(stack, own)


class _Carrying:
    def __init__(self, work: Refresh, held: claims.Claim, plan: Plan, window: Window, status: Status) -> None:
        self.work, self.held, self.plan, self.window, self.status = work, held, plan, window, status
        self.lake = work.lake
        self.shape: Shape = work.shape if plan.states else work.without_states
        self.leaves = Leaves(work.lake, window, self.shape)
        self.keys: int | None = None
        """That were computed anew."""

    def own_table(self) -> Table | None:
        """The table to change; None where there is none yet, or it has another shape than is asked for."""
        if self.work.frontier is None or self.work.table.table_id is None:
            return None
        own = self.lake.table(str(self.work.table.name))
        try:
            found = own.describe()
        except UnknownTable:
            return None
        loaded = definitions.by_id(self.lake.conn, self.work.table.id, self.work.frontier.version.definition_version)
        if loaded.definition.partition_by != self.work.table.definition.partition_by:
            return None
        wanted = [(fold(column.name), _spelled(column.type)) for column in self.work.table.resolved.columns]
        have = [(fold(column.name), _spelled(duck_type(column))) for column in found.columns]
        return own if found.id == self.work.table.table_id and wanted == have else None

    # ------------------------------------------------------------ the three ways
    def load(self, stack: ExitStack) -> RefreshRecord:
        """All rows into a new table, which takes the name as it is published."""
        table = self.work.table
        with self.work.phase("prepare"):
            filling = stack.enter_context(
                new_table(self.lake, f"d{table.id}", table.name, table.resolved.columns, table.definition.partition_by)
            )
        with self.execution(filling.table.columns) as execution, self.work.phase("compute"):
            states = self.loaded_states(stack, execution)
            parts = self._parts(self.whole(execution), filling.table.columns)
            own = self._filled(filling, parts, self._old_table())
        return self._published(own, states)

    def loaded_states(self, stack: ExitStack, execution: Execution) -> list[Written]:
        """New tables for all states, computed from the sources; what is computed next reads them."""
        types = [source.types for source in self.window.sources]
        found = []
        for place, state in enumerate(self._wanted_states()):
            columns = tuple(OutputColumn(name, type_) for name, type_ in column_types(state, types))
            name = state_name(self.work.table.id, place)
            filling = stack.enter_context(new_table(self.lake, name.name, name, columns))
            with self.lake.catalog() as catalog:
                old = catalog.table_id(name.schema, name.name, catalog.head().id)
            parts = self._parts(execution.state(state, filling.table.columns), filling.table.columns, state)
            found.append(self._filled(filling, parts, old))
            execution.give(state.source, "b", filling.read_back())
        return found

    def _states_are_there(self) -> bool:
        """Whether there are tables for all wanted states, as we would make them; whatever rows they have."""
        kept = [state.table for state in self.window.states]
        if len(kept) != len(self._wanted_states()) or not states_fit(self.shape, self.window):
            return False
        named = [QualifiedName(table.schema, table.name) for table in kept]
        nullable = all(column.nulls_allowed for table in kept for column in table.columns)
        return nullable and named == [state_name(self.work.table.id, place) for place in range(len(kept))]

    def compared_states(self, stack: ExitStack, execution: Execution) -> list[Written]:
        """All states, computed from the sources and compared with what is kept: what is equal is not written.

        Nothing of what is kept is trusted: also what nobody should have written comes to what it should be.
        """
        found = []
        for state, kept in zip(self._wanted_states(), self.window.states, strict=True):
            own = self.leaves.table_of(kept)
            attempt = self._prepared(stack, own)
            columns = attempt.state.table.columns
            if (attempt.state.table.id, columns) != (kept.table.id, kept.table.columns):
                raise PublishConflict(f"{kept.table.full_name} was replaced or altered meanwhile")
            with self.work.phase("compute"):
                first, *more = self._parts(execution.state(state, columns), columns, state)
                now = stack.enter_context(diff_of(attempt, first, *more))
            execution.give(state.source, "b", now)
            signed = diffs.difference(now, own.frame(attempt.state.plan), columns)
            needed = attempt.requirements(Purpose.EQUATION, attempt.state.snapshot.id)
            found.append(self._changed(stack, attempt, own, signed, needed, state))
        return found

    def _wanted_states(self) -> list[Stored]:
        return wanted_states(self.shape)

    def _filled(self, filling: Filling, parts: Sequence[DataFrame], old: int | None) -> Written:
        files = tuple(file for part in parts for file in filling.attempt.files(part))
        updates: list[Update] = [AddFiles(filling.table.id, files)] if files else []
        swap, needed = filling.generation.takes_name(old)
        return Written(filling.attempt, [*updates, *swap], needed, (sum(file.record_count for file in files), 0))

    def change(self, stack: ExitStack, own: Table) -> RefreshRecord:
        attempt = self._prepared(stack, own)
        table = attempt.state.table
        # nobody else may have written: since the rows were read, or since it was seen that they are as we left them
        base = attempt.state.snapshot.id if self.plan.delta is None else self.window.head
        needed = attempt.requirements(Purpose.EQUATION, base)
        with self.execution(table.columns) as execution:
            if self.plan.action is Action.APPEND and self.plan.delta is not None:
                with self.work.phase("compute"):
                    rows = diffs.copies(execution.delta(self.plan.delta))
                    files = tuple(file for part in self._parts(rows, table.columns) for file in attempt.files(part))
                added: list[Update] = [AddFiles(table.id, files)] if files else []
                count = sum(file.record_count for file in files)
                return self._published(Written(attempt, added, needed, (count, 0)), None)
            if self.plan.delta is not None:
                with self.work.phase("compute"):
                    stage = self._staging(stack, attempt, execution.delta(self.plan.delta))
                states, staged = self.with_states(stack, execution, self.plan.delta, stage)
            else:
                there = self._states_are_there()
                states = self.compared_states(stack, execution) if there else self.loaded_states(stack, execution)
                rows, inexact = self.whole(execution), self._inexact(table.columns)
                signed = diffs.difference(rows, own.frame(attempt.state.plan), table.columns, inexact)
                with self.work.phase("compute"):
                    staged = self._staging(stack, attempt, signed)()
            written = self._applied(attempt, own, staged, needed)
            if self.plan.action is Action.KEYS and self.work.trigger is Trigger.SCHEDULED:  # nobody else asks
                self.keys = execution.keys()
        return self._published(written, states)

    def with_states(
        self, stack: ExitStack, execution: Execution, delta: Delta, stage: Callable[[], StagedDiff]
    ) -> tuple[list[Written], StagedDiff]:
        """The states that the delta touches, and the table's own diff, staged meanwhile.

        What both are computed from is computed once. Not so on executors, of which each would do it: one after the
        other there, and where one of them alone is to fill the memory.
        """
        if not delta.merged or self.plan.profile.batches > 1 or has_executors(self.lake.spark):
            with self.work.phase("compute"):
                staged = stage()
            return self.changed_states(stack, execution, delta), staged
        with beside(self.lake.spark, stage) as meanwhile:
            states = self.changed_states(stack, execution, delta)
        with self.work.phase("compute"):
            return states, meanwhile()

    def changed_states(self, stack: ExitStack, execution: Execution, delta: Delta) -> list[Written]:
        """The states that the delta touches."""
        found = []
        for number in delta.merged:
            state = self.window.states[number - len(self.window.sources)]
            own = self.leaves.table_of(state)
            attempt = self._prepared(stack, own)
            needed = attempt.requirements(Purpose.EQUATION, self.window.head)
            signed = execution.state_delta(number, attempt.state.table.columns)
            kept = next(one for one in self._wanted_states() if one.source == number)
            found.append(self._changed(stack, attempt, own, signed, needed, kept))
        return found

    def _prepared(self, stack: ExitStack, own: Table) -> Writing:
        with self.work.phase("prepare"):
            return stack.enter_context(writing(own, changes=True))

    def _changed(
        self,
        stack: ExitStack,
        attempt: Writing,
        own: Table,
        signed: DataFrame,
        needed: tuple[Requirement, ...],
        state: Stored,
    ) -> Written:
        with self.work.phase("compute"):
            staged = self._staging(stack, attempt, signed, state)()
        return self._applied(attempt, own, staged, needed)

    def _staging(
        self, stack: ExitStack, attempt: Writing, signed: DataFrame, state: Stored | None = None
    ) -> Callable[[], StagedDiff]:
        """To be called once, from any thread: the signed rows are computed into files, and counted on their way."""
        columns = attempt.state.table.columns
        (first, *more), size_of = diffs.measured(self._parts(signed, columns, state), columns)
        return lambda: StagedDiff(stack.enter_context(diff_of(attempt, first, *more)), size_of())

    def _applied(self, attempt: Writing, own: Table, staged: StagedDiff, needed: tuple[Requirement, ...]) -> Written:
        size = staged.size
        with self.work.phase("write"):
            updates = applied(attempt, own, staged.rows, size, computed=self.plan.delta is not None)
        return Written(attempt, updates, needed, (size.inserted, size.deleted))

    def _parts(self, rows: DataFrame, columns: Sequence[Column], state: Stored | None = None) -> list[DataFrame]:
        """Rows of the table, or of a state, in as many parts as the plan says."""
        shape = self.shape if state is None else state
        places = () if isinstance(shape, NotIncremental) else stable_columns(shape)
        return diffs.parts_of(rows, columns, places, self.plan.profile.batches)

    # ------------------------------------------------------------ Spark
    @contextmanager
    def execution(self, columns: Sequence[Column]) -> Iterator[Execution]:
        clock: dict[str, datetime | None] = {
            "a": self.work.frontier.version.t if self.work.frontier else None,
            "b": self.work.t,
        }
        types, sizes = self._known()
        with Execution(self.lake.spark, self.leaves.frame, types, sizes, columns, clock, self.leaves) as execution:
            yield execution

    def _known(self) -> tuple[list[Mapping[str, str]], list[int]]:
        """Types and bytes of the sources, then of the states."""
        types = [source.types for source in self.window.sources]
        found = [*types, *(dict(column_types(state, types)) for state in self._wanted_states())]
        sizes = [source.size.bytes for source in self.window.sources] + [s.size.bytes for s in self.window.states]
        return found, [*sizes, *(0 for _ in range(len(found) - len(sizes)))]  # a state that is being made

    def whole(self, execution: Execution) -> DataFrame:
        shape = self.shape
        numbers = {found.source.key: i for i, found in enumerate(self.window.sources)}
        return execution.whole(self.work.query if isinstance(shape, NotIncremental) else shape, numbers)

    def _inexact(self, columns: Sequence[Column]) -> frozenset[str]:
        """The floats whose last bits say nothing; none where rows can't be told apart without them."""
        shape = self.shape
        if isinstance(shape, NotIncremental) or not diffs.has_floats(columns):
            return frozenset()
        types = [source.types for source in self.window.sources]
        key, found = unique_key(shape, types), inexact_columns(shape, types)
        own = {name: column for name, column in zip(names(shape), columns, strict=True) if name in found}
        own = {name: column for name, column in own.items() if diffs.is_float(column)}
        return frozenset() if key is None or key & own.keys() else frozenset(one.name for one in own.values())

    def _published(self, own: Written, states: list[Written] | None) -> RefreshRecord:
        publishing = Publishing(self.work, self.held, self.plan, self.window, self.leaves, self.status)
        return publishing.publish(own, states, self.keys)

    def _old_table(self) -> int | None:
        """Our own table that the new one replaces; somebody else's of that name stays, and the publish is refused."""
        table = self.work.table
        with self.lake.catalog() as catalog:
            found = catalog.table_id(table.name.schema, table.name.name, catalog.head().id)
        return table.table_id if found == table.table_id else None


def _spelled(type_: str) -> str:
    """A type as one of its spellings."""
    return exp.DataType.build(type_, dialect="duckdb").sql("duckdb", identify=True)
