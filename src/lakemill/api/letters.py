"""`/v1/letters`: records that could not become rows, to be looked at, sent again, or given up."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field

from lakemill.api.caller import Caller, Who
from lakemill.api.ingest import IngestAnswer, read
from lakemill.api.models import Before, Limit, Text
from lakemill.api.problems import documented
from lakemill.api.threads import WRITERS, threaded
from lakemill.core.names import QualifiedName, parse_name
from lakemill.core.receipts import write_token
from lakemill.core.rights import Action
from lakemill.errors import BadBody, UnknownLetter
from lakemill.runtime import ingest_tables
from lakemill.runtime.bodies import JSON
from lakemill.runtime.ingest import Ingest
from lakemill.runtime.open import Lake
from lakemill.store import ingest as store
from lakemill.store.ingest import Letter

router = APIRouter(prefix="/v1/letters", tags=["ingest"])
LetterId = Annotated[int, Path(ge=0, lt=2**63)]


class LetterAnswer(BaseModel):
    id: int
    table: str | None
    visibility_token: str
    position: int
    body: str
    code: str
    reason: str
    place: str
    died_at: datetime
    state: Literal["waiting", "replayed", "dropped"]
    replayed: str | None = Field(description="The token of its replay.")


class _Replay(msgspec.Struct, forbid_unknown_fields=True):
    payload: msgspec.Raw = msgspec.Raw()


_REPLAY = {
    "content": {
        JSON: {
            "schema": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"payload": {"type": "object", "description": "Instead of what the letter holds."}},
            }
        }
    }
}


@router.get("", responses=documented(404))
def list_letters(
    caller: Who,
    table: Annotated[Text | None, Query()] = None,
    state: Literal["waiting", "replayed", "dropped"] | None = None,
    before: Before = None,
    limit: Limit = 100,
) -> list[LetterAnswer]:
    """The newest first."""
    wanted = None if table is None else parse_name(table)
    caller.require(Action.DEFINE, *([] if wanted is None else [wanted]))
    with caller.lake() as lake:
        table_id = None if wanted is None else ingest_tables.get(lake, wanted).table_id
        names = _names(caller, lake)
        of = [one for one in names if table_id in (None, one)]  # others' letters must not fill the page
        found = store.letters(lake.conn, tables=of, state=state, before=before, limit=limit)
    return [_letter(caller.desk.ingest, one, names) for one in found]


@router.get("/{letter_id}", responses=documented(404))
def get_letter(letter_id: LetterId, caller: Who) -> LetterAnswer:
    """One of them."""
    caller.require(Action.DEFINE)
    with caller.lake() as lake:
        found, names = _found(caller, lake, letter_id)
    return _letter(caller.desk.ingest, found, names)


@router.post("/{letter_id}/replay", status_code=202, responses=documented(404), openapi_extra={"requestBody": _REPLAY})
async def replay_letter(request: Request, letter_id: LetterId, caller: Who) -> IngestAnswer:
    """Send it again, with another `payload` where one is given: a new write with a new token."""
    caller.require(Action.DEFINE)
    body = await read(request, caller.desk.settings.ingest.max_request_bytes)
    try:
        payload = bytes(msgspec.json.decode(body or b"{}", type=_Replay).payload)
    except msgspec.MsgspecError as error:
        raise BadBody(str(error), remedy='send {"payload": {…}}, or nothing') from error

    def again() -> IngestAnswer:
        with caller.audited("letters.replay", about=str(letter_id)):
            with caller.lake() as lake:
                _found(caller, lake, letter_id)
            return IngestAnswer.of(caller.desk.ingest.replay(letter_id, payload or None))

    return await threaded(again, WRITERS)


@router.delete("/{letter_id}", status_code=204, response_class=Response, responses=documented(404))
def drop_letter(letter_id: LetterId, caller: Who) -> None:
    """It will not be replayed."""
    with caller.audited("letters.drop", about=str(letter_id)):
        caller.require(Action.DEFINE)
        with caller.lake() as lake:
            _found(caller, lake, letter_id)
            store.drop_letters(lake.conn, [letter_id])


def _names(caller: Caller, lake: Lake) -> dict[int, QualifiedName]:
    """Tables that take requests, as far as the caller sees them."""
    return {one.table_id: one.name for one in ingest_tables.list_all(lake) if caller.sees(one.name)}


def _found(caller: Caller, lake: Lake, letter_id: int) -> tuple[Letter, dict[int, QualifiedName]]:
    found, names = store.letter(lake.conn, letter_id), _names(caller, lake)
    if found.table_id not in names:
        raise UnknownLetter(f"there is no letter {letter_id}")
    return found, names


def _letter(ingest: Ingest, letter: Letter, names: dict[int, QualifiedName]) -> LetterAnswer:
    return LetterAnswer(
        id=letter.id,
        table=str(names[letter.table_id]),
        visibility_token=write_token(ingest.lake_id, letter.token),
        position=letter.position,
        body=letter.body,
        code=letter.code,
        reason=letter.reason,
        place=letter.place,
        died_at=letter.died_at,
        state=letter.state,
        replayed=None if letter.replayed is None else write_token(ingest.lake_id, letter.replayed),
    )
