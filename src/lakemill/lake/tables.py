"""DDL on lake tables, always through the DuckLake extension, and generations: tables built under another name.

The extension knows what a table needs in the catalog; nobody else may make or alter one. A new definition of a table
is built as a *generation* under a name that nobody uses, filled like any table, and takes its name by a publish
(``SwapGeneration``), in the same snapshot as its last files. Until then the old table answers, or the name does not
exist.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psycopg
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakemill.core import ducktypes
from lakemill.core.commit import NoConflict, Purpose, Requirement, SwapGeneration, Update
from lakemill.core.scan import TableAt
from lakemill.core.schema import Column, duck_type
from lakemill.errors import BadArgument, UnsupportedType
from lakemill.lake.catalog import reading
from lakemill.lake.duck import Connection, DuckError, explained
from lakemill.store.definitions import OutputColumn

GENERATION_PREFIX = "__lakemill_"


@dataclass(frozen=True, slots=True)
class Generation:
    """A table that waits for its name; ``since`` is the snapshot that it was made at."""

    table: TableAt
    goal: str
    since: int

    def takes_name(self, old_table_id: int | None) -> tuple[tuple[Update, ...], tuple[Requirement, ...]]:
        """The update that gives it the name, and what that requires. Our own appends to it come in the same publish."""
        swap = SwapGeneration(self.table.schema_id, self.table.schema, self.goal, old_table_id, self.table.id)
        return (swap,), (NoConflict(self.table.id, self.since, Purpose.GENERATION),)


@dataclass(frozen=True, slots=True)
class Declared:
    """A column as a user declares it; ``default`` is an expression of DuckDB."""

    name: str
    type: str
    not_null: bool = False
    default: str | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise BadArgument("a column needs a name", remedy="write name TYPE")
        if self.default is not None:
            expression(self.default)
        try:
            parsed = ducktypes.parse(self.type)
        except SqlglotError:
            parsed = None
        if parsed is None or not ducktypes.shared(parsed):
            raise UnsupportedType(
                f"column {self.name!r}: {self.type!r} is no type that DuckDB and Spark share",
                remedy="docs/reference/types.md lists those that are",
            )


def expression(text: str) -> exp.Expr:
    """An expression of DuckDB, as it is written in DDL."""
    try:
        return sqlglot.parse_one(text, dialect="duckdb")
    except SqlglotError as error:
        raise BadArgument(f"{text!r} is no expression", remedy="write it as in SQL") from error


def parse_columns(text: str) -> tuple[Declared, ...]:
    """Columns as in CREATE TABLE: ``id BIGINT NOT NULL, price DECIMAL(10,2) DEFAULT 0``."""
    try:
        parsed = sqlglot.parse_one(f"CREATE TABLE t ({text})", dialect="duckdb")
    except SqlglotError as error:
        raise BadArgument(f"{text!r} are no columns", remedy="write name TYPE [NOT NULL] [DEFAULT value], …") from error
    found = []
    for part in parsed.this.expressions if isinstance(parsed.this, exp.Schema) else ():
        if not isinstance(part, exp.ColumnDef) or part.kind is None:
            raise BadArgument(f"{part.sql('duckdb')} is no column with a type", remedy="a key is an option: --key")
        not_null, default = False, None
        for rule in part.constraints:
            if isinstance(rule.kind, exp.NotNullColumnConstraint):
                not_null = not rule.kind.args.get("allow_null")
            elif isinstance(rule.kind, exp.DefaultColumnConstraint):
                default = rule.kind.this.sql("duckdb")
            else:
                raise BadArgument(
                    f"{part.sql('duckdb')}: only NOT NULL and DEFAULT are possible", remedy="leave it out"
                )
        found.append(Declared(part.name, part.kind.sql("duckdb"), not_null, default))
    if not found:
        raise BadArgument("a table needs a column", remedy="write name TYPE [NOT NULL] [DEFAULT value], …")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Rename:
    column: str
    to: str


@dataclass(frozen=True, slots=True)
class Retype:
    column: str
    type: str


@dataclass(frozen=True, slots=True)
class DropColumn:
    column: str


Alteration = Declared | Rename | Retype | DropColumn
"""``Declared``: a column more."""


def create_table(
    connection: Connection,
    schema: str,
    name: str,
    columns: Sequence[Column | OutputColumn | Declared],
    partition_by: Sequence[str] = (),
) -> None:
    """CREATE TABLE with these columns; ``partition_by`` are DuckLake's expressions, such as ``year(day)``."""
    if not columns:
        raise BadArgument(f"table {schema}.{name} needs at least one column")
    definition = exp.Create(
        this=exp.Schema(this=_table(schema, name), expressions=[_column(column) for column in columns]), kind="TABLE"
    )
    statements = [definition.sql("duckdb")]
    if partition_by:
        statements.append(_partitioned(schema, name, partition_by))
    _together(connection, statements)


