"""Columns of a lake table and the table of equivalents between DuckLake, DuckDB and Spark types.

A column is a tree, as in the catalog: ``struct`` has its fields as children, ``list`` its element, ``map`` two.
Spark types are DDL text here, so that the core stays free of Spark. Each has two forms: *stored*, what the Parquet
file holds and the vectorised reader is told, and *shown*, what the user of a scan gets. They differ for UUID (bytes,
shown as text) and HUGEINT (a DOUBLE in the file, shown as DECIMAL(38,0)). Types that Spark can't hold exactly are
refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lakemill.errors import UnsupportedLake, UnsupportedType

ROW_ID_FIELD = 2147483540
SNAPSHOT_FIELD = 2147483539
DELETE_PATH_FIELD = 2147483546
DELETE_POSITION_FIELD = 2147483545
ROW_ID_NAME = "_ducklake_internal_row_id"
SNAPSHOT_NAME = "_ducklake_internal_snapshot_id"

NESTED = frozenset({"struct", "list", "map"})

# DuckLake → (DuckDB, Spark stored, Spark shown). One line per type: the whole mapping is visible at once.
_SCALARS: Mapping[str, tuple[str, str, str]] = {
    "boolean": ("BOOLEAN", "boolean", "boolean"),
    "int8": ("TINYINT", "tinyint", "tinyint"),
    "int16": ("SMALLINT", "smallint", "smallint"),
    "int32": ("INTEGER", "int", "int"),
    "int64": ("BIGINT", "bigint", "bigint"),
    "int128": ("HUGEINT", "double", "decimal(38,0)"),
    "uint8": ("UTINYINT", "smallint", "smallint"),
    "uint16": ("USMALLINT", "int", "int"),
    "uint32": ("UINTEGER", "bigint", "bigint"),
    "uint64": ("UBIGINT", "decimal(20,0)", "decimal(20,0)"),
    "uint128": ("UHUGEINT", "double", "decimal(38,0)"),
    "float32": ("FLOAT", "float", "float"),
    "float64": ("DOUBLE", "double", "double"),
    "date": ("DATE", "date", "date"),
    "time": ("TIME", "time(6)", "time(6)"),
    "timestamp": ("TIMESTAMP", "timestamp_ntz", "timestamp_ntz"),
    "timestamp_us": ("TIMESTAMP", "timestamp_ntz", "timestamp_ntz"),
    "timestamp_ms": ("TIMESTAMP_MS", "timestamp_ntz", "timestamp_ntz"),
    "timestamp_s": ("TIMESTAMP_S", "timestamp_ntz", "timestamp_ntz"),
    "timestamptz": ("TIMESTAMPTZ", "timestamp", "timestamp"),
    "varchar": ("VARCHAR", "string", "string"),
    "json": ("JSON", "string", "string"),
    "blob": ("BLOB", "binary", "binary"),
    "uuid": ("UUID", "binary", "string"),
}
# Where the shown form is not DuckDB's own: the DuckDB type that Spark takes from Arrow.
_DUCK_SHOWN: Mapping[str, str] = {
    "int128": "DECIMAL(38, 0)",
    "uint8": "SMALLINT",
    "uint16": "INTEGER",
    "uint32": "BIGINT",
    "uint64": "DECIMAL(20, 0)",
    "uint128": "DECIMAL(38, 0)",
    "timestamp_ms": "TIMESTAMP",
    "timestamp_s": "TIMESTAMP",
    "json": "VARCHAR",
    "uuid": "VARCHAR",
}
# What DuckDB alone has, and reads: not for Spark, and so not for dynamic tables.
_DUCK_ALONE: Mapping[str, str] = {
    "timestamp_ns": "TIMESTAMP_NS",
    "time_ns": "TIME_NS",
    "timetz": "TIMETZ",
    "interval": "INTERVAL",
}
_REFUSED: Mapping[str, str] = {
    "timestamp_ns": "Spark timestamps end at microseconds",
    "time_ns": "Spark times end at microseconds",
    "timetz": "Spark has no time with a zone",
    "interval": "Spark has no interval of months, days and microseconds",
    "variant": "a variant has no equality that two engines share",
    "geometry": "Spark has no geometry type that keeps DuckDB's",
    "unknown": "the catalog does not know its type",
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


@dataclass(frozen=True, slots=True)
class Column:
    """One version of a column; ``id`` is its Parquet field id, unique in the table for life."""

    id: int
    name: str
    type: str
    children: tuple[Column, ...] = ()
    initial_default: str | None = None
    default: str | None = None
    nulls_allowed: bool = True

    @property
    def nested(self) -> bool:
        return self.type in NESTED

    def leaves(self, prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Column]]:
        """Every leaf with its path of names, as the catalog's statistics know them."""
        path = (*prefix, self.name)
        if not self.nested:
            yield path, self
        for child in self.children:
            yield from child.leaves(path)


