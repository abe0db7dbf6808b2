"""The golden net: what a refresh of each query does, and why; a query that is silently computed whole fails here.

``golden.txt`` has one line per query. After a change that is meant, write it anew with
``python -m tests.core.test_golden`` and read the difference: an action that became FULL must have been meant, too.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import sqlglot

from lakemill.core.algebra import scans, states
from lakemill.core.definition import RefreshMode
from lakemill.core.plan import Shape, SourceSize, decide, resolve
from lakemill.core.qualified import qualified
from lakemill.core.query import build
from lakemill.core.shape import NotIncremental
from lakemill.core.state import keep
from tests.core.test_delta import COLUMNS, QUERIES, SCHEMA, SOURCES, TYPES
from tests.core.test_delta_tpch import TABLES
from tests.fuzz.sandbox import extension

FILE = Path(__file__).with_name("golden.txt")
MORE = {
    "all columns": "SELECT * FROM r",
    "constant": "SELECT id, 1 AS one, 'x' AS x FROM r",
    "arithmetic": "SELECT id, v * 2 + k AS z, -v AS n, v % 3 AS m FROM r",
    "case": "SELECT id, CASE WHEN v > 3 THEN 'high' WHEN v IS NULL THEN 'none' ELSE 'low' END AS c FROM r",
    "text functions": "SELECT upper(name) AS u, length(name) AS n, substring(name, 1, 2) AS p FROM r",
    "between": "SELECT id FROM r WHERE v BETWEEN 1 AND 4",
    "is null": "SELECT id FROM r WHERE k IS NULL OR v IS NOT NULL",
    "not": "SELECT id FROM r WHERE NOT (v > 2 AND k < 3)",
    "in list": "SELECT id FROM r WHERE k IN (1, 2, NULL)",
    "like": "SELECT id FROM r WHERE name LIKE 'x%'",
    "coalesce": "SELECT coalesce(k, v, 0) AS c FROM r",
    "cast": "SELECT CAST(v AS VARCHAR) AS t, CAST(t AS DATE) AS d FROM r",
    "subquery in from": "SELECT a FROM (SELECT v + 1 AS a FROM r WHERE k = 1) WHERE a > 2",
    "deep subqueries": "SELECT b FROM (SELECT a + 1 AS b FROM (SELECT v AS a FROM r))",
    "order by alone": "SELECT id FROM r ORDER BY id",
    "three unions": "SELECT k FROM r UNION ALL SELECT k FROM s UNION ALL SELECT k FROM u",
    "union all of filters": "SELECT id FROM r WHERE v > 1 UNION ALL SELECT id FROM r WHERE v <= 1",
    "union of three": "SELECT k FROM r UNION SELECT k FROM s UNION SELECT k FROM u",
    "four tables": "SELECT a.id FROM r a JOIN s b ON a.k = b.k JOIN u c ON b.k = c.k JOIN r d ON d.id = a.v",
    "join on expression": "SELECT r.id FROM r JOIN s ON r.k + 1 = s.k",
    "join on two columns": "SELECT r.id FROM r JOIN s ON r.k = s.k AND r.id = s.id",
    "join where": "SELECT r.id FROM r, s WHERE r.k = s.k AND s.w > 3",
    "natural join": "SELECT r.k FROM r JOIN u ON r.k = u.k AND u.x > 1",
    "cross join whole": "SELECT r.id, u.x FROM r CROSS JOIN u",
    "left join then filter": "SELECT r.id FROM r LEFT JOIN s ON r.k = s.k WHERE s.k IS NULL",
    "left join of subquery": "SELECT r.id, q.n FROM r LEFT JOIN (SELECT k, count(*) AS n FROM s GROUP BY k) q ON q.k ="
    " r.k",
    "full join of subqueries": "SELECT a.k, b.n FROM (SELECT k FROM r) a FULL JOIN (SELECT k, max(w) AS n FROM s GROUP"
    " BY k) b"
    " ON a.k = b.k",
    "right join then group": "SELECT s.k, count(r.id) AS n FROM r RIGHT JOIN s ON r.k = s.k GROUP BY s.k",
    "anti join": "SELECT r.id FROM r ANTI JOIN s ON r.k = s.k",
    "exists twice": "SELECT id FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.k = r.k)"
    " AND NOT EXISTS (SELECT 1 FROM u WHERE u.k = r.k)",
    "in of two": "SELECT id FROM r WHERE k IN (SELECT k FROM s) AND v IN (SELECT x FROM u)",
    "in as a value": "SELECT id, k IN (SELECT k FROM s) AS known FROM r",
    "not in as a value": "SELECT id, k NOT IN (SELECT k FROM s) AS strange FROM r",
    "in that is NULL": "SELECT id FROM r WHERE (k IN (SELECT k FROM s)) IS NULL",
    "in inside coalesce": "SELECT id FROM r WHERE coalesce(k IN (SELECT k FROM s), true)",
    "correlated in as a value": "SELECT id, v IN (SELECT w FROM s WHERE s.k = r.k) AS known FROM r",
    "aggregate of in": "SELECT k, bool_or(v IN (SELECT x FROM u)) AS b FROM r GROUP BY k",
    "group by in": "SELECT k IN (SELECT k FROM s) AS b, count(*) AS n FROM r GROUP BY 1",
    "braces in a constant": "SELECT k, max(name || '{over}') AS m FROM r GROUP BY k",
    "rank without an order": "SELECT id, rank() OVER (PARTITION BY k) AS n FROM r",
    "frame that is ignored": "SELECT id, lag(v) OVER (PARTITION BY k ORDER BY id ROWS 1 PRECEDING) AS w FROM r",
    "constants beyond decimals": "SELECT id, 0.12345678901234567890123456789012345678901 AS a, 1e400 AS b FROM r",
    "no such day": "SELECT id, TRY_CAST('2026-02-30' AS DATE) AS d FROM r",
    "in of distinct": "SELECT id FROM r WHERE k IN (SELECT DISTINCT k FROM s WHERE w > 2)",
    "count": "SELECT k, count(*) AS n FROM r GROUP BY k",
    "count distinct": "SELECT k, count(DISTINCT v) AS n FROM r GROUP BY k",
    "two keys": "SELECT k, v, count(*) AS n FROM r GROUP BY k, v",
    "key expression": "SELECT v // 2 AS half, count(*) AS n FROM r GROUP BY v // 2",
    "group by date": "SELECT CAST(t AS DATE) AS day, sum(v) AS total FROM r GROUP BY CAST(t AS DATE)",
    "avg and extremes": "SELECT k, avg(v) AS a, min(v) AS lo, max(v) AS hi FROM r GROUP BY k",
    "mean": "SELECT k, mean(v) AS m, mean(DISTINCT id) AS d FROM r GROUP BY k HAVING mean(v) > 1",
    "scalar mean": "SELECT id, (SELECT mean(w) FROM s WHERE s.k = r.k) AS m FROM r WHERE v IN (SELECT mean(w) FROM s)",
    "median and quantile": "SELECT k, median(v) AS m, quantile_cont(v, 0.9) AS q FROM r GROUP BY k",
    "first by order": "SELECT k, arg_max(name, id) AS last FROM r GROUP BY k",
    "bool aggregates": "SELECT k, bool_or(v > 3) AS some, bool_and(v > 3) AS every FROM r GROUP BY k",
    "having count": "SELECT k FROM r GROUP BY k HAVING count(*) > 2",
    "group of union": "SELECT k, count(*) AS n FROM (SELECT k FROM r UNION ALL SELECT k FROM s) GROUP BY k",
    "group of group": "SELECT n, count(*) AS m FROM (SELECT k, count(*) AS n FROM r GROUP BY k) GROUP BY n HAVING"
    " count(*) > 1",
    "join then group then join": "SELECT u.x, g.n FROM (SELECT r.k, count(*) AS n FROM r JOIN s ON r.k = s.k GROUP BY"
    " r.k) g"
    " JOIN u ON u.k = g.k",
    "distinct of union": "SELECT DISTINCT k FROM (SELECT k FROM r UNION ALL SELECT k FROM s)",
    "distinct expression": "SELECT DISTINCT k % 2 AS odd FROM r",
    "except of groups": "SELECT k FROM r GROUP BY k EXCEPT SELECT k FROM s",
    "rank": "SELECT id, rank() OVER (PARTITION BY k ORDER BY v) AS n FROM r",
    "running sum": "SELECT id, sum(v) OVER (PARTITION BY k ORDER BY id ROWS UNBOUNDED PRECEDING) AS t FROM r",
    "lag": "SELECT id, lag(v) OVER (PARTITION BY k ORDER BY id) AS before FROM r",
    "window over join": "SELECT r.id, row_number() OVER (PARTITION BY s.k ORDER BY r.id, s.id) AS n FROM r JOIN s ON"
    " r.k = s.k",
    "window of group": "SELECT k, n, rank() OVER (PARTITION BY n ORDER BY k) AS p"
    " FROM (SELECT k, count(*) AS n FROM r GROUP BY k)",
    "latest per key": "SELECT id, k, v FROM r QUALIFY row_number() OVER (PARTITION BY k ORDER BY t DESC, id) = 1",
    "top three per key": "SELECT id, k FROM r QUALIFY rank() OVER (PARTITION BY k ORDER BY v DESC) <= 3",
    "group over qualify": "SELECT k, count(*) AS n FROM (SELECT k, v FROM r QUALIFY row_number() OVER (PARTITION BY k,"
    " v"
    " ORDER BY id) = 1) GROUP BY k",
    "cte": "WITH big AS (SELECT id, k FROM r WHERE v > 2) SELECT k, count(*) AS n FROM big GROUP BY k",
    "cte of join": "WITH j AS (SELECT r.id, s.w FROM r JOIN s ON r.k = s.k) SELECT w, count(*) AS n FROM j GROUP BY w",
    "correlated sum": "SELECT id, (SELECT sum(w) FROM s WHERE s.k = r.k) AS t FROM r",
    "scalar in select": "SELECT id, (SELECT max(w) FROM s) AS m FROM r",
    "yesterday": "SELECT id FROM r WHERE t >= current_date - INTERVAL 1 DAY",
    "time in a value": "SELECT id, now() AS seen FROM r",
    "values": "SELECT 1 AS one",
    "limit": "SELECT id FROM r ORDER BY id LIMIT 10",
    "limit without order": "SELECT id FROM r LIMIT 10",
    "sum of all": "SELECT sum(v) AS t FROM r",
    "rows between windows": "SELECT id, avg(v) OVER (ORDER BY id ROWS 3 PRECEDING) AS a FROM r",
    "recursive": "WITH RECURSIVE c AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM c WHERE n < 5) SELECT n FROM c",
}


def told(shape: Shape) -> str:
    """Mode, action and reason of a refresh in which a hundredth of every source changed, by updates."""
    sources = {scan.source for scan in scans(shape)} if not isinstance(shape, NotIncremental) else {0}
    sizes = {number: SourceSize(1000, 100_000, 10, 1000, changed=True) for number in sources}
    if not isinstance(shape, NotIncremental):
        sizes |= {state.source: SourceSize(100, 2_000) for state in states(shape)}
    resolved = resolve(RefreshMode.AUTO, shape)
    plan = decide(shape, resolved, sizes, threshold=0.3)
    return f"{resolved.mode.value:<11} {plan.action.value:<6} {plan.reason.code}"


def lines() -> list[str]:
    found = {}
    for name, query in (*QUERIES.items(), *MORE.items()):
        try:
            found[name] = told(keep(build(qualified(query, SCHEMA), SOURCES, COLUMNS), TYPES))
        except NotIncremental as reason:
            found[name] = told(reason)
    found |= _tpch()
    return [f"{name:<32} {text}" for name, text in found.items()]


def _tpch() -> dict[str, str]:
    with duckdb.connect() as connection:
        connection.execute(f"LOAD {extension('tpch')}; CALL dbgen(sf = 0)")
        described = {name: connection.execute(f"DESCRIBE {name}").fetchall() for name in TABLES}
        queries = connection.execute("SELECT query_nr, query FROM tpch_queries()").fetchall()
    schema = {"main": {name: {row[0]: row[1] for row in rows} for name, rows in described.items()}}
    numbers = {f"main.{name}": number for number, name in enumerate(TABLES)}
    columns = {f"main.{name}": [row[0] for row in rows] for name, rows in described.items()}
    found = {}
    for number, query in queries:
        text = sqlglot.parse_one(query.rstrip("; \n"), dialect="duckdb").sql("duckdb")
        tree = build(qualified(text, schema), numbers, columns)
        found[f"TPC-H {number}"] = told(keep(tree, list(schema["main"].values())))
    return found


def test_every_query_does_what_it_did() -> None:
    found = lines()
    assert len(found) >= 150
    assert found == FILE.read_text("utf-8").splitlines()


if __name__ == "__main__":
    FILE.write_text("\n".join(lines()) + "\n", "utf-8")
