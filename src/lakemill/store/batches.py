"""The bus as its consumer sees it: claim a table, read what waits, and pass it, exactly once.

Of a table one batch is made at a time, from its cursor on. Whoever makes it has a claim with a number; the transaction
that publishes the batch requires number and cursor as they were read, and moves the cursor itself (`ack`). So a batch
is passed once, whoever was paused or killed. Accepting requests is `store/bus`; what a batch becomes is not decided
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from lakemill.errors import ClaimLost
from lakemill.store.db import LOST, Connection, Executor, transaction
from lakemill.store.queries import load_queries

QUERIES = load_queries("batches")
ACCEPTED, PASSED = "lakemill_accepted", "lakemill_passed"
"""What is told: a request was accepted; a batch was passed."""
LOOKED_AT = 10_000
"""Requests of a table that a look counts; more than that is many."""


@dataclass(frozen=True, slots=True)
class Pending:
    """What waits for a table."""

    table_id: int
    attempts: int
    requests: int
    records: int
    bytes: int
    age: float
    """Seconds since the oldest was accepted."""
    pause: float
    """Seconds for which it has to be left alone."""
    held: float
    """Seconds for which somebody has it, unless they say that it takes longer."""


@dataclass(frozen=True, slots=True)
class Claim:
    table_id: int
    holder: str
    fence: int
    cursor: int
    key: tuple[str, ...]
    policy: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Part:
    """Requests of one table with after < token ≤ upto, which one task reads."""

    after: int
    upto: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What is passed at once."""

    parts: tuple[Part, ...]
    first: int
    requests: int
    accepted_at: datetime
    """The first request's."""
    versions: frozenset[str]
    """Of the columns that the records were checked against."""

    @property
    def upto(self) -> int:
        return self.parts[-1].upto

    @property
    def records(self) -> int:
        return sum(part.records for part in self.parts)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)


