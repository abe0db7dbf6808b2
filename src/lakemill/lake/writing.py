"""The statements that write an intent into the catalog, composed as one message for the second half of the transaction.

``lake/publish`` sends them after the requirements held. Every statement whose count must be right is checked by it: a
row that is not there any more means that somebody else was first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from lakemill.core.commit import DropTable, Intent, RenameTable, SwapGeneration, changes_made
from lakemill.core.schema import NameMap
from lakemill.core.statistics import StatisticsChange, TableColumn, merge_statistics
from lakemill.lake.facts import QUERIES, Taken, run_all
from lakemill.lake.rows import Rows, Staging

_PARAMETER = re.compile(r"%\((\w+)\)s")
_ENDS_WITH_TABLE = (
    "end_partitions",
    "end_columns",
    "end_column_tags",
    "end_table_files",
    "end_table_deletes",
    "end_tags",
    "end_sorting",
)


@dataclass(frozen=True, slots=True)
class _Statement:
    query: sql.SQL | sql.Composed
    count: int | None = None
    """How many rows it must touch, where that is known."""
    what: str = ""


def write(cursor: psycopg.ClientCursor[Any], intent: Intent, rows: Rows, staging: Staging, taken: Taken) -> str | None:
    """Write everything; what was not as expected, or None."""
    parameters = {
        **staging.parameters,
        "snapshot_id": taken.snapshot_id,
        "first_id": taken.first_id,
        "changes": changes_made(intent),
        "author": intent.author,
        "message": intent.message,
        "extra": json.dumps({"publish_id": str(intent.publish_id), **intent.extra}, default=str),
        "mapping_ids": [
            taken.mappings.get(wanted, taken.first_id + place) for place, wanted in enumerate(rows.mappings)
        ],
    }
    statements = [
        *_mapping_statements(rows, taken),
        *_file_statements(rows, staging),
        *_statistics_statements(rows, taken),
        *_table_statements(intent, taken),
        _Statement(QUERIES["insert_changes"].compose()),
    ]
    answers = run_all(cursor, sql.SQL(";\n").join(s.query for s in statements), parameters)
    for statement, answer in zip(statements, answers, strict=True):
        if statement.count is not None and answer.count != statement.count:
            return f"{statement.what}: {answer.count} of {statement.count} are still there"
    return None


def _mapping_statements(rows: Rows, taken: Taken) -> Iterator[_Statement]:
    for place, (table_id, names) in enumerate(rows.mappings):
        if (table_id, names) in taken.mappings:
            continue
        values = {"mapping_id": taken.first_id + place, "table_id": table_id}
        flat = list(_flatten(names))
        for key, index in (("locals", 0), ("sources", 1), ("targets", 2), ("parents", 3), ("partitions", 4)):
            values[key] = [row[index] for row in flat]  # type: ignore[assignment]
        yield _bound("insert_mapping", values)
        yield _bound("insert_mapping_names", values)


def _flatten(names: tuple[NameMap, ...]) -> Iterator[tuple[int, str, int, int | None, bool]]:
    """Trees of names → rows with local indexes, as the extension numbers them (depth first)."""
    counter = iter(range(1 << 31))

    def walk(name: NameMap, parent: int | None) -> Iterator[tuple[int, str, int, int | None, bool]]:
        local = next(counter)
        yield local, name.source, name.target, parent, name.is_partition
        for child in name.children:
            yield from walk(child, local)

    for name in names:
        yield from walk(name, None)


def _file_statements(rows: Rows, staging: Staging) -> Iterator[_Statement]:
    def over(query: str, relation: str, count: int | None = None, what: str = "") -> _Statement:
        return _Statement(QUERIES[query].compose({relation: staging.relation(relation)}), count, what)

    if rows["files"]:
        yield over("insert_files", "files", len(rows["files"]), "new files")
    if rows["file_columns"]:
        yield over("insert_file_columns", "file_columns")
    if rows["partition_values"]:
        yield over("insert_partition_values", "partition_values")
    if rows["merged"]:
        yield over("schedule_merged", "merged")
        for name in ("columns", "variants", "partitions", "deletes"):
            yield over(f"remove_merged_{name}", "merged")
        yield over("remove_merged_files", "merged", len(rows["merged"]), "files to merge")
    if rows["deletes"]:
        replaced = sum(1 for row in rows["deletes"] if row[4] is not None)
        if replaced:
            yield over("end_replaced_deletes", "deletes", replaced, "delete files to replace")
        yield over("insert_deletes", "deletes")
    if rows["ended"]:
        yield over("end_deletes_of_files", "ended")
        yield over("end_files", "ended", len(rows["ended"]), "files to end")


def _statistics_statements(rows: Rows, taken: Taken) -> Iterator[_Statement]:
    # totals without rows would look like statistics of values that nobody knows
    first = [id_ for id_, totals in rows.totals.items() if id_ not in taken.statistics and totals.records]
    known = [table_id for table_id in rows.totals if table_id in taken.statistics]
    for query, tables in (("insert_totals", first), ("add_totals", known)):
        if tables:
            totals = [rows.totals[table_id] for table_id in tables]
            values = {
                "table_ids": tables,
                "records": [t.records for t in totals],
                "row_ids": [t.row_ids for t in totals],
                "sizes": [t.size_bytes for t in totals],
            }
            yield _bound(query, values)
    changes = {
        table_id: merge_statistics(
            taken.statistics.get(table_id), [file.columns for file in files if file.record_count]
        )
        for table_id, files in rows.added.items()
    }
    inserted = [(table_id, column) for table_id, change in changes.items() for column in change.inserted]
    updated = [(table_id, column) for table_id, change in changes.items() for column in change.updated]
    removed = _removed(changes)
    for query, columns in (("insert_columns", inserted), ("update_columns", updated)):
        if columns:
            yield _bound(query, _column_values(columns))
    if removed:
        values = {"table_ids": [table_id for table_id, _ in removed], "column_ids": [column for _, column in removed]}
        yield _bound("remove_columns", values)


def _removed(changes: dict[int, StatisticsChange]) -> list[tuple[int, int]]:
    return [(table_id, column_id) for table_id, change in changes.items() for column_id in change.removed]


def _column_values(columns: list[tuple[int, TableColumn]]) -> dict[str, Any]:
    return {
        "table_ids": [table_id for table_id, _ in columns],
        "column_ids": [column.column_id for _, column in columns],
        "nulls": [column.contains_null for _, column in columns],
        "nans": [column.contains_nan for _, column in columns],
        "mins": [column.min for _, column in columns],
        "maxs": [column.max for _, column in columns],
    }


def _table_statements(intent: Intent, taken: Taken) -> Iterator[_Statement]:
    common = {"snapshot_id": taken.snapshot_id, "schema_version": taken.schema_version}
    for update in intent.updates:
        match update:
            case DropTable(table_id):
                yield from _drop(table_id, common)
            case SwapGeneration(schema_id, _, name, old, table_id):
                if old is not None:
                    yield from _drop(old, common)
                yield from _rename(table_id, schema_id, name, common)
            case RenameTable(table_id, schema_id, _, name):
                yield from _rename(table_id, schema_id, name, common)
            case _:
                pass


def _drop(table_id: int, common: dict[str, Any]) -> Iterator[_Statement]:
    values = {**common, "table_id": table_id}
    yield _bound("end_table", values, 1, f"table {table_id}")
    for query in _ENDS_WITH_TABLE:
        yield _bound(query, values)


def _rename(table_id: int, schema_id: int, name: str, common: dict[str, Any]) -> Iterator[_Statement]:
    values = {**common, "table_id": table_id, "schema_id": schema_id, "name": name}
    yield _bound("end_table", values, 1, f"table {table_id}")
    yield _bound("give_name", values, 1, f"table {table_id}")
    yield _bound("insert_schema_version", values)


class _Bound(sql.Literal):
    """A value inside a statement that has parameters too: there, a percent sign must be doubled."""

    def as_bytes(self, context: Any = None) -> bytes:
        return super().as_bytes(context).replace(b"%", b"%%")


def _bound(query: str, values: dict[str, Any], count: int | None = None, what: str = "") -> _Statement:
    """A statement with its own values in place of its parameters, so that several of one kind fit in one message."""
    text = QUERIES[query].text
    pieces = []
    for index, piece in enumerate(_PARAMETER.split(text)):
        pieces.append(_Bound(values[piece]) if index % 2 else sql.SQL(piece))
    return _Statement(sql.Composed(pieces), count, what)
