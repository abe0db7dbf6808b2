"""A plan's trees, run by Spark: its leaves are temporary views, its steps are kept, its answer has the table's types.

Line 8 of a refresh. ``core/algebra`` writes a tree as DuckDB's SQL, ``core/dialect`` makes Spark's of it; here names
become views that belong to this refresh alone, and the clock becomes a literal. Which rows a leaf has is the caller's
business: it gives DataFrames.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import reduce
from types import TracebackType
from typing import Protocol, cast

import sqlglot
from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType
from sqlglot import exp

from lakemill.core import dialect
from lakemill.core.algebra import WEIGHT, End, Node, Stored, at
from lakemill.core.as_sql import leaf, sql
from lakemill.core.clock import NOW, bound, with_parameter
from lakemill.core.delta import Delta, Step
from lakemill.core.ducktypes import integer, parse
from lakemill.core.names import fold
from lakemill.core.origins import Tracing
from lakemill.core.own_names import own_names
from lakemill.core.ranges import Use, needs, uses
from lakemill.core.references import spliced
from lakemill.core.schema import Column, quote_spark, shown_type
from lakemill.core.sparksql import SparkQuery
from lakemill.errors import UnsupportedSql
from lakemill.spark.ends import (
    NUMBERS,
    ORDERED,
    Ends,
    Word,
    apart,
    ends_of,
    few_ends,
    joined,
    read_ends,
    together,
    within,
)
from lakemill.spark.executors import has_executors
from lakemill.telemetry.log import log

Leaf = Callable[[int, End, str | None], DataFrame]
"""A source at an end, and a condition, in Spark SQL, on the rows that are needed."""


class Known(Protocol):
    """What is known before anything is computed."""

    def size(self, number: int, end: End, where: str) -> int:
        """How many bytes a leaf reads under a condition."""

    def bounds(self, number: int, column: str) -> Ends:
        """Between which values those of a column lie in a source's delta."""


LEAST_BYTES = 4 << 20
"""Of a source: below, to ask the catalog for the range of the keys costs more than to read it all."""
FEW_BYTES = 32 << 20
"""Of what is left of a source then: below, to compute the keys, for their exact range, costs more than to read it."""
_DERIVED = ("_delta", "_b")
"""Ends of a state that cost next to nothing to derive from its merged groups: they are not kept."""