@dataclass(frozen=True, slots=True)
class Letter:
    """A record that can't become a row."""

    token: int
    position: int
    code: str
    reason: str
    place: str = ""
    body: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one batch may hold; a single request may be larger."""

    requests: int = 10_000
    records: int = 500_000
    bytes: int = 64 * 10**6
    part: int = 8 * 10**6
    """Bytes that one task reads."""


# ---------------------------------------------------------------- whose it is
def pending(where: Executor, most: int = LOOKED_AT) -> tuple[Pending, ...]:
    """All tables with requests that wait, in one query; the one that waits longest first."""
    return tuple(Pending(*row) for row in where.execute(QUERIES["pending"].compose(), {"most": most}).fetchall())


def any_table(where: Executor) -> bool:
    """Whether any table takes requests."""
    row = where.execute(QUERIES["any_table"].compose()).fetchone()
    return bool(row and row[0])


def claim(where: Executor, table_id: int, holder: str, ttl: timedelta) -> Claim | None:
    """Ours for ``ttl``; None when somebody else has it, it must be left alone, or it takes no requests any more."""
    row = where.execute(QUERIES["claim"].compose(), {"table_id": table_id, "holder": holder, "ttl": ttl}).fetchone()
    if row is None:
        return None
    fence, cursor, key, policy, attempts = row
    return Claim(table_id, holder, fence, cursor, tuple(key), policy, attempts)


def extend(where: Executor, held: Claim, ttl: timedelta) -> None:
    """For longer, from now."""
    values = {"table_id": held.table_id, "fence": held.fence, "ttl": ttl}
    if where.execute(QUERIES["extend"].compose(), values).fetchone() is None:
        raise ClaimLost("the claim has run out")


def release(where: Executor, held: Claim) -> None:
    """Left to others. Where the server does not answer the claim runs out by itself."""
    with suppress(*LOST):
        where.execute(QUERIES["release"].compose(), {"table_id": held.table_id, "fence": held.fence})


def requeue_expired(where: Executor) -> tuple[int, ...]:
    """Tables whose holder said nothing for too long."""
    return tuple(row[0] for row in where.execute(QUERIES["requeue_expired"].compose()).fetchall())


def held(where: Executor) -> tuple[tuple[int, str], ...]:
    return tuple((row[0], row[1]) for row in where.execute(QUERIES["held"].compose()).fetchall())


def take_away(where: Executor, table_id: int, holder: str) -> None:
    """A holder is known to be gone. Should it live after all, its number is out of date with the next claim."""
    where.execute(QUERIES["take_away"].compose(), {"table_id": table_id, "holder": holder})


# ---------------------------------------------------------------- what waits
def read(where: Executor, held: Claim, limits: Limits) -> Batch | None:
    """The next batch, counted and cut into parts; None when nothing waits."""
    values = {
        "table_id": held.table_id,
        "cursor": held.cursor,
        "requests": limits.requests,
        "records": limits.records,
        "bytes": limits.bytes,
        "part": limits.part,
    }
    rows = where.execute(QUERIES["read"].compose(), values).fetchall()
    if not rows:
        return None
    parts, after = [], held.cursor
    for _, upto, _, records, size, _, _ in rows:
        parts.append(Part(after, upto, records, size))
        after = upto
    versions = frozenset(version for row in rows for version in row[6])
    return Batch(tuple(parts), rows[0][0], sum(row[2] for row in rows), min(row[5] for row in rows), versions)


def tokens(where: Executor, table_id: int, after: int, upto: int) -> tuple[tuple[int, int], ...]:
    """The requests of a range, and how many records each has."""
    values = {"table_id": table_id, "after": after, "upto": upto}
    return tuple((row[0], row[1]) for row in where.execute(QUERIES["tokens"].compose(), values).fetchall())


def records(where: Executor, places: Iterable[tuple[int, int]]) -> Mapping[tuple[int, int], str]:
    """Few records, as they stand in the bus, by token and position."""
    wanted = list(places)
    values = {"tokens": [token for token, _ in wanted], "positions": [position for _, position in wanted]}
    rows = where.execute(QUERIES["records"].compose(), values).fetchall()
    return {(token, position): body for token, position, body in rows}


def reader(dsn: str, table_id: int, parts: Sequence[Part]) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """A function for executors: numbers of parts → their requests (token, body), as Arrow.

    It travels by value and holds texts and numbers only: psycopg and pyarrow are all that an executor needs.
    """
    ranges = [(part.after, part.upto) for part in parts]
    query = QUERIES["bodies"].text

    def requests(batches: Iterable[Any]) -> Iterator[Any]:
        import psycopg
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                after, upto = ranges[number]
                values = {"table_id": table_id, "after": after, "upto": upto}
                with psycopg.connect(dsn, application_name="lakemill executor") as conn:
                    rows = conn.execute(query, values, binary=True).fetchall()
                tokens = pa.array([row[0] for row in rows], pa.int64())
                bodies = pa.array([row[1] for row in rows], pa.large_string())
                yield pa.RecordBatch.from_arrays([tokens, bodies.cast(pa.string())], ["token", "body"])

    return requests


# ---------------------------------------------------------------- passing it
def require(where: Executor, held: Claim) -> None:
    """For the transaction that passes a batch: claim and cursor are as they were, and stay so until it ends."""
    row = where.execute(QUERIES["lock"].compose(), {"table_id": held.table_id}).fetchone()
    if row is None:
        raise ClaimLost("the table takes no requests any more")
    fence, holder, alive, cursor, key = row
    if fence != held.fence:
        raise ClaimLost(f"the claim has passed to {holder or 'somebody who is done'}")
    if not alive:
        raise ClaimLost("the claim has run out")
    if cursor != held.cursor:
        raise ClaimLost(f"the cursor is at {cursor}, not at {held.cursor}")
    if tuple(key) != held.key:
        raise ClaimLost("the table has another key by now")


def ack(
    where: Executor, held: Claim, batch: Batch, snapshot_id: int | None, rows: int, letters: Sequence[Letter] = ()
) -> None:
    """The batch is passed, by this transaction: cursor, ledger, dead letters, watermark; those who wait are told."""
    _move(where, held, batch, snapshot_id, rows, letters, len(letters))


def bury(where: Executor, held: Claim, batch: Batch, code: str, reason: str) -> None:
    """The batch is passed, all of it as dead letters."""
    values = {"table_id": held.table_id, "after": held.cursor, "upto": batch.upto, "code": code, "reason": reason}
    with transaction(where):
        require(where, held)
        where.execute(QUERIES["bury"].compose(), values)
        _move(where, held, batch, None, 0, (), batch.records)


def _move(
    where: Executor,
    held: Claim,
    batch: Batch,
    snapshot_id: int | None,
    rows: int,
    letters: Sequence[Letter],
    dead: int,
) -> None:
    values = {
        "table_id": held.table_id,
        "fence": held.fence,
        "cursor": held.cursor,
        "token": batch.upto,
        "first": batch.first,
        "snapshot_id": snapshot_id,
        "records": rows,
        "letters": dead,
        "accepted_at": batch.accepted_at,
        "tokens": [letter.token for letter in letters],
        "positions": [letter.position for letter in letters],
        "bodies": [letter.body for letter in letters],
        "codes": [letter.code for letter in letters],
        "reasons": [letter.reason for letter in letters],
        "places": [letter.place for letter in letters],
    }
    if where.execute(QUERIES["move"].compose(), values).fetchone() is None:
        raise ClaimLost("the cursor was moved by another")
    raise_watermark(where)
    where.execute("SELECT pg_notify(%s, %s)", (PASSED, str(held.table_id)))


def raise_watermark(where: Executor) -> None:
    """As far as every table has come; inside a transaction, which nobody accepts a request during the rest of."""
    where.execute(QUERIES["lock_head"].compose())
    where.execute(QUERIES["raise_watermark"].compose())


def nack(where: Executor, held: Claim, reason: str, pause: timedelta) -> int | None:
    """Tried in vain: left alone for ``pause``. How often by now; None when the claim was lost."""
    values = {"table_id": held.table_id, "fence": held.fence, "cursor": held.cursor, "reason": reason, "pause": pause}
    row = where.execute(QUERIES["nack"].compose(), values).fetchone()
    return None if row is None else int(row[0])


# ---------------------------------------------------------------- how far everything is
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


# ---------------------------------------------------------------- tidying
def remove_passed(conn: Connection, most: int = 20_000) -> int:
    """Requests that no batch can need any more, some of each table; how many went."""
    return conn.execute(QUERIES["remove_passed"].compose(), {"most": most}).rowcount


def forget(conn: Connection, age: timedelta) -> int:
    """The ledger's part that is older becomes one row a table; how many it was made into."""
    return conn.execute(QUERIES["forget"].compose(), {"age": age}).rowcount


