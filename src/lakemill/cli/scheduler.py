"""`lakemill scheduler`: the scheduler alone."""

from __future__ import annotations

import typer

from lakemill.cli import serving
from lakemill.cli.options import given


def command(context: typer.Context, port: serving.PortOption = None) -> None:
    """Decide what is due, for workers elsewhere to do.

    Several may run: one leads, the others stand by, and take over when it is gone.

        lakemill scheduler
        lakemill scheduler --port 0
    """
    from lakemill.runtime.scheduler import Scheduler
    from lakemill.runtime.service import Service

    settings = given(context).settings()
    serving.run(settings, Service(settings, scheduler=Scheduler(settings)), port)
