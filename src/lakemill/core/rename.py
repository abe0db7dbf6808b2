"""A table gets another name: the queries that read it say so, and stay in their own words otherwise.

For RENAME of a dynamic table, whose readers keep their text. Only names of the table and columns that are written with
its schema are touched; what the query means is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import sqlglot
from sqlglot import exp

from lakemill.core.definition import Dialect
from lakemill.core.names import QualifiedName, fold, quote
from lakemill.core.references import Piece, reworded, spliced, tables
from lakemill.core.schema import quote_spark


def renamed(text: str, old: QualifiedName, new: QualifiedName, dialect: Dialect = Dialect.DUCKDB) -> str:
    """The query, in this dialect, with a table's new name wherever it stood."""
    parsed = sqlglot.parse_one(text, dialect=dialect.value)
    return spliced(text, _places(parsed, old, new, quote if dialect is Dialect.DUCKDB else quote_spark))


def _places(parsed: exp.Expr, old: QualifiedName, new: QualifiedName, quoted: Callable[[str], str]) -> Iterator[Piece]:
    """What to put where. Columns may be named by the table, so it keeps its old name as an alias."""
    said = f"{quoted(new.schema)}.{quoted(new.name)}"
    named = [t for t in parsed.find_all(exp.Table) if isinstance(t.this, exp.Identifier)]
    found = [table for table, name in tables(parsed) if name == old]
    # another of that name: only the schema tells the two apart, which an alias would take away
    twins = any(fold(t.alias_or_name) == old.key[1] for t in named if not any(t is mine for mine in found))
    for table in found:
        yield reworded(table, said, "" if twins and table.db else quoted(table.name))
    if not any(fold(table.alias_or_name) == old.key[1] for table in found):
        return  # under an alias it has no other name: what looks like its schema is something else
    for column in parsed.find_all(exp.Column):
        parts = column.parts
        if len(parts) > 2 and QualifiedName(parts[0].name, parts[1].name) == old:
            words = said if twins else quoted(parts[1].name)
            yield Piece(parts[0].meta["start"], parts[1].meta["end"] + 1, words)
