"""`lakemill api`: the HTTP service alone."""

from __future__ import annotations

from typing import Annotated

import typer

from lakemill.cli import serving
from lakemill.cli.options import given


def command(
    context: typer.Context,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on; by default service.host.")] = None,
    port: serving.PortOption = None,
) -> None:
    """Serve the HTTP API, without scheduler and worker.

    Any number of them may run on one lake: keys, quotas and pins hold across all. Refreshes are left to the workers.
    /docs shows what there is. Without a key it serves this machine only; `lakemill keys create` makes one.

        lakemill api
        lakemill api --host 0.0.0.0 --port 8650
    """
    serving.run_api(given(context).settings(), host, port)
