"""`/v1/points`: one consistent state of several tables, pinned; and the newest of each part of the graph, kept."""

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
from lakemill.store import points

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


class KeptModel(BaseModel):
    data_snapshot: int = Field(description="What all its tables are right for; base tables are read there.")
    data_time: AwareDatetime
    clock_time: AwareDatetime | None = Field(description="What now() was in their queries; null where it matters not.")
    kept_since: AwareDatetime
    tables: list[PlacedModel]


@router.get("")
def list_points(caller: Who) -> list[KeptModel]:
    """The newest consistent point of each part of the graph, as far as the caller sees it; it is kept readable."""
    caller.require(Action.SEE)
    with caller.lake() as lake:
        found = points.kept(lake.conn)
    seen = [(one, [(name, commit) for name, commit in one.tables if caller.sees(name)]) for one in found]
    return [
        KeptModel(
            data_snapshot=one.b,
            data_time=one.time,
            clock_time=one.t,
            kept_since=one.kept_at,
            tables=[PlacedModel(table=str(name), kind="dynamic", snapshot=commit) for name, commit in tables],
        )
        for one, tables in seen
        if tables
    ]


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
