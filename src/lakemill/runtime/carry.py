"""A plan carried out: Spark computes, files are staged, one publish moves content, frontier, history and claim.

Lines 8 to 10 of a refresh. Three ways lead to a publish: a *load* fills a new table that takes the name, an *append*
writes rows as they come, a *change* stages the signed rows once and derives from them what goes and what comes. A
change that turns out empty makes no snapshot: only the frontier moves.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from lakemill.core.algebra import End, scans
from lakemill.core.commit import AddFiles, Check, EndFiles, Intent, Purpose, Requirement, Update
from lakemill.core.lag import Version
from lakemill.core.names import fold
from lakemill.core.plan import Plan, Reason
from lakemill.core.refresh import Action
from lakemill.core.scan import ReadPlan
from lakemill.core.schema import Column, duck_type
from lakemill.core.shape import NotIncremental
from lakemill.errors import LakemillError, OutcomeUnknown, UnknownTable
from lakemill.lake.scan import rows_of
from lakemill.lake.tables import Generation, abandon, abandon_all, build_generation
from lakemill.lake.target import read_target
from lakemill.runtime.window import SourceWindow, Window, narrowed, plan_leaf
from lakemill.runtime.write import State, Writing, deletes, diff_of, writing
from lakemill.spark import diff as diffs
from lakemill.spark.deletes import DRIVER_POSITIONS, few_places
from lakemill.spark.execute import Execution, counted_jobs
from lakemill.spark.outputs import explained_write
from lakemill.spark.session import small_work
from lakemill.store import claims, definitions, pins, versions
from lakemill.store.history import RefreshRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakemill.runtime.open import Table
    from lakemill.runtime.refresh import Refresh


SMALL = 64 << 20
"""What reads fewer bytes is done in a few jobs, without a second look at the plan on the way."""


class Lost(Exception):
    """The table must be computed whole after all."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.text)
        self.reason = reason


def carry_out(work: Refresh, held: claims.Claim, plan: Plan, window: Window) -> RefreshRecord:
    """Do what the plan says; the record, which is in the lake by then."""
    carrying = _Carrying(work, held, plan, window)
    spark = work.lake.spark
    reads = plan.full_bytes if plan.incremental_bytes is None or plan.delta is None else plan.incremental_bytes
    with small_work(spark) if reads < SMALL else nullcontext(), counted_jobs(spark, str(work.record.id)) as jobs:
        carrying.jobs = jobs
        own = carrying.own_table()
        with explained_write():
            return carrying.load() if own is None else carrying.change(own)


