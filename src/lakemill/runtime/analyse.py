"""A definition becomes what can be run: names looked up in the lake, views expanded, types asked of DuckDB.

Lines 2 and 3 of a refresh, for ``create``, ``validate``, and a refresh whose sources changed their shape. DuckDB binds
the query over empty tables of the same columns, in memory: what it refuses is refused, and the types of the output are
its types. A query in Spark's own SQL is asked of Spark instead. Nothing is written anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from lakemill.core import dialect, sparksql
from lakemill.core.clock import uses_clock, with_parameter
from lakemill.core.definition import Definition, Dialect, RefreshMode
from lakemill.core.graph import Node as GraphNode
from lakemill.core.graph import build_graph
from lakemill.core.names import QualifiedName, fold, quote
from lakemill.core.plan import Reason, ResolvedMode, Shape, obstacle, resolve
from lakemill.core.position import START, Position
from lakemill.core.query import build, qualified
from lakemill.core.references import tables as named_tables
from lakemill.core.schema import duck_type
from lakemill.core.shape import NotIncremental, Volatile
from lakemill.core.state import keep
from lakemill.errors import BadStatement, Cycle, NotIncrementable, SqlFailed, UnknownTable, UnsupportedType
from lakemill.lake import duck
from lakemill.spark import analysis
from lakemill.store import definitions
from lakemill.store.definitions import DynamicTable, OutputColumn, Resolved, Source, SourceKind

if TYPE_CHECKING:
    from lakemill.lake.catalog import Catalog
    from lakemill.runtime.open import Lake

Types = dict[str, dict[str, str]]
"""Columns with their DuckDB types, by ``schema.table``; all names folded."""
_DEEPEST_VIEW = 32
_NO_ONE_ANSWER = frozenset({"LIMIT_WITHOUT_ORDER", "DISTINCT_ON"})
_PICTURE = re.compile(r"LINE (\d+): (.*)\n( *)\^")


@dataclass(frozen=True, slots=True)
class Analysis:
    definition: Definition
    resolved: Resolved
    mode: ResolvedMode
    shape: Shape
    sources: tuple[Source, ...]
    """Tables in the order of their numbers in the shape, then views."""
    types: Types


def analyse(lake: Lake, definition: Definition, at: Position = START, file: str | None = None) -> Analysis:
    """What a definition means on the lake as it is now; ``at`` is where its query stands, for errors."""
    if definition.dialect is Dialect.SPARK:
        return _analyse_spark(lake, definition, at, file)
    parsed = parse_query(definition.query, at, file)
    with lake.catalog() as catalog:
        found = _Lookup(lake, catalog, definition, at, file)
        query = found.expanded(parsed)
        output = _output(lake, definition, found, at, file)
        sources, types = found.tables, found.types
    text = query.sql("duckdb") if found.views else definition.query  # positions hold only in what was written
    by_schema: dict[str, dict[str, Mapping[str, str]]] = {}
    for source in sources:
        schema, name = source.name.key
        by_schema.setdefault(schema, {})[name] = types[source.key]
    try:
        full = qualified(text, by_schema)
    except SqlglotError as error:
        raise BadStatement(f"the query can't be taken apart: {_first_line(error)}", place=at.place(file)) from error
    shape = shape_of(full, sources, types, at, file)
    dialect.check(full, types, text="" if found.views else text, at=at, file=file)
    if not isinstance(shape, NotIncremental):
        shape = keep(shape, [types[source.key] for source in sources])
    mode = _resolved(definition, shape, at, file)
    clocked = uses_clock(with_parameter(full)) or _clocked_suppliers(lake, sources)
    resolved = Resolved(full.sql("duckdb"), mode.mode, _told(mode.reason), output, clocked)
    used = _mentioned(full, sources, types)
    narrowed = tuple(replace(source, columns=names) for source, names in zip(sources, used, strict=True))
    _refuse_cycle(lake, definition, narrowed)
    return Analysis(definition, resolved, mode, shape, (*narrowed, *found.views), types)


def _analyse_spark(
    lake: Lake, definition: Definition, at: Position, file: str | None, before: tuple[Source, ...] = ()
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
    described = analysis.described(lake.spark, query, used, at, file)
    output = _named_columns(definition, [name for name, _ in described], [type_ for _, type_ in described], at, file)
    mode = _resolved(definition, sparksql.NO_DELTAS, at, file)
    clocked = query.clocked or _clocked_suppliers(lake, sources)
    resolved = Resolved(definition.query, mode.mode, _told(mode.reason), output, clocked)
    _refuse_cycle(lake, definition, narrowed)
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
    query: exp.Query, sources: tuple[Source, ...], types: Types, at: Position = START, file: str | None = None
) -> Shape:
    """The tree of a qualified query, or why it has none."""
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
            place=at.place(file),
        ) from None


# ---------------------------------------------------------------- reading the text
def parse_query(text: str, at: Position, file: str | None, dialect: Dialect = Dialect.DUCKDB) -> exp.Query:
    try:
        found = sqlglot.parse(text, dialect=dialect.value)
    except SqlglotError as error:
        first = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
        lines = text.split("\n")
        line, column = int(first.get("line") or 1), int(first.get("col") or 1)
        offset = sum(len(one) + 1 for one in lines[: line - 1]) + column - 1
        place = at.within(text, min(offset, len(text))).place(file)
        told = first.get("description") or _first_line(error)
        raise BadStatement(f"the query can't be read: {told}", place=place) from error
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
                place=at.place(file),
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
        for table, name in named_tables(query):
            source = self._source(name, table)
            if source.kind is SourceKind.VIEW:
                text, aliases = self.view_texts[name]
                inner = self.expanded(cast("exp.Query", sqlglot.parse_one(text, dialect="duckdb")), depth + 1)
                names = [exp.to_identifier(alias, quoted=True) for alias in _aliases(aliases)]
                alias = exp.TableAlias(this=exp.to_identifier(table.alias_or_name, quoted=True), columns=names)
                subquery = exp.Subquery(this=inner, alias=alias, joins=table.args.get("joins"))
                table.replace(subquery)
            else:
                table.set("db", exp.to_identifier(name.schema, quoted=True))
        return query

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
            raise UnknownTable(f"there is no table or view {name}", place=self._place(table)) from None
        self.types[key] = {fold(column.name): duck_type(column) for column in found.columns}
        return Source(SourceKind.TABLE, QualifiedName(found.schema, found.name), (), table_id=found.id)

    def _place(self, found: exp.Expr) -> str:
        where = found.this if isinstance(found.this, exp.Identifier) else found
        offset = where.meta.get("start") if where.meta else None
        return (self.at if offset is None else self.at.within(self.definition.query, int(offset))).place(self.file)


def _aliases(text: str) -> list[str]:
    """``"x","y"`` as the catalog writes it."""
    return [part.replace('""', '"') for part in re.findall(r'"((?:[^"]|"")*)"', text)]


# ---------------------------------------------------------------- asking DuckDB
def _output(
    lake: Lake, definition: Definition, found: _Lookup, at: Position, file: str | None
) -> tuple[OutputColumn, ...]:
    """The columns of the query, as DuckDB names and types them."""
    with duck.connect(lake.settings, "", attach=False) as scratch:
        for source in found.tables:
            columns = found.types[source.key]
            inner = ", ".join(f"{quote(name)} {type_}" for name, type_ in columns.items())
            scratch.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(source.name.schema)}")
            scratch.execute(f"CREATE TABLE {source.name} ({inner})")
        for view in reversed(found.views):  # one that another reads was found after it
            text, aliases = found.view_texts[view.name]
            scratch.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(view.name.schema)}")
            scratch.execute(f"CREATE VIEW {view.name}{f' ({aliases})' if aliases else ''} AS {text}")
        try:
            rows = scratch.execute(f"DESCRIBE {definition.query}").fetchall()
        except duck.DuckError as error:
            raise _refused(error, definition.query, at, file) from error
    return _named_columns(definition, [row[0] for row in rows], [row[1] for row in rows], at, file)


def _named_columns(
    definition: Definition, names: Sequence[str], types: Sequence[str], at: Position, file: str | None
) -> tuple[OutputColumn, ...]:
    """The columns of the table: the query's own, under the names of the column list where there is one."""
    if definition.columns:
        if len(definition.columns) != len(names):
            raise BadStatement(
                f"the column list has {len(definition.columns)} names, the query {len(names)} columns",
                place=at.place(file),
            )
        names = list(definition.columns)
    twice = {name for name in names if [fold(other) for other in names].count(fold(name)) > 1}
    if twice:
        raise BadStatement(
            f"two columns are called {min(twice)!r}", remedy="give one of them an alias", place=at.place(file)
        )
    return tuple(OutputColumn(name, _kept_as(type_, name)) for name, type_ in zip(names, types, strict=True))


