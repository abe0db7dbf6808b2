"""What a definition would be, check by check, without declaring it: what `validate` shows.

Each statement is analysed, and declared, in one transaction that is rolled back: a later statement of the same script
sees the tables of the earlier ones, all see one state of the lake, and nothing has happened afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, cast

import sqlglot
from sqlglot import exp

from lakemill.core import ducktypes
from lakemill.core.ddl import parse_script
from lakemill.core.definition import Definition, Dialect, RefreshMode
from lakemill.core.graph import Warned
from lakemill.core.names import QualifiedName
from lakemill.core.properties import PROPERTIES, shown
from lakemill.core.references import tables
from lakemill.core.select import parse_query
from lakemill.core.statement import Create, IfExists, Statement
from lakemill.errors import (
    BadStatement,
    Cycle,
    HasDependents,
    LakemillError,
    NotIncrementable,
    UnknownTable,
    UserError,
)
from lakemill.runtime.analyse import Analysis
from lakemill.runtime.dynamic import analysed, require_home, require_properties, warned
from lakemill.store import db, definitions
from lakemill.store.definitions import SourceKind

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake


class Verdict(Enum):
    OK = "ok"
    WARN = "warn"
    WRONG = "wrong"
    UNCHECKED = "not checked"  # because of what is wrong before it


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    verdict: Verdict
    found: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class Validation:
    """What was found out about one CREATE DYNAMIC TABLE."""

    checks: tuple[Check, ...]
    definition: Definition | None = None
    """None where the statement can't be read."""
    analysis: Analysis | None = None
    """None where something is wrong."""
    named: tuple[QualifiedName, ...] = ()
    """The tables and views that its text names."""
    warned: tuple[Warned, ...] = ()
    error: LakemillError | None = None

    @property
    def valid(self) -> bool:
        return self.error is None

    def passed(self, name: str) -> bool:
        return all(check.verdict in (Verdict.OK, Verdict.WARN) for check in self.checks if check.name == name)

    @property
    def suppliers(self) -> tuple[QualifiedName, ...]:
        """The dynamic tables that it reads."""
        sources = self.analysis.sources if self.analysis else ()
        return tuple(source.name for source in sources if source.kind is SourceKind.DYNAMIC)

    @property
    def columns(self) -> tuple[tuple[str, str, str], ...]:
        """Its name, and its type in DuckDB and in Spark, of each column."""
        return _columns(self.analysis) if self.analysis else ()

    @property
    def keys(self) -> tuple[str, ...]:
        """What its rows are grouped by."""
        return _keys(self.analysis) if self.analysis else ()


CHECKS = ("syntax", "name", "sources", "types", "keys", "strategy", "dependencies", "properties", "warnings")


def validate(lake: Lake, script: str, file: str | None = None) -> tuple[Validation, ...]:
    """One after the other; a script that can't be read at all is one that is wrong."""
    try:
        found = [_create_only(statement, file) for statement in parse_script(script, file)]
        if not found:
            raise BadStatement("there is no statement", remedy="write CREATE DYNAMIC TABLE name … AS SELECT …")
    except LakemillError as error:
        return (Validation(tuple(_failed("syntax", error, {})), error=error),)
    with db.rolled_back(lake.conn):
        validated = [_validated(lake, statement, file) for statement in found]
        return tuple(_with_warnings(lake, one) for one in validated)


def _create_only(statement: Statement, file: str | None) -> Create:
    if isinstance(statement, Create):
        return statement
    raise BadStatement(
        "only CREATE DYNAMIC TABLE can be validated",
        remedy="leave the other statements out",
        place=statement.at.place(file),
    )


def _validated(lake: Lake, statement: Create, file: str | None) -> Validation:
    definition = statement.definition
    told = {"syntax": f"CREATE DYNAMIC TABLE {definition.name}", "properties": ", ".join(_properties(definition))}
    at = statement.places.get("query", statement.at)
    where = "syntax"
    named: tuple[QualifiedName, ...] = ()
    try:
        parsed = parse_query(definition.query, at, file, definition.dialect)
        named = tuple(dict.fromkeys(name for _, name in tables(parsed)))
        where = "name"
        known = definitions.find(lake.conn, definition.name)
        require_home(lake, statement, known, file)
        told["name"] = "it is free" if known is None else f"there is one: {statement.if_exists.value}"
        where = "types"
        found = analysed(lake, statement, file)
        where = "properties"
        require_properties(lake, statement, found, file)
        if known is None:
            definitions.create(lake.conn, definition, found.resolved, found.sources)
        elif statement.if_exists is not IfExists.KEEP:
            definitions.declare(lake.conn, known, definition, found.resolved, found.sources)
    except UserError as error:
        failed = _WHERE.get(type(error), where) if where == "types" else where
        if failed in CHECKS[CHECKS.index("types") :]:
            told["sources"] = ", ".join(map(str, named))
        if failed in CHECKS[CHECKS.index("strategy") :]:
            told["types"] = "both engines can run it" if definition.dialect is Dialect.DUCKDB else "Spark can run it"
        return Validation(tuple(_failed(failed, error, told)), definition, named=named, error=error)
    return Validation(tuple(_passed(found, told)), definition, found, named)


