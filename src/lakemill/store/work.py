"""Due work, once per subject: added by the scheduler, taken by workers, gone when it is done.

Taking is a lease: a worker says again and again that it lives, and what it has not said so for goes to the next one.
Who may *publish* is decided by the claim (``store/claims``), whose number a publish requires; the lease only keeps two
workers from doing the same. Work of one round names the work that must be done before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg import sql

from lakemill.core.lag import Commit, Failure, Version
from lakemill.core.names import QualifiedName
from lakemill.core.retry import BLAMED
from lakemill.errors import ClaimLost, LakemillError, Retry
from lakemill.store.db import Connection, Executor
from lakemill.store.queries import load_queries

QUERIES = load_queries("work")
COMMIT, DUE, DONE, CANCEL = "lakemill_commit", "lakemill_due", "lakemill_done", "lakemill_cancel"
DECLARED, ACCEPTED, PASSED = "lakemill_declared", "lakemill_accepted", "lakemill_passed"
"""What is told: somebody committed to the lake; there is work; work is done; a query is to stop; a dynamic table was
declared, altered or resumed; requests were accepted; a batch of them was passed."""
_LEADER = 0x6C616B652D736368  # any constant will do, as long as nobody else in this database uses it
DROPPED = pg.ForeignKeyViolation
"""What adding work of a table that was dropped at this moment raises."""
PATIENCE = timedelta(minutes=5)
VERSIONS = 20
"""How many versions of a supplier are looked at: a consumer further behind than these waits for the next round."""


_name = lru_cache(maxsize=100_000)(QualifiedName)  # the same ones at every look


class Kind(Enum):
    REFRESH = "refresh"
    UPKEEP = "upkeep"
    INGEST = "ingest"


@dataclass(frozen=True, slots=True)
class Work:
    id: int
    kind: Kind
    subject: str
    dynamic_id: int | None
    b: int | None
    t: datetime | None
    manual: bool
    priority: int
    reason: str
    added_at: datetime
    traceparent: str | None = None
    """The trace that asked for it."""


@dataclass(frozen=True, slots=True)
class Worker:
    name: str
    slots: int
    kinds: tuple[str, ...]
    started_at: datetime
    seen_at: datetime
    silent: timedelta
    """For how long nobody has heard of it."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the store knows of a dynamic table that a round could take up."""

    id: int
    name: QualifiedName
    version_id: int | None
    """Of ``version``."""
    active: bool
    target_lag: timedelta | None
    priority: int
    clocked: bool
    round_at: datetime | None
    expected: timedelta
    version: Version | None
    """The current one; None where the table was never loaded, or not since its definition changed."""
    busy: bool
    failure: Failure | None
    bases: tuple[int, ...]
    sources: tuple[QualifiedName, ...]
    moved: int | None = None
    """The b_lo of a supplier's current version that is not the one which was read; None where all are."""
    stale: bool = False
    """Its past is no longer kept."""
    replaced: int | None = None
    """Since which snapshot something that it reads has another's name, or none; None where all have theirs."""
    readable: bool = True
    """Whether nobody expired the commit of its version."""
    earlier: tuple[Version, ...] = ()
    """Where others read it: the versions before ``version`` that they still can, oldest first."""


@dataclass(frozen=True, slots=True)
class Moment:
    """All dynamic tables, and the newest snapshot, at one moment."""

    head: Commit
    tables: tuple[Known, ...]


# ---------------------------------------------------------------- the scheduler
def add(
    where: Executor,
    kind: Kind,
    subject: str,
    reason: str,
    *,
    dynamic_id: int | None = None,
    after: Sequence[int] = (),
    b: int | None = None,
    t: datetime | None = None,
    priority: int = 0,
    traceparent: str | None = None,
) -> tuple[int, bool]:
    """Its id, and whether it is new: work on this subject may be there already, and is left as it is."""
    values = {
        "kind": kind.value,
        "subject": subject,
        "reason": reason,
        "dynamic_id": dynamic_id,
        "after": list(after),
        "b": b,
        "t": t,
        "priority": priority,
        "traceparent": traceparent,
    }
    row = where.execute(QUERIES["add"].compose(), values).fetchone()
    assert row is not None  # noqa: S101  (it is there, by us or by somebody else)
    return int(row[0]), bool(row[1])


def ask(
    where: Executor,
    dynamic_id: int,
    reason: str,
    b: int,
    t: datetime,
    *,
    after: Sequence[int] = (),
    priority: int = 0,
    traceparent: str | None = None,
) -> int:
    """A refresh that somebody wants: before all others, and at this ``b``, wherever the scheduler had planned it.

    Where one is at work on the table, at a ``b`` of before, there is another after it.
    """
    values: dict[str, Any] = {
        "kind": Kind.REFRESH.value,
        "dynamic_id": dynamic_id,
        "after": list(after),
        "b": b,
        "t": t,
        "priority": priority,
        "reason": reason,
        "traceparent": traceparent,
    }
    for subject in (str(dynamic_id), f"{dynamic_id} again"):
        row = where.execute(QUERIES["ask"].compose(), {**values, "subject": subject}).fetchone()
        if row is not None:
            return int(row[0])
    raise ClaimLost("it is being refreshed, and was asked for again", remedy="try again when that is done")


