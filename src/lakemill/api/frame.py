"""What surrounds every request: trace id, admission, the limit on its body, its metrics, and the form of its errors.

Pure ASGI, outside of all routing, so that nothing of a request is read before its caller is known, and so that whatever
goes wrong inside, an answer of one form comes out. What is asked most needs no thread: who is known, and within its
quota, goes straight on.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import anyio
import anyio.to_thread
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect

from lakemill.api.caller import Caller
from lakemill.api.desk import Desk
from lakemill.api.problems import problem
from lakemill.errors import BadRequest, BodyTooLarge, InternalError, LakemillError
from lakemill.runtime.meaning import meaning
from lakemill.telemetry import metrics
from lakemill.telemetry.log import bound, failed, log

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = frozenset({"/healthz", "/readyz", "/metrics", "/docs", "/openapi.json"})
"""Paths for anybody."""
UNROUTED = "none"
DOORKEEPERS = 8
"""Threads for admission alone: long requests must not keep others out."""
LONGEST_NUMBER = 18
"""Digits of a length that can be meant."""
GONE = 499
"""The status, in metrics, of who left before its request was here: nginx's word for it."""
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def trace_id(headers: Mapping[str, str]) -> str:
    """The one that the caller's own tracing gave (W3C traceparent), or a new one."""
    found = _TRACEPARENT.fullmatch(headers.get("traceparent", "").strip())
    return found[1] if found is not None and found[1].strip("0") else secrets.token_hex(16)


class Frame:
    def __init__(self, app: App, desk: Desk) -> None:
        self._app, self._desk = app, desk
        self._keepers: anyio.CapacityLimiter | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=dict(scope))
        trace, begun, status = trace_id(headers), time.monotonic(), 0
        scope.setdefault("state", {})["trace_id"] = trace

        async def traced(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-trace-id", trace.encode())]
            await send(message)

        with bound(trace_id=trace):
            try:
                await self._inside(scope, headers, receive, traced)
            except ClientDisconnect:  # nothing was done, and nobody is there to be told
                status = GONE
            except Exception as error:
                told = self._told(scope, error)
                if not status:
                    await problem(told, trace)(scope, receive, traced)
                elif isinstance(told, InternalError):  # too late for another answer: the connection is cut
                    raise
                else:  # by the server, too, as the answer is not whole; a caller's cancel is no error of ours
                    log().info(f"{scope['method']} {scope['path']}: cut, {told.code}")
            finally:
                self._count(scope, status, time.monotonic() - begun)

    async def _inside(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        if scope["path"] not in OPEN:
            if "\x00" in scope["path"] or b"%00" in scope.get("query_string", b""):
                raise BadRequest("an address can't hold NUL")
            granted = self._desk.at_hand(headers)
            if granted is None:
                self._keepers = self._keepers or anyio.CapacityLimiter(DOORKEEPERS)
                address = (scope.get("client") or ("",))[0]
                granted = await anyio.to_thread.run_sync(self._desk.admitted, headers, address, limiter=self._keepers)
            scope["state"]["caller"] = Caller(granted, scope["state"]["trace_id"], self._desk)
        await self._app(scope, self._limited(headers, receive), send)

    def _limited(self, headers: Headers, receive: Receive) -> Receive:
        """The body, up to the largest that is allowed."""
        most, got = self._desk.settings.api.max_body, 0
        told = headers.get("content-length", "")
        if told.isdecimal() and (len(told) > LONGEST_NUMBER or int(told) > most):
            raise BodyTooLarge(f"the body has {told[:LONGEST_NUMBER]} bytes, and may have {most}")

        async def counted() -> Message:
            nonlocal got
            message = await receive()
            got += len(message.get("body", b""))
            if got > most:
                raise BodyTooLarge(f"the body has more than {most} bytes")
            return message

        return counted

    def _told(self, scope: Scope, error: Exception) -> LakemillError:
        told = meaning(error)
        metrics.count_error(told.code)
        if isinstance(told, InternalError):  # with its traceback; others are the caller's, who is told
            failed(f"{scope['method']} {scope['path']}", error)
        return told

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        if scope["path"] not in OPEN:
            route = getattr(scope.get("route"), "path", UNROUTED)
            method = scope["method"] if scope["method"] in _METHODS else "other"
            metrics.observe_request(method, route, status, seconds)