class Execution:
    """One refresh's relations in the session, gone when it is closed."""

    def __init__(
        self,
        spark: SparkSession,
        leaves: Leaf,
        types: Sequence[Mapping[str, str]],
        sizes: Sequence[int],
        output: Sequence[Column],
        clock: Mapping[str, datetime | None],
        known: Known | None = None,
    ) -> None:
        """``types``: the columns of each source, then of each state, with DuckDB's types; ``sizes``: its bytes.

        ``clock``: what now means at end a and at end b. ``known``: of deltas; None where none is asked for.
        """
        self._spark, self._leaves, self._output, self._known = spark, leaves, output, known
        self._prefix = f"lakemill_{uuid.uuid4().hex}_"
        self._clock, self._bytes, self._apart = clock, sizes, has_executors(spark)
        self._types: dict[str, Mapping[str, str]] = {}
        for number, columns in enumerate(types):
            self._types[self._prefix + leaf(number, "a")] = columns
            self._types[self._prefix + leaf(number, "b")] = columns
            self._types[self._prefix + leaf(number, "delta")] = {**columns, WEIGHT: "BIGINT"}
        self._views: set[str] = set()
        self._steps: dict[str, Step] = {}
        self._tracing = Tracing({}, types)
        self._begun: set[str] = set()
        self._kept: dict[str, DataFrame] = {}
        self._ends: dict[str, dict[str, Ends]] = {}
        self._uses: dict[tuple[int, End], list[Use]] = {}
        """By leaf, all scans that its rows must do for; ``_read`` are those among them that surely happen."""
        self._read: dict[tuple[int, End], list[Use]] = {}

    def __enter__(self) -> Execution:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for frame in self._kept.values():
            _forget(frame)
        for name in self._views:
            self._spark.catalog.dropTempView(self._prefix + name)

    # ------------------------------------------------------------ what is asked
    def delta(self, delta: Delta) -> DataFrame:
        """The signed rows: the table's columns and ``__weight``."""
        self._plan(delta)
        if delta.gates:
            delta = delta.without(frozenset(step for step in delta.gates if self._is_empty(step)))
            self._plan(delta)
        return self._fitted(self._run(sqlglot.parse_one(delta.sql, dialect="duckdb")), self._output, weighed=True)

    def _plan(self, delta: Delta) -> None:
        self._steps = {step.name: step for step in delta.steps}
        trees = {step.name: step.tree for step in delta.steps}
        self._tracing = Tracing(trees, self._tracing.types)
        self._uses = needs(delta.tree, trees, delta.merged)
        self._read = uses(delta.evaluated)

    def _is_empty(self, step: str) -> bool:
        self._need(step)
        return self._kept[step].count() == 0  # not take(1): what it leaves uncomputed costs a job of its own

    def state_delta(self, number: int, columns: Sequence[Column]) -> DataFrame:
        """The signed rows of a state, after ``delta``."""
        self._need(name := leaf(number, "delta"))
        return self._fitted(self._spark.table(self._prefix + name), columns, weighed=True)

    def keys(self) -> int | None:
        """After ``delta``: for how many keys something was computed anew, by the step that has most of them.

        One small job over what is kept in memory anyway; without a shuffle, which would cost more than to count.
        """
        kept = [frame for name, frame in self._kept.items() if name.startswith("keys")]
        counts = [frame.coalesce(1).agg(F.count(F.lit(1)).alias("n")) for frame in kept]
        if not counts:
            return None
        return int(max(reduce(DataFrame.unionAll, counts).toArrow().column("n").to_pylist()))

    def state(self, state: Stored, columns: Sequence[Column]) -> DataFrame:
        """A state as it is at b, from the sources."""
        return self._fitted(self._run(sqlglot.parse_one(sql(at(state.child, "b")), dialect="duckdb")), columns)

    def give(self, number: int, end: End, frame: DataFrame) -> None:
        """What a leaf is, for those who know better than ``leaves``."""
        self._add(leaf(number, end), frame)

    def whole(self, query: Node | exp.Query | SparkQuery, names: Mapping[str, int]) -> DataFrame:
        """The query at b: a tree, or where it has none the query itself; ``names`` are its tables' numbers."""
        if isinstance(query, SparkQuery):
            leaves = {key: leaf(number, "b") for key, number in names.items()}
            for name in leaves.values():
                self._need(name)
            views = {key: self._prefix + name for key, name in leaves.items()}
            return self._fitted(
                self._spark.sql(spliced(query.text, query.pieces(views, self._clock["b"]))), self._output
            )
        if isinstance(query, exp.Query):
            text = bound(with_parameter(own_names(query)), "b").transform(self._at_time)
            for table in list(text.find_all(exp.Table)):
                number = names.get(fold(f"{table.db}.{table.name}")) if table.db else None
                if number is not None:  # by its whole name: a CTE may be called like one of ours
                    self._need(name := leaf(number, "b"))
                    table.replace(exp.Table(this=exp.to_identifier(self._prefix + name), alias=table.args["alias"]))
            return self._fitted(self._asked(dialect.to_spark(text, self._types), theirs=True), self._output)
        return self._fitted(self._run(sqlglot.parse_one(sql(at(query, "b")), dialect="duckdb")), self._output)

    # ------------------------------------------------------------ how
    def _run(self, query: exp.Expr) -> DataFrame:
        return self._asked(dialect.to_spark(self._own(query), self._types))

    def _asked(self, text: str, *, theirs: bool = False) -> DataFrame:
        """``theirs``: it is the user's query, which Spark may refuse though DuckDB and we do not."""
        log().debug(text)
        try:
            return self._spark.sql(text)
        except AnalysisException as error:
            if not theirs:
                raise
            told = str(error.getMessage() or error).partition("\n")[0].partition(" SQLSTATE")[0]
            cure = "write its subqueries as joins, or give them other conditions"
            raise UnsupportedSql(f"Spark can't run the query as it is: {told}", remedy=cure) from error

    def _at_time(self, found: exp.Expr) -> exp.Expr:
        """The clock's parameters as times."""
        if isinstance(found, exp.Placeholder) and found.name.startswith(f"{NOW}_"):
            return _instant(self._clock[found.name.removeprefix(f"{NOW}_")])
        return found

    def _own(self, query: exp.Expr) -> exp.Expr:
        """The query on this refresh's views, which are made as they are needed, and with the clock in it."""

        def change(found: exp.Expr) -> exp.Expr:
            known = isinstance(found, exp.Table) and not found.db
            if known and (found.name in self._steps or self._prefix + found.name in self._types):
                self._need(found.name)
                alias = exp.TableAlias(this=exp.to_identifier(found.alias_or_name, quoted=True))
                return exp.Table(this=exp.to_identifier(self._prefix + found.name), alias=alias)
            return self._at_time(found)

        return query.transform(change)

    def _need(self, name: str) -> None:
        if name in self._views:
            return
        if name in self._steps:
            query = sqlglot.parse_one(self._steps[name].sql, dialect="duckdb")
            self._begun.add(name)
            text, self._types[self._prefix + name] = dialect.translated(self._own(query), self._types)
            frame = self._asked(text)
            if not name.endswith(_DERIVED) or self._steps[name].gated:
                frame = self._kept[name] = _keep(frame, apart=self._apart)
            self._add(name, frame)
        else:
            source, _, end = name.removeprefix("source").partition("_")
            number, at_end = int(source), cast("End", end)
            needed = self._needed(number, at_end)
            if name in self._views:  # a step that was computed to know the range may have asked for it
                return
            frame = self._leaves(number, at_end, needed)
            if at_end == "delta" and len(self._read.get((number, at_end), ())) > 1:
                # files in which rows were deleted are read once
                frame = self._kept[name] = _keep(frame, apart=self._apart)
            self._add(name, frame)

    def _needed(self, number: int, end: End) -> str | None:
        """A condition that all rows meet which the plan asks of a leaf, from the ranges that its keys lie in."""
        found = self._uses.get((number, end), [])
        if end == "delta" or not found or self._bytes[number] < LEAST_BYTES:
            return None
        if () in found:  # somebody needs all of it
            return None
        stated = self._within(number, end, self._stated)
        left = self._bytes[number]
        if self._known is not None and stated is not None:
            left = self._known.size(number, end, stated)
        return stated if left < FEW_BYTES else self._within(number, end, self._range) or stated

    def _within(self, number: int, end: End, ends: Callable[[str, str], Ends]) -> str | None:
        """The condition on a leaf's columns, from what is found to be the range of the keys that they are held to."""
        known = [{own: ends(step, key) for own, step, key in use} for use in self._uses[number, end]]
        needed: dict[str, Ends] = {}
        types = self._types[self._prefix + leaf(number, end)]
        for own in known[0]:
            ranges = [found.get(own) for found in known]
            if None not in ranges and all(_fits(found, types[own]) for found in ranges):
                needed[own] = joined(pair for found in ranges for pair in found or ())
        return within(needed)

    def _stated(self, step: str, key: str) -> Ends:
        """The range of a key by what the catalog knows of where it comes from: nothing is computed."""
        found = self._tracing.origins(step, key)
        if self._known is None or found is None:
            return None
        return together(self._known.bounds(source, column) for source, column in found)

    def _range(self, step: str, key: str) -> Ends:
        """Of one key of a step; a step is asked once, for all of its keys that have an order."""
        if step in self._begun and step not in self._kept:
            return None  # it is being computed from this very source
        self._need(step)
        frame = self._kept[step]
        if step not in self._ends:
            kinds = {field.name: field.dataType for field in frame.schema.fields if isinstance(field.dataType, ORDERED)}
            few = few_ends(frame, kinds) if kinds else {}
            self._ends[step] = few if few is not None else _of_many(frame, kinds)
        return self._ends[step].get(key)

    def _add(self, name: str, frame: DataFrame) -> None:
        frame.createOrReplaceTempView(self._prefix + name)
        self._views.add(name)

    def _fitted(self, frame: DataFrame, columns: Sequence[Column], *, weighed: bool = False) -> DataFrame:
        """Columns by place, under the table's names and in its types."""
        named = frame.toDF(*(f"__c{i}" for i in range(len(frame.columns))))
        values = [
            f"CAST(__c{i} AS {shown_type(column)}) AS {quote_spark(column.name)}" for i, column in enumerate(columns)
        ]
        if weighed:
            values.append(f"CAST(__c{len(columns)} AS BIGINT) AS {WEIGHT}")
        return named.selectExpr(*values)


