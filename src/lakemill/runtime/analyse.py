"""A definition becomes what can be run: names looked up in the lake, views expanded, types asked of DuckDB.

Lines 2 and 3 of a refresh, for ``create``, ``validate``, and a refresh whose sources changed their shape. DuckDB binds
the query over empty tables of the same columns, in memory: what it refuses is refused, and the types of the output are
its types. A query in Spark's own SQL is asked of Spark instead. Nothing is written anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from lakemill.core import dialect, sparksql
from lakemill.core.aliases import aliased
from lakemill.core.clock import uses_clock, with_parameter
from lakemill.core.definition import Definition, Dialect, RefreshMode
from lakemill.core.graph import Node as GraphNode
from lakemill.core.graph import build_graph
from lakemill.core.names import QualifiedName, fold
from lakemill.core.plan import Reason, ResolvedMode, Shape, obstacle, resolve
from lakemill.core.position import START, Position
from lakemill.core.qualified import qualified
from lakemill.core.query import build
from lakemill.core.references import tables as named_tables
from lakemill.core.reserved import is_parameter
from lakemill.core.schema import duck_type
from lakemill.core.shape import NotIncremental, Volatile, has_grand_total
from lakemill.core.state import keep
from lakemill.errors import BadStatement, Cycle, NotIncrementable, UnknownTable, UnsupportedSql
from lakemill.runtime.binding import described, named_columns, refuse_reserved
from lakemill.spark import analysis
from lakemill.store import definitions
from lakemill.store.definitions import DynamicTable, Resolved, Source, SourceKind

if TYPE_CHECKING:
    from lakemill.lake.catalog import Catalog
    from lakemill.runtime.open import Lake

Types = dict[str, dict[str, str]]
"""Columns with their DuckDB types, by ``schema.table``; all names folded."""
_DEEPEST_VIEW = 32
_NO_ONE_ANSWER = frozenset({"LIMIT_WITHOUT_ORDER", "DISTINCT_ON"})
_NO_COLUMN = re.compile("(?:Column '|Unknown column: )([^']+)")


@dataclass(frozen=True, slots=True)
class Analysis:
    definition: Definition
    resolved: Resolved
    mode: ResolvedMode
    shape: Shape
    sources: tuple[Source, ...]
    """Tables in the order of their numbers in the shape, then views."""
    types: Types


def analyse(
    lake: Lake,
    definition: Definition,
    at: Position = START,
    file: str | None = None,
    listed_at: Position | None = None,
) -> Analysis:
    """What a definition means on the lake as it is now; its query and its column list stand here, for errors."""
    listed_at = listed_at or at
    if definition.dialect is Dialect.SPARK:
        return _analyse_spark(lake, definition, at, file, listed_at=listed_at)
    parsed = parse_query(definition.query, at, file)
    with lake.catalog() as catalog:
        found = _Lookup(lake, catalog, definition, at, file)
        query = found.expanded(parsed)
        views = [(view.name, *found.view_texts[view.name]) for view in found.views]
        named, typed = described(
            lake, definition.query, {s.name: found.types[s.key] for s in found.tables}, views, at, file
        )
        output = named_columns(definition, named, typed, at, file, listed_at)
        sources, types = found.tables, found.types
    text = query.sql("duckdb") if found.views else definition.query
    written = "" if found.views else text  # positions hold only in what was written
    shown = {fold(name) for name in named} | {fold(one.name) for one in query.find_all(exp.Column)}
    asked = {s.name: [name for name in types[s.key] if name in shown and is_parameter(name)] for s in sources}
    refuse_reserved(query, written, asked, output, at, file, listed_at if definition.columns else None)
    by_schema: dict[str, dict[str, Mapping[str, str]]] = {}
    for source in sources:
        schema, name = source.name.key
        by_schema.setdefault(schema, {})[name] = types[source.key]
    try:
        with dialect.explained(written, at, file):
            full = qualified(text, by_schema)
    except SqlglotError as error:
        raise _unresolved(error, written, at, file) from error
    shape = shape_of(full, sources, types, at, file, written)
    dialect.check(full, types, text=written, at=at, file=file)
    if not isinstance(shape, NotIncremental):
        shape = keep(shape, [types[source.key] for source in sources])
    elif has_grand_total(full):
        raise UnsupportedSql(
            f"ROLLUP, CUBE or GROUPING SETS beside what has no rule for deltas ({shape.reason}): their grand total over"
            " no rows is a row in DuckDB, and none in Spark",
            remedy=f"{shape.remedy}; or write the groupings as a UNION ALL",
            place=at.place(file),
        )
    mode = _resolved(definition, shape, at, file)
    clocked = uses_clock(with_parameter(full)) or _clocked_suppliers(lake, sources)
    resolved = Resolved(full.sql("duckdb"), mode.mode, _told(mode.reason), output, clocked)
    used = _mentioned(full, sources, types)
    narrowed = tuple(replace(source, columns=names) for source, names in zip(sources, used, strict=True))
    refuse_reserved(query, written, {source.name: source.columns for source in narrowed}, (), at, file)
    _refuse_cycle(lake, definition, narrowed, at.place(file))
    return Analysis(definition, resolved, mode, shape, (*narrowed, *found.views), types)


def _analyse_spark(
    lake: Lake,
    definition: Definition,
    at: Position,
    file: str | None,
    before: tuple[Source, ...] = (),
    listed_at: Position = START,
) -> Analysis:
    """The same for Spark's own SQL, whose types are Spark's; ``before``: what it read when it was declared."""
    parsed = parse_query(definition.query, at, file, Dialect.SPARK)
    query = sparksql.read(definition.query, parsed, at, file)
    with lake.catalog() as catalog:
        found = _Lookup(lake, catalog, definition, at, file)
        found.look_up(query.named)
        sources, types = found.tables, found.types
    if before:  # stars stay as they were: a column that came later is not there
        known = {source.key: source.columns for source in before}
        types = {key: {n: type_ for n, type_ in own.items() if n in known.get(key, own)} for key, own in types.items()}
    narrowed = tuple(replace(source, columns=query.uses(types[source.key])) for source in sources)
    used = {source.key: {name: types[source.key][name] for name in source.columns} for source in narrowed}
    answer = analysis.described(lake.spark, query, used, at, file)
    output = named_columns(
        definition, [name for name, _ in answer], [type_ for _, type_ in answer], at, file, listed_at
    )
    reads = {source.name: source.columns for source in narrowed}
    listed = listed_at if definition.columns else None
    refuse_reserved(parsed, definition.query, reads, output, at, file, listed)
    mode = _resolved(definition, sparksql.NO_DELTAS, at, file)
    clocked = query.clocked or _clocked_suppliers(lake, sources)
    resolved = Resolved(definition.query, mode.mode, _told(mode.reason), output, clocked)
    _refuse_cycle(lake, definition, narrowed, at.place(file))
    return Analysis(definition, resolved, mode, sparksql.NO_DELTAS, narrowed, types)


def _resolved(definition: Definition, shape: Shape, at: Position, file: str | None) -> ResolvedMode:
    if definition.refresh_mode is RefreshMode.INCREMENTAL and (reason := obstacle(shape)) is not None:
        raise NotIncrementable(f"{reason.text} ({reason.code})", remedy=reason.remedy, place=at.place(file))
    return resolve(definition.refresh_mode, shape)


def _clocked_suppliers(lake: Lake, sources: tuple[Source, ...]) -> bool:
    suppliers = [source.supplier_id for source in sources if source.supplier_id is not None]
    return any(definitions.by_id(lake.conn, supplier).resolved.clocked for supplier in suppliers)


def analyse_again(lake: Lake, table: DynamicTable, definition: Definition | None = None) -> Analysis:
    """What a declared table means by now; stars stay as they were expanded, unless a view has to be read anew."""
    definition = definition or table.definition
    if definition.dialect is Dialect.SPARK:
        return _analyse_spark(lake, definition, START, None, definitions.sources(lake.conn, table))
    if any(source.kind is SourceKind.VIEW for source in definitions.sources(lake.conn, table)):
        return analyse(lake, definition)
    names = tuple(column.name for column in table.resolved.columns)
    found = analyse(lake, replace(definition, query=table.resolved.query, columns=names))
    return replace(found, definition=definition)


def shape_of(
    query: exp.Query,
    sources: tuple[Source, ...],
    types: Types,
    at: Position = START,
    file: str | None = None,
    text: str = "",
) -> Shape:
    """The tree of a qualified query, or why it has none; ``text``: as it was written, where places in it are known."""
    names = [source.key for source in sources]
    try:
        return build(query, {name: i for i, name in enumerate(names)}, {name: list(types[name]) for name in names})
    except NotIncremental as reason:
        if reason.reason in _NO_ONE_ANSWER:
            raise BadStatement(
                "the query has more than one right answer: which rows stay is not said",
                remedy=reason.remedy,
                place=at.place(file),
            ) from None
        return reason
    except Volatile as found:
        raise BadStatement(
            f"{found} answers anew at every call, so no table can be kept equal to it",
            remedy="leave it out; now() and current_date are welcome",
            place=_within(at, text, found.place).place(file),
        ) from None


def _within(at: Position, text: str, found: exp.Expr) -> Position:
    """Where a part of the query stands, as far as that is known; else where the query begins."""
    offsets = [int(one.meta["start"]) for one in found.walk() if "start" in one.meta]
    return at.within(text, min(offsets)) if text and offsets else at


# ---------------------------------------------------------------- reading the text
def parse_query(text: str, at: Position, file: str | None, dialect: Dialect = Dialect.DUCKDB) -> exp.Query:
    try:
        found = sqlglot.parse(text, dialect=dialect.value)
    except SqlglotError as error:
        first = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
        lines = text.split("\n")
        line, column = int(first.get("line") or 1), int(first.get("col") or 1)
        offset = sum(len(one) + 1 for one in lines[: line - 1]) + column  # where the word ends
        begins = max(offset - len(first.get("highlight") or " "), 0)
        place = at.within(text, min(begins, len(text))).place(file)
        told = first.get("description") or _first_line(error)
        remedy = "correct what stands there, or just before it"
        raise BadStatement(f"the query can't be read: {told}", remedy=remedy, place=place) from error
    if len(found) != 1 or not isinstance(found[0], exp.Query):
        raise BadStatement("a dynamic table needs one SELECT", place=at.place(file))
    for token in sqlglot.tokenize(text, dialect="duckdb") if dialect is Dialect.DUCKDB else ():
        # sqlglot takes it for regexp_matches
        if token.text == "~" and token.token_type is not sqlglot.TokenType.STRING:
            raise BadStatement(
                "DuckDB's ~ matches the whole text",
                remedy="write regexp_full_match, or regexp_matches",
                place=at.within(text, token.start).place(file),
            )
    for table in found[0].find_all(exp.Table):
        if table.args.get("version") or table.args.get("when"):
            raise BadStatement(
                f"{table.name} is read AT a version: a definition can't travel in time",
                remedy="leave AT out; the data snapshot decides",
                place=_within(at, text, table.this).place(file),
            )
    return found[0]


class _Lookup:
    """The tables and views that a query names, each looked up once."""

    def __init__(self, lake: Lake, catalog: Catalog, definition: Definition, at: Position, file: str | None) -> None:
        self.lake, self.catalog, self.definition, self.at, self.file = lake, catalog, definition, at, file
        self._head = catalog.head().id
        self._known: dict[QualifiedName, Source] = {}
        self.types: Types = {}
        self.view_texts: dict[QualifiedName, tuple[str, str]] = {}
        self._inside: list[tuple[QualifiedName, str]] = []
        """The views that are being expanded, and the place of the first in the query's own text."""

    @property
    def tables(self) -> tuple[Source, ...]:
        return tuple(source for source in self._known.values() if source.kind is not SourceKind.VIEW)

    @property
    def views(self) -> tuple[Source, ...]:
        return tuple(source for source in self._known.values() if source.kind is SourceKind.VIEW)

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
            self.types[key] = {fold(column.name): column.type for column in supplier.resolved.columns}
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
        self.types[key] = {fold(column.name): duck_type(column) for column in found.columns}
        return Source(SourceKind.TABLE, QualifiedName(found.schema, found.name), (), table_id=found.id)

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


