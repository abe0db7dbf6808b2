"""A definition becomes what can be run: names looked up in the lake, views expanded, types asked of DuckDB.

Lines 2 and 3 of a refresh, for ``create``, ``validate``, and a refresh whose sources changed their shape. DuckDB binds
the query over empty tables of the same columns, in memory: what it refuses is refused, and the types of the output are
its types. A query in Spark's own SQL is asked of Spark instead. Nothing is written anywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakemill.core import dialect, sparksql
from lakemill.core.clock import uses_clock, with_parameter
from lakemill.core.definition import Definition, Dialect, RefreshMode
from lakemill.core.graph import Node as GraphNode
from lakemill.core.graph import build_graph
from lakemill.core.names import fold
from lakemill.core.plan import Reason, ResolvedMode, Shape, obstacle, resolve
from lakemill.core.position import START, Position
from lakemill.core.qualified import qualified
from lakemill.core.query import build
from lakemill.core.reserved import is_parameter
from lakemill.core.select import first_line, parse_query, within
from lakemill.core.shape import NotIncremental, Volatile, has_grand_total
from lakemill.core.state import keep
from lakemill.errors import BadStatement, Cycle, NotIncrementable, UnsupportedSql
from lakemill.runtime.binding import described, named_columns, refuse_reserved
from lakemill.runtime.lookup import Lookup, Types
from lakemill.spark import analysis
from lakemill.store import definitions
from lakemill.store.definitions import DynamicTable, Resolved, Source, SourceKind

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake

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
        found = Lookup(lake, catalog, definition, at, file)
        query = found.expanded(parsed)
        views = [(view.name, *found.view_texts[view.name]) for view in found.views]
        named, typed = described(
            lake, definition.query, {s.name: found.spelled[s.key] for s in found.tables}, views, at, file
        )
        output = named_columns(definition, named, typed, at, file, listed_at)
        sources, types = found.tables, found.types
    text = query.sql("duckdb") if found.views else definition.query
    written = "" if found.views else text  # positions hold only in what was written
    shown = {fold(name) for name in named} | {fold(one.name) for one in query.find_all(exp.Column)}
    asked = {s.name: [name for name in types[s.key] if name in shown and is_parameter(name)] for s in sources}
    refuse_reserved(query, written, asked, output, at, file, listed_at if definition.columns else None)
    try:
        with dialect.explained(written, at, file):
            full = qualified(text, found.by_schema())
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
        found = Lookup(lake, catalog, definition, at, file)
        found.look_up(query.named)
        sources, types, spelled = found.tables, found.types, found.spelled
    if before:  # stars stay as they were: a column that came later is not there
        known = {source.key: source.columns for source in before}
        types = {key: {n: type_ for n, type_ in own.items() if n in known.get(key, own)} for key, own in types.items()}
    narrowed = tuple(replace(source, columns=query.uses(types[source.key])) for source in sources)
    used = {
        source.key: {name: type_ for name, type_ in spelled[source.key].items() if fold(name) in source.columns}
        for source in narrowed
    }
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
        found = analyse(lake, definition)
        return replace(found, resolved=_spelled_as_before(found.resolved, table.resolved))
    names = tuple(column.name for column in table.resolved.columns)
    found = analyse(lake, replace(definition, query=table.resolved.query, columns=names))
    return replace(found, definition=definition)


def _spelled_as_before(now: Resolved, before: Resolved) -> Resolved:
    """Capitals that came or went in a source are no other columns."""
    if [fold(column.name) for column in now.columns] != [fold(column.name) for column in before.columns]:
        return now
    both = zip(now.columns, before.columns, strict=True)
    return replace(now, columns=tuple(replace(new, name=old.name) for new, old in both))


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
            place=within(at, text, found.place).place(file),
        ) from None


def _unresolved(error: SqlglotError, text: str, at: Position, file: str | None) -> BadStatement:
    """DuckDB knows the column, sqlglot does not: it is none of the table's own."""
    found = _NO_COLUMN.search(first_line(error))
    if found is None:
        return BadStatement(f"the query can't be taken apart: {first_line(error)}", place=at.place(file))
    place = at
    for column in sqlglot.parse_one(text, dialect="duckdb").find_all(exp.Column) if text else ():
        if fold(column.name) == fold(found[1]):
            place = within(at, text, column)
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