def alter_table(connection: Connection, schema: str, name: str, alterations: Sequence[Alteration]) -> None:
    """All of them as one snapshot, or none."""
    table = _table(schema, name).sql("duckdb")
    _together(connection, [f"ALTER TABLE {table} {_altering(one)}" for one in alterations])


def _altering(one: Alteration) -> str:
    match one:
        case Declared():
            return f"ADD COLUMN {_column(one).sql('duckdb')}"
        case Rename(column, to):
            return f"RENAME COLUMN {_name(column)} TO {_name(to)}"
        case Retype(column, type_):
            wider = exp.DataType.build(type_, dialect="duckdb").sql("duckdb")
            return f"ALTER COLUMN {_name(column)} SET DATA TYPE {wider}"
        case DropColumn(column):
            return f"DROP COLUMN {_name(column)}"


def _name(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql("duckdb")


def _together(connection: Connection, statements: Sequence[str]) -> None:
    with explained():
        connection.execute("BEGIN")
        try:
            for statement in statements:
                connection.execute(statement)
            connection.execute("COMMIT")
        except BaseException:
            with suppress(DuckError):  # a failed COMMIT has ended it already
                connection.execute("ROLLBACK")
            raise


def drop_table(connection: Connection, schema: str, name: str) -> None:
    """DROP TABLE; one that is gone already is no error."""
    with explained():
        connection.execute(exp.Drop(tables=[_table(schema, name)], kind="TABLE", exists=True).sql("duckdb"))


def build_generation(
    connection: Connection,
    conn: psycopg.Connection[Any],
    schema: str,
    goal: str,
    columns: Sequence[Column | OutputColumn],
    partition_by: Sequence[str] = (),
    *,
    owner: str = "",
    catalog_schema: str = "public",
) -> Generation:
    """Make an empty table that will once be called ``goal``; its columns get ids of their own.

    ``owner`` goes into its name until then: ``abandon_all`` finds it again if its maker dies.
    """
    name = f"{GENERATION_PREFIX}{owner}_{uuid.uuid4().hex}"
    create_table(connection, schema, name, columns, partition_by)
    with reading(conn, catalog_schema) as catalog:
        head = catalog.head()
        return Generation(catalog.table(schema, name, head.id), goal, head.id)


def abandon(connection: Connection, generation: Generation) -> None:
    """Drop a generation that will not take its name."""
    drop_table(connection, generation.table.schema, generation.table.name)


def abandon_all(
    connection: Connection, conn: psycopg.Connection[Any], schema: str, owner: str, *, catalog_schema: str = "public"
) -> None:
    """Drop what a maker of this owner's generations left behind; only for who has the owner's claim."""
    with reading(conn, catalog_schema) as catalog:  # DuckDB would load all tables of the lake to say it
        found = catalog.tables_called(schema, f"{GENERATION_PREFIX}{owner}_", catalog.head().id)
    for name in found:
        drop_table(connection, schema, name)


def _table(schema: str, name: str) -> exp.Table:
    return exp.Table(this=exp.to_identifier(name, quoted=True), db=exp.to_identifier(schema, quoted=True))


def _column(column: Column | OutputColumn | Declared) -> exp.ColumnDef:
    rules = []
    if not _nullable(column):
        rules.append(exp.ColumnConstraint(kind=exp.NotNullColumnConstraint()))
    if isinstance(column, Declared) and column.default is not None:
        value = expression(column.default)
        rules.append(exp.ColumnConstraint(kind=exp.DefaultColumnConstraint(this=value)))
    type_ = duck_type(column) if isinstance(column, Column) else column.type
    return exp.ColumnDef(
        this=exp.to_identifier(column.name, quoted=True),
        kind=exp.DataType.build(type_, dialect="duckdb"),
        constraints=rules,
    )


def _nullable(column: Column | OutputColumn | Declared) -> bool:
    match column:
        case Column():
            return column.nulls_allowed
        case Declared():
            return not column.not_null
    return True


def _partitioned(schema: str, name: str, partition_by: Sequence[str]) -> str:
    keys = ", ".join(expression(key).sql("duckdb") for key in partition_by)
    return f"ALTER TABLE {_table(schema, name).sql('duckdb')} SET PARTITIONED BY ({keys})"
