"""The four jobs that keep a lake small: compact, expire, cleanup, orphans; a dry run shows the plan that a run does.

The door for the command line and for Python. Every job is planned as a value first (``lake/expiry``, ``lake/upkeep``,
``lake/compaction``), and either told or carried out; the report says what was done and what stays, with the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lakemill.errors import PublishConflict
from lakemill.lake import expiry, upkeep
from lakemill.lake.storage import Storage, open_storage
from lakemill.runtime.open import Lake

_TRIES = 5


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
    """Snapshots that the job made (compact) or removed (expire)."""
    files_removed: int = 0
    bytes_removed: int = 0
    files_scheduled: int = 0


def expire(
    lake: Lake,
    *,
    older_than: datetime | timedelta | None = None,
    versions: Sequence[int] | None = None,
    dry_run: bool = False,
) -> UpkeepReport:
    """Forget snapshots before a time (or an age), or those named; never one that somebody needs."""
    if isinstance(older_than, timedelta):
        older_than = datetime.now(UTC) - older_than
    retention = lake.settings.upkeep.retention
    attempt = 0
    while True:
        attempt += 1
        plan = expiry.plan_expire(lake.front, retention, older_than=older_than, versions=versions)
        kept = tuple(Item(f"snapshot {kept.snapshot}", kept.reason) for kept in plan.kept)
        done = tuple(Item(f"snapshot {version}", "nobody needs it") for version in plan.versions)
        if dry_run:
            return UpkeepReport("expire", True, done, kept, plan.versions)
        try:
            expired = expiry.expire(lake.conn, lake.duck, plan, lake.settings.lake.catalog_schema)
        except PublishConflict:
            if attempt == _TRIES:
                raise
        else:
            return UpkeepReport("expire", False, done, kept, expired.versions, files_scheduled=expired.files_scheduled)


def cleanup(lake: Lake, *, dry_run: bool = False) -> UpkeepReport:
    """Delete files that left the catalog so long ago that nobody can be reading them."""
    schema, age = lake.settings.lake.catalog_schema, lake.settings.upkeep.orphan_age
    plan = upkeep.plan_cleanup(lake.conn, schema, age)
    removed = 0 if dry_run else upkeep.clean(lake.conn, schema, storage_of(lake), plan)
    done = tuple(Item(file.path, file.reason) for file in plan.files)
    kept = tuple(Item(file.path, file.reason) for file in plan.kept)
    kept += tuple(Item(file.path, file.reason) for file in plan.released)
    return UpkeepReport("cleanup", dry_run, done, kept, files_removed=removed)


def orphans(lake: Lake, *, dry_run: bool = False) -> UpkeepReport:
    """Delete files below the data path that no snapshot ever got, when no job can still be about to publish them."""
    storage = storage_of(lake)
    plan = upkeep.plan_orphans(lake.conn, lake.settings.lake.catalog_schema, storage, lake.settings.upkeep.orphan_age)
    removed = 0 if dry_run else upkeep.remove_orphans(storage, plan)
    done = tuple(Item(file.path, file.reason) for file in plan.files)
    kept = tuple(Item(file.path, file.reason) for file in plan.kept)
    return UpkeepReport("orphans", dry_run, done, kept, files_removed=removed, bytes_removed=removed and plan.bytes)


def storage_of(lake: Lake) -> Storage:
    """The files where the catalog says that they are."""
    with lake.catalog() as catalog:
        return open_storage(catalog.data_path, lake.settings.s3)
