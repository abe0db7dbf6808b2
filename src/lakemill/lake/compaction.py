"""Compaction on the lake's side: gather what could be merged from the catalog, and make the intent that does it.

Before Spark: one consistent state of the catalog, the stamps of delete files, and ``core/compact``'s decisions. After
Spark: footers of the merged files, and an intent that removes the sources from every snapshot and puts the merged
files in their place, required to find the sources and their delete files exactly as they were.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from lakemill.core.commit import (
    FilesUnchanged,
    Intent,
    MergedDeletes,
    MergeFiles,
    NewFile,
    NoConflict,
    Partition,
    Purpose,
)
from lakemill.core.compact import (
    WORTH_DROPPING,
    CompactPlan,
    Deleted,
    Group,
    Skipped,
    SortKey,
    Source,
    group_sources,
    overlapping,
    time_deletes,
    unmergeable,
)
from lakemill.core.scan import DataFile, DeleteFile, TableAt, check_readable
from lakemill.core.schema import ROW_ID_NAME, Column
from lakemill.core.timing import Labels, WrittenBy
from lakemill.errors import LakemillError
from lakemill.lake.catalog import Catalog, reading
from lakemill.lake.duck import LAKE, Connection, explained
from lakemill.lake.expiry import QUERIES
from lakemill.lake.footer import read_footers
from lakemill.lake.scan import Lakefront

_PLAIN_NAME = re.compile(r'"(?:[^"]|"")+"|[A-Za-z_]\w*')
_WITH_ROW_IDS = "SELECT file_name FROM parquet_schema($files) WHERE name = $name LIMIT 1"
_UNKNOWN = WrittenBy(0, 0)
_MERGE = f"CALL ducklake_merge_adjacent_files('{LAKE}', $table, schema => $schema)"


@dataclass(frozen=True, slots=True)
class MergedFile:
    """What Spark wrote for one group; a group all of whose rows could be dropped has no file."""

    group: Group
    path: str | None
    rows: int
    last_stamp: int
    delete_path: str | None = None
    deletes: int = 0
    first_delete: int = 0


# ---------------------------------------------------------------- planning
def plan_compact(
    front: Lakefront, duck: Connection, schema: str, name: str, target_size: int, worth_dropping: float = WORTH_DROPPING
) -> CompactPlan:
    """What to merge of a table, as it is now; ``worth_dropping``: a file is, when this share of its rows can go."""
    with reading(front.conn, front.schema) as catalog:
        head = catalog.head()
        table = catalog.table(schema, name, head.id)
        versions = [row[0] for row in front.conn.execute(QUERIES["column_versions"].compose(), {"table": table.id})]
        facts = _Facts(front, catalog, table, head.id)
        sources: list[Source] = []
        for_stock: list[tuple[Source, str]] = []
        skipped: list[Skipped] = []
        columns: dict[int, tuple[Column, ...]] = {}
        files = catalog.files(table, head.id)
        for file in files:
            place = bisect_right(versions, file.begin)
            version = versions[place - 1] if place else 0
            if version not in columns:
                columns[version] = catalog.columns(table.id, file.begin)
            source = facts.source(file, version)
            beyond_spark = beyond_spark_reason(file, columns[version])
            if isinstance(source, Skipped):
                skipped.append(source)
            elif beyond_spark is None:
                sources.append(source)
            elif source.deleted:
                skipped.append(Skipped(file.path, f"{beyond_spark}, and stock DuckDB merges no file with deletes"))
            else:
                for_stock.append((source, beyond_spark))
        sort = _sort_order(front, table)
    by_stock: tuple[Group, ...] = ()
    if len(for_stock) > 1:
        by_stock = group_sources((source for source, _ in for_stock), columns, target_size, worth_dropping)
    unsafe = _stock_would_lose(duck, files, by_stock) if by_stock else ""
    if unsafe or not by_stock:
        by_stock = ()
        skipped += [Skipped(source.file.path, reason + unsafe) for source, reason in for_stock]
    groups = group_sources(sources, columns, target_size, worth_dropping)
    return CompactPlan(table, head.id, groups, tuple(skipped), sort, by_stock)


def beyond_spark_reason(file: DataFile, columns: Sequence[Column]) -> str | None:
    """Why Spark can't rewrite this file; None when it can."""
    if file.mapping_id is not None:
        return "it was added by the names of its columns and has no field ids"
    return unmergeable(columns)


def _stock_would_lose(duck: Connection, files: Sequence[DataFile], groups: Sequence[Group]) -> str:
    """What stock DuckDB's own merge of this table would destroy; empty when it is safe.

    It gives rows new ids when files with ids of their own touch in their nominal id ranges, and a partition whose
    files lie in several folders makes it fail for good.
    """
    for group in groups:
        folders = {source.file.path.rpartition("/")[0] for source in group.sources}
        if group.sources[0].file.partition_id is not None and len(folders) > 1:
            return "; and stock DuckDB can't merge a partition whose files lie in several folders"
    nominal = [file.path for file in files if file.row_id_start is not None and file.format == "parquet"]
    with explained():
        found = duck.execute(_WITH_ROW_IDS, {"files": nominal, "name": ROW_ID_NAME}).fetchone() if nominal else None
    if found is not None:
        return "; and stock DuckDB's merge would change row ids of updated rows"
    return ""


def merge_by_stock(duck: Connection, table: TableAt) -> None:
    """Let the extension merge the table's small files; it commits by itself and refuses when others interfere."""
    with explained():
        duck.execute(_MERGE, {"table": table.name, "schema": table.schema}).fetchall()


