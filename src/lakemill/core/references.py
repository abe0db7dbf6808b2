"""Where a query names tables: found, and put in other words without touching the rest of its text.

``runtime/analyse`` looks the names up, a rename rewords those who read the table, and a query in Spark's own SQL is run
with nothing else changed. Names of CTEs are not names of tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from lakemill.core.ctes import meanings
from lakemill.core.names import MAIN, QualifiedName


@dataclass(frozen=True, slots=True)
class Piece:
    """Characters of a text, and what stands there instead."""

    start: int
    end: int
    words: str


def tables(query: exp.Expr) -> Iterator[tuple[exp.Table, QualifiedName]]:
    """The places where a query names a table or a view of the lake; a hint does not read what it names."""
    for table, cte in meanings(query):
        if cte is None and table.find_ancestor(exp.Hint) is None:
            yield table, QualifiedName(table.db or MAIN, table.name)


def reworded(table: exp.Table, words: str, alias: str) -> Piece:
    """A table by another name; what is said of its columns still finds it by ``alias``, where it has none itself."""
    first = table.args["db"] if table.db else table.this
    named = f" AS {alias}" if alias and not table.alias else ""
    return Piece(first.meta["start"], table.this.meta["end"] + 1, words + named)


def spliced(text: str, pieces: Iterable[Piece]) -> str:
    for piece in sorted(pieces, key=lambda piece: piece.start, reverse=True):
        text = text[: piece.start] + piece.words + text[piece.end :]
    return text


def origin(pieces: Iterable[Piece], offset: int) -> int:
    """Which character of the text became this one of what was spliced."""
    for piece in sorted(pieces, key=lambda piece: piece.start):
        grown = len(piece.words) - (piece.end - piece.start)
        if offset < piece.start:
            break
        offset = piece.start if offset < piece.end + grown else offset - grown
    return offset
