"""Quotas as options, shared by `lakemill keys` and `lakemill tenants`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from lakemill.core.quota import Quotas

RequestsOption = Annotated[float | None, typer.Option("--requests", metavar="N", help="Requests per second.")]
RowsOption = Annotated[float | None, typer.Option("--rows", metavar="N", help="Ingested rows per second.")]
BytesOption = Annotated[float | None, typer.Option("--bytes", metavar="N", help="Ingested bytes per second.")]
QueriesOption = Annotated[int | None, typer.Option("--queries", metavar="N", help="Queries at the same time.")]


def facts(quotas: Quotas) -> dict[str, Any]:
    return {"requests": quotas.requests, "rows": quotas.rows, "bytes": quotas.bytes, "queries": quotas.queries}


def shown(quotas: Quotas) -> str | None:
    """For people."""
    units = {"requests": "/s", "rows": "/s", "bytes": "/s", "queries": " at a time"}
    told = [f"{limit:g} {name}{units[name]}" for name, limit in facts(quotas).items() if limit is not None]
    return ", ".join(told) or None
