"""The text of a query, before an engine sees it: one statement that reads, by sqlglot's lights.

DuckDB's own parser decides what will run (``core/allowed``). This is a second opinion by another lexer and, where it
knows the syntax, another parser: where the two see another number of statements, or another kind, the text means to
deceive one of them and is refused. Also what both can be asked about: length, depth, characters that no SQL needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from lakemill.core.position import START
from lakemill.errors import BadStatement, QueryRefused

DEEPEST = 200
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_STRANGE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
"""Control characters, and those that are not seen or turn the direction of what is."""
_PARAMETER = re.compile(
    r"""'[^']*'? | "[^"]*"? | --[^\n]* | /\*.*?(?:\*/|\Z)
    | \$((?:[^\W\d]\w*)?)\$.*?(?:\$\1\$|\Z) | (?<!\w)(\$)(?=\w)""",
    re.DOTALL | re.VERBOSE,
)
"""What may hold a dollar without meaning one, to its end or to that of the text; else a parameter's dollar."""
_BEGINS = frozenset(
    {"SELECT", "FROM", "WITH", "VALUES", "DESCRIBE", "SUMMARIZE", "SHOW", "UNPIVOT", "TABLE", "(", "PIVOT"}
)
_QUERIES = (exp.Query, exp.Values, exp.Describe, exp.Summarize, exp.Pivot, exp.Table, exp.Show)


def check_text(text: str, longest: int) -> None:
    """Refuse what is not one statement that reads."""
    if len(text.encode()) > longest:
        raise QueryRefused(f"it is longer than {longest} bytes", remedy="give values as parameters")
    other = _without_parameters(text)
    tokens = _tokens(other)
    _check_characters(text, tokens)
    _check_depth(tokens)
    statements = _statements(tokens)
    if not statements:
        raise BadStatement("there is no statement")
    if len(statements) > 1:
        raise QueryRefused("it is more than one statement", place=_place(text, statements[1][0]))
    first = statements[0][0]
    if first.text.upper() not in _BEGINS:
        raise QueryRefused(
            f"{first.text.upper()[:40]} is not for queries", remedy="write a SELECT", place=_place(text, first)
        )
    try:
        trees = sqlglot.parse(other, dialect="duckdb")
        # a comment behind the last semicolon is a tree of its own
        parsed = [tree for tree in trees if tree is not None and not isinstance(tree, exp.Semicolon)]
    except SqlglotError:
        return  # syntax that it does not know; its lexer has seen one statement that begins as a query does
    except RecursionError:
        raise QueryRefused("it nests too deeply") from None
    if len(parsed) != 1 or not isinstance(parsed[0], _QUERIES):
        raise QueryRefused("it is not a query")


def without_end(text: str) -> str:
    """One statement, without the semicolon and what stands behind it."""
    ends = (token.start for token in _tokens(_without_parameters(text)) if token.token_type is TokenType.SEMICOLON)
    return text[: next(ends, len(text))]


def check_kinds(kinds: Sequence[str]) -> None:
    """What DuckDB's parser says of the same text."""
    if len(kinds) != 1:
        raise QueryRefused("it is more than one statement")
    if kinds[0] != "SELECT":
        raise QueryRefused(f"{kinds[0].replace('_', ' ')} is not for queries", remedy="write a SELECT")


def tree_of(text: str) -> dict[str, Any]:
    """The tree that DuckDB wrote down."""
    try:
        found = json.loads(text)
    except RecursionError:
        raise QueryRefused("it nests too deeply") from None
    return found if isinstance(found, dict) else {}


def _without_parameters(text: str) -> str:
    """The same text, at the same places, with names for parameters: sqlglot takes ``$1,$`` for the mark of a quote."""
    return _PARAMETER.sub(lambda found: "_" if found[2] else found[0], text)


def _tokens(text: str) -> list[Token]:
    try:
        return list(sqlglot.tokenize(text, dialect="duckdb"))
    except SqlglotError as error:
        raise BadStatement(f"not SQL: {str(error).splitlines()[0]}") from error


def _statements(tokens: Sequence[Token]) -> list[list[Token]]:
    found: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            found.append([])
        else:
            found[-1].append(token)
    return [statement for statement in found if statement]


def _check_characters(text: str, tokens: Sequence[Token]) -> None:
    """In a text between quotes anything may stand; outside, nothing that a reader would not see."""
    quoted = (TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.RAW_STRING, TokenType.UNICODE_STRING)
    ranges = [(token.start, token.end) for token in tokens if token.token_type in quoted]
    for match in _STRANGE.finditer(text):
        if match[0] == "\x00" or not any(start <= match.start() <= end for start, end in ranges):
            raise QueryRefused(
                f"it has a character that is not seen (U+{ord(match[0]):04X})",
                place=START.within(text, match.start()).place(),
            )


def _check_depth(tokens: Sequence[Token]) -> None:
    depth = 0
    for token in tokens:
        if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        depth += (token.text in _OPEN) - (token.text in _CLOSE)
        if depth > DEEPEST:
            raise QueryRefused(f"it nests more than {DEEPEST} deep")


def _place(text: str, token: Token) -> str:
    return START.within(text, token.start).place()
