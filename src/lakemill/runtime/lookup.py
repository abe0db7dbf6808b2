"""The tables and views that a query names, looked up in the lake, each once; views in their place.

For ``runtime/analyse``, which says what a query means, and ``runtime/words``, which asks whether it still does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

import sqlglot
from sqlglot import exp

from lakemill.core.aliases import aliased
from lakemill.core.definition import Definition
from lakemill.core.names import QualifiedName, fold
from lakemill.core.position import Position
from lakemill.core.references import tables as named_tables
from lakemill.core.schema import duck_type
from lakemill.errors import BadStatement, Cycle, UnknownTable
from lakemill.store import definitions
from lakemill.store.definitions import Source, SourceKind

if TYPE_CHECKING:
    from lakemill.lake.catalog import Catalog
    from lakemill.runtime.open import Lake

Types = dict[str, dict[str, str]]
"""Columns with their DuckDB types, by ``schema.table``; all names folded."""
_DEEPEST_VIEW = 32


class Lookup:
    """The tables and views that a query names, each looked up once."""

    def __init__(self, lake: Lake, catalog: Catalog, definition: Definition, at: Position, file: str | None) -> None:
        self.lake, self.catalog, self.definition, self.at, self.file = lake, catalog, definition, at, file
        self._head = catalog.head().id
        self._known: dict[QualifiedName, Source] = {}
        self.types: Types = {}
        self.spelled: Types = {}
        """The same under the names as they are written, which the query's columns have from them."""
        self.view_texts: dict[QualifiedName, tuple[str, str]] = {}
        self._expanded: list[Source] = []
        self._inside: list[tuple[QualifiedName, str]] = []
        """The views that are being expanded, and the place of the first in the query's own text."""

    @property
    def tables(self) -> tuple[Source, ...]:
        return tuple(source for source in self._known.values() if source.kind is not SourceKind.VIEW)

    @property
    def views(self) -> tuple[Source, ...]:
        """Each after those that it reads."""
        return tuple(self._expanded)

    def by_schema(self) -> dict[str, dict[str, Mapping[str, str]]]:
        """The columns of the tables, as names are resolved by them."""
        found: dict[str, dict[str, Mapping[str, str]]] = {}
        for source in self.tables:
            schema, name = source.name.key
            found.setdefault(schema, {})[name] = self.types[source.key]
        return found

    def expanded(self, query: exp.Query, depth: int = 0) -> exp.Query:
        """The query with every view as a subquery, and every table with its schema."""
        if depth > _DEEPEST_VIEW:
            raise BadStatement(f"views are nested more than {_DEEPEST_VIEW} deep", place=self.at.place(self.file))
        aliased(query)  # a view's subquery has no schema by which a column could call it
        for table, written in named_tables(query):
            name = written if table.db else self._near(written)
            source = self._source(name, table)
            if source.kind is SourceKind.VIEW:
                text, aliases = self.view_texts[name]
                self._inside.append((source.name, self._place(table)))
                inner = self.expanded(cast("exp.Query", sqlglot.parse_one(text, dialect="duckdb")), depth + 1)
                self._inside.pop()
                self._expanded += [source] if source not in self._expanded else []
                table.replace(_in_place_of(table, inner, _aliases(aliases)))
            else:
                table.set("db", exp.to_identifier(name.schema, quoted=True))
        return query

    def _near(self, name: QualifiedName) -> QualifiedName:
        """What a name without a schema means: inside a view, first a table of the view's own schema."""
        own = QualifiedName(self._inside[-1][0].schema, name.name) if self._inside else name
        if own == name or own in self._known:
            return own
        found = definitions.find(self.lake.conn, own) or self.catalog.view(own.schema, own.name, self._head)
        return own if found or self.catalog.table_id(own.schema, own.name, self._head) is not None else name

    def look_up(self, named: Iterable[tuple[exp.Table, QualifiedName]]) -> None:
        """The tables of a query in Spark's SQL; a view is DuckDB's SQL, so it can't be a part of it."""
        for table, name in named:
            if self._source(name, table).kind is SourceKind.VIEW:
                raise BadStatement(
                    f"{name} is a view, in DuckDB's SQL; this query is in Spark's",
                    remedy="make the view a dynamic table with TARGET_LAG = DOWNSTREAM, or write its query out",
                    place=self._place(table),
                )

    def _source(self, name: QualifiedName, table: exp.Table) -> Source:
        if table.catalog:
            raise BadStatement(
                f"{table.sql('duckdb')} names a database", remedy="write schema.table", place=self._place(table)
            )
        if name not in self._known:
            self._known[name] = self._looked_up(name, table)
        return self._known[name]

    def _looked_up(self, name: QualifiedName, table: exp.Table) -> Source:
        key = ".".join(name.key)
        if name == self.definition.name:
            raise Cycle(f"{name} reads itself", place=self._place(table))
        supplier = definitions.find(self.lake.conn, name)
        if supplier is not None:
            self._have(key, {column.name: column.type for column in supplier.resolved.columns})
            return Source(SourceKind.DYNAMIC, supplier.name, (), supplier_id=supplier.id)
        view = self.catalog.view(name.schema, name.name, self._head)
        if view is not None:
            self.view_texts[name] = (view.sql, view.aliases)
            return Source(SourceKind.VIEW, QualifiedName(view.schema, view.name), (), table_id=view.id)
        try:
            found = self.catalog.table(name.schema, name.name, self._head)
        except UnknownTable:
            told, cure = f"there is no table or view {name}", None
            if self._inside:
                reader = self._inside[-1][0]
                told, cure = f"{told}, which the view {reader} reads", f"CREATE OR REPLACE VIEW {reader} without it"
            raise UnknownTable(told, remedy=cure, place=self._place(table)) from None
        self._have(key, {column.name: duck_type(column) for column in found.columns})
        return Source(SourceKind.TABLE, QualifiedName(found.schema, found.name), (), table_id=found.id)

    def _have(self, key: str, columns: dict[str, str]) -> None:
        self.spelled[key] = columns
        self.types[key] = {fold(name): type_ for name, type_ in columns.items()}

    def _place(self, found: exp.Expr) -> str:
        if self._inside:
            return self._inside[0][1]
        where = found.this if isinstance(found.this, exp.Identifier) else found
        offset = where.meta.get("start") if where.meta else None
        return (self.at if offset is None else self.at.within(self.definition.query, int(offset))).place(self.file)


def _in_place_of(table: exp.Table, inner: exp.Query, columns: list[str]) -> exp.Subquery:
    """A view's query with the names that the view gives its columns; and then those that its reader gives them."""

    def named(query: exp.Query, names: list[exp.Identifier], **rest: object) -> exp.Subquery:
        alias = exp.TableAlias(this=exp.to_identifier(table.alias_or_name, quoted=True), columns=names)
        return exp.Subquery(this=query, alias=alias, **rest)

    own = [exp.to_identifier(column, quoted=True) for column in columns]
    rest = {part: table.args.get(part) for part in ("joins", "sample", "pivots")}
    if (given := table.args.get("alias")) is None or not given.columns:
        return named(inner, own, **rest)
    return named(exp.select("*").from_(named(inner, own)), given.columns, **rest)


def _aliases(text: str) -> list[str]:
    """``"x","y"`` as the catalog writes it."""
    return [part.replace('""', '"') for part in re.findall(r'"((?:[^"]|"")*)"', text)]
