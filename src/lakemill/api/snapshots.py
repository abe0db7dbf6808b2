"""`/v1/snapshots`: the history of the lake, as far as the caller sees it."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import AwareDatetime, BaseModel, Field

from lakemill.api.caller import Who
from lakemill.api.models import Before, Limit
from lakemill.core.rights import Action
from lakemill.lake.listing import list_snapshots

router = APIRouter(prefix="/v1/snapshots", tags=["snapshots"])


class SnapshotModel(BaseModel):
    snapshot: int
    time: AwareDatetime
    tables: list[str] = Field(description="Tables that it changed, of those that the caller sees.")
    changes: str | None = Field(description="In words; null for a caller that does not see the whole lake.")
    author: str | None
    message: str | None


@router.get("", name="list_snapshots")
def get_snapshots(caller: Who, limit: Limit = 20, before: Before = None) -> list[SnapshotModel]:
    """Snapshots and the tables that each changed, the newest first."""
    caller.require(Action.SEE)
    with caller.lake() as lake:
        found = list_snapshots(lake.conn, lake.settings.lake.catalog_schema, limit, before)
    whole = not caller.identity.bounded
    return [
        SnapshotModel(
            snapshot=one.id,
            time=one.time,
            tables=[str(name) for name in one.tables if caller.sees(name)],
            changes=one.changes if whole else None,
            author=one.author if whole else None,
            message=one.message if whole else None,
        )
        for one in found
    ]
