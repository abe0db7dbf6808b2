"""The snapshot stamps inside Parquet files: which there are, and how many rows carry each.

Stock DuckDB stamps rows of merged files and positions of delete files. The distinct stamps are catalog facts that the
catalog does not hold, so they are read here, by DuckDB on the client, one tiny column of the files in question; rows of
user data are not touched. Files never change, so what was read is remembered by path.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakemill.core.schema import SNAPSHOT_NAME, type_of_duck
from lakemill.errors import UnsupportedLake
from lakemill.lake.duck import explained

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_HAVE_STAMPS = "SELECT DISTINCT file_name FROM parquet_schema($files) WHERE name = $stamp"
_STAMPS = """SELECT filename, _ducklake_internal_snapshot_id AS stamp, count(*)
FROM read_parquet($files, filename = true, union_by_name = true) GROUP BY ALL"""
_AMONG = "SELECT count(DISTINCT pos) FROM read_parquet($file) WHERE pos IN (SELECT unnest($positions))"
_AMONG_STAMPED = _AMONG + " AND coalesce(_ducklake_internal_snapshot_id, 0) <= $cut"
_TYPES = """SELECT DISTINCT file_name, field_id, duckdb_type FROM parquet_schema($files)
WHERE field_id IN (SELECT unnest($ids))"""
_NAMED_TYPES = "SELECT file_name, name, duckdb_type, num_children FROM parquet_schema($files)"
_FIELD_IDS = "SELECT DISTINCT file_name, field_id FROM parquet_schema($files) WHERE field_id IN (SELECT unnest($ids))"


class Stamps:
    """Stamps by path: ``{stamp: rows}``, empty for a file without stamps."""

    def __init__(self, duck: DuckDBPyConnection) -> None:
        self._duck = duck
        self._known: dict[str, dict[int, int]] = {}

    def of(self, paths: Sequence[str]) -> dict[str, dict[int, int]]:
        unknown = [path for path in dict.fromkeys(paths) if path not in self._known]
        if unknown:
            found: dict[str, dict[int, int]] = {path: {} for path in unknown}
            have = [row[0] for row in self._ask(_HAVE_STAMPS, {"files": unknown, "stamp": SNAPSHOT_NAME})]
            if have:
                for path, stamp, rows in self._ask(_STAMPS, {"files": have}):
                    found[path][stamp] = rows
            self._known |= found  # only now: a failed read must not be remembered as "no stamps"
        return {path: self._known[path] for path in paths}

    def deleted(self, path: str, positions: Collection[int], cut: int) -> int:
        """How many of these positions a delete file holds with a stamp up to the cut (no stamp counts as 0)."""
        query = _AMONG_STAMPED if self.of([path])[path] else _AMONG
        values = {"file": path, "positions": list(positions)} | ({"cut": cut} if query is _AMONG_STAMPED else {})
        return int(self._ask(query, values)[0][0])

    def stored_as(self, paths: Sequence[str], columns: Mapping[int, str]) -> dict[str, tuple[tuple[int, str], ...]]:
        """Which of these columns (id → type of the table) each file holds in another type, by its footer."""
        other: dict[str, list[tuple[int, str]]] = {}
        if paths and columns:
            found = self._ask(_TYPES, {"files": list(paths), "ids": list(columns)})
            for path, column, name in found:
                if (type_ := _known_type(path, column, name)) != columns[column]:
                    other.setdefault(path, []).append((column, type_))
        return {path: tuple(sorted(types)) for path, types in other.items()}

    def stored_by_name(
        self, names: Mapping[str, Mapping[int, str]], columns: Mapping[int, str]
    ) -> dict[str, tuple[tuple[int, str], ...]]:
        """The same for files without field ids: path → column id → its name in the file."""
        if not names or not columns:
            return {}
        found = top_level(self._ask(_NAMED_TYPES, {"files": list(names)}))
        other: dict[str, tuple[tuple[int, str], ...]] = {}
        for path, by_id in names.items():
            held = {
                c: _known_type(path, c, found[path][n]) for c, n in by_id.items() if c in columns and n in found[path]
            }
            if differs := tuple((c, type_) for c, type_ in sorted(held.items()) if type_ != columns[c]):
                other[path] = differs
        return other

    def lacking(self, paths: Sequence[str], columns: Sequence[int]) -> dict[str, frozenset[int]]:
        """Which of these columns each file lacks, by its footer."""
        lacks = {path: set(columns) for path in paths}
        if lacks and columns:
            found = self._ask(_FIELD_IDS, {"files": list(lacks), "ids": list(columns)})
            for path, column in found:
                lacks[path].discard(column)
        return {path: frozenset(missing) for path, missing in lacks.items() if missing}

    def _ask(self, query: str, values: Mapping[str, object]) -> list[Any]:
        with explained(own=True):
            return self._duck.cursor().execute(query, values).fetchall()


def _known_type(path: str, column: int, name: str | None) -> str:
    type_ = type_of_duck(name or "")
    if type_ is None:
        raise UnsupportedLake(f"{path} holds column {column} as {name}, which is not its table's type")
    return type_


def top_level(rows: Iterable[tuple[str, str, str | None, int | None]]) -> dict[str, dict[str, str | None]]:
    """Path → name → type of a file's columns, from its schema as a list: a node, then what is below it."""
    out: dict[str, dict[str, str | None]] = {}
    below: dict[str, int] = {}
    for path, name, type_, children in rows:
        if path not in out:  # the root
            out[path], below[path] = {}, 0
        elif below[path]:
            below[path] += (children or 0) - 1
        else:
            out[path][name] = type_
            below[path] = children or 0
    return out
