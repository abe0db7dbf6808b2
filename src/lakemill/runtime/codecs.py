"""What each table accepts, kept at hand: its columns as a codec, its key and policy, its defaults as values.

Between a request and ``core/records``. A codec is used for a second without asking the catalog; a record that does not
fit makes it ask at once, so that a new column is known as soon as somebody sends it. What slips through is checked
again when it becomes a row.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakemill.core.names import QualifiedName
from lakemill.core.records import Records
from lakemill.core.scan import TableAt
from lakemill.core.schema import Column, duck_type
from lakemill.errors import EngineLost, LakemillError, NoIngestTable, StoreUnavailable, UnknownColumn
from lakemill.lake import duck
from lakemill.store import db
from lakemill.store import ingest as store
from lakemill.store.ingest import IngestTable, Policy

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake


@dataclass(frozen=True, slots=True)
class Codec:
    """A table as requests need it."""

    table: TableAt
    ingest: IngestTable
    records: Records
    volatile: dict[str, str]
    """Defaults that differ from record to record: column → expression."""


@dataclass(frozen=True, slots=True)
class _Kept:
    codec: Codec
    schema_version: int
    asked_at: float


class Codecs:
    """For any number of threads; the lake is used by one at a time."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.lock = lake, threading.RLock()
        self._age = lake.settings.ingest.columns_age.total_seconds()
        self._schema = lake.settings.lake.catalog_schema
        self._kept: dict[QualifiedName, _Kept] = {}

    @contextmanager
    def turn(self) -> Iterator[Lake]:
        """The lake, for this thread alone; after its connections were lost the next one finds new ones."""
        with self.lock:
            try:
                yield self.lake
            except (*db.LOST, StoreUnavailable, EngineLost) as error:
                self.lake.renew_conn()
                self.lake.renew_duck()
                raise error if isinstance(error, LakemillError) else db.unavailable(error) from error

    def get(self, name: QualifiedName, *, fresh: bool = False) -> Codec:
        """``fresh``: the catalog is asked, whatever is kept."""
        kept = self._kept.get(name)
        if kept is not None and not fresh and time.monotonic() - kept.asked_at < self._age:
            return kept.codec
        try:
            with self.turn():
                return self._load(name, self._kept.get(name))
        except StoreUnavailable:  # lost since the last request
            with self.turn():
                return self._load(name, self._kept.get(name))

    def forget(self, name: QualifiedName) -> None:
        """It was altered here: the next request asks the catalog."""
        self._kept.pop(name, None)

    def _load(self, name: QualifiedName, kept: _Kept | None) -> Codec:
        now, conn = time.monotonic(), self.lake.conn
        with self.lake.catalog() as catalog:
            head = catalog.head()
            table_id = catalog.table_id(name.schema, name.name, head.id)
            ingest = () if table_id is None else store.tables(conn, self._schema, table_id)
            if table_id is None or not ingest:
                self._kept.pop(name, None)
                table_at = catalog.table(name.schema, name.name, head.id)  # raises where there is none
                raise NoIngestTable(f"{table_at.full_name} takes no requests")
            if kept and kept.schema_version == head.schema_version and _same(kept.codec.ingest, ingest[0]):
                self._kept[name] = _Kept(kept.codec, kept.schema_version, now)
                return kept.codec
            table = catalog.table(name.schema, name.name, head.id)
            expressions = store.expression_defaults(conn, self._schema, table_id)
        codec = self._make(table, ingest[0], expressions)
        self._kept[name] = _Kept(codec, head.schema_version, now)
        return codec

    def _make(self, table: TableAt, ingest: IngestTable, expressions: frozenset[int]) -> Codec:
        lacking = set(ingest.key) - {column.name for column in table.columns}
        if lacking:
            raise UnknownColumn(
                f"the key of {table.full_name} names {', '.join(lacking)}", remedy="give it another key"
            )
        defaults: dict[str, bytes] = {}
        volatile: dict[str, str] = {}
        for column in table.columns:
            if column.default is None or column.default == "NULL":
                continue
            if column.id not in expressions:
                defaults[column.name] = self.values(column, duck.literal(column.default), 1)[0]
            elif column.default.startswith("CAST("):
                defaults[column.name] = self.values(column, column.default, 1)[0]
            else:
                volatile[column.name] = column.default
        drops = ingest.policy is Policy.DROP_FIELD
        records = Records(table.columns, ingest.key, drop_unknown=drops, defaults=defaults, volatile=volatile)
        return Codec(table, ingest, records, volatile)

    def volatile(self, codec: Codec, name: str, count: int) -> Sequence[bytes]:
        """Values of a default that DuckDB computes, one a record."""
        column = next(column for column in codec.table.columns if column.name == name)
        return self.values(column, codec.volatile[name], count)

    def values(self, column: Column, expression: str, count: int) -> Sequence[bytes]:
        """An expression of the catalog, as JSON."""
        cast = f"CAST({expression} AS {duck_type(column)})"
        shown = f"base64({cast})" if column.type == "blob" else cast
        with self.turn() as lake:
            query = f"SELECT to_json({shown})::VARCHAR FROM range({count:d})"  # noqa: S608 - the catalog's own expression
            rows = lake.sql(query).fetchall()
        return [str(row[0]).encode() for row in rows]


def _same(one: IngestTable, other: IngestTable) -> bool:
    return (one.table_id, one.key, one.policy) == (other.table_id, other.key, other.policy)
