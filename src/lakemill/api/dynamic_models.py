"""What the API says of dynamic tables: the facts of ``runtime/facts``, with their types for OpenAPI."""

from __future__ import annotations

from typing import Any

from pydantic import AwareDatetime, BaseModel, Field


class Warned(BaseModel):
    message: str
    remedy: str


class SourceRead(BaseModel):
    table: str
    table_id: int
    a: int | None
    b: int
    rows: int | None


class RefreshModel(BaseModel):
    """A refresh; null is what was not, or can't be, measured."""

    table: str = Field(examples=["main.by_day"])
    refresh: str
    trigger: str = Field(examples=["MANUAL"])
    outcome: str = Field(examples=["SUCCEEDED"])
    action: str | None = Field(examples=["MERGE"])
    reason: str | None
    remedy: str | None
    a: int | None
    b: int | None
    t: AwareDatetime | None
    commit: int | None
    definition_version: int | None
    started: AwareDatetime
    ended: AwareDatetime | None
    seconds: float | None
    phases: dict[str, float]
    rows_in: int | None
    rows_inserted: int | None
    rows_deleted: int | None
    rows_recomputed: int | None
    dedup_ratio: float | None = Field(description="1 − changed rows / recomputed rows.")
    records_read: int | None
    bytes_read: int | None
    bytes_written: int | None
    spark_jobs: int | None
    error_code: str | None
    error: str | None
    sources: list[SourceRead]


class Standing(BaseModel):
    """How a dynamic table stands; lengths of time in seconds."""

    table: str = Field(examples=["main.by_day"])
    state: str = Field(examples=["ACTIVE"])
    state_reason: str | None
    mode: str = Field(examples=["INCREMENTAL"])
    mode_reason: str | None
    data_snapshot: int | None = Field(description="Its content equals its query at this snapshot.")
    data_time: AwareDatetime | None
    point: int | None = Field(description="The newest data snapshot that all tables of its part of the graph hold.")
    lag: float | None
    target_lag: str = Field(examples=["5 minutes"])
    refresh_mode: str = Field(description="As it was declared; `mode` is what came of it.", examples=["AUTO"])
    strict: bool
    cardinality_threshold: float
    initialize: str = Field(examples=["ON_CREATE"])
    scheduler: str = Field(examples=["ENABLE"])
    priority: int
    spark_profile: str | None
    dialect: str = Field(examples=["duckdb"])
    comment: str | None
    partition_by: list[str]
    effective_lag: float | None
    next_due: AwareDatetime | None
    last_action: str | None
    last_outcome: str | None
    last_refresh: AwareDatetime | None
    last_error: str | None
    rows: int | None
    bytes: int | None


class Described(Standing):
    definition: str | None = Field(description="Null where it reads tables that the caller does not see.")
    definition_version: int
    created: AwareDatetime
    declared: AwareDatetime
    state_since: AwareDatetime
    table_id: int | None
    query: str | None
    columns: list[dict[str, str]]
    sources: list[dict[str, Any]]
    consumers: list[str]
    versions: list[dict[str, Any]]
    within_target: dict[str, float | None]
    warnings: list[Warned]
    last: RefreshModel | None


class Created(BaseModel):
    table: str
    kept: bool = Field(description="There was one, and IF NOT EXISTS left it as it is.")
    state: str
    definition_version: int
    action: str | None
    rows: int | None
    mode: str
    mode_reason: str | None
    warnings: list[Warned]
    refreshes: list[RefreshModel]
    work: int | None = Field(None, description="Where its first load waits for a worker: the id of the work.")


class Asked(BaseModel):
    """A worker will do it."""

    table: str
    work: int
    look: str = Field(description="Where the refresh will be told of.", examples=["/v1/dynamic-tables/main.d/history"])


class Changed(BaseModel):
    changed: list[str] = Field(description="The tables whose state changed, those downstream too.")


class Dropped(BaseModel):
    dropped: list[str]


class Explained(BaseModel):
    table: str
    b: int
    waits_for: list[str]
    action: str | None
    reason_code: str | None
    reason: str | None
    remedy: str | None
    incremental_bytes: int | None
    full_bytes: int | None
    changed_share: float | None
    sources: list[dict[str, Any]]


class ExplainedChain(Explained):
    first: list[Explained] = Field(description="What would be refreshed before it, because it is read.")


class VerifiedModel(BaseModel):
    table: str
    equal: bool
    engine: str = Field(description="Who computed the query again.", examples=["duckdb"])
    data_snapshot: int
    commit: int
    rows: int
    missing: int
    extra: int
