"""Writing a lake table from Spark: append, replace, delete, merge. Each is staged, then published as one snapshot.

Top to bottom: read the table's state, let Spark stage files, read their footers back, build an intent, publish. What is
computed from the table's rows is staged once and everything else derives from that file, so that deletes and inserts
can't disagree. A conflict that recomputing can cure is planned again; staged files of a failed attempt are
removed. Nothing is visible before the publish.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, get_args

import pyarrow as pa
import pyarrow.compute as pc

from lakemill.core.commit import (
    AddFiles,
    DeletePositions,
    EndFiles,
    Intent,
    NewFile,
    NoConflict,
    Purpose,
    Requirement,
    Update,
)
from lakemill.core.scan import DeleteFile, ReadPlan, Snapshot, TableAt
from lakemill.errors import (
    BadArgument,
    LakemillError,
    OutcomeUnknown,
    PublishConflict,
    UnknownColumn,
    UnknownSnapshot,
)
from lakemill.lake.flush import check_locks, flush, to_be_dropped
from lakemill.lake.footer import new_deletes, new_files
from lakemill.lake.scan import scan_in
from lakemill.lake.staging import JOB_FOLDER, Staged
from lakemill.lake.storage import StagingStorage
from lakemill.lake.target import WriteTarget, read_target
from lakemill.spark.changes import DELETE, INSERT, OPERATION, UPDATE, count_by_file, merge_diff, read_diff, stage_diff
from lakemill.spark.deletes import DRIVER_POSITIONS, few_places, write_deletes
from lakemill.spark.inputs import ROW_ID
from lakemill.spark.outputs import write_files
from lakemill.spark.positions import FILE_ID, POSITION, in_delete_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakemill.lake.publish import More, Published
    from lakemill.runtime.open import Lake, Table

ATTEMPTS = 5
T = TypeVar("T")
Matched: TypeAlias = Literal["update", "delete", "ignore"]
Unmatched: TypeAlias = Literal["insert", "ignore"]


@dataclass(frozen=True, slots=True)
class State:
    """What a write starts from: the table at one snapshot, where new files go, and which files are live."""

    snapshot: Snapshot
    table: TableAt
    target: WriteTarget
    plan: ReadPlan

    @property
    def inlined(self) -> bool:
        """Whether rows or deletes are in the catalog, where no position names them."""
        return bool(self.plan.inlined_rows or self.plan.inlined_deletes)


@dataclass(slots=True)
class Writing:
    """One attempt at a write: what it staged, so that a failure leaves nothing behind."""

    lake: Lake
    state: State
    staged: list[str] = field(default_factory=list)
    publishing: bool = False
    older: dict[int, set[int]] = field(default_factory=dict)
    """Positions that were deleted before, of the data files that were asked about."""

    @property
    def storage(self) -> StagingStorage:
        return self.lake.storage.staging()

    def scratch(self) -> str:
        """A folder of this attempt below the table's, for the diff."""
        return f"{self.state.target.path}{JOB_FOLDER}{uuid.uuid4()}/"

    def files(self, frame: DataFrame, row_ids: str | None = None) -> tuple[NewFile, ...]:
        return self.named(self.written(frame, row_ids))

    def written(self, frame: DataFrame, row_ids: str | None = None) -> Staged:
        """By Spark alone: other threads may do it, and the lake's own does what is `named`."""
        staged = write_files(frame, self.state.target, self.storage, row_ids=row_ids)
        self.staged += [file.path for file in staged.files]
        return staged

    def named(self, staged: Staged) -> tuple[NewFile, ...]:
        """The files that have rows; Spark leaves others, too, where a task had none."""
        files = new_files(self.lake.duck, staged, self.state.target)
        wanted = {file.path for file in files}
        if empty := [file.path for file in staged.files if file.relative not in wanted]:
            for path in empty:  # nobody reads them back; another thread may be adding its own
                self.staged.remove(path)
            with suppress(LakemillError, OSError):  # upkeep would remove them as orphans
                self.storage.remove(empty)
        return files

    def requirements(self, purpose: Purpose, base: int) -> tuple[Requirement, ...]:
        """What must be true of the table when what was written for it is published."""
        return (NoConflict(self.state.table.id, base, purpose), *self.state.target.requirements)

    def publish(
        self,
        updates: Sequence[Update],
        purpose: Purpose,
        base: int,
        message: str,
        more: More | None,
    ) -> Published | None:
        if not updates:
            return None
        needed = self.requirements(purpose, base)
        intent = Intent(uuid.uuid4(), tuple(updates), needed, author="lakemill", message=message)
        self.publishing = True
        try:
            return self.lake.publisher.publish(intent, more)
        except PublishConflict as error:
            error.place = self.state.table.full_name
            raise


