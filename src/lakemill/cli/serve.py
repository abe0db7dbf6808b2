"""`lakemill serve`: the whole service in one process."""

from __future__ import annotations

import typer

from lakemill.cli import serving
from lakemill.cli.options import given


def command(
    context: typer.Context,
    name: serving.NameOption = "",
    slots: serving.SlotsOption = 0,
    port: serving.PortOption = None,
) -> None:
    """Keep all dynamic tables fresh, make what was ingested visible, and serve HTTP: everything in one process.

    It runs until SIGTERM or Ctrl-C; what is at work then may end. Several may run on one lake, on one machine or many:
    one of them schedules, all of them work. /docs shows what the API offers; `lakemill keys create` lets callers in.

        lakemill serve
        lakemill serve --slots 4 --port 8640
        lakemill --set service.log_format=json serve
    """
    from lakemill.runtime.coordinator import Coordinator
    from lakemill.runtime.scheduler import Scheduler
    from lakemill.runtime.service import Service
    from lakemill.runtime.worker import Worker

    settings = given(context).settings()
    service = Service(
        settings,
        scheduler=Scheduler(settings),
        worker=Worker(settings, name, slots),
        coordinator=Coordinator(settings),
    )
    serving.run(settings, service, port, api=True)
