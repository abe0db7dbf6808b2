"""Removing files: those that no snapshot shows any more (cleanup), and those that no catalog row ever named (orphans).

Both plan first, as a frozen value with a reason for every file that stays, and carry out that same value. A file goes
only when nobody can be reading it: long enough after its *removal* from the catalog, not since its writing, and after
every reader that was already at work then. A path that two catalog rows name stays as long as one of them does.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

import psycopg

from lakemill.lake.catalog import reading
from lakemill.lake.expiry import QUERIES
from lakemill.lake.staging import JOB_FOLDER
from lakemill.lake.storage import StoredFile
from lakemill.store import pins

_BATCH = 1000
# What Spark and we ourselves leave behind; any other file under the data path is somebody's own, and stays.
_LEFTOVER = re.compile(r"(\.parquet|\.crc)$|/_SUCCESS$|/_temporary/|/__magic|/\.lakemill-write-check-")

_JOB = re.compile(rf".*/{JOB_FOLDER}[0-9a-f-]{{36}}/")


class Files(Protocol):
    """What upkeep asks of ``lake/storage``."""

    def list(self, prefix: str = "") -> Iterable[StoredFile]: ...
    def delete(self, paths: Iterable[str]) -> None: ...
    def staging(self) -> Sweeper: ...


class Sweeper(Protocol):
    def sweep(self, folder: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Doomed:
    """A file that goes, and why it may."""

    path: str
    since: datetime
    """When it left the catalog (cleanup), or was written (orphans)."""
    reason: str
    id: int | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class KeptFile:
    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class CleanupPlan:
    """``released`` files are named by another row of the catalog: they leave the list of removals, and stay."""

    files: tuple[Doomed, ...]
    kept: tuple[KeptFile, ...]
    released: tuple[Doomed, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.files and not self.released


@dataclass(frozen=True, slots=True)
class OrphanPlan:
    files: tuple[Doomed, ...]
    kept: tuple[KeptFile, ...]

    @property
    def empty(self) -> bool:
        return not self.files

    @property
    def bytes(self) -> int:
        return sum(file.size or 0 for file in self.files)


# ---------------------------------------------------------------- cleanup
def plan_cleanup(conn: psycopg.Connection[Any], schema: str, age: timedelta) -> CleanupPlan:
    """Files that left the catalog longer ago than the longest job, and than every reader at work has been."""
    with reading(conn, schema) as catalog:
        root = {"root": catalog.data_path}
        scheduled = conn.execute(QUERIES["scheduled"].compose(), root).fetchall()
        named = _named(conn, catalog.data_path) if scheduled else set()
        row = conn.execute(QUERIES["now"].compose()).fetchone()
        readers = [pin for pin in pins.needed_snapshots(conn).pins if pin.expires_at is not None]
    assert row is not None  # noqa: S101  (a SELECT of one expression)
    oldest = min(readers, key=lambda pin: pin.created_at, default=None)
    last = {_same(path): since for _, path, since in scheduled}  # they come in the order of their removal
    going, kept, released = [], [], []
    for file_id, path, removed in scheduled:
        since = last[_same(path)]  # a path that was registered twice goes with the second
        if _same(path) in named:
            released.append(Doomed(path, removed, "another row of the catalog names it", file_id))
        elif since > row[0] - age:
            kept.append(KeptFile(path, f"it left the catalog less than {age} ago, so a running job may read it"))
        elif oldest is not None and oldest.created_at <= since:
            kept.append(KeptFile(path, f"it left the catalog while {oldest.holder} was already reading"))
        else:
            why = f"no snapshot has shown it since {since:%Y-%m-%d %H:%M:%S}"
            going.append(Doomed(path, removed, why, file_id))
    return CleanupPlan(tuple(going), tuple(kept), tuple(released))


def clean(conn: psycopg.Connection[Any], schema: str, storage: Files, plan: CleanupPlan) -> int:
    """Delete the files, then their entries; killed in between, the next cleanup finds them gone already.

    It may take long: what somebody has registered again since the plan was made stays.
    """
    _unschedule(conn, schema, plan.released)
    removed = 0
    for start in range(0, len(plan.files), _BATCH):
        batch = plan.files[start : start + _BATCH]
        removed += _delete(conn, schema, storage, batch)
        _unschedule(conn, schema, batch)
    return removed


def _delete(conn: psycopg.Connection[Any], schema: str, storage: Files, files: Sequence[Doomed]) -> int:
    """All but what the catalog names by now; how many."""
    with reading(conn, schema) as catalog:
        named = _named(conn, catalog.data_path, [posixpath.basename(file.path) for file in files])
    going = [file.path for file in files if _same(file.path) not in named]
    storage.delete(going)
    return len(going)


def _named(conn: psycopg.Connection[Any], root: str, names: Iterable[str] | None = None) -> set[str]:
    """The files that the catalog names; of all, or of those that are called like this."""
    values = {"root": root, "names": None if names is None else list(names)}
    return {_same(row[0]) for row in conn.execute(QUERIES["referenced"].compose(), values)}


def _unschedule(conn: psycopg.Connection[Any], schema: str, files: Iterable[Doomed]) -> None:
    gone = list(files)
    if not gone:
        return
    with conn.transaction(), psycopg.ClientCursor(conn) as cursor:
        cursor.execute(QUERIES["set_search_path"].compose(), {"schema": schema})
        values = {"ids": [file.id for file in gone], "since": [file.since for file in gone]}
        cursor.execute(QUERIES["unschedule"].compose(), values)


# ---------------------------------------------------------------- orphans
def plan_orphans(conn: psycopg.Connection[Any], schema: str, storage: Files, age: timedelta) -> OrphanPlan:
    """Files below the data path that the catalog does not know and that no job can still be about to publish."""
    found = list(storage.list())  # before the catalog is asked: what is published meanwhile is known then
    with reading(conn, schema) as catalog:
        root = {"root": catalog.data_path}
        named = _named(conn, catalog.data_path)
        named |= {_same(row[1]) for row in conn.execute(QUERIES["scheduled"].compose(), root)}
        row = conn.execute(QUERIES["now"].compose()).fetchone()
    assert row is not None  # noqa: S101  (a SELECT of one expression)
    going, kept = [], []
    for file in found:
        if _same(file.path) in named:
            continue
        if not _LEFTOVER.search(file.path):
            kept.append(KeptFile(file.path, "it is not a file that a lake's writers make"))
        elif file.modified > row[0] - age:
            kept.append(KeptFile(file.path, f"it is younger than {age}, so a running job may still publish it"))
        else:
            going.append(Doomed(file.path, file.modified, "no row of the catalog names it", size=file.size))
    return OrphanPlan(tuple(going), tuple(kept))


def remove_orphans(conn: psycopg.Connection[Any], schema: str, storage: Files, plan: OrphanPlan) -> int:
    """Delete them, but for what somebody has registered since the plan was made."""
    removed = 0
    for start in range(0, len(plan.files), _BATCH):
        removed += _delete(conn, schema, storage, plan.files[start : start + _BATCH])
    sweeper = storage.staging()
    for folder in sorted({match[0] for file in plan.files if (match := _JOB.match(file.path))}):
        sweeper.sweep(folder)
    return removed


def _same(path: str) -> str:
    """One spelling per file: the catalog joins folders by hand, storages list what is there."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return posixpath.normpath(path)
    return ("s3" if scheme in ("s3a", "s3n") else scheme) + "://" + posixpath.normpath(rest)
