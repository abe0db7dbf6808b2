"""Several statements in one message to PostgreSQL, each prepared when it is first used on a connection.

What a publish does under the commit lock must be short: a message is one round trip, and a prepared statement is
neither parsed nor planned again. This is the simple query protocol on purpose: no pipeline, whose pauses no timeout
ends. Messages go to libpq without a cursor, which would take longer than the server does for some of them.
Statements come from ``store/sql/publish.sql``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import psycopg
from psycopg import generators
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from lakemill.store.queries import load_queries

_PARAMETER = re.compile(r"%\((\w+)\)s")
_RELATION = re.compile(r"\{\w+\}")
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


Key: TypeAlias = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class _Prepared:
    execute: bytes
    parameters: tuple[tuple[int, str], ...]
    """Whose value of which name comes at each place."""


class Statements:
    """The prepared statements of one connection."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn = conn
        self._types = Transformer(conn)
        self._prepared: dict[Key, _Prepared] = {}
        self._made = 0

    def run(self, calls: Sequence[Call | tuple[Call, ...]]) -> list[Answer]:
        """Send all calls as one message; the answer of each.

        Calls in a tuple become one statement, all of whose parts see the same state, in no order; it answers for the
        last of them.
        """
        parts: list[bytes] = []
        new: dict[Key, _Prepared] = {}
        skipped: list[int] = []
        literals: dict[tuple[int, str], bytes] = {}
        for call in calls:
            together = call if isinstance(call, tuple) else (call,)
            key = tuple([(one.query, one.relation) for one in together])
            if together[0].query == "begin":
                parts.append(QUERIES["begin"].text.encode())
                continue
            prepared = self._prepared.get(key) or new.get(key)
            if prepared is None:
                prepared, text = self._prepare(together)
                skipped.append(len(parts))
                parts.append(text)
                new[key] = prepared
            values = [self._literal(literals, together[place].values, name) for place, name in prepared.parameters]
            parts.append(prepared.execute + (b" (" + b", ".join(values) + b")" if values else b""))
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

    def _prepare(self, calls: tuple[Call, ...]) -> tuple[_Prepared, bytes]:
        parameters: dict[tuple[int, str], int] = {}
        texts = []
        for place, call in enumerate(calls):
            text = QUERIES[call.query].text
            if call.relation is not None:
                text = call.relation.join(_RELATION.split(text)).replace("{{", "{").replace("}}", "}")

            def number(match: re.Match[str], place: int = place) -> str:
                return f"${parameters.setdefault((place, match[1]), len(parameters) + 1)}"

            texts.append(_PARAMETER.sub(number, text))
        before = ", ".join(f"part_{place} AS ({text})" for place, text in enumerate(texts[:-1]))
        whole = f"WITH {before} {texts[-1]}" if before else texts[-1]
        self._made += 1
        name = f"lakemill_{calls[-1].query}_{self._made}"
        return _Prepared(f"EXECUTE {name}".encode(), tuple(parameters)), f"PREPARE {name} AS {whole}".encode()
