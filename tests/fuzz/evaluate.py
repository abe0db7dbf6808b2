"""A read plan evaluated row by row in Python: slow, simple, and no Spark.

Planning decides which rows count; Spark only carries it out. Evaluating the plan itself lets every snapshot and many
deltas of every history be checked for milliseconds each, and tells a wrong plan from a wrong execution of a right one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.truth import Column, Defaults, Row, canonical

if TYPE_CHECKING:
    from lakemill.core.scan import ReadPlan
    from lakemill.core.schema import NameMap

STAMP = "_ducklake_internal_snapshot_id"
_FIELD_ID = b"PARQUET:field_id"
_HIVE_NULLS = ("__HIVE_DEFAULT_PARTITION__", "NULL")


class Evaluator:
    """Remembers the files of one lake: they never change."""

    def __init__(self, defaults: Defaults, parse: Callable[[str, str], Any]) -> None:
        self._defaults, self._parse = defaults, parse
        self._tables: dict[str, pa.Table] = {}
        self._rows: dict[Any, list[Row]] = {}

    def weights(self, plan: ReadPlan, columns: Sequence[Column], inlined: Sequence[pa.Table]) -> dict[Row, int]:
        """Row → weight; a scan has weight 1 per copy."""
        out: Counter[Row] = Counter()
        deleted = self._deleted(plan)
        for read in plan.files:
            rows = self._file(plan, read.file.path, read.file.mapping_id, columns)
            stamps = self._stamps(read.file.path)
            gone_a, gone_b = deleted.get(read.file.id, (set(), set()))
            for position, row in enumerate(rows):
                stamp = stamps[position] if stamps and read.file.partial_max is not None else -1
                at_b = read.at_b and stamp <= plan.b and position not in gone_b
                at_a = read.at_a and plan.a is not None and stamp <= plan.a and position not in gone_a
                out[row] += at_b - at_a
        for table in inlined:
            weights = table.column("__weight").to_pylist()
            values = [table.column(column.name).to_pylist() for column in columns]
            for index, weight in enumerate(weights):
                out[tuple(canonical(c, v[index]) for c, v in zip(columns, values, strict=True))] += weight
        return {row: weight for row, weight in out.items() if weight}

    def _deleted(self, plan: ReadPlan) -> dict[int, tuple[set[int], set[int]]]:
        out: dict[int, tuple[set[int], set[int]]] = {}
        for read in plan.deletes:
            at_a, at_b = out.setdefault(read.file.data_file_id, (set(), set()))
            table = self._table(read.file.path)
            stamps = self._stamps(read.file.path) or [0] * table.num_rows
            for position, stamp in zip(table.column("pos").to_pylist(), stamps, strict=True):
                if stamp <= read.cut_a:
                    at_a.add(position)
                if stamp <= read.cut_b:
                    at_b.add(position)
        for delete in plan.inlined_deletes:
            at_a, at_b = out.setdefault(delete.data_file_id, (set(), set()))
            if plan.a is not None and delete.begin <= plan.a:
                at_a.add(delete.position)
            if delete.begin <= plan.b:
                at_b.add(delete.position)
        return out

    # ------------------------------------------------------------ files
    def _table(self, path: str) -> pa.Table:
        if path not in self._tables:
            self._tables[path] = pq.ParquetFile(path).read()
        return self._tables[path]

    def _stamps(self, path: str) -> list[int] | None:
        table = self._table(path)
        return [s or 0 for s in table.column(STAMP).to_pylist()] if STAMP in table.column_names else None

    def _file(self, plan: ReadPlan, path: str, mapping_id: int | None, columns: Sequence[Column]) -> list[Row]:
        key = (path, mapping_id, tuple(columns))
        if key not in self._rows:
            names = None if mapping_id is None else plan.mappings[mapping_id]
            self._rows[key] = self._read(path, names, columns)
        return self._rows[key]

    def _read(self, path: str, names: Sequence[NameMap] | None, columns: Sequence[Column]) -> list[Row]:
        table = self._table(path)
        fields = {field.name: field for field in table.schema}
        values: list[list[Hashable]] = []
        for column in columns:
            place = None if names is None else next((n for n in names if n.target == column.id), None)
            if place is not None and place.is_partition:
                values.append([self._hive(path, place.source, column)] * table.num_rows)
                continue
            field = _find(fields.values(), column.id) if names is None else fields.get(place.source if place else "")
            if field is None:
                values.append([self._defaults.value(column)] * table.num_rows)
                continue
            children = place.children if place is not None else None
            values.append([self._value(field, v, column, children) for v in table.column(field.name).to_pylist()])
        return list(zip(*values, strict=True))

    def _value(self, field: pa.Field, value: Any, column: Column, names: Sequence[NameMap] | None) -> Hashable:
        """A stored value in the column's newest shape, fields matched by id (or by the mapping's names)."""
        if value is None:
            return None
        type_ = field.type
        match column.type:
            case "struct":
                out: list[tuple[int, Hashable]] = []
                for child in sorted(column.children, key=lambda c: c.id):
                    inner = _child([type_.field(i) for i in range(type_.num_fields)], child, names)
                    if inner is None:
                        out.append((child.id, self._defaults.value(child)))
                    else:
                        stored = value[inner.name]
                        out.append((child.id, self._value(inner, stored, child, _below(names, child))))
                return tuple(out)
            case "list":
                child = column.children[0]
                return tuple(self._value(type_.value_field, item, child, _below(names, child)) for item in value)
            case "map":
                key, item = column.children
                pairs = (
                    (
                        self._value(type_.key_field, k, key, None),
                        self._value(type_.item_field, v, item, _below(names, item)),
                    )
                    for k, v in value
                )
                return tuple(sorted(pairs, key=repr))
        if column.type in ("varchar", "json") and isinstance(value, bytes):
            value = value.decode()
        return canonical(column, value)

    def _hive(self, path: str, source: str, column: Column) -> Hashable:
        for part in path.split("/"):
            name, equals, text = part.partition("=")
            if equals and name == source:
                if text in _HIVE_NULLS or (not text and column.type not in ("varchar", "json")):
                    return None
                return canonical(column, self._parse(column.type, unquote(text)))
        raise AssertionError(f"{path} has no {source}")


def _find(fields: Any, column_id: int) -> pa.Field | None:
    wanted = str(column_id).encode()
    return next((field for field in fields if (field.metadata or {}).get(_FIELD_ID) == wanted), None)


def _child(fields: Sequence[pa.Field], child: Column, names: Sequence[NameMap] | None) -> pa.Field | None:
    if names is None:
        return _find(fields, child.id)
    source: Mapping[int, str] = {name.target: name.source for name in names}
    return next((field for field in fields if field.name == source.get(child.id)), None)


def _below(names: Sequence[NameMap] | None, child: Column) -> Sequence[NameMap] | None:
    if names is None:
        return None
    return next((name.children for name in names if name.target == child.id), ())
