"""The barrier: wait until a token is visible in tables that a query reads, and say at which snapshot.

A base table shows a token when nothing at or below it waits there. A dynamic table does when, besides, its data
snapshot has come to the last one that published such a token in any table that it reaches. All of it, and the newest
snapshot, is read in one transaction: whoever reads at that snapshot reads what the barrier saw. It starts no refresh.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING

from lakemill.core.names import QualifiedName
from lakemill.core.refresh import State
from lakemill.core.scan import Snapshot
from lakemill.errors import BadArgument, ConsistencyTimeout, LakemillError, TableSuspended, UnknownTable
from lakemill.runtime.buses import consumer
from lakemill.runtime.ears import listening
from lakemill.runtime.standings import Looks, raise_idle
from lakemill.store import db, definitions, watermarks
from lakemill.store.watermarks import Reached

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake

POLL = 1.0
"""Seconds between looks where nobody tells of anything."""
_GO_ON = (State.ACTIVE.value, State.PENDING_INIT.value)


@dataclass(frozen=True, slots=True)
class Seen:
    """How far a token is, at one moment."""

    snapshot: Snapshot
    """The newest one then."""
    watermark: int
    waits_for: tuple[str, ...]
    """Tables that do not show it yet; none: a reader at the snapshot sees it."""
    behind: tuple[int, ...]
    """Versions of dynamic tables among them."""


class Visibility(Enum):
    PENDING = "pending"
    PARTLY = "partly"
    """All of it is passed; some records are dead letters."""
    VISIBLE = "visible"


@dataclass(frozen=True, slots=True)
class Status:
    visibility: Visibility
    snapshot_id: int | None
    """The first one that shows all of it, as far as the ledger tells; None while it waits, or where nothing changed."""
    letters: int
    watermark: int


def wait(
    lend: Callable[[], AbstractContextManager[Lake]],
    token: int,
    names: Sequence[QualifiedName],
    timeout: timedelta,
    stopped: Callable[[], LakemillError | None] = lambda: None,
) -> Snapshot:
    """Until all these tables show the token: the snapshot to read at. A suspended table on the way is told at once.

    ``lend`` gives a lake for a moment: who waits holds none, or a few who wait would keep all others from theirs.
    ``stopped`` is asked now and then why not to wait any longer.
    """
    deadline = time.monotonic() + timeout.total_seconds()
    with lend() as lake:
        dsn, seen = lake.dsn, look(lake, token, names)
        if not seen.waits_for:
            return seen.snapshot
        if seen.behind:
            raise_idle(lake, Looks(lake).look(), frozenset(seen.behind))
    with listening(dsn) as ears:
        while True:
            if (why := stopped()) is not None:
                raise why
            number = ears.number
            with lend() as lake:
                seen = look(lake, token, names)
            if not seen.waits_for:
                return seen.snapshot
            left = deadline - time.monotonic()
            if left <= 0:
                raise ConsistencyTimeout(
                    f"not visible after {timeout.total_seconds():g} s in {', '.join(seen.waits_for)}",
                    watermark=seen.watermark,
                )
            ears.wait(number, min(POLL, left))


def passed(
    dsn: str, connect: Callable[[], AbstractContextManager[db.Connection]], table_id: int, token: int, seconds: float
) -> bool:
    """For a writer: whether its table has passed the token by then. ``connect`` lends a connection for a moment."""
    deadline = time.monotonic() + seconds
    with listening(dsn) as ears:
        while True:
            number = ears.number
            with connect() as conn:
                if not consumer(conn, dsn).not_passed(token, {table_id}):
                    return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            ears.wait(number, min(POLL, left))


def look(lake: Lake, token: int, names: Sequence[QualifiedName]) -> Seen:
    """How far these tables are, all at one moment."""
    with lake.catalog() as catalog:
        snapshot = catalog.head()
        head = watermarks.head(lake.conn)
        if token > head.token:
            raise BadArgument(f"token {token} was not given out yet; the last one is {head.token}", place="token")
        dynamic, bases = [], {}
        for name in names:
            found = definitions.find(lake.conn, name)
            if found is not None:
                dynamic.append(found.id)
            elif (table_id := catalog.table_id(name.schema, name.name, snapshot.id)) is not None:
                bases[table_id] = str(name)
            else:
                raise UnknownTable(f"there is no table {name}")
        reached = watermarks.reached(lake.conn, dynamic)
        below = {table_id for one in reached for table_id in one.bases}
        waiting = set(lake.consumer.not_passed(token, {*bases, *below}))
        shown = watermarks.shown_by(lake.conn, token, below)
    late = [one for id_ in dynamic if (one := _late(id_, reached, waiting, shown)) is not None]
    waits_for = (*(name for id_, name in bases.items() if id_ in waiting), *(one.name for one in late))
    behind = tuple(one.version_id for one in late if one.version_id is not None)
    return Seen(snapshot, head.watermark, waits_for, behind)


def _late(dynamic_id: int, reached: Iterable[Reached], waiting: set[int], shown: Mapping[int, int]) -> Reached | None:
    """The table, where it does not show what is asked for; an error where it never will by itself."""
    parts = [one for one in reached if one.wanted == dynamic_id]
    own = next(one for one in parts if one.dynamic_id == dynamic_id)
    bases = {table_id for one in parts for table_id in one.bases}
    needed = max((shown[table_id] for table_id in bases if table_id in shown), default=0)
    if not bases & waiting and own.b_hi is not None and own.b_hi >= needed:
        return None
    for one in parts:
        if one.state not in _GO_ON:
            through = "" if one.dynamic_id == dynamic_id else f", which {own.name} reads,"
            raise TableSuspended(f"{one.name}{through} is {one.state}, and has not seen the token", place=own.name)
    return own


def status(lake: Lake, token: int, table_ids: Iterable[int] | None = None) -> Status:
    """How far a request is, in these tables or in all: whether it is passed, and how many of its records died."""
    tables = None if table_ids is None else list(table_ids)
    with lake.catalog():
        head = watermarks.head(lake.conn)
        if token > head.token:
            raise BadArgument(f"token {token} was not given out yet; the last one is {head.token}", place="token")
        waiting = lake.consumer.not_passed(token, tables)
        letters = watermarks.letters_of(lake.conn, token, tables)
        shown = watermarks.shown_by(lake.conn, token, tables)
    if waiting:
        return Status(Visibility.PENDING, None, letters, head.watermark)
    how = Visibility.PARTLY if letters else Visibility.VISIBLE
    return Status(how, max(shown.values(), default=None), letters, head.watermark)
