"""A small history told in SQL by stock DuckDB, its truth captured at every commit, and Lakemill asked about all of it.

For tests of one thing at a time; ``tests/fuzz`` does the same at random. The truth is a plain SELECT at the head, taken
by a fresh connection right after each commit, never time travel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import lakemill
from tests.conftest import TestLake
from tests.fuzz.check import collect


class Story:
    def __init__(self, lake: TestLake, table: str = "main.t") -> None:
        self.lake, self.name = lake, table
        self.truth: dict[int, Counter[str]] = {}
        self.main = lake.duck()
        self.opened = lakemill.open(lake.settings)
        self.table = self.opened.table(table)

    def __enter__(self) -> Story:
        return self

    def __exit__(self, *_: object) -> None:
        self.main.close()
        self.opened.close()

    @property
    def head(self) -> int:
        return self.opened.snapshot().id

    def tell(self, *statements: str, by: Any = None) -> int:
        """Run statements, each its own commit, and capture the truth after each; the newest snapshot's id."""
        for statement in statements:
            (by or self.main).execute(statement)
            self.capture()
        return self.head

    def capture(self) -> None:
        with self.lake.duck() as fresh:
            schema, name = self.name.split(".", 1)
            rows = fresh.execute(f'SELECT * FROM lake."{schema}"."{name}"').to_arrow_table().to_pylist()
        self.truth[self.head] = Counter(map(spell, rows))

    def check(self, *, pairs: int = 12) -> None:
        """Every captured snapshot's scan and the deltas between them are what the truth says."""
        ends = list(combinations(sorted(self.truth), 2))
        ends = ends[:: max(1, len(ends) // pairs)]
        self.check_scans(ends)

    def check_scans(self, ends: Sequence[tuple[int, int]] = ()) -> None:
        """Every captured snapshot's scan, and deltas between these ends, by one Spark job."""
        snapshots = sorted(self.truth)
        deltas = [self.table.changes(a, b) for a, b in ends]
        frames = [self.table.scan(at) for at in snapshots] + [delta.frame for delta in deltas]
        answers = [self._spelled(frame, rows) for frame, rows in zip(frames, collect(frames), strict=True)]
        for at, got in zip(snapshots, answers, strict=False):
            assert got == self.truth[at], f"scan at {at}: {diff(got, self.truth[at])}"
            assert self.table.count(at) == self.truth[at].total(), f"count at {at}"
        for delta in deltas:
            delta.check()
        for (a, b), got in zip(ends, answers[len(snapshots) :], strict=True):
            wanted = Counter(self.truth[b])
            wanted.subtract(self.truth[a])
            wanted = Counter({row: weight for row, weight in wanted.items() if weight})
            assert got == wanted, f"delta ({a}, {b}]: {diff(got, wanted)}"

    @staticmethod
    def _spelled(frame: Any, rows: list[tuple[Any, ...]]) -> Counter[str]:
        names = frame.columns
        bag: Counter[str] = Counter()
        for row in rows:
            values = dict(zip(names, row, strict=True))
            weight = values.pop("__weight", 1)
            bag[spell(values)] += weight
        return bag


def spell(row: dict[str, Any]) -> str:
    return repr({name: _value(value) for name, value in row.items()})


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_value(inner) for inner in value]
    if isinstance(value, bytes):
        return value
    return str(value) if value is not None else None


def diff(got: Counter[str], wanted: Counter[str]) -> str:
    return f"too many {list((got - wanted).items())[:3]}, missing {list((wanted - got).items())[:3]}"
