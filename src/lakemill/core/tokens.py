"""The words of a script, with their positions: sqlglot's DuckDB tokenizer, and a reader that walks along them.

``core/ddl`` is written on top of it. A reader knows one statement; what it can't read it refuses by saying what it
found, what it wanted, and where. Strings, comments and dollar quotes hide the words inside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import groupby
from typing import ClassVar

from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from lakemill.core.names import MAIN, RESERVED, QualifiedName, fold
from lakemill.core.position import START, Lines, Position
from lakemill.errors import BadStatement

_WORD = re.compile(r"[^\W\d]\w*")
_TWO_WORDS = re.compile(r"([^\W\d]\w*)\s+([^\W\d]\w*)")
_UNCLOSED = re.compile(r"Missing (.+) from \d+:(\d+)", re.DOTALL)


class _Tokenizer(DuckDB.Tokenizer):
    COMMANDS: ClassVar[set[TokenType]] = set()  # else the rest of a CALL or an EXECUTE would be one token


class Kind(Enum):
    WORD = auto()
    NAME = auto()  # in double quotes
    TEXT = auto()
    NUMBER = auto()
    SYMBOL = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    kind: Kind
    text: str
    """Without its quotes; words in capitals."""
    source: str
    start: int
    end: int


_KINDS = {
    TokenType.IDENTIFIER: Kind.NAME,
    TokenType.STRING: Kind.TEXT,
    TokenType.HEREDOC_STRING: Kind.TEXT,
    TokenType.BYTE_STRING: Kind.TEXT,  # e'…' in DuckDB
    TokenType.NUMBER: Kind.NUMBER,
}


def statements(script: str, file: str | None = None) -> Iterator[Reader]:
    """A reader for each statement; empty ones are left out."""
    lines = Lines(script)
    for semicolon, tokens in groupby(_tokens(script, file), lambda token: token.source == ";"):
        if not semicolon:
            yield Reader(script, lines, list(tokens), file)


def _tokens(script: str, file: str | None) -> Iterator[Token]:
    if "\0" in script:
        place = START.within(script, script.index("\0")).place(file)
        raise BadStatement("a zero byte stands here", remedy="give text in UTF-8", place=place)
    try:
        found = _Tokenizer().tokenize(script)
    except TokenError as error:
        what, offset = _unclosed(script, error)
        raise BadStatement(
            f"{what} begins here and does not end", remedy="close it", place=START.within(script, offset).place(file)
        ) from error
    for token in found:
        start, end = token.start, token.end + 1
        source = script[start:end]
        two = _TWO_WORDS.fullmatch(source)
        if two is not None and token.token_type not in _KINDS:  # sqlglot reads PARTITION BY as one
            yield Token(Kind.WORD, two[1].upper(), two[1], start, start + two.end(1))
            yield Token(Kind.WORD, two[2].upper(), two[2], start + two.start(2), end)
        elif token.token_type in _KINDS:
            yield Token(_KINDS[token.token_type], token.text, source, start, end)
        elif _WORD.fullmatch(source):
            yield Token(Kind.WORD, source.upper(), source, start, end)
        else:
            yield Token(Kind.SYMBOL, source, source, start, end)


def _unclosed(script: str, error: TokenError) -> tuple[str, int]:
    """What was never closed, and where it began. Of a comment sqlglot does not tell the place."""
    told = _UNCLOSED.search(str(error.__cause__))
    if told is not None:
        kind = {"'": "a string", '"': "a quoted name"}.get(told[1], f"a string in {told[1]}")
        return kind, int(told[2])
    for match in reversed(list(re.finditer(r"/\*", script))):
        try:
            _Tokenizer().tokenize(script[: match.start()])
        except TokenError:
            continue
        return "a comment", match.start()
    return "something", 0


class Reader:
    """Walks along the tokens of one statement."""

    def __init__(self, script: str, lines: Lines, tokens: list[Token], file: str | None) -> None:
        self._script, self._lines, self._tokens, self._file = script, lines, tokens, file
        self._next = 0

    @property
    def token(self) -> Token:
        """The next one; at the end of the statement an empty one, right after the last."""
        return self.ahead(0)

    @property
    def position(self) -> Position:
        return self.position_of(self.token)

    def position_of(self, token: Token) -> Position:
        return self._lines.at(token.start)

    def ahead(self, count: int) -> Token:
        place = self._next + count
        if place < len(self._tokens):
            return self._tokens[place]
        end = self._tokens[-1].end
        return Token(Kind.END, "", "", end, end)

    def advance(self) -> Token:
        token = self.token
        self._next += 1
        return token

    # ------------------------------------------------------------ words
    def sees(self, *words: str) -> bool:
        """Whether these come next, in this order."""
        return all(
            token.text == word and token.kind in (Kind.WORD, Kind.SYMBOL)
            for word, token in zip(words, map(self.ahead, range(len(words))), strict=True)
        )

    def skip(self, *words: str) -> bool:
        """Pass these if they come next."""
        found = self.sees(*words)
        if found:
            self._next += len(words)
        return found

    def expect(self, *words: str, remedy: str) -> None:
        for word in words:
            if not self.skip(word):
                raise self.wrong(f"{word} should stand here, not {self.found()}", remedy=remedy)

    def done(self, remedy: str) -> None:
        """Nothing more may come."""
        if self.token.kind is not Kind.END:
            raise self.wrong(f"the statement should end here; there is {self.found()}", remedy=remedy)

    # ------------------------------------------------------------ pieces
    def identifier(self, what: str) -> str:
        token = self.token
        if token.kind is Kind.NAME and token.text:
            return self.advance().text
        if token.kind is not Kind.WORD:
            raise self.wrong(f"{what} should stand here, not {self.found()}", remedy="write a name")
        if fold(token.source) in RESERVED:
            raise self.wrong(
                f"{what} should stand here; {token.text} is a reserved word",
                remedy=f'write a name, or "{token.source}" in double quotes if that is its name',
            )
        return self.advance().source

    def name(self, what: str = "a table's name") -> QualifiedName:
        parts = [self.identifier(what)]
        start = self.token
        while self.skip("."):
            parts.append(self.identifier(what))
        if len(parts) > 2:
            raise self.wrong(
                f"a name has two parts, schema.table; this one has {len(parts)}",
                at=start,
                remedy="leave the catalog out: statements are about one lake",
            )
        return QualifiedName(parts[0] if len(parts) == 2 else MAIN, parts[-1])

    def names(self) -> tuple[tuple[QualifiedName, ...], tuple[Position, ...]]:
        """And where each stands."""
        places, found = [self.position], [self.name()]
        while self.skip(","):
            places.append(self.position)
            found.append(self.name())
        return tuple(found), tuple(places)

    def rest(self) -> str:
        """All that is left, as it was written."""
        first, last = self.token, self._tokens[-1]
        self._next = len(self._tokens)
        return self._script[first.start : last.end]

    def expressions(self, what: str) -> tuple[str, ...]:
        """``(…, …)``: pieces of SQL, separated by commas that are in no inner brackets."""
        self.expect("(", remedy=f"write {what} in brackets: ({what}, …)")
        found: list[str] = []
        depth, first = 0, self.token
        last: Token | None = None
        while True:
            token = self.token
            if token.kind is Kind.END:
                raise self.wrong("a bracket is missing", remedy="close it with )")
            if depth == 0 and token.source in (",", ")"):
                if last is None:
                    raise self.wrong(
                        f"{what} should stand here, not {self.found()}", remedy=f"name {what}, or leave it out"
                    )
                found.append(self._script[first.start : last.end])
                if self.advance().source == ")":
                    return tuple(found)
                first, last = self.token, None
                continue
            depth += (token.source in ("(", "[", "{")) - (token.source in (")", "]", "}"))
            last = self.advance()

    # ------------------------------------------------------------ refusals
    def found(self) -> str:
        token = self.token
        if token.kind is Kind.END:
            return "the end of the statement"
        shown = token.source if len(token.source) <= 40 else token.source[:37] + "…"
        return shown if token.kind in (Kind.TEXT, Kind.NAME) else f"'{shown}'"

    def wrong(self, message: str, *, remedy: str, at: Token | Position | None = None) -> BadStatement:
        """An error at the next token, or at another place of the statement."""
        where = at if isinstance(at, Position) else self.position_of(at or self.token)
        return BadStatement(message, remedy=remedy, place=where.place(self._file))
