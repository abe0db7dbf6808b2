"""A consistent point: for one data snapshot b, the snapshot of the lake at which each table is right for it.

A base table is right at b itself, a dynamic table at the commit of the version that holds b. Whoever reads each table
there sees one state of the world, whatever was refreshed when. The snapshots are pinned, so that they can be read for a
while. Tables whose past stock DuckDB does not read rightly are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lakemill.core.names import MAIN, QualifiedName, quote
from lakemill.core.point import Agreed, agree
from lakemill.errors import NoCommonPoint, UnknownTable
from lakemill.lake.duck import LAKE
from lakemill.runtime.claiming import holder
from lakemill.runtime.standings import Looks, raise_idle
from lakemill.runtime.verify import require_trusted_past
from lakemill.store import definitions, pins, versions

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake


@dataclass(frozen=True, slots=True)
class Placed:
    name: QualifiedName
    dynamic: bool
    snapshot: int
    """Of the lake: where the table is to be read."""
    then: QualifiedName
    """What it is called there; tables are renamed, and their past keeps the old name."""

    @property
    def view(self) -> str:
        """The statement with which a stock DuckDB session reads the table there, under its own name."""
        there = f"FROM {LAKE}.{self.then} AT (VERSION => {self.snapshot})"
        return f"CREATE OR REPLACE VIEW memory.{self.name} AS {there};"


@dataclass(frozen=True, slots=True)
class Point:
    b: int
    time: datetime
    tables: tuple[Placed, ...]
    pinned_until: datetime | None

    @property
    def sql(self) -> str:
        """Views for one session that has the lake attached; afterwards its tables are those of the point."""
        schemas = {table.name.key[0]: table.name.schema for table in self.tables}
        return "\n".join(
            [
                "SET disabled_optimizers = 'statistics_propagation';",  # stock DuckDB can misread the past with it
                *(
                    f"CREATE SCHEMA IF NOT EXISTS memory.{quote(schema)};"
                    for key, schema in schemas.items()
                    if key != MAIN
                ),
                *(table.view for table in self.tables),
                "USE memory;",
            ]
        )


def point(lake: Lake, names: Sequence[QualifiedName], ttl: timedelta, by: str | None = None) -> Point:
    """The newest point of these tables, dynamic ones and others, pinned for ``ttl``; ``by``: who holds the pins."""
    found = [(name, definitions.find(lake.conn, name)) for name in names]
    tables = [table for _, table in found if table is not None]
    if tables:  # what nothing happened to is right at the newest snapshot, too
        look = Looks(lake).look()
        raise_idle(lake, look, {one.version_id for one in look.known.values() if one.id in {own.id for own in tables}})
    known = versions.versions(lake.conn, [table.id for table in tables])
    if never := [str(table.name) for table in tables if table.id not in known]:
        raise NoCommonPoint(f"{', '.join(never)}: never loaded", remedy=f"lakemill refresh {' '.join(never)}")
    agreed = agree([known[table.id] for table in tables]) if tables else Agreed(lake.snapshot().id)
    if agreed is None:
        raise NoCommonPoint(f"{', '.join(map(str, names))} hold no data snapshot in common")
    b, t = agreed.b, agreed.t
    placed = []
    for name, table in found:
        commit, table_id = b, None
        if table is not None:
            version = versions.version_at(lake.conn, table.id, b, t)
            if version is None:
                raise NoCommonPoint(f"{table.name} moved on meanwhile", remedy="try again")
            commit, table_id = version.commit, version.table_id
        then = _named_at(lake, name, table_id, commit)
        require_trusted_past(lake, then, commit)
        placed.append(Placed(name, table is not None, commit, then))
    schema = lake.settings.lake.catalog_schema
    pinned = [
        pins.pin(lake.conn, snapshot, by or holder(), "point", ttl, catalog_schema=schema)
        for snapshot in sorted({place.snapshot for place in placed})
    ]
    return Point(b, lake.snapshot(b).time, tuple(placed), pinned[0].expires_at if pinned else None)


def _named_at(lake: Lake, name: QualifiedName, table_id: int | None, commit: int) -> QualifiedName:
    """What the table that has this name today is called at a commit; where it was not there, what had the name."""
    with lake.catalog() as catalog:
        head = catalog.head().id
        if table_id is None:
            table_id = catalog.table_id(name.schema, name.name, head)
        if table_id is None and catalog.view(name.schema, name.name, head) is not None:
            raise UnknownTable(
                f"{name} is a view, which keeps no rows of its own",
                remedy="name the tables that it reads, and read the view's query over them",
            )
        found = None if table_id is None else catalog.table_by_id(table_id, commit)
        found = found or catalog.table(name.schema, name.name, commit)
    return QualifiedName(found.schema, found.name)
