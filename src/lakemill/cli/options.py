"""Options that every command shares, and how a command gets its lake and its way to print.

Typer calls the root callback first, which leaves a ``Given`` on the context; commands ask it. Importing this module
imports no engine: they come when a lake is opened, so that ``--help`` answers at once.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakemill.cli.output import Format, Output
from lakemill.errors import BadArgument, UnknownDynamicTable

if TYPE_CHECKING:
    from lakemill.core.names import QualifiedName
    from lakemill.runtime.open import Lake
    from lakemill.settings import Settings

FormatOption = Annotated[
    Format | None, typer.Option("--format", help="How to print: a table for people, json or csv for programs.")
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The dynamic table: `table` or `schema.table`.")]
NamesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="NAME…", help="Dynamic tables: `table` or `schema.table`.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


@dataclass(frozen=True, slots=True)
class Given:
    """What was given before the command's name."""

    folder: Path | None = None
    format: Format = Format.TABLE
    flags: Mapping[str, object] = field(default_factory=dict)
    debug: bool = False

    def settings(self) -> Settings:
        from lakemill.settings import Settings

        return Settings.load(self.folder, self.flags)

    @contextmanager
    def lake(self) -> Iterator[Lake]:
        """The lake of the folder, closed afterwards."""
        from lakemill.runtime.open import open as open_lake

        with open_lake(self.settings()) as lake, _told_plainly(lake):
            yield lake

    def output(self, wanted: Format | None = None) -> Output:
        return Output(wanted or self.format, sys.stdout)


@contextmanager
def _told_plainly(lake: Lake) -> Iterator[None]:
    try:
        yield
    except UnknownDynamicTable:  # only then: what carries out statements is much to import
        from lakemill.runtime.statements import told_plainly

        with told_plainly(lake):
            raise


def taught(function: Callable[..., object]) -> str:
    """A command's help: its docstring, whose indented examples keep their lines."""
    blocks = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    return "\n\n".join("\b\n" + block if block.startswith("    ") else block for block in blocks)


def given(context: typer.Context) -> Given:
    found = context.find_object(Given)
    return found if found is not None else Given()


def some_names(names: Sequence[str] | None, command: str) -> list[QualifiedName]:
    """At least one name."""
    from lakemill.core.names import parse_name

    if not names:
        raise BadArgument("name a dynamic table", remedy=f"see `lakemill {command} --help`")
    return [parse_name(name) for name in names]


def quoted(name: str) -> str:
    """A part of a table's name, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'
