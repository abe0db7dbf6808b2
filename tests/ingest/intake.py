"""What tests of the materialising half share: a lake with tables that take requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakemill.core.records import columns_version
from lakemill.core.schema import Column
from lakemill.runtime.materialise import Passed, materialise
from lakemill.runtime.open import Lake
from tests.ingest.requests import Record, line, put, take


class Intake:
    """A lake with tables that take requests."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake

    def table(self, name: str, columns: str, *, key: Sequence[str] = (), policy: str = "reject", by: str = "") -> int:
        """A new table that takes requests; its id."""
        self.lake.sql(f"CREATE TABLE {name} ({columns})")
        if by:
            self.lake.sql(f"ALTER TABLE {name} SET PARTITIONED BY ({by})")
        table_id = self.lake.table(name).describe().id
        take(self.lake.conn, table_id, key, policy)
        return table_id

    def columns(self, name: str) -> tuple[Column, ...]:
        return self.lake.table(name).describe().columns

    def send(self, name: str, *records: Record, columns: tuple[Column, ...] | None = None) -> int:
        """One request; its token. ``columns``: those of the time when it was accepted."""
        found = self.lake.table(name).describe()
        version = columns_version(found.columns if columns is None else columns)
        return put(self.lake.conn, found.id, [[line(one) for one in records]], version)[0]

    def make(self, name: str) -> Passed:
        """The next batch, which must come about."""
        passed = materialise(self.lake, self.lake.table(name).describe().id)
        assert passed is not None, self.rows("SELECT reason FROM lakemill.ingest_tables")
        return passed

    def over(self) -> None:
        """The pause after an attempt in vain, however short, is over."""
        self.lake.conn.execute("UPDATE lakemill.ingest_tables SET not_before = '-infinity'")

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Of PostgreSQL."""
        return self.lake.conn.execute(query, values).fetchall()

    def letters(self) -> list[tuple[Any, ...]]:
        return self.rows("SELECT token, position, code, place, reason FROM lakemill.dead_letters ORDER BY 1, 2")

    def stock(self, query: str) -> list[tuple[Any, ...]]:
        """What DuckDB says of the lake now."""
        self.lake.renew_duck()
        return self.lake.sql(query).fetchall()
