"""`lakemill coordinator`: what was ingested becomes visible."""

from __future__ import annotations

import typer

from lakemill.cli import serving
from lakemill.cli.options import given


def command(context: typer.Context, port: serving.PortOption = None) -> None:
    """Make rows of the requests that were accepted, in batches. Any number may run: they share the tables.

    On SIGTERM it begins no more batches, finishes those that it is at within service.stop_grace, and leaves the rest to
    the others.

        lakemill coordinator
        lakemill --set ingest.interval=2s coordinator --port 0
    """
    from lakemill.runtime.coordinator import Coordinator
    from lakemill.runtime.service import Service

    settings = given(context).settings()
    serving.run(settings, Service(settings, coordinator=Coordinator(settings)), port)
