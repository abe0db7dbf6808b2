"""Dynamic tables as they are remembered: name, state, and every version of the definition, with what it reads.

CREATE, ALTER and DROP end here, the scheduler and every refresh begin here. Old versions stay, because old contents are
explained by them. Names can change, ids can't: who reads a dynamic table knows it by its id. Every function works on a
connection, or on the cursor of a publish, as part of its transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

from psycopg import errors as pg

from lakemill.core.definition import Definition, Dialect, Initialize, RefreshMode, TargetLag
from lakemill.core.graph import Graph, Node, build_graph
from lakemill.core.names import QualifiedName
from lakemill.core.refresh import State
from lakemill.errors import DefinitionChanged, HasDependents, TableExists, UnknownDynamicTable
from lakemill.store.db import Executor, transaction
from lakemill.store.queries import load_queries

QUERIES = load_queries("definitions")


class SourceKind(Enum):
    TABLE = "TABLE"
    VIEW = "VIEW"  # expanded: remembered to notice that it changed
    DYNAMIC = "DYNAMIC"


@dataclass(frozen=True, slots=True)
class Source:
    """What a definition reads: a table or a view of the lake by its id there, a dynamic table by our id."""

    kind: SourceKind
    name: QualifiedName
    columns: tuple[str, ...]
    """Those that the query mentions."""
    table_id: int | None = None
    supplier_id: int | None = None
    written: QualifiedName | None = field(default=None, compare=False)
    """What the query calls it, where it has another name by now."""

    @property
    def key(self) -> str:
        """What the query calls it: ``schema.table``, folded."""
        return ".".join((self.written or self.name).key)


@dataclass(frozen=True, slots=True)
class OutputColumn:
    name: str
    type: str
    """As DuckDB writes it."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What creation made of a definition."""

    query: str
    """As it is run: stars and views expanded."""
    mode: RefreshMode
    mode_reason: str
    columns: tuple[OutputColumn, ...]
    clocked: bool = False
    """Whether the content depends on the clock, by the query or by a supplier."""


@dataclass(frozen=True, slots=True)
class DynamicTable:
    id: int
    definition: Definition
    definition_version: int
    resolved: Resolved
    state: State
    state_reason: str | None
    state_since: datetime
    table_id: int | None
    """In the lake; None until it is published for the first time."""
    created_at: datetime
    declared_at: datetime
    stale_since: datetime | None = None
    """Since when it holds no snapshots: its next refresh loads it anew."""

    @property
    def name(self) -> QualifiedName:
        return self.definition.name

    @property
    def standing(self) -> tuple[State, str | None, datetime]:
        """State, reason and since when, as people are told: STALE comes before all else."""
        if self.stale_since is None:
            return self.state, self.state_reason, self.state_since
        was = (None if self.state is State.ACTIVE else self.state.value, self.state_reason)
        told = ("its past is no longer kept, and it will be loaded anew", *was)
        return State.STALE, "; ".join(one for one in told if one), self.stale_since


# ---------------------------------------------------------------- declaring
def create(
    where: Executor,
    definition: Definition,
    resolved: Resolved,
    sources: Sequence[Source],
    state: State = State.PENDING_INIT,
) -> DynamicTable:
    """A new dynamic table; refused when another has the name."""
    named = {"schema": definition.name.schema, "name": definition.name.name, "state": state.value}
    with transaction(where):
        row = where.execute(QUERIES["insert_table"].compose(), named).fetchone()
        if row is None:
            raise TableExists(f"there is a dynamic table {definition.name} already")
        _insert(where, row[0], 1, definition, resolved, sources)
    return by_id(where, row[0])


def declare(
    where: Executor, table: DynamicTable, definition: Definition, resolved: Resolved, sources: Sequence[Source]
) -> DynamicTable:
    """The next version of the definition of ``table``, which must be as it was read."""
    with transaction(where):
        values = {"dynamic_id": table.id, "version": table.definition_version}
        row = where.execute(QUERIES["next_version"].compose(), values).fetchone()
        if row is None:
            raise DefinitionChanged(f"{table.name} was altered or dropped meanwhile")
        _insert(where, table.id, row[0], definition, resolved, sources)
    return by_id(where, table.id)


