"""Tables that take requests: made, adopted, altered and dropped, each through the lake's own DDL.

The lake has the columns and partitions, ``store/ingest`` has what requests need: the key, the policy for records that
don't fit, windows. The two are written one after the other, the lake first; where somebody dies in between, the same
call again completes it. Requests themselves are ``runtime/ingest``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from lakemill.core.names import HIDDEN, QualifiedName, fold, quote
from lakemill.core.records import Records
from lakemill.core.scan import TableAt
from lakemill.core.schema import Column
from lakemill.errors import (
    BadArgument,
    HasDependents,
    NoIngestTable,
    RequestsPending,
    TableExists,
    UnknownColumn,
    UnknownTable,
    UnsupportedType,
)
from lakemill.lake import tables as lake_tables
from lakemill.lake.tables import Alteration, Declared, DropColumn, Rename
from lakemill.store import definitions
from lakemill.store import ingest as store
from lakemill.store.ingest import DEDUPE, IngestTable, Policy

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake


def create(
    lake: Lake,
    name: QualifiedName,
    columns: Sequence[Declared] = (),
    *,
    key: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    policy: Policy = Policy.REJECT,
    dedupe: timedelta = DEDUPE,
    retention: timedelta | None = None,
    adopt: bool = False,
) -> IngestTable:
    """A new table, or with ``adopt`` one that is there: from now on it takes requests."""
    if fold(name.schema) == HIDDEN or name.name.startswith(lake_tables.GENERATION_PREFIX):
        raise BadArgument(f"{name} is a name of Lakemill's own", remedy="choose another schema")
    if definitions.find(lake.conn, name) is not None:
        raise TableExists(f"{name} is a dynamic table: its query says what it holds", remedy="choose another name")
    if not adopt:
        _key_of([column.name for column in columns], key)
        if find_lake_table(lake, name) is not None:
            raise TableExists(f"there is a table {name}", remedy="adopt it (--adopt), or choose another name")
        lake_tables.create_table(lake.duck, name.schema, name.name, columns, partition_by)
    elif columns or partition_by:
        raise BadArgument("a table that is adopted has its columns and partitions", remedy="leave them out")
    try:
        table = _described(lake, name)
        key = _key_of([column.name for column in table.columns], key)
        _checked(table.columns, key)
        if adopt and key:
            _require_unique(lake, name, key)
        added = store.add(lake.conn, table.id, key, policy, dedupe, retention)
        found = get(lake, name)
    except (BadArgument, UnknownColumn, UnsupportedType):
        if not adopt:  # what is refused leaves nothing
            lake_tables.drop_table(lake.duck, name.schema, name.name)
        raise
    if not added and (not adopt or tuple(key or found.key) != found.key):
        under = f"under the key {', '.join(found.key)}" if found.key else "without a key"
        raise TableExists(f"{name} takes requests already, {under}", remedy="alter it instead")
    return found


def get(lake: Lake, name: QualifiedName) -> IngestTable:
    """One that takes requests."""
    table = find_lake_table(lake, name)
    if table is None:
        raise UnknownTable(f"there is no table {name}")
    found = store.tables(lake.conn, lake.settings.lake.catalog_schema, table)
    if not found:
        raise NoIngestTable(f"{name} takes no requests")
    return found[0]


def list_all(lake: Lake) -> tuple[IngestTable, ...]:
    return store.tables(lake.conn, lake.settings.lake.catalog_schema)


def alter(
    lake: Lake,
    name: QualifiedName,
    alterations: Sequence[Alteration] = (),
    *,
    key: Sequence[str] | None = None,
    policy: Policy | None = None,
    dedupe: timedelta | None = None,
    retention: timedelta | None = None,
) -> IngestTable:
    """Columns first, as one snapshot; then what is accepted."""
    table = get(lake, name)
    columns = _described(lake, name).columns
    new_key = _key_of([column.name for column in columns], key) if key is not None else list(table.key)
    for one in alterations:
        if isinstance(one, DropColumn) and fold(one.column) in map(fold, new_key):
            raise BadArgument(f"{one.column} is part of the key", remedy="give the table another key first")
        if isinstance(one, Rename):
            new_key = [one.to if fold(part) == fold(one.column) else part for part in new_key]
        if isinstance(one, Declared) and one.not_null:
            raise BadArgument(
                f"{one.name}: a column that is added is NULL in the rows that are there", remedy="leave out NOT NULL"
            )
    if key:
        _checked(columns, new_key)
        _require_unique(lake, name, key)
    if key is not None and store.pending(lake.conn, table.table_id):  # before the columns are others
        raise _pending(name)
    if alterations:
        lake_tables.alter_table(lake.duck, name.schema, name.name, alterations)
    with lake.conn.transaction():
        store.lock(lake.conn, table.table_id)  # nobody accepts a request under the old key meanwhile
        if key is not None and store.pending(lake.conn, table.table_id):
            raise _pending(name)
        changed = new_key if tuple(new_key) != table.key else None
        store.change(lake.conn, table.table_id, key=changed, policy=policy, dedupe=dedupe, retention=retention)
    return get(lake, name)


def _pending(name: QualifiedName) -> RequestsPending:
    return RequestsPending(f"requests for {name} were accepted under its old key", remedy="wait for them")


def drop(
    lake: Lake,
    name: QualifiedName,
    *,
    force: bool = False,
    keep: bool = False,
    seen: Callable[[QualifiedName], bool] = lambda _: True,
) -> None:
    """It takes no more requests, and is dropped unless ``keep``; ``force``: what is pending may be lost.

    ``seen``: which of the tables that read it may be named.
    """
    table = get(lake, name)
    with lake.conn.transaction():
        if not store.lock(lake.conn, table.table_id):
            raise NoIngestTable(f"{name} takes no requests")
        waiting = store.pending(lake.conn, table.table_id)
        if waiting and not force:
            raise RequestsPending(f"{waiting} requests for {name} are not yet visible")
        reading = store.readers(lake.conn, table.table_id)
        if reading and not keep:
            named = ", ".join(map(str, filter(seen, reading))) or "tables that you don't see"
            raise HasDependents(f"{named} read {name}", remedy="drop those first")
        store.remove(lake.conn, table.table_id)
    if not keep:
        lake_tables.drop_table(lake.duck, name.schema, name.name)


# ---------------------------------------------------------------- what a table must be
def find_lake_table(lake: Lake, name: QualifiedName) -> int | None:
    with lake.catalog() as catalog:
        found: int | None = catalog.table_id(name.schema, name.name, catalog.head().id)
        return found


def _described(lake: Lake, name: QualifiedName) -> TableAt:
    with lake.catalog() as catalog:
        found: TableAt = catalog.table(name.schema, name.name, catalog.head().id)
        return found


def _key_of(columns: Sequence[str], key: Sequence[str]) -> list[str]:
    """The key in the table's spelling."""
    spelled = {fold(column): column for column in columns}
    for part in key:
        if fold(part) not in spelled:
            raise UnknownColumn(f"the key names {part}, which is no column", remedy="name columns of the table")
    if len({fold(part) for part in key}) < len(key):
        raise BadArgument("the key names a column twice", remedy="name it once")
    return [spelled[fold(part)] for part in key]


def _checked(columns: Sequence[Column], key: Sequence[str]) -> None:
    Records(columns)  # refuses what records can't hold
    for column in columns:
        if column.name in key and (column.nested or column.type in ("json", "float32", "float64")):
            raise BadArgument(
                f"{column.name} can't be part of a key: its values can't be compared exactly",
                remedy="choose another column",
            )


def _require_unique(lake: Lake, name: QualifiedName, key: Sequence[str]) -> None:
    parts = ", ".join(quote(part) for part in key)
    nulls = " OR ".join(f"{quote(part)} IS NULL" for part in key)
    query = f"SELECT 1 FROM {name} WHERE {nulls} UNION ALL (SELECT 1 FROM {name} GROUP BY {parts} HAVING count(*) > 1)"  # noqa: S608 - quoted names
    if lake.sql(f"{query} LIMIT 1").fetchone() is not None:
        raise BadArgument(f"{parts} is no key of {name}: a value occurs twice, or is NULL", remedy="choose another key")
