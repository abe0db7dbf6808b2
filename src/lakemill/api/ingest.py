"""`POST /v1/ingest/{table}`: records become durable, and the answer has a token with which a query waits for them.

Bodies are read by the event loop, as far as the limit, and everything else is done in threads; those who wait for
visibility have threads of their own, so that they can't keep others from writing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from lakemill.api.caller import Who
from lakemill.api.models import TableName
from lakemill.api.problems import documented
from lakemill.api.threads import WAITERS, WRITERS, threaded
from lakemill.core.names import parse_name
from lakemill.core.rights import Action
from lakemill.runtime.bodies import ARROW, JSON, NDJSON, parse, too_large
from lakemill.runtime.ingest import Answer

router = APIRouter(prefix="/v1", tags=["ingest"])


class IngestAnswer(BaseModel):
    """What a request is told."""

    status: Literal["accepted", "visible", "partial_duplicate"]
    accepted_count: int
    duplicate_count: int
    rejected_count: int
    visibility_token: str
    watermark: str | None = Field(None, description="How far the lake is; told where a wait was asked for.")
    repeated: bool = Field(False, description="The answer of an earlier request under the same key.")
    faults: list[str] = Field([], description="What was wrong with rejected records, the first of them.")

    @classmethod
    def of(cls, answer: Answer) -> IngestAnswer:
        return cls(
            status=answer.status,
            accepted_count=answer.accepted,
            duplicate_count=answer.duplicate,
            rejected_count=answer.rejected,
            visibility_token=answer.token,
            watermark=answer.watermark,
            repeated=answer.repeated,
            faults=list(answer.faults),
        )


_RECORD = {
    "type": "object",
    "required": ["payload"],
    "additionalProperties": False,
    "properties": {
        "payload": {"type": "object"},
        "op": {"enum": ["insert", "upsert", "delete"], "default": "insert"},
        "idempotency_key": {"type": "string", "minLength": 1, "maxLength": 256},
        "event_time": {"type": "string"},
    },
}
_BODIES = {
    "required": True,
    "content": {
        JSON: {
            "schema": {
                "type": "object",
                "required": ["records"],
                "additionalProperties": False,
                "properties": {
                    "records": {"type": "array", "items": _RECORD},
                    "wait_for_visibility": {"type": "boolean", "default": False},
                    "visibility_timeout_ms": {"type": "integer", "minimum": 0, "maximum": 600_000},
                },
            }
        },
        NDJSON: {"schema": {"type": "string", "description": "A row a line."}},
        ARROW: {"schema": {"type": "string", "format": "binary"}},
    },
}


@router.post(
    "/ingest/{table}",
    response_model=IngestAnswer,
    responses={**documented(404, 409), 202: {"model": IngestAnswer, "description": "Accepted, not yet visible."}},
    openapi_extra={"requestBody": _BODIES},
)
async def ingest(
    request: Request,
    table: TableName,
    caller: Who,
    idempotency_key: Annotated[str | None, Header(description="Repeat a request under the same one.")] = None,
    op: Annotated[Literal["insert", "upsert", "delete"], Query(description="Of rows and of Arrow.")] = "insert",
    envelope: Annotated[bool, Query(description="Lines are records with `payload`, not rows.")] = False,
    wait_for_visibility: Annotated[bool, Query(description="Of rows and of Arrow.")] = False,
    visibility_timeout_ms: Annotated[int | None, Query(ge=0, le=600_000)] = None,
) -> JSONResponse:
    """Send records to a table; the answer's token makes a query wait until they are visible.

    200: visible, as it was asked for. 202: durable, and visible soon. A request that is sent again under the same
    `Idempotency-Key` gets the same answer, and nothing is written twice.
    """
    name = parse_name(table)
    caller.require(Action.INGEST, name)
    most = caller.desk.settings.ingest.max_request_bytes
    body = await read(request, most)
    media, encoding = request.headers.get("content-type", JSON), request.headers.get("content-encoding", "")

    def accept() -> tuple[Answer | None, Callable[[], Answer]]:
        """The answer where nobody waits, and a way to wait."""
        one = caller.desk.ingest
        given = parse(body, media, encoding, most=most, op=op, enveloped=envelope).under(idempotency_key)
        caller.charge(rows=given.count, bytes=len(body))
        timeout = given.timeout if visibility_timeout_ms is None else visibility_timeout_ms / 1000
        told = one.accept(name, given)
        at_once = None if given.wait or wait_for_visibility else one.answer(told)
        return at_once, lambda: one.answer(told, wait=True, timeout=timeout)

    answer, wait = await threaded(accept, WRITERS)
    if answer is None:
        answer = await threaded(wait, WAITERS)
    shown = IngestAnswer.of(answer).model_dump(mode="json")
    return JSONResponse(shown, 200 if answer.visible else 202)


async def read(request: Request, most: int) -> bytes:
    """The body, as far as it may be long."""
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise too_large(most)
        chunks.append(chunk)
    return b"".join(chunks)