class _Carrying:
    def __init__(self, work: Refresh, held: claims.Claim, plan: Plan, window: Window) -> None:
        self.work, self.held, self.plan, self.window = work, held, plan, window
        self.lake = work.lake
        self.reads: list[ReadPlan] = []
        self.jobs: Any = None

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
    def load(self) -> RefreshRecord:
        """All rows into a new table, which takes the name as it is published."""
        table = self.work.table
        owner = f"d{table.id}"
        abandon_all(self.lake.duck, table.name.schema, owner)
        generation = build_generation(
            self.lake.duck,
            self.lake.conn,
            table.name.schema,
            table.name.name,
            table.resolved.columns,
            table.definition.partition_by,
            owner=owner,
            catalog_schema=self.lake.settings.lake.catalog_schema,
        )
        attempt = self._attempt_on(generation)
        try:
            with self.execution(generation.table.columns) as execution, self.work.phase("compute"):
                files = attempt.files(self.whole(execution))
            updates: list[Update] = [AddFiles(generation.table.id, files)] if files else []
            swap, needed = generation.takes_name(self._old_table())
            rows = sum(file.record_count for file in files)
            return self.publish(attempt, [*updates, *swap], generation.table.id, [*needed], inserted=rows, deleted=0)
        except OutcomeUnknown:
            raise
        except BaseException as error:
            if isinstance(error, LakemillError) or not attempt.publishing:
                with suppress(LakemillError, OSError):
                    attempt.storage.remove(attempt.staged)
                with suppress(LakemillError):
                    abandon(self.lake.duck, generation)
            raise

    def change(self, own: Table) -> RefreshRecord:
        with writing(own, changes=True) as attempt:
            table = attempt.state.table
            with self.execution(table.columns) as execution:
                if self.plan.action is Action.APPEND and self.plan.delta is not None:
                    with self.work.phase("compute"):
                        files = attempt.files(diffs.copies(execution.delta(self.plan.delta)))
                    added: list[Update] = [AddFiles(table.id, files)] if files else []
                    rows = sum(file.record_count for file in files)
                    return self.publish(attempt, added, table.id, (), inserted=rows, deleted=0)
                if self.plan.delta is not None:
                    signed = execution.delta(self.plan.delta)
                else:
                    signed = diffs.difference(self.whole(execution), own.frame(attempt.state.plan), table.columns)
                with diff_of(attempt, signed, self.work.phase("compute")) as diff:
                    size = diffs.measured(diff, table.columns)
                    with self.work.phase("write"):
                        updates = self.updates(attempt, own, diff, size)
                    return self.publish(attempt, updates, table.id, (), inserted=size.inserted, deleted=size.deleted)

    def updates(self, attempt: Writing, own: Table, diff: DataFrame, size: diffs.Size) -> list[Update]:
        """What goes and what comes; where more than half of the table goes, all of its files do."""
        table, plan = attempt.state.table, attempt.state.plan
        updates: list[Update] = []
        if size.deleted * 2 > plan.rows_to_read - plan.positions:
            rest = diffs.copies(diffs.changed(own.frame(plan), diff, table.columns))
            files = attempt.files(rest)
            before = rows_of(plan, self.lake.front.stamps)
            found = before + size.inserted - sum(file.record_count for file in files)
            _require_found(found, size.deleted)
            updates.append(EndFiles(table.id, tuple(read.file.id for read in plan.files)))
            return [*updates, AddFiles(table.id, files)] if files else updates
        if size.deleted:
            current = own.frame(own.plan_scan(plan.b, size.where), size.where, located=True)
            few = size.deleted <= DRIVER_POSITIONS
            hits = diffs.located(diff, current, table.columns, few=few)
            try:
                updates += self._deleted_rows(attempt, hits, size.deleted)
            except Lost:  # from the table's own rows every row is found; computed anew, a float may differ
                if self.plan.delta is None or not diffs.has_floats(table.columns):
                    raise
                hits = diffs.located(diff, current, table.columns, few=few, near=True)
                updates += self._deleted_rows(attempt, hits, size.deleted)
        if size.inserted:
            files = attempt.files(diffs.inserted(diff))
            updates.append(AddFiles(table.id, files))
        return updates

    def _deleted_rows(self, attempt: Writing, hits: DataFrame, expected: int) -> list[Update]:
        """All of them must have been found, and are looked for once: what is written derives from what was found."""
        places = few_places(hits)
        if places is not None:
            _require_found(places.num_rows, expected)
            return deletes(attempt, places)
        with diff_of(attempt, hits) as staged:
            _require_found(staged.count(), expected)
            return deletes(attempt, staged)

    # ------------------------------------------------------------ Spark
    @contextmanager
    def execution(self, columns: Sequence[Column]) -> Iterator[Execution]:
        clock: dict[str, datetime | None] = {
            "a": self.work.frontier.version.t if self.work.frontier else None,
            "b": self.work.t,
        }
        types = [source.types for source in self.window.sources]
        sizes = [source.scan.bytes_to_read for source in self.window.sources]
        with Execution(self.lake.spark, self._leaf, types, sizes, columns, clock) as execution:
            yield execution

    def whole(self, execution: Execution) -> DataFrame:
        shape = self.work.shape
        numbers = {found.source.key: i for i, found in enumerate(self.window.sources)}
        return execution.whole(self.work.query if isinstance(shape, NotIncremental) else shape, numbers)

    def _leaf(self, number: int, end: End, where: str | None) -> DataFrame:
        source = self.window.sources[number]
        plan = narrowed(plan_leaf(self.lake, source, end, where), self._used(number, source))
        self.reads.append(plan)
        return self.lake.table(str(source.source.name)).frame(plan, where)

    def _used(self, number: int, source: SourceWindow) -> Sequence[str]:
        shape = self.work.shape
        if isinstance(shape, NotIncremental):
            return source.source.columns
        return tuple({own for scan in scans(shape) if scan.source == number for _, own in scan.columns})

    # ------------------------------------------------------------ line 10
    def publish(
        self,
        attempt: Writing,
        updates: list[Update],
        table_id: int,
        needed: Sequence[Requirement],
        *,
        inserted: int,
        deleted: int,
    ) -> RefreshRecord:
        """One transaction; without updates only our own rows move."""
        work, table = self.work, self.work.table
        measured = {
            "rows_inserted": inserted,
            "rows_deleted": deleted,
            "records_read": sum(plan.rows_to_read for plan in self.reads),
            "bytes_read": sum(plan.bytes_to_read for plan in self.reads),
            "bytes_written": sum(
                file.size_bytes for update in updates if isinstance(update, AddFiles) for file in update.files
            ),
            "spark_jobs": self.jobs(),
        }
        frontier = work.frontier

        def more(cursor: Any, snapshot: int) -> None:
            version = Version(
                snapshot, work.b.id, work.b.id, table.definition_version, table_id, work.t if work.clocked else None
            )
            reads = [source.read for source in self.window.sources]
            versions.move_frontier(
                cursor, table.id, version, work.b.time, reads, frontier.version_id if frontier else None
            )
            # its own commit too: whoever reads this version, a consumer or a point, reads it there
            positions = {read.table_id: read.commit for read in reads} | {table_id: snapshot}
            schema = self.lake.settings.lake.catalog_schema
            pins.move_positions(cursor, f"dynamic:{table.id}", positions, catalog_schema=schema)
            work.finish(cursor, self.plan.action, self.plan.reason, snapshot, **measured)

        claimed = Check("claim", lambda cursor, _: claims.require_claim(cursor, self.held))
        with work.phase("publish"):
            if not updates:
                assert frontier is not None  # noqa: S101  (a first load gives the table its name)
                with self.lake.conn.transaction(), self.lake.conn.cursor() as cursor:
                    claims.require_claim(cursor, self.held)
                    # what was compared with the table's own rows is right where these were read
                    more(cursor, frontier.version.commit if self.plan.delta else attempt.state.snapshot.id)
                return work.record
            told = f"refresh {table.name}: {self.plan.action.value}, +{inserted} -{deleted}"
            if needed:
                intent = Intent(uuid.uuid4(), tuple(updates), (*needed, claimed), author="lakemill", message=told)
                attempt.publishing = True
                self.lake.publisher.publish(intent, more)
            else:
                base = self._base(attempt)
                attempt.publish(updates, Purpose.EQUATION, base, told, more, (claimed,))
        return work.record

    def _base(self, attempt: Writing) -> int:
        """Since when nobody else may have written the table: what was computed from its rows stands on those rows."""
        if self.plan.delta is None or self.work.frontier is None:
            return attempt.state.snapshot.id
        return self.work.frontier.version.commit

    def _old_table(self) -> int | None:
        """Our own table that the new one replaces; somebody else's of that name stays, and the publish is refused."""
        table = self.work.table
        with self.lake.catalog() as catalog:
            found = catalog.table_id(table.name.schema, table.name.name, catalog.head().id)
        return table.table_id if found == table.table_id else None

    def _attempt_on(self, generation: Generation) -> Writing:
        with self.lake.catalog() as catalog:
            snapshot = catalog.head()
            target = read_target(self.lake.conn, generation.table)
            return Writing(
                self.lake,
                State(snapshot, generation.table, target, ReadPlan(generation.table, None, snapshot.id, ())),
            )


def _spelled(type_: str) -> str:
    """A type as one of its spellings."""
    return exp.DataType.build(type_, dialect="duckdb").sql("duckdb", identify=True)


def _require_found(found: int, expected: int) -> None:
    if found != expected:
        text = f"{expected} rows should have gone, {found} were found in the table"
        raise Lost(Reason("ROWS_NOT_FOUND", text))