def take_up(where: Executor, dynamic_ids: Iterable[int], at: datetime) -> None:
    """These tables are part of the round of this moment."""
    where.execute(QUERIES["rounds"].compose(), {"dynamic_ids": list(dynamic_ids), "at": at})


def pass_over(where: Executor, dynamic_ids: Iterable[int]) -> None:
    """Their round did not come to them: they are due again as soon as they can run."""
    where.execute(QUERIES["rounds"].compose(), {"dynamic_ids": list(dynamic_ids), "at": None})


def lead(conn: Connection) -> bool:
    """Whether this connection is the scheduler's that decides; it is so until it ends."""
    row = conn.execute("SELECT pg_try_advisory_lock(%s)", (_LEADER,)).fetchone()
    return bool(row and row[0])


def moment(where: Executor, catalog_schema: str) -> Moment:
    """The newest snapshot, and every dynamic table as rounds need it."""
    query = QUERIES["standings"].compose({"catalog": sql.Identifier(catalog_schema)})
    rows = where.execute(query, {"most": VERSIONS - 1}).fetchall()
    return Moment(Commit(*rows[0][:2]), tuple(_known(row[2:]) for row in rows if row[2] is not None))


def known(where: Executor, catalog_schema: str = "public") -> tuple[Known, ...]:
    """Every dynamic table, as rounds need it."""
    return moment(where, catalog_schema).tables


def kept(where: Executor, snapshots: Iterable[int], catalog_schema: str) -> frozenset[int]:
    """Those of these snapshots that were not expired."""
    query = QUERIES["kept"].compose({"catalog": sql.Identifier(catalog_schema)})
    return frozenset(row[0] for row in where.execute(query, {"snapshots": list(snapshots)}).fetchall())


def times(where: Executor, snapshots: Iterable[int], catalog_schema: str) -> Mapping[int, datetime]:
    """When each of these was committed; of one that was expired, or never was: the next. None where there is none."""
    query = QUERIES["times"].compose({"catalog": sql.Identifier(catalog_schema)})
    rows = where.execute(query, {"snapshots": list(snapshots)}).fetchall()
    return {snapshot: time for snapshot, time in rows if time is not None}


def _known(row: Sequence[Any]) -> Known:
    dynamic_id, schema, name, active, target, priority, clocked, round_at, expected = row[:9]
    version_id, commit, b_lo, b_hi, of_definition, table_id, t, definition, busy = row[9:18]
    count, failed_at, failed_b, retry, bases, schemas, names, moved, stale = row[18:27]
    replaced, readable, numbers, clocks = row[27:]
    current = version_id is not None and of_definition == definition
    return Known(
        dynamic_id,
        _name(schema, name),
        version_id if current else None,
        active,
        target,
        priority,
        clocked,
        round_at,
        expected,
        Version(commit, b_lo, b_hi, of_definition, table_id, t) if current else None,
        busy,
        None if count is None else Failure(count, failed_at, failed_b, Retry(retry)),
        tuple(bases or ()),
        tuple(map(_name, schemas or (), names or ())),
        moved,
        stale,
        replaced,
        readable,
        _earlier(numbers, clocks) if numbers and current else (),
    )


def _earlier(numbers: Sequence[Sequence[int]], clocks: Sequence[datetime | None]) -> tuple[Version, ...]:
    """Oldest first; they come newest first."""
    found: list[Version] = []
    for (commit, b_lo, b_hi, of_definition, table_id), t in zip(numbers, clocks, strict=True):
        found.append(Version(commit, b_lo, b_hi, of_definition, table_id, t))
    return tuple(reversed(found))


# ---------------------------------------------------------------- workers
def take(
    where: Executor, worker: str, kinds: Iterable[Kind], ttl: timedelta, patience: timedelta = PATIENCE
) -> Work | None:
    """The next piece of work, for ``ttl``; None when there is none that could be done now.

    Upkeep comes last, unless it has waited for its ``patience``.
    """
    values = {"worker": worker, "kinds": [kind.value for kind in kinds], "ttl": ttl, "patience": patience}
    row = where.execute(QUERIES["take"].compose(), values).fetchone()
    return None if row is None else Work(row[0], Kind(row[1]), *row[2:])


