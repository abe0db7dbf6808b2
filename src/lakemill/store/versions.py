"""Which commit of a dynamic table is right for which data snapshots, and the frontier: the newest, with what it read.

A refresh ends here: inside its publish it moves the frontier, which holds it to the definition, the frontier and the b
that it was planned with. A refresh that finds nothing new raises b_hi instead. The data snapshot never decreases.
Whether nothing changed is for the caller to know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lakemill.core.lag import Seen, Version
from lakemill.errors import DefinitionChanged, FrontierMoved
from lakemill.store import pins, points
from lakemill.store.db import Connection, Executor
from lakemill.store.queries import load_queries

QUERIES = load_queries("versions")


@dataclass(frozen=True, slots=True)
class SourceRead:
    """What a version read of one table of the lake: its next delta starts at ``commit``."""

    table_id: int
    columns_version: int
    commit: int
    rows: int | None = None
    """Visible ones; None: not counted."""


@dataclass(frozen=True, slots=True)
class Frontier:
    version_id: int
    version: Version
    b_time: datetime
    """When the data snapshot was committed."""
    sources: tuple[SourceRead, ...]
    states: tuple[SourceRead, ...] = ()
    """Its hidden states, in the order of their numbers, as its last commit left them."""


# ---------------------------------------------------------------- writing, inside a publish
def move_frontier(
    where: Executor,
    dynamic_id: int,
    version: Version,
    b_time: datetime,
    sources: Sequence[SourceRead],
    expected: int | None,
    states: Sequence[SourceRead] = (),
) -> int:
    """Add a version and make it the current one; its id.

    ``expected`` is the version id of the frontier that the refresh was planned with, None for a first load. Refused
    when the definition or the frontier is another by now. A table that was waiting for its first load is ACTIVE then.
    """
    reads = (*sources, *states)
    values = {
        "dynamic_id": dynamic_id,
        "commit": version.commit,
        "b_lo": version.b_lo,
        "b_hi": version.b_hi,
        "b_time": b_time,
        "t": version.t,
        "definition_version": version.definition_version,
        "table_id": version.table_id,
        "expected": expected,
        "table_ids": [read.table_id for read in reads],
        "columns_versions": [read.columns_version for read in reads],
        "commits": [read.commit for read in reads],
        "row_counts": [read.rows for read in reads],
        "states": [*(None for _ in sources), *range(len(states))],
    }
    row = where.execute(QUERIES["move_frontier"].compose(), values).fetchone()
    if row is None:
        raise _refusal(where, dynamic_id, version, expected)
    return int(row[0])


def _refusal(
    where: Executor, dynamic_id: int, version: Version, expected: int | None
) -> DefinitionChanged | FrontierMoved:
    row = where.execute(QUERIES["why_not"].compose(), {"dynamic_id": dynamic_id}).fetchone()
    if row is None:
        return DefinitionChanged("the dynamic table was dropped")
    definition_version, current, b = row
    if definition_version != version.definition_version:
        return DefinitionChanged("the dynamic table was altered")
    if current != expected:
        return FrontierMoved(f"the dynamic table was refreshed meanwhile, to data snapshot {b}")
    return FrontierMoved(f"the dynamic table is at data snapshot {b} already, and can't go back to {version.b_lo}")


def raise_b_hi(where: Executor, version_ids: Iterable[int], b: int, b_time: datetime) -> frozenset[int]:
    """These versions are right up to ``b`` too; those that were raised: current ones that do not depend on the clock.

    Only when no base table that they reach changed in (b_hi, b], and nobody else wrote the tables.
    """
    values = {"version_ids": list(version_ids), "b": b, "b_time": b_time}
    return frozenset(row[0] for row in where.execute(QUERIES["raise_b_hi"].compose(), values).fetchall())


def raise_idle(
    conn: Connection, version_ids: Iterable[int], b: int, b_time: datetime, catalog_schema: str = "public"
) -> int:
    """Versions of tables that nothing happened to, none that they read and not they themselves: all at once; how many.

    Their versions are right up to ``b``, their next deltas start there, and expiry need not keep what was before.
    """
    wanted = {"version_ids": list(version_ids)}
    with conn.transaction():
        # claims first, as everybody who moves these rows does; those that somebody has are left to them
        free = [row[0] for row in conn.execute(QUERIES["lock_idle"].compose(), wanted).fetchall()]
        values = {"version_ids": free, "b": b, "b_time": b_time}
        pins.lock_usable(conn, b, catalog_schema)
        return conn.execute(QUERIES["raise_idle"].compose(), values).rowcount


def let_go(where: Executor, holders: Collection[str]) -> bool:
    """Inside a transaction: these tables are STALE and hold no snapshot; False, and nothing done, where one is busy.

    Points among them are kept no longer.
    """
    wanted = [holder for holder in holders if not points.is_point(holder)]
    free = [row[0] for row in where.execute(QUERIES["lock_stale"].compose(), {"holders": wanted}).fetchall()]
    if len(free) < len(wanted):
        return False
    where.execute(QUERIES["let_go"].compose(), {"dynamic_ids": free})
    points.let_go(where, holders)
    return True


def advance_sources(where: Executor, dynamic_id: int, table_ids: Iterable[int], b: int) -> None:
    """These tables are at ``b`` what they were when the current version read them: the next delta starts there."""
    values = {"dynamic_id": dynamic_id, "table_ids": list(table_ids), "b": b}
    where.execute(QUERIES["advance_sources"].compose(), values)


# ---------------------------------------------------------------- reading
def frontier(where: Executor, dynamic_id: int) -> Frontier | None:
    """None while the table was never loaded."""
    return frontiers(where, [dynamic_id]).get(dynamic_id)


def frontiers(where: Executor, dynamic_ids: Iterable[int]) -> Mapping[int, Frontier]:
    """Of those that were loaded."""
    values = {"dynamic_ids": list(dynamic_ids)}
    rows = where.execute(QUERIES["frontiers"].compose(), values).fetchall()
    reads: dict[int, list[tuple[bool, SourceRead]]] = {}
    for dynamic_id, state, *read in where.execute(QUERIES["frontier_sources"].compose(), values).fetchall():
        reads.setdefault(dynamic_id, []).append((state, SourceRead(*read)))
    found = {}
    for dynamic_id, version_id, *version, b_time in rows:
        own = reads.get(dynamic_id, [])
        sources, states = (tuple(read for state, read in own if state is kind) for kind in (False, True))
        found[dynamic_id] = Frontier(version_id, Version(*version), b_time, sources, states)
    return found


def version_at(where: Executor, dynamic_id: int, b: int, t: datetime | None = None) -> Version | None:
    """A version whose [b_lo, b_hi] holds ``b``, the newest; where the content depends on the clock, at ``t``."""
    values = {"dynamic_id": dynamic_id, "b": b, "t": t}
    return _version(where.execute(QUERIES["version_at"].compose(), values).fetchone())


def version_visible(where: Executor, dynamic_id: int, snapshot: int) -> Version | None:
    """The version that a reader of the lake sees at a catalog snapshot."""
    values = {"dynamic_id": dynamic_id, "snapshot": snapshot}
    return _version(where.execute(QUERIES["version_visible"].compose(), values).fetchone())


def versions(where: Executor, dynamic_ids: Iterable[int] | None = None) -> Mapping[int, tuple[Version, ...]]:
    """By table, oldest first, as ``core/lag`` wants them; of all tables when None."""
    values = {"dynamic_ids": None if dynamic_ids is None else list(dynamic_ids)}
    found: dict[int, list[Version]] = {}
    for dynamic_id, _, *row in where.execute(QUERIES["versions"].compose(), values).fetchall():
        found.setdefault(dynamic_id, []).append(Version(*row))
    return {dynamic_id: tuple(rows) for dynamic_id, rows in found.items()}


def seen(where: Executor, dynamic_id: int, since: datetime) -> tuple[Seen, ...]:
    """The versions of a time, and the last before it, as ``core/lag`` looks back on them."""
    values = {"dynamic_id": dynamic_id, "since": since}
    return tuple(Seen(*row) for row in where.execute(QUERIES["seen"].compose(), values).fetchall())


def forget_versions(where: Executor, oldest: int) -> int:
    """Versions that end before the oldest snapshot of the lake can't be read any more; how many went."""
    return where.execute(QUERIES["forget_versions"].compose(), {"oldest": oldest}).rowcount


def _version(row: Sequence[Any] | None) -> Version | None:
    return None if row is None else Version(*row[1:])
