"""What an executor's error means to whoever asked: one of our own errors, one line, no path and no password."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import duckdb

from lakemill.core.position import START
from lakemill.errors import (
    BadArgument,
    BadStatement,
    FileGone,
    InternalError,
    LakemillError,
    MissingPart,
    QueryRefused,
    QueryTooLarge,
    ResultTooLarge,
    StorageUnavailable,
    UnknownTable,
    UnsupportedType,
    Unwritable,
)
from lakemill.lake import duck

_LINE = re.compile(r"\n\nLINE (\d+): (.*)\n( *)\^", re.DOTALL)
_TOO_MUCH = re.compile(r"Out of Memory|duckdb_temp_storage.*(File too large|No space left)", re.DOTALL)
_OURS: dict[str, type[LakemillError]] = {"rows": ResultTooLarge, "bytes": ResultTooLarge, "statement": QueryRefused}


def explained(told: Mapping[str, Any], text: str, data_path: str) -> LakemillError:
    """The error of our tree; ``text`` is the query, for the place in it."""
    kind, message = str(told.get("kind")), str(told.get("message"))
    if kind == "Refused":
        word, _, rest = message.partition(": ")
        if word == "confinement":
            return unconfined(rest)
        return _OURS.get(word, InternalError)(rest)
    if kind in ("OutOfMemoryException", "MemoryError", "ArrowMemoryError") or _TOO_MUCH.search(message):
        return QueryTooLarge("the query needs more memory, or more room to spill, than one may have")
    if kind in ("ArrowInvalid", "ArrowNotImplementedError") or (
        kind == "NotImplementedException" and "Arrow" in message
    ):
        why = duck.one_line(ValueError(message))
        return UnsupportedType(f"Arrow can't hold the answer: {why}", remedy="cast the column to VARCHAR")
    place = _place(message, text)
    message = _LINE.sub("", message).replace(data_path, "")
    if kind == "ParserException":
        return BadStatement(duck.one_line(ValueError(message)), place=place)
    if kind == "PermissionException":
        return QueryRefused(duck.one_line(ValueError(message)), place=place)
    if kind == "InvalidInputException" and "parameter" in message.lower():
        return BadArgument(duck.one_line(ValueError(message)), place=place)
    found = getattr(duckdb, kind, None)
    if not (isinstance(found, type) and issubclass(found, duckdb.Error)):
        return InternalError(f"{kind}: {duck.one_line(ValueError(message))}")
    meant = duck.explain(found(message), own=True)
    if isinstance(meant, Unwritable):  # it only reads
        return StorageUnavailable(meant.message)
    if isinstance(meant, (UnknownTable, FileGone, StorageUnavailable)) or place is None:
        return meant
    return type(meant)(meant.message, remedy=meant.remedy, place=place)


def unconfined(lacking: str) -> LakemillError:
    return MissingPart(
        f"queries can't be confined on this machine: {lacking}",
        remedy='run it on Linux 6.2 or newer with Landlock, or set query.confinement = "try"',
    )


def _place(message: str, text: str) -> str | None:
    """DuckDB draws the place; it cuts long lines at both ends, so the drawn piece is looked for in the text."""
    drawn = _LINE.search(message)
    if drawn is None:
        return None
    prefix = len(f"LINE {drawn[1]}: ")
    piece, column = drawn[2], len(drawn[3]) - prefix
    ahead = 3 if piece.startswith("...") else 0
    piece, column = piece[ahead:].removesuffix("..."), column - ahead
    lines = text.split("\n")
    number = int(drawn[1])
    if not 1 <= number <= len(lines) or (start := lines[number - 1].find(piece)) < 0:
        return None
    offset = sum(len(line) + 1 for line in lines[: number - 1]) + start + max(column, 0)
    return START.within(text, offset).place()
