"""Each operator by each kind of change: the delta is what recomputation says, in DuckDB, on bags made for the purpose.

``test_delta`` draws its bags at random; here each kind of change that ever broke an incremental engine has a name. The
same kinds run through Spark, on a lake, in ``tests/refresh/test_matrix.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from lakemill.core.algebra import scans, states
from lakemill.core.state import keep
from tests.core.test_delta import QUERIES, SCHEMA, SOURCES, TYPES, check, check_kept, subtract, tree_of

MORE = {
    "projection": "SELECT v, upper(name) AS n FROM r",
    "anti join": "SELECT r.id, r.k FROM r ANTI JOIN s ON r.k = s.k AND s.w > r.v",
    "theta join without a key": "SELECT r.id, s.id AS j FROM r JOIN s ON r.v < s.w",
    "right join with residual": "SELECT r.id, s.w FROM r RIGHT JOIN s ON r.k = s.k AND r.v < s.w",
    "full join with residual": "SELECT r.id, s.id AS j, s.w FROM r FULL JOIN s ON r.k = s.k AND r.v < s.w",
    "many aggregates": "SELECT k, count(*) AS n, count(v) AS nv, count(DISTINCT v) AS d, sum(v) AS t, avg(v) AS a,"
    " min(name) AS lo, max(v) AS hi, stddev(v) AS sd, median(v) AS m, bool_or(v > 3) AS some,"
    " list(v ORDER BY v, id) AS vs FROM r GROUP BY k",
    "rank of ties": "SELECT id, rank() OVER (PARTITION BY k ORDER BY v) AS n FROM r",
    "running window": "SELECT id, v, sum(v) OVER (PARTITION BY k ORDER BY id, v ROWS UNBOUNDED PRECEDING) AS t FROM r",
    "union with itself": "SELECT k FROM r UNION ALL SELECT v FROM r",
}
VARIANTS = {  # of operators that are here anyway: random bags are enough for them
    "using",
    "cross join",
    "case and in",
    "cte of cte",
    "distinct on an alias",
    "group by all",
    "group by without keys in select",
    "group by expression",
    "filtered aggregate",
    "ordered list",
    "group over distinct",
    "union of aggregates",
    "distinct over join",
    "in or",
    "not exists or",
    "correlated comparison",
    "top of groups",
    "unnest in select",
}
OPERATORS = {
    name: query
    for name, query in {**QUERIES, **MORE}.items()
    if name not in VARIANTS and not name.startswith("now")  # the clock does not change with the data
}

# r has groups of several rows (0, 1), of one (2, 3, 4), of NULL; a row twice; keys that s has, and that it lacks.
START = (
    "INSERT INTO r VALUES (1, 0, 1, 'x', [1, 2], '2026-01-01'), (2, 0, 5, 'y', [], '2026-01-02'),"
    " (2, 0, 5, 'y', [], '2026-01-02'), (3, 1, 3, 'x', [3], '2026-01-03'), (4, 1, NULL, 'z', [0, NULL], '2026-01-03'),"
    " (5, NULL, 2, 'z', NULL, '2026-01-04'), (6, NULL, NULL, NULL, [2, 2], '2026-01-05'),"
    " (7, 2, 4, 'x', [4], '2026-01-05'), (8, 3, 6, 'y', [1], '2026-01-06'), (9, 4, 0, 'z', [], '2026-01-06')",
    "INSERT INTO s VALUES (1, 0, 2), (2, 0, 2), (3, 1, 5), (4, NULL, 3), (5, 5, 1), (6, 2, NULL), (7, 2, 4)",
    "INSERT INTO u VALUES (0, 0), (0, 0), (1, 1), (NULL, 2), (6, 3), (2, NULL)",
)
EMPTY = ("DELETE FROM r", "DELETE FROM s", "DELETE FROM u")
ONE_COPY = "DELETE FROM r WHERE rowid = (SELECT min(rowid) FROM r WHERE id = 2)"

# Kind of change → what happens to the sources.
CHANGES: dict[str, tuple[str, ...]] = {
    "insert": ("INSERT INTO r VALUES (10, 1, 4, 'w', [9], '2026-01-07'), (11, 7, 1, 'x', [1], '2026-01-07')",),
    "insert on the other side": ("INSERT INTO s VALUES (8, 1, 9), (9, 7, 0)", "INSERT INTO u VALUES (1, 5), (7, 0)"),
    "delete": ("DELETE FROM r WHERE id IN (3, 9)",),
    "delete on the other side": ("DELETE FROM s WHERE id IN (1, 7)", "DELETE FROM u WHERE x = 1"),
    "update of a value": ("UPDATE r SET v = v + 2, name = 'x' WHERE k = 0", "UPDATE s SET w = w + 3 WHERE k = 1"),
    "a value becomes NULL": ("UPDATE r SET v = NULL, name = NULL WHERE id IN (1, 8)", "UPDATE s SET w = NULL"),
    "update of a key": ("UPDATE r SET k = 2 WHERE id = 1", "UPDATE r SET k = 8 WHERE id = 3"),
    "update of a key on both sides": ("UPDATE r SET k = k + 1", "UPDATE s SET k = k + 1", "UPDATE u SET k = k - 1"),
    "both sides at once": (
        "INSERT INTO r VALUES (12, 5, 7, 'x', [5], '2026-01-07')",
        "INSERT INTO s VALUES (8, 3, 7)",
        "DELETE FROM r WHERE id = 7",
        "DELETE FROM s WHERE id = 3",
        "UPDATE u SET x = x + 1",
    ),
    "a group emptied": ("DELETE FROM r WHERE k = 1",),
    "a group emptied on both sides": ("DELETE FROM r WHERE k = 2", "DELETE FROM s WHERE k = 2"),
    "a group of one is replaced": (
        "DELETE FROM r WHERE k = 3",
        "INSERT INTO r VALUES (13, 3, 6, 'x', [7], '2026-01-08')",
    ),
    "NULL keys come": (
        "INSERT INTO r VALUES (14, NULL, 2, 'x', [NULL], '2026-01-08')",
        "UPDATE s SET k = NULL WHERE id = 3",
        "INSERT INTO u VALUES (NULL, NULL)",
    ),
    "NULL keys go": (
        "UPDATE r SET k = 1 WHERE id = 5",
        "DELETE FROM s WHERE k IS NULL",
        "DELETE FROM u WHERE k IS NULL",
    ),
    "copies come": ("INSERT INTO r SELECT * FROM r WHERE id IN (2, 7)", "INSERT INTO s SELECT * FROM s WHERE k = 2"),
    "one copy goes": (ONE_COPY, "DELETE FROM u WHERE rowid = (SELECT min(rowid) FROM u WHERE k = 0)"),
    "all copies go": ("DELETE FROM r WHERE id = 2", "DELETE FROM s WHERE w = 2"),
    "a first match": ("INSERT INTO s VALUES (8, 3, 9)", "INSERT INTO r VALUES (12, 5, 0, 'x', [5], '2026-01-07')"),
    "a last match goes": ("DELETE FROM s WHERE k = 1", "DELETE FROM r WHERE k = 2", "DELETE FROM u WHERE k = 2"),
    "a no-op update": ("UPDATE r SET v = v", "UPDATE s SET k = k WHERE k = 0"),
    "insert, then delete": ("INSERT INTO r VALUES (15, 0, 9, 'x', [1], '2026-01-09')", "DELETE FROM r WHERE id = 15"),
    "delete, then insert": (
        "DELETE FROM s WHERE id = 3",
        "INSERT INTO s VALUES (3, 1, 5)",
        ONE_COPY,
        "INSERT INTO r SELECT * FROM r WHERE id = 2",
    ),
    "everything goes": EMPTY,
}
INTERVALS = ("insert", "update of a key", "a group emptied", "both sides at once")


def held(connection: duckdb.DuckDBPyConnection, end: str) -> None:
    """What the sources are now is what they are at this end."""
    for name, number in SOURCES.items():
        connection.execute(f"CREATE OR REPLACE TEMP TABLE source{number}_{end} AS FROM changing.{name.split('.')[1]}")


def between(connection: duckdb.DuckDBPyConnection) -> None:
    """The deltas of all sources, from their ends."""
    for number in SOURCES.values():
        subtract(connection, number)


def started(*statements: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET threads = 1; SET TimeZone = 'UTC'; CREATE SCHEMA changing")
    for name, columns in SCHEMA["main"].items():
        typed = ", ".join(f"{column} {type_}" for column, type_ in columns.items())
        connection.execute(f"CREATE TABLE changing.{name} ({typed})")
    tell(connection, *START, *statements)
    return connection


def tell(connection: duckdb.DuckDBPyConnection, *statements: str) -> None:
    for name in SCHEMA["main"]:
        connection.execute(f"DROP VIEW IF EXISTS temp.{name}")  # a check's
    connection.execute("USE changing")
    for statement in statements:
        connection.execute(statement)
    connection.execute("USE main")


def changed_between(connection: duckdb.DuckDBPyConnection, end: str, *statements: str) -> frozenset[int]:
    """The sources at ``end`` and, after these statements, at b; which of them were written to."""
    held(connection, end)
    tell(connection, *statements)
    held(connection, "b")
    between(connection)
    return frozenset(
        number for name, number in SOURCES.items() if any(f" {name.split('.')[1]} " in f"{one} " for one in statements)
    )


@pytest.fixture(scope="module")
def lakes() -> Iterator[dict[str, tuple[duckdb.DuckDBPyConnection, frozenset[int]]]]:
    """The sources before and after each kind of change."""
    found = {}
    for name, statements in CHANGES.items():
        connection = started()
        found[name] = (connection, changed_between(connection, "a", *statements))
    connection = started(*EMPTY)
    found["from nothing"] = (connection, changed_between(connection, "a", *START))
    yield found
    for connection, _ in found.values():
        connection.close()


@pytest.mark.parametrize("operator", OPERATORS)
def test_operator(lakes: dict[str, tuple[duckdb.DuckDBPyConnection, frozenset[int]]], operator: str) -> None:
    query, tree = OPERATORS[operator], tree_of(OPERATORS[operator])
    read = {scan.source for scan in scans(tree)}
    stateful = bool(states(keep(tree, TYPES)))
    wrong = []
    for change, (connection, changed) in lakes.items():
        if not changed & read:
            continue
        try:
            check(connection, query, tree, changed)
            if stateful:
                check_kept(connection, tree, changed)
        except (AssertionError, duckdb.Error) as error:
            wrong.append(f"{change}: {error}")
    assert not wrong, "\n".join(wrong)


def test_one_interval_and_many() -> None:
    """The same changes in four steps and in one: each delta is right, so the four add up to the one."""
    connection = started()
    held(connection, "a")
    for number in SOURCES.values():
        connection.execute(f"CREATE TEMP TABLE start{number} AS FROM source{number}_a")
    trees = {name: tree_of(query) for name, query in OPERATORS.items()}
    for change in INTERVALS:
        changed = changed_between(connection, "a", *CHANGES[change])
        for name in ("inner join", "full join", "group by", "window", "except all", "not exists", "three tables"):
            if changed & {scan.source for scan in scans(trees[name])}:
                check(connection, OPERATORS[name], trees[name], changed)
    for number in SOURCES.values():
        connection.execute(f"CREATE OR REPLACE TEMP TABLE source{number}_a AS FROM start{number}")
    between(connection)
    for name, tree in trees.items():
        check(connection, OPERATORS[name], tree, frozenset(SOURCES.values()))


def test_every_kind_of_change_is_what_its_name_says(
    lakes: dict[str, tuple[duckdb.DuckDBPyConnection, frozenset[int]]],
) -> None:
    """No-ops leave nothing behind, all others do."""
    empty = {"a no-op update", "insert, then delete", "delete, then insert"}
    for change, (connection, _) in lakes.items():
        left = sum(len(connection.execute(f"FROM source{number}_delta").fetchall()) for number in SOURCES.values())
        assert (left == 0) == (change in empty), change
