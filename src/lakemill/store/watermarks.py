"""How far tables are: which token each has passed, and which snapshot showed it.

Read in one transaction with the snapshot that a query will use, by a connection of the caller's. Who passes batches is
``store/consumer``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from lakemill.store.db import Executor
from lakemill.store.queries import load_queries

QUERIES = load_queries("watermarks")


def raise_watermark(where: Executor) -> None:
    """As far as every table has come; inside a transaction, which nobody accepts a request during the rest of."""
    where.execute(QUERIES["lock_head"].compose())
    where.execute(QUERIES["raise_watermark"].compose())


def covered(where: Executor, snapshot: int) -> tuple[UUID, int]:
    """The lake, and the last token that a reader at this snapshot is sure to see."""
    row = where.execute(QUERIES["covered"].compose(), {"snapshot": snapshot}).fetchone()
    assert row is not None  # noqa: S101  (there is one head)
    return row[0], row[1]


def watermark(where: Executor) -> tuple[int, int]:
    """Every table has passed the first; the second is the last token that was given out."""
    row = where.execute(QUERIES["watermark"].compose()).fetchone()
    assert row is not None  # noqa: S101  (made with the table)
    return row[0], row[1]


def table_watermark(where: Executor, table_id: int) -> int | None:
    """Nothing at or below it can still become visible in the table; None where it takes no requests."""
    row = where.execute(QUERIES["table_watermark"].compose(), {"table_id": table_id}).fetchone()
    return None if row is None else int(row[0])


def not_passed(where: Executor, token: int, table_ids: Iterable[int] | None = None) -> tuple[int, ...]:
    """Of these tables, or of all, those where something at or below the token waits."""
    values = {"token": token, "table_ids": None if table_ids is None else list(table_ids)}
    return tuple(row[0] for row in where.execute(QUERIES["not_passed"].compose(), values).fetchall())


def shown_by(where: Executor, token: int, table_ids: Iterable[int] | None = None) -> Mapping[int, int]:
    """By table: the last snapshot that published a token at or below this one; not of tables without any."""
    values = {"token": token, "table_ids": None if table_ids is None else list(table_ids)}
    return {row[0]: row[1] for row in where.execute(QUERIES["shown_by"].compose(), values).fetchall()}


def letters_of(where: Executor, token: int, table_ids: Iterable[int] | None = None) -> int:
    """Records of the request that died and were not replayed."""
    values = {"token": token, "table_ids": None if table_ids is None else list(table_ids)}
    row = where.execute(QUERIES["letters_of"].compose(), values).fetchone()
    return int(row[0]) if row else 0


@dataclass(frozen=True, slots=True)
class Reached:
    """A dynamic table that another one, or itself, is made of."""

    wanted: int
    dynamic_id: int
    name: str
    state: str
    version_id: int | None
    b_hi: int | None
    bases: tuple[int, ...]


def reached(where: Executor, dynamic_ids: Iterable[int]) -> tuple[Reached, ...]:
    rows = where.execute(QUERIES["reached"].compose(), {"dynamic_ids": list(dynamic_ids)}).fetchall()
    return tuple(
        Reached(wanted, dynamic_id, f"{schema}.{table}", state, version_id, b_hi, tuple(bases))
        for wanted, dynamic_id, schema, table, state, version_id, b_hi, bases in rows
    )
