"""The jobs that keep a lake small: flush, compact, expire, cleanup, orphans; a dry run shows the plan that a run does.

The door for the command line, HTTP and Python. Every job is planned as a value first (``lake/expiry``, ``lake/upkeep``,
``lake/compaction``), and either told or carried out; the report says what was done and what stays, with the reasons.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby

from lakemill.core.compact import CompactPlan, Group
from lakemill.core.expiry import ExpirePlan, Retained
from lakemill.core.lag import lag
from lakemill.core.names import parse_name, quote
from lakemill.core.tending import Policies, Policy
from lakemill.errors import (
    ForeignLock,
    LakemillError,
    OutcomeUnknown,
    PublishConflict,
    UnknownTable,
    UnsupportedLake,
)
from lakemill.lake import expiry, upkeep
from lakemill.lake.compaction import MergedFile, merge_by_stock, merge_intent, plan_compact
from lakemill.lake.listing import list_inlining, list_tables
from lakemill.lake.storage import Storage, open_storage
from lakemill.lake.target import WriteTarget, read_target
from lakemill.runtime import write
from lakemill.runtime.open import Lake
from lakemill.runtime.points import Keeper
from lakemill.runtime.standings import Look, Looks, raise_idle
from lakemill.settings import Settings
from lakemill.spark.compact import write_merged
from lakemill.store import claims, definitions, ingest, pins, points

GRACE = timedelta(hours=1)
"""However short the retention is, a dynamic table that lags less than this holds what it needs."""
_TRIES = 5
_BATCH_GROUPS = 64
_BATCH_SIZES = 8  # target sizes that one publish replaces at most: a conflict costs no more than that


@dataclass(frozen=True, slots=True)
class Item:
    """A snapshot, a file or a group of files, and why it goes or stays."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class UpkeepReport:
    job: str
    dry_run: bool
    done: tuple[Item, ...]
    """What was done, or in a dry run: what would be."""
    kept: tuple[Item, ...] = ()
    snapshots: tuple[int, ...] = ()
    """Snapshots that the job made (compact; the last one of flush) or removed (expire)."""
    files_removed: int = 0
    bytes_removed: int | None = 0
    """None where nobody knows: the catalog forgets the size of a file before cleanup removes it."""
    files_scheduled: int = 0
    conflicts: int = 0
    """Publishes that others came before."""


def policies_of(settings: Settings) -> Policies:
    """What the settings say of the lake, its schemas and its tables."""
    return Policies(Policy(**settings.upkeep.of_lake()), settings.upkeep.given())


def flush(lake: Lake, table: str | None = None, *, dry_run: bool = False) -> UpkeepReport:
    """Rows and deletes that stock DuckDB left in the catalog become files; of this table, or of all."""
    schema, before = lake.settings.lake.catalog_schema, lake.snapshot().id
    named = list_inlining(lake.conn, schema) if table is None else [parse_name(table)]
    done: list[Item] = []
    kept: list[Item] = []
    for name in named:
        found = lake.table(str(name))
        try:
            state = write.state_of(found)
            if not state.inlined:
                continue
            if not dry_run:
                write.files_only(found)
        except UnknownTable:
            if table is not None:
                raise  # of all of them, one may be dropped meanwhile
        except (PublishConflict, ForeignLock, UnsupportedLake) as error:
            kept.append(Item(str(name), error.message))
        else:
            rows, deletes = sum(len(one.rows) for one in state.plan.inlined_rows), len(state.plan.inlined_deletes)
            done.append(Item(f"{rows} rows, {deletes} deletes of {name}", "they are in the catalog"))
    made = () if dry_run or not done else (lake.snapshot().id,)
    return UpkeepReport("flush", dry_run, tuple(done), tuple(kept), made if made != (before,) else ())


def compact_all(lake: Lake, table: str | None = None, *, dry_run: bool = False) -> UpkeepReport:
    """Compact one table, or each."""
    reports = [compact(lake, name, dry_run=dry_run) for name in _tables(lake, table)]
    sizes = [report.bytes_removed for report in reports]
    return UpkeepReport(
        "compact",
        dry_run,
        tuple(item for report in reports for item in report.done),
        tuple(item for report in reports for item in report.kept),
        tuple(snapshot for report in reports for snapshot in report.snapshots),
        sum(report.files_removed for report in reports),
        None if None in sizes else sum(filter(None, sizes)),
        sum(report.files_scheduled for report in reports),
    )


def _tables(lake: Lake, table: str | None) -> list[str]:
    if table is not None:
        return [table]
    listed = list_tables(lake.conn, lake.settings.lake.catalog_schema, lake.snapshot().id)
    return [f"{quote(found.schema)}.{quote(found.name)}" for found in listed if found.kind == "table"]