# ---------------------------------------------------------------- the four writes
def append(table: Table, frame: DataFrame, *, message: str | None = None, more: More | None = None) -> Published | None:
    """Add rows. None when there were none."""
    _check(message)
    with writing(table) as attempt:
        files = attempt.files(frame)
        updates = [AddFiles(attempt.state.table.id, files)] if files else []
        told = message or f"append to {attempt.state.table.full_name}"
        return attempt.publish(updates, Purpose.APPEND, attempt.state.snapshot.id, told, more)


def replace(
    table: Table, frame: DataFrame, *, base: int | None = None, message: str | None = None, more: More | None = None
) -> Published | None:
    """Give the table new content in one snapshot; older snapshots keep the old.

    ``base`` is the snapshot that the frame was computed from: a change of the table since then is a conflict.
    """
    _check(message)
    if base is not None and (newest := table.lake.snapshot().id) < base:
        raise UnknownSnapshot(f"there is no snapshot {base}; the newest is {newest}", place="base")
    with writing(table, changes=True) as attempt:
        table_id = attempt.state.table.id
        ended = tuple(read.file.id for read in attempt.state.plan.files)
        files = attempt.files(frame)
        updates: list[Update] = [EndFiles(table_id, ended)] if ended else []
        updates += [AddFiles(table_id, files)] if files else []
        told = message or f"replace {attempt.state.table.full_name}"
        since = attempt.state.snapshot.id if base is None else base
        return attempt.publish(updates, Purpose.CHANGE, since, told, more)


def delete(table: Table, where: str, *, message: str | None = None, more: More | None = None) -> Published | None:
    """Remove the rows that meet a Spark SQL condition. None when there are none."""
    _check(message)
    if not where.strip():
        raise BadArgument("a delete needs a condition", remedy="write one; to empty the table: delete('true')")

    def once() -> Published | None:
        with writing(table, changes=True) as attempt:
            hits = table.frame(attempt.state.plan, where, located=True).select(FILE_ID, POSITION)
            with diff_of(attempt, hits) as diff:
                updates = deletes(attempt, diff)
            told = message or f"delete rows of {attempt.state.table.full_name}"
            return attempt.publish(updates, Purpose.CHANGE, attempt.state.snapshot.id, told, more)

    return _replanned(once)


def merge(
    table: Table,
    source: DataFrame,
    on: str | Sequence[str],
    *,
    matched: Matched = "update",
    unmatched: Unmatched = "insert",
    message: str | None = None,
    more: More | None = None,
) -> Published | None:
    """Bring the source's rows into the table by key: update (or delete) what matches, insert what does not.

    Updated rows keep their row ids (but in tables with list or map columns); rows that are equal already are left
    alone; NULL keys match nothing. A key that the source has twice is refused.
    """
    _check(message)
    on = [on] if isinstance(on, str) else on
    if not on:
        raise BadArgument("a merge needs at least one key column", remedy='name them: merge(frame, on=["id"])')
    for name, given, known in (("matched", matched, Matched), ("unmatched", unmatched, Unmatched)):
        if given not in get_args(known):
            raise BadArgument(f"{name}={given!r} is none of {', '.join(map(repr, get_args(known)))}")

    def once() -> Published | None:
        with writing(table, changes=True) as attempt:
            state = attempt.state
            known = {column.name.lower() for column in state.table.columns}
            if unknown := [name for name in on if name.lower() not in known]:
                raise UnknownColumn(f"{state.table.full_name} has no column {unknown[0]!r} to merge on")
            current = table.frame(state.plan, located=True)
            diff_frame = merge_diff(current, source, state.table.columns, on, matched, unmatched)
            with diff_of(attempt, diff_frame) as diff:
                updates = deletes(attempt, diff.where(f"{OPERATION} <> '{INSERT}'"))
                updates += changed_rows(attempt, diff)
            told = message or f"merge into {state.table.full_name}"
            return attempt.publish(updates, Purpose.CHANGE, state.snapshot.id, told, more)

    return _replanned(once)


