"""`/v1/query`: a SELECT at one snapshot, its rows streamed; `/v1/queries`: what runs, and its cancelling.

The way of a query: who may, the snapshot (for a token, the one at which it is visible), the gateway, the format.
Closing the connection cancels it, before its first row as well as after. Here are words; the gateway does the work.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

import anyio
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from lakemill.api import formats
from lakemill.api.caller import Caller, Who
from lakemill.api.models import Sent, SnapshotId, Text, without_nul
from lakemill.api.problems import documented
from lakemill.api.threads import READERS, threaded
from lakemill.core.names import parse_name
from lakemill.core.receipts import write_token
from lakemill.core.rights import Action
from lakemill.errors import (
    BadArgument,
    ConsistencyTimeout,
    Forbidden,
    LakemillError,
    QueryCancelled,
    QueryRefused,
    QueryTimedOut,
    QuotaExceeded,
    TableSuspended,
    UnknownQuery,
    UserError,
)
from lakemill.gateway.gate import Answer
from lakemill.gateway.question import At, Question
from lakemill.runtime import barrier
from lakemill.runtime.meaning import meaning
from lakemill.store import audit, watermarks
from lakemill.telemetry import metrics

router = APIRouter(prefix="/v1", tags=["query"])
_ENDS: Mapping[str, tuple[type[LakemillError], ...]] = {
    "denied": (QueryRefused, Forbidden, QuotaExceeded),
    "not_visible": (ConsistencyTimeout,),
    "timed_out": (QueryTimedOut,),
    "cancelled": (QueryCancelled,),
    "wrong": (UserError,),
}
WATCH = 0.25
"""Seconds between looks whether the caller is still there."""


class NewQuery(Sent):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"sql": "SELECT k, sum(amount) FROM orders WHERE id < ? GROUP BY k", "params": [7]}]
        },
    )

    sql: Annotated[str, StringConstraints(min_length=1), AfterValidator(without_nul)] = Field(
        description="One SELECT, in DuckDB's SQL."
    )
    params: list[Any] | dict[str, Any] | None = Field(None, description="For `?` in their order, or for `$name`.")
    snapshot_id: SnapshotId | None = None
    snapshot_time: AwareDatetime | None = Field(None, description="The newest snapshot at this time.")
    min_visibility_token: Text | None = Field(
        None, description="Wait until what this token stands for is visible in the tables that are read."
    )
    consistency_timeout_ms: int = Field(3000, ge=0, le=600_000, description="For how long at most.")
    point: dict[Text, SnapshotId] | None = Field(None, description="Table → snapshot, as `POST /v1/points` answers.")
    timeout_ms: int | None = Field(None, gt=0, le=86_400_000, description="At most `query.timeout`.")
    row_limit: int | None = Field(None, ge=0, le=2**53, description="The answer ends after so many rows.")
    format: Literal["json", "arrow", "csv", "parquet"] | None = Field(None, description="Else by `Accept`.")
    id: UUID | None = Field(None, description="Its id, for cancelling; by default a new one.")


class ColumnModel(BaseModel):
    name: str
    type: str = Field(examples=["DECIMAL(9,2)"], description="DuckDB's.")


class StatisticsModel(BaseModel):
    rows: int
    bytes: int = Field(description="Of the answer, as Arrow.")
    truncated: bool = Field(description="Whether row_limit cut it.")
    files: int = Field(description="Files that it could have read.")
    queued: float = Field(description="Seconds until its turn.")
    duration: float
    cpu: float
    memory: int


class QueryAnswer(BaseModel):
    """JSON; other formats say the first four in headers: `X-Query-Id`, `X-Snapshot-Id` and so on.

    Arrow (with its last batch) and Parquet have the statistics in the metadata `lakemill`; CSV has no place for them.
    """

    query_id: UUID
    snapshot_id: int
    snapshot_time: AwareDatetime
    visibility_token: str = Field(description="Everything that was accepted up to it is in this snapshot, or died.")
    columns: list[ColumnModel]
    rows: list[list[Any]] = Field(
        description="Decimals, NaN and Infinity as texts, times as ISO 8601, bytes as base64."
    )
    statistics: StatisticsModel


class RunningModel(BaseModel):
    id: UUID
    who: str


_OTHERS: dict[str, Any] = {media: {} for name, media in formats.MEDIA.items() if name != "json"}


@router.post(
    "/query",
    response_model=QueryAnswer,
    responses={**documented(404, 409, 410, 499, 504), 200: {"content": _OTHERS, "model": QueryAnswer}},
)
async def query(body: NewQuery, request: Request, caller: Who) -> StreamingResponse:
    """Rows of one SELECT at one snapshot: JSON, Arrow, CSV or Parquet."""
    stream = Stream(body, caller, formats.chosen(body.format, request.headers.get("accept", "")))
    await _unless_gone(request, stream)
    return StreamingResponse(stream.pieces(), headers=stream.headers, media_type=formats.MEDIA[stream.format])


@router.get("/queries")
def list_queries(caller: Who) -> list[RunningModel]:
    """What runs in the process that answers: one's own queries, or for who administers the lake or a tenant, all."""
    caller.require(Action.CANCEL)
    found = caller.desk.queries.running
    return [RunningModel(id=UUID(id_), who=who) for id_, who in found.items() if caller.reach.covers(who)]


