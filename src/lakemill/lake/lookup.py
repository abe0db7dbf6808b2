"""Which rows of a table have the keys of a few staged writes: asked of DuckDB, in this process.

For a small batch by key. The table's files are read by field id, the key columns first and the others only for rows
that match; that is a fraction of what the Spark jobs cost that do the same for many writes or large tables
(``spark/changes.keyed_diff``). What DuckDB would read otherwise than Spark is left to Spark: `simple` says so. It
decides nothing and writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from lakemill.core.scan import ALL_DELETED, DeleteRead, ReadPlan
from lakemill.core.schema import ROW_ID_FIELD, Column, duck_type
from lakemill.core.writes import Kept, Write
from lakemill.lake.duck import Connection, explained

MOST_FILES, MOST_BYTES = 500, 256 << 20
_PATTERN = frozenset("*?[")
"""What DuckDB takes for a pattern in a path."""

# The staged file has the columns as n0, n1, … in the form that Spark shows.
_FOUND = """
WITH fresh AS (
  SELECT file_row_number AS number, {gone} AS gone, {fresh}
  FROM read_parquet($staged, file_row_number = true, hive_partitioning = false)),
kept AS (
  SELECT filename AS path, file_row_number AS position, own, {names}
  FROM read_parquet($paths, schema = $schema::MAP(INTEGER, STRUCT(name VARCHAR, type VARCHAR, default_value VARCHAR)),
                    filename = true, file_row_number = true, hive_partitioning = false)),
hits AS (
  SELECT number, path, position, own, {same} AS same FROM fresh JOIN kept ON {key}),
deleted AS ({deleted}),
old AS (
  SELECT number, id, h.position, coalesce(own, start + h.position) AS row_id, same
  FROM hits h JOIN (SELECT unnest($paths) AS path, unnest($ids) AS id, unnest($starts) AS start) f USING (path)
  WHERE NOT EXISTS (FROM deleted d WHERE d.path = h.path AND d.position = h.position))
SELECT number, gone, id, position, row_id, same FROM fresh LEFT JOIN old USING (number) ORDER BY number, id, position
"""
_NEW = """
SELECT file_row_number, {gone}, NULL, NULL, NULL, NULL
FROM read_parquet($staged, file_row_number = true, hive_partitioning = false) ORDER BY ALL
"""
_DELETED = """
SELECT path, pos AS position FROM read_parquet($deletes, filename = true, hive_partitioning = false) p
JOIN (SELECT unnest($deletes) AS filename, unnest($deleted) AS path) USING (filename)
"""
_NONE_DELETED = "SELECT NULL::VARCHAR AS path, NULL::BIGINT AS position"


def simple(plan: ReadPlan) -> bool:
    """Whether DuckDB reads these files as Spark does, and soon enough."""
    files = [read.file for read in plan.files]
    paths = [file.path for file in files] + [read.file.path for read in plan.deletes]
    return (
        len(files) <= MOST_FILES
        and plan.bytes_to_read <= MOST_BYTES
        and not (plan.inlined_rows or plan.inlined_deletes or plan.retyped)
        and all(file.mapping_id is None and (file.partial_max is None or file.partial_max <= plan.b) for file in files)
        and all(_counts_whole(read) for read in plan.deletes)
        and len(set(paths)) == len(paths)
        and not any(_PATTERN & set(path) for path in paths)
        and not any(column.nested or column.initial_default is not None for column in plan.table.columns)
    )


def _counts_whole(read: DeleteRead) -> bool:
    """Whether all positions of a delete file are deleted, whatever their stamps."""
    last = read.file.partial_max
    return read.cut_b == ALL_DELETED or (last is not None and last <= read.cut_b)


def lookup(connection: Connection, plan: ReadPlan, staged: str, key: Sequence[str], gone: str) -> list[Write]:
    """The writes of a staged file, one row a key; ``gone`` names its column that tells deletes. Of a `simple` plan."""
    values: dict[str, object] = {"staged": staged}
    query = _NEW.format(gone=gone)
    if plan.files:
        query = _query(plan, key, gone)
        of_file = {read.file.id: read.file.path for read in plan.files}
        types = [(column.id, f"o{i}", _type(column)) for i, column in enumerate(plan.table.columns)]
        types.append((ROW_ID_FIELD, "own", "BIGINT"))
        values |= {
            "paths": list(of_file.values()),
            "ids": list(of_file),
            "starts": [read.file.row_id_start for read in plan.files],
            "schema": {id_: {"name": name, "type": type_, "default_value": None} for id_, name, type_ in types},
        }
        if plan.deletes:
            values["deletes"] = [read.file.path for read in plan.deletes]
            values["deleted"] = [of_file[read.file.data_file_id] for read in plan.deletes]
    with explained(), connection.cursor() as reader:
        rows = reader.execute(query, values).fetchall()
    writes: list[Write] = []
    for _, same_write in groupby(rows, key=itemgetter(0)):
        found = list(same_write)
        kept = tuple(Kept(*row[2:]) for row in found if row[2] is not None)
        writes.append(Write(bool(found[0][1]), kept))
    return writes


def _query(plan: ReadPlan, key: Sequence[str], gone: str) -> str:
    keys = {name.lower() for name in key}
    columns = plan.table.columns
    return _FOUND.format(
        gone=gone,
        fresh=", ".join(f"CAST(n{i} AS {_type(column)}) AS n{i}" for i, column in enumerate(columns)),
        names=", ".join(f"o{i}" for i in range(len(columns))),
        same=" AND ".join(f"o{i} IS NOT DISTINCT FROM n{i}" for i in range(len(columns))),
        key=" AND ".join(f"o{i} = n{i}" for i, column in enumerate(columns) if column.name.lower() in keys),
        deleted=_DELETED if plan.deletes else _NONE_DELETED,
    )


def _type(column: Column) -> str:
    return "VARCHAR" if column.type == "json" else duck_type(column)  # which needs no extension
