"""Several statements in one message to PostgreSQL, each prepared when it is first used on a connection.

What a publish does under the commit lock must be short: a message is one round trip, and a prepared statement is
neither parsed nor planned again. This is the simple query protocol on purpose: no pipeline, whose pauses no timeout
ends (traps 5). Statements come from ``store/sql/publish.sql``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.adapt import Transformer

from lakemill.store.queries import load_queries

_PARAMETER = re.compile(r"%\((\w+)\)s")
_RELATION = re.compile(r"\{(\w+)\}")
QUERIES = load_queries("publish")


@dataclass(frozen=True, slots=True)
class Call:
    """One statement by its name, with its values; ``relation`` is what it selects from, where it has such a place."""

    query: str
    values: Mapping[str, Any] = field(default_factory=dict)
    relation: str | None = None
    count: int | None = None
    """How many rows it must touch, where that is known; ``what`` they are, for people."""
    what: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    count: int
    rows: Sequence[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class _Prepared:
    name: str
    parameters: tuple[str, ...]


class Statements:
    """The prepared statements of one connection."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self.conn = conn
        self._literals = Transformer(conn)
        self._prepared: dict[tuple[str, str | None], _Prepared] = {}
        self._made = 0

    def run(self, cursor: psycopg.ClientCursor[Any], calls: Sequence[Call]) -> list[Answer]:
        """Send all calls as one message; the answer of each."""
        parts: list[bytes] = []
        new: dict[tuple[str, str | None], _Prepared] = {}
        skipped: list[int] = []
        for call in calls:
            key = (call.query, call.relation)
            if call.query == "begin":
                parts.append(QUERIES["begin"].text.encode())
                continue
            prepared = self._prepared.get(key) or new.get(key)
            if prepared is None:
                prepared, text = self._prepare(call)
                skipped.append(len(parts))
                parts.append(text)
                new[key] = prepared
            values = b", ".join(self._literals.as_literal(call.values[name]) for name in prepared.parameters)
            parts.append(b"EXECUTE " + prepared.name.encode() + (b" (" + values + b")" if values else b""))
        cursor.execute(b";\n".join(parts))
        self._prepared |= new  # only now: an error may have come before a PREPARE; its name is not used again
        answers = _answers(cursor)
        return [answer for index, answer in enumerate(answers) if index not in skipped]

    def _prepare(self, call: Call) -> tuple[_Prepared, bytes]:
        text = QUERIES[call.query].text
        if call.relation is not None:
            relation = call.relation
            text = _RELATION.sub(lambda _: relation, text).replace("{{", "{").replace("}}", "}")
        parameters = tuple(dict.fromkeys(_PARAMETER.findall(text)))
        numbered = _PARAMETER.sub(lambda match: f"${parameters.index(match[1]) + 1}", text)
        self._made += 1
        name = f"lakemill_{call.query}_{self._made}"
        return _Prepared(name, parameters), f"PREPARE {name} AS {numbered}".encode()


def _answers(cursor: psycopg.ClientCursor[Any]) -> list[Answer]:
    answers = []
    while True:
        result = cursor.pgresult
        with_rows = result is not None and result.nfields  # as `description` would say, which makes a list of columns
        answers.append(Answer(cursor.rowcount, cursor.fetchall() if with_rows else ()))
        if not cursor.nextset():
            return answers
