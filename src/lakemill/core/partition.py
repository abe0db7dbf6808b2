"""How a lake table is partitioned, and where a file of a partition lies.

DuckDB merges the files of a partition only when their folders are spelled alike, so names and quoting are the
extension's: ``k=1/year=2020/bucket=3``, values percent-encoded. Only texts are made here; Spark computes the values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakemill.core.names import fold
from lakemill.core.schema import Column
from lakemill.errors import BadStatement, UnsupportedLake

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_BUCKET = re.compile(r"bucket\((\d+)\)")
_MOST_BUCKETS = 2**31 - 1  # DuckLake's own limit
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


def check_keys(keys: Sequence[str], columns: Mapping[str, str], place: str | None = None) -> None:
    """What PARTITION BY may say of these columns, with their DuckDB types; anything else is refused."""
    for key in keys:
        transform, name, count = _read_key(key)
        if transform is None:
            raise BadStatement(
                f"{key} is no partition key",
                remedy="write a column, year(c), month(c), day(c), hour(c) or bucket(n, c)",
                place=place,
            )
        if count is not None and not 1 <= count <= _MOST_BUCKETS:
            raise BadStatement(
                f"{key} says {count} buckets", remedy=f"write a number between 1 and {_MOST_BUCKETS}", place=place
            )
        type_ = next((type_ for known, type_ in columns.items() if fold(known) == fold(name)), None)
        if type_ is None:
            raise BadStatement(
                f"PARTITION BY names {name}, which is no column of the table",
                remedy=f"its columns are {', '.join(columns)}",
                place=place,
            )
        fits = {"identity": _NOT_BY_VALUE, "bucket": _NOT_IN_BUCKETS}.get(transform)
        if not (_IN_TIME.match(type_) if fits is None else not fits.search(type_)):
            raise BadStatement(
                f"{name} is {type_}: a table can't be partitioned by {key}",
                remedy="choose another column, or cast it in the query",
                place=place,
            )


_IN_TIME = re.compile("DATE|TIMESTAMP")
_NOT_BY_VALUE = re.compile(r"FLOAT|DOUBLE|BLOB|INTERVAL|STRUCT|\[")
_NOT_IN_BUCKETS = re.compile(r"DECIMAL|^TIME\b|INTERVAL|STRUCT|\[")
"""Types whose values Spark does not write, or hash, as DuckDB does."""


def _read_key(key: str) -> tuple[str | None, str, int | None]:
    """Transform, column and buckets of a key as it was written; no transform where it is something else."""
    try:
        found = sqlglot.parse_one(key, dialect="duckdb")
    except SqlglotError:
        return None, "", None
    if isinstance(found, exp.Column):
        return (None if found.table else "identity"), found.name, None
    if not isinstance(found, exp.Func):
        return None, "", None
    word = found.name.lower() if isinstance(found, exp.Anonymous) else found.key
    given = found.expressions if isinstance(found, exp.Anonymous) else [found.this]
    numbers = [one for one in given[:-1] if one.is_int]
    known = (word in _PARTS_OF_TIME and len(given) == 1) or (word == "bucket" and len(given) - 1 == len(numbers) == 1)
    plain = known and isinstance(given[-1], exp.Column) and not given[-1].table
    return (word, given[-1].name, int(numbers[0].name) if numbers else None) if plain else (None, "", None)


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
