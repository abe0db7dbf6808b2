"""``python -m tests.core.fuzz --queries N --seed S``: random queries on random histories, their deltas held to DuckDB.

No Spark: a delta is SQL, which DuckDB runs as it runs the query itself (the way of ``test_delta``), after every step,
without states and with them; and each of its steps must have a translation for Spark. A failure is made smaller, then
printed with its seed as SQL. Queries that have no rule for deltas are counted by reason, so that one which silently
lost its rule shows.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from threading import Timer

import duckdb
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakemill.core import dialect
from lakemill.core.algebra import WEIGHT, Node, asks_for_time, scans, states
from lakemill.core.delta import derive
from lakemill.core.plan import obstacle
from lakemill.core.qualified import qualified
from lakemill.core.query import build
from lakemill.core.shape import NotIncremental, has_grand_total
from lakemill.core.state import column_types, keep
from lakemill.core.widen import widened
from lakemill.errors import UnsupportedSql
from tests.core.shrink import smaller_queries, smaller_rows
from tests.core.test_delta import TIMES, at_time, check, check_kept, subtract
from tests.refresh import generate
from tests.refresh.generate_data import Schema, changes, created, filled, schema

STEPS = 3
SECONDS = 20  # a query that takes longer joins everything with everything
Rows = Mapping[str, tuple[str, ...]]
"""By table: its rows as SQL."""


class Invalid(Exception):
    """DuckDB itself does not answer the query."""


@dataclass(frozen=True)
class Case:
    """A query and one interval."""

    schema: Schema
    query: str
    before: Rows
    after: Rows

    def repro(self) -> str:
        lines = [*created(self.schema)]
        for rows, when in ((self.before, "before"), (self.after, "after")):
            lines.append(f"-- {when}")
            lines += [f"INSERT INTO {name} VALUES {', '.join(own)}" for name, own in rows.items() if own]
        return ";\n".join([*lines, self.query])


@dataclass(frozen=True)
class Found:
    """What a query did: its reason to be computed whole, what Spark's side refuses, or what was wrong."""

    full: str | None = None
    refused: str | None = None
    wrong: str | None = None
    case: Case | None = None


class Bench:
    """One schema in DuckDB, its tables at both ends of an interval."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.sources = {f"main.{name}": number for number, name in enumerate(schema)}
        self.types = list(schema.values())
        self.connection = duckdb.connect()
        # DuckDB 1.5.5 filters the input of a top by the keys of a join above it, and so shows rows beyond the limit
        self.tell("SET disabled_optimizers = 'join_filter_pushdown'", "SET threads = 1", "SET TimeZone = 'UTC'")
        self.tell("CREATE SCHEMA changing", *created(schema, "changing."))

    def tell(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement)

    def hold(self, end: str) -> None:
        for number, name in enumerate(self.schema):
            self.tell(f"CREATE OR REPLACE TEMP TABLE source{number}_{end} AS FROM changing.{name}")

    def subtract(self) -> frozenset[int]:
        """The deltas between the ends; which sources changed."""
        for number in range(len(self.schema)):
            subtract(self.connection, number)
        counts = (self.connection.execute(f"FROM source{n}_delta LIMIT 1").fetchall() for n in range(len(self.schema)))
        return frozenset(number for number, some in enumerate(counts) if some)

    def rows(self, end: str) -> Rows:
        """The tables as text, to write them down."""
        found = {}
        for number, (name, columns) in enumerate(self.schema.items()):
            texts = ", ".join(f"CAST({column} AS VARCHAR)" for column in columns)
            rows = self.connection.execute(f"SELECT {texts} FROM source{number}_{end}").fetchall()
            found[name] = tuple(f"({', '.join(map(_written, row, columns.values()))})" for row in rows)
        return found

    def tree(self, query: str) -> Node:
        columns = {f"main.{name}": list(own) for name, own in self.schema.items()}
        return widened(build(qualified(query, {"main": self.schema}), self.sources, columns), self.types)

    def problem(self, query: str, tree: Node, changed: frozenset[int]) -> str | None:
        """What is wrong between these ends: its kind, and the first words of it."""
        timer = Timer(SECONDS, self.connection.interrupt)
        timer.start()
        try:
            return self._problem(query, tree, changed)
        finally:
            timer.cancel()

    def _problem(self, query: str, tree: Node, changed: frozenset[int]) -> str | None:
        for name, number in self.sources.items():
            self.tell(f"CREATE OR REPLACE TEMP VIEW {name.split('.')[1]} AS FROM source{number}_b")
        try:
            self.connection.execute(at_time(query, TIMES["now_b"]))
        except duckdb.Error as error:
            raise Invalid(str(error)) from None
        part = "delta"
        try:
            check(self.connection, query, tree, changed, self.sources)
            part = "states"
            check_kept(self.connection, tree, changed, self.types, narrowly=True)
            part = "spark"
            if refusal(query, self.schema) is None:
                self._translate(tree, changed)
        except duckdb.InterruptException:
            raise
        except Exception as error:
            return f"{part}: {type(error).__name__}: {str(error)[:600]}"
        return None

    def _translate(self, tree: Node, changed: frozenset[int]) -> None:
        """What is accepted as a query must be so in each step, with the types that DuckDB gives it."""
        kept = keep(tree, self.types)
        types = {f"source{number}_{end}": dict(own) for number, own in enumerate(self.types) for end in ("a", "b")}
        types |= {f"source{number}_delta": {**own, WEIGHT: "BIGINT"} for number, own in enumerate(self.types)}
        for state in states(kept):
            types |= {f"source{state.source}_{end}": dict(column_types(state, self.types)) for end in "ab"}
        delta = derive(kept, changed)
        for step in delta.steps:
            types[step.name] = dialect.output_types(_timed(step.sql), types)
            described = self.connection.execute(f"DESCRIBE {step.name}").fetchall()
            assert types[step.name] == {name: type_ for name, type_, *_ in described}, step.sql
        dialect.output_types(_timed(delta.sql), types)


def _timed(text: str) -> exp.Expr:
    """A step with the time written in."""
    for name, t in TIMES.items():
        text = text.replace(f"${name}", f"(TIMESTAMP '{t.removesuffix('+00')}' AT TIME ZONE 'UTC')")
    return sqlglot.parse_one(text, dialect="duckdb")


def _written(text: str | None, type_: str) -> str:
    if text is None:
        return "NULL"
    return text if type_ in ("INTEGER", "BIGINT", "BOOLEAN") else f"'{text}'::{type_}"


def _kind(problem: str | None) -> str | None:
    """The same mistake says the same first words, whatever the rows."""
    return problem and " ".join(problem.split("\n")[0].split()[:4])


# ---------------------------------------------------------------- one query
def run(seed: int) -> Found:
    """A schema, a query and a history, all drawn from the seed."""
    rng = Random(f"delta {seed}")
    drawn = schema(rng)
    query = generate.query(rng, drawn)
    bench = Bench(drawn)
    with bench.connection:
        bench.tell(*filled(rng, drawn, "changing."))
        try:
            tree = bench.tree(query)
        except NotIncremental as reason:
            return Found(full=reason.reason, refused=refusal(query, drawn))
        except (SqlglotError, AssertionError, LookupError, ValueError, TypeError, AttributeError) as error:
            return Found(wrong=f"tree: {type(error).__name__}: {str(error)[:300]}", case=Case(drawn, query, {}, {}))
        read = {scan.source for scan in scans(tree)}
        bench.hold("a")
        for _ in range(STEPS):
            bench.tell(*changes(rng, drawn, "changing."))
            bench.hold("b")
            changed = bench.subtract()
            if changed & read or asks_for_time(tree):
                wrong = bench.problem(query, tree, changed)
                if wrong is not None:
                    return Found(wrong=wrong, case=Case(drawn, query, bench.rows("a"), bench.rows("b")))
            bench.hold("a")
        found = obstacle(keep(tree, bench.types))
        return Found(full=found.code if found is not None else None, refused=refusal(query, drawn))


def refusal(query: str, schema: Schema) -> str | None:
    """Why the query can't be a dynamic table at all."""
    types = {f"main.{name}": own for name, own in schema.items()}
    try:
        with dialect.explained():
            full = qualified(query, {"main": schema})
        dialect.check(full, types)
        build(
            full, {name: number for number, name in enumerate(types)}, {name: list(own) for name, own in types.items()}
        )
    except UnsupportedSql as error:
        return str(error)
    except NotIncremental:
        return "a grand total that only DuckDB shows" if has_grand_total(full) else None
    return None