@dataclass(frozen=True, slots=True)
class NameMap:
    """How a file without field ids names the columns (``ducklake_name_mapping``), as a tree."""

    source: str
    target: int
    is_partition: bool = False
    children: tuple[NameMap, ...] = ()


@dataclass(slots=True)
class _Draft:
    row: tuple[int, str, str, str | None, str | None, bool]
    children: list[_Draft] = field(default_factory=list)

    def freeze(self) -> Column:
        column_id, name, type_, initial, default, nulls = self.row
        return Column(column_id, name, type_, tuple(c.freeze() for c in self.children), initial, default, nulls)


def build_columns(
    rows: Iterable[tuple[int, str, str, str | None, str | None, bool, int | None]],
) -> tuple[Column, ...]:
    """Rows of ``ducklake_column`` in column order (the last item is the parent's id) → trees."""
    drafts: dict[int, _Draft] = {}
    top: list[_Draft] = []
    parents: list[tuple[_Draft, int | None]] = []
    for column_id, name, type_, initial, default, nulls, parent in rows:
        draft = _Draft((column_id, name, type_.lower(), initial, default, nulls))
        drafts[draft.row[0]] = draft
        parents.append((draft, parent))
    for draft, parent in parents:
        (top if parent is None else drafts[parent].children).append(draft)
    return tuple(draft.freeze() for draft in top)


def build_name_map(rows: Iterable[tuple[int, str, int, int | None, bool]]) -> tuple[NameMap, ...]:
    """Rows of one mapping (local index, source name, target field id, parent's local index, is partition) → trees."""
    below: dict[int | None, list[tuple[int, str, int, bool]]] = {}
    for local, source, target, parent, is_partition in rows:
        below.setdefault(parent, []).append((local, source, target, bool(is_partition)))

    def grow(parent: int | None) -> tuple[NameMap, ...]:
        return tuple(
            NameMap(source, target, part, grow(local)) for local, source, target, part in below.get(parent, [])
        )

    return grow(None)


def duck_type(column: Column, *, shown: bool = False, alone: bool = False) -> str:
    """The DuckDB type, as text for a cast; ``shown`` gives the form that Spark takes.

    ``alone``: for DuckDB alone, which has types that Spark can't read.
    """
    match column.type:
        case "struct":
            inner = (f"{quote_identifier(c.name)} {duck_type(c, shown=shown, alone=alone)}" for c in column.children)
            return f"STRUCT({', '.join(inner)})"
        case "list":
            return f"{duck_type(column.children[0], shown=shown, alone=alone)}[]"
        case "map":
            key, value = (duck_type(child, shown=shown, alone=alone) for child in column.children)
            return f"MAP({key}, {value})"
        case type_ if shown and type_ in _DUCK_SHOWN:
            return _DUCK_SHOWN[type_]
        case type_ if _DECIMAL.fullmatch(type_):
            return type_.upper()
        case type_ if type_ in _SCALARS:
            return _SCALARS[type_][0]
        case type_ if alone and type_ in _DUCK_ALONE:
            return _DUCK_ALONE[type_]
    raise _refusal(column)


