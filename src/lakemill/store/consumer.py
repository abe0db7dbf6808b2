"""The bus in PostgreSQL, consuming side: requests are only ever added; claim and cursor are one row a table.

See ``core/batch`` for what each step means. Accepting requests is ``store/bus``; what a batch becomes is not decided
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from lakemill.core.batch import LOOKED_AT, Batch, Claim, Letter, Limits, Part, Pending, Reader
from lakemill.errors import ClaimLost
from lakemill.store.db import LOST, Connection, Executor, transaction
from lakemill.store.queries import load_queries
from lakemill.store.work import PASSED

QUERIES = load_queries("consumer")
REMOVED = 20_000
"""Requests of a table that one statement removes."""


@dataclass(frozen=True, slots=True)
class PostgresConsumer:
    conn: Connection
    dsn: str
    """For executors, which open connections of their own."""

    def _all(self, query: str, **values: Any) -> list[Any]:
        return self.conn.execute(QUERIES[query].compose(), values).fetchall()

    # ------------------------------------------------------------ what waits
    def any_table(self) -> bool:
        return bool(self._all("any_table")[0][0])

    def pending(self, most: int = LOOKED_AT) -> tuple[Pending, ...]:
        return tuple(Pending(*row) for row in self._all("pending", most=most))

    # ------------------------------------------------------------ whose it is
    def claim(self, table_id: int, holder: str, lease: timedelta) -> Claim | None:
        for fence, cursor, key, policy, attempts in self._all("claim", table_id=table_id, holder=holder, lease=lease):
            return Claim(table_id, holder, fence, cursor, tuple(key), policy, attempts)
        return None

    def extend(self, held: Claim, lease: timedelta) -> None:
        if not self._all("extend", table_id=held.table_id, fence=held.fence, lease=lease):
            raise ClaimLost("the claim has run out")

    def release(self, held: Claim) -> None:
        """Where the server does not answer the claim runs out by itself."""
        with suppress(*LOST):
            self.conn.execute(QUERIES["release"].compose(), {"table_id": held.table_id, "fence": held.fence})

    def nack(self, held: Claim, reason: str, pause: timedelta) -> int | None:
        values = {"table_id": held.table_id, "fence": held.fence, "cursor": held.cursor}
        for (attempts,) in self._all("nack", **values, reason=reason, pause=pause):
            return int(attempts)
        return None

    def requeue_expired(self) -> tuple[int, ...]:
        return tuple(row[0] for row in self._all("requeue_expired"))

    def held(self) -> tuple[tuple[int, str], ...]:
        return tuple((row[0], row[1]) for row in self._all("held"))

    def take_away(self, table_id: int, holder: str) -> None:
        self.conn.execute(QUERIES["take_away"].compose(), {"table_id": table_id, "holder": holder})

    # ------------------------------------------------------------ reading it
    def read(self, held: Claim, limits: Limits) -> Batch | None:
        rows = self._all(
            "read",
            table_id=held.table_id,
            cursor=held.cursor,
            requests=limits.requests,
            records=limits.records,
            bytes=limits.bytes,
            part=limits.part,
        )
        if not rows:
            return None
        parts, after = [], held.cursor
        for _, upto, _, records, size, _, _ in rows:
            parts.append(Part(after, upto, records, size))
            after = upto
        versions = frozenset(version for row in rows for version in row[6])
        return Batch(tuple(parts), rows[0][0], sum(row[2] for row in rows), min(row[5] for row in rows), versions)

    def reader(self, table_id: int, parts: Sequence[Part]) -> Reader:
        """It holds texts and numbers only: psycopg and pyarrow are all that an executor needs."""
        dsn, query = self.dsn, QUERIES["bodies"].text
        ranges = [(part.after, part.upto) for part in parts]

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

    def tokens(self, held: Claim, batch: Batch) -> tuple[tuple[int, int], ...]:
        return tuple((row[0], row[1]) for row in self._all("tokens", **_range(held, batch)))

    def versions(self, held: Claim, batch: Batch) -> tuple[str, ...]:
        return tuple(row[0] for row in self._all("versions", **_range(held, batch)))

    def records(self, places: Iterable[tuple[int, int]]) -> Mapping[tuple[int, int], str]:
        wanted = list(places)
        tokens, positions = [token for token, _ in wanted], [position for _, position in wanted]
        rows = self._all("records", tokens=tokens, positions=positions)
        return {(token, position): body for token, position, body in rows}

    # ------------------------------------------------------------ passing it
    def require(self, transaction: Executor, held: Claim) -> None:
        row = transaction.execute(QUERIES["lock"].compose(), {"table_id": held.table_id}).fetchone()
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
        self,
        transaction: Executor,
        held: Claim,
        batch: Batch,
        snapshot_id: int,
        rows: int,
        letters: Sequence[Letter] = (),
    ) -> None:
        _move(transaction, held, batch, snapshot_id, rows, letters, len(letters))

    def pass_by(self, held: Claim, batch: Batch, letters: Sequence[Letter] = ()) -> None:
        with transaction(self.conn):
            self.require(self.conn, held)
            _move(self.conn, held, batch, None, 0, letters, len(letters))

    def bury(self, held: Claim, batch: Batch, code: str, reason: str) -> None:
        with transaction(self.conn):
            self.require(self.conn, held)
            self.conn.execute(QUERIES["bury"].compose(), _range(held, batch) | {"code": code, "reason": reason})
            _move(self.conn, held, batch, None, 0, (), batch.records)

    # ------------------------------------------------------------ how far it is
    def table_watermark(self, table_id: int) -> int | None:
        for (token,) in self._all("table_watermark", table_id=table_id):
            return int(token)
        return None

    def not_passed(self, token: int, table_ids: Iterable[int] | None = None) -> tuple[int, ...]:
        wanted = None if table_ids is None else list(table_ids)
        return tuple(row[0] for row in self._all("not_passed", token=token, table_ids=wanted))

    # ------------------------------------------------------------ tidying
    def tidy(self, keep: timedelta) -> None:
        while self.conn.execute(QUERIES["remove_passed"].compose(), {"most": REMOVED}).rowcount >= REMOVED:
            pass
        self.conn.execute(QUERIES["forget"].compose(), {"age": keep})
        with transaction(self.conn):
            _raise_watermark(self.conn)


def _range(held: Claim, batch: Batch) -> dict[str, Any]:
    return {"table_id": held.table_id, "after": held.cursor, "upto": batch.upto}


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
    _raise_watermark(where)
    where.execute("SELECT pg_notify(%s, %s)", (PASSED, str(held.table_id)))


def _raise_watermark(where: Executor) -> None:
    """As far as every table has come; inside a transaction, which nobody accepts a request during the rest of."""
    where.execute(QUERIES["lock_head"].compose())
    where.execute(QUERIES["raise_watermark"].compose())
