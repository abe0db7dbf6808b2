"""The HTTP service: one application of all routers, inside the frame, beside the probes.

A new part of the API is a module with a `router`, and its name in `ROUTERS`. Its endpoints ask for `Who`
(``api/caller``), raise errors of our tree, and say nothing about status codes but for success.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.security import APIKeyHeader, HTTPBearer
from starlette.exceptions import HTTPException

from lakemill import __version__
from lakemill.api import (
    audit,
    dynamic,
    ingest,
    keys,
    letters,
    page,
    pins,
    points,
    probes,
    query,
    snapshots,
    tables,
    takers,
    tenants,
    upkeep,
)
from lakemill.api.desk import Desk
from lakemill.api.frame import Frame
from lakemill.api.problems import Problem, Wrong, documented, problem
from lakemill.errors import (
    BadRequest,
    InternalError,
    LakemillError,
    MalformedBody,
    UnknownRoute,
    UnsupportedMedia,
    WrongMethod,
)
from lakemill.telemetry.metrics import count_error

ROUTERS = (ingest, query, tables, takers, letters, dynamic, points, snapshots, pins, upkeep, keys, tenants, audit)
ABOUT = """Errors are `application/problem+json`, with a stable `code`
(docs/reference/errors.md). Every answer has `X-Trace-Id`; a W3C `traceparent` is taken over."""

# for the page only: who may is decided in the frame, before anything of a request is read
_SHOWN = [
    Depends(HTTPBearer(auto_error=False, description="An API key, or a JWT of the issuer in the settings")),
    Depends(APIKeyHeader(name="X-API-Key", auto_error=False)),
]


def make(
    desk: Desk, ready: Callable[[], probes.Parts] | None = None, alive: Callable[[], str | None] = lambda: None
) -> FastAPI:
    """The application; `ready` and `alive` are those of the process around it, where there is more than this."""
    made = FastAPI(
        title="Lakemill",
        version=__version__,
        description=ABOUT,
        docs_url=None,  # theirs loads scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        separate_input_output_schemas=False,
    )
    for module in ROUTERS:
        made.include_router(module.router, responses=documented(), dependencies=_SHOWN)
    made.include_router(probes.router(ready or desk.ready, alive), include_in_schema=False)
    made.add_exception_handler(RequestValidationError, _invalid)
    made.add_exception_handler(HTTPException, _refused)
    made.add_middleware(Frame, desk=desk)
    made.openapi = _described(made.openapi)  # type: ignore[method-assign]
    made.add_route("/docs", _page(made), include_in_schema=False)
    return made


def _page(made: FastAPI) -> Callable[[Request], HTMLResponse]:
    text: str | None = None

    def docs(request: Request) -> HTMLResponse:
        """The description, for people."""
        nonlocal text
        text = text or page.page(made.openapi())
        return HTMLResponse(text, headers=page.HEADERS)

    return docs


def _described(original: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """With the form of problems, which no endpoint returns itself."""

    def openapi() -> dict[str, Any]:
        found = original()
        whole = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas = found.setdefault("components", {}).setdefault("schemas", {})
        schemas |= whole.pop("$defs", {}) | {"Problem": whole}
        return found

    return openapi


def _trace(request: Request) -> str:
    return str(request.state.trace_id)


def _invalid(request: Request, error: Exception) -> JSONResponse:
    """What pydantic says of a request, in our form."""
    found: Sequence[Any] = error.errors() if isinstance(error, RequestValidationError) else ()
    if any(one["type"] == "json_invalid" for one in found):
        return _tell(request, MalformedBody("the body is not JSON", place=_path(found[0]["loc"])))
    if any(one["type"] == "model_attributes_type" and one["loc"] == ("body",) for one in found) and not _is_json(
        request
    ):
        return _tell(
            request, UnsupportedMedia("the body is not sent as JSON", remedy="add Content-Type: application/json")
        )
    wrong = [Wrong(path=_path(one["loc"]), message=one["msg"]) for one in found]
    about = f"{wrong[0].path}: {wrong[0].message}" if wrong else "the request is not what it should be"
    more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return _tell(request, BadRequest(about + more, place=wrong[0].path if wrong else None), wrong)


def _is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def _path(parts: Sequence[object]) -> str:
    return ".".join(map(str, parts))


def _refused(request: Request, error: Exception) -> JSONResponse:
    """What the framework refuses by itself."""
    if isinstance(error.__cause__, LakemillError):  # ours, met while it read the body
        return _tell(request, error.__cause__)
    status = error.status_code if isinstance(error, HTTPException) else 500
    match status:
        case 404:
            return _tell(request, UnknownRoute(f"nothing is at {request.url.path}", remedy="/docs lists what there is"))
        case 405:
            told = WrongMethod(f"{request.method} is not for {request.url.path}", remedy="/docs lists what there is")
            answer = _tell(request, told)
            answer.headers.update(getattr(error, "headers", None) or {})
            return answer
        case _ if 400 <= status < 500:
            return _tell(request, MalformedBody("the body can't be read"))
    return _tell(request, InternalError(f"HTTP {status}"))


def _tell(request: Request, error: LakemillError, fields: Sequence[Wrong] = ()) -> JSONResponse:
    count_error(error.code)
    return problem(error, _trace(request), fields)
