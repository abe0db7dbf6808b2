"""What is in a lake, as lists for people: its tables and views at a snapshot, its newest snapshots, who changed what.

Reads the catalog only, for the command line and later surfaces. Counting the visible rows of the past is left to
``lake/scan.py``, since a delete's timing can be in doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql

from lakemill.core.changes import DELETES, INSERTS, SHAPES, Change, parse_changes
from lakemill.core.lag import Commit
from lakemill.core.names import QualifiedName, parse_name, quote
from lakemill.core.tending import Crowd
from lakemill.store.queries import load_queries

QUERIES = load_queries("listing")
_CHANGES = INSERTS | DELETES | SHAPES
_TRIES = 3
_AT_ONCE = 200  # places of inlined rows that one statement looks into

# a label of the catalog → a word for people
_WORDS = {
    "inserted_into_table": "inserted into",
    "inlined_insert": "inserted into",
    "deleted_from_table": "deleted from",
    "inlined_delete": "deleted from",
    "inline_flush": "flushed",
    "flushed_inlined": "flushed",
    "merge_adjacent": "compacted",
    "rewrite_delete": "compacted",
    "compacted_table": "compacted",
    "altered_table": "altered",
    "dropped_table": "dropped",
    "created_table": "created",
    "created_view": "created view",
    "created_schema": "created schema",
    "altered_view": "altered view",
    "dropped_view": "dropped view",
    "dropped_schema": "dropped schema",
}


@dataclass(frozen=True, slots=True)
class ListedTable:
    """A table or view at a snapshot; a view has no columns or files of its own."""

    schema: str
    name: str
    kind: str
    columns: int | None = None
    files: int | None = None
    bytes: int | None = None
    delete_files: int | None = None
    rows: int | None = None
    """Visible rows, where the files alone tell: at the newest snapshot, and nothing inlined."""


@dataclass(frozen=True, slots=True)
class ListedSnapshot:
    id: int
    time: datetime
    schema_version: int
    changes: str
    author: str | None
    message: str | None
    tables: tuple[QualifiedName, ...] = ()
    """Tables and views that it changed, by the newest name of each."""


@dataclass(frozen=True, slots=True)
class ListedCommit:
    """A commit and the tables that it changed; None where it, or one before it that was expired, no longer says."""

    commit: Commit
    tables: frozenset[int] | None

    def changed(self, table_ids: frozenset[int]) -> bool:
        """Whether it changed one of these; in doubt it did."""
        return self.tables is None or not self.tables.isdisjoint(table_ids)


def list_tables(conn: psycopg.Connection[Any], schema: str, at: int | None = None) -> list[ListedTable]:
    """Tables, then views, by name; at the newest snapshot, whichever that is, when None."""
    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        _search(conn, schema)
        ((head,),) = conn.execute(QUERIES["newest"].compose()).fetchall()
        at = head if at is None else at
        tables = conn.execute(QUERIES["tables"].compose(), {"at": at}).fetchall()
        views = conn.execute(QUERIES["views"].compose(), {"at": at}).fetchall()
    listed = [
        ListedTable(
            schema_name, name, "table", columns, files, size, deletes, rows if at == head and not inlined else None
        )
        for schema_name, name, _, columns, files, size, deletes, rows, inlined in tables
    ]
    return listed + [ListedTable(schema_name, name, "view") for schema_name, name in views]


def list_snapshots(
    conn: psycopg.Connection[Any], schema: str, limit: int | None = None, before: int | None = None
) -> list[ListedSnapshot]:
    """The newest first; ``before`` starts below that id."""
    top = 2**63 - 1 if before is None else before - 1
    with conn.transaction():
        _search(conn, schema)
        rows = conn.execute(QUERIES["snapshots"].compose(), {"before": top, "limit": limit}).fetchall()
        changes = {row[0]: parse_changes(row[3]) for row in rows}
        ids = sorted({c.table_id for found in changes.values() for c in found if c.table_id is not None})
        names = {
            table_id: QualifiedName(schema_name, name)
            for table_id, schema_name, name in conn.execute(QUERIES["names"].compose(), {"ids": ids})
        }
    return [
        ListedSnapshot(id_, time, version, _told(changes[id_], names), author, message, _named(changes[id_], names))
        for id_, time, version, _, author, message in rows
    ]


def list_commits(
    conn: psycopg.Connection[Any], schema: str, after: int, until: int | None = None
) -> list[ListedCommit]:
    """What happened after a snapshot, up to another or to the newest, oldest first; compaction changes nothing."""
    query = QUERIES["commits"].compose({"catalog": sql.Identifier(schema)})
    rows = conn.execute(query, {"after": after, "until": until}).fetchall()
    found = []
    last = after
    for snapshot, time, text in rows:
        told = snapshot == last + 1 and text is not None
        tables = {c.table_id for c in parse_changes(text) if c.kind in _CHANGES and c.table_id is not None}
        found.append(ListedCommit(Commit(snapshot, time), frozenset(tables) if told else None))
        last = snapshot
    return found


def list_inlining(conn: psycopg.Connection[Any], schema: str) -> list[QualifiedName]:
    """The tables that may have rows or deletes in the catalog; whether they do, a plan of reading them says."""
    with conn.transaction():
        _search(conn, schema)
        return [QualifiedName(*row) for row in conn.execute(QUERIES["inlining"].compose()).fetchall()]


def list_inlined(conn: psycopg.Connection[Any], schema: str) -> list[QualifiedName]:
    """The tables that have rows or deletes in the catalog."""
    for _ in range(_TRIES):
        with suppress(psycopg.errors.UndefinedTable), conn.transaction():  # a flush drops those that it has emptied
            _search(conn, schema)
            return _inlined(conn)
    return []


def _inlined(conn: psycopg.Connection[Any]) -> list[QualifiedName]:
    places = conn.execute(QUERIES["inlined_places"].compose()).fetchall()
    found: set[int] = set()
    for start in range(0, len(places), _AT_ONCE):
        asked = [
            QUERIES["live_inlined_rows" if name != deletes else "inlined_deletes"].compose(
                {"number": sql.Literal(number), "table": sql.Identifier(name)}
            )
            for number, (_, _, names, deletes) in enumerate(places[start : start + _AT_ONCE], start)
            for name in (*names, deletes)
            if name is not None
        ]
        if asked:
            found |= {row[0] for row in conn.execute(sql.SQL(" UNION ALL ").join(asked)).fetchall()}
    return [QualifiedName(*places[number][:2]) for number in sorted(found)]


def list_crowds(
    conn: psycopg.Connection[Any], schema: str, target: int, small: int = 0, table: QualifiedName | None = None
) -> list[Crowd]:
    """The files of every table, or of one; hidden states included.

    ``target``: what compaction aims at where the lake has no option of its own; ``small``: below how many bytes a file
    is, 0: a quarter of that.
    """
    values = {"target": target, "small": small, "schema": table and table.schema, "table": table and table.name}
    with conn.transaction():
        _search(conn, schema)
        rows = conn.execute(QUERIES["crowds"].compose(), values).fetchall()
    return [Crowd(f"{quote(schema_name)}.{quote(name)}", *facts) for schema_name, name, *facts in rows]


def _named(changes: Sequence[Change], names: dict[int, QualifiedName]) -> tuple[QualifiedName, ...]:
    found = [names.get(change.table_id) for change in changes if change.table_id is not None]
    found += [parse_name(change.value) for change in changes if change.kind in ("created_table", "created_view")]
    return tuple(dict.fromkeys(name for name in found if name is not None))


def _told(changes: Sequence[Change], names: dict[int, QualifiedName]) -> str:
    told: dict[str, list[str]] = {}
    for change in changes:
        word = _WORDS.get(change.kind, change.kind.replace("_", " "))
        known = None if change.table_id is None else names.get(change.table_id)
        name = f"{known.schema}.{known.name}" if known is not None else change.value.replace('"', "")
        if name not in told.setdefault(word, []):
            told[word].append(name)
    return "; ".join(f"{word} {', '.join(which)}" for word, which in told.items())


def _search(conn: psycopg.Connection[Any], schema: str) -> None:
    conn.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(schema)))