def _keep(frame: DataFrame, *, apart: bool) -> DataFrame:
    """The frame, computed once, by whoever asks first.

    Not persist(): a plan over kept frames would hold their plans, and those over it theirs; steps build on steps, and
    Spark walks and prints such a plan in time that grows with the number of ways through it. Where executors can be
    lost it is held by two of them, because nobody could compute it again.
    """
    return frame.localCheckpoint(eager=False, storageLevel=StorageLevel.MEMORY_AND_DISK_2 if apart else None)


def _forget(frame: DataFrame) -> None:
    """Free what is kept; by itself Spark would wait for its garbage collector, as it does on Connect."""
    if type(frame).__module__ == "pyspark.sql.classic.dataframe":
        with suppress(OSError, Py4JError):  # a JVM that is gone holds nothing, and its loss is being told
            frame._jdf.queryExecution().logical().rdd().unpersist(False)


def _of_many(frame: DataFrame, kinds: Mapping[str, DataType]) -> dict[str, Ends]:
    """Of numbers only: the others have no gaps that could be found by counting."""
    numbers = {name: type_ for name, type_ in kinds.items() if isinstance(type_, NUMBERS)}
    if not numbers:
        return {}
    row = frame.selectExpr(*ends_of([quote_spark(name) for name in numbers])).collect()[0]
    found = dict(zip(numbers, read_ends(row, list(numbers.values())), strict=True))
    return {name: apart(frame, name, ends) for name, ends in found.items()}


def _fits(ends: Ends, type_: str) -> bool:
    """Whether a source's column of this type is compared with such values as they are: a text is no number."""
    found = parse(type_)
    if found is None or not ends:
        return found is not None
    low = ends[0][0]
    if isinstance(low, Word):
        return found.name == ("DATE" if low.startswith("DATE") else "VARCHAR")
    return integer(found) or found.name == "DECIMAL"  # a float that equals a number need not lie at it


def _instant(time: datetime | None) -> exp.Expr:
    assert time is not None  # noqa: S101  (whoever asks for the clock was given one)
    text = time.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
    return exp.AtTimeZone(this=exp.cast(exp.Literal.string(text), "TIMESTAMP"), zone=exp.Literal.string("UTC"))
