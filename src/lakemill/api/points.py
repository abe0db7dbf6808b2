"""`/v1/points`: one consistent state of several tables, pinned."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from lakemill.api.caller import Who
from lakemill.api.models import Sent, Text
from lakemill.api.pins import allowed
from lakemill.api.problems import documented
from lakemill.core.names import parse_name
from lakemill.core.rights import Action
from lakemill.runtime.point import point

router = APIRouter(prefix="/v1/points", tags=["snapshots"])


class NewPoint(Sent):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"tables": ["orders", "by_day"], "seconds": 600}]}
    )

    tables: list[Text] = Field(min_length=1, max_length=100, description="Dynamic tables and others.")
    seconds: int = Field(3600, gt=0, le=10**9, description="For how long its snapshots are kept.")


class PlacedModel(BaseModel):
    table: str
    kind: str = Field(examples=["dynamic", "base"])
    snapshot: int = Field(description="Where it is to be read.")


class PointModel(BaseModel):
    data_snapshot: int
    data_time: AwareDatetime
    pinned_until: AwareDatetime | None
    tables: list[PlacedModel]
    sql: str = Field(description="Views with which a DuckDB session that has the lake attached reads the point.")


@router.post("", status_code=201, responses=documented(404, 409, 410))
def create_point(body: NewPoint, caller: Who) -> PointModel:
    """The newest data snapshot at which all these tables are right, and where each is to be read for it."""
    names = [parse_name(name) for name in body.tables]
    with caller.audited("points.create", tables=names) as entry:
        caller.require(Action.PIN)
        caller.require(Action.SEE, *names)
        ttl = allowed(caller, body.seconds)
        with caller.lake() as lake:
            found = point(lake, names, ttl, caller.holder)
        entry.snapshot = found.b
    placed = [
        PlacedModel(table=str(one.name), kind="dynamic" if one.dynamic else "base", snapshot=one.snapshot)
        for one in found.tables
    ]
    return PointModel(
        data_snapshot=found.b, data_time=found.time, pinned_until=found.pinned_until, tables=placed, sql=found.sql
    )
