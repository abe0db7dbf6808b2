"""`/v1/keys`: make, list and revoke API keys. A key's text is in the answer that makes it, and nowhere else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from lakemill.api.caller import Who
from lakemill.api.models import QuotasModel, Sent, Text, Word
from lakemill.api.problems import documented
from lakemill.core.rights import Action, Role, parse_patterns, require_own_tenant
from lakemill.errors import BadArgument
from lakemill.store import keys

router = APIRouter(prefix="/v1/keys", tags=["keys"])
LONGEST = timedelta(days=36500)


class NewKey(Sent):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"name": "loader", "roles": ["ingest_writer"], "expires_in_seconds": 7776000}]},
    )

    name: Word = Field(description="For people; it need not be unique.")
    roles: list[Role] = Field(min_length=1, max_length=len(Role))
    tenant: Word | None = Field(None, description="Only this tenant's schemas; null: all of them.")
    tables: list[Text] = Field([], max_length=100, description="Only tables like these: `schema.table`, with `*`.")
    quotas: QuotasModel = QuotasModel()
    expires_in_seconds: int | None = Field(None, gt=0, le=int(LONGEST.total_seconds()))


class KeyModel(BaseModel):
    id: str = Field(examples=["ab3k5m2q7xyz"])
    name: str
    roles: list[Role]
    tenant: str | None
    tables: list[str]
    quotas: QuotasModel
    created_by: str
    created_at: AwareDatetime
    expires_at: AwareDatetime | None
    revoked_at: AwareDatetime | None
    last_used_at: AwareDatetime | None = Field(description="To the minute.")

    @classmethod
    def of(cls, key: keys.Key) -> KeyModel:
        return cls(
            id=key.id,
            name=key.name,
            roles=sorted(key.roles),
            tenant=key.tenant,
            tables=list(key.tables),
            quotas=QuotasModel.of(key.quotas),
            created_by=key.created_by,
            created_at=key.created_at,
            expires_at=key.expires_at,
            revoked_at=key.revoked_at,
            last_used_at=key.last_used_at,
        )


class MadeKey(BaseModel):
    key: str = Field(description="To be sent as `Authorization: Bearer …`. It is shown this once.")
    made: KeyModel


@router.get("")
def list_keys(caller: Who) -> list[KeyModel]:
    """Keys, the newest first, revoked and expired ones too; of the caller's tenant where it has one."""
    caller.require(Action.KEYS)
    with caller.lake() as lake:
        return [KeyModel.of(key) for key in keys.list_all(lake.conn, caller.identity.tenant)]


@router.post("", status_code=201, responses=documented(404))
def create_key(body: NewKey, caller: Who) -> MadeKey:
    """Make a key, for no larger part of the lake than the caller's own."""
    with caller.audited("keys.create", about=body.name) as entry:
        caller.require(Action.KEYS)
        tables = parse_patterns(body.tables)
        tenant = body.tenant if body.tenant is not None else caller.identity.tenant
        require_own_tenant(caller.identity, tenant)
        ends = None
        if body.expires_in_seconds is not None:
            ends = datetime.now(UTC) + timedelta(seconds=body.expires_in_seconds)
        with caller.lake() as lake:
            made, text = keys.create(
                lake.conn,
                body.name,
                frozenset(body.roles),
                by=caller.identity.name,
                of=tenant,
                tables=tables,
                quotas=body.quotas.quotas(),
                expires_at=ends,
            )
        entry.about = f"{made.id} ({made.name})"
    caller.desk.authentication.forget()
    return MadeKey(key=text, made=KeyModel.of(made))


@router.delete("/{id}", responses=documented(404))
def revoke_key(id: Annotated[str, Path(max_length=100)], caller: Who) -> KeyModel:
    """Revoke a key; other processes know within `api.key_cache`."""
    with caller.audited("keys.revoke", about=id):
        caller.require(Action.KEYS)
        if f"key:{id}" == caller.identity.name:
            raise BadArgument("a key can't revoke itself", remedy="use another one, or `lakemill keys revoke`")
        with caller.lake() as lake:
            revoked = keys.revoke(lake.conn, id, caller.identity.tenant)
    caller.desk.authentication.forget()
    return KeyModel.of(revoked)