@router.delete("/queries/{id}", status_code=202, response_class=Response, responses=documented(404))
def cancel_query(id: UUID, caller: Who) -> None:
    """Stop a query, whichever process runs it; 404 where this one knows that it is somebody else's."""
    with caller.audited("query.cancel", about=str(id)):
        caller.require(Action.CANCEL)
        who = caller.desk.queries.running.get(id.hex)
        if who is not None and not caller.reach.covers(who):
            raise UnknownQuery(f"there is no query {id}")
        with caller.lake() as lake:
            caller.desk.queries.cancel(lake.conn, id.hex, caller.reach)


class Stream:
    """One query, from its question to its last byte; each step is done in a thread."""

    def __init__(self, body: NewQuery, caller: Caller, format_: str) -> None:
        self.format, self.id = format_, (body.id or uuid4()).hex
        self.headers: dict[str, str] = {}
        self._body, self._caller = body, caller
        self._held = ExitStack()
        self._answer: Answer
        self._writer: formats.Format

    def begin(self) -> None:
        """Until its columns and first rows are there."""
        body, caller = self._body, self._caller
        with ExitStack() as held:
            held.enter_context(_counted())
            entry = held.enter_context(caller.audited("query", about=self.id, sql=body.sql))
            caller.require(Action.QUERY)
            question = self._question()
            held.enter_context(caller.desk.queries.run(self.id, caller.holder))
            question = self._awaited(question)
            held.enter_context(caller.query_slot(caller.desk.settings.query.timeout + timedelta(minutes=1)))
            self._answer = held.enter_context(caller.desk.queries.gateway.query(question))
            held.callback(self._account, entry)
            at = self._answer.snapshot
            entry.snapshot, entry.tables = at.id, tuple(map(str, self._answer.tables))
            with caller.lake() as lake:
                # at a point, other tables are read at older snapshots than the one that it is named by
                oldest = min(question.at.point.values()) if question.at.point else at.id
                token = write_token(*watermarks.covered(lake.conn, oldest))
            about = {
                "query_id": UUID(self.id),
                "snapshot_id": at.id,
                "snapshot_time": at.time,
                "visibility_token": token,
            }
            columns = [{"name": column.name, "type": column.type} for column in self._answer.columns]
            self._writer = formats.writer(self.format, self._answer.schema, {**about, "columns": columns})
            self.headers = {
                "x-query-id": str(UUID(self.id)),
                "x-snapshot-id": str(at.id),
                "x-snapshot-time": at.time.isoformat(),
                "x-visibility-token": token,
            }
            self._held = held.pop_all()

    def _question(self) -> Question:
        body, settings = self._body, self._caller.desk.settings.query
        one_of = (body.snapshot_id, body.snapshot_time, body.point, body.min_visibility_token)
        if sum(given is not None for given in one_of) > 1:
            raise BadArgument(
                "a query has one of snapshot_id, snapshot_time, point and min_visibility_token", place="body"
            )
        point = None if body.point is None else {parse_name(name): at for name, at in body.point.items()}
        asked = settings.timeout if body.timeout_ms is None else timedelta(milliseconds=body.timeout_ms)
        return Question(
            body.sql,
            body.params,
            At(body.snapshot_id, body.snapshot_time, point),
            row_limit=body.row_limit,
            timeout=min(asked, settings.timeout),
            visible=self._caller.sees,
            id=self.id,
        )

    def _awaited(self, question: Question) -> Question:
        """At the snapshot that shows its token; as it is where it has none."""
        body, desk, queries = self._body, self._caller.desk, self._caller.desk.queries
        if body.min_visibility_token is None:
            return question
        token = desk.ingest.number(body.min_visibility_token)
        timeout = timedelta(milliseconds=body.consistency_timeout_ms)
        try:
            with queries.waiting():
                names = queries.gateway.reads(question)
                seen = barrier.wait(self._caller.lake, token, names, timeout, lambda: queries.stopped(self.id))
            if (why := queries.stopped(self.id)) is not None:
                raise why
        except TableSuspended as error:
            if not self._caller.identity.bounded:
                raise
            told = f"{error.place}, or a table that it reads, is suspended, and has not seen the token"
            raise TableSuspended(told, place=error.place) from None  # which one may not be for this caller to know
        except ConsistencyTimeout as error:
            error.token = write_token(desk.ingest.lake_id, error.watermark)
            raise
        return replace(question, at=At(snapshot=seen.id))

    def _account(self, entry: audit.Action) -> None:
        if (told := self._answer.statistics) is not None:
            entry.rows = told.rows

    def cancel(self) -> None:
        self._caller.desk.queries.stop(self.id)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The bytes of the answer; whoever stops listening ends the query."""
        batches = iter(self._answer)
        try:
            yield self._writer.head()
            while (piece := await threaded(lambda: self._next(batches), READERS, abandoned=True)) is not None:
                if piece:
                    yield piece
            yield self._writer.tail(self._statistics())
        except BaseException as error:
            caught = error
            with anyio.CancelScope(shield=True):
                await threaded(lambda: self._end(caught), READERS)
            raise
        else:
            await threaded(lambda: self._end(None), READERS)

    def _next(self, batches: Any) -> bytes | None:
        batch = next(batches, None)
        return None if batch is None else self._writer.piece(batch)

    def _statistics(self) -> Mapping[str, Any]:
        assert self._answer.statistics is not None  # noqa: S101  (the last batch has come)
        return asdict(self._answer.statistics)

    def _end(self, error: BaseException | None) -> None:
        self._answer.close()
        if error is None:
            self._held.close()
            return
        told = error if isinstance(error, Exception) else QueryCancelled("the caller left")
        with suppress(type(told)):  # it is raised already; here the audit log learns of it
            self._held.__exit__(type(told), told, told.__traceback__)


@contextmanager
def _counted() -> Iterator[None]:
    """The body is a query, however it ends."""
    begun, status = time.monotonic(), "answered"
    try:
        yield
    except Exception as error:
        found = meaning(error)
        status = next((end for end, kinds in _ENDS.items() if isinstance(found, kinds)), "failed")
        raise
    finally:
        metrics.observe_query(status, time.monotonic() - begun)


async def _unless_gone(request: Request, stream: Stream) -> None:
    """Begin the query; a caller that leaves meanwhile cancels it."""

    async def watch() -> None:
        while not await request.is_disconnected():
            await anyio.sleep(WATCH)
        stream.cancel()

    async with anyio.create_task_group() as both:
        both.start_soon(watch)
        failure: Exception | None = None
        try:
            await threaded(stream.begin, READERS, abandoned=True)
        except Exception as error:  # told outside, or it would be wrapped as one of a group
            failure = error
        both.cancel_scope.cancel()
    if failure is not None:
        raise failure