def _check(message: str | None) -> None:
    """What no publish can keep is refused before anything is staged."""
    if message is not None and "\0" in message:
        raise BadArgument("the message has a NUL, which PostgreSQL can't keep", place="message", remedy="leave it out")


def changed_rows(attempt: Writing, diff: DataFrame, operations: Collection[str] = (UPDATE, INSERT)) -> list[Update]:
    """New versions of updated rows, which keep their row ids, apart from inserted ones, which get new ones.

    ``operations`` are those that the diff may have: nothing is computed for others.
    """
    table_id = attempt.state.table.id
    extra = [OPERATION, FILE_ID, POSITION]
    files: tuple[NewFile, ...] = ()
    if attempt.state.target.mapping is not None and operations:
        # Files read by names can't carry row ids: the updated rows get new ones.
        files = attempt.files(diff.where(f"{OPERATION} <> '{DELETE}'").drop(*extra, ROW_ID))
    else:
        if UPDATE in operations:
            files += attempt.files(diff.where(f"{OPERATION} = '{UPDATE}'").drop(*extra), row_ids=ROW_ID)
        if INSERT in operations:
            files += attempt.files(diff.where(f"{OPERATION} = '{INSERT}'").drop(*extra, ROW_ID))
    return [AddFiles(table_id, files)] if files else []


def deletes(attempt: Writing, hits: DataFrame | pa.Table) -> list[Update]:
    """Positions to remove → whole files that end, and one cumulative delete file for each other one."""
    state = attempt.state
    few = hits if isinstance(hits, pa.Table) else few_places(hits)
    hits = hits if few is None else few
    counts = count_by_file(hits)
    if not counts:
        return []
    files = {read.file.id: read.file for read in state.plan.files}
    live = {read.file.data_file_id: read.file for read in state.plan.deletes}
    before = {file_id: live[file_id].positions for file_id in counts if file_id in live}
    ended = tuple(file_id for file_id, hit in counts.items() if hit + before.get(file_id, 0) == files[file_id].rows)
    updates: list[Update] = [EndFiles(state.table.id, ended)] if ended else []
    partly = {file_id: files[file_id].path for file_id in counts if file_id not in ended}
    if partly:
        older = [live[file_id] for file_id in partly if file_id in live]
        positions = _with_older(attempt, hits, older, ended)
        staged = write_deletes(positions, state.target, partly, attempt.storage)
        attempt.staged += [delete.file.path for delete in staged]
        replaces = {file_id: file.id for file_id, file in live.items() if file_id in partly}
        updates.append(DeletePositions(state.table.id, new_deletes(attempt.lake.duck, staged, replaces)))
    return updates


def older_positions(attempt: Writing, file_ids: Collection[int]) -> dict[int, set[int]] | None:
    """What was deleted from these files before, as the driver holds it; None where that is too much for it."""
    older = [read.file for read in attempt.state.plan.deletes if read.file.data_file_id in file_ids]
    if sum(file.positions for file in older) > DRIVER_POSITIONS:
        return None
    for file in older:
        if file.data_file_id not in attempt.older:
            rows = attempt.lake.sql("SELECT pos FROM read_parquet(?)", [file.path]).fetchall()
            attempt.older[file.data_file_id] = {position for (position,) in rows}
    return {file.data_file_id: attempt.older[file.data_file_id] for file in older}