def compact(lake: Lake, table: str, *, dry_run: bool = False) -> UpkeepReport:
    """Merge small files, and drop rows that no snapshot shows; every snapshot and every delta stays what it was."""
    named = parse_name(table)
    with lake.catalog() as catalog:
        found = catalog.table(named.schema, named.name, catalog.head().id)
        target = read_target(lake.conn, found)
        own = catalog.options(found).get("target_file_size")
    policy = policies_of(lake.settings).of(named)
    size = int(own) if own else policy.target_file_size
    plan = plan_compact(lake.front, lake.duck, named.schema, named.name, size, policy.deleted_share)
    kept = [Item(skipped.path, skipped.reason) for skipped in plan.skipped]
    if dry_run:
        told = (*map(_told, plan.groups), *(_told(group, " by stock DuckDB") for group in plan.by_stock))
        return UpkeepReport("compact", True, told, tuple(kept))
    done: list[Item] = []
    snapshots: list[int] = []
    removed = conflicts = 0
    for batch in _batches(plan.groups, size):
        try:
            snapshots.append(_merge(lake, plan, batch, target))
        except PublishConflict as error:
            kept += [Item(_told(group).what, error.message) for group in batch]
            conflicts += 1
        else:
            done += [_told(group) for group in batch]
            removed += sum(len(group.sources) for group in batch)
    if plan.by_stock:
        before = lake.snapshot().id
        merge_by_stock(lake.duck, plan.table)
        snapshots += [after] if (after := lake.snapshot().id) != before else []
        done += [_told(group, " by stock DuckDB") for group in plan.by_stock]
        removed += sum(len(group.sources) for group in plan.by_stock)
    return UpkeepReport(
        "compact",
        False,
        tuple(done),
        tuple(kept),
        tuple(snapshots),
        files_scheduled=removed,
        conflicts=conflicts,
    )


def _merge(lake: Lake, plan: CompactPlan, groups: Sequence[Group], target: WriteTarget) -> int:
    storage = storage_of(lake).staging()
    ttl = lake.settings.upkeep.orphan_age
    schema = lake.settings.lake.catalog_schema
    merged: list[MergedFile] = []
    with pins.pinned(lake.conn, plan.base, "compact", plan.table.full_name, ttl, catalog_schema=schema):
        try:
            merged += write_merged(lake.spark, plan, groups, target, storage)
            intent = merge_intent(lake.duck, plan, merged, uuid.uuid4(), author="lakemill")
            return lake.publisher.publish(intent).snapshot_id
        except OutcomeUnknown:
            raise  # the files may be published: they stay
        except LakemillError:  # nothing was published; after anything else, such as Ctrl-C at COMMIT, it may have been
            storage.remove([path for one in merged for path in (one.path, one.delete_path) if path is not None])
            raise


def _batches(groups: Sequence[Group], size: int) -> Iterator[list[Group]]:
    """Groups of one version of the columns, as many as one publish takes."""
    for _, alike in groupby(groups, key=lambda group: group.columns):
        batch: list[Group] = []
        for group in alike:
            full = sum(g.bytes for g in batch) + group.bytes > _BATCH_SIZES * size or len(batch) == _BATCH_GROUPS
            if batch and full:
                yield batch
                batch = []
            batch.append(group)
        yield batch


def _told(group: Group, how: str = "") -> Item:
    first = group.sources[0].file
    where = first.path.rpartition("/")[0] + "/"
    return Item(f"{len(group.sources)} files, {group.bytes} bytes in {where}", group.reason + how)


def expire(
    lake: Lake,
    *,
    older_than: datetime | timedelta | None = None,
    versions: Sequence[int] | None = None,
    dry_run: bool = False,
) -> UpkeepReport:
    """Forget snapshots before a time (or an age), or those named; never one that somebody needs."""
    if isinstance(older_than, timedelta):
        older_than = _ago(older_than)
    retention = lake.settings.upkeep.retention
    attempt = 0
    looks, keeper = Looks(lake), Keeper()
    while True:
        attempt += 1
        look = looks.look()
        if not dry_run:  # what nothing happened to holds only as much back as it must
            raise_idle(lake, look)
            keeper.keep(lake, looks.look())
        late = _left_behind(lake, look)
        plan = expiry.plan_expire(
            lake.front,
            retention,
            older_than=older_than,
            versions=versions,
            left_behind=late,
            retained=retained(lake),
        )
        kept = tuple(Item(f"snapshot {kept.snapshot}", kept.reason) for kept in plan.kept)
        if dry_run:
            return UpkeepReport("expire", True, _gone(lake, plan, plan.versions), kept, plan.versions)
        try:
            expired = expiry.expire(lake.front, lake.duck, plan)
        except PublishConflict:
            if attempt == _TRIES:
                raise
        else:
            done = _gone(lake, plan, expired.versions)
            return UpkeepReport("expire", False, done, kept, expired.versions, files_scheduled=expired.files_scheduled)


