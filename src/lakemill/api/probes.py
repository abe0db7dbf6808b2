"""What the machines around a process ask it: does it live, can it work, how does it fare.

`/healthz`, `/readyz` and `/metrics`, beside whatever the process does. What alive and ready mean the caller says, with
two functions; here they are asked with care: one at a time, for a bounded while, and a check that fails is an answer.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import uvicorn
from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import JSONResponse

from lakemill.errors import BadArgument, InternalError
from lakemill.telemetry import metrics

LOOPBACK = "127.0.0.1"
PATIENCE = 2.0
"""Seconds that a request waits while another one's check is under way; probes give up soon after."""
START_SECONDS = 10.0
Parts = Mapping[str, str | None]
"""Part → what it lacks; None where it is ready."""


def app(ready: Callable[[], Parts], alive: Callable[[], str | None] = lambda: None) -> FastAPI:
    """An application of nothing else."""
    made = FastAPI(title="Lakemill", docs_url=None, redoc_url=None, openapi_url=None)
    made.include_router(router(ready, alive))
    return made


def router(ready: Callable[[], Parts], alive: Callable[[], str | None] = lambda: None) -> APIRouter:
    """The probes: `ready` names each part and what it lacks, `alive` says why the process should be replaced."""
    made = APIRouter()
    checking = threading.Lock()

    def parts() -> Parts:
        # a check that hangs, on a database that does not answer, must not use up the threads that serve /metrics
        if not checking.acquire(timeout=PATIENCE):
            return {"checks": "an earlier check has not ended yet"}
        try:
            return ready()
        except Exception as error:  # the border: whatever goes wrong in a check, the part is not ready
            return {"checks": str(error) or type(error).__name__}
        finally:
            checking.release()

    @made.get("/healthz")
    def healthz() -> JSONResponse:
        try:
            why = alive()
        except Exception as error:
            why = str(error) or type(error).__name__
        if why is None:
            return JSONResponse({"status": "alive"})
        return JSONResponse({"status": "broken", "why": why}, 503)

    @made.get("/readyz")
    def readyz() -> JSONResponse:
        found = parts()
        lacking = {part: why for part, why in found.items() if why is not None}
        if lacking:
            return JSONResponse({"status": "not ready", "lacking": lacking}, 503)
        return JSONResponse({"status": "ready", "parts": sorted(found)})

    @made.get("/metrics")
    def metrics_() -> Response:
        return Response(metrics.exposition(), headers={"content-type": metrics.CONTENT_TYPE})

    return made


@dataclass(slots=True)
class Serving:
    """A server in a thread of its own; it ends with the process at the latest."""

    host: str
    port: int
    _server: uvicorn.Server = field(repr=False)
    _thread: threading.Thread = field(repr=False)
    _listener: socket.socket = field(repr=False)

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def stop(self, timeout: float = 5.0) -> bool:
        """End it, requests under way first, within `timeout` seconds; False where it is left to the process's end."""
        self._server.should_exit = True
        self._thread.join(timeout * 0.8)
        if self._thread.is_alive():  # a request that does not end
            self._server.force_exit = True
            self._thread.join(timeout * 0.2)
        self._listener.close()
        return not self._thread.is_alive()


def serve_in_thread(application: FastAPI, host: str = LOOPBACK, port: int = 0) -> Serving:
    """Serve from now on; port 0: any free one. An address that can't be had is told here, not in the thread."""
    try:
        listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=128
        )
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadArgument(
            f"HTTP can't be served at {host}:{port}: {why}", remedy="choose another address or port; 0 is any free one"
        ) from error
    # asyncio does it for sockets that it makes; without, an answer's second part waits 40 ms for an acknowledgement
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # log_config None: its lines go where ours go. Signals are the process's; uvicorn takes them in a main thread only
    config = uvicorn.Config(
        application, log_config=None, access_log=False, lifespan="off", ws="none", timeout_graceful_shutdown=3
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="http", daemon=True)
    thread.start()
    until = time.monotonic() + START_SECONDS
    while not server.started:
        if not thread.is_alive() or time.monotonic() > until:
            listener.close()
            raise InternalError(f"the HTTP server did not start at {host}:{port}")
        time.sleep(0.01)
    return Serving(host, int(listener.getsockname()[1]), server, thread, listener)
