"""`/v1/tables`: the tables and views that the caller sees, their columns, files and latest snapshots."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, BaseModel, Field

from lakemill.api.caller import Caller, Who
from lakemill.api.models import SnapshotId, TableName
from lakemill.api.problems import documented
from lakemill.core.names import QualifiedName, parse_name
from lakemill.core.receipts import write_token
from lakemill.core.rights import Action
from lakemill.core.schema import Column, duck_type
from lakemill.errors import UnknownTable, UnsupportedType
from lakemill.lake.listing import ListedTable, list_snapshots, list_tables
from lakemill.runtime.open import Lake
from lakemill.store import definitions

router = APIRouter(prefix="/v1/tables", tags=["tables"])
LOOKED_BACK = 500
"""Snapshots of the lake among which those of a table are looked for."""
At = Annotated[SnapshotId | None, Query(description="As it was at this snapshot; by default at the newest.")]


class TableModel(BaseModel):
    table: str = Field(examples=["main.orders"])
    kind: Literal["table", "view", "dynamic"]
    columns: int | None = Field(description="How many; null for views, as all that follows.")
    rows: int | None = Field(description="Visible ones; null where files alone don't tell.")
    files: int | None
    delete_files: int | None
    bytes: int | None


class ColumnModel(BaseModel):
    name: str
    type: str = Field(description="DuckDB's.", examples=["DECIMAL(18,2)"])
    nullable: bool
    default: str | None


class ChangeModel(BaseModel):
    snapshot: int
    time: AwareDatetime


class TableDetails(TableModel):
    at: int = Field(description="The snapshot that this tells of.")
    schema_: list[ColumnModel] | None = Field(alias="schema", description="Null for views.")
    snapshots: list[ChangeModel] = Field(description="The latest that changed it, the newest first.")
    watermark: str | None = Field(
        None, description="A token: nothing up to it can still become visible. Null where it takes no requests."
    )


@router.get("", name="list_tables", responses=documented(404, 410))
def get_tables(caller: Who, at: At = None) -> list[TableModel]:
    """Tables and views, by name."""
    caller.require(Action.SEE)
    with caller.lake() as lake:
        dynamic = {table.name for table in definitions.list_all(lake.conn)}
        return [_told(one, dynamic) for one in _listed(caller, lake, lake.snapshot(at).id)]


@router.get("/{table}", responses=documented(404, 410))
def get_table(table: TableName, caller: Who, at: At = None) -> TableDetails:
    """One table: columns, files, watermark, and the snapshots that changed it."""
    name = parse_name(table)
    caller.require(Action.SEE, name)
    with caller.lake() as lake:
        snapshot = lake.snapshot(at).id
        found = next((one for one in _listed(caller, lake, snapshot) if _name(one) == name), None)
        if found is None:
            raise UnknownTable(f"there is no table {name}", remedy="GET /v1/tables lists those that you may see")
        columns, watermark = None, None
        if found.kind == "table":
            described = lake.table(str(name)).describe(snapshot)
            columns = [
                ColumnModel(name=c.name, type=_type(c), nullable=c.nulls_allowed, default=_default(c.default))
                for c in described.columns
            ]
            watermark = lake.consumer.table_watermark(described.id)
        dynamic = {own.name} if (own := definitions.find(lake.conn, name)) is not None else set()
        changes = list_snapshots(lake.conn, lake.settings.lake.catalog_schema, LOOKED_BACK, snapshot + 1)
    latest = [ChangeModel(snapshot=one.id, time=one.time) for one in changes if name in one.tables]
    told = _told(found, dynamic).model_dump()
    token = None if watermark is None else write_token(caller.desk.ingest.lake_id, watermark)
    return TableDetails(**told, at=snapshot, schema=columns, snapshots=latest[:20], watermark=token)


def _listed(caller: Caller, lake: Lake, at: int) -> list[ListedTable]:
    return [one for one in list_tables(lake.conn, lake.settings.lake.catalog_schema, at) if caller.sees(_name(one))]


def _name(one: ListedTable) -> QualifiedName:
    return QualifiedName(one.schema, one.name)


def _type(column: Column) -> str:
    """DuckDB's word for it, or the catalog's where we have none: a table is told of, whoever can read it."""
    try:
        return duck_type(column, alone=True)
    except UnsupportedType:
        return column.type.upper()


def _default(text: str | None) -> str | None:
    """The catalog writes a default that is none as NULL."""
    return None if text == "NULL" else text


def _told(one: ListedTable, dynamic: set[QualifiedName]) -> TableModel:
    name = _name(one)
    return TableModel(
        table=str(name),
        kind="view" if one.kind == "view" else "dynamic" if name in dynamic else "table",
        columns=one.columns,
        rows=one.rows,
        files=one.files,
        delete_files=one.delete_files,
        bytes=one.bytes,
    )
