"""`/v1/audit`: who asked for what, and how it ended."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, BaseModel, Field

from lakemill.api.caller import Who
from lakemill.api.models import Before, Limit
from lakemill.core.rights import Action
from lakemill.store import audit

router = APIRouter(prefix="/v1/audit", tags=["audit"])


class EntryModel(BaseModel):
    id: int
    at: AwareDatetime
    who: str = Field(examples=["key:ab3k5m2q7xyz"])
    tenant: str | None
    action: str = Field(examples=["dynamic.create"])
    about: str | None = Field(description="The key, tenant, pin or table in question.")
    outcome: audit.Ended
    code: str | None = Field(description="Of the error, where there was one.")
    trace_id: str
    sql: str | None = Field(description="Of a query or a definition; cut to 10,000 characters.")
    tables: list[str]
    snapshot: int | None
    rows: int | None
    seconds: float | None


@router.get("")
def list_audit(
    caller: Who,
    limit: Limit = 100,
    before: Before = None,
    who: Annotated[str | None, Query(max_length=300)] = None,
    action: Annotated[str | None, Query(max_length=100)] = None,
) -> list[EntryModel]:
    """Queries and administrative actions, the newest first; of the caller's tenant where it has one."""
    caller.require(Action.AUDIT)
    with caller.lake() as lake:
        found = audit.entries(lake.conn, limit, before=before, tenant=caller.identity.tenant, who=who, action=action)
    return [EntryModel.model_validate(one, from_attributes=True) for one in found]
