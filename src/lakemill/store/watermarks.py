"""What the lake keeps of tokens, whichever bus they came by: how far all are, and which snapshot showed which.

Read in one transaction with the snapshot that a query will use, by a connection of the caller's. What of a table still
waits is known to the bus (``core/batch.Consumer``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from lakemill.core.bus import Head
from lakemill.store.db import Executor
from lakemill.store.queries import load_queries

QUERIES = load_queries("watermarks")


def covered(where: Executor, snapshot: int) -> tuple[UUID, int]:
    """The lake, and the last token that a reader at this snapshot is sure to see."""
    row = where.execute(QUERIES["covered"].compose(), {"snapshot": snapshot}).fetchone()
    assert row is not None  # noqa: S101  (there is one head)
    return row[0], row[1]


def head(where: Executor) -> Head:
    """The lake, the last token that was given out, and the one that every table has passed."""
    row = where.execute(QUERIES["head"].compose()).fetchone()
    assert row is not None  # noqa: S101  (made with the table)
    return Head(*row)


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
