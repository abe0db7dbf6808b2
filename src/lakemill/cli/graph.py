"""`lakemill graph`: which table is made from which."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from lakemill.cli.options import FormatOption, given
from lakemill.cli.output import Format


class Drawing(StrEnum):
    TEXT = "text"
    JSON = "json"
    MERMAID = "mermaid"


def command(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="Only this dynamic table, what it comes from and what comes from it.")
    ] = None,
    drawing: Annotated[Drawing | None, typer.Option("--as", help="A tree, JSON, or a Mermaid flowchart.")] = None,
    format_: FormatOption = None,
) -> None:
    """Draw the graph of dynamic tables and what they read.

    Every table stands below what it reads, with its target lag; for DOWNSTREAM, that of its consumers in brackets.

        lakemill graph
        lakemill graph by_day --as mermaid
        lakemill graph --as json
    """
    from lakemill.core import drawing as draw
    from lakemill.core.graph import build_graph
    from lakemill.core.names import parse_name
    from lakemill.store import definitions

    output = given(context).output(format_)
    wanted = drawing or (Drawing.JSON if output.format is Format.JSON else Drawing.TEXT)
    with given(context).lake() as lake:
        graph = build_graph(definitions.nodes(lake.conn))
        if name is not None:
            own = definitions.get(lake.conn, parse_name(name)).name
            graph = graph.only([own, *graph.ancestors(own), *graph.dependents(own)])
    if drawing is None and output.format is Format.CSV:
        output.rows(["source", "table"], [[str(source), str(table)] for source, table in draw.edges(graph)])
        return
    match wanted:
        case Drawing.JSON:
            output.format = Format.JSON
            output.record(draw.draw_json(graph))
        case Drawing.MERMAID:
            output.text(draw.draw_mermaid(graph))
        case Drawing.TEXT:
            output.text(draw.draw_text(graph) or "no dynamic tables")
