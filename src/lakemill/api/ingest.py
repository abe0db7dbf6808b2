"""Requests over HTTP: `POST /v1/ingest/{table}`, the tables that take them, dead letters, lag.

A router for the application's frame, which knows who asks and how errors look. Bodies are read by the event loop, as
far as the limit, and everything else is done in threads; those who wait for visibility have threads of their own, so
that they can't keep others from writing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from lakemill.core.names import parse_name
from lakemill.core.receipts import write_token
from lakemill.errors import BadBody
from lakemill.lake.tables import Alteration, Declared, DropColumn, Rename
from lakemill.runtime import ingest_tables
from lakemill.runtime.bodies import ARROW, JSON, NDJSON, parse, too_large
from lakemill.runtime.ingest import Answer, Ingest
from lakemill.store import ingest as store
from lakemill.store.ingest import IngestTable, Letter, Policy
from lakemill.values import Duration

WRITERS, WAITERS = 16, 256
"""Threads for requests, and for those that wait."""
Needs = Callable[[str], Sequence[Any]]
"""Role → what FastAPI must ask before it calls: the frame's business."""
PolicyName = Literal["reject", "dead_letter", "drop_field", "evolve"]
LetterId = Annotated[int, Path(ge=0, lt=2**63)]
TableName = Annotated[str, Path(description="`table` or `schema.table`.", examples=["sales.orders"])]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class IngestAnswer(_Model):
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


class ColumnBody(_Model):
    name: str = Field(min_length=1)
    type: str = Field(min_length=1, description="A DuckDB type.", examples=["DECIMAL(10,2)"])
    not_null: bool = False
    default: str | None = Field(None, description="An expression of DuckDB.")

    def declared(self) -> Declared:
        return Declared(self.name, self.type, self.not_null, self.default)


class TableBody(_Model):
    """A table that takes requests; without columns one that is there is adopted."""

    name: str
    columns: list[ColumnBody] = []
    key: list[str] = []
    partition_by: list[str] = []
    policy: PolicyName = "reject"
    dedupe: Duration = store.DEDUPE
    retention: Duration | None = None


class TablePatch(_Model):
    add: list[ColumnBody] = []
    drop: list[str] = []
    rename: dict[str, str] = {}
    key: list[str] | None = None
    policy: PolicyName | None = None
    dedupe: Duration | None = None
    retention: Duration | None = None

    def alterations(self) -> list[Alteration]:
        renamed: list[Alteration] = [Rename(*pair) for pair in self.rename.items()]
        return [*renamed, *map(DropColumn, self.drop), *(column.declared() for column in self.add)]


class TableAnswer(_Model):
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


class LetterAnswer(_Model):
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


