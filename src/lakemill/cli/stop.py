"""`lakemill stop`: end the lake's embedded PostgreSQL."""

from __future__ import annotations

import typer

from lakemill.cli.options import FormatOption, given
from lakemill.errors import BadArgument


def command(context: typer.Context, format_: FormatOption = None) -> None:
    """Stop the lake's embedded PostgreSQL.

    The next command starts it again.

        lakemill stop
    """
    from lakemill.store.embedded import EmbeddedPostgres

    output = given(context).output(format_)
    settings = given(context).settings()
    if settings.lake.postgres:
        raise BadArgument(
            "this lake's catalog is in a PostgreSQL of your own, which Lakemill does not stop",
            place="lake.postgres",
            remedy="stop it with its own tools",
        )
    stopped = EmbeddedPostgres(settings.embedded_dir).stop()
    output.record({"postgres": str(settings.embedded_dir), "was_running": stopped})
