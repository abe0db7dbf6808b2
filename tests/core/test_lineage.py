"""Column lineage, case by case: what each output column is made of, and what decides the rows."""

from __future__ import annotations

import pytest

from lakemill.core.lineage import Direct, Origin, lineage

TABLES = {"main.r": ["id", "k", "v", "d", "arr"], "main.s": ["k", "w"], "raw.t": ["k", "x"]}
MARKS = {"=": Direct.IDENTITY, "~": Direct.TRANSFORMATION, "+": Direct.AGGREGATION}


def parse(text: str) -> tuple[dict[Origin, Direct], ...]:
    """``r.k= | r.v+ s.w~``: per column its origins, each with what was done to it."""
    found = []
    for part in text.split("|"):
        words = [(word[:-1], MARKS[word[-1]]) for word in part.split()]
        found.append({origin(name): how for name, how in words})
    return tuple(found)


def origin(name: str) -> Origin:
    table, column = name.rsplit(".", 1)
    return Origin(table if "." in table else f"main.{table}", column)


def rows(text: str) -> dict[Origin, set[str]]:
    found: dict[Origin, set[str]] = {}
    for word in text.split():
        name, why = word.split(":")
        found[origin(name)] = set(why.split(","))
    return found


@pytest.mark.parametrize(
    ("query", "columns", "deciding"),
    [
        # projections and expressions
        ("SELECT id, K AS key FROM main.r", "r.id= | r.k=", ""),
        ("SELECT v * 2 + id AS x, 7 AS seven FROM main.r", "r.v~ r.id~ | ", ""),
        ("SELECT CASE WHEN k > 1 THEN v ELSE id END AS x FROM main.r", "r.v~ r.id~", "r.k:CONDITIONAL"),
        ("SELECT id FROM main.r WHERE v > 0 ORDER BY d LIMIT 3", "r.id=", "r.v:FILTER r.d:SORT"),
        ("SELECT DISTINCT k FROM main.r", "r.k=", "r.k:GROUP_BY"),
        # aggregates and windows
        (
            "SELECT k, sum(v) AS total, count(*) AS n FROM main.r GROUP BY k HAVING max(d) > 1",
            "r.k= | r.v+ | ",
            "r.k:GROUP_BY r.d:FILTER",
        ),
        ("SELECT sum(v) / max(id) AS x FROM main.r", "r.v+ r.id+", ""),
        ("SELECT sum(v) FILTER (WHERE k = 1) AS x FROM main.r", "r.v+", "r.k:FILTER"),
        (
            "SELECT id, sum(v) OVER (PARTITION BY k ORDER BY d) AS x FROM main.r",
            "r.id= | r.v~",
            "r.k:WINDOW r.d:WINDOW",
        ),
        (
            "SELECT id FROM main.r QUALIFY row_number() OVER (PARTITION BY k ORDER BY v) = 1",
            "r.id=",
            "r.k:FILTER r.v:FILTER",
        ),
        # joins
        ("SELECT r.id, s.w FROM main.r JOIN main.s ON r.k = s.k", "r.id= | s.w=", "r.k:JOIN s.k:JOIN"),
        ("SELECT a.id, b.v + a.v AS x FROM main.r AS a LEFT JOIN main.r AS b ON a.id = b.k", "r.id= | r.v~",
         "r.id:JOIN r.k:JOIN"),
        ("SELECT r.id, t.x FROM main.r, raw.t WHERE r.k = t.k", "r.id= | raw.t.x=", "r.k:FILTER raw.t.k:FILTER"),
        ("SELECT id FROM main.r WHERE k IN (SELECT k FROM main.s WHERE w > 1)", "r.id=",
         "r.k:FILTER s.k:FILTER s.w:FILTER"),
        ("SELECT id FROM main.r WHERE EXISTS (SELECT 1 FROM main.s WHERE s.k = r.k)", "r.id=",
         "s.k:FILTER r.k:FILTER"),
        ("SELECT id, (SELECT max(w) FROM main.s WHERE s.k = r.k) AS w FROM main.r", "r.id= | s.w+",
         "s.k:FILTER r.k:FILTER"),
        # unions
        ("SELECT id, k FROM main.r UNION ALL SELECT k, w + 1 FROM main.s", "r.id= s.k= | r.k= s.w~", ""),
        ("SELECT id AS x FROM main.r UNION SELECT w FROM main.s", "r.id= s.w=", "r.id:GROUP_BY s.w:GROUP_BY"),
        ("SELECT k FROM main.r EXCEPT SELECT k FROM main.s", "r.k= s.k=", "r.k:GROUP_BY s.k:GROUP_BY"),
        # CTEs and derived tables; a view that was expanded is one
        (
            "WITH c AS (SELECT k, sum(v) AS s FROM main.r WHERE d > 0 GROUP BY k), e AS (SELECT k AS z, s FROM c) "
            "SELECT z, s + 1 AS y FROM e WHERE s > 5",
            "r.k= | r.v+",
            "r.d:FILTER r.k:GROUP_BY r.v:FILTER",
        ),
        ("SELECT q.a FROM (SELECT id + k AS a FROM main.r) AS q", "r.id~ r.k~", ""),
        ("SELECT q.b FROM (SELECT id, k FROM main.r) AS q(a, b)", "r.k=", ""),
        ("WITH c(a) AS (SELECT id FROM main.r) SELECT a FROM c", "r.id=", ""),
        (
            "WITH RECURSIVE c AS (SELECT id, k FROM main.r UNION ALL SELECT c.id, s.w FROM c JOIN main.s ON c.k = s.k) "
            "SELECT id, k FROM c",
            "r.id= | r.k= s.w=",
            "s.k:JOIN",  # what a step takes of the step before it is not followed further
        ),
        ("SELECT id, u.e FROM main.r, unnest(arr) AS u(e)", "r.id= | r.arr~", ""),
    ],
)  # fmt: skip
def test_cases(query: str, columns: str, deciding: str) -> None:
    found = lineage(query, TABLES)
    assert found is not None
    assert found.columns == parse(columns)
    assert found.rows == rows(deciding)


def test_spark_queries_are_followed_too() -> None:
    found = lineage("SELECT `id`, sum(v) AS s FROM r GROUP BY id", TABLES, "spark")
    assert found is not None
    assert found.columns == parse("r.id= | r.v+")


def test_what_can_not_be_read_has_none() -> None:
    assert lineage("SELECT FROM WHERE", TABLES) is None
