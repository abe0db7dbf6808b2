"""A random course of one or two dynamic tables: created, their sources changed, refreshed, each time judged by DuckDB.

Half of the courses draw their queries from those of ``tests/core/test_delta.py``, which cover every rule; the others
draw a schema and queries from ``generate``. Here they run in Spark, on a lake that stock DuckDB writes, in some courses
during refreshes too. A table is judged by `verify` at its own snapshot; and in the end, when nobody wrote since, by its
own words against what a reader sees. Most courses are short: what was found was found by another query far more often
than by one more change to the same one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from threading import Thread
from typing import Any
from unittest.mock import patch

import sqlglot
from sqlglot import exp

from lakemill.core import experience, plan
from lakemill.core.ctes import meanings
from lakemill.core.ddl import parse_definition
from lakemill.core.names import QualifiedName
from lakemill.core.refresh import Action, Outcome
from lakemill.errors import DeleteInDoubt
from lakemill.lake import duck
from lakemill.runtime import dynamic
from lakemill.runtime.open import Lake
from lakemill.runtime.refresh import refresh
from lakemill.runtime.verify import judge, verify
from lakemill.spark import execute
from tests.core.fuzz import refusal
from tests.core.test_delta import QUERIES, SCHEMA, row
from tests.refresh import generate, generate_data

CORPUS = {**QUERIES, "using": "SELECT k, v, w FROM r JOIN s USING (k)"}  # a table can't have two columns of one name
CLOCK = ("now()", "current_timestamp", "current_date", "localtimestamp")


class Wrong(AssertionError):
    """A table that is not what its query says."""


@dataclass
class Course:
    lake: Lake
    seed: int
    names: tuple[str, ...] = ()
    """Of the queries; drawn where there are none."""
    rounds: int = 0
    """Of changes and refreshes; drawn where it is 0."""
    alone: bool = False
    """Nobody writes during refreshes; all else is as the seed says."""
    attempt: int = 0
    log: list[str] = field(default_factory=list)
    actions: list[tuple[str, str]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    by: duck.Connection = field(init=False)

    def __post_init__(self) -> None:
        self.rng, self.fate = Random(f"course {self.seed}"), Random(f"experience {self.seed}")
        self.adaptive = False
        self.schema = f"c{self.seed}" + (f"_{self.attempt}" if self.attempt else "")
        self.queries: dict[QualifiedName, str] = {}
        self.given = self.names
        self.generated = not self.names and self.rng.random() < 0.5
        count = self.rng.choice([1, 1, 1, 2])
        self.rounds = self.rounds or self.fate.choice([1, 1, 1, 2, 3])
        self.tables: generate_data.Schema = generate_data.schema(self.rng) if self.generated else SCHEMA["main"]
        if self.generated:
            texts = [_drawn(self.rng, self.tables) for _ in range(count)]
            self.names = ("drawn",) * count
        else:
            self.names = self.names or tuple(_sampled(self.rng, count))
            texts = [CORPUS[name] for name in self.names]
        self.texts = [self._placed(text) for text in texts]
        self.busy = self.rng.random() < 0.3

    def run(self) -> None:
        # of tables as small as these the whole is nearly always fewer bytes: ADAPTIVE would seldom try deltas
        unread = patch.object(plan, "_bytes", lambda *_: 0) if self.fate.random() < 0.7 else nullcontext()
        with unread, patch.object(experience, "AGAIN", self.fate.choice([1, 2, 10])), judge(self.lake) as self.by:
            self._run()

    def _run(self) -> None:
        # small tables are read by ranges, too: those that the catalog knows, or those of the keys themselves
        execute.LEAST_BYTES, execute.FEW_BYTES = self.rng.choice([(0, 0), (0, 32 << 20), (4 << 20, 32 << 20)])
        self._tell(
            "SET disabled_optimizers = 'join_filter_pushdown'"
        )  # it is wrong about a top: see tests/core/fuzz.py
        setup = [f"CREATE SCHEMA {self.schema}", *generate_data.created(self.tables, f"{self.schema}.")]
        setup += [self._rows(table, count) for table in self.tables if (count := self.rng.choice([0, 4, 12]))]
        self._tell("; ".join(["BEGIN", *setup, "COMMIT"]))  # a commit takes longer than most statements
        for number, text in enumerate(self.texts):
            self._create(f"d{number}", text)
        if self.rng.random() < 0.25:
            self._create_consumer("d0")
        self._judge()
        for _ in range(self.rounds + (1 if self.adaptive else 0)):  # until states have gone and come
            for _ in range(self.rng.randrange(1, 5)):
                self._change()
            with self._somebody_else() as wrote:
                self._refresh()
            if wrote:
                self._judge(settled=False)
                self._refresh()
            self._judge()
        self._compare()
        self._rest()
        self._leave()

    def _rest(self) -> None:
        """Nothing changed, so nothing is done."""
        for record in refresh(self.lake, list(self.queries)):
            clocked = _clocked(self.queries[record.name])
            if record.action is not Action.NO_DATA and not clocked and record.name.name != "consumer":
                raise Wrong(f"nothing changed, but {record.name} did {record.action}: {record.reason}")

    def _leave(self) -> None:
        """Stock DuckDB looks through all tables of a lake with every statement: others should not pay for these."""
        for name in reversed(self.queries):  # consumers first
            self.lake.execute(f"DROP DYNAMIC TABLE {name}")
        self._tell(f"DROP SCHEMA {self.schema} CASCADE")

    @contextmanager
    def _somebody_else(self) -> Iterator[bool]:
        """In busy courses, a stock DuckDB that writes to the sources meanwhile; yields whether there is one."""
        statements = [one for _ in range(3) for one in self._changes()]
        if not self.busy or self.alone:
            yield False
            return
        failed: list[str] = []

        def write() -> None:
            with duck.connect(self.lake.settings, self.lake.dsn) as connection:
                for statement in statements:
                    try:
                        connection.execute(statement)
                    except duck.DuckError as error:  # two commits can meet; then this one did not happen
                        failed.append(f"{statement}: {error}")

        self.log += [f"meanwhile: {statement}" for statement in statements]
        writer = Thread(target=write)
        writer.start()
        try:
            yield True
        finally:
            writer.join()
            self.log += [f"failed: {what}" for what in failed]

    # ------------------------------------------------------------ steps
    def _create(self, name: str, query: str) -> None:
        mode = self.rng.choices(["AUTO", "ADAPTIVE", "FULL"], [9, 2, 1])[0]  # deltas are what can be wrong
        self.adaptive |= mode == "ADAPTIVE"
        threshold = self.rng.choices([1.0, 0.3], [10, 1])[0]
        text = (
            f"CREATE DYNAMIC TABLE {self.schema}.{name} TARGET_LAG = '1 minute' REFRESH_MODE = {mode}"
            f" CARDINALITY_THRESHOLD = {threshold} AS {query}"
        )
        self.log.append(text)
        created = dynamic.create(self.lake, parse_definition(text))
        self.queries[created.table.name] = query

    def _create_consumer(self, of: str) -> None:
        first = self.lake.sql(f"DESCRIBE {self.schema}.{of}").fetchall()[0][0]
        self._create("consumer", f'SELECT "{first}" AS x, count(*) AS n FROM {self.schema}.{of} GROUP BY "{first}"')

    def _change(self) -> None:
        if self.rng.random() < 0.1:
            self._tell("CALL ducklake_merge_adjacent_files('lake')")
        for statement in self._changes():
            self._tell(statement)

    def _changes(self) -> list[str]:
        """The statements of one change."""
        if self.generated or self.rng.random() < 0.3:
            return generate_data.change(self.rng, self.tables, f"{self.schema}.")
        table = self.rng.choice(list(self.tables))
        key, value = "k", {"r": "v", "s": "w", "u": "x"}[table]
        name, some = f"{self.schema}.{table}", self.rng.randrange(5)
        match self.rng.choice(["insert", "insert", "copy", "delete", "update", "rekey", "same", "undo"]):
            case "insert":
                return [self._rows(table, self.rng.randrange(1, 4))]
            case "copy":
                return [f"INSERT INTO {name} SELECT * FROM {name} WHERE {value} <= {some}"]
            case "delete":
                return [f"DELETE FROM {name} WHERE {key} IS NOT DISTINCT FROM {self.rng.choice([some, 'NULL'])}"]
            case "update":
                return [f"UPDATE {name} SET {value} = {value} + 1 WHERE {key} = {some}"]
            case "rekey":
                return [f"UPDATE {name} SET {key} = {self.rng.choice([some, 'NULL'])} WHERE {value} = {some}"]
            case "same":
                return [f"UPDATE {name} SET {value} = {value} WHERE {key} = {some}"]
        return [self._rows(table, 1), f"DELETE FROM {name} WHERE {key} = {some} AND {value} = {some}"]

    def _rows(self, table: str, count: int) -> str:
        if self.generated:
            return generate_data.inserted(self.rng, f"{self.schema}.{table}", self.tables[table], count)
        rows = ", ".join(row(self.rng, table) for _ in range(count))
        return f"INSERT INTO {self.schema}.{table} VALUES {rows}"

    def _refresh(self) -> None:
        if self.adaptive and self.fate.random() < 0.9:
            self._experience(self.fate.choice([0, 3600]))
        for record in refresh(self.lake, list(self.queries), full=self.rng.random() < 0.05):
            told = f"{record.name}: {record.outcome.value} {record.action and record.action.value} {record.reason}"
            self.log.append(told)
            if record.outcome is not Outcome.SUCCEEDED or record.action is None:
                raise Wrong(f"{told} {record.error_code} {record.error_text}")
            self.actions.append((record.name.name, record.action.value))
            self.reasons.append((record.reason or "").partition(":")[0])

    def _experience(self, seconds: int) -> None:
        """As if all refreshes from deltas had taken so long."""
        self.log.append(f"deltas take {seconds} s")
        self.lake.conn.execute(
            "UPDATE lakemill.refreshes SET ended_at = started_at + make_interval(secs => %s)"
            " WHERE schema_name = %s AND action IN ('APPEND', 'DELTA', 'MERGE', 'KEYS')",
            [seconds, self.schema],
        )

    def _judge(self, *, settled: bool = True) -> None:
        """By another engine, at the table's own snapshot; ``settled``: nobody wrote since."""
        for name in self.queries:
            try:
                found = verify(self.lake, name, by=self.by)
            except DeleteInDoubt as error:
                if settled:
                    raise
                self.log.append(str(error))  # who deleted since then took the past away from stock DuckDB
                continue
            if not found.equal:
                raise Wrong(f"{name} at {found.b}: {found.missing} missing, {found.extra} extra: {found.examples[:4]}")

    def _compare(self) -> None:
        """What a reader sees of each table, with what its words, as they were written, say of the newest snapshot."""
        for name, query in self.queries.items():
            if _clocked(query):
                continue
            seen = f"SELECT * FROM {name}"
            both = f"({seen} EXCEPT ALL ({query})) UNION ALL (({query}) EXCEPT ALL {seen})"
            if rows := self.lake.sql(both).fetchall():
                raise Wrong(f"{name} is not what it says: {rows[:4]}")

    # ------------------------------------------------------------ words
    def _placed(self, query: str) -> str:
        """The query on this course's schema."""
        parsed: Any = sqlglot.parse_one(query, dialect="duckdb")
        for table, cte in meanings(parsed):
            if cte is None and table.name in self.tables:
                if not table.alias:
                    table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name)))
                table.set("db", exp.to_identifier(self.schema))
        return str(parsed.sql("duckdb"))

    def _tell(self, statement: str) -> None:
        self.log.append(statement)
        self.lake.sql(statement)


def _clocked(query: str) -> bool:
    return any(word in query.lower() for word in CLOCK)


def _sampled(rng: Random, count: int) -> list[str]:
    """Some of the corpus, of what Spark can answer as DuckDB does."""
    names = rng.sample(sorted(CORPUS), len(CORPUS))
    return list(islice((name for name in names if refusal(CORPUS[name], SCHEMA["main"]) is None), count))


def _drawn(rng: Random, tables: generate_data.Schema) -> str:
    """A query that Spark can answer as DuckDB does."""
    while True:
        text = generate.query(rng, tables)
        if refusal(text, tables) is None:
            return text
