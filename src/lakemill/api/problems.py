"""Errors as HTTP tells them: one form, `application/problem+json` (RFC 9457), for whatever goes wrong.

The status comes from the error's class, by the one map here; the code says which error it is, and is what programs
should look at. Of our own mistakes nothing is told but that it was one, and the trace id under which the log has it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from lakemill import errors
from lakemill.core.keys import masked
from lakemill.errors import LakemillError, Retry
from lakemill.settings import without_password

MEDIA_TYPE = "application/problem+json"

STATUS: Mapping[type[LakemillError], int] = {
    # the request
    errors.UserError: 400,
    errors.BadRequest: 422,
    errors.BodyTooLarge: 413,
    errors.UnsupportedMedia: 415,
    errors.WrongMethod: 405,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    # what it names
    errors.UnknownRoute: 404,
    errors.UnknownTable: 404,
    errors.UnknownSnapshot: 404,
    errors.UnknownDynamicTable: 404,
    errors.UnknownKey: 404,
    errors.UnknownTenant: 404,
    errors.UnknownPin: 404,
    errors.UnknownLetter: 404,
    errors.NoIngestTable: 404,
    errors.UnknownQuery: 404,
    errors.FileGone: 410,
    errors.SnapshotGone: 410,
    # how things stand
    errors.TableExists: 409,
    errors.TenantExists: 409,
    errors.LakeExists: 409,
    errors.HasDependents: 409,
    errors.NoCommonPoint: 409,
    errors.OutputChanged: 409,
    errors.SourceChanged: 409,
    errors.RefreshFailed: 409,
    errors.UpstreamFailed: 409,
    errors.HistoryError: 409,
    errors.ConflictError: 409,
    errors.QueryRuns: 409,
    errors.IdempotencyConflict: 409,
    errors.RequestsPending: 409,
    errors.TableSuspended: 409,
    errors.RequestTooLarge: 413,
    errors.ConsistencyTimeout: 504,
    errors.Backlogged: 429,
    errors.QueryRefused: 403,
    errors.QueryTooLarge: 413,
    errors.ResultTooLarge: 413,
    errors.QueryCancelled: 499,
    errors.QueryTimedOut: 504,
    errors.QuotaExceeded: 429,
    errors.TooManyFailures: 429,
    # the service's own affairs: the caller can only wait, or tell somebody
    errors.BadSettings: 503,
    errors.NoLake: 503,
    errors.UnsupportedLake: 503,
    errors.UnsupportedVersion: 503,
    errors.Unwritable: 503,
    errors.UnknownBucket: 503,
    errors.MissingPart: 503,
    errors.UnavailableError: 503,
    errors.OutcomeUnknown: 504,
    errors.InternalError: 500,
}
BACK_OFF_SECONDS = 1


class Wrong(BaseModel):
    """A field of the request that is not what it should be."""

    path: str = Field(examples=["body.roles.0"])
    message: str = Field(examples=["Input should be 'ingest_writer', 'query_reader', 'table_admin' or 'ops_admin'"])


class Problem(BaseModel):
    """What every answer but a good one holds."""

    type: str = Field(examples=["urn:lakemill:error:UNKNOWN_TABLE"])
    title: str = Field(examples=["Unknown table"])
    status: int = Field(examples=[404])
    code: str = Field(examples=["UNKNOWN_TABLE"], description="Stable; docs/reference/errors.md lists them all.")
    message: str = Field(examples=["there is no table main.orders"])
    retryable: bool = Field(description="Whether the same request may succeed later.")
    where: str | None = Field(None, description="A place in the statement or body, where one is known.")
    remedy: str | None = Field(None, examples=["list the tables with `lakemill tables`"])
    trace_id: str = Field(examples=["4bf92f3577b34da6a3ce929d0e0e4736"])
    fields: list[Wrong] | None = Field(None, description="What is wrong with which field, for BAD_REQUEST.")
    faults: list[str] | None = Field(None, description="What is wrong with which record, for BAD_RECORDS.")
    watermark: str | None = Field(None, description="How far the lake is, for CONSISTENCY_TIMEOUT.")


def status_of(kind: type[LakemillError]) -> int:
    return next(STATUS[one] for one in kind.__mro__ if one in STATUS)


def problem(error: LakemillError, trace_id: str, fields: Iterable[Wrong] = ()) -> JSONResponse:
    """The answer that tells it."""
    inside = isinstance(error, errors.InternalError)
    status = status_of(type(error))
    found = list(fields)
    body: dict[str, Any] = {
        "type": f"urn:lakemill:error:{error.code}",
        "title": error.code.replace("_", " ").capitalize(),
        "status": status,
        "code": error.code,
        "message": "a mistake of Lakemill's own; its log has it under this trace id"
        if inside
        else _safe(error.message),
        "retryable": error.retry in (Retry.REPLAN, Retry.BACK_OFF),
        "where": None if inside or error.place is None else _safe(error.place),
        "remedy": "report it, with the trace id" if inside else _safe(error.remedy) or None,
        "trace_id": trace_id,
    }
    if found:
        body["fields"] = [{"path": _safe(one.path), "message": _safe(one.message)} for one in found]
    if isinstance(error, errors.BadRecords):
        body["faults"] = [_safe(one) for one in error.faults]
    if isinstance(error, errors.ConsistencyTimeout):
        body["watermark"] = error.token
    headers = {}
    if isinstance(error, errors.QuotaExceeded | errors.TooManyFailures | errors.Backlogged):
        headers["retry-after"] = str(max(1, math.ceil(error.wait)))
    elif isinstance(error, errors.UnavailableError):
        headers["retry-after"] = str(BACK_OFF_SECONDS)
    if status == 401:
        headers["www-authenticate"] = 'Bearer realm="lakemill"'
    return JSONResponse(body, status, headers, MEDIA_TYPE)


def _safe(text: str) -> str:
    return masked(without_password(text))


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: what every endpoint may answer, and these."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    every = (400, 401, 403, 413, 415, 422, 429, 500, 503, *statuses)
    return {status: {"description": "A problem", "content": content} for status in sorted(every)}
