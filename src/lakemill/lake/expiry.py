"""Expiring snapshots: plan what may go, choose it under the pins' lock, and let the extension remove it.

The extension deletes the snapshots and schedules the files that no remaining snapshot shows; it is always given
explicit versions. Between the choice and the removal nobody can pin what was chosen (``store/pins``); what was pinned
or recorded after the plan was made stays. Dynamic tables that were left behind hold nothing, and are STALE. No file is
deleted here: that is cleanup, later.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg

from lakemill.core.changes import DELETES, INSERTS, SHAPES, parse_changes
from lakemill.core.expiry import ExpirePlan, Retained, changed_at, evidence_for, gaps, held_for, plan_expiry
from lakemill.core.names import QualifiedName
from lakemill.core.scan import Snapshot
from lakemill.errors import PublishConflict, SnapshotGone, UnknownSnapshot
from lakemill.lake.catalog import Catalog, reading
from lakemill.lake.duck import LAKE, Connection, explained
from lakemill.lake.scan import Lakefront
from lakemill.store import pins
from lakemill.store import versions as frontiers
from lakemill.store.queries import load_queries

QUERIES = load_queries("upkeep")
_EXPIRE = f"CALL ducklake_expire_snapshots('{LAKE}', versions => $versions::UBIGINT[])"
_TRIES = 5
_CHANGES = INSERTS | DELETES | SHAPES
_FRESH = 200
"""Snapshots that were recorded since the plan was made and are looked at under the lock, which must be short."""


@dataclass(frozen=True, slots=True)
class Expired:
    versions: tuple[int, ...]
    files_scheduled: int
    """Files that no snapshot shows any more; cleanup removes them when no reader can have them open."""


def plan_expire(
    front: Lakefront,
    retention: timedelta,
    *,
    older_than: datetime | None = None,
    versions: Sequence[int] | None = None,
    left_behind: Collection[str] = (),
    retained: Sequence[Retained] = (),
) -> ExpirePlan:
    """What an expiry would remove now, and what it would keep and why.

    Those ``left_behind`` keep nothing; tables that are ``retained`` for longer than others keep what shows their past.
    """
    with reading(front.conn, front.schema) as catalog:
        now = _now(front.conn)
        found = pins.needed_snapshots(front.conn)
        late = {holder: held for holder, held in found.held.items() if holder in left_behind}
        needed = {
            p.snapshot_id: f"recorded position of {p.holder} on table {p.table_id}"
            for p in found.positions
            if p.holder not in late
        }
        needed |= {p.snapshot_id: f"pinned by {p.holder}" + (f": {p.reason}" if p.reason else "") for p in found.pins}
        snapshots = _snapshots(front.conn)
        known = {snapshot.id: snapshot for snapshot in snapshots}
        if versions is not None and (unknown := sorted(set(versions) - set(known))):
            raise UnknownSnapshot(f"there is no snapshot {', '.join(map(str, unknown))}")
        changed = _changed(front.conn, snapshots, retained)
        theirs: dict[int, set[int]] = {}  # a table's past needs nothing to be known of the others
        for table in retained:
            for snapshot_id in held_for(table, snapshots, changed[table.table_id], now):
                if snapshot_id not in needed and known[snapshot_id].time < now - retention:
                    theirs.setdefault(snapshot_id, set()).add(table.table_id)
        reasons = {table.table_id: table.reason for table in retained}
        needed |= {snapshot_id: reasons[min(tables)] for snapshot_id, tables in theirs.items()}
        evidence: dict[int, str] = {}
        for snapshot_id in needed:
            if snapshot_id in known:
                for snapshot in _evidence(front, catalog, known[snapshot_id], theirs.get(snapshot_id)):
                    evidence.setdefault(
                        snapshot, f"its label times deletes for snapshot {snapshot_id}, which is needed"
                    )
        return plan_expiry(
            snapshots,
            now,
            retention,
            needed,
            evidence,
            older_than=older_than,
            versions=versions,
            left_behind=late,
            changed=changed,
        )


def every_table(front: Lakefront) -> list[tuple[int, QualifiedName, int, int | None]]:
    """Every table that some snapshot shows, dropped ones too: its newest name, when it came, and when it went."""
    with reading(front.conn, front.schema):
        rows = front.conn.execute(QUERIES["every_table"].compose()).fetchall()
    return [(table_id, QualifiedName(schema, name), begin, end) for table_id, schema, name, begin, end in rows]


def _changed(
    conn: psycopg.Connection[Any], snapshots: Sequence[Snapshot], retained: Sequence[Retained]
) -> dict[int, frozenset[int]]:
    """By table: the snapshots at which it changed, or may have."""
    if not retained:
        return {}
    labelled: dict[int, set[int]] = {table.table_id: set() for table in retained}
    for snapshot_id, text in conn.execute(QUERIES["labels"].compose()).fetchall():
        told = {change.table_id for change in parse_changes(text) if change.kind in _CHANGES}
        for table_id in labelled if text is None else labelled.keys() & told:
            labelled[table_id].add(snapshot_id)
    gone, missing = pins.gone(conn, labelled), gaps(snapshots)
    return {id_: changed_at(missing, found, gone.get(id_, ())) for id_, found in labelled.items()}


def expire(front: Lakefront, duck: Connection, plan: ExpirePlan) -> Expired:
    """Carry out a plan, but for what somebody has pinned or recorded since it was made; refused where that is all."""
    if plan.empty:
        return Expired((), 0)
    conn, schema = front.conn, front.schema
    with pins.turn(conn):
        chosen = pins.condemn(conn, lambda needed: _chosen(front, plan, needed), catalog_schema=schema)
        if not chosen:
            raise PublishConflict("a snapshot was pinned or recorded since the expiry was planned")
        try:
            before = _scheduled(conn, schema)
            _remove(duck, chosen)
            return Expired(chosen, _scheduled(conn, schema) - before)
        finally:
            pins.absolve(conn, chosen)


def _chosen(front: Lakefront, plan: ExpirePlan, needed: pins.Needed) -> Sequence[int]:
    """What of the plan still goes, under the lock; positions move all the time where tables are refreshed each second.

    Those that it lets go are let go here, in the same transaction; where one of them has moved meanwhile, nothing goes.
    """
    if any(needed.held.get(holder) != held for holder, held in plan.let_go.items()):
        return ()
    held = (p.snapshot_id for p in needed.positions if p.holder not in plan.let_go)
    fresh = {*held, *(pin.snapshot_id for pin in needed.pins)} - set(plan.needed)
    if len(fresh) > _FRESH:
        return ()
    gone = set(plan.versions) - fresh
    if fresh:
        front.conn.execute(QUERIES["find_catalog"].compose(), {"search_path": front.schema})
        catalog = Catalog(front.conn)
        for snapshot_id in fresh:
            with suppress(SnapshotGone, UnknownSnapshot):
                gone -= _evidence(front, catalog, catalog.snapshot(snapshot_id))
    if plan.let_go and not frontiers.let_go(front.conn, plan.let_go):
        return ()
    pins.let_pass(front.conn, gone, {id_: gone & changed for id_, changed in plan.changed.items()}, front.schema)
    return sorted(gone)


def _remove(duck: Connection, versions: Sequence[int]) -> None:
    """A commit that touches the same rows at the same moment makes PostgreSQL refuse one of the two: try again."""
    for attempt in range(1, _TRIES + 1):
        try:
            with explained():
                duck.execute(_EXPIRE, {"versions": list(versions)}).fetchall()
        except PublishConflict:
            if attempt == _TRIES:
                raise
        else:
            return


def _evidence(front: Lakefront, catalog: Catalog, at: Snapshot, only: Collection[int] | None = None) -> set[int]:
    """Snapshots whose labels a read at ``at`` depends on, of all tables or of these."""
    found: set[int] = set()
    rows = front.conn.execute(
        QUERIES["tables_with_later_deletes"].compose(), {"at": at.id, "next_file_id": at.next_file_id}
    ).fetchall()
    for (table_id,) in rows:
        table = catalog.table_by_id(table_id, at.id) if only is None or table_id in only else None
        if table is None:
            continue
        deletes = [delete for delete in catalog.deletes_at(table, at.id) if delete.id >= at.next_file_id]
        stamps = front.stamps.of([delete.path for delete in deletes])
        for delete in deletes:
            own = sorted(stamps[delete.path])
            if own:
                by = catalog.written_by(delete.id)
                labels = catalog.labels(table_id, own[0], by.latest)
                found |= set(evidence_for(own, at.id, catalog.written_by(delete.data_file_id), by, labels))
    return found


def _snapshots(conn: psycopg.Connection[Any]) -> list[Snapshot]:
    return [Snapshot(*row) for row in conn.execute(QUERIES["snapshots"].compose()).fetchall()]


def _now(conn: psycopg.Connection[Any]) -> datetime:
    row = conn.execute(QUERIES["now"].compose()).fetchone()
    assert row is not None  # noqa: S101  (a SELECT of one expression)
    now: datetime = row[0]
    return now


def _scheduled(conn: psycopg.Connection[Any], schema: str) -> int:
    with reading(conn, schema):
        row = conn.execute(QUERIES["scheduled_count"].compose()).fetchone()
    return int(row[0]) if row else 0
