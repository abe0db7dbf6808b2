"""A random course of a few dynamic tables: created, their sources changed, refreshed, and each time judged by DuckDB.

The queries are those of ``tests/core/test_delta.py``, which cover every rule; here they run in Spark, on a lake that
stock DuckDB writes. A table is judged twice: by `verify`, and by its own words against what a reader sees.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import sqlglot
from sqlglot import exp

from lakemill.core.ddl import parse_definition
from lakemill.core.names import QualifiedName
from lakemill.core.refresh import Action, Outcome
from lakemill.runtime import dynamic
from lakemill.runtime.open import Lake
from lakemill.runtime.refresh import refresh
from lakemill.runtime.verify import verify
from lakemill.spark import execute
from tests.core.test_delta import QUERIES, SCHEMA, row

TABLES = tuple(SCHEMA["main"])
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
    rounds: int = 3
    log: list[str] = field(default_factory=list)
    actions: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = Random(f"course {self.seed}")
        self.schema = f"c{self.seed}"
        self.names = self.names or tuple(self.rng.sample(sorted(CORPUS), 3))
        self.queries: dict[QualifiedName, str] = {}

    def run(self) -> None:
        execute.LEAST_BYTES = self.rng.choice([0, 4 << 20])  # small tables are read by ranges, too
        self._tell(f"CREATE SCHEMA {self.schema}")
        for table, columns in SCHEMA["main"].items():
            typed = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
            self._tell(f"CREATE TABLE {self.schema}.{table} ({typed})")
            self._insert(table, self.rng.choice([0, 4, 12]))
        for number, name in enumerate(self.names):
            self._create(f"d{number}", self._placed(CORPUS[name]))
        if self.rng.random() < 0.5:
            self._create_consumer("d0")
        self._judge()
        for _ in range(self.rounds):
            for _ in range(self.rng.randrange(1, 5)):
                self._change()
            self._refresh()
            self._judge()
        for record in refresh(self.lake, list(self.queries)):
            clocked = _clocked(self.queries[record.name])
            if record.action is not Action.NO_DATA and not clocked and record.name.name != "consumer":
                raise Wrong(f"nothing changed, but {record.name} did {record.action}: {record.reason}")

    # ------------------------------------------------------------ steps
    def _create(self, name: str, query: str) -> None:
        mode = self.rng.choice(["AUTO", "AUTO", "ADAPTIVE", "FULL"])
        threshold = self.rng.choice([1.0, 1.0, 0.3])
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
        table = self.rng.choice(TABLES)
        key, value = ("k", "v") if table == "r" else ("k", "w") if table == "s" else ("k", "x")
        name, some = f"{self.schema}.{table}", self.rng.randrange(5)
        match self.rng.choice(["insert", "insert", "copy", "delete", "update", "rekey", "same", "merge", "undo"]):
            case "insert":
                self._insert(table, self.rng.randrange(1, 4))
            case "copy":
                self._tell(f"INSERT INTO {name} SELECT * FROM {name} WHERE {value} <= {some}")
            case "delete":
                self._tell(f"DELETE FROM {name} WHERE {key} IS NOT DISTINCT FROM {self.rng.choice([some, 'NULL'])}")
            case "update":
                self._tell(f"UPDATE {name} SET {value} = {value} + 1 WHERE {key} = {some}")
            case "rekey":
                self._tell(f"UPDATE {name} SET {key} = {self.rng.choice([some, 'NULL'])} WHERE {value} = {some}")
            case "same":
                self._tell(f"UPDATE {name} SET {value} = {value} WHERE {key} = {some}")
            case "merge":
                self._tell("CALL ducklake_merge_adjacent_files('lake')")
            case "undo":
                self._insert(table, 1)
                self._tell(f"DELETE FROM {name} WHERE {key} = {some} AND {value} = {some}")

    def _insert(self, table: str, count: int) -> None:
        if count:
            rows = ", ".join(row(self.rng, table) for _ in range(count))
            self._tell(f"INSERT INTO {self.schema}.{table} VALUES {rows}")

    def _refresh(self) -> None:
        for record in refresh(self.lake, list(self.queries), full=self.rng.random() < 0.05):
            told = f"{record.name}: {record.outcome.value} {record.action and record.action.value} {record.reason}"
            self.log.append(told)
            if record.outcome is not Outcome.SUCCEEDED or record.action is None:
                raise Wrong(f"{told} {record.error_code} {record.error_text}")
            self.actions.append((record.name.name, record.action.value))

    def _judge(self) -> None:
        for name, query in self.queries.items():
            found = verify(self.lake, name)
            if not found.equal:
                raise Wrong(f"{name} at {found.b}: {found.missing} missing, {found.extra} extra: {found.examples[:4]}")
            if not _clocked(query):
                seen = f"SELECT * FROM {name}"
                both = f"({seen} EXCEPT ALL ({query})) UNION ALL (({query}) EXCEPT ALL {seen})"
                if rows := self.lake.sql(both).fetchall():
                    raise Wrong(f"{name} is not what it says: {rows[:4]}")

    # ------------------------------------------------------------ words
    def _placed(self, query: str) -> str:
        """The query on this course's schema."""
        parsed: Any = sqlglot.parse_one(query, dialect="duckdb")
        ctes = {cte.alias for cte in parsed.find_all(exp.CTE)}
        for table in list(parsed.find_all(exp.Table)):
            if isinstance(table.this, exp.Identifier) and table.name in TABLES and table.name not in ctes:
                if not table.alias:
                    table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name)))
                table.set("db", exp.to_identifier(self.schema))
        return str(parsed.sql("duckdb"))

    def _tell(self, statement: str) -> None:
        self.log.append(statement)
        self.lake.sql(statement)


def _clocked(query: str) -> bool:
    return any(word in query.lower() for word in CLOCK)
