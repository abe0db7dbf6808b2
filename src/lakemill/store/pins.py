"""Who needs which snapshot: pins of readers, recorded positions of consumers, and what expiry has chosen.

A pin keeps one snapshot for a reader while it works; a position says up to where a consumer has read a table, so that
its next delta can start there. Pinning, recording and condemning take one lock and look again under it: a snapshot is
either kept for whoever asked, or refused to them, never promised and gone. The lock is held for a few statements only:
expiry itself runs after its snapshots were condemned, without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg import sql

from lakemill.errors import ForeignLock, SnapshotGone, UnknownSnapshot
from lakemill.store.db import Executor, transaction
from lakemill.store.queries import load_queries

QUERIES = load_queries("pins")
# any constants will do, as long as nobody else in this database uses them
_LOCK = 0x6C616B652D70696E
_TURN = 0x6C616B652D657870
_NO_ANSWER = (psycopg.OperationalError, psycopg.InterfaceError)


@dataclass(frozen=True, slots=True)
class Pin:
    """A snapshot that must stay readable; without ``expires_at`` until it is taken out."""

    id: UUID
    snapshot_id: int
    holder: str
    reason: str
    created_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Position:
    """Up to which snapshot a consumer has read a table; the delta from there must stay exact."""

    holder: str
    table_id: int
    snapshot_id: int
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class Needed:
    """Everything that somebody has a claim on, as it was at one moment."""

    pins: tuple[Pin, ...] = ()
    positions: tuple[Position, ...] = ()

    @property
    def held(self) -> Mapping[str, frozenset[int]]:
        """By consumer: the snapshots of its positions."""
        found: dict[str, set[int]] = {}
        for position in self.positions:
            found.setdefault(position.holder, set()).add(position.snapshot_id)
        return {holder: frozenset(snapshots) for holder, snapshots in found.items()}


def dynamic(dynamic_id: int) -> str:
    """What a dynamic table is called as a consumer."""
    return f"dynamic:{dynamic_id}"


# ---------------------------------------------------------------- readers
def pin(
    conn: psycopg.Connection[Any],
    snapshot: int,
    holder: str,
    reason: str = "",
    ttl: timedelta | None = None,
    *,
    fleeting: bool = False,
    catalog_schema: str = "public",
) -> Pin:
    """Keep a snapshot readable, for ``ttl`` or until ``unpin``; refused when it is gone or about to go.

    ``fleeting``: for as long as this connection lasts at most, so that it is not waited for the disk.
    """
    values = {"pin_id": uuid4(), "snapshot": snapshot, "holder": holder, "reason": reason, "ttl": ttl}
    values["fleeting"] = fleeting
    with conn.transaction():
        lock(conn)
        _check_usable(conn, snapshot, catalog_schema)
        row = conn.execute(QUERIES["insert_pin"].compose(), values).fetchone()
    assert row is not None  # noqa: S101  (INSERT … RETURNING)
    return Pin(*row)


def renew(conn: psycopg.Connection[Any], pin_id: UUID, ttl: timedelta) -> bool:
    """Keep it for longer, from now; False when the pin has run out or was taken out: its snapshot may be gone."""
    with conn.transaction():
        lock(conn)
        return conn.execute(QUERIES["renew_pin"].compose(), {"pin_id": pin_id, "ttl": ttl}).rowcount == 1


def unpin(conn: psycopg.Connection[Any], pin_id: UUID) -> None:
    conn.execute(QUERIES["delete_pin"].compose(), {"pin_id": pin_id})


def unpin_all(where: Executor, holders: Sequence[str]) -> None:
    """Those who are about to go need nothing any more."""
    where.execute(QUERIES["delete_pins_of"].compose(), {"holders": list(holders)})


@contextmanager
def pinned(
    conn: psycopg.Connection[Any],
    snapshot: int,
    holder: str,
    reason: str = "",
    ttl: timedelta | None = None,
    *,
    catalog_schema: str = "public",
) -> Iterator[Pin]:
    """Pinned for the body; ``ttl`` bounds it when the process dies."""
    found = pin(conn, snapshot, holder, reason, ttl, fleeting=ttl is not None, catalog_schema=catalog_schema)
    try:
        yield found
    finally:
        if ttl is None:
            unpin(conn, found.id)
        else:
            with suppress(*_NO_ANSWER):  # then it runs out by itself
                conn.execute(QUERIES["let_pin_go"].compose(), {"pin_id": found.id})


# ---------------------------------------------------------------- consumers
def record_position(
    where: Executor, holder: str, table_id: int, snapshot: int, *, catalog_schema: str = "public"
) -> None:
    """A consumer has read a table up to ``snapshot``: its next delta starts there.

    With a cursor, for instance a publish's own, it is part of the caller's transaction.
    """
    values = {"holder": holder, "table": table_id, "snapshot": snapshot}
    with transaction(where):
        lock(where)
        _check_usable(where, snapshot, catalog_schema)
        where.execute(QUERIES["record_position"].compose(), values)


def move_positions(
    where: Executor, holder: str, positions: Mapping[int, int], *, catalog_schema: str = "public"
) -> None:
    """Up to where a consumer has read each table, by table id; those that it no longer reads are let go."""
    values = {"holder": holder, "tables": list(positions), "snapshots": list(positions.values())}
    with transaction(where):
        lock(where)
        for snapshot in sorted(set(positions.values())):
            _check_usable(where, snapshot, catalog_schema)
        where.execute(QUERIES["move_positions"].compose(), values)


def drop_positions(where: Executor, holder: str, table_id: int | None = None) -> None:
    """A consumer is gone, or no longer reads this table."""
    where.execute(QUERIES["drop_positions"].compose(), {"holder": holder, "table": table_id})


# ---------------------------------------------------------------- expiry
def needed_snapshots(where: Executor, *, since: datetime | None = None) -> Needed:
    """Every pin that holds, and every position recorded since then (default: ever)."""
    pins = tuple(Pin(*row) for row in where.execute(QUERIES["pins"].compose()).fetchall())
    rows = where.execute(QUERIES["positions"].compose(), {"since": since}).fetchall()
    return Needed(pins, tuple(Position(*row) for row in rows))


@contextmanager
def turn(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """Only one expiry at a time; for the body, or until the connection ends."""
    row = conn.execute(QUERIES["try_turn"].compose(), {"key": _TURN}).fetchone()
    if not (row and row[0]):
        raise ForeignLock("another expiry is at work on this lake", remedy="try again when it is done")
    try:
        yield
    finally:
        if not conn.closed:
            conn.execute(QUERIES["end_turn"].compose(), {"key": _TURN})


def condemn(
    conn: psycopg.Connection[Any],
    choose: Callable[[Needed], Iterable[int]],
    *,
    since: datetime | None = None,
    catalog_schema: str = "public",
) -> tuple[int, ...]:
    """Choose, under the lock, which snapshots will go; nobody can pin those from here on. Call it inside ``turn``.

    ``choose`` is given what is needed at that moment and must be short.
    """
    with conn.transaction():
        lock(conn)
        conn.execute(QUERIES["delete_pins_run_out"].compose())
        conn.execute(QUERIES["absolve_left"].compose(_in(catalog_schema)))
        chosen = tuple(sorted(set(choose(needed_snapshots(conn, since=since)))))
        conn.execute(QUERIES["condemn"].compose(), {"snapshots": list(chosen)})
    return chosen


def absolve(conn: psycopg.Connection[Any], snapshots: Sequence[int]) -> None:
    """They are gone, or they stay after all."""
    conn.execute(QUERIES["absolve"].compose(), {"snapshots": list(snapshots)})


def gone(where: Executor, tables: Iterable[int]) -> Mapping[int, list[range]]:
    """By table that is kept for longer: the snapshots that were expired and had not changed it, in order."""
    found: dict[int, list[range]] = {}
    for table_id, first, end in where.execute(QUERIES["gone"].compose(), {"tables": list(tables)}).fetchall():
        found.setdefault(table_id, []).append(range(first, end))
    return found


def let_pass(
    where: Executor, snapshots: Iterable[int], changed: Mapping[int, Iterable[int]], catalog_schema: str
) -> None:
    """These go now; by table that is kept for longer: at which of them it had changed. Other tables are forgotten."""
    where.execute(QUERIES["forget_retained"].compose(), {"tables": list(changed)})
    pairs = [(table_id, snapshot) for table_id, found in changed.items() for snapshot in found]
    values = {
        "tables": list(changed),
        "snapshots": list(snapshots),
        "of": [table_id for table_id, _ in pairs],
        "changed": [snapshot for _, snapshot in pairs],
    }
    where.execute(QUERIES["let_pass"].compose(_in(catalog_schema)), values)


# ---------------------------------------------------------------- the lock
def lock(where: Executor) -> None:
    """Until the transaction ends nobody pins, records or condemns anything."""
    where.execute(QUERIES["lock"].compose(), {"key": _LOCK})


def lock_usable(where: Executor, snapshot: int, catalog_schema: str) -> None:
    """Until the transaction ends nobody condemns anything; refused where this snapshot is gone, or about to go."""
    lock(where)
    _check_usable(where, snapshot, catalog_schema)


def _check_usable(where: Executor, snapshot: int, catalog_schema: str) -> None:
    catalog = _in(catalog_schema)
    row = where.execute(QUERIES["usable"].compose(catalog), {"snapshot": snapshot}).fetchone()
    if row and row[0]:
        return
    newest = where.execute(QUERIES["newest"].compose(catalog)).fetchone()
    if snapshot < 0 or (newest and newest[0] is not None and snapshot > newest[0]):
        raise UnknownSnapshot(f"there is no snapshot {snapshot}; the newest is {newest[0] if newest else None}")
    raise SnapshotGone(f"snapshot {snapshot} was expired, or is about to be")


def _in(catalog_schema: str) -> dict[str, sql.Composable]:
    return {"catalog": sql.Identifier(catalog_schema)}
