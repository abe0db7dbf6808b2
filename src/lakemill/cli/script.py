"""SQL as a command gets it: an argument, a file, or standard input, with places that say where in it something is."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from lakemill.errors import BadArgument

SqlArgument = Annotated[
    str | None,
    typer.Argument(metavar="SQL", help="One or more statements; `-` reads them from standard input."),
]
FileOption = Annotated[Path | None, typer.Option("--file", "-f", help="A file with the statements.")]


@dataclass(frozen=True, slots=True)
class Script:
    """What the user wrote, and the name of its place."""

    text: str
    name: str | None

    def place(self, offset: int, line: int, column: int) -> str:
        """A line and column of the statement that begins at `offset`, counted in the script."""
        before = self.text[:offset]
        first_line = before.count("\n")
        if line == 1:
            column += offset - (before.rfind("\n") + 1)
        return (
            f"{self.name}:{first_line + line}:{column}" if self.name else f"line {first_line + line}, column {column}"
        )


def read_script(text: str | None, file: Path | None, command: str) -> Script:
    if (text is None) == (file is None):
        raise BadArgument("give either SQL or --file", remedy=f"see `lakemill {command} --help`")
    if file is not None:
        try:
            return Script(file.read_text("utf-8"), str(file))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise BadArgument(f"{file} can't be read: {reason}", place="--file", remedy="name a text file") from error
    return Script(sys.stdin.read() if text == "-" else str(text), None)
