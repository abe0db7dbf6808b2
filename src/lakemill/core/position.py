"""Where something stands in what the user wrote: the offset, and line and column as people count them, from one.

Parsers make positions, errors print them as their place. A query that is cut out of a file keeps the position of its
first character, so that what is wrong inside it can still be told in terms of the file.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    offset: int = 0
    line: int = 1
    column: int = 1

    def place(self, file: str | None = None) -> str:
        """As an error's place."""
        return f"{file}:{self.line}:{self.column}" if file else f"line {self.line}, column {self.column}"

    def within(self, text: str, offset: int) -> Position:
        """The position of a character of ``text``, a piece that begins here."""
        before = text[:offset]
        lines = before.count("\n")
        column = offset - before.rfind("\n") if lines else self.column + offset
        return Position(self.offset + offset, self.line + lines, column)


START = Position()


class Lines:
    """Where the lines of a long text begin, to find many positions in it."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def at(self, offset: int) -> Position:
        line = bisect_right(self._starts, offset)
        return Position(offset, line, offset - self._starts[line - 1] + 1)
