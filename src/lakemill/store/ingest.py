"""Which lake tables take requests and what they accept; and the dead letters that some requests left.

Made and changed by ``runtime/ingest_tables``, read with every new version of a table's columns, and by those who list.
The rows of the requests themselves are the bus's (``store/bus``, ``store/consumer``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from psycopg import sql

from lakemill.core.names import QualifiedName
from lakemill.errors import UnknownLetter
from lakemill.store.db import Connection, Executor
from lakemill.store.queries import load_queries

QUERIES = load_queries("ingest")
DEDUPE = timedelta(days=7)
_EVOLVING = 0x6C6D6576  # any constant will do, as long as nobody else in this database uses it


class Policy(StrEnum):
    """What happens to records that don't fit."""

    REJECT = "reject"
    DEAD_LETTER = "dead_letter"
    DROP_FIELD = "drop_field"
    EVOLVE = "evolve"


@dataclass(frozen=True, slots=True)
class IngestTable:
    table_id: int
    name: QualifiedName
    key: tuple[str, ...]
    policy: Policy
    dedupe: timedelta
    retention: timedelta | None
    cursor: int


@dataclass(frozen=True, slots=True)
class Lag:
    table_id: int
    requests: int
    records: int
    bytes: int
    age: float | None
    """Seconds that the oldest has waited."""
    cursor: int
    attempts: int
    reason: str
    letters: int
    """That wait for somebody to look at them."""


@dataclass(frozen=True, slots=True)
class Letter:
    id: int
    table_id: int
    token: int
    position: int
    body: str
    code: str
    reason: str
    place: str
    died_at: datetime
    state: str
    replayed: int | None


# ---------------------------------------------------------------- tables
def add(
    where: Executor,
    table_id: int,
    key: Sequence[str] = (),
    policy: Policy = Policy.REJECT,
    dedupe: timedelta = DEDUPE,
    retention: timedelta | None = None,
) -> bool:
    """It takes requests; False where it did already."""
    values = {"table_id": table_id, "key": list(key), "policy": policy.value, "dedupe": dedupe, "retention": retention}
    return where.execute(QUERIES["insert"].compose(), values).fetchone() is not None


def tables(where: Executor, catalog_schema: str, table_id: int | None = None) -> tuple[IngestTable, ...]:
    query = QUERIES["tables"].compose({"catalog": sql.Identifier(catalog_schema)})
    rows = where.execute(query, {"table_id": table_id}).fetchall()
    return tuple(
        IngestTable(id_, QualifiedName(schema, name), tuple(key), Policy(policy), *rest)
        for id_, schema, name, key, policy, *rest in rows
    )


def change(
    where: Executor,
    table_id: int,
    *,
    key: Sequence[str] | None = None,
    policy: Policy | None = None,
    dedupe: timedelta | None = None,
    retention: timedelta | None = None,
) -> None:
    values = {
        "table_id": table_id,
        "key": None if key is None else list(key),
        "policy": None if policy is None else policy.value,
        "dedupe": dedupe,
        "retention": retention,
    }
    where.execute(QUERIES["set"].compose(), values)


def lock(where: Executor, table_id: int) -> bool:
    """Nobody accepts requests for it until the transaction ends; False where it takes none."""
    return where.execute(QUERIES["lock"].compose(), {"table_id": table_id}).fetchone() is not None


def pending(where: Executor, table_id: int) -> int:
    """Requests that are not yet passed."""
    row = where.execute(QUERIES["pending"].compose(), {"table_id": table_id}).fetchone()
    return int(row[0]) if row else 0


def remove(where: Executor, table_id: int) -> None:
    """It takes no more requests; its keys, letters, ledger and what is pending go."""
    for query in ("delete", "delete_request_keys", "delete_record_keys"):
        where.execute(QUERIES[query].compose(), {"table_id": table_id})


def readers(where: Executor, table_id: int) -> tuple[QualifiedName, ...]:
    """Dynamic tables that read it."""
    rows = where.execute(QUERIES["readers"].compose(), {"table_id": table_id}).fetchall()
    return tuple(QualifiedName(*row) for row in rows)


def expression_defaults(where: Executor, catalog_schema: str, table_id: int) -> frozenset[int]:
    query = QUERIES["expression_defaults"].compose({"catalog": sql.Identifier(catalog_schema)})
    return frozenset(row[0] for row in where.execute(query, {"table_id": table_id}).fetchall())


def schema_version(where: Executor, catalog_schema: str) -> int:
    query = QUERIES["schema_version"].compose({"catalog": sql.Identifier(catalog_schema)})
    row = where.execute(query).fetchone()
    return int(row[0]) if row else 0


def lags(where: Executor) -> dict[int, Lag]:
    return {row[0]: Lag(*row) for row in where.execute(QUERIES["lag"].compose()).fetchall()}


@contextmanager
def evolving(conn: Connection, table_id: int) -> Iterator[None]:
    """The body is nobody else's turn to alter this table's columns by itself."""
    values = {"space": _EVOLVING, "table_id": table_id}
    conn.execute(QUERIES["evolving"].compose(), values)
    try:
        yield
    finally:
        if not conn.closed:
            conn.execute(QUERIES["evolved"].compose(), values)


# ---------------------------------------------------------------- letters
def letters(
    where: Executor,
    *,
    tables: Sequence[int] | None = None,
    state: str | None = None,
    ids: Sequence[int] | None = None,
    before: int | None = None,
    limit: int = 100,
) -> tuple[Letter, ...]:
    """The newest first; of these tables, where some are named."""
    values: dict[str, Any] = {"state": state, "before": before, "most": limit}
    values |= {"tables": None if tables is None else list(tables), "letters": None if ids is None else list(ids)}
    return tuple(Letter(*row) for row in where.execute(QUERIES["letters"].compose(), values).fetchall())


def letter(where: Executor, letter_id: int) -> Letter:
    found = letters(where, ids=[letter_id])
    if not found:
        raise UnknownLetter(f"there is no letter {letter_id}")
    return found[0]


def drop_letters(where: Executor, ids: Sequence[int]) -> tuple[int, ...]:
    """Those that waited, and will not be replayed."""
    rows = where.execute(QUERIES["drop_letters"].compose(), {"letters": list(ids)}).fetchall()
    return tuple(row[0] for row in rows)


def letters_of(where: Executor, table_id: int, tokens: Sequence[int]) -> int:
    """How many records of these requests became dead letters."""
    row = where.execute(QUERIES["letters_of"].compose(), {"table_id": table_id, "tokens": list(tokens)}).fetchone()
    return int(row[0]) if row else 0
