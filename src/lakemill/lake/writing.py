"""The statements that write an intent into the catalog, as one message for the second half of the transaction.

``lake/publish`` sends them after the requirements held. Every statement whose count must be right is checked by it: a
row that is not there any more means that somebody else was first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from lakemill.core.commit import DropTable, Intent, RenameTable, SwapGeneration, changes_made
from lakemill.core.schema import NameMap
from lakemill.core.statistics import TableColumn, merge_statistics
from lakemill.lake.facts import Taken
from lakemill.lake.rows import Rows, Staging
from lakemill.lake.statements import Call, Statements

_ENDS_WITH_TABLE = (
    "end_partitions",
    "end_columns",
    "end_column_tags",
    "end_table_files",
    "end_table_deletes",
    "end_tags",
    "end_sorting",
)


def write(
    statements: Statements,
    intent: Intent,
    rows: Rows,
    staging: Staging,
    taken: Taken,
) -> str | None:
    """Write everything; what was not as expected, or None."""
    changes = [
        *_mapping_calls(rows, taken),
        *_change_calls(rows, staging, taken),
        *_table_calls(intent, taken),
    ]
    # what every append does, as one statement: its parts are in each other's way nowhere
    additions = (
        *_file_calls(rows, staging, taken),
        *_statistics_calls(rows, taken),
        Call("insert_changes", _label(intent, taken)),
    )
    for call, answer in zip(changes, statements.run([*changes, additions]), strict=False):
        if call.count is not None and answer.count != call.count:
            return f"{call.what}: {answer.count} of {call.count} are still there"
    return None


def _label(intent: Intent, taken: Taken) -> dict[str, Any]:
    return {
        "snapshot_id": taken.snapshot_id,
        "changes": changes_made(intent),
        "author": intent.author,
        "message": intent.message,
        "extra": json.dumps({"publish_id": str(intent.publish_id), **intent.extra}, default=str),
    }


def _mapping_calls(rows: Rows, taken: Taken) -> Iterator[Call]:
    for place, (table_id, names) in enumerate(rows.mappings):
        if (table_id, names) in taken.mappings:
            continue
        values: dict[str, Any] = {"mapping_id": taken.first_id + place, "table_id": table_id}
        flat = list(_flatten(names))
        for index, key in enumerate(("locals", "sources", "targets", "parents", "partitions")):
            values[key] = [row[index] for row in flat]
        yield Call("insert_mapping", values)
        yield Call("insert_mapping_names", values)


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


def _file_calls(rows: Rows, staging: Staging, taken: Taken) -> Iterator[Call]:
    mapping_ids = [taken.mappings.get(wanted, taken.first_id + place) for place, wanted in enumerate(rows.mappings)]
    values = {**_ids(staging, taken), "mapping_ids": mapping_ids}
    for query, relation in (
        ("insert_files", "files"),
        ("insert_file_columns", "file_columns"),
        ("insert_partition_values", "partition_values"),
    ):
        if rows[relation]:
            yield Call(query, values, staging.relation(relation))


def _change_calls(rows: Rows, staging: Staging, taken: Taken) -> Iterator[Call]:
    """What happens to files that are there, and the delete files."""
    values = _ids(staging, taken)

    def over(query: str, relation: str, count: int | None = None, what: str = "") -> Call:
        return Call(query, values, staging.relation(relation), count, what)

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


def _ids(staging: Staging, taken: Taken) -> dict[str, Any]:
    return {**staging.values, "snapshot_id": taken.snapshot_id, "first_id": taken.first_id}


def _statistics_calls(rows: Rows, taken: Taken) -> Iterator[Call]:
    known, first = [], []
    for table_id, totals in rows.totals.items():
        row = {
            "table_id": table_id,
            "records": totals.records,
            "row_ids": totals.row_ids,
            "size_bytes": totals.size_bytes,
        }
        if table_id in taken.statistics:
            known.append(row)
        elif totals.records:  # totals without rows would look like statistics of values that nobody knows
            first.append(row)
    inserted, updated, removed = [], [], []
    for table_id, files in rows.added.items():
        added = [file.columns for file in files if file.record_count]
        change = merge_statistics(taken.statistics.get(table_id), added)
        inserted += [_column(table_id, column) for column in change.inserted]
        updated += [_column(table_id, column) for column in change.updated]
        removed += [{"table_id": table_id, "column_id": column_id} for column_id in change.removed]
    for query, name, found in (
        ("add_totals", "totals", known),
        ("insert_totals", "totals", first),
        ("insert_columns", "columns", inserted),
        ("update_columns", "columns", updated),
        ("remove_columns", "columns", removed),
    ):
        if found:
            yield Call(query, {name: json.dumps(found)})


def _column(table_id: int, column: TableColumn) -> dict[str, Any]:
    return {
        "table_id": table_id,
        "column_id": column.column_id,
        "contains_null": column.contains_null,
        "contains_nan": column.contains_nan,
        "min_value": column.min,
        "max_value": column.max,
    }


def _table_calls(intent: Intent, taken: Taken) -> Iterator[Call]:
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


def _drop(table_id: int, common: dict[str, Any]) -> Iterator[Call]:
    values = {**common, "table_id": table_id}
    yield Call("end_table", values, None, 1, f"table {table_id}")
    for query in _ENDS_WITH_TABLE:
        yield Call(query, values)


def _rename(table_id: int, schema_id: int, name: str, common: dict[str, Any]) -> Iterator[Call]:
    values = {**common, "table_id": table_id, "schema_id": schema_id, "name": name}
    yield Call("end_table", values, None, 1, f"table {table_id}")
    yield Call("give_name", values, None, 1, f"table {table_id}")
    yield Call("insert_schema_version", values)