def _insert(
    where: Executor, dynamic_id: int, version: int, d: Definition, resolved: Resolved, sources: Sequence[Source]
) -> None:
    key = {"dynamic_id": dynamic_id, "version": version}
    declared = {
        "query": d.query,
        "target_lag": d.target_lag.duration,
        "column_names": list(d.columns),
        "refresh_mode": d.refresh_mode.value,
        "strict": d.strict,
        "cardinality_threshold": d.cardinality_threshold,
        "initialize": d.initialize.value,
        "scheduler": d.scheduler,
        "priority": d.priority,
        "spark_profile": d.spark_profile,
        "dialect": d.dialect.value,
        "partition_by": list(d.partition_by),
        "comment": d.comment,
        "resolved_query": resolved.query,
        "resolved_mode": resolved.mode.value,
        "mode_reason": resolved.mode_reason,
        "clocked": resolved.clocked,
        "output_names": [column.name for column in resolved.columns],
        "output_types": [column.type for column in resolved.columns],
    }
    where.execute(QUERIES["insert_definition"].compose(), key | declared)
    for position, source in enumerate(sources):
        values = {
            "position": position,
            "kind": source.kind.value,
            "schema": (source.written or source.name).schema,
            "name": (source.written or source.name).name,
            "table_id": source.table_id,
            "supplier_id": source.supplier_id,
            "column_names": list(source.columns),
        }
        where.execute(QUERIES["insert_source"].compose(), key | values)


# ---------------------------------------------------------------- finding
def find(where: Executor, name: QualifiedName) -> DynamicTable | None:
    return next(iter(_tables(where, schema=name.schema, name=name.name)), None)


def get(where: Executor, name: QualifiedName) -> DynamicTable:
    found = find(where, name)
    if found is None:
        raise UnknownDynamicTable(f"there is no dynamic table {name}", name=str(name))
    return found


def by_id(where: Executor, dynamic_id: int, version: int | None = None) -> DynamicTable:
    """A table with its current definition, or with that of a version."""
    found = next(iter(_tables(where, dynamic_id=dynamic_id, version=version)), None)
    if found is None:
        never = "" if version is None else f", or never had a version {version}"
        raise UnknownDynamicTable(f"dynamic table {dynamic_id} was dropped{never}")
    return found


def unloaded(where: Executor) -> Mapping[QualifiedName, datetime]:
    """Tables that hold nothing by their definition: never loaded, or declared anew; and since when that is so."""
    rows = where.execute(QUERIES["unloaded"].compose()).fetchall()
    return {QualifiedName(schema, name): since for schema, name, since in rows}


def list_all(where: Executor, like: str | None = None) -> tuple[DynamicTable, ...]:
    """By name; ``like`` is a pattern for the table's name, or for schema.name."""
    return _tables(where, like=like)


def sources(where: Executor, table: DynamicTable) -> tuple[Source, ...]:
    """What this version of its definition reads."""
    values = {"dynamic_id": table.id, "version": table.definition_version}
    rows = where.execute(QUERIES["sources"].compose(), values).fetchall()
    return tuple(
        Source(SourceKind(kind), QualifiedName(*row[:2]), tuple(row[2]), row[3], row[4], QualifiedName(*row[5:]))
        for kind, *row in rows
    )


def ancestors(where: Executor, dynamic_id: int) -> tuple[int, ...]:
    """The dynamic tables that its content comes from, in order; of one table, however many there are."""
    rows = where.execute(QUERIES["ancestors"].compose(), {"dynamic_id": dynamic_id}).fetchall()
    return tuple(row[0] for row in rows)


def nodes(where: Executor) -> tuple[Node, ...]:
    """All dynamic tables, for ``core/graph``."""
    rows = where.execute(QUERIES["nodes"].compose()).fetchall()
    return tuple(
        Node(
            QualifiedName(schema, name),
            TargetLag(lag),
            tuple(QualifiedName(*source) for source in zip(schemas or (), names or (), strict=True)),
            active,
        )
        for schema, name, lag, active, schemas, names in rows
    )


def graph(where: Executor) -> Graph:
    """The DAG of all dynamic tables."""
    return build_graph(nodes(where))


def _tables(where: Executor, **wanted: Any) -> tuple[DynamicTable, ...]:
    values = dict.fromkeys(("dynamic_id", "version", "schema", "name", "like")) | wanted
    return tuple(map(_table, where.execute(QUERIES["tables"].compose(), values).fetchall()))


