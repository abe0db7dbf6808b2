"""The first rows of an order, kept in a state through many changes; DuckDB is the judge after each of them."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import duckdb
import pytest

from lakemill.core import top
from lakemill.core.algebra import Top, at, scans, states
from lakemill.core.as_sql import sql
from lakemill.core.delta import derive
from lakemill.core.qualified import qualified
from lakemill.core.query import build
from lakemill.core.state import keep
from tests.core.test_delta import subtract

SCHEMA = {"main": {"t": {"id": "BIGINT", "k": "VARCHAR", "v": "DOUBLE"}, "u": {"k": "VARCHAR", "w": "BIGINT"}}}
TYPES = list(SCHEMA["main"].values())
QUERIES = {
    "smallest": "SELECT id, v FROM t ORDER BY id, v LIMIT 2",
    "largest, NULL first": "SELECT id, v FROM t ORDER BY v DESC NULLS FIRST, id, k LIMIT 3",
    "skipping": "SELECT id FROM t ORDER BY id DESC LIMIT 2 OFFSET 1",
    "only skipping": "SELECT id FROM t ORDER BY id OFFSET 3",
    "of a join": "SELECT t.id, w FROM t JOIN u ON t.k = u.k ORDER BY w DESC, t.id LIMIT 3",
    "of groups": "SELECT k, count(*) AS n FROM t GROUP BY k ORDER BY n DESC, k LIMIT 2",
    "below a group": "SELECT count(*) AS n, sum(id) AS s FROM (SELECT id FROM t ORDER BY id LIMIT 3)",
    "of a top": "SELECT id FROM (SELECT id, v FROM t ORDER BY id, v LIMIT 4) ORDER BY id DESC LIMIT 2",
    "of a union": "SELECT id AS x FROM t UNION ALL SELECT w FROM u ORDER BY x LIMIT 3",
    "by what is not shown": "SELECT id % 2 AS odd FROM t ORDER BY id % 3 DESC, v, t.id LIMIT 3",
    "by a name and a column": "SELECT id % 4 AS id, v FROM t ORDER BY v, t.id, k LIMIT 3",
    "groups by what is not shown": "SELECT k FROM t GROUP BY k ORDER BY count(*) DESC, k LIMIT 2",
    "groups by another sum": "SELECT k, count(*) AS n FROM t GROUP BY k ORDER BY sum(id) DESC, n, k LIMIT 2",
}


def row(rng: Random, name: str) -> tuple[Any, ...]:
    k = rng.choice(["a", "b", None])
    return (rng.randrange(9), k, rng.choice([None, 0.5, 1.5])) if name == "t" else (k, rng.choice([None, 1, 2, 3]))


def rows_of(connection: duckdb.DuckDBPyConnection, query: str) -> Counter[Any]:
    return Counter(connection.execute(query).fetchall())


def load(connection: duckdb.DuckDBPyConnection, number: int, end: str, rows: list[Any]) -> None:
    columns = TYPES[number]
    typed = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
    connection.execute(f"CREATE OR REPLACE TABLE source{number}_{end} ({typed})")
    if rows:
        places = ", ".join("?" * len(columns))
        connection.executemany(f"INSERT INTO source{number}_{end} VALUES ({places})", rows)


def changed(rng: Random, name: str, rows: list[Any]) -> list[Any]:
    after = list(rows)
    for _ in range(rng.randrange(4)):
        match rng.choice(["come", "come", "copy", "go", "go", "all go"] if after else ["come"]):
            case "come":
                after.append(row(rng, name))
            case "copy":
                after.append(rng.choice(after))
            case "go":
                after.remove(rng.choice(after))
            case "all go":
                one = rng.choice(after)
                after = [other for other in after if other != one]
    return after


@pytest.mark.parametrize("spare", [0, 1, 100])
@pytest.mark.parametrize("name", QUERIES)
def test_the_first_rows_through_a_history(name: str, spare: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "SPARE", spare)
    query = QUERIES[name]
    columns = {f"main.{table}": list(types) for table, types in SCHEMA["main"].items()}
    tree = build(qualified(query, SCHEMA), {"main.t": 0, "main.u": 1}, columns)
    kept = keep(tree, TYPES)
    assert any(isinstance(state.child, Top) for state in states(kept)) != (name == "only skipping")
    hurt = 0
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        for seed in range(2):
            rng = Random(f"{name} {seed}")
            now = [[row(rng, table) for _ in range(rng.choice([0, 3, 12]))] for table in SCHEMA["main"]]
            for number, rows in enumerate(now):
                load(connection, number, "b", rows)
            for state in states(kept):
                keep_state(connection, state, sql(at(state.child, "b")))
            for _ in range(8):
                now, before = [changed(rng, table, now[i]) for i, table in enumerate(SCHEMA["main"])], now
                hurt += step(connection, query, kept, before, now)
    assert hurt or spare or name not in ("smallest", "of a join", "below a group"), "no state was ever too short"


def keep_state(connection: duckdb.DuckDBPyConnection, state: Any, query: str) -> None:
    own = ", ".join(f'"{name}" AS {mine}' for name, mine in state.columns)
    connection.execute(f"CREATE OR REPLACE TABLE source{state.source}_a AS SELECT {own} FROM ({query})")
    connection.execute(f"CREATE OR REPLACE TABLE source{state.source}_b AS FROM source{state.source}_a")


def step(connection: duckdb.DuckDBPyConnection, query: str, kept: Any, before: list[Any], now: list[Any]) -> int:
    """From before to now by the delta; how many states were hurt."""
    moved = frozenset(number for number in range(2) if Counter(before[number]) != Counter(now[number]))
    if not moved & {scan.source for scan in scans(kept)}:
        return 0
    shown = rows_of(connection, query_on(connection, query, before))
    for number, rows in enumerate(before):
        load(connection, number, "a", rows)
        load(connection, number, "b", now[number])
        subtract(connection, number)
    delta = derive(kept, moved)
    for one in delta.steps:
        connection.execute(f"CREATE OR REPLACE TABLE {one.name} AS {one.sql}")
    for *values, weight in connection.execute(delta.sql).fetchall():
        shown[tuple(values)] += weight
    wanted = rows_of(connection, query_on(connection, query, now))
    assert {key: n for key, n in shown.items() if n} == dict(wanted)
    hurt = 0
    for state in states(kept):
        if state.source in delta.merged:
            hurts = f"source{state.source}_hurt" in {one.name for one in delta.steps}
            hurt += len(connection.execute(f"FROM source{state.source}_hurt").fetchall()) if hurts else 0
            connection.execute(f"CREATE OR REPLACE TABLE source{state.source}_a AS FROM source{state.source}_b")
    return hurt


def query_on(connection: duckdb.DuckDBPyConnection, query: str, rows: list[Any]) -> str:
    for number, name in enumerate(SCHEMA["main"]):
        load(connection, number, "now", rows[number])
        connection.execute(f"CREATE OR REPLACE VIEW {name} AS FROM source{number}_now")
    return query
