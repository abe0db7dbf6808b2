"""How a lake table is partitioned, and where a file of a partition lies.

DuckDB merges the files of a partition only when their folders are spelled alike, so names and quoting are the
extension's: ``k=1/year=2020/bucket=3``, values percent-encoded. Only texts are made here; Spark computes the values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from lakemill.core.schema import Column
from lakemill.errors import UnsupportedLake

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_BUCKET = re.compile(r"bucket\((\d+)\)")
_PARTS_OF_TIME = frozenset({"year", "month", "day", "hour"})


@dataclass(frozen=True, slots=True)
class PartitionKey:
    column: Column
    transform: str
    """``identity``, ``year``, ``month``, ``day``, ``hour`` or ``bucket(n)``."""

    @property
    def buckets(self) -> int | None:
        match = _BUCKET.fullmatch(self.transform)
        return int(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    id: int
    keys: tuple[PartitionKey, ...]


def build_spec(partition_id: int, keys: Sequence[tuple[int, str]], columns: Sequence[Column]) -> PartitionSpec:
    """From (column id, transform) in key order; a transform of a newer DuckLake is refused by name."""
    by_id = {column.id: column for column in columns}
    built = []
    for column_id, transform in keys:
        word = transform.lower().replace(" ", "")
        if column_id not in by_id or not (word == "identity" or word in _PARTS_OF_TIME or _BUCKET.fullmatch(word)):
            raise UnsupportedLake(
                f"the table is partitioned by {transform} of column {column_id}, which Lakemill can't write",
                remedy="write this table with DuckDB",
            )
        built.append(PartitionKey(by_id[column_id], word))
    return PartitionSpec(partition_id, tuple(built))


def key_names(spec: PartitionSpec) -> tuple[str, ...]:
    """The folder names of the keys; a second key of the same name has its column's name after it."""
    names: list[str] = []
    for key in spec.keys:
        name = key.column.name if key.transform == "identity" else "bucket" if key.buckets else key.transform
        taken = {used.lower() for used in names}
        names.append(f"{name}_{key.column.name}" if name.lower() in taken else name)
    return tuple(names)


def folder(spec: PartitionSpec, values: Sequence[str | None]) -> str:
    """Where files with these values lie below the table's folder, with a slash at the end."""
    return "".join(
        f"{quote(name, safe='')}={NULL_FOLDER if value is None else quote(value, safe='')}/"
        for name, value in zip(key_names(spec), values, strict=True)
    )
