"""Operators by kinds of change, through Spark and a lake: all tables are refreshed together, and DuckDB judges each.

The whole matrix is ``tests/core/test_delta_matrix.py``, at DuckDB's speed; here is what only a lake has: files,
deletes, commits in between, compaction. The tables are declared INCREMENTAL, so that none is right by being computed
whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import lakemill
from lakemill.core.ddl import parse_definition
from lakemill.core.names import QualifiedName, parse_name
from lakemill.core.refresh import Action, Outcome
from lakemill.runtime import dynamic
from lakemill.runtime.refresh import refresh
from lakemill.runtime.verify import verify
from tests.conftest import make_lakes
from tests.core.test_delta import SCHEMA
from tests.core.test_delta_matrix import ONE_COPY, START

# in CI the rules alone go through the whole matrix: tests/core/test_delta_matrix.py
pytestmark = [pytest.mark.spark, pytest.mark.slow]

TABLES = {
    "unnested": "SELECT id, v + 1 AS v, e FROM r, UNNEST(l) AS t(e) WHERE v > 0",
    "three_ways": "SELECT r.id, s.w, u.x FROM r JOIN s ON r.k = s.k JOIN u ON u.k = s.k"
    " UNION ALL SELECT a.id, b.v, a.k FROM r a JOIN r b ON a.k = b.v",
    "left_residual": "SELECT r.id, r.k, s.w FROM r LEFT JOIN s ON r.k = s.k AND r.v < s.w",
    "full_joined": "SELECT r.id, s.id AS j, coalesce(r.k, s.k) AS k FROM r FULL JOIN s ON r.k = s.k",
    "existing": "SELECT id, k FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.k = r.k AND s.w > 1)"
    " AND v NOT IN (SELECT w FROM s WHERE s.k = r.k)",
    "sets": "(SELECT k, v FROM r EXCEPT ALL SELECT k, w FROM s)"
    " UNION (SELECT k, x FROM u INTERSECT SELECT k, v FROM r)",
    "grouped": "SELECT k, name, count(*) AS n, sum(v) AS t, avg(v) AS a, max(v) AS hi, count(DISTINCT id) AS d"
    " FROM r GROUP BY GROUPING SETS ((k), (k, name)) HAVING count(*) > 0",
    "ranked": "SELECT id, k, sum(v) OVER (PARTITION BY k) AS t FROM r"
    " QUALIFY row_number() OVER (PARTITION BY k ORDER BY v DESC, id) <= 2",
}

# One after the other, on what the one before left; each of them is one interval.
CHANGES: dict[str, tuple[str, ...]] = {
    "insert, update of a value, a no-op beside it": (
        "INSERT INTO r VALUES (10, 1, 4, 'w', [9], '2026-01-07'), (11, 7, 1, 'x', [1], '2026-01-07')",
        "UPDATE r SET v = v + 2 WHERE k = 0",
        "UPDATE s SET w = w",
    ),
    "a no-op, what comes and goes, and a compaction": (
        "UPDATE r SET v = v WHERE k = 1",
        "INSERT INTO s VALUES (20, 0, 9)",
        "DELETE FROM s WHERE id = 20",
        "CALL ducklake_merge_adjacent_files('lake')",
    ),
    "update of a key, also from and to NULL": (
        "UPDATE r SET k = 2 WHERE id = 1",
        "UPDATE r SET k = NULL WHERE id = 10",
        "UPDATE s SET k = 3 WHERE k IS NULL",
    ),
    "both sides at once": (
        "INSERT INTO r VALUES (12, 5, 0, 'x', [5], '2026-01-07')",
        "INSERT INTO s VALUES (8, 4, 7)",
        "DELETE FROM s WHERE id = 3",
        "UPDATE u SET x = x + 1 WHERE k = 0",
    ),
    "copies come, one goes": (
        "INSERT INTO r SELECT * FROM r WHERE id IN (2, 7)",
        "INSERT INTO s SELECT * FROM s WHERE k = 2",
        ONE_COPY,
    ),
    "a last match and a group go": ("DELETE FROM s WHERE k = 2", "DELETE FROM r WHERE k = 1"),
    "a first match, after a compaction": (
        "CALL ducklake_merge_adjacent_files('lake')",
        "INSERT INTO s VALUES (9, 2, 9)",
        "INSERT INTO u VALUES (7, 7)",
    ),
    "everything goes, and all of it comes again": ("DELETE FROM r", "DELETE FROM s", *START[:2]),
}


@pytest.fixture(scope="module")
def lake(postgres: str, spark_session: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[lakemill.Lake]:
    with make_lakes(postgres, tmp_path_factory.mktemp("matrix")) as make, lakemill.open(make().settings) as lake:
        for name, columns in SCHEMA["main"].items():
            lake.sql(f"CREATE TABLE {name} ({', '.join(f'{column} {type_}' for column, type_ in columns.items())})")
        for statement in START:
            lake.sql(statement)
        for name, query in TABLES.items():
            told = f"CREATE DYNAMIC TABLE {name} TARGET_LAG = '1 hour' REFRESH_MODE = INCREMENTAL"
            dynamic.create(lake, parse_definition(f"{told} INITIALIZE = ON_SCHEDULE AS {query}"))
        assert wrong(lake) == []
        yield lake


def wrong(lake: lakemill.Lake) -> list[str]:
    """All tables brought to one snapshot; those that are not what they should be there."""
    found = []
    names: list[QualifiedName] = [parse_name(name) for name in TABLES]
    for record in refresh(lake, names):
        if record.outcome is not Outcome.SUCCEEDED or record.action in (Action.FULL, Action.REINITIALIZE):
            found.append(f"{record.name}: {record.outcome} {record.action} {record.reason} {record.error_text}")
    for name, query in zip(names, TABLES.values(), strict=True):
        judged = verify(lake, name)
        if not judged.equal:
            found.append(f"{name}: {judged.missing} missing, {judged.extra} extra: {judged.examples[:4]}")
        seen = f"SELECT * FROM {name}"
        if rows := lake.sql(f"({seen} EXCEPT ALL ({query})) UNION ALL (({query}) EXCEPT ALL {seen})").fetchall():
            found.append(f"{name} is not what it says: {rows[:4]}")
    return found


@pytest.mark.parametrize("change", CHANGES)
def test_change(lake: lakemill.Lake, change: str) -> None:
    for statement in CHANGES[change]:
        lake.sql(statement)
    assert wrong(lake) == []
