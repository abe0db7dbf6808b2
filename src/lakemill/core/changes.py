"""What a commit says it did: the ``changes_made`` text of ``ducklake_snapshot_changes``, parsed.

Used by the delete timing (which commit can have deleted) and by conflict decisions. Labels are hints with holes:
expiry removes them, so nobody may conclude from an absent label that nothing happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

INSERTS = frozenset({"inserted_into_table", "inlined_insert"})
DELETES = frozenset({"deleted_from_table", "inlined_delete"})
FLUSHES = frozenset({"inline_flush", "flushed_inlined"})
COMPACTIONS = frozenset({"merge_adjacent", "rewrite_delete", "compacted_table"})
SHAPES = frozenset({"altered_table", "dropped_table"})
TABLE_KINDS = INSERTS | DELETES | FLUSHES | COMPACTIONS | SHAPES


@dataclass(frozen=True, slots=True)
class Change:
    """One entry: a kind, and what it names: a table id, or a quoted name for created things."""

    kind: str
    value: str

    @property
    def table_id(self) -> int | None:
        return int(self.value) if self.kind in TABLE_KINDS and self.value.isdigit() else None


def parse_changes(text: str | None) -> tuple[Change, ...]:
    """``inserted_into_table:2,created_table:"main"."a,b"`` → values; commas inside quotes don't separate."""
    return tuple(_entries(text or ""))


def _entries(text: str) -> Iterator[Change]:
    start, quoted = 0, False
    for position, char in enumerate(text):
        if char == '"':
            quoted = not quoted
        elif char == "," and not quoted:
            yield _entry(text[start:position])
            start = position + 1
    if start < len(text):
        yield _entry(text[start:])


def _entry(text: str) -> Change:
    kind, _, value = text.partition(":")
    return Change(kind.strip().lower(), value)


def kinds_for(changes: tuple[Change, ...], table_id: int) -> frozenset[str]:
    """The kinds of change that a commit made to one table."""
    return frozenset(change.kind for change in changes if change.table_id == table_id)
