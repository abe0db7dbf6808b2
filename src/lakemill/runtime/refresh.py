"""One refresh, from its claim to its publish: the lines of DESIGN's section 3, in their order.

A refresh moves a dynamic table from data snapshot a to b and leaves it equal to its query at b. What its sources did in
between is known from the catalog before Spark is asked; most refreshes find nothing and end there. The signed rows are
staged once, and what is written derives from that file. Content, frontier, history and claim move in one publish.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lakemill.core.lag import Version
from lakemill.core.names import QualifiedName
from lakemill.core.plan import Plan, Reason
from lakemill.core.refresh import Action, Outcome, Trigger
from lakemill.core.scan import Snapshot
from lakemill.errors import (
    ClaimLost,
    ConflictError,
    FrontierMoved,
    InternalError,
    LakemillError,
    OutcomeUnknown,
    UnknownDynamicTable,
)
from lakemill.runtime import recording
from lakemill.runtime.apply import Lost
from lakemill.runtime.carry import carry_out
from lakemill.runtime.claiming import claimed, holder
from lakemill.runtime.meaning import is_interrupt, meaning
from lakemill.runtime.planning import Planning
from lakemill.runtime.reporting import reported
from lakemill.runtime.window import Window, gone, unchanged
from lakemill.store import claims, db, definitions, history, pins, versions
from lakemill.store import work as queue
from lakemill.store.definitions import DynamicTable, SourceKind
from lakemill.store.history import RefreshRecord
from lakemill.telemetry import metrics, tracing
from lakemill.telemetry.log import failed as log_failed

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake

PIN = timedelta(hours=12)
ATTEMPTS = 3
ROUNDS = 5
"""How often all is planned at a newer snapshot, because somebody else has taken a table past the last one."""
_MEASURED = (
    *("rows_in", "rows_inserted", "rows_deleted", "records_read", "bytes_read", "bytes_written"),
    *("spark_jobs", "spark_tasks", "spark_executors", "spilled_bytes"),
)
_NOTHING = dict.fromkeys(_MEASURED, 0)
NO_CHANGE = Reason("NO_CHANGE", "nothing that it reads changed")


# ---------------------------------------------------------------- several tables at one data snapshot
def refresh(
    lake: Lake,
    names: Sequence[QualifiedName],
    *,
    full: bool = False,
    trigger: Trigger = Trigger.MANUAL,
) -> tuple[RefreshRecord, ...]:
    """Bring these tables, and the suppliers that they need, to the newest snapshot; one record each, in order.

    A table that fails is recorded as failed, and those that read it are not tried; the others go on.
    """
    wanted = {definitions.get(lake.conn, name).id for name in names}
    history.close_abandoned(lake.conn)
    begun: dict[int, RefreshRecord] = {}
    for _ in range(ROUNDS - 1):
        with suppress(FrontierMoved):
            return _round(lake, wanted, full, trigger, begun)
    return _round(lake, wanted, full, trigger, begun, last=True)


def _round(
    lake: Lake, wanted: set[int], full: bool, trigger: Trigger, begun: dict[int, RefreshRecord], *, last: bool = False
) -> tuple[RefreshRecord, ...]:
    """All of them at the snapshot that is the newest now; unless it is the ``last``, one that is overtaken ends it.

    Its record is left in ``begun``, and goes on in the next round.
    """
    b, t = lake.snapshot(), datetime.now(UTC)
    done: list[RefreshRecord] = []
    failed: dict[QualifiedName, RefreshRecord] = {}
    with pins.pinned(lake.conn, b.id, holder(), "refresh", PIN, catalog_schema=lake.settings.lake.catalog_schema):
        for dynamic_id in _chain(lake, wanted):
            try:  # as it is now: it may be declared anew with a supplier, or dropped by somebody
                table = definitions.by_id(lake.conn, dynamic_id)
            except UnknownDynamicTable:
                continue
            sources = definitions.sources(lake.conn, table)
            cause = next((failed[s.name] for s in sources if s.name in failed), None)
            if cause is not None:
                record = recording.skipped(lake, table, cause, trigger, b)
            elif table.id not in wanted | begun.keys() and _holds(lake, table, b, t):
                continue
            else:
                whole = full and table.id in wanted
                work = Refresh(lake, table, sources, b, t, trigger, full=whole, begun=begun.pop(table.id, None))
                try:
                    record = work.run()
                except FrontierMoved as error:
                    if not last:
                        begun[table.id] = work.begun or work.record
                        raise
                    record = recording.failed(lake, work.record, error)
            done.append(record)
            if record.outcome is not Outcome.SUCCEEDED:
                failed[table.name] = cause or record
    return tuple(done)


def refresh_at(
    lake: Lake,
    dynamic_id: int,
    b: Snapshot,
    t: datetime,
    lost: Callable[[], LakemillError | None] = lambda: None,
    trigger: Trigger = Trigger.SCHEDULED,
) -> RefreshRecord | None:
    """For a worker: one table, at the data snapshot that was chosen; None where it, or what it reads, has passed that.

    Suppliers that did not change since are held to be right at b, too; the others must have got there before. ``lost``
    says why it was stopped, where it was.
    """
    schema = lake.settings.lake.catalog_schema
    with pins.pinned(lake.conn, b.id, holder(), "refresh", PIN, catalog_schema=schema):
        for one in (*definitions.ancestors(lake.conn, dynamic_id), dynamic_id):
            table = definitions.by_id(lake.conn, one)
            sources = definitions.sources(lake.conn, table)
            work = Refresh(lake, table, sources, b, t, trigger, lost=lost, queued=True)
            if one != dynamic_id:
                if not _holds(lake, table, b, t):
                    work.hold()
                continue
            try:
                return work.run()
            except FrontierMoved as error:
                recording.overtaken(lake, work.record, error)
    return None


def explain(lake: Lake, name: QualifiedName) -> tuple[Plan, Window, Snapshot]:
    """What the next refresh would do: the same plan, without carrying it out."""
    with db.rolled_back(lake.conn):  # planning declares the definition again where a source has another shape
        table = definitions.get(lake.conn, name)
        b, t = lake.snapshot(), datetime.now(UTC)
        work = Refresh(lake, table, definitions.sources(lake.conn, table), b, t, Trigger.MANUAL)
        work.begin()
        plan, window = work.planned()
    return plan, window, b


def _chain(lake: Lake, wanted: set[int]) -> list[int]:
    """These tables and all that they reach, suppliers first."""
    graph = definitions.graph(lake.conn)
    tables = {table.name: table.id for table in definitions.list_all(lake.conn)}
    names = {name for name, dynamic_id in tables.items() if dynamic_id in wanted}
    names |= {ancestor for name in list(names) for ancestor in graph.ancestors(name)}
    return [tables[name] for name in graph.order if name in names]


def _holds(lake: Lake, table: DynamicTable, b: Snapshot, t: datetime) -> bool:
    version = versions.version_at(lake.conn, table.id, b.id, t)
    if version is None or version.definition_version != table.definition_version:
        return False
    with lake.catalog() as catalog:
        return not gone(catalog, version.commit)


# ---------------------------------------------------------------- one table
@dataclass(slots=True)
class Refresh(Planning):
    """One refresh of one table; ``run`` does it, and records what it did."""

    trigger: Trigger
    begun: RefreshRecord | None = None
    """Of an earlier round, which could not end it."""
    lost: Callable[[], LakemillError | None] = lambda: None
    """Why somebody stopped it; None: nobody did."""
    queued: bool = False
    """A worker does it, so that nobody but the log hears of our own mistakes."""
    record: RefreshRecord = field(init=False)
    stopped: LakemillError | None = field(default=None, init=False)
    """Why it was stopped from beside it: it took more than it may (``runtime/limits``)."""

    def why_stopped(self) -> LakemillError | None:
        return self.stopped or self.lost()

    def begin(self) -> None:
        self.frontier = versions.frontier(self.lake.conn, self.table.id)
        table, version = self.table, self.table.definition_version
        begun = self.begun or RefreshRecord(
            uuid.uuid4(), table.id, table.name, version, self.trigger, datetime.now(UTC)
        )
        self.record = self.begun = replace(
            begun,
            definition_version=version,
            a=self.frontier.version.b_hi if self.frontier else None,
            b=self.b.id,
            t=self.t if self.clocked else None,
        )

    @reported
    @tracing.traced
    def run(self) -> RefreshRecord:
        """Do it; ``FrontierMoved`` where it, or a supplier, has passed b: all must be planned again at a later one."""
        self.begin()
        try:
            if self._is_current():
                return self._no_data(NO_CHANGE)
            with claimed(self.lake, self.table, self.why_stopped) as held:
                history.close_abandoned(self.lake.conn)  # whoever had it before us, and was killed
                self.begin_again()
                if self._is_current():  # somebody was first, and did the same
                    return self._no_data(NO_CHANGE)
                self.record = self.begun = replace(self.record, holder=held.holder, fence=held.fence)
                history.save_refresh(self.lake.conn, self.record)
                for _ in range(ATTEMPTS - 1):
                    try:
                        return self._attempt(held)
                    except (ClaimLost, FrontierMoved):
                        raise
                    except ConflictError:
                        metrics.count_conflict()
                        self.begin_again()
                return self._attempt(held)
        except FrontierMoved:
            raise
        except OutcomeUnknown as error:
            self.record = recording.settled(self.lake, self._so_far(), error)
        except LakemillError as error:
            self.record = recording.failed(self.lake, self._so_far(), self.why_stopped() or error)
        except db.LOST as error:
            told = self.why_stopped() or db.unavailable(error)
            self.record = recording.failed(self.lake, self._so_far(), told)
        except Exception as error:  # a mistake of ours: recorded, and told as what it is
            meant = InternalError(f"{type(error).__name__}: {error}") if self.queued else meaning(error)
            self.record = recording.failed(self.lake, self._so_far(), self.why_stopped() or meant)
            self.record = replace(self.record, cause=error)
            # nothing is to go on after Ctrl-C; and CREATE takes back what it declared
            if is_interrupt(error) or self.trigger is Trigger.CREATION:
                raise
            if self.queued:
                log_failed("refresh", error, table=str(self.table.name))
        return self.record

    def hold(self) -> bool:
        """Where nothing changed its version is right at b, too, without a record; whether that is so."""
        self.begin()
        if not self._is_current():
            return False
        with self.lake.conn.transaction():
            self._raise_b()
        return True

    def _so_far(self) -> RefreshRecord:
        return replace(self.record, phases=self.taken())

    def begin_again(self) -> None:
        """Somebody was first: the frontier and the definition are read anew, and the same record goes on."""
        self.table = definitions.by_id(self.lake.conn, self.table.id)
        self.sources = definitions.sources(self.lake.conn, self.table)
        self._shape = None
        self.begin()

    def _is_current(self) -> bool:
        if self.frontier is None or self.full or self.table.stale_since is not None:
            return False
        with self.phase("look"):
            return unchanged(self.lake, self.table, self.sources, self.frontier, self.b)

    def _attempt(self, held: claims.Claim) -> RefreshRecord:
        if self.frontier is not None and self.frontier.version.b_hi > self.b.id:
            raise FrontierMoved(f"{self.table.name} is at data snapshot {self.frontier.version.b_hi} already")
        plan, window = self.planned()
        if plan.action is Action.NO_DATA:
            return self._no_data(plan.reason, held, window)
        found = recording.deltas(window), recording.rows_in(window)
        self.record = replace(self.record, sources=found[0], rows_in=found[1])
        if (why := self.why_stopped()) is not None:  # Spark has nothing yet that could be interrupted
            raise why
        with self.phase("start"):  # of Spark, where it does not run yet
            _ = self.lake.spark
        try:
            return carry_out(self, held, plan, window)
        except Lost as lost:
            whole = replace(plan, action=Action.FULL, reason=lost.reason, delta=None)
            return carry_out(self, held, self.profiled(whole, window), window)

    # ------------------------------------------------------------ ends
    def _no_data(self, reason: Reason, held: claims.Claim | None = None, window: Window | None = None) -> RefreshRecord:
        """Nothing to compute. With a window: what happened between the ends left no trace at b, so only b is added."""
        assert self.frontier is not None  # noqa: S101  (without one it is a first load)
        old = self.frontier.version
        if held is None or window is None:
            with self.lake.conn.transaction():
                self._raise_b()
                return self.finish(self.lake.conn, Action.NO_DATA, reason, old.commit, **_NOTHING)
        reads = [source.read for source in window.sources]
        t = self.t if self.clocked else None
        version = Version(old.commit, self.b.id, self.b.id, self.table.definition_version, old.table_id, t)
        with self.lake.conn.transaction(), self.lake.conn.cursor() as cursor:
            claims.require_claim(cursor, held)
            versions.move_frontier(
                cursor, self.table.id, version, self.b.time, reads, self.frontier.version_id, self.frontier.states
            )
            self._hold(reads)
            return self.finish(cursor, Action.NO_DATA, reason, old.commit, **_NOTHING)

    def _raise_b(self) -> None:
        """Its version is right at b too. What it read has not changed, so that its next delta can start there."""
        assert self.frontier is not None  # noqa: S101  (without one it is a first load)
        claims.lock_claim(self.lake.conn, self.table.id)  # or a publish would move the same rows at the same time
        raised = versions.raise_b_hi(self.lake.conn, [self.frontier.version_id], self.b.id, self.b.time)
        if raised:
            bases = {source.table_id for source in self.sources if source.kind is SourceKind.TABLE}
            reads = [replace(r, commit=self.b.id) if r.table_id in bases else r for r in self.frontier.sources]
            moved = [read.table_id for read in reads if read.table_id in bases]
            versions.advance_sources(self.lake.conn, self.table.id, moved, self.b.id)
            self._hold(reads)

    def _hold(self, reads: Sequence[versions.SourceRead]) -> None:
        """Expiry leaves what the next delta starts from, and the commit that holds the content."""
        assert self.frontier is not None  # noqa: S101  (without one it is a first load)
        own = self.frontier.version
        positions = {read.table_id: read.commit for read in (*reads, *self.frontier.states)}
        positions[own.table_id] = own.commit
        schema = self.lake.settings.lake.catalog_schema
        pins.move_positions(self.lake.conn, pins.dynamic(self.table.id), positions, catalog_schema=schema)

    def finish(self, where: db.Executor, action: Action, reason: Reason, commit: int, **measured: Any) -> RefreshRecord:
        """The record of a success, saved as part of the caller's transaction."""
        self.record = replace(
            self.record,
            outcome=Outcome.SUCCEEDED,
            action=action,
            reason=f"{reason.code}: {reason.text}",
            remedy=reason.remedy,
            commit=commit,
            ended_at=datetime.now(UTC),
            phases=self.taken(),
            **measured,
        )
        history.save_refresh(where, self.record)
        queue.recovered(where, [self.table.id])  # whoever asked for it
        return self.record
