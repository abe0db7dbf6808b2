"""What a query means on a lake: the query that is kept, names resolved and views expanded, answers as its own words do.

By DuckDB alone, over the same tables; what Spark makes of it is for others to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

import lakemill
from lakemill.core.ddl import parse_definition
from lakemill.errors import LakemillError
from lakemill.runtime.dynamic import analysed
from lakemill.store.definitions import Resolved
from tests.conftest import make_lakes

TABLES = (
    "CREATE TABLE p AS FROM (VALUES (1, 10), (2, 20), (NULL, 30), (2, 21)) t(k, a)",
    "CREATE TABLE q AS FROM (VALUES (1, 100), (3, 300), (NULL, 400)) t(k, b)",
    "CREATE TABLE st AS FROM (VALUES (1), (2), (3), (5)) t(k)",
    "CREATE TABLE fielded AS SELECT {'k': 5} AS p, 1 AS n",
    "CREATE SCHEMA s2",
    "CREATE TABLE s2.p AS FROM (VALUES (99, 990)) t(k, a)",
    "CREATE VIEW swapped(a, k) AS SELECT k, a FROM p",
    "CREATE VIEW s2.own AS SELECT k FROM p",
    "CREATE VIEW s2.other AS SELECT k FROM st",
    "CREATE VIEW of_view AS SELECT k FROM s2.own UNION ALL SELECT a FROM swapped",
    "CREATE VIEW with_cte AS WITH p AS (SELECT k + 1 AS k FROM p) SELECT k FROM p",
    "CREATE VIEW over_p AS SELECT k, a FROM p",
    "CREATE VIEW over_over AS SELECT k, a + 1 AS a FROM over_p",
    "CREATE VIEW with_star AS SELECT * FROM p JOIN q USING (k)",
    'CREATE TABLE "odd one" (rev INTEGER, "rev*2" INTEGER, "a-b" INTEGER, a INTEGER, b INTEGER, "x--y" INTEGER,'
    ' "a.b" INTEGER, "Select" INTEGER, "ÄÖ" INTEGER, userName INTEGER)',
    'INSERT INTO "odd one" VALUES (1, 50, 100, 2, 3, 4, 5, 6, 7, 8), (2, 51, 101, 3, 4, 5, 6, 7, 8, 9)',
    'CREATE TABLE alike ("Ä" INTEGER, "ä" INTEGER)',
    'CREATE VIEW "odd view" AS SELECT * FROM "odd one"',
)

QUERIES = [
    "SELECT k, a FROM p ORDER BY a + 1, (2), 1 LIMIT (2)",
    'SELECT "Ä" FROM alike UNION ALL SELECT k FROM p',
    "SELECT * FROM p FULL JOIN q USING (k) FULL JOIN st USING (k)",
    "SELECT k, a, b FROM p RIGHT JOIN q USING (k) JOIN st USING (k)",
    "SELECT k, a, b FROM p RIGHT JOIN q USING (k) LEFT JOIN st USING (k)",
    "SELECT k, a, b FROM p FULL JOIN q USING (k) LEFT JOIN st USING (k) WHERE k > 0",
    "SELECT * FROM p NATURAL FULL JOIN q NATURAL FULL JOIN st",
    "SELECT c.k, c.a FROM p AS c(a, k)",
    "SELECT c.x FROM swapped AS c(x)",
    "SELECT c.k, c.x FROM swapped AS c(x, k) JOIN q ON q.k = c.x",
    "SELECT main.swapped.k FROM main.swapped",
    "SELECT k FROM s2.own",
    "SELECT k FROM s2.other",
    "SELECT k FROM of_view",
    "SELECT k FROM with_cte",
    "WITH p AS (SELECT 7 AS k) SELECT p.k, w.k AS j FROM p, with_cte w",
    "WITH st AS (SELECT k FROM s2.other WHERE k > 1) SELECT k FROM st",
    "SELECT x.k FROM (WITH p AS (SELECT k FROM st) SELECT k FROM p) x JOIN p ON p.k = x.k",
    "SELECT * FROM with_star",
    "SELECT count(*) AS n FROM with_star x(k, a) GROUP BY x.a",
    "SELECT a.k, b.a FROM over_p a JOIN over_over b ON a.k = b.k",
    "WITH c AS (SELECT k, b AS p FROM q) SELECT p.k FROM p WHERE EXISTS (SELECT 1 FROM c WHERE c.k = p.k)",
    "SELECT st.k FROM st WHERE st.k > (SELECT avg(p.st) FROM (SELECT k, a - 20 AS st FROM p) p WHERE p.k = st.k)",
    "FROM (SELECT k FROM p) x JOIN q USING (k) SELECT k, b",
    'SELECT * FROM "odd one"',
    'FROM "odd view"',
    'SELECT "o o".* EXCLUDE (rev) FROM "odd one" AS "o o"',
    'SELECT * REPLACE (rev + 1 AS rev) FROM (SELECT DISTINCT * FROM "odd one")',
    'WITH "c c" AS (SELECT * FROM "odd one") SELECT * FROM "c c" UNION ALL SELECT * FROM "odd view"',
    'SELECT * FROM "odd one" x JOIN "odd view"'
    ' USING (rev, "rev*2", "a-b", a, b, "x--y", "a.b", "Select", "ÄÖ", username)',
    'SELECT username, "SELECT", 1 AS "New Name" FROM "odd one"',
    "SELECT a, k IN (SELECT k FROM q) AS c, k NOT IN (SELECT k FROM q WHERE b > a) AS d FROM p",
    "SELECT k IN (SELECT k FROM q) AS c, count(*) AS n FROM p GROUP BY 1",
    "SELECT a FROM p WHERE (k IN (SELECT k FROM q)) IS NULL",
    "SELECT k, max(k || '{over}') AS m, string_agg(a::VARCHAR, '{over}' ORDER BY a) AS \"{over}\" FROM p GROUP BY k",
    "SELECT a, rank() OVER (PARTITION BY k) AS r, lag(a) OVER (ORDER BY a ROWS 1 PRECEDING) AS b FROM p",
    "SELECT a, sum(a) OVER (PARTITION BY k RANGE BETWEEN CURRENT ROW AND CURRENT ROW) AS s FROM p",
    "SELECT 0.12345678901234567890123456789012345678901 AS x, 1e400::DOUBLE AS y, 'inf'::DOUBLE AS z FROM p",
    "SELECT TRY_CAST('2026-02-30' AS DATE) AS d, TRY_CAST('300' AS TINYINT) AS n FROM p",
]

REFUSED = [
    ("SELECT c.k FROM swapped AS c(k)", "UNSUPPORTED_SQL"),  # its other column is called k already
    ("SELECT p.a, st.k FROM p, q RIGHT JOIN st ON st.k = q.k", "UNSUPPORTED_SQL"),
    ("SELECT p.a, q.b FROM p, q JOIN st USING (k)", "UNSUPPORTED_SQL"),
    ("SELECT t.k FROM (SELECT * FROM p JOIN q ON p.k = q.k) t", "UNSUPPORTED_SQL"),
    ("SELECT count(*) AS n FROM (SELECT DISTINCT * FROM p JOIN q USING (k) JOIN st ON st.k > q.k)", "UNSUPPORTED_SQL"),
    ("SELECT * REPLACE (k + 1 AS k) FROM p JOIN q USING (k)", "UNSUPPORTED_SQL"),
    ("SELECT p.k, (SELECT count(*) FROM fielded WHERE n < p.k) AS m FROM p", "UNSUPPORTED_SQL"),
    ("SELECT DISTINCT -k AS k FROM p ORDER BY k + 1 LIMIT 2", "UNSUPPORTED_SQL"),
    ("SELECT * LIKE 'k%' FROM p", "UNSUPPORTED_SQL"),
    ("SELECT * FROM swapped TABLESAMPLE 1 ROWS", "UNSUPPORTED_SQL"),
    ("SELECT k FROM p ORDER BY k, a LIMIT 50%", "UNSUPPORTED_SQL"),
    ("SELECT k FROM p WHERE EXISTS (SELECT unnest([p.k]))", "UNSUPPORTED_SQL"),
    ("SELECT 5 AS c, k, count(*) AS n FROM p GROUP BY GROUPING SETS ((k), (k, c))", "UNSUPPORTED_SQL"),
    ("SELECT p.k, e FROM p LEFT JOIN UNNEST([p.k, p.a]) AS t(e) ON e > 2", "UNSUPPORTED_SQL"),
    ("SELECT unnest([k]) AS x, unnest([a, k]) AS y FROM p", "UNSUPPORTED_SQL"),
    ("SELECT unnest([[k], [a]], recursive := true) AS e FROM p", "UNSUPPORTED_SQL"),
    ("SELECT a FROM p ORDER BY k IN (SELECT k FROM q), a LIMIT 2", "UNSUPPORTED_SQL"),
    ("SELECT row_number() OVER (PARTITION BY k) AS n FROM p", "UNSUPPORTED_SQL"),
    ("SELECT sum(a) OVER (ORDER BY a ROWS BETWEEN 2 FOLLOWING AND 1 FOLLOWING) AS s FROM p", "UNSUPPORTED_SQL"),
    ("SELECT ntile(0) OVER (ORDER BY a) AS n FROM p", "UNSUPPORTED_SQL"),
    ("SELECT TRY_CAST('1e5' AS INTEGER) AS n FROM p", "UNSUPPORTED_SQL"),
    ("SELECT 170141183460469231731687303715884105727 AS n FROM p", "UNSUPPORTED_SQL"),
    ("SELECT DISTINCT ON (k) k, unnest([a]) AS e FROM p ORDER BY k, a", "UNSUPPORTED_SQL"),
    ("SELECT k, a FROM p ORDER BY +2 DESC, 1 LIMIT 2", "BAD_STATEMENT"),
    ("SELECT k AS a, k + 1 AS b FROM p GROUP BY 1, + (2)", "BAD_STATEMENT"),
    ("SELECT k FROM p WHERE", "BAD_STATEMENT"),
    ("SELECT * FROM read_csv('rows.csv')", "SQL_FAILED"),
    ("SELECT * FROM alike", "BAD_STATEMENT"),
    ('SELECT k AS "Ä", a AS "ä" FROM p', "BAD_STATEMENT"),
]


@pytest.fixture(scope="module")
def lake(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[lakemill.Lake]:
    with make_lakes(postgres, tmp_path_factory.mktemp("words")) as make, lakemill.open(make().settings) as lake:
        for statement in TABLES:
            lake.sql(statement)
        yield lake


def resolved(lake: lakemill.Lake, query: str) -> Resolved:
    return analysed(lake, parse_definition(f"CREATE DYNAMIC TABLE d TARGET_LAG = '1 minute' AS {query}")).resolved


@pytest.mark.parametrize("query", QUERIES)
def test_it_says_what_was_written(lake: lakemill.Lake, query: str) -> None:
    found = resolved(lake, query)
    written = lake.sql(query)
    assert [column.name for column in found.columns] == [column[0] for column in written.description]
    rows = Counter(written.fetchall())
    assert rows
    assert Counter(lake.sql(found.query).fetchall()) == rows


@pytest.mark.parametrize(("query", "code"), REFUSED)
def test_it_is_refused(lake: lakemill.Lake, query: str, code: str) -> None:
    with pytest.raises(LakemillError) as caught:
        resolved(lake, query)
    assert caught.value.code == code
    assert caught.value.remedy
    assert caught.value.place
