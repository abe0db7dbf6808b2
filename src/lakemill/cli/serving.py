"""What `serve`, `scheduler` and `worker` share: a service with its log and its port, until it is told to stop."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lakemill.runtime.service import Service
    from lakemill.settings import Settings
    from lakemill.store.work import Kind

PortOption = Annotated[
    int | None, typer.Option("--port", help="Port of /healthz, /readyz and /metrics; 0: any that is free.")
]
NameOption = Annotated[str, typer.Option("--name", help="What the worker is called; by default host and process.")]
SlotsOption = Annotated[int, typer.Option("--slots", help="Refreshes at the same time; by default service.slots.")]


def run(settings: Settings, service: Service, port: int | None) -> None:
    """Until SIGTERM or Ctrl-C; a second one ends it at once."""
    from lakemill.api.probes import app, serve_in_thread
    from lakemill.telemetry import lineage, tracing
    from lakemill.telemetry.log import configure, log

    configure(settings.service.log_format, settings.service.log_level)
    stop = threading.Event()

    def told(number: int, frame: object) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told)
    service.start(stop)
    wanted = settings.service.port if port is None else port
    http = serve_in_thread(app(service.ready, service.alive), settings.service.host, wanted)
    log().info(f"listening on {http.url}")
    stop.wait()
    log().info("stopping")
    service.join()
    http.stop()
    tracing.shut()
    lineage.shut()
    sys.stdout.flush()
    os._exit(0)  # the JVM's end is not waited for


def kinds_of(text: str) -> tuple[Kind, ...]:
    """``refresh,upkeep``, checked."""
    from lakemill.errors import BadArgument
    from lakemill.store.work import Kind

    known = {kind.value: kind for kind in Kind}
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not set(words) <= known.keys():
        raise BadArgument(f"--kinds {text}: not among {', '.join(known)}", remedy="such as --kinds refresh,upkeep")
    return tuple(known[word] for word in dict.fromkeys(words))
