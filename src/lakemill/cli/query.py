"""`lakemill query`: ask the query service, as any other client does."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakemill.cli.options import FormatOption, given


def command(
    context: typer.Context,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One SELECT, in DuckDB's SQL; ? stands for a parameter.")],
    param: Annotated[list[str] | None, typer.Option("--param", help="A value for each ?, in their order.")] = None,
    at: Annotated[int | None, typer.Option("--at", metavar="SNAPSHOT", help="As it was at this snapshot.")] = None,
    token: Annotated[str | None, typer.Option("--token", help="Only when this token of an ingest is visible.")] = None,
    wait: Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait for the token.")] = 10.0,
    limit: Annotated[int | None, typer.Option("--limit", min=0, help="At most so many rows.")] = None,
    url: Annotated[
        str | None, typer.Option(envvar="LAKEMILL_URL", help="Where the service is; by default where the settings say.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(envvar="LAKEMILL_API_KEY", help="The service's API key; also LAKEMILL_API_KEY.")
    ] = None,
    format_: FormatOption = None,
) -> None:  # fmt: skip
    """Ask a service that runs: `lakemill serve`, or `lakemill api`. It sees what the key may see, at one snapshot.

    With the token of an ingest it waits until those rows are visible in the tables that it reads. Without a service,
    `lakemill sql` asks the lake itself.

        lakemill query "SELECT count(*) FROM orders"
        lakemill query "SELECT * FROM orders WHERE id = ?" --param 7 --token lm1-0b5c-2a-9c31
        lakemill query "FROM by_day" --at 12 --url https://lake.example --format json
    """
    from lakemill.api import plain
    from lakemill.client import Client

    words = given(context)
    output = words.output(format_)
    service = words.settings().service
    with Client(url or f"http://{service.host}:{service.port}", key) as client:
        asked: dict[str, Any] = {"token": token, "snapshot": at, "row_limit": limit, "timeout": wait if token else None}
        found = client.query(sql, param, **asked).arrow()
    columns = [plain.values(column.combine_chunks()) for column in found.columns]
    output.rows(found.column_names, [list(row) for row in zip(*columns, strict=True)], empty="no rows")
