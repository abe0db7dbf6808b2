"""Tables that take requests: `POST`, `PATCH` and `DELETE` of `/v1/tables`, and `/v1/lag`, how far each of them is."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from lakemill.api.caller import Who
from lakemill.api.models import Sent, TableName, Text
from lakemill.api.problems import documented
from lakemill.core.names import parse_name
from lakemill.core.receipts import write_token
from lakemill.core.rights import Action
from lakemill.lake.tables import Alteration, Declared, DropColumn, Rename
from lakemill.runtime import ingest_tables
from lakemill.store import ingest as store
from lakemill.store.ingest import IngestTable, Policy
from lakemill.values import Duration

router = APIRouter(prefix="/v1", tags=["tables"])
PAST = (
    "How long its past is kept: snapshots that show it as it was, where this is longer than `upkeep.retention`, and "
    "dead letters that are settled. By default as the settings say of it, and 30 days for letters."
)
PolicyName = Literal["reject", "dead_letter", "drop_field", "evolve"]


class ColumnBody(Sent):
    name: Text
    type: Text = Field(description="A DuckDB type.", examples=["DECIMAL(10,2)"])
    not_null: bool = False
    default: Text | None = Field(None, description="An expression of DuckDB.")

    def declared(self) -> Declared:
        return Declared(self.name, self.type, self.not_null, self.default)


class TableBody(Sent):
    """A table that takes requests; without columns one that is there is adopted."""

    name: Text = Field(examples=["sales.orders"])
    columns: list[ColumnBody] = Field(default_factory=list)
    key: list[Text] = Field(default_factory=list)
    partition_by: list[Text] = Field(default_factory=list, examples=[["month(ordered_at)"]])
    policy: PolicyName = "reject"
    dedupe: Duration = store.DEDUPE
    retention: Duration | None = Field(None, description=PAST)


class TablePatch(Sent):
    add: list[ColumnBody] = Field(default_factory=list)
    drop: list[Text] = Field(default_factory=list)
    rename: dict[Text, Text] = Field(default_factory=dict)
    key: list[Text] | None = None
    policy: PolicyName | None = None
    dedupe: Duration | None = None
    retention: Duration | None = Field(None, description=PAST)

    def alterations(self) -> list[Alteration]:
        renamed: list[Alteration] = [Rename(*pair) for pair in self.rename.items()]
        return [*renamed, *map(DropColumn, self.drop), *(column.declared() for column in self.add)]


class TableAnswer(BaseModel):
    name: str
    key: list[str]
    policy: PolicyName
    dedupe: timedelta
    retention: timedelta | None

    @classmethod
    def of(cls, table: IngestTable) -> TableAnswer:
        return cls(
            name=str(table.name),
            key=list(table.key),
            policy=table.policy.value,
            dedupe=table.dedupe,
            retention=table.retention,
        )


class BehindModel(BaseModel):
    table: str
    passed: str = Field(description="A token: all its requests up to there are visible, or dead letters.")
    requests: int
    records: int
    bytes: int
    oldest_seconds: float | None = Field(description="Age of the oldest request that waits.")
    attempts: int = Field(description="How often its next batch was tried in vain.")
    reason: str = Field(description="Of the last time.")
    letters: int = Field(description="Dead letters that wait to be looked at.")


class LagModel(BaseModel):
    visibility_token: str = Field(description="The last that was given out.")
    watermark: str = Field(description="Nothing at or below it can still become visible.")
    tables: list[BehindModel]


@router.post("/tables", status_code=201, responses=documented(404, 409))
def create_table(body: TableBody, caller: Who) -> TableAnswer:
    """Make a table that takes requests, or adopt one that is there."""
    name = parse_name(body.name)
    with caller.audited("tables.create", tables=[name]):
        caller.require(Action.DEFINE, name)
        with caller.lake() as lake:
            made = ingest_tables.create(
                lake,
                name,
                [column.declared() for column in body.columns],
                key=body.key,
                partition_by=body.partition_by,
                policy=Policy(body.policy),
                dedupe=body.dedupe,
                retention=body.retention,
                adopt=not body.columns,
            )
    return TableAnswer.of(made)


@router.patch("/tables/{table}", responses=documented(404, 409))
def alter_table(table: TableName, body: TablePatch, caller: Who) -> TableAnswer:
    """Change columns, as one snapshot, and what is accepted."""
    name = parse_name(table)
    with caller.audited("tables.alter", tables=[name]):
        caller.require(Action.DEFINE, name)
        with caller.lake() as lake:
            altered = ingest_tables.alter(
                lake,
                name,
                body.alterations(),
                key=body.key,
                policy=None if body.policy is None else Policy(body.policy),
                dedupe=body.dedupe,
                retention=body.retention,
            )
        caller.desk.ingest.codecs.forget(name)
    return TableAnswer.of(altered)


@router.delete("/tables/{table}", status_code=204, response_class=Response, responses=documented(404, 409))
def drop_table(
    table: TableName,
    caller: Who,
    force: Annotated[bool, Query(description="What is not yet visible may be lost.")] = False,
    keep: Annotated[bool, Query(description="Only take no more requests.")] = False,
) -> None:
    """Drop it; refused while requests are not yet visible, or dynamic tables read it."""
    name = parse_name(table)
    with caller.audited("tables.drop", tables=[name]):
        caller.require(Action.DEFINE, name)
        with caller.lake() as lake:
            ingest_tables.drop(lake, name, force=force, keep=keep, seen=caller.sees)


@router.get("/lag")
def get_lag(caller: Who) -> LagModel:
    """How far the lake is, and what each table that the caller sees has still to do."""
    caller.require(Action.SEE)
    one = caller.desk.ingest
    with caller.lake() as lake:
        head, lags, tables = one.head(), store.lags(lake.conn), ingest_tables.list_all(lake)
    shown = []
    for table in tables:
        if caller.sees(table.name):
            behind: dict[str, Any] = msgspec.to_builtins(lags[table.table_id]) if table.table_id in lags else {}
            passed = write_token(one.lake_id, behind.get("cursor", 0))
            counts = {word: behind.get(word, 0) for word in ("requests", "records", "bytes", "letters")}
            told = {"oldest_seconds": behind.get("age"), "attempts": behind.get("attempts", 0)}
            shown.append(
                BehindModel(table=str(table.name), passed=passed, **counts, **told, reason=behind.get("reason", ""))
            )
    return LagModel(
        visibility_token=write_token(one.lake_id, head.token),
        watermark=write_token(one.lake_id, head.watermark),
        tables=shown,
    )