def retained(lake: Lake) -> tuple[Retained, ...]:
    """The tables whose past is kept for longer than ``upkeep.retention``: by a policy, or as they were declared.

    The longer of the two holds. A shorter one than the lake's means nothing here: a snapshot is of all tables.
    """
    policies, most = policies_of(lake.settings), lake.settings.upkeep.retention
    declared = {one.table_id: one.retention for one in ingest.tables(lake.conn, lake.settings.lake.catalog_schema)}
    own = [one for one in (*declared.values(), *(policy.retention for policy in policies.named())) if one is not None]
    if max(own, default=most) <= most:
        return ()
    found = []
    for table_id, name, begin, end in expiry.every_table(lake.front):
        time = max(policies.of(name).retention, declared.get(table_id) or most)
        if time > most:
            found.append(Retained(table_id, str(name), time, begin, end))
    return tuple(found)


def _ago(age: timedelta) -> datetime:
    try:
        return datetime.now(UTC) - age
    except OverflowError:  # older than any snapshot
        return datetime.min.replace(tzinfo=UTC)


def _left_behind(lake: Lake, look: Look) -> frozenset[str]:
    """Dynamic tables that lag for longer than the retention: one that is suspended must not hold a lake for ever.

    None that somebody is at work on. With them goes what is kept of a point that they are part of.
    """
    now, most = datetime.now(UTC), max(lake.settings.upkeep.retention, GRACE)
    held = {dynamic_id for dynamic_id, _ in claims.held(lake.conn)}
    late = (name for name, one in look.standings.items() if (behind := lag(one, now)) is not None and behind > most)
    ids = {look.known[name].id for name in late} - held
    return frozenset(map(pins.dynamic, ids)) | points.holders(lake.conn, ids)


def _gone(lake: Lake, plan: ExpirePlan, versions: Sequence[int]) -> tuple[Item, ...]:
    """The snapshots that went, and the dynamic tables that were given up for it, by their names."""
    snapshots = tuple(Item(f"snapshot {version}", "nobody needs it") for version in versions)
    if not plan.let_go:
        return snapshots
    names = {pins.dynamic(table.id): str(table.name) for table in definitions.list_all(lake.conn)}
    why = "STALE: left behind for longer than upkeep.retention; it will be loaded anew"
    return snapshots + tuple(
        Item(names.get(holder, holder), why) for holder in plan.let_go if not points.is_point(holder)
    )


def cleanup(lake: Lake, *, dry_run: bool = False) -> UpkeepReport:
    """Delete files that left the catalog so long ago that nobody can be reading them."""
    schema, age = lake.settings.lake.catalog_schema, lake.settings.upkeep.orphan_age
    plan = upkeep.plan_cleanup(lake.conn, schema, age)
    removed = 0 if dry_run else upkeep.clean(lake.conn, schema, storage_of(lake), plan)
    done = tuple(Item(file.path, file.reason) for file in plan.files)
    kept = tuple(Item(file.path, file.reason) for file in plan.kept)
    kept += tuple(Item(file.path, file.reason) for file in plan.released)
    return UpkeepReport("cleanup", dry_run, done, kept, files_removed=removed, bytes_removed=None if removed else 0)


def orphans(lake: Lake, *, dry_run: bool = False) -> UpkeepReport:
    """Delete files below the data path that no snapshot ever got, when no job can still be about to publish them."""
    storage = storage_of(lake)
    plan = upkeep.plan_orphans(lake.conn, lake.settings.lake.catalog_schema, storage, lake.settings.upkeep.orphan_age)
    removed = 0 if dry_run else upkeep.remove_orphans(lake.conn, lake.settings.lake.catalog_schema, storage, plan)
    done = tuple(Item(file.path, file.reason) for file in plan.files)
    kept = tuple(Item(file.path, file.reason) for file in plan.kept)
    return UpkeepReport("orphans", dry_run, done, kept, files_removed=removed, bytes_removed=removed and plan.bytes)


def storage_of(lake: Lake) -> Storage:
    """The files where the catalog says that they are."""
    with lake.catalog() as catalog:
        return open_storage(catalog.data_path, lake.settings.s3)
