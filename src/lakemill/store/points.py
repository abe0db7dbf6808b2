"""The newest consistent point of each component of the DAG, as it is kept: a version of each of its tables, for one b.

It moves forward only, and as a whole. What it is made of counts as a position of a consumer (``store/pins``): the
commits of its tables, and b itself, where the base tables are read, stay readable under expiry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from psycopg import sql

from lakemill.core.lag import Version
from lakemill.core.names import QualifiedName
from lakemill.core.point import Agreed
from lakemill.store import pins
from lakemill.store.db import Connection, Executor
from lakemill.store.queries import load_queries

QUERIES = load_queries("points")


@dataclass(frozen=True, slots=True)
class NewPoint:
    at: Agreed
    versions: Mapping[int, int]
    """By dynamic table: the id of its version."""


@dataclass(frozen=True, slots=True)
class KeptPoint:
    b: int
    time: datetime
    """When b was committed."""
    t: datetime | None
    kept_at: datetime
    tables: tuple[tuple[QualifiedName, int], ...]
    """The dynamic tables, and the snapshot at which each is to be read; base tables are read at b."""


def candidates(
    where: Executor, dynamic_ids: Iterable[int], catalog_schema: str
) -> Mapping[int, tuple[tuple[int, Version], ...]]:
    """By table: versions that a newer point could be made of, with their ids, oldest first."""
    query = QUERIES["candidates"].compose({"catalog": sql.Identifier(catalog_schema)})
    found: dict[int, list[tuple[int, Version]]] = {}
    for dynamic_id, version_id, *version in where.execute(query, {"dynamic_ids": list(dynamic_ids)}).fetchall():
        found.setdefault(dynamic_id, []).append((version_id, Version(*version)))
    return {dynamic_id: tuple(versions) for dynamic_id, versions in found.items()}


def keep(conn: Connection, points: Sequence[NewPoint], catalog_schema: str) -> bool:
    """These are the newest points now, but for those that can't be read any more.

    False: some were left out, because one of their tables is in somebody's hands.
    """
    wanted = [dynamic_id for point in points for dynamic_id in point.versions]
    with conn.transaction():
        rows = conn.execute(QUERIES["hold_tables"].compose(), {"dynamic_ids": wanted}).fetchall()
        there = {row[0] for row in rows}
        free = [point for point in points if point.versions.keys() <= there]
        pins.lock(conn)
        conn.execute(QUERIES["keep"].compose({"catalog": sql.Identifier(catalog_schema)}), _columns(free))
    return len(free) == len(points)


def _columns(points: Sequence[NewPoint]) -> dict[str, list[Any]]:
    rows = [
        (min(point.versions), dynamic_id, version_id, point.at.b, point.at.t)
        for point in points
        for dynamic_id, version_id in point.versions.items()
    ]
    names = ("components", "dynamic_ids", "version_ids", "bs", "ts")
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def kept(where: Executor) -> tuple[KeptPoint, ...]:
    """All of them, in the order in which their tables were declared."""
    rows = where.execute(QUERIES["kept"].compose()).fetchall()
    found = []
    for (_, b, time, t), own in groupby(rows, key=lambda row: row[:4]):
        placed = [(row[4], QualifiedName(*row[5:7]), row[7]) for row in own]
        kept_at = max(at for at, _, _ in placed)
        found.append(KeptPoint(b, time, t, kept_at, tuple((name, commit) for _, name, commit in placed)))
    return tuple(found)


def of_tables(where: Executor, dynamic_ids: Iterable[int]) -> Mapping[int, int]:
    """The data snapshot of the point of each of these tables that is part of one."""
    rows = where.execute(QUERIES["of_tables"].compose(), {"dynamic_ids": list(dynamic_ids)}).fetchall()
    return {row[0]: row[1] for row in rows}


def holders(where: Executor, dynamic_ids: Iterable[int]) -> frozenset[str]:
    """What the points of these tables are called as consumers."""
    rows = where.execute(QUERIES["holders"].compose(), {"dynamic_ids": list(dynamic_ids)}).fetchall()
    return frozenset(row[0] for row in rows)


def is_point(holder: str) -> bool:
    return holder.startswith("point:")


def let_go(where: Executor, holders: Iterable[str]) -> None:
    """These points are kept no longer."""
    where.execute(QUERIES["let_go"].compose(), {"holders": list(holders)})
