"""What bodies and parameters of the API are made of: texts that PostgreSQL can keep, numbers it can count, limits."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from lakemill.core.quota import Quotas
from lakemill.core.rights import WORD


def without_nul(text: str) -> str:
    if "\x00" in text:
        raise ValueError("a text can't hold NUL")
    return text


Text = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(without_nul)]
Word = Annotated[str, StringConstraints(pattern=WORD)]
"""A name that people give to keys and tenants."""
SnapshotId = Annotated[int, Field(ge=0, le=2**63 - 1, examples=[17])]
TableName = Annotated[
    str, Path(min_length=1, max_length=500, description="`table` or `schema.table`", examples=["main.orders"])
]
Limit = Annotated[int, Query(ge=1, le=1000, description="How many at most.")]
Before = Annotated[int | None, Query(ge=0, le=2**63 - 1, description="Only those below this id: the next page.")]


class Sent(BaseModel):
    """A body that was sent: what it does not know, it refuses."""

    model_config = ConfigDict(extra="forbid")


class QuotasModel(Sent):
    """Limits that hold over all API processes; null is none."""

    requests: float | None = Field(None, gt=0, le=1e12, description="Requests per second.", examples=[50])
    rows: float | None = Field(None, gt=0, le=1e15, description="Ingested rows per second.", examples=[10000])
    bytes: float | None = Field(None, gt=0, le=1e18, description="Ingested bytes per second.", examples=[10000000])
    queries: int | None = Field(None, gt=0, le=100_000, description="Queries at the same time.", examples=[4])

    @classmethod
    def of(cls, quotas: Quotas) -> QuotasModel:
        return cls(requests=quotas.requests, rows=quotas.rows, bytes=quotas.bytes, queries=quotas.queries)

    def quotas(self) -> Quotas:
        return Quotas(self.requests, self.rows, self.bytes, self.queries)
