"""Requests in the bus, as the accepting half would leave them: SQL alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lakemill.store import db, watermarks

Record = tuple[str, Mapping[str, Any]]


def record(operation: str, **payload: Any) -> Record:
    return operation, payload


def line(one: Record) -> str:
    operation, payload = one
    return json.dumps({"o": operation, "p": payload}, separators=(",", ":"), ensure_ascii=False)


def put(conn: db.Connection, table_id: int, bodies: Iterable[Sequence[str]], columns: str = "") -> list[int]:
    """Requests of these lines, in one transaction; their tokens."""
    tokens = []
    with conn.transaction():
        for lines in bodies:
            row = conn.execute("UPDATE lakemill.bus_head SET token = token + 1 RETURNING token").fetchone()
            assert row is not None
            tokens.append(row[0])
            body = "\n".join(lines)
            conn.execute(
                "INSERT INTO lakemill.bus (token, table_id, columns, records, bytes, body) VALUES (%s,%s,%s,%s,%s,%s)",
                (row[0], table_id, columns, len(lines), len(body.encode()), body),
            )
        conn.execute("SELECT pg_notify('lakemill_accepted', '')")
    return tokens


def take(conn: db.Connection, table_id: int, key: Sequence[str] = (), policy: str = "reject") -> None:
    """The table takes requests."""
    conn.execute(
        "INSERT INTO lakemill.ingest_tables (table_id, key, policy) VALUES (%s, %s, %s)", (table_id, list(key), policy)
    )


def marks(conn: db.Connection) -> tuple[int, int]:
    """The watermark, and the last token."""
    head = watermarks.head(conn)
    return head.watermark, head.token
