"""Several statements in one message to PostgreSQL, each prepared when it is first used on a connection.

What a publish does under the commit lock must be short: a message is one round trip, and a prepared statement is
neither parsed nor planned again. This is the simple query protocol on purpose: no pipeline, whose pauses no timeout
ends (traps 5). Messages go to libpq without a cursor, which would take longer than the server does for some of them.
Statements come from ``store/sql/publish.sql``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import generators
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

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
    execute: bytes
    parameters: tuple[str, ...]


class Statements:
    """The prepared statements of one connection."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn = conn
        self._types = Transformer(conn)
        self._prepared: dict[tuple[str, str | None], _Prepared] = {}
        self._made = 0

    def run(self, calls: Sequence[Call]) -> list[Answer]:
        """Send all calls as one message; the answer of each."""
        parts: list[bytes] = []
        new: dict[tuple[str, str | None], _Prepared] = {}
        skipped: list[int] = []
        literals: dict[tuple[int, str], bytes] = {}
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
            values = b", ".join([self._literal(literals, call.values, name) for name in prepared.parameters])
            parts.append(prepared.execute + (b" (" + values + b")" if values else b""))
        results = self._exchange(b";\n".join(parts))
        self._prepared |= new  # only now: an error may have come before a PREPARE; its name is not used again
        return [self._answer(result) for index, result in enumerate(results) if index not in skipped]

    def commit(self) -> bool:
        """COMMIT, alone; False when the server answered with ROLLBACK, which is no error to it."""
        (result,) = self._exchange(b"COMMIT")
        return result.command_status == b"COMMIT"

    def _exchange(self, message: bytes) -> list[PGresult]:
        with self._conn.lock:
            self._conn.pgconn.send_query(message)
            results: list[PGresult] = self._conn.wait(generators.execute(self._conn.pgconn))
        if not results:
            raise psycopg.OperationalError("the server gave no answer")
        for result in results:
            if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
                raise error_from_result(result, encoding=self._conn.info.encoding)
        return results

    def _answer(self, result: PGresult) -> Answer:
        if not result.nfields:
            return Answer(result.command_tuples or 0, ())
        self._types.set_pgresult(result)
        return Answer(result.ntuples, self._types.load_rows(0, result.ntuples, tuple))

    def _literal(self, known: dict[tuple[int, str], bytes], values: Mapping[str, Any], name: str) -> bytes:
        """A value as SQL; calls of one message share most of them."""
        key = (id(values), name)
        if key not in known:
            known[key] = self._types.as_literal(values[name])
        return known[key]

    def _prepare(self, call: Call) -> tuple[_Prepared, bytes]:
        text = QUERIES[call.query].text
        if call.relation is not None:
            relation = call.relation
            text = _RELATION.sub(lambda _: relation, text).replace("{{", "{").replace("}}", "}")
        parameters = tuple(dict.fromkeys(_PARAMETER.findall(text)))
        numbered = _PARAMETER.sub(lambda match: f"${parameters.index(match[1]) + 1}", text)
        self._made += 1
        name = f"lakemill_{call.query}_{self._made}"
        return _Prepared(f"EXECUTE {name}".encode(), parameters), f"PREPARE {name} AS {numbered}".encode()
