"""What `serve`, `api`, `scheduler` and `worker` share: a process with its log and its port, until it must stop."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lakemill.api.desk import Desk
    from lakemill.api.probes import Serving
    from lakemill.runtime.service import Service
    from lakemill.settings import Settings
    from lakemill.store.work import Kind

PortOption = Annotated[
    int | None, typer.Option("--port", help="Port of the HTTP service and its probes; 0: any that is free.")
]
NameOption = Annotated[str, typer.Option("--name", help="What the worker is called; by default host and process.")]
SlotsOption = Annotated[int, typer.Option("--slots", help="Refreshes at the same time; by default service.slots.")]


def run(settings: Settings, service: Service, port: int | None, *, api: bool = False) -> None:
    """Until SIGTERM or Ctrl-C; a second one ends it at once. With `api` the HTTP service is on the probes' port.

    One whose slots hang ends by itself, as a failure.
    """
    from lakemill.errors import UnavailableError
    from lakemill.telemetry import lineage, tracing
    from lakemill.telemetry.log import log

    stop = _told_to_stop(settings)
    desk = _desk(settings, settings.service.host, works=True) if api else None
    service.start(stop)
    http = _served(settings, desk, settings.service.host, port, service.ready, service.alive)
    stop.wait()
    log().info("stopping")
    service.join()
    http.stop()
    tracing.shut()
    lineage.shut()
    sys.stdout.flush()
    os._exit(UnavailableError.exit_code if service.broken else 0)  # the JVM's end is not waited for


def run_api(settings: Settings, host: str | None, port: int | None) -> None:
    """Nothing but the HTTP service, until it is told to stop."""
    from lakemill.telemetry.log import log

    stop = _told_to_stop(settings)
    where = host or settings.service.host
    desk = _desk(settings, where, works=False)
    http = _served(settings, desk, where, port, desk.ready, lambda: None)
    stop.wait()
    log().info("stopping")
    http.stop()
    desk.close()


def _told_to_stop(settings: Settings) -> threading.Event:
    from lakemill.telemetry.log import configure

    configure(settings.service.log_format, settings.service.log_level)
    stop = threading.Event()

    def told(number: int, frame: object) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told)
    return stop


def _desk(settings: Settings, host: str, *, works: bool) -> Desk:
    from lakemill.api.desk import Desk

    desk = Desk(settings, host, works=works)
    desk.start()
    return desk


def _served(
    settings: Settings,
    desk: Desk | None,
    host: str,
    port: int | None,
    ready: Callable[[], Mapping[str, str | None]],
    alive: Callable[[], str | None],
) -> Serving:
    from lakemill.api import app, probes
    from lakemill.telemetry.log import log

    made = probes.app(ready, alive) if desk is None else app.make(desk, ready, alive)
    http = probes.serve_in_thread(made, host, settings.service.port if port is None else port)
    log().info(f"listening on {http.url}")
    return http


def kinds_of(text: str) -> tuple[Kind, ...]:
    """``refresh,upkeep``, checked."""
    from lakemill.errors import BadArgument
    from lakemill.store.work import Kind

    known = {kind.value: kind for kind in Kind}
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not set(words) <= known.keys():
        raise BadArgument(f"--kinds {text}: not among {', '.join(known)}", remedy="such as --kinds refresh,upkeep")
    return tuple(known[word] for word in dict.fromkeys(words))