# ---------------------------------------------------------------- making it smaller
def problem_of(case: Case) -> str | None:
    bench = Bench(case.schema)
    with bench.connection:
        for rows, end in ((case.before, "a"), (case.after, "b")):
            for name in case.schema:
                bench.tell(f"DELETE FROM changing.{name}")
                if rows.get(name):
                    bench.tell(f"INSERT INTO changing.{name} VALUES {', '.join(rows[name])}")
            bench.hold(end)
        changed = bench.subtract()
        try:
            tree = bench.tree(case.query)
            if changed & {scan.source for scan in scans(tree)} or asks_for_time(tree):
                return bench.problem(case.query, tree, changed)
        except (NotIncremental, Invalid, duckdb.InterruptException):
            return None
        except Exception as error:
            return f"tree: {type(error).__name__}: {str(error)[:300]}"
    return None


def shrunk(case: Case, wrong: str, seconds: float = 120) -> Case:
    """The smallest case found that is wrong in the same way."""
    until = time.monotonic() + seconds

    def fails(smaller: Case) -> bool:
        return time.monotonic() < until and _kind(problem_of(smaller)) == _kind(wrong)

    found = True
    while found:
        found = False
        for query in smaller_queries(case.query):
            smaller = Case(case.schema, query, case.before, case.after)
            if fails(smaller):
                case, found = smaller, True
                break
    schema, query = case.schema, case.query
    for before, after in smaller_rows(case.before, case.after, lambda b, a: fails(Case(schema, query, b, a))):
        case = Case(schema, query, before, after)
    return case


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.core.fuzz", description=__doc__)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--only", type=int, nargs="+", help="these seeds")
    parser.add_argument("--large", action="store_true", help="print failures as they are")
    given = parser.parse_args()
    seeds = given.only or range(given.seed, given.seed + given.queries)
    started, failed, slow = time.monotonic(), 0, 0
    full, refused = Counter[str](), Counter[str]()
    for done, seed in enumerate(seeds, 1):
        try:
            found = run(seed)
        except duckdb.InterruptException:
            slow += 1
            continue
        if found.wrong is not None and found.case is not None:
            failed += 1
            case = found.case if given.large else shrunk(found.case, found.wrong)
            print(f"✗ seed {seed}: {problem_of(case) or found.wrong}\n{case.repro()}\n", flush=True)
        full.update([found.full] if found.full else [])
        refused.update([found.refused] if found.refused else [])
        if done % 500 == 0:
            print(f"{time.strftime('%H:%M:%S')} {done} queries, {failed} wrong", flush=True)
    total = len(seeds)
    print(f"{total} queries, {failed} wrong, {slow} too slow; {time.monotonic() - started:.0f} s")
    print(f"computed whole: {full.total()} ({full.total() / total:.0%}): {dict(full.most_common())}")
    print(f"refused for Spark: {refused.total()}")
    for reason, count in refused.most_common(12):
        print(f"  {count} {reason}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
