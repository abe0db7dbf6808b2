"""`lakemill worker`: a worker alone."""

from __future__ import annotations

from typing import Annotated

import typer

from lakemill.cli import serving
from lakemill.cli.options import given


def command(
    context: typer.Context,
    name: serving.NameOption = "",
    slots: serving.SlotsOption = 0,
    kinds: Annotated[str, typer.Option("--kinds", help="What it takes: refresh, upkeep, ingest.")] = "refresh,upkeep",
    port: serving.PortOption = None,
) -> None:
    """Do what the scheduler finds due. Any number may run, each with a Spark session of its own.

    With `ingest` it makes requests visible too, as `lakemill coordinator` does.

    On SIGTERM it takes no more work, finishes what it is at within service.stop_grace, and hands the rest back.

        lakemill worker --name w1 --slots 4
        lakemill worker --kinds upkeep --port 0
    """
    from lakemill.runtime.coordinator import Coordinator
    from lakemill.runtime.service import Service
    from lakemill.runtime.worker import Worker
    from lakemill.store.work import Kind

    settings = given(context).settings()
    wanted = serving.kinds_of(kinds)
    own = tuple(kind for kind in wanted if kind is not Kind.INGEST)
    worker = Worker(settings, name, slots, own) if own else None
    coordinator = Coordinator(settings) if Kind.INGEST in wanted else None
    serving.run(settings, Service(settings, worker=worker, coordinator=coordinator), port)