class _Facts:
    """The catalog's rows about a table's live files, read once."""

    def __init__(self, front: Lakefront, catalog: Catalog, table: TableAt, head: int) -> None:
        self._catalog, self._table = catalog, table
        named = {"table": table.id}
        execute = front.conn.execute
        self._readable = [row[0] for row in execute(QUERIES["snapshots"].compose())]
        self._partitions = {row[0]: tuple(row[1]) for row in execute(QUERIES["partition_values"].compose(), named)}
        self._deletes: dict[int, list[DeleteFile]] = defaultdict(list)
        for id_, data_file, path, relative, *rest in execute(QUERIES["all_deletes"].compose(), named):
            full = table.path + path if relative else path
            self._deletes[data_file].append(DeleteFile(id_, data_file, full, *rest))
        self._inlined = {delete.data_file_id for delete in catalog.inlined_deletes(table.id, head)}
        paths = [d.path for found in self._deletes.values() for d in found if not d.encrypted and d.format == "parquet"]
        self._stamps = front.stamps.of(paths)

    def source(self, file: DataFile, version: int) -> Source | Skipped:
        deletes = self._deletes.get(file.id, [])
        reason = self._reason(file, deletes)
        if reason is not None:
            return Skipped(file.path, reason)
        timed: list[Deleted] = []
        for delete in deletes:
            found = self._time(delete)
            if found is None:
                return Skipped(file.path, "the catalog leaves in doubt when some of its rows were deleted")
            timed += found
        live = next((delete.id for delete in deletes if delete.end is None), None)
        return Source(file, version, self._partitions.get(file.id, ()), live, tuple(timed))

    def _reason(self, file: DataFile, deletes: Sequence[DeleteFile]) -> str | None:
        if file.id in self._inlined:
            return "some of its deletes are in the catalog; flush them first, with `lakemill upkeep flush`"
        if overlapping(deletes):
            return "it has two delete files at once"
        try:
            check_readable([file], deletes, self._table.full_name)
        except LakemillError as error:
            return error.message
        return None

    def _time(self, delete: DeleteFile) -> tuple[Deleted, ...] | None:
        counts = self._stamps[delete.path]
        if not counts:  # most of them, and nothing to ask the catalog
            return time_deletes(delete, counts, _UNKNOWN, _UNKNOWN, Labels({}), self._readable)
        data, written = self._catalog.written_by(delete.data_file_id), self._catalog.written_by(delete.id)
        labels = self._catalog.labels(self._table.id, min(counts), written.latest)
        return time_deletes(delete, counts, data, written, labels, self._readable)


def _sort_order(front: Lakefront, table: TableAt) -> tuple[SortKey, ...]:
    """The table's sort order as far as it is made of plain columns; order is for speed, not for meaning."""
    by_name = {column.name.lower(): column for column in table.columns if not column.nested}
    keys: list[SortKey] = []
    for expression, dialect, direction, nulls in front.conn.execute(
        QUERIES["sort_order"].compose(), {"table": table.id}
    ).fetchall():
        text = expression.strip()
        name = text[1:-1].replace('""', '"') if text.startswith('"') else text
        if dialect != "duckdb" or not _PLAIN_NAME.fullmatch(text) or name.lower() not in by_name:
            break
        keys.append(SortKey(by_name[name.lower()], direction.upper() == "ASC", nulls.upper() == "NULLS_FIRST"))
    return tuple(keys)


# ---------------------------------------------------------------- publishing
def merge_intent(
    duck: Connection, plan: CompactPlan, merged: Sequence[MergedFile], publish_id: UUID, author: str | None = None
) -> Intent:
    """The sources out of every snapshot, the merged files into each, if nothing has happened to the sources."""
    files: list[NewFile] = []
    deletes: list[MergedDeletes] = []
    for one in merged:
        if one.path is None:
            continue
        if one.delete_path is not None:
            deletes.append(_delete_file(duck, plan, one, len(files)))
        files.append(_data_file(duck, plan, one))
    sources = [source for one in merged for source in one.group.sources]
    table_id = plan.table.id
    return Intent(
        publish_id,
        (MergeFiles(table_id, tuple(source.file.id for source in sources), tuple(files), tuple(deletes)),),
        (
            NoConflict(table_id, plan.base, Purpose.MERGE),
            FilesUnchanged(table_id, tuple((source.file.id, source.live_delete) for source in sources)),
        ),
        author=author,
        message=f"compact {plan.table.full_name}: {len(sources)} files into {len(files)}",
    )


def _data_file(duck: Connection, plan: CompactPlan, one: MergedFile) -> NewFile:
    assert one.path is not None  # noqa: S101  (asked by the caller)
    (footer,) = read_footers(duck, [one.path], one.group.columns, expected_rows=one.rows, check_ids=True)
    first = one.group.sources[0]
    partition = None
    if first.file.partition_id is not None:
        partition = Partition(first.file.partition_id, first.partition)
    return NewFile(
        one.path.removeprefix(plan.table.path),
        footer.rows,
        footer.size_bytes,
        footer.footer_size,
        footer.columns,
        partition=partition,
        keeps_row_ids=True,
        begin=one.group.begin,
        partial_max=one.last_stamp,
    )


def _delete_file(duck: Connection, plan: CompactPlan, one: MergedFile, place: int) -> MergedDeletes:
    assert one.delete_path is not None  # noqa: S101  (asked by the caller)
    (footer,) = read_footers(duck, [one.delete_path], (), expected_rows=one.deletes)
    path = one.delete_path.removeprefix(plan.table.path)
    return MergedDeletes(place, one.first_delete, path, footer.rows, footer.size_bytes, footer.footer_size)