def extend(
    where: Executor, worker: str, slots: int, kinds: Iterable[Kind], work_ids: Iterable[int], ttl: timedelta
) -> frozenset[int]:
    """The worker lives. Which of its work it still has."""
    values = {
        "worker": worker,
        "slots": slots,
        "kinds": [kind.value for kind in kinds],
        "work_ids": list(work_ids),
        "ttl": ttl,
    }
    return frozenset(row[0] for row in where.execute(QUERIES["extend"].compose(), values).fetchall())


def has(where: Executor, worker: str, work_id: int) -> bool:
    """Whether it is still this worker's, and stays so until the transaction ends."""
    return where.execute(QUERIES["has"].compose(), {"worker": worker, "work_id": work_id}).fetchone() is not None


def done(where: Executor, worker: str, work_ids: Iterable[int]) -> None:
    where.execute(QUERIES["done"].compose(), {"worker": worker, "work_ids": list(work_ids)})


def withdraw(where: Executor, dynamic_ids: Iterable[int]) -> None:
    """What is due of these tables, and nobody has begun, is not done."""
    where.execute(QUERIES["withdraw"].compose(), {"dynamic_ids": list(dynamic_ids)})


def hand_back(where: Executor, worker: str, work_ids: Iterable[int] | None = None) -> None:
    """Work that this worker will not do after all; None: all that it has."""
    wanted = None if work_ids is None else list(work_ids)
    where.execute(QUERIES["hand_back"].compose(), {"worker": worker, "work_ids": wanted})


def waiting_for(where: Executor, work_id: int) -> tuple[tuple[int, int, bool], ...]:
    """What can't be done without it: ids of work and of dynamic tables, and whether somebody asked for it; in order."""
    rows = where.execute(QUERIES["waiting_for"].compose(), {"work_id": work_id}).fetchall()
    return tuple((row[0], row[1], row[2]) for row in rows)


def leave(where: Executor, worker: str) -> None:
    """A worker has stopped; what it had may be done by others at once."""
    hand_back(where, worker)
    where.execute(QUERIES["leave"].compose(), {"worker": worker})


def holders(where: Executor) -> tuple[str, ...]:
    """Who has taken work, or said that they live."""
    return tuple(row[0] for row in where.execute(QUERIES["holders"].compose()).fetchall())


def workers(where: Executor) -> tuple[Worker, ...]:
    rows = where.execute(QUERIES["workers"].compose()).fetchall()
    return tuple(Worker(row[0], row[1], tuple(row[2]), *row[3:]) for row in rows)


def depth(where: Executor) -> Mapping[str, tuple[int, float]]:
    """By kind: how much is due, and for how many seconds the oldest that nobody has yet is waiting."""
    return {kind: (count, float(age)) for kind, count, age in where.execute(QUERIES["depth"].compose()).fetchall()}


# ---------------------------------------------------------------- how it went
def failed(where: Executor, dynamic_id: int, b: int, error: type[LakemillError]) -> Failure | None:
    """The scheduled refreshes of this table that failed in a row, this one included; None where it was dropped."""
    values: dict[str, Any] = {"dynamic_id": dynamic_id, "b": b, "code": error.code, "retry": error.retry.value}
    values["blamed"] = list(BLAMED)
    row = where.execute(QUERIES["failed"].compose(), values).fetchone()
    return None if row is None else Failure(row[0], row[1], b, error.retry)


def most_lost(where: Executor, dynamic_id: int, code: str) -> int:
    """The most failures of this code in a row that any other table stands at."""
    row = where.execute(QUERIES["most_lost"].compose(), {"dynamic_id": dynamic_id, "code": code}).fetchone()
    return int(row[0]) if row else 0


def recovered(where: Executor, dynamic_ids: Iterable[int]) -> None:
    where.execute(QUERIES["recovered"].compose(), {"dynamic_ids": list(dynamic_ids)})


def took(where: Executor, dynamic_id: int, time: timedelta) -> None:
    where.execute(QUERIES["took"].compose(), {"dynamic_id": dynamic_id, "took": time})


# ---------------------------------------------------------------- waiting
def tell(where: Executor, channel: str, word: str = "") -> None:
    """With the transaction, where there is one."""
    where.execute("SELECT pg_notify(%s, %s)", (channel, word))


@contextmanager
def listening(conn: Connection, *channels: str) -> Iterator[None]:
    for channel in channels:
        conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
    yield
    if not conn.closed:
        conn.execute("UNLISTEN *")


def heard(conn: psycopg.Connection[Any], seconds: float) -> tuple[str, ...]:
    """What is told until something is, or the time is over."""
    return tuple(told.payload for told in conn.notifies(timeout=seconds, stop_after=1))


def wait(conn: psycopg.Connection[Any], seconds: float) -> bool:
    """Until something is told, or the time is over; whether something was told."""
    return bool(heard(conn, seconds))