def _with_older(
    attempt: Writing, hits: DataFrame | pa.Table, older: Sequence[DeleteFile], ended: Sequence[int]
) -> DataFrame | pa.Table:
    """The positions of files that stay, with those that were deleted from them before; the driver holds few."""
    spark = attempt.lake.spark
    if isinstance(hits, pa.Table):
        hits = hits.filter(pc.invert(pc.is_in(hits.column(FILE_ID), pa.array(ended, pa.int64()))))
        known = older_positions(attempt, {file.data_file_id for file in older})
        if known is not None:
            pairs = [(file_id, position) for file_id, positions in known.items() for position in positions]
            columns = [pa.array([pair[i] for pair in pairs], pa.int64()) for i in (0, 1)]
            return pa.concat_tables([hits, pa.table(dict(zip((FILE_ID, POSITION), columns, strict=True)))])
        hits = spark.createDataFrame(hits)
    positions = hits.select(FILE_ID, POSITION)
    if ended:
        positions = positions.where(~positions[FILE_ID].isin(list(ended)))
    if not older:
        return positions
    owners = {FILE_ID: [file.data_file_id for file in older]}
    return positions.unionByName(
        in_delete_files(spark, [file.path for file in older], owners).select(FILE_ID, POSITION)
    )


# ---------------------------------------------------------------- around a write
@contextmanager
def writing(table: Table, *, changes: bool = False) -> Iterator[Writing]:
    """The state to start from; what was staged is removed unless the publish happened or may have happened.

    With ``changes`` it holds no inlined rows or deletes, because what is taken out is named by file and position.
    """
    attempt = Writing(table.lake, files_only(table) if changes else state_of(table, planned=False))
    with leaving_nothing(attempt):
        yield attempt


@contextmanager
def leaving_nothing(attempt: Writing, also: Callable[[], None] | None = None) -> Iterator[None]:
    """What was staged is removed when the body fails, and ``also`` is done, unless it is or may be published."""
    try:
        yield
    except OutcomeUnknown:
        raise
    except BaseException as error:
        # Ctrl-C during COMMIT: the files may be published, so they stay; upkeep removes them if they are orphans
        if isinstance(error, LakemillError) or not attempt.publishing:
            with suppress(LakemillError, OSError):  # the failure itself matters more; upkeep removes orphans
                attempt.storage.remove(attempt.staged)
            if also is not None:
                with suppress(LakemillError):
                    also()
        raise


@contextmanager
def diff_of(attempt: Writing, frame: DataFrame, *more: DataFrame, folder: str | None = None) -> Iterator[DataFrame]:
    """The frame, and ``more`` parts of it, computed once: written to a scratch folder and read back when needed."""
    folder = folder or attempt.scratch()
    try:
        schema = stage_diff(frame, folder)
        for part in more:  # one after the other: each needs memory for itself only
            stage_diff(part, folder)
        yield read_diff(frame.sparkSession, folder, schema)
    finally:
        with suppress(LakemillError, OSError):
            attempt.storage.remove(attempt.storage.list(folder))
            attempt.storage.sweep(folder)


def state_of(table: Table, *, planned: bool = True) -> State:
    """An append asks nothing of the files that are there: it goes without their plan."""
    lake = table.lake
    with lake.catalog() as catalog:
        snapshot = catalog.head()
        found = catalog.table(table.schema, table.name, snapshot.id)
        plan = (
            scan_in(catalog, lake.front.stamps, found, snapshot) if planned else ReadPlan(found, None, snapshot.id, ())
        )
        return State(snapshot, found, read_target(lake.conn, found), plan)


def files_only(table: Table) -> State:
    """A state all of whose rows and deletes are in files; others may inline more while we flush, so we look again."""
    for _ in range(ATTEMPTS):
        state = state_of(table)
        if not state.inlined:
            return state
        try:
            _flush(table.lake, state.table)
        except LakemillError:
            state = state_of(table)
            if state.inlined:
                raise
            return state  # it was committed: only what the extension does after that failed
    raise PublishConflict(f"others keep writing inlined rows to {table.schema}.{table.name}")


def _flush(lake: Lake, table: TableAt) -> None:
    schema = lake.settings.lake.catalog_schema
    # Our own DuckDB may hold a lock on what is dropped, and ducklake 1.5.5 dies of a table that went since it attached.
    lake.renew_duck()
    check_locks(lake.conn, schema, to_be_dropped(lake.conn, schema, table))
    flush(lake.settings, lake.dsn, table)


def _replanned(once: Callable[[], T]) -> T:
    """Run again on the newest snapshot when somebody else was first; the last conflict is the caller's."""
    for _ in range(ATTEMPTS - 1):
        try:
            return once()
        except PublishConflict:
            continue
    return once()
