"""A query after one of its tables was renamed; DuckDB says that it still works."""

from __future__ import annotations

import duckdb
import pytest

from lakemill.core.names import parse_name
from lakemill.core.rename import renamed

COLUMNS = "(x INTEGER, s STRUCT(a STRUCT(b INTEGER)))"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT x FROM t", 'SELECT x FROM main."new one" AS t'),
        ("SELECT main.t.x FROM main.t", 'SELECT t.x FROM main."new one" AS t'),
        ('SELECT "Main"."T".x, t.x y FROM "main"."T"', 'SELECT T.x, t.x y FROM main."new one" AS T'),
        ("SELECT main . t . x FROM Main.T", 'SELECT t . x FROM main."new one" AS T'),
        ("SELECT main.t.s.a, main.t.s.a.b FROM t", 'SELECT t.s.a, t.s.a.b FROM main."new one" AS t'),
        ("SELECT z.x FROM main.t AS z", 'SELECT z.x FROM main."new one" AS z'),
        (
            "SELECT main.t.x FROM main.t JOIN o.t ON main.t.x = o.t.x",
            'SELECT main."new one".x FROM main."new one" JOIN o.t ON main."new one".x = o.t.x',
        ),
        (
            "SELECT (SELECT max(o.t.x) FROM o.t WHERE o.t.x < main.t.x) AS m FROM main.t",
            'SELECT (SELECT max(o.t.x) FROM o.t WHERE o.t.x < main."new one".x) AS m FROM main."new one"',
        ),
        (
            "SELECT main.t.x FROM t WHERE EXISTS (FROM main.t AS z WHERE z.x = main.t.x)",
            'SELECT t.x FROM main."new one" AS t WHERE EXISTS (FROM main."new one" AS z WHERE z.x = t.x)',
        ),
        ("WITH t AS (SELECT 1 AS x) SELECT t.x FROM t", "WITH t AS (SELECT 1 AS x) SELECT t.x FROM t"),
        (
            "SELECT main.t.x FROM (SELECT {'x': 1} AS t) AS main, t AS z",
            "SELECT main.t.x FROM (SELECT {'x': 1} AS t) AS main, main.\"new one\" AS z",
        ),
        ("SELECT 'main.t.x' AS x /* main.t */ FROM o.t", "SELECT 'main.t.x' AS x /* main.t */ FROM o.t"),
    ],
)
def test_the_query_means_what_it_meant(query: str, expected: str) -> None:
    changed = renamed(query, parse_name("t"), parse_name('"new one"'))
    assert changed == expected
    with duckdb.connect() as session:
        session.execute(f"CREATE SCHEMA o; CREATE TABLE o.t {COLUMNS}; CREATE TABLE main.t {COLUMNS}")
        before = session.execute(f"DESCRIBE {query}").fetchall()
        session.execute('ALTER TABLE main.t RENAME TO "new one"')
        assert session.execute(f"DESCRIBE {changed}").fetchall() == before
