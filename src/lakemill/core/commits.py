"""Which commits changed which tables: what the scheduler asks at every look, thousands of times.

Filled from the catalog, commit after commit, and kept as long as somebody may ask: from the oldest data snapshot of any
dynamic table on. A commit that no longer says what it did counts for every table.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from lakemill.core.lag import Commit


@dataclass(slots=True)
class CommitIndex:
    _by_table: dict[int, list[Commit]] = field(default_factory=dict)
    _in_doubt: list[Commit] = field(default_factory=list)
    last: int | None = None
    """The newest snapshot that was added; None before the first."""

    def add(self, commit: Commit, tables: frozenset[int] | None) -> None:
        """The next commit, and the tables that it changed; None where it does not say."""
        if tables is None:
            self._in_doubt.append(commit)
        for table_id in tables or ():
            self._by_table.setdefault(table_id, []).append(commit)
        self.last = commit.snapshot

    def first(self, tables: Iterable[int], after: int) -> Commit | None:
        """The first commit after a snapshot that changed one of these."""
        found = [commit for commits in self._of(tables) if (commit := _after(commits, after)) is not None]
        return min(found, key=lambda commit: commit.snapshot, default=None)

    def newest(self, tables: Iterable[int]) -> Commit | None:
        """The newest commit that changed one of these."""
        return max((commits[-1] for commits in self._of(tables)), key=lambda commit: commit.snapshot, default=None)

    def forget(self, until: int) -> None:
        """Nobody will ask for what came up to this snapshot, but for the newest of each table."""
        for commits in (*self._by_table.values(), self._in_doubt):
            place = bisect_right(commits, until, key=lambda commit: commit.snapshot)
            del commits[: max(0, min(place, len(commits) - 1))]

    def _of(self, tables: Iterable[int]) -> Iterable[list[Commit]]:
        found = (self._by_table.get(table_id) for table_id in tables)
        return [commits for commits in (*found, self._in_doubt) if commits]


def _after(commits: list[Commit], snapshot: int) -> Commit | None:
    place = bisect_right(commits, snapshot, key=lambda commit: commit.snapshot)
    return commits[place] if place < len(commits) else None