def _kept_as(type_: str, name: str) -> str:
    """The type of the column in the lake: Spark has no 128-bit integers, and compares no maps."""
    if "MAP(" in type_:
        raise UnsupportedType(
            f"column {name!r} holds a map, which can't be compared", remedy="write map_entries(…), a list of structs"
        )
    if type_ in ('"NULL"', "NULL"):
        return "INTEGER"
    return type_.replace("UHUGEINT", "DECIMAL(38,0)").replace("HUGEINT", "DECIMAL(38,0)")


def _refused(error: Exception, text: str, at: Position, file: str | None) -> SqlFailed:
    picture = _PICTURE.search(str(error))
    message = re.sub(r";? *(LINE \d+|Candidate functions):.*$", "", duck.one_line(error))
    place = at
    if picture is not None:
        number, caret = int(picture[1]), len(picture[3]) - len(f"LINE {picture[1]}: ")
        lines = text.split("\n")
        if not picture[2].startswith("...") and number <= len(lines):
            caret -= len("DESCRIBE ") if number == 1 else 0
            offset = sum(len(line) + 1 for line in lines[: number - 1]) + max(caret, 0)
            place = at.within(text, offset)
    return SqlFailed(message, remedy="correct the query", place=place.place(file))


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


def _refuse_cycle(lake: Lake, definition: Definition, sources: tuple[Source, ...]) -> None:
    others = [node for node in definitions.nodes(lake.conn) if node.name != definition.name]
    own = GraphNode(definition.name, definition.target_lag, tuple(source.name for source in sources))
    build_graph([*others, own])


def _told(reason: Reason) -> str:
    return f"{reason.code}: {reason.text}" + (f" → {reason.remedy}" if reason.remedy else "")


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
