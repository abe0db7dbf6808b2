"""`/v1/upkeep/…`: what `lakemill upkeep` does, over HTTP, for who administers the whole lake.

Each job is the one that the command line runs and is done within its request; `dry_run` tells its plan. Merging files
needs Spark, so it is refused where no worker is in the process; all else goes anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Body
from pydantic import AwareDatetime, BaseModel, Field

from lakemill.api.caller import Caller, Who
from lakemill.api.models import Sent, SnapshotId, Text
from lakemill.api.problems import documented
from lakemill.core.names import QualifiedName, parse_name
from lakemill.core.rights import Action
from lakemill.errors import BadArgument
from lakemill.runtime import facts, tending, upkeep
from lakemill.runtime.open import Lake
from lakemill.runtime.upkeep import UpkeepReport
from lakemill.values import Duration

router = APIRouter(prefix="/v1/upkeep", tags=["upkeep"])


class JobBody(Sent):
    dry_run: bool = Field(False, description="Tell what would be done, and do nothing.")


class TablesBody(JobBody):
    table: Text | None = Field(None, description="Only this one; all of them by default.", examples=["sales.orders"])


class ExpireBody(JobBody):
    older_than: Duration | None = Field(
        None, description="An age; by default `upkeep.retention`, and never less.", examples=["7 days"]
    )
    before: AwareDatetime | None = Field(None, description="A time, instead of an age.")
    snapshots: list[SnapshotId] | None = Field(None, min_length=1, description="These, instead of an age.")


class ItemModel(BaseModel):
    what: str
    why: str


class UpkeepModel(BaseModel):
    job: str
    dry_run: bool
    done: list[ItemModel] = Field(description="What was done; in a dry run what would be.")
    kept: list[ItemModel]
    snapshots: list[int] = Field(description="Those that the job made, or that expired.")
    files_removed: int
    bytes_removed: int | None = Field(description="Null where nobody knows.")
    files_scheduled: int = Field(description="Files that are left to cleanup.")


class PolicyModel(BaseModel):
    name: str | None = Field(description="The schema or table that it is given for; null: the lake's own.")
    auto: str
    interval: float = Field(description="Seconds.")
    window: str | None
    small_files: int
    small_size: int
    small_age: float = Field(description="Seconds.")
    deleted_share: float
    target_file_size: int
    retention: float = Field(description="Seconds.")
    whence: dict[str, str] = Field(alias="from", description="Where each value comes from that is not the lake's.")


class TendedModel(BaseModel):
    at: datetime
    outcome: Literal["done", "kept", "failed"]
    reason: str
    failures: int = Field(description="In a row.")


class TableUpkeepModel(BaseModel):
    table: str
    due: bool
    why: str = Field(description="Why it is to be compacted, or is not.")
    gain: float | None = Field(description="Bytes that readers are saved, for each that is written again.")
    small_files: int
    small_bytes: int
    bytes: int
    rows: int
    deleted_rows: int
    retention: float = Field(description="For how many seconds its past is kept, whoever says so.")
    last: TendedModel | None = Field(description="How it went the last time.")
    policy: PolicyModel


class UpkeepStatusModel(BaseModel):
    tables: list[TableUpkeepModel] = Field(description="The most worthwhile first.")
    policy: PolicyModel
    jobs: dict[str, TendedModel] = Field(description="How the last jobs of the whole lake went.")
    looked: dict[str, datetime] = Field(description="By policy: when the service last looked for work.")
    nowhere: list[str] = Field(description="Policies of what the lake does not have.")


Job = Annotated[JobBody, Body(default_factory=JobBody)]
OfTables = Annotated[TablesBody, Body(default_factory=TablesBody)]
_RESPONSES = documented(404, 409, 410)


@router.get("", name="get_upkeep", responses=documented(404))
def get_upkeep(caller: Who, table: Text | None = None) -> UpkeepStatusModel:
    """What the service would compact, by which policy, why not the rest, and how it went the last time."""
    named = [] if table is None else [parse_name(table)]
    caller.require(Action.TEND, *named)
    with caller.lake() as lake:
        return UpkeepStatusModel(**facts.upkeep_status(tending.status(lake, named[0] if named else None)))


@router.post("/compact", name="compact_tables", responses=_RESPONSES)
def compact(body: OfTables, caller: Who) -> UpkeepModel:
    """Merge small files with Spark; every snapshot and every delta stays what it was."""

    def job(lake: Lake) -> UpkeepReport:
        if body.dry_run:
            return upkeep.compact_all(lake, body.table, dry_run=True)
        with caller.desk.working("compaction"):
            return upkeep.compact_all(lake, body.table)

    return _done(caller, "compact", job, _named(body))


@router.post("/flush", name="flush_tables", responses=_RESPONSES)
def flush(body: OfTables, caller: Who) -> UpkeepModel:
    """Write rows and deletes that are in the catalog itself to files."""
    return _done(caller, "flush", lambda lake: upkeep.flush(lake, body.table, dry_run=body.dry_run), _named(body))


@router.post("/expire", name="expire_snapshots", responses=_RESPONSES)
def expire(body: Annotated[ExpireBody, Body(default_factory=ExpireBody)], caller: Who) -> UpkeepModel:
    """Forget old snapshots that nobody needs."""
    if sum(given is not None for given in (body.older_than, body.before, body.snapshots)) > 1:
        raise BadArgument("an expiry has one of older_than, before and snapshots", place="body")
    older = body.older_than if body.before is None else body.before
    return _done(
        caller,
        "expire",
        lambda lake: upkeep.expire(lake, older_than=older, versions=body.snapshots, dry_run=body.dry_run),
    )


@router.post("/cleanup", name="clean_up", responses=_RESPONSES)
def cleanup(body: Job, caller: Who) -> UpkeepModel:
    """Delete the files of expired snapshots that nobody can still be reading."""
    return _done(caller, "cleanup", lambda lake: upkeep.cleanup(lake, dry_run=body.dry_run))


@router.post("/orphans", name="remove_orphans", responses=_RESPONSES)
def orphans(body: Job, caller: Who) -> UpkeepModel:
    """Delete files that no snapshot knows, left by jobs that died."""
    return _done(caller, "orphans", lambda lake: upkeep.orphans(lake, dry_run=body.dry_run))


def _named(body: TablesBody) -> list[QualifiedName]:
    return [] if body.table is None else [parse_name(body.table)]


def _done(
    caller: Caller, name: str, job: Callable[[Lake], UpkeepReport], tables: list[QualifiedName] | None = None
) -> UpkeepModel:
    with caller.audited(f"upkeep.{name}", tables=tables or []) as entry:
        caller.require(Action.TEND, *(tables or []))
        with caller.lake() as lake:
            report = job(lake)
        entry.about = f"{'planned' if report.dry_run else 'done'}: {len(report.done)}, kept: {len(report.kept)}"
    return UpkeepModel(
        job=report.job,
        dry_run=report.dry_run,
        done=[ItemModel(what=item.what, why=item.why) for item in report.done],
        kept=[ItemModel(what=item.what, why=item.why) for item in report.kept],
        snapshots=list(report.snapshots),
        files_removed=report.files_removed,
        bytes_removed=report.bytes_removed,
        files_scheduled=report.files_scheduled,
    )
