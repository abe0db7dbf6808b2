"""A table gets another name: the queries that read it say so, and stay in their own words otherwise.

For RENAME of a dynamic table, whose readers keep their text. Only names of the table and columns that are written with
its schema are touched; what the query means is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlglot
from sqlglot import exp

from lakemill.core.names import MAIN, QualifiedName, fold, quote

_Place = tuple[int, int, str]


def renamed(text: str, old: QualifiedName, new: QualifiedName) -> str:
    """The query with a table's new name wherever it stood."""
    parsed = sqlglot.parse_one(text, dialect="duckdb")
    for start, end, words in sorted(_places(parsed, old, new), reverse=True):
        text = text[:start] + words + text[end:]
    return text


def _places(parsed: exp.Expr, old: QualifiedName, new: QualifiedName) -> Iterator[_Place]:
    """What to put where. Columns may be named by the table, so it keeps its old name as an alias."""
    ctes = {fold(cte.alias) for cte in parsed.find_all(exp.CTE)}
    named = [t for t in parsed.find_all(exp.Table) if isinstance(t.this, exp.Identifier)]
    found = [t for t in named if (t.db or fold(t.name) not in ctes) and QualifiedName(t.db or MAIN, t.name) == old]
    # another of that name: only the schema tells the two apart, which an alias would take away
    twins = any(fold(t.alias_or_name) == old.key[1] for t in named if not any(t is mine for mine in found))
    for table in found:
        first = table.args["db"] if table.db else table.this
        alias = "" if table.alias or (twins and table.db) else f" AS {quote(table.name)}"
        yield first.meta["start"], table.this.meta["end"] + 1, f"{new}{alias}"
    if not any(fold(table.alias_or_name) == old.key[1] for table in found):
        return  # under an alias it has no other name: what looks like its schema is something else
    for column in parsed.find_all(exp.Column):
        parts = column.parts
        if len(parts) > 2 and QualifiedName(parts[0].name, parts[1].name) == old:
            words = str(new) if twins else quote(parts[1].name)
            yield parts[0].meta["start"], parts[1].meta["end"] + 1, words
