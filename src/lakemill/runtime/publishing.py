"""One publish of what a refresh carried out: content, hidden states, frontier, history and claim move together.

Line 10 of a refresh, for ``runtime/carry``. Nothing is computed here; what was measured on the way is told.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakemill.core.commit import (
    AddFiles,
    Check,
    DeleteFile,
    DeletePositions,
    DropTable,
    Intent,
    NewFile,
    Requirement,
    SwapGeneration,
    Update,
)
from lakemill.core.lag import Version
from lakemill.core.plan import Plan
from lakemill.core.refresh import Action
from lakemill.lake.scan import rows_of
from lakemill.runtime.leaves import Leaves
from lakemill.runtime.window import FOREIGN, Window, gone
from lakemill.runtime.write import Writing
from lakemill.spark.status import Status
from lakemill.store import claims, pins, versions
from lakemill.store.history import RefreshRecord
from lakemill.store.versions import SourceRead

if TYPE_CHECKING:
    from lakemill.runtime.refresh import Refresh


@dataclass(slots=True)
class Written:
    """What a publish does to one table: the dynamic table's own, or a state's."""

    attempt: Writing
    updates: list[Update]
    needed: tuple[Requirement, ...]
    rows: tuple[int, int] = (0, 0)
    """Inserted and deleted."""


@dataclass(slots=True)
class Publishing:
    work: Refresh
    held: claims.Claim
    plan: Plan
    window: Window
    leaves: Leaves
    status: Status

    def publish(self, own: Written, states: list[Written] | None, keys: int | None) -> RefreshRecord:
        """Without updates only our own rows move. ``states``: None where they stay; ``keys``: computed anew."""
        work, table, frontier = self.work, self.work.table, self.work.frontier
        table_id = own.attempt.state.table.id
        written = [own, *(states or ())]
        updates = [update for one in written for update in one.updates] + self._dropped_states(states)
        inserted, deleted = own.rows
        measured = self._measured(own, states, keys) | {
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
            schema = self.work.lake.settings.lake.catalog_schema
            pins.move_positions(cursor, pins.dynamic(table.id), positions, catalog_schema=schema)
            work.finish(cursor, self.plan.action, self.plan.reason, snapshot, **measured)

        with work.phase("publish"):
            if not updates:
                assert frontier is not None  # noqa: S101  (a first load gives the table its name)
                commit = frontier.version.commit
                if self.plan.delta is None:
                    commit = self._right_since(own.attempt, commit)
                with self.work.lake.conn.transaction(), self.work.lake.conn.cursor() as cursor:
                    claims.require_claim(cursor, self.held)
                    more(cursor, commit)
                return work.record
            claimed = Check("claim", lambda cursor, _: claims.require_claim(cursor, self.held))
            needed = (*(item for one in written for item in one.needed), claimed)
            told = f"refresh {table.name}: {self.plan.action.value}, +{inserted} -{deleted}"
            for one in written:
                one.attempt.publishing = True
            self.work.lake.publisher.publish(
                Intent(uuid.uuid4(), tuple(updates), needed, author="lakemill", message=told), more
            )
        return work.record

    def _right_since(self, attempt: Writing, commit: int) -> int:
        """From which snapshot on a table has the rows that it was compared with: ``commit``, if nobody wrote since."""
        read, table_id = attempt.state.snapshot.id, attempt.state.table.id
        if self.work.table.stale_since is not None:  # nothing keeps its commit
            return read
        with self.work.lake.catalog() as catalog:
            kept = not gone(catalog, commit) and catalog.untouched(table_id, commit, read, FOREIGN)
        return commit if kept else read

    def _spent(self) -> dict[str, int | None]:
        """What Spark says that it did so far: all that there is to compute."""
        spent = self.status.spent()
        names = ("spark_jobs", "spark_tasks", "spark_executors", "spilled_bytes")
        values = (None,) * 4 if spent is None else (spent.jobs, spent.tasks, spent.executors, spent.spilled_bytes)
        return dict(zip(names, values, strict=True))

    def _measured(self, own: Written, states: list[Written] | None, keys: int | None) -> dict[str, Any]:
        """How much of what is there was computed anew, as far as that is known without asking Spark again."""
        (inserted, deleted), stamps = own.rows, self.work.lake.front.stamps
        rows = rows_of(own.attempt.state.plan, stamps)
        if self.plan.delta is None:
            return {"rows_recomputed": rows + inserted - deleted}
        affected: int | None = inserted + deleted
        if self.plan.action is Action.KEYS:
            affected = keys
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
            if table_id not in now or (touched and not now[table_id].updates):
                found.append(known[table_id])
            else:  # what was compared, and is equal, is right where it was read
                left = now[table_id].attempt.state
                commit = snapshot if now[table_id].updates else left.snapshot.id
                found.append(SourceRead(table_id, left.table.columns_version, commit))
        return tuple(found)

    def _dropped_states(self, states: list[Written] | None) -> list[Update]:
        """Old states that nothing takes the place of."""
        if states is None or self.plan.delta is not None or self.work.frontier is None:
            return []
        kept = {one.attempt.state.table.id for one in states} | {
            update.old_table_id for one in states for update in one.updates if isinstance(update, SwapGeneration)
        }
        with self.work.lake.catalog() as catalog:
            head = catalog.head().id
            old = [read.table_id for read in self.work.frontier.states if read.table_id not in kept]
            return [DropTable(table_id) for table_id in old if catalog.table_by_id(table_id, head) is not None]


def _written(updates: Sequence[Update]) -> list[NewFile | DeleteFile]:
    added = [file for update in updates if isinstance(update, AddFiles) for file in update.files]
    return [*added, *(one for update in updates if isinstance(update, DeletePositions) for one in update.delete_files)]
