"""Named queries from ``store/sql/*.sql``: SQL lives in SQL files, each query with a name and one line of description.

A file holds blocks of ``-- name: <name>``, a comment line that says what it is for, and one statement. Values are
parameters (``%(name)s``); ``{name}`` stands for a relation or an identifier that psycopg composes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from psycopg import sql

_HEAD = re.compile(r"^-- name: (\w+)\n-- (.+)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Query:
    name: str
    description: str
    text: str

    def compose(self, parts: Mapping[str, sql.Composable] | None = None) -> sql.SQL | sql.Composed:
        query = sql.SQL(self.text)
        return query.format(**parts) if parts else query


@cache
def load_queries(file: str) -> Mapping[str, Query]:
    """All queries of ``store/sql/<file>.sql`` by name."""
    text = (resources.files("lakemill.store") / "sql" / f"{file}.sql").read_text("utf-8")
    heads = list(_HEAD.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return {
        head[1]: Query(head[1], head[2], text[head.end() : end].strip().rstrip(";"))
        for head, end in zip(heads, ends, strict=True)
    }
