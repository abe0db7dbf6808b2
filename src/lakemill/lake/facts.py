"""What a publish must know of the catalog under the commit lock, read in one round trip together with taking the lock.

First half of the transaction in ``lake/publish``: begin, timeouts, snapshot row, publish id, then only the reads that
the intent asks for. Nothing is judged here: that is ``core/conflict``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import Any

from lakemill.core.commit import Intent, SameColumns
from lakemill.core.conflict import Facts, wanted_bases, wanted_names
from lakemill.core.schema import Column, NameMap, build_columns, build_name_map
from lakemill.core.statistics import TableColumn
from lakemill.lake.rows import Rows, Staging
from lakemill.lake.statements import Answer, Call, Statements


@dataclass(frozen=True, slots=True)
class Taken:
    """The snapshot row that we hold, and what the catalog says at that moment."""

    snapshot_id: int
    schema_version: int
    first_id: int
    newest: bool
    """False: another commit came and went between reading the newest row and writing ours."""
    facts: Facts
    statistics: Mapping[int, Mapping[int, TableColumn]] = field(default_factory=dict)
    """Column statistics of the tables that get files; a table without totals is absent."""
    mappings: Mapping[tuple[int, tuple[NameMap, ...]], int] = field(default_factory=dict)


def take(
    statements: Statements,
    intent: Intent,
    rows: Rows,
    staging: Staging,
    timeouts: Mapping[str, Any],
) -> Taken:
    """Begin the transaction, take the commit lock, and read the facts."""
    wanted = _wanted(intent, rows)
    limits = "set_timeouts_17" if timeouts["transaction_ms"] else "set_timeouts"
    names = ["begin", limits, "take_snapshot", "newest_snapshots", *wanted]
    asked = {**timeouts, **staging.values, **_parameters(intent, rows)}
    calls = [Call(name, asked, staging.relation("expected") if name == "stale_files" else None) for name in names]
    answers = dict(zip(names, statements.run(calls), strict=True))
    snapshot_id, schema_version, next_catalog_id, first_id = answers["take_snapshot"].rows[0]
    made_from = (snapshot_id - 1, schema_version - asked["schema_changes"], next_catalog_id)
    newest = list(answers["newest_snapshots"].rows)
    return Taken(
        snapshot_id,
        schema_version,
        first_id,
        newest=newest == [(snapshot_id, schema_version, next_catalog_id), made_from],
        facts=_facts(snapshot_id, {name: answers[name].rows for name in wanted}),
        statistics=_statistics(answers),
        mappings=_mappings(answers),
    )


def _wanted(intent: Intent, rows: Rows) -> list[str]:
    """Only the reads that this intent needs."""
    kinds = {type(requirement) for requirement in intent.requirements}
    wanted = ["live_tables"]
    if wanted_bases(intent):
        wanted += ["snapshots_since", "labels_since"]
    if SameColumns in kinds:
        wanted.append("live_columns")
    if wanted_names(intent):
        wanted.append("name_holders")
    if rows["expected"]:
        wanted.append("stale_files")
    if rows.added:
        wanted.append("column_statistics")
    if rows.mappings:
        wanted.append("name_mappings")
    return wanted


def _parameters(intent: Intent, rows: Rows) -> dict[str, Any]:
    tables = intent.table_ids()
    bases = list(wanted_bases(intent))
    names = wanted_names(intent)
    return {
        "publish_id": intent.publish_id,
        "file_ids": rows.file_ids,
        "schema_changes": 1 if intent.changes_schema() else 0,
        "table_ids": list(tables),
        "bases": bases,
        "base": bases[0] if bases else None,
        # a table id in a label is followed by a comma or the end
        "table_pattern": f":({'|'.join(str(t) for t in tables)})(,|$)",
        "schema_ids": [schema for schema, _ in names],
        "names": [name for _, name in names],
    }


def _facts(snapshot_id: int, answers: Mapping[str, Sequence[tuple[Any, ...]]]) -> Facts:
    columns: dict[int, list[tuple[Any, ...]]] = {}
    for table_id, _, *column in sorted(answers.get("live_columns", ()), key=itemgetter(0, 1)):
        columns.setdefault(table_id, []).append(tuple(column))
    names: dict[tuple[int, str], tuple[int, ...]] = {}
    for schema_id, name, holder in answers.get("name_holders", ()):
        names[schema_id, name] = (*names.get((schema_id, name), ()), holder)
    return Facts(
        snapshot_id,
        labels=dict(answers.get("labels_since", ())),
        counts=dict(answers.get("snapshots_since", ())),
        live=frozenset(row[0] for row in answers["live_tables"]),
        columns={table_id: _columns(tuple(found)) for table_id, found in columns.items()},
        partitions={row[0]: row[1] for row in answers["live_tables"] if row[1] is not None},
        names=names,
        stale_files=tuple(row[0] for row in answers.get("stale_files", ())),
    )


@lru_cache(maxsize=256)  # they rarely change from one publish to the next
def _columns(rows: tuple[Any, ...]) -> tuple[Column, ...]:
    return build_columns(rows)


def _statistics(answers: Mapping[str, Answer]) -> dict[int, dict[int, TableColumn]]:
    if "column_statistics" not in answers:
        return {}
    found: dict[int, dict[int, TableColumn]] = {row[0]: {} for row in answers["live_tables"].rows if row[2]}
    for table_id, *column in answers["column_statistics"].rows:
        if table_id in found:
            found[table_id][column[0]] = TableColumn(*column)
    return found


def _mappings(answers: Mapping[str, Answer]) -> dict[tuple[int, tuple[NameMap, ...]], int]:
    if "name_mappings" not in answers:
        return {}
    parts: dict[tuple[int, int], list[tuple[Any, ...]]] = {}
    for table_id, mapping_id, *name in answers["name_mappings"].rows:
        parts.setdefault((table_id, mapping_id), []).append(tuple(name))
    return {(table_id, build_name_map(names)): id_ for (table_id, id_), names in parts.items()}