def _unresolved(error: SqlglotError, text: str, at: Position, file: str | None) -> BadStatement:
    """DuckDB knows the column, sqlglot does not: it is none of the table's own."""
    found = _NO_COLUMN.search(_first_line(error))
    if found is None:
        return BadStatement(f"the query can't be taken apart: {_first_line(error)}", place=at.place(file))
    place = at
    for column in sqlglot.parse_one(text, dialect="duckdb").find_all(exp.Column) if text else ():
        if fold(column.name) == fold(found[1]):
            place = _within(at, text, column)
    told = f"{found[1]} is no column that a table keeps"
    return BadStatement(told, remedy="name a column of the table; a key of your own stays", place=place.place(file))


# ---------------------------------------------------------------- small things
def _mentioned(query: exp.Query, sources: tuple[Source, ...], types: Types) -> list[tuple[str, ...]]:
    """Per source, the columns that the query has a word for: it can't be taken apart without them."""
    aliases: dict[str, set[str]] = {}
    for table in query.find_all(exp.Table):
        aliases.setdefault(fold(table.alias_or_name), set()).add(f"{fold(table.db)}.{fold(table.name)}")
    found: dict[str, set[str]] = {}
    for column in query.find_all(exp.Column):
        for key in aliases.get(fold(column.table), ()):
            found.setdefault(key, set()).add(fold(column.name))
    return [tuple(name for name in types[source.key] if name in found.get(source.key, ())) for source in sources]


def _refuse_cycle(lake: Lake, definition: Definition, sources: tuple[Source, ...], place: str) -> None:
    others = [node for node in definitions.nodes(lake.conn) if node.name != definition.name]
    own = GraphNode(definition.name, definition.target_lag, tuple(source.name for source in sources))
    try:
        build_graph([*others, own])
    except Cycle as error:
        error.place = place
        raise


def _told(reason: Reason) -> str:
    return f"{reason.code}: {reason.text}" + (f" → {reason.remedy}" if reason.remedy else "")


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
