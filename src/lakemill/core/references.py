"""Where a query names tables: found, and put in other words without touching the rest of its text.

``runtime/analyse`` looks the names up, a rename rewords those who read the table, and a query in Spark's own SQL is run
with nothing else changed. Names of CTEs are not names of tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import sqlglot
from sqlglot import exp

from lakemill.core.ducktypes import quote as quote_spark
from lakemill.core.names import MAIN, QualifiedName, fold, quote

Words = Literal["duckdb", "spark"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Characters of a text, and what stands there instead."""

    start: int
    end: int
    words: str


def tables(query: exp.Expr) -> Iterator[tuple[exp.Table, QualifiedName]]:
    """The places where a query names a table or a view of the lake."""
    ctes = {fold(cte.alias) for cte in query.find_all(exp.CTE)}
    for table in list(query.find_all(exp.Table)):
        if isinstance(table.this, exp.Identifier) and (table.db or fold(table.name) not in ctes):
            yield table, QualifiedName(table.db or MAIN, table.name)


def reworded(table: exp.Table, words: str, alias: str) -> Piece:
    """A table by another name; what is said of its columns still finds it by ``alias``, its own name."""
    first = table.args["db"] if table.db else table.this
    return Piece(first.meta["start"], table.this.meta["end"] + 1, words if table.alias else f"{words} AS {alias}")


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


def renamed(text: str, old: QualifiedName, new: QualifiedName, dialect: Words = "duckdb") -> str:
    """The query with a table's new name wherever it stood, in its own words otherwise."""
    quoted = quote if dialect == "duckdb" else quote_spark
    words = f"{quoted(new.schema)}.{quoted(new.name)}"
    found = tables(sqlglot.parse_one(text, dialect=dialect))
    return spliced(text, [reworded(table, words, quoted(table.name)) for table, name in found if name == old])
