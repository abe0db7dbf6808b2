"""The query of a version in its user's own words, for DuckDB to answer: each table at the snapshot that was read.

For ``runtime/verify``. What a refresh runs is the query as it was taken apart, names resolved and stars expanded; a
mistake there would be in both, so the judge reads what was written. Where that means something else by now (a star over
a table that has a new column, a view that is another one), it reads what was kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakemill.core.clock import NOW, with_parameter
from lakemill.core.names import QualifiedName, fold, quote
from lakemill.core.position import START
from lakemill.core.qualified import qualified
from lakemill.core.value import Refused
from lakemill.errors import LakemillError
from lakemill.lake import duck
from lakemill.runtime.lookup import Lookup
from lakemill.store import definitions
from lakemill.store.definitions import DynamicTable, SourceKind

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake

Ends = Mapping[str, tuple[QualifiedName, int]]
"""By ``schema.table``, as the query calls it: the table's name then, and the snapshot that it was read at."""
_PLACE = "__lakemill_words"
_CATALOGS = {duck.LAKE, "memory", "system", "temp"}
"""What a schema of such a name would be taken for."""


@dataclass(frozen=True, slots=True)
class Words:
    text: str
    views: tuple[tuple[QualifiedName, str], ...] = ()
    """That it reads: name, and how DuckDB makes it; those that others read come first."""


def words_of(lake: Lake, table: DynamicTable, ends: Ends, t: datetime | None) -> Words:
    found = _meant_still(lake, table)
    if found is None:
        return Words(_kept(table, ends, t))
    tables = tuple((s.name, f"AS FROM {_then(*ends[s.key])}") for s in found.tables)
    texts = ((view.name, *found.view_texts[view.name]) for view in found.views)
    views = tuple((name, f"{f'({aliases}) ' if aliases else ''}AS {text}") for name, text, aliases in texts)
    text = table.definition.query
    return Words(str(_at(text, t).sql("duckdb")) if table.resolved.clocked else text, (*tables, *views))


def _meant_still(lake: Lake, table: DynamicTable) -> Lookup | None:
    """What its words name, where they mean what they meant: resolved anew, they are the query that is kept."""
    current = definitions.by_id(lake.conn, table.id)
    if current.definition_version != table.definition_version:
        return None  # its words may name what is called otherwise by now
    if table.resolved.clocked and any(s.kind is SourceKind.VIEW for s in definitions.sources(lake.conn, table)):
        return None  # a view's clock can't be set
    try:
        with lake.catalog() as catalog:
            found = Lookup(lake, catalog, table.definition, START, None)
            query = found.expanded(cast("exp.Query", sqlglot.parse_one(table.definition.query, dialect="duckdb")))
            text = query.sql("duckdb") if found.views else table.definition.query
            same = qualified(text, found.by_schema()).sql("duckdb") == table.resolved.query
    except (LakemillError, SqlglotError, Refused):
        return None
    apart = {fold(source.name.schema) for source in (*found.tables, *found.views)}.isdisjoint(_CATALOGS)
    return found if same and apart else None


@contextmanager
def placed(connection: duck.Connection, words: Words) -> Iterator[None]:
    """In the body, the connection is where the words mean what they should."""
    connection.execute(f"ATTACH ':memory:' AS {_PLACE}")
    try:
        connection.execute(f"USE {_PLACE}")
        for name, text in words.views:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(name.schema)}")
            connection.execute(f"CREATE VIEW {name} {text}")
        yield
    finally:
        connection.execute("USE memory")
        connection.execute(f"DETACH {_PLACE}")


def _kept(table: DynamicTable, ends: Ends, t: datetime | None) -> str:
    """The query that is kept, each of its tables as it was."""

    def change(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Table) and node.db and (end := ends.get(f"{fold(node.db)}.{fold(node.name)}")):
            text = f"(FROM {_then(*end)}) AS {quote(node.alias_or_name)}"
            return cast("exp.Expr", exp.Table(this=exp.Var(this=text)))
        return node

    return str(_at(table.resolved.query, t).transform(change).sql("duckdb"))


def _then(name: QualifiedName, at: int) -> str:
    return f"{duck.LAKE}.{name} AT (VERSION => {at})"


def _at(text: str, t: datetime | None) -> exp.Query:
    """The query with the clock at this time."""

    def change(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Placeholder) and node.name == NOW:
            assert t is not None  # noqa: S101  (it asks for the time, so its version has one)
            return exp.cast(exp.Literal.string(t.astimezone(UTC).isoformat(sep=" ")), "TIMESTAMPTZ")
        return node

    query = with_parameter(cast("exp.Query", sqlglot.parse_one(text, dialect="duckdb")))
    return cast("exp.Query", query.transform(change))
