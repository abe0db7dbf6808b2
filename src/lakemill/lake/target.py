"""Where and how a table's new files are to be written: folder, columns, partition spec, and the lake's scoped options.

Read from the catalog before Spark writes; ``SameColumns`` and ``SamePartition`` hold the publish to what was read here.
Options set on the table win over those of its schema, and those over the lake's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from lakemill.core.commit import Requirement, SameColumns, SamePartition
from lakemill.core.partition import PartitionSpec, build_spec
from lakemill.core.scan import TableAt
from lakemill.core.schema import Column, NameMap
from lakemill.errors import UnsupportedLake
from lakemill.store.queries import load_queries

DEFAULT_FILE_SIZE = 512 * 10**6


@dataclass(frozen=True, slots=True)
class WriteOptions:
    compression: str = "snappy"
    compression_level: int | None = None
    row_group_rows: int | None = None
    row_group_bytes: int | None = None
    parquet_version: str = "V1"
    target_file_size: int = DEFAULT_FILE_SIZE
    bytes_per_row: float | None = None
    """What a row of the table has taken so far; None before the first file."""

    @property
    def rows_per_file(self) -> int:
        """How many rows make a file of the target size, as far as it can be known; 0: no limit."""
        return max(1, int(self.target_file_size / self.bytes_per_row)) if self.bytes_per_row else 0


@dataclass(frozen=True, slots=True)
class WriteTarget:
    table_id: int
    name: str
    path: str
    """The table's folder, with a slash at its end."""
    columns: tuple[Column, ...]
    partition: PartitionSpec | None = None
    options: WriteOptions = WriteOptions()

    @property
    def mapping(self) -> tuple[NameMap, ...] | None:
        """The names that files need beside their field ids: Spark can't put ids on elements of lists and maps."""
        return name_map(self.columns) if any(_has_elements(column) for column in self.columns) else None

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """What must still be true when files written for this target are published."""
        spec = self.partition.id if self.partition else None
        return (SameColumns(self.table_id, self.columns), SamePartition(self.table_id, spec))


def read_target(conn: psycopg.Connection[Any], table: TableAt) -> WriteTarget:
    """The target of a live table; inside the caller's transaction, with the catalog on the search path."""
    queries = load_queries("target")
    scoped = load_queries("catalog")["options"].compose()
    options = dict(conn.execute(scoped, {"table": table.id, "schema": table.schema_id}).fetchall())
    if options.get("encrypted", "false").lower() == "true":
        raise UnsupportedLake("the lake is encrypted, which Spark can't write", remedy="write it with DuckDB")
    keys = conn.execute(queries["partition_keys"].compose(), {"table_id": table.id}).fetchall()
    spec = build_spec(keys[0][0], [(column, how) for _, column, how in keys], table.columns) if keys else None
    size = conn.execute(queries["row_size"].compose(), {"table_id": table.id}).fetchone()
    bytes_per_row = float(size[0]) if size and size[0] else None
    return WriteTarget(table.id, table.full_name, table.path, table.columns, spec, _options(options, bytes_per_row))


def _options(found: Mapping[str, str], bytes_per_row: float | None) -> WriteOptions:
    def number(key: str) -> int | None:
        return int(found[key]) if key in found else None

    return WriteOptions(
        compression=found.get("parquet_compression", "snappy").lower(),
        compression_level=number("parquet_compression_level"),
        row_group_rows=number("parquet_row_group_size"),
        row_group_bytes=number("parquet_row_group_size_bytes"),
        parquet_version=found.get("parquet_version", "V1").upper(),
        target_file_size=number("target_file_size") or DEFAULT_FILE_SIZE,
        bytes_per_row=bytes_per_row,
    )


def _has_elements(column: Column) -> bool:
    return column.type in ("list", "map") or any(_has_elements(child) for child in column.children)


def name_map(columns: tuple[Column, ...]) -> tuple[NameMap, ...]:
    """The mapping of files that name everything as the table does, in the extension's words."""

    def entry(column: Column, source: str) -> NameMap:
        inner = tuple(entry(child, "list" if column.type == "list" else child.name) for child in column.children)
        return NameMap(source, column.id, children=inner)

    return tuple(entry(column, column.name) for column in columns)
