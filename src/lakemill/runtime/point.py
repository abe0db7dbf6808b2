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

from lakemill.core.lag import Commit, Standing, largest_common
from lakemill.core.names import MAIN, QualifiedName, quote
from lakemill.errors import NoCommonPoint
from lakemill.lake.duck import LAKE
from lakemill.runtime.claiming import holder
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

    @property
    def view(self) -> str:
        """The statement with which a stock DuckDB session reads the table there, under its own name."""
        there = f"FROM {LAKE}.{self.name} AT (VERSION => {self.snapshot})"
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
    known = versions.versions(lake.conn, [table.id for table in tables])
    if never := [str(table.name) for table in tables if table.id not in known]:
        raise NoCommonPoint(f"{', '.join(never)}: never loaded", remedy=f"lakemill refresh {' '.join(never)}")
    head = lake.snapshot()
    standings = []
    for own in tables:
        held = known.get(own.id, ())
        # as far as a version is known to hold, and no further
        standings.append(Standing(own.name, held, Commit(held[-1].b_hi + 1, head.time) if held else None))
    # versions that depend on the clock are right together where they were computed for the same time
    times = sorted({version.t for held in known.values() for version in held if version.t is not None}, reverse=True)
    candidates = ((largest_common(standings, head.id, t), t) for t in times or (None,))
    b, t = next(((b, t) for b, t in candidates if b is not None), (None, None))
    if b is None:
        raise NoCommonPoint(f"{', '.join(map(str, names))} hold no data snapshot in common")
    placed = []
    for name, table in found:
        commit = b
        if table is not None:
            version = versions.version_at(lake.conn, table.id, b, t)
            if version is None:
                raise NoCommonPoint(f"{table.name} depends on the clock, so it is right at no other table's snapshot")
            commit = version.commit
        require_trusted_past(lake, name, commit)
        placed.append(Placed(name, table is not None, commit))
    schema = lake.settings.lake.catalog_schema
    pinned = [
        pins.pin(lake.conn, snapshot, by or holder(), "point", ttl, catalog_schema=schema)
        for snapshot in sorted({place.snapshot for place in placed})
    ]
    return Point(b, lake.snapshot(b).time, tuple(placed), pinned[0].expires_at if pinned else None)