def _table(row: Sequence[Any]) -> DynamicTable:
    dynamic_id, schema, name, version, state, state_reason, state_since, table_id, created_at, declared_at = row[:10]
    query, lag, columns, mode, strict, threshold, initialize, scheduler, priority = row[10:19]
    profile, dialect, partition_by, comment = row[19:23]
    resolved_query, resolved_mode, mode_reason, clocked, names, types, stale_since = row[23:]
    definition = Definition(
        QualifiedName(schema, name),
        query,
        TargetLag(lag),
        tuple(columns),
        RefreshMode(mode),
        strict,
        threshold,
        Initialize(initialize),
        scheduler,
        priority,
        profile,
        Dialect(dialect),
        tuple(partition_by),
        comment,
    )
    output = tuple(OutputColumn(*column) for column in zip(names, types, strict=True))
    return DynamicTable(
        dynamic_id,
        definition,
        version,
        Resolved(resolved_query, RefreshMode(resolved_mode), mode_reason, output, clocked),
        State(state),
        state_reason,
        state_since,
        table_id,
        created_at,
        declared_at,
        stale_since,
    )


# ---------------------------------------------------------------- changing
def set_state(
    where: Executor,
    dynamic_ids: Iterable[int],
    state: State,
    reason: str | None = None,
    *,
    only: Iterable[State] | None = None,
) -> frozenset[int]:
    """Those whose state changed; ``only`` those that are in one of these states now.

    A table that becomes ACTIVE and was never published is PENDING_INIT.
    """
    values = {
        "dynamic_ids": list(dynamic_ids),
        "state": state.value,
        "reason": reason,
        "only": None if only is None else [one.value for one in only],
    }
    rows = where.execute(QUERIES["set_state"].compose(), values).fetchall()
    return frozenset(dynamic_id for dynamic_id, changed in rows if changed)


def rename(where: Executor, table: DynamicTable, to: QualifiedName) -> None:
    """Our half of RENAME; the lake's half is in the same publish."""
    try:
        with transaction(where):
            require_definition(where, table.id, table.definition_version)
            values = {"dynamic_id": table.id, "schema": to.schema, "name": to.name}
            where.execute(QUERIES["rename"].compose(), values)
    except pg.UniqueViolation as error:
        raise TableExists(f"there is a dynamic table {to} already", remedy="choose another name") from error


def reword(where: Executor, table: DynamicTable, query: str, resolved: str, supplier: int, to: QualifiedName) -> None:
    """The current definition with a supplier's new name in it; it means what it meant, so it is no new version."""
    key = {"dynamic_id": table.id, "version": table.definition_version}
    with transaction(where):
        require_definition(where, table.id, table.definition_version)
        where.execute(QUERIES["reword"].compose(), key | {"query": query, "resolved_query": resolved})
        named = {"supplier_id": supplier, "schema": to.schema, "name": to.name}
        where.execute(QUERIES["reword_source"].compose(), key | named)


def drop(where: Executor, dynamic_ids: Sequence[int], loaded: Mapping[int, int | None] | None = None) -> None:
    """All of these at once; refused while another dynamic table reads one of them.

    ``loaded`` are their tables in the lake, as the caller knows them; refused when one has got another since.
    """
    values = {"dynamic_ids": list(dynamic_ids)}
    with transaction(where):
        where.execute(QUERIES["lock_claims"].compose(), values)  # first, as a publish does; it waits for one in flight
        found = where.execute(QUERIES["lock_tables"].compose(), values).fetchall()  # and for who is about to read one
        if loaded is not None and any(loaded[dynamic_id] != table_id for dynamic_id, _, table_id in found):
            raise DefinitionChanged("the dynamic table was loaded meanwhile")
        readers = [QualifiedName(*row) for row in where.execute(QUERIES["readers"].compose(), values).fetchall()]
        if readers:
            raise HasDependents(f"it is read by {', '.join(map(str, readers))}")
        where.execute(QUERIES["delete_sources"].compose(), values)
        where.execute(QUERIES["delete_tables"].compose(), values)


def require_definition(where: Executor, dynamic_id: int, version: int) -> None:
    """For a publish: the definition is still the one that was planned with, and stays so until the transaction ends."""
    row = where.execute(QUERIES["lock_tables"].compose(), {"dynamic_ids": [dynamic_id]}).fetchone()
    if row is None or row[1] != version:
        raise DefinitionChanged("the dynamic table was dropped" if row is None else "the dynamic table was altered")
