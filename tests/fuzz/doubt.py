"""Is a delete's commit really in doubt? An answer that does not use Lakemill's rule, but what the history did.

Stock DuckDB stamps the positions of a second and later delete with transaction start + 1 (traps 1). Whoever sees only
the catalog can't tell a group's commit where two commits that deleted from the table fit between its stamp and the
next one that ends it. The commits are known here for certain; the stamps are read from the delete files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from tests.fuzz.history import History

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake

STAMP = "_ducklake_internal_snapshot_id"
_FILES = """
SELECT t.table_id, t.path || f.path, f.path, f.path_is_relative, t.end_snapshot
FROM ducklake_delete_file f JOIN ducklake_table t USING (table_id)
WHERE f.format = 'parquet'
"""

_INLINED = """
SELECT snapshot_id, told[1]::BIGINT
FROM ducklake_snapshot_changes, regexp_matches(changes_made, 'inlined_delete:(\\d+)', 'g') told
"""


class Doubts:
    def __init__(self, history: History, lake: Lake) -> None:
        self._history, self._lake = history, lake
        self._intervals: dict[str, list[tuple[int, int]]] | None = None

    def real(self, table: str, a: int | None, b: int) -> bool:
        """Whether a delete's commit is ambiguous at one of the snapshots asked for."""
        if self._intervals is None:
            self._intervals = self._find()
        return any(low <= at < high for low, high in self._intervals.get(table, ()) for at in (a, b) if at is not None)

    def misread(self) -> dict[str, list[tuple[int, int]]]:
        """Snapshots [first, last) that stock DuckDB reads wrongly: it takes the stamps of deletes at their word."""
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for name, stamp, _, fits in self._groups():
            if fits and max(fits) > stamp:
                found[name].append((stamp, max(fits)))
        return found

    def _find(self) -> dict[str, list[tuple[int, int]]]:
        known = {snapshot for (snapshot,) in self._lake.conn.execute("SELECT snapshot_id FROM ducklake_snapshot")}
        out: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for name, stamp, following, fits in self._groups():
            gone = [c for c in range(stamp, following) if c not in known]
            if len(fits) + len(gone) > 1:
                out[name].append((min(fits + gone), max(fits + gone)))
        return out

    def _groups(self) -> Iterator[tuple[str, int, int, list[int]]]:
        """Every group of positions: its table, its stamp, the next one, and the commits that may have deleted it."""
        history = self._history
        deletes: dict[str, list[int]] = defaultdict(list)
        for commit in history.commits:
            for name in commit.deleted_from:
                deletes[name].append(commit.snapshot)
        head = max(history.truth.states)
        names = {state.table_id: name for states in history.truth.states.values() for name, state in states.items()}
        inlined: dict[int, set[int]] = defaultdict(set)
        for snapshot, table_id in self._lake.conn.execute(_INLINED).fetchall():
            inlined[table_id].add(snapshot)
        for table_id, below, path, relative, end in self._lake.conn.execute(_FILES).fetchall():
            name, file = names.get(table_id), f"{history.root}/data/main/{below}" if relative else path
            gone = end is not None and not Path(file).exists()  # with a table that was replaced, and cleaned up
            if name is None or gone or STAMP not in pq.read_schema(file).names:
                continue
            stamps = sorted({s for s in pq.read_table(file, columns=[STAMP]).column(0).to_pylist() if s is not None})
            for index, stamp in enumerate(stamps):
                # deletes from one file exclude each other, but not those that are inlined, whose stamps end nothing
                later = [other for other in stamps[index + 1 :] if other not in inlined[table_id]]
                following = later[0] if later else end or head + 1
                yield name, stamp, following, [c for c in deletes[name] if stamp <= c < following]