def router(ingest: Callable[[], Ingest], *, needs: Needs = lambda role: ()) -> APIRouter:
    """The endpoints. ``ingest`` gives the process's one; ``needs`` what must be asked for a role."""
    made = APIRouter(prefix="/v1")
    writers, waiters = CapacityLimiter(WRITERS), CapacityLimiter(WAITERS)

    @made.post(
        "/ingest/{table}",
        response_model=IngestAnswer,
        responses={202: {"model": IngestAnswer, "description": "Accepted, not yet visible."}},
        dependencies=list(needs("ingest_writer")),
        openapi_extra={"requestBody": _BODIES},
    )
    async def write(
        request: Request,
        table: TableName,
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
        most = ingest().settings.max_request_bytes
        body = await _read(request, most)
        media, encoding = request.headers.get("content-type", JSON), request.headers.get("content-encoding", "")

        def accept() -> tuple[Answer | None, Callable[[], Answer]]:
            """The answer where nobody waits, and a way to wait."""
            one, name = ingest(), parse_name(table)
            given = parse(body, media, encoding, most=most, op=op, enveloped=envelope).under(idempotency_key)
            timeout = given.timeout if visibility_timeout_ms is None else visibility_timeout_ms / 1000
            told = one.accept(name, given)
            at_once = None if given.wait or wait_for_visibility else one.answer(told)
            return at_once, lambda: one.answer(told, wait=True, timeout=timeout)

        answer, wait = await to_thread.run_sync(accept, limiter=writers)
        if answer is None:
            answer = await to_thread.run_sync(wait, limiter=waiters)
        shown = IngestAnswer.of(answer).model_dump(mode="json")
        return JSONResponse(shown, 200 if answer.visible else 202)

    # ------------------------------------------------------------ tables
    @made.post("/tables", status_code=201, dependencies=list(needs("table_admin")))
    def create(body: TableBody) -> TableAnswer:
        """Make a table that takes requests, or adopt one that is there."""
        with ingest().codecs.turn() as lake:
            return TableAnswer.of(
                ingest_tables.create(
                    lake,
                    parse_name(body.name),
                    [column.declared() for column in body.columns],
                    key=body.key,
                    partition_by=body.partition_by,
                    policy=Policy(body.policy),
                    dedupe=body.dedupe,
                    retention=body.retention,
                    adopt=not body.columns,
                )
            )

    @made.patch("/tables/{table}", dependencies=list(needs("table_admin")))
    def alter(table: TableName, body: TablePatch) -> TableAnswer:
        """Change columns, as one snapshot, and what is accepted."""
        name = parse_name(table)
        with ingest().codecs.turn() as lake:
            changed = ingest_tables.alter(
                lake,
                name,
                body.alterations(),
                key=body.key,
                policy=None if body.policy is None else Policy(body.policy),
                dedupe=body.dedupe,
                retention=body.retention,
            )
        ingest().codecs.forget(name)
        return TableAnswer.of(changed)

    @made.delete("/tables/{table}", status_code=204, dependencies=list(needs("table_admin")))
    def drop(
        table: TableName,
        force: Annotated[bool, Query(description="What is not yet visible may be lost.")] = False,
        keep: Annotated[bool, Query(description="Only take no more requests.")] = False,
    ) -> None:
        """Drop it; refused while requests are not yet visible, or dynamic tables read it."""
        with ingest().codecs.turn() as lake:
            ingest_tables.drop(lake, parse_name(table), force=force, keep=keep)

    @made.get("/lag", dependencies=list(needs("ops_admin")))
    def lag() -> dict[str, Any]:
        """How far the lake is, and what each table has still to do."""
        one = ingest()
        with one.codecs.turn() as lake:
            head, lags, tables = one.head(), store.lags(lake.conn), ingest_tables.list_all(lake)
        shown = []
        for table in tables:
            behind = msgspec.to_builtins(lags[table.table_id]) if table.table_id in lags else {}
            behind.pop("table_id", None)
            behind |= {"passed": write_token(one.lake_id, behind.pop("cursor", 0))}
            shown.append({"table": str(table.name), **behind})
        return {
            "visibility_token": write_token(one.lake_id, head.token),
            "watermark": write_token(one.lake_id, head.watermark),
            "tables": shown,
        }

    # ------------------------------------------------------------ letters
    @made.get("/letters", dependencies=list(needs("table_admin")))
    def letters(
        table: str | None = None,
        state: Literal["waiting", "replayed", "dropped"] | None = None,
        before: Annotated[int | None, Query(description="Older than this one.", ge=0, lt=2**63)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> list[LetterAnswer]:
        """Records that could not become rows, the newest first."""
        with ingest().codecs.turn() as lake:
            wanted = None if table is None else ingest_tables.get(lake, parse_name(table)).table_id
            found = store.letters(lake.conn, table_id=wanted, state=state, before=before, limit=limit)
            names = {one.table_id: str(one.name) for one in ingest_tables.list_all(lake)}
        return [_letter(ingest(), one, names) for one in found]

    @made.get("/letters/{letter_id}", dependencies=list(needs("table_admin")))
    def letter(letter_id: LetterId) -> LetterAnswer:
        """One of them."""
        with ingest().codecs.turn() as lake:
            found = store.letter(lake.conn, letter_id)
            names = {one.table_id: str(one.name) for one in ingest_tables.list_all(lake)}
        return _letter(ingest(), found, names)

    @made.post(
        "/letters/{letter_id}/replay",
        status_code=202,
        dependencies=list(needs("table_admin")),
        openapi_extra={"requestBody": _REPLAY},
    )
    async def replay(request: Request, letter_id: LetterId) -> IngestAnswer:
        """Send it again, with another `payload` where one is given: a new write with a new token."""
        body = await _read(request, ingest().settings.max_request_bytes)
        try:
            payload = msgspec.json.decode(body or b"{}", type=_Replay).payload
        except msgspec.MsgspecError as error:
            raise BadBody(str(error), remedy='send {"payload": {…}}, or nothing') from error
        given = bytes(payload) or None
        return IngestAnswer.of(await to_thread.run_sync(lambda: ingest().replay(letter_id, given), limiter=writers))

    @made.delete("/letters/{letter_id}", status_code=204, dependencies=list(needs("table_admin")))
    def drop_letter(letter_id: LetterId) -> None:
        """It will not be replayed."""
        with ingest().codecs.turn() as lake:
            store.letter(lake.conn, letter_id)
            store.drop_letters(lake.conn, [letter_id])

    return made


async def _read(request: Request, most: int) -> bytes:
    """The body, as far as it may be long."""
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise too_large(most)
        chunks.append(chunk)
    return b"".join(chunks)


def _letter(ingest: Ingest, letter: Letter, names: dict[int, str]) -> LetterAnswer:
    return LetterAnswer(
        id=letter.id,
        table=names.get(letter.table_id),
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
