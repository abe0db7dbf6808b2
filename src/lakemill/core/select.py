"""The text of a definition's query → the SELECT that it is, or where it can't be one.

Before ``runtime/analyse``, which asks DuckDB what its names mean. Refused are time travel, and the few places where
sqlglot reads DuckDB's words otherwise than DuckDB does and its tree no longer shows it. Whether the names exist is not
asked here.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import ParseError, SqlglotError

from lakemill.core.definition import Dialect
from lakemill.core.expressions import keys_of
from lakemill.core.position import Position
from lakemill.errors import BadStatement

_KEY_BEGINS = (TokenType.ORDER_BY, TokenType.GROUP_BY, TokenType.COMMA, TokenType.L_PAREN)


def parse_query(text: str, at: Position, file: str | None, dialect: Dialect = Dialect.DUCKDB) -> exp.Query:
    try:
        found = sqlglot.parse(text, dialect=dialect.value)
    except SqlglotError as error:
        raise _unread(error, text, at, file) from error
    if len(found) != 1 or not isinstance(found[0], exp.Query):
        raise BadStatement("a dynamic table needs one SELECT", place=at.place(file))
    if dialect is Dialect.DUCKDB:
        _check_words(found[0], text, at, file)
    for table in found[0].find_all(exp.Table):
        if table.args.get("version") or table.args.get("when"):
            raise BadStatement(
                f"{table.name} is read AT a version: a definition can't travel in time",
                remedy="leave AT out; the data snapshot decides",
                place=within(at, text, table.this).place(file),
            )
    return found[0]


def within(at: Position, text: str, found: exp.Expr) -> Position:
    """Where a part of the query stands, as far as that is known; else where the query begins."""
    offsets = [int(one.meta["start"]) for one in found.walk() if "start" in one.meta]
    return at.within(text, min(offsets)) if text and offsets else at


def first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _check_words(query: exp.Query, text: str, at: Position, file: str | None) -> None:
    """What sqlglot takes for something else: ``~`` for regexp_matches, and ``ORDER BY +2`` for ``ORDER BY 2``."""
    by_place = any(key.unnest().is_int for key in keys_of(query))
    tokens = sqlglot.tokenize(text, dialect="duckdb")
    for number, token in enumerate(tokens):
        if token.text == "~" and token.token_type is not TokenType.STRING:
            raise BadStatement(
                "DuckDB's ~ matches the whole text",
                remedy="write regexp_full_match, or regexp_matches",
                place=at.within(text, token.start).place(file),
            )
        signs = by_place and token.token_type is TokenType.PLUS and tokens[number - 1].token_type in _KEY_BEGINS
        if signs and _first_in_brackets(tokens[number + 1 :]) is TokenType.NUMBER:
            raise BadStatement(
                "a number with + is a constant to DuckDB, and no place in the SELECT list",
                remedy="write the number alone, or leave it out",
                place=at.within(text, token.start).place(file),
            )


def _first_in_brackets(tokens: Sequence[Token]) -> TokenType | None:
    return next((one.token_type for one in tokens if one.token_type is not TokenType.L_PAREN), None)


def _unread(error: SqlglotError, text: str, at: Position, file: str | None) -> BadStatement:
    first = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
    lines = text.split("\n")
    line, column = int(first.get("line") or 1), int(first.get("col") or 1)
    offset = sum(len(one) + 1 for one in lines[: line - 1]) + column  # where the word ends
    begins = max(offset - len(first.get("highlight") or " "), 0)
    told = first.get("description") or first_line(error)
    if told.startswith("Required keyword"):  # and then the parser's own word for what
        told = "something is missing"
    return BadStatement(
        f"the query can't be read: {told}",
        remedy="correct what stands there, or just before it",
        place=at.within(text, min(begins, len(text))).place(file),
    )
