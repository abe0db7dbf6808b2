"""`lakemill demo`: DuckDB and Spark share a lake, dynamic tables follow a writer, events come over HTTP."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakemill.cli.options import FormatOption, given
from lakemill.cli.output import Format, plain

if TYPE_CHECKING:
    from rich.console import Console

    from lakemill.runtime.demo_step import Shown

COLOURS = {"PostgreSQL": "magenta", "DuckDB": "yellow", "Spark": "cyan", "both": "green", "HTTP": "blue"}


def command(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where; an earlier demo there is replaced.")] = Path(
        "demo-lake"
    ),
    format_: FormatOption = None,
) -> None:
    """See DuckDB and Spark share a lake, dynamic tables kept fresh, and events over HTTP, in a minute.

    It makes a lake in DIR (./demo-lake), writes it with DuckDB, reads and publishes with Spark, and shows the delta in
    between. Then three dynamic tables, each made of the one before it, are refreshed while a writer inserts, updates
    and deletes; after each step DuckDB verifies them. At last events are streamed over HTTP, and who sent them reads
    its own writes. Every step prints the code that did it, and the lake stays.

        lakemill demo
        lakemill -C demo-lake history
    """
    from rich.console import Console

    from lakemill.cli.demo_stream import streaming
    from lakemill.runtime.demo import run_demo

    common = given(context)
    output = common.output(format_)
    steps = run_demo(folder, dict(common.flags), streaming)
    if output.format is not Format.TABLE:
        rows = [
            [s.title, s.engine, s.code, s.said, plain(s.columns), plain(s.rows), round(s.seconds, 3)] for s in steps
        ]
        output.rows(["title", "engine", "code", "said", "columns", "rows", "seconds"], rows)
        return
    console = Console(highlight=False, width=None if _is_terminal() else 100)
    with console.status("a PostgreSQL of its own is being made …") as status:
        for number, shown in enumerate(steps, 1):
            if number == 1:
                console.print("\n[bold]Lakemill[/bold]: one lake, two engines, every answer the same.\n")
            _print(console, number, shown)
            status.update("Spark starts in the background …" if number == 2 else "…")
    console.print(f"[bold]That was it.[/bold] The lake is in {folder}; go on with:\n")
    for words in ("list", "history", "graph", "snapshots", 'sql "FROM top_customers"', "attach"):
        console.print(f"  [green]{_program()} -C {folder} {words}[/green]", soft_wrap=True)
    console.print()


def _program() -> str:
    """The command as the user can type it: `make demo` has it in the clone's own environment."""
    program = Path(sys.argv[0])
    return str(program.relative_to(Path.cwd())) if program.is_relative_to(Path.cwd()) else "lakemill"


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def _print(console: Console, number: int, shown: Shown) -> None:
    from rich import box
    from rich.padding import Padding
    from rich.syntax import Syntax
    from rich.table import Table

    colour = COLOURS[shown.engine]
    console.rule(
        f"[bold]{number}  {shown.title}[/bold]  [{colour}]{shown.engine}[/{colour}]  [dim]{shown.seconds:.1f} s[/dim]",
        align="left",
        style="dim",
    )
    console.print(Padding(Syntax(shown.code, shown.language, theme="ansi_dark", word_wrap=True), (0, 0, 0, 2)))
    if shown.rows:
        table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
        for index, name in enumerate(shown.columns):
            right = all(_is_number(row[index]) for row in shown.rows)
            table.add_column(name, justify="right" if right else "left", no_wrap=True)
        for row in shown.rows:
            table.add_row(*(_cell(name, value) for name, value in zip(shown.columns, row, strict=True)))
        console.print(Padding(table, (0, 0, 0, 2)))
    console.print(Padding(f"[dim]→[/dim] {shown.said}", (0, 0, 1, 2)))


def _cell(name: str, value: Any) -> str:
    if name == "__weight":
        return f"[green]+{value}[/green]" if value > 0 else f"[red]{value}[/red]"
    if name == "verified by DuckDB":
        return f"[green]{value}[/green]"
    return str(plain(value))


def _is_number(value: Any) -> bool:
    from decimal import Decimal

    return isinstance(value, int | float | Decimal)