def type_of_duck(text: str) -> str | None:
    """The DuckLake type of a scalar that DuckDB names like this; None for others."""
    if _DECIMAL.fullmatch(text.lower()):
        return text.lower()
    if text == "TIMESTAMP WITH TIME ZONE":
        return "timestamptz"
    return next((name for name, (duck, *_) in _SCALARS.items() if duck == text), None)


_FAMILIES = (frozenset({"int8", "int16", "int32", "int64"}), frozenset({"float32", "float64"}))


def widened_by_reader(types: Iterable[str]) -> bool:
    """Whether Spark's Parquet reader itself widens a column from any of these types to any other, exactly."""
    known = set(types)
    return any(known <= family for family in _FAMILIES) or all(_DECIMAL.fullmatch(type_) for type_ in known)


def stored_type(column: Column) -> str:
    """The Spark type of a scalar as the Parquet file holds it."""
    return _scalar(column, 1)


def shown_type(column: Column) -> str:
    """The Spark type, nested too, that a scan gives."""
    match column.type:
        case "struct":
            return "struct<" + ",".join(f"{quote_spark(c.name)}:{shown_type(c)}" for c in column.children) + ">"
        case "list":
            return f"array<{shown_type(column.children[0])}>"
        case "map":
            return f"map<{shown_type(column.children[0])},{shown_type(column.children[1])}>"
    return _scalar(column, 2)


def _scalar(column: Column, form: int) -> str:
    if _DECIMAL.fullmatch(column.type):
        return column.type.replace(" ", "")
    if column.type not in _SCALARS:
        raise _refusal(column)
    return _SCALARS[column.type][form]


def _refusal(column: Column) -> UnsupportedType:
    why = _REFUSED.get(column.type.split("(")[0], "it is not a type of DuckLake 1.0")
    return UnsupportedType(f"column {column.name!r} has type {column.type}, which Spark can't read exactly: {why}")


def converts(column: Column) -> bool:
    """Whether stored and shown form differ anywhere in the tree."""
    if column.nested:
        return any(converts(child) for child in column.children)
    return stored_type(column) != shown_type(column)


def stored_default(column: Column) -> str | None:
    """The initial default as a Spark SQL literal in stored form; None when rows before the column read NULL."""
    text = column.initial_default
    if text is None:
        return None
    if column.nested:
        raise UnsupportedLake(
            f"column {column.name!r} was added with a default of type {column.type}, which Spark's reader can't fill",
            remedy="rewrite the table with DuckDB (CREATE OR REPLACE … AS SELECT)",
        )
    if column.type == "uuid":
        return f"X'{text.replace('-', '')}'"
    if column.type == "blob":
        return f"X'{blob_bytes(text).hex()}'"
    return f"CAST('{_escape_spark(text)}' AS {stored_type(column)})"


def filled_by_us(column: Column) -> bool:
    """Whether Spark's vectorised reader can't put the initial default into files without the column.

    It can't for bytes, and not for decimals that don't fit into a long.
    """
    if column.initial_default is None:
        return False
    wide = _DECIMAL.fullmatch(column.type)
    return column.type in ("uuid", "blob", "uint64") or (wide is not None and int(wide[1]) > 18)


def blob_bytes(text: str) -> bytes:
    r"""DuckDB writes a blob as text with ``\xNN`` for what is not printable ASCII."""
    out = bytearray()
    for part in re.findall(r"\\x[0-9A-Fa-f]{2}|.", text, re.DOTALL):
        out += bytes([int(part[2:], 16)]) if len(part) == 4 else part.encode()
    return bytes(out)


def _escape_spark(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def quote_identifier(name: str) -> str:
    """A name for DuckDB or PostgreSQL."""
    return '"' + name.replace('"', '""') + '"'


def quote_spark(name: str) -> str:
    """A name for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"
