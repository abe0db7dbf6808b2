"""The proof: DuckDB computes a dynamic table's query at its data snapshot, and compares it with what Spark keeps there.

Another engine, the same snapshot, the user's own words (``runtime/words``). Rows are compared as bags; floats that
differ in no more than a billionth count as equal, once all other columns match, because a sum depends on the order of
its parts. A query in Spark's own SQL can only be computed by Spark again, from the whole of its sources: that is
compared, and it is said that no second engine checked it. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, cast

import sqlglot
from sqlglot import exp

from lakemill.core import sparksql
from lakemill.core.algebra import WEIGHT
from lakemill.core.definition import Dialect
from lakemill.core.lag import Version
from lakemill.core.names import QualifiedName, fold, quote
from lakemill.core.scan import ALL_DELETED
from lakemill.core.schema import duck_type
from lakemill.errors import ColumnsChanged, DeleteInDoubt, SnapshotGone, TableReplaced, UnknownSnapshot
from lakemill.lake import duck
from lakemill.lake.scan import scan_in
from lakemill.runtime.window import narrowed
from lakemill.runtime.words import Words, placed, words_of
from lakemill.spark import diff
from lakemill.spark.execute import Execution
from lakemill.spark.outputs import explained_write
from lakemill.store import definitions, versions
from lakemill.store.definitions import DynamicTable, Source, SourceKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakemill.runtime.open import Lake

TOLERANCE = 2 * diff.TOLERANCE
"""A stored float may be as far as that from what Spark computes now, and Spark's a few bits from DuckDB's."""
SHOWN = 20
_FLOATS = ("DOUBLE", "FLOAT")


@dataclass(frozen=True, slots=True)
class Verified:
    name: QualifiedName
    b: int
    t: datetime | None
    commit: int
    rows: int
    missing: int
    """Rows of the query that the table lacks."""
    extra: int
    """Rows of the table that the query does not have."""
    columns: tuple[str, ...]
    examples: tuple[tuple[str, tuple[Any, ...]], ...]
    """("missing" or "extra", row); no more than a few of each."""
    engine: Literal["duckdb", "spark"] = "duckdb"
    """Who computed the query; Spark keeps the table, so it is no second opinion."""

    @property
    def equal(self) -> bool:
        return self.missing == 0 and self.extra == 0


@contextmanager
def judge(lake: Lake) -> Iterator[duck.Connection]:
    """A DuckDB that reads the lake and its past, for as many tables as one likes to verify."""
    with duck.connect(lake.settings, lake.dsn, read_only=True) as connection:
        # stock DuckDB can answer wrongly about the past with the first; the second passes the keys
        # of a join below a LIMIT, and rows that are not among the first ones are shown
        connection.execute("SET disabled_optimizers = 'statistics_propagation,join_filter_pushdown'")
        connection.execute("USE memory")
        yield connection


def verify(lake: Lake, name: QualifiedName, at: int | None = None, by: duck.Connection | None = None) -> Verified:
    """Compare what a reader sees, now or at a catalog snapshot, with the query of the version that is kept there.

    Somebody else's writes are seen too; where they left another table, or other columns, that is told as an error.
    ``by``: a judge that is there already.
    """
    table = definitions.get(lake.conn, name)
    snapshot = lake.snapshot(at).id
    version = versions.version_visible(lake.conn, table.id, snapshot)
    if version is None:
        raise UnknownSnapshot(f"{name} had no content yet at snapshot {snapshot}", remedy=f"lakemill refresh {name}")
    then = definitions.by_id(lake.conn, table.id, version.definition_version)
    seen = _seen(lake, then, version, snapshot)
    with judge(lake) if by is None else nullcontext(by) as connection, duck.explained():
        if then.definition.dialect is Dialect.SPARK:
            return replace(_computed_again(lake, connection, then, version, seen), engine="spark")
        return _compared(connection, then, version, seen, _words(lake, then, version))


@dataclass(frozen=True, slots=True)
class _Seen:
    """The table that a reader sees: its name then, at a catalog snapshot."""

    name: QualifiedName
    at: int


def _seen(lake: Lake, table: DynamicTable, version: Version, snapshot: int) -> _Seen:
    with lake.catalog() as catalog:
        found = catalog.table_by_id(version.table_id, snapshot)
    cure = f"lakemill refresh {table.name} loads it anew"
    if found is None:
        raise TableReplaced(f"somebody else dropped or replaced the table of {table.name}", remedy=cure)
    if [fold(column.name) for column in found.columns] != [fold(column.name) for column in table.resolved.columns]:
        raise ColumnsChanged(f"somebody else altered the columns of {table.name}", remedy=cure)
    return _Seen(QualifiedName(found.schema, found.name), snapshot)


def _ends(lake: Lake, table: DynamicTable, version: Version) -> Iterator[tuple[Source, QualifiedName, int]]:
    """Each source, with its name then and the snapshot that it was read at."""
    for source in definitions.sources(lake.conn, table):
        if source.kind is SourceKind.VIEW:
            continue
        found, commit = source.name, version.b_hi
        if source.supplier_id is not None:
            supplier = versions.version_at(lake.conn, source.supplier_id, version.b_hi, version.t)
            if supplier is None:
                raise SnapshotGone(f"the version of {source.name} at data snapshot {version.b_hi} is gone")
            found, commit = _named_at(lake, supplier.table_id, supplier.commit), supplier.commit
        yield source, found, commit


def _words(lake: Lake, table: DynamicTable, version: Version) -> Words:
    """What to ask, with each table at the snapshot that it was read at, and the clock at its time."""
    ends: dict[str, tuple[QualifiedName, int]] = {}
    for source, found, commit in _ends(lake, table, version):
        require_trusted_past(lake, found, commit)
        ends[source.key] = (found, commit)
    return words_of(lake, table, ends, version.t)


def _named_at(lake: Lake, table_id: int, commit: int) -> QualifiedName:
    with lake.catalog() as catalog:
        found = catalog.table_by_id(table_id, commit)
    if found is None:
        raise SnapshotGone(f"table {table_id} is gone at snapshot {commit}")
    return QualifiedName(found.schema, found.name)


def require_trusted_past(lake: Lake, name: QualifiedName, commit: int) -> None:
    """Stock DuckDB takes the stamps of back-dated deletes at their word: refuse where they lie."""
    stamps = lake.front.stamps
    with lake.catalog() as catalog:
        snapshot = catalog.snapshot(commit)
        plan = scan_in(catalog, stamps, catalog.table(name.schema, name.name, commit), snapshot)
        dated = [read for read in plan.deletes if read.cut_b != ALL_DELETED]
        known = stamps.of([read.file.path for read in dated])
    for read in dated:
        own = known.get(read.file.path, {})
        if any((stamp <= read.cut_b) != (stamp <= commit) for stamp in own):
            raise DeleteInDoubt(
                f"{name} has deletes whose time stock DuckDB misreads at snapshot {commit}",
                remedy="refresh the table and look at its newest version",
            )


def _compared(
    connection: duck.Connection, table: DynamicTable, version: Version, seen: _Seen, words: Words
) -> Verified:
    columns = table.resolved.columns
    names = [quote(column.name) for column in columns]
    typed = ", ".join(
        f"CAST(c{i} AS {column.type}) AS {name}" for i, (column, name) in enumerate(zip(columns, names, strict=True))
    )
    places = ", ".join(f"c{i}" for i in range(len(columns)))
    own = f"{duck.LAKE}.{seen.name} AT (VERSION => {seen.at})"
    with placed(connection, words):
        text = f"SELECT {typed} FROM ({words.text}\n) AS q({places})"
        connection.execute(f"CREATE OR REPLACE TABLE memory.main.wanted AS {text}")
    connection.execute(f"CREATE OR REPLACE TABLE kept AS SELECT {', '.join(names)} FROM {own}")
    connection.execute("CREATE OR REPLACE TABLE missing AS SELECT * FROM wanted EXCEPT ALL SELECT * FROM kept")
    connection.execute("CREATE OR REPLACE TABLE extra AS SELECT * FROM kept EXCEPT ALL SELECT * FROM wanted")
    return _judged(connection, table, version, _count(connection, "kept"))


def _computed_again(
    lake: Lake, connection: duck.Connection, table: DynamicTable, version: Version, seen: _Seen
) -> Verified:
    """Spark finds the rows that differ; only these come here."""
    text = table.resolved.query
    query = sparksql.read(text, cast("exp.Query", sqlglot.parse_one(text, dialect="spark")))
    ends = list(_ends(lake, table, version))
    plans = [lake.table(str(found)).plan_scan(commit) for _, found, commit in ends]
    own = lake.table(str(seen.name))
    kept = own.plan_scan(seen.at)

    def leaf(number: int, end: str, where: str | None) -> DataFrame:
        source, found, _ = ends[number]
        return lake.table(str(found)).frame(narrowed(plans[number], source.columns))

    types = [{fold(column.name): duck_type(column) for column in plan.table.columns} for plan in plans]
    sizes = [plan.bytes_to_read for plan in plans]
    clock = {"b": version.t}
    with explained_write(), Execution(lake.spark, leaf, types, sizes, kept.table.columns, clock) as execution:
        whole = execution.whole(query, {source.key: number for number, (source, *_) in enumerate(ends)})
        differing = diff.difference(whole, own.frame(kept), kept.table.columns).toArrow()
    connection.register("differing", differing)
    for side, sign in (("missing", ">"), ("extra", "<")):
        times = f"unnest(range(abs({WEIGHT})))"  # as many copies as there are
        connection.execute(
            f"CREATE OR REPLACE TABLE {side} AS SELECT * EXCLUDE ({WEIGHT}, __copy)"
            f" FROM (SELECT *, {times} AS __copy FROM differing WHERE {WEIGHT} {sign} 0)"
        )
    return _judged(connection, table, version, own.count(seen.at))


def _judged(connection: duck.Connection, table: DynamicTable, version: Version, kept: int) -> Verified:
    """What is left of ``missing`` and ``extra`` once floats that are next to equal have found each other."""
    columns = table.resolved.columns
    names = [quote(column.name) for column in columns]
    floats = [name for name, column in zip(names, columns, strict=True) if column.type in _FLOATS]
    if floats:
        _pair(connection, floats, [name for name in names if name not in floats])
    counts = {name: _count(connection, name) for name in ("missing", "extra")}
    examples = [
        (side, tuple(row))
        for side in ("missing", "extra")
        for row in connection.execute(f"SELECT * FROM {side} ORDER BY ALL LIMIT {SHOWN}").fetchall()
    ]
    return Verified(
        table.name,
        version.b_hi,
        version.t,
        version.commit,
        kept,
        counts["missing"],
        counts["extra"],
        tuple(column.name for column in columns),
        tuple(examples),
    )


def _pair(connection: duck.Connection, floats: Sequence[str], others: Sequence[str]) -> None:
    """Rows of both sides that differ in floats only, and by next to nothing, are no difference."""
    grouped = f"PARTITION BY {', '.join(others)} " if others else ""
    number = f"row_number() OVER ({grouped}ORDER BY {', '.join(floats)}) AS __n"
    for side in ("missing", "extra"):
        connection.execute(f"CREATE OR REPLACE TABLE {side}_n AS SELECT *, {number} FROM {side}")
    same = [f"m.{name} IS NOT DISTINCT FROM e.{name}" for name in (*others, "__n")]
    same += [
        f"(m.{name} IS NOT DISTINCT FROM e.{name}"
        f" OR (isfinite(m.{name}) AND isfinite(e.{name})"
        f" AND abs(m.{name} - e.{name}) <= {TOLERANCE} * greatest(abs(m.{name}), abs(e.{name}))))"
        for name in floats
    ]
    condition = " AND ".join(same)
    for side, alias in (("missing", "m"), ("extra", "e")):
        join = f"SELECT {alias}.* EXCLUDE __n FROM {side}_n {alias} ANTI JOIN"
        other = "extra_n e" if side == "missing" else "missing_n m"
        connection.execute(f"CREATE OR REPLACE TABLE {side} AS {join} {other} ON {condition}")


def _count(connection: duck.Connection, name: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
    return int(row[0]) if row else 0
