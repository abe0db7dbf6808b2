"""DuckDB binds a query over empty tables of the same columns, in memory: its refusals and its types are ours.

For ``runtime/analyse``, which knows what the query reads. The lake itself is not asked, and nothing is written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from lakemill.core.definition import Definition
from lakemill.core.names import QualifiedName, fold, quote
from lakemill.core.position import Position
from lakemill.core.reserved import alike, is_parameter, is_reserved
from lakemill.errors import BadStatement, SqlFailed, UnsupportedType
from lakemill.lake import duck
from lakemill.store.definitions import OutputColumn

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake

_FILES = "file system operations are disabled"
_PICTURE = re.compile(r"LINE (\d+): (.*)\n( *)\^")


def described(
    lake: Lake,
    query: str,
    tables: Mapping[QualifiedName, Mapping[str, str]],
    views: Sequence[tuple[QualifiedName, str, str]],
    at: Position,
    file: str | None,
) -> tuple[list[str], list[str]]:
    """Names and types of the query's columns, over tables with typed columns and views with their text and aliases."""
    with duck.connect(lake.settings, "", attach=False) as scratch:
        for name, columns in tables.items():
            inner = ", ".join(f"{quote(column)} {type_}" for column, type_ in columns.items())
            scratch.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(name.schema)}")
            scratch.execute(f"CREATE TABLE {name} ({inner})")
        for name, text, aliases in views:  # each after those that it reads
            scratch.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(name.schema)}")
            scratch.execute(f"CREATE VIEW {name}{f' ({aliases})' if aliases else ''} AS {text}")
        # binding alone opens what read_csv() and the like name; whoever sends a query may be anybody (api/dynamic)
        scratch.execute("SET enable_external_access = false")
        try:
            rows = scratch.execute(f"DESCRIBE {query}").fetchall()
        except duck.DuckError as error:
            raise _refused(error, query, at, file) from error
    return [row[0] for row in rows], [row[1] for row in rows]


def named_columns(
    definition: Definition,
    names: Sequence[str],
    types: Sequence[str],
    at: Position,
    file: str | None,
    listed_at: Position,
) -> tuple[OutputColumn, ...]:
    """The columns of the table: the query's own, under the names of the column list where there is one."""
    if definition.columns:
        if len(definition.columns) != len(names):
            raise BadStatement(
                f"the column list has {len(definition.columns)} names, the query {len(names)} columns",
                remedy=f"the query's are {', '.join(names)}: give each a name, or leave the list out",
                place=listed_at.place(file),
            )
        names = list(definition.columns)
    twice = {name for name in names if [fold(other) for other in names].count(fold(name)) > 1}
    if twice:
        raise BadStatement(
            f"two columns are called {min(twice)!r}", remedy="give one of them an alias", place=at.place(file)
        )
    return tuple(OutputColumn(name, _kept_as(type_, name)) for name, type_ in zip(names, types, strict=True))


def refuse_reserved(
    query: exp.Query,
    text: str,
    used: Mapping[QualifiedName, Collection[str]],
    output: Sequence[OutputColumn],
    at: Position,
    file: str | None,
    listed_at: Position | None = None,
) -> None:
    """Names that would meet ours, or each other in Spark: of columns that the query uses, and of those that it gives.

    ``text``: the query as it was written, where places in it are known; ``listed_at``: where a column list
    stands.
    """

    def place(name: str) -> str:
        named = [one for one in query.find_all(exp.Identifier) if fold(one.name) == fold(name) and "start" in one.meta]
        return (at.within(text, int(named[0].meta["start"])) if text and named else at).place(file)

    for table, names in used.items():
        if (other := alike(names)) is not None:
            raise BadStatement(
                f"{table} has two columns that differ in the case of {other!r} alone, which are one to Spark",
                remedy=f"rename one of them: ALTER TABLE {table} RENAME COLUMN {quote(other)} TO …, or don't read it",
                place=place(other),
            )
        for name in names:
            if is_reserved(name) or is_parameter(name):
                raise BadStatement(
                    f"{table} has a column {name!r}, a name that Lakemill needs for itself",
                    remedy=f"rename it: ALTER TABLE {table} RENAME COLUMN {quote(name)} TO …, or don't read it",
                    place=place(name),
                )
    if (other := alike([column.name for column in output])) is not None:
        raise BadStatement(
            f"two columns differ in the case of {other!r} alone, and are one to Spark",
            remedy="give one of them another name",
            place=listed_at.place(file) if listed_at else place(other),
        )
    for column in output:
        if is_reserved(column.name) or is_parameter(column.name):
            raise BadStatement(
                f"a column can't be called {column.name!r}, a name that Lakemill needs for itself",
                remedy="give it another name",
                place=listed_at.place(file) if listed_at else place(column.name),
            )


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
    if _FILES in str(error):
        told, cure = "the query reads a file", "write a table from it first: a dynamic table reads those of the lake"
        return SqlFailed(told, remedy=cure, place=at.place(file))
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
