"""How often each kind of file and row occurs in a lake, counted from the catalog when its history is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import sql

_COUNTS: Mapping[str, str] = {
    "data files": "SELECT count(*) FROM ducklake_data_file",
    "ended data files": "SELECT count(*) FROM ducklake_data_file WHERE end_snapshot IS NOT NULL",
    "partial data files": "SELECT count(*) FROM ducklake_data_file WHERE partial_max IS NOT NULL",
    "name-mapped files": "SELECT count(*) FROM ducklake_data_file WHERE mapping_id IS NOT NULL",
    "files with hive columns": """SELECT count(*) FROM ducklake_data_file f WHERE EXISTS
        (SELECT 1 FROM ducklake_name_mapping m WHERE m.mapping_id = f.mapping_id AND m.is_partition)""",
    "partitioned files": "SELECT count(*) FROM ducklake_data_file WHERE partition_id IS NOT NULL",
    "paths listed twice": """SELECT count(*) FROM (SELECT 1 FROM ducklake_data_file
        GROUP BY table_id, path HAVING count(*) > 1) p""",
    "files without row id start": "SELECT count(*) FROM ducklake_data_file WHERE row_id_start IS NULL",
    "delete files": "SELECT count(*) FROM ducklake_delete_file",
    "ended delete files": "SELECT count(*) FROM ducklake_delete_file WHERE end_snapshot IS NOT NULL",
    "delete files with stamps": "SELECT count(*) FROM ducklake_delete_file WHERE partial_max IS NOT NULL",
    "files scheduled for deletion": "SELECT count(*) FROM ducklake_files_scheduled_for_deletion",
}


def count_kinds(catalog: psycopg.Connection[Any]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for name, query in _COUNTS.items():
        counts[name] += _one(catalog, query)
    for (table,) in catalog.execute("SELECT table_name FROM ducklake_inlined_data_tables").fetchall():
        counts["inlined rows"] += _one(catalog, sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table)))
        ended = sql.SQL("SELECT count(*) FROM {} WHERE end_snapshot IS NOT NULL").format(sql.Identifier(table))
        counts["ended inlined rows"] += _one(catalog, ended)
    for (table,) in catalog.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_name LIKE 'ducklake_inlined_delete_%'"
    ).fetchall():
        counts["inlined deletes"] += _one(catalog, sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table)))
    return counts


def _one(catalog: psycopg.Connection[Any], query: str | sql.Composed) -> int:
    row = catalog.execute(query).fetchone()
    return int(row[0]) if row else 0
