"""A plan carried out: Spark computes, files are staged, one publish moves content, frontier, history and claim.

Lines 8 to 10 of a refresh. Three ways lead to a publish: a *load* fills a new table that takes the name, an *append*
writes rows as they come, a *change* stages the signed rows once and derives from them what goes and what comes. A
change that turns out empty makes no snapshot: only the frontier moves.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from lakemill.core.algebra import Stored, names
from lakemill.core.commit import (
    AddFiles,
    Check,
    DeleteFile,
    DeletePositions,
    DropTable,
    Intent,
    NewFile,
    Purpose,
    Requirement,
    SwapGeneration,
    Update,
)
from lakemill.core.delta import Delta
from lakemill.core.inexact import inexact_columns
from lakemill.core.lag import Version
from lakemill.core.names import fold
from lakemill.core.parts import stable_columns
from lakemill.core.plan import Plan, Shape, wanted_states
from lakemill.core.refresh import Action, Trigger
from lakemill.core.schema import Column, duck_type
from lakemill.core.shape import NotIncremental
from lakemill.core.state import column_types
from lakemill.core.unique import unique_key
from lakemill.errors import UnknownTable
from lakemill.lake.scan import rows_of
from lakemill.runtime.apply import applied
from lakemill.runtime.fill import Filling, new_table, state_name
from lakemill.runtime.leaves import Leaves
from lakemill.runtime.limits import limited
from lakemill.runtime.progress import telling
from lakemill.runtime.window import Window
from lakemill.runtime.write import Writing, diff_of, writing
from lakemill.spark import diff as diffs
from lakemill.spark.beside import beside
from lakemill.spark.execute import Execution
from lakemill.spark.executors import has_executors
from lakemill.spark.outputs import explained_write
from lakemill.spark.profiles import profile_conf, profiled
from lakemill.spark.status import Status, grouped_jobs
from lakemill.store import claims, definitions, pins, versions
from lakemill.store.definitions import OutputColumn
from lakemill.store.history import RefreshRecord
from lakemill.store.versions import SourceRead

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakemill.runtime.open import Table
    from lakemill.runtime.refresh import Refresh


@dataclass(slots=True)
class Written:
    """What a publish does to one table: the dynamic table's own, or a state's."""

    attempt: Writing
    updates: list[Update]
    needed: tuple[Requirement, ...]
    rows: tuple[int, int] = (0, 0)
    """Inserted and deleted."""


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
        return self.publish(own, states)

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

    def compared_states(self, stack: ExitStack, execution: Execution) -> list[Written]:
        """All states, computed from the sources and compared with what is kept: what is equal is not written."""
        found = []
        for state, kept in zip(self._wanted_states(), self.window.states, strict=True):
            own = self.leaves.table_of(kept)
            attempt = self._prepared(stack, own)
            columns = attempt.state.table.columns
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
                return self.publish(Written(attempt, added, needed, (count, 0)), None)
            if self.plan.delta is not None:
                with self.work.phase("compute"):
                    stage = self._staging(stack, attempt, execution.delta(self.plan.delta))
                states, staged = self.with_states(stack, execution, self.plan.delta, stage)
            else:
                known = self.window.lost is None and len(self._wanted_states()) == len(self.window.states)
                states = self.compared_states(stack, execution) if known else self.loaded_states(stack, execution)
                rows, inexact = self.whole(execution), self._inexact(table.columns)
                signed = diffs.difference(rows, own.frame(attempt.state.plan), table.columns, inexact)
                with self.work.phase("compute"):
                    staged = self._staging(stack, attempt, signed)()
            written = self._applied(attempt, own, staged, needed)
            if self.plan.action is Action.KEYS and self.work.trigger is Trigger.SCHEDULED:  # nobody else asks
                self.keys = execution.keys()
        return self.publish(written, states)

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

    # ------------------------------------------------------------ line 10
    def publish(self, own: Written, states: list[Written] | None) -> RefreshRecord:
        """One transaction; without updates only our own rows move. ``states``: None where they stay as they are."""
        work, table, frontier = self.work, self.work.table, self.work.frontier
        table_id = own.attempt.state.table.id
        written = [own, *(states or ())]
        updates = [update for one in written for update in one.updates] + self._dropped_states(states)
        inserted, deleted = own.rows
        measured = self._measured(own, states) | {
            "rows_inserted": inserted,
            "rows_deleted": deleted,
            "records_read": sum(plan.rows_to_read for plan in self.leaves.reads),
            "bytes_read": sum(plan.bytes_to_read for plan in self.leaves.reads),
            "files": len(files := _written(updates)),
            "bytes_written": sum(file.size_bytes for file in files),
            **self._spent(),
        }

        def more(cursor: Any, snapshot: int) -> None:
            version = Version(
                snapshot, work.b.id, work.b.id, table.definition_version, table_id, work.t if work.clocked else None
            )
            reads = [source.read for source in self.window.sources]
            expected = frontier.version_id if frontier else None
            kept = self._states_at(states, snapshot)
            versions.move_frontier(cursor, table.id, version, work.b.time, reads, expected, kept)
            # its own commit too: whoever reads this version, a consumer or a point, reads it there
            positions = {read.table_id: read.commit for read in (*reads, *kept)} | {table_id: snapshot}
            schema = self.lake.settings.lake.catalog_schema
            pins.move_positions(cursor, pins.dynamic(table.id), positions, catalog_schema=schema)
            work.finish(cursor, self.plan.action, self.plan.reason, snapshot, **measured)

        with work.phase("publish"):
            if not updates:
                assert frontier is not None  # noqa: S101  (a first load gives the table its name)
                with self.lake.conn.transaction(), self.lake.conn.cursor() as cursor:
                    claims.require_claim(cursor, self.held)
                    # what was compared with the table's own rows is right where these were read
                    more(cursor, frontier.version.commit if self.plan.delta else own.attempt.state.snapshot.id)
                return work.record
            claimed = Check("claim", lambda cursor, _: claims.require_claim(cursor, self.held))
            needed = (*(item for one in written for item in one.needed), claimed)
            told = f"refresh {table.name}: {self.plan.action.value}, +{inserted} -{deleted}"
            for one in written:
                one.attempt.publishing = True
            self.lake.publisher.publish(
                Intent(uuid.uuid4(), tuple(updates), needed, author="lakemill", message=told), more
            )
        return work.record

    def _spent(self) -> dict[str, int | None]:
        """What Spark says that it did so far: all that there is to compute."""
        spent = self.status.spent()
        names = ("spark_jobs", "spark_tasks", "spark_executors", "spilled_bytes")
        values = (None,) * 4 if spent is None else (spent.jobs, spent.tasks, spent.executors, spent.spilled_bytes)
        return dict(zip(names, values, strict=True))

    def _measured(self, own: Written, states: list[Written] | None) -> dict[str, Any]:
        """How much of what is there was computed anew, as far as that is known without asking Spark again."""
        (inserted, deleted), stamps = own.rows, self.lake.front.stamps
        rows = rows_of(own.attempt.state.plan, stamps)
        if self.plan.delta is None:
            return {"rows_recomputed": rows + inserted - deleted}
        affected: int | None = inserted + deleted
        if self.plan.action is Action.KEYS:
            affected = self.keys
        elif self.plan.action is Action.MERGE:  # a group that changed comes and goes, a new one comes, an old one goes
            most = max(states or (), key=lambda one: max(one.rows), default=own)
            affected, rows = max(most.rows), rows_of(most.attempt.state.plan, stamps)
        return {"affected_keys": affected, "cardinality_ratio": affected and min(1.0, affected / max(rows, 1))}

    def _states_at(self, states: list[Written] | None, snapshot: int) -> tuple[SourceRead, ...]:
        """The states as this publish leaves them, in the order of their numbers."""
        known = {read.table_id: read for read in self.work.frontier.states} if self.work.frontier else {}
        now = {one.attempt.state.table.id: one for one in states or ()}
        touched = states is None or self.plan.delta is not None  # then others stay as they are
        found = []
        for table_id in known if touched else now:
            if table_id in now and now[table_id].updates:
                found.append(SourceRead(table_id, now[table_id].attempt.state.table.columns_version, snapshot))
            else:
                found.append(known[table_id])
        return tuple(found)

    def _dropped_states(self, states: list[Written] | None) -> list[Update]:
        """Old states that nothing takes the place of."""
        if states is None or self.plan.delta is not None or self.work.frontier is None:
            return []
        kept = {one.attempt.state.table.id for one in states} | {
            update.old_table_id for one in states for update in one.updates if isinstance(update, SwapGeneration)
        }
        with self.lake.catalog() as catalog:
            head = catalog.head().id
            old = [read.table_id for read in self.work.frontier.states if read.table_id not in kept]
            return [DropTable(table_id) for table_id in old if catalog.table_by_id(table_id, head) is not None]

    def _old_table(self) -> int | None:
        """Our own table that the new one replaces; somebody else's of that name stays, and the publish is refused."""
        table = self.work.table
        with self.lake.catalog() as catalog:
            found = catalog.table_id(table.name.schema, table.name.name, catalog.head().id)
        return table.table_id if found == table.table_id else None


def _written(updates: Sequence[Update]) -> list[NewFile | DeleteFile]:
    added = [file for update in updates if isinstance(update, AddFiles) for file in update.files]
    return [*added, *(one for update in updates if isinstance(update, DeletePositions) for one in update.delete_files)]


def _spelled(type_: str) -> str:
    """A type as one of its spellings."""
    return exp.DataType.build(type_, dialect="duckdb").sql("duckdb", identify=True)