_WHERE: dict[type[UserError], str] = {
    UnknownTable: "sources",
    NotIncrementable: "strategy",
    Cycle: "dependencies",
    HasDependents: "dependencies",
}
"""Which check an error belongs to; any other to the one that was under way."""


# ---------------------------------------------------------------- what each check says
def _passed(found: Analysis, told: dict[str, str]) -> Iterator[Check]:
    reason = found.mode.reason
    keys = _keys(found)
    dynamic = [str(source.name) for source in found.sources if source.kind is SourceKind.DYNAMIC]
    told |= {
        "sources": ", ".join(_source(source.kind, source.name) for source in found.sources) or "it reads no table",
        "types": ", ".join(f"{name} {duck} (Spark: {spark})" for name, duck, spark in _columns(found)),
        "keys": ", ".join(keys) if keys else "no GROUP BY",
        "strategy": f"{found.mode.mode.value}: {reason.text}",
        "dependencies": ", ".join(dynamic) or "it reads no dynamic table",
    }
    for name in CHECKS[:-1]:
        slow = name == "strategy" and found.mode.mode is RefreshMode.FULL and reason.remedy is not None
        yield Check(name, Verdict.WARN if slow else Verdict.OK, told[name], reason.remedy if slow else None)


def _with_warnings(lake: Lake, one: Validation) -> Validation:
    """Of all of the script together: what one statement lacks, a later one may bring."""
    if one.analysis is None:
        return one
    own = warned(lake, one.analysis.definition.name)
    checks = [Check("warnings", Verdict.WARN, found.message, found.remedy) for found in own]
    return replace(one, checks=(*one.checks, *(checks or [Check("warnings", Verdict.OK, "none")])), warned=own)


def _failed(failed: str, error: LakemillError, told: dict[str, str]) -> Iterator[Check]:
    place = f"{error.place}: " if error.place else ""
    for name in CHECKS:
        if name == failed:
            yield Check(name, Verdict.WRONG, f"{error.code}: {place}{error.message}", error.remedy or None)
        elif name in told:
            yield Check(name, Verdict.OK, told[name])
        else:
            yield Check(name, Verdict.UNCHECKED, "")


def _source(kind: SourceKind, name: QualifiedName) -> str:
    return str(name) if kind is SourceKind.TABLE else f"{name} ({'view' if kind is SourceKind.VIEW else 'dynamic'})"


def _properties(definition: Definition) -> Iterable[str]:
    lines = [line for line in shown(definition) if line.split(" ")[0] in PROPERTIES]
    return [*lines, f"PARTITION BY ({', '.join(definition.partition_by)})"] if definition.partition_by else lines


def _columns(found: Analysis) -> tuple[tuple[str, str, str], ...]:
    columns = [(column, ducktypes.parse(column.type)) for column in found.resolved.columns]
    return tuple(
        (one.name, one.type, ducktypes.spark(type_) if type_ and ducktypes.shared(type_) else one.type)
        for one, type_ in columns
    )


def _keys(found: Analysis) -> tuple[str, ...]:
    """As the table calls them; a key that it does not show, as the query does."""
    dialect = found.definition.dialect.value
    query = cast("exp.Query", sqlglot.parse_one(found.resolved.query, dialect=dialect))
    group = query.args.get("group")
    if not isinstance(group, exp.Group):
        return ()
    output = [column.name for column in found.resolved.columns]
    shown = [(name, one.unalias()) for name, one in zip(output, query.selects, strict=False)]
    if group.args.get("all"):
        return tuple(name for name, one in shown if not one.find(exp.AggFunc))
    return tuple(next((name for name, one in shown if one == key), _key(key, dialect)) for key in group.expressions)


def _key(key: exp.Expr, dialect: str) -> str:
    return key.name if isinstance(key, exp.Column) else key.sql(dialect)
