"""`/v1/tenants`: sets of schemas with quotas, for callers who must not see each other's tables."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from lakemill.api.caller import Who
from lakemill.api.models import QuotasModel, Sent, Text, Word
from lakemill.api.problems import documented
from lakemill.core.rights import Action
from lakemill.store import keys

router = APIRouter(prefix="/v1/tenants", tags=["tenants"])


class NewTenant(Sent):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"name": "acme", "schemas": ["acme"], "quotas": {"requests": 50}}]},
    )

    name: Word
    schemas: list[Text] = Field(min_length=1, max_length=1000, description="What it sees; they need not exist yet.")
    quotas: QuotasModel = QuotasModel()


class Altered(Sent):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"quotas": {"rows": 20000}}]})

    schemas: list[Text] | None = Field(None, min_length=1, max_length=1000)
    quotas: QuotasModel | None = Field(None, description="Only those that are given change; null is no limit.")


class TenantModel(BaseModel):
    name: str
    schemas: list[str]
    quotas: QuotasModel
    created_at: AwareDatetime

    @classmethod
    def of(cls, tenant: keys.Tenant) -> TenantModel:
        quotas = QuotasModel.of(tenant.quotas)
        return cls(name=tenant.name, schemas=list(tenant.schemas), quotas=quotas, created_at=tenant.created_at)


@router.get("")
def list_tenants(caller: Who) -> list[TenantModel]:
    """All tenants."""
    caller.require(Action.TENANTS)
    with caller.lake() as lake:
        return [TenantModel.of(tenant) for tenant in keys.tenants(lake.conn)]


@router.post("", status_code=201, responses=documented(409))
def create_tenant(body: NewTenant, caller: Who) -> TenantModel:
    """Make a tenant."""
    with caller.audited("tenants.create", about=body.name):
        caller.require(Action.TENANTS)
        with caller.lake() as lake:
            return TenantModel.of(keys.create_tenant(lake.conn, body.name, body.schemas, body.quotas.quotas()))


@router.patch("/{name}", responses=documented(404))
def alter_tenant(name: Annotated[str, Path(max_length=100)], body: Altered, caller: Who) -> TenantModel:
    """Change its schemas or quotas; other processes know within `api.key_cache`."""
    with caller.audited("tenants.alter", about=name):
        caller.require(Action.TENANTS)
        given: dict[str, Any] = body.quotas.model_dump(exclude_unset=True) if body.quotas else {}
        with caller.lake() as lake:
            altered = keys.alter_tenant(lake.conn, name, schemas=body.schemas, quotas=given)
    caller.desk.authentication.forget()
    return TenantModel.of(altered)
