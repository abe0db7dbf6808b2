"""`/v1/pins`: hold snapshots back from expiry, so that what was read once can be read again.

A caller sees and takes out its own pins; who administers the lake or a tenant, all of its.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Response
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from lakemill.api.caller import Caller, Who
from lakemill.api.models import Sent, SnapshotId, without_nul
from lakemill.api.problems import documented
from lakemill.core.rights import Action
from lakemill.errors import BadArgument, UnknownPin
from lakemill.runtime.open import Lake
from lakemill.store import pins

router = APIRouter(prefix="/v1/pins", tags=["pins"])


class NewPin(Sent):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"seconds": 3600, "reason": "the report of October"}]}
    )

    snapshot: SnapshotId | None = Field(None, description="By default the newest.")
    seconds: int = Field(3600, gt=0, le=10**9, description="For how long; at most `api.longest_pin`.")
    reason: Annotated[str, StringConstraints(max_length=500), AfterValidator(without_nul)] = ""


class PinModel(BaseModel):
    id: UUID
    snapshot: int
    holder: str = Field(examples=["api:acme/key:ab3k5m2q7xyz"])
    reason: str
    created_at: AwareDatetime
    expires_at: AwareDatetime | None

    @classmethod
    def of(cls, pin: pins.Pin) -> PinModel:
        return cls(
            id=pin.id,
            snapshot=pin.snapshot_id,
            holder=pin.holder,
            reason=pin.reason,
            created_at=pin.created_at,
            expires_at=pin.expires_at,
        )


@router.get("")
def list_pins(caller: Who) -> list[PinModel]:
    """Pins that hold, the oldest snapshot first."""
    caller.require(Action.PIN)
    with caller.lake() as lake:
        return [PinModel.of(pin) for pin in _seen(caller, lake)]


@router.post("", status_code=201, responses=documented(404, 410))
def create_pin(body: NewPin, caller: Who) -> PinModel:
    """Keep a snapshot readable."""
    with caller.audited("pins.create") as entry:
        caller.require(Action.PIN)
        ttl = allowed(caller, body.seconds)
        with caller.lake() as lake:
            snapshot = lake.snapshot(body.snapshot).id
            schema = lake.settings.lake.catalog_schema
            made = pins.pin(lake.conn, snapshot, caller.holder, body.reason, ttl, catalog_schema=schema)
        entry.snapshot, entry.about = snapshot, str(made.id)
    return PinModel.of(made)


@router.delete("/{id}", status_code=204, response_class=Response, responses=documented(404))
def delete_pin(id: UUID, caller: Who) -> None:
    """Let it go."""
    with caller.audited("pins.delete", about=str(id)):
        caller.require(Action.PIN)
        with caller.lake() as lake:
            if id not in {pin.id for pin in _seen(caller, lake)}:
                raise UnknownPin(f"there is no pin {id}", remedy="GET /v1/pins lists yours")
            pins.unpin(lake.conn, id)


def allowed(caller: Caller, seconds: int) -> timedelta:
    """How long it is to hold, if the settings allow that."""
    most = caller.desk.settings.api.longest_pin
    if timedelta(seconds=seconds) > most:
        raise BadArgument(f"a pin holds for {most.total_seconds():.0f} seconds at most", place="body.seconds")
    return timedelta(seconds=seconds)


def _seen(caller: Caller, lake: Lake) -> list[pins.Pin]:
    return [pin for pin in pins.needed_snapshots(lake.conn).pins if caller.reach.covers(pin.holder)]
