"""The command `lakemill`: its options, its commands, and what happens when one fails.

Every failure is one line on standard error with a code and a remedy, and an exit code by class of error; a traceback
appears only with ``--debug`` or ``LAKEMILL_DEBUG=1``. Each command is a module of its own here; none does any work that
``runtime`` could do.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
import typer.main

from lakemill.cli import (
    alter,
    api,
    attach,
    changes,
    coordinator,
    create,
    demo,
    describe,
    doctor,
    drop,
    explain,
    failure,
    graph,
    history,
    ingest,
    init,
    keys,
    letters,
    list_,
    point,
    query,
    refresh,
    resume,
    scheduler,
    serve,
    snapshots,
    sql,
    stop,
    suspend,
    table,
    tables,
    tenants,
    upkeep,
    validate,
    verify,
    worker,
)
from lakemill.cli.options import Given, taught
from lakemill.cli.output import Format
from lakemill.errors import BadArgument, LakemillError
from lakemill.runtime.meaning import is_interrupt

INTERRUPTED = 130
PIPE_CLOSED = 141

commands = typer.Typer(
    name="lakemill",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_LAKE = (init, doctor, attach, sql, tables, snapshots, changes, ingest, query)
_DYNAMIC = (validate, create, list_, describe, graph, explain, refresh, history, verify, point)
_CHANGE = (alter, suspend, resume, drop)
_SERVICE = (serve, api, scheduler, worker, coordinator, stop)
for module in (*_LAKE, *_DYNAMIC, *_CHANGE, demo, *_SERVICE):
    name = module.__name__.rpartition(".")[2].rstrip("_")
    commands.command(name=name, help=taught(module.command))(module.command)
for group in (table, letters, upkeep, keys, tenants):
    commands.add_typer(group.commands, name=group.__name__.rpartition(".")[2])


def _version(wanted: bool) -> None:
    if wanted:
        from lakemill import __version__

        typer.echo(f"lakemill {__version__}")
        raise typer.Exit


def _flags(pairs: Sequence[str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise BadArgument(f"--set {pair}: write group.key=value", remedy="such as --set spark.driver_memory=2g")
        found[key.strip()] = value
    return found


def root(
    context: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", "-C", help="The lake's folder; by default lakemill.toml is looked for from here upward."),
    ] = None,
    format_: Annotated[
        Format, typer.Option("--format", help="How to print: a table for people, json or csv for programs.")
    ] = Format.TABLE,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="GROUP.KEY=VALUE", help="Any setting, for this command only; may be repeated."),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks. Also LAKEMILL_DEBUG=1.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """A DuckLake that Spark and DuckDB share: Spark reads and publishes it, DuckDB reads and writes it.

    Begin with `lakemill demo`, or make a lake of your own:

        lakemill init my-lake
        cd my-lake
        lakemill sql "CREATE TABLE t AS SELECT 1 AS id"
        lakemill tables

    A dynamic table is a query and a lag; Spark keeps it equal to the query:

        lakemill create "CREATE DYNAMIC TABLE n TARGET_LAG = '5 minutes' AS SELECT count(*) AS n FROM t"
        lakemill refresh n
        lakemill list
    """
    if folder is not None and not folder.exists():
        raise BadArgument(f"there is no folder {folder}", place="--dir", remedy="make it with `lakemill init`")
    context.obj = Given(folder, format_, _flags(sets or []), debug)


commands.callback(help=taught(root))(root)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit code."""
    debug = "--debug" in arguments or os.environ.get("LAKEMILL_DEBUG", "") not in ("", "0")
    try:
        code = typer.main.get_command(commands).main(list(arguments), prog_name="lakemill", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit:  # typer's only use of it: the reader of our pipe has left
        return PIPE_CLOSED
    except BrokenPipeError:
        _abandon_stdout()
        return PIPE_CLOSED
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:  # the border: whatever comes, a person gets one line
        if type(error).__name__ == "NoArgsIsHelpError":  # a group by itself; its text is the help
            typer.echo(str(error.format_message()))  # type: ignore[attr-defined]
            return BadArgument.exit_code
        if not is_interrupt(error):
            return _fail(failure.explain(error), debug, error)
        code = INTERRUPTED
    if code == INTERRUPTED:
        typer.echo("interrupted", err=True)
    return code if isinstance(code, int) else 0


def _fail(error: LakemillError, debug: bool, cause: Exception | None = None) -> int:
    if debug:
        traceback.print_exception(cause or error)
    typer.echo(failure.line(error), err=True)
    return error.exit_code


def _abandon_stdout() -> None:
    # the reader of our pipe has left; what is still buffered must not be tried again at exit
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def app() -> None:
    """What the installed command calls."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ─ or → gets ? instead of a failure
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    app()