def old_names(conn: psycopg.Connection[Any], table_id: int) -> Mapping[str, int]:
    """Names that live columns of a table had before, and the columns; inside a read of the catalog."""
    rows = conn.execute(QUERIES["old_names"].compose(), {"table_id": table_id}).fetchall()
    return {row[0]: row[1] for row in rows}


def reused_names(conn: psycopg.Connection[Any], table_id: int) -> Mapping[tuple[int, str], frozenset[int]]:
    """Names that several columns have had, in one place (0: the table), in lower case; in a read of the catalog."""
    rows = conn.execute(QUERIES["reused_names"].compose(), {"table_id": table_id}).fetchall()
    return {(row[0], row[1]): frozenset(row[2]) for row in rows}


def column_changes(conn: psycopg.Connection[Any], table_id: int) -> tuple[int, ...]:
    """The snapshots since which a table has had other columns, the newest first; inside a read of the catalog."""
    return tuple(row[0] for row in conn.execute(QUERIES["column_changes"].compose(), {"table_id": table_id}).fetchall())


def versions(where: Executor, table_id: int, after: int, upto: int) -> tuple[str, ...]:
    """Of the requests of a range, in their order, the version of the columns that each was accepted for."""
    values = {"table_id": table_id, "after": after, "upto": upto}
    return tuple(row[0] for row in where.execute(QUERIES["versions"].compose(), values).fetchall())
