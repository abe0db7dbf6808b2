"""The lake's own views that name a table: whoever renames or drops it is told of them. It only reads."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import sqlglot
from sqlglot.errors import SqlglotError

from lakemill.core.names import QualifiedName
from lakemill.core.references import tables
from lakemill.lake.listing import list_tables

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake


def views_of(lake: Lake, name: QualifiedName) -> tuple[QualifiedName, ...]:
    """The views of the lake whose query names this table."""
    listed = list_tables(lake.conn, lake.settings.lake.catalog_schema, lake.snapshot().id)
    found = []
    with lake.catalog() as catalog:
        head = catalog.head().id
        for one in (one for one in listed if one.kind == "view"):
            view = catalog.view(one.schema, one.name, head)
            with suppress(SqlglotError):  # what can't be read here is no concern of ours
                query = sqlglot.parse_one(view.sql if view else "SELECT 1", dialect="duckdb")
                if any(named == name for _, named in tables(query)):
                    found.append(QualifiedName(one.schema, one.name))
    return tuple(found)
