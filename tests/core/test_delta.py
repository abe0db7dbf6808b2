"""The rules of ``core/delta`` against recomputation, in DuckDB, on random bags with NULLs and duplicates.

Every rule is exact on its own, so it is checked here without Spark: the delta's SQL runs on the sources before and
after random changes, and must be the difference of the query's two results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from random import Random
from typing import Any

import duckdb
import pytest

from lakemill.core.algebra import WEIGHT, Node, Top, at, computed, names, scans, states
from lakemill.core.as_sql import sql
from lakemill.core.delta import Delta, derive
from lakemill.core.narrow import used_columns
from lakemill.core.origins import Tracing
from lakemill.core.qualified import qualified
from lakemill.core.query import build
from lakemill.core.ranges import needs
from lakemill.core.shape import NotIncremental, Volatile
from lakemill.core.state import column_types, keep, plain
from lakemill.core.top import shown_by
from lakemill.core.unique import unique_key
from lakemill.core.widen import Types, widened

SCHEMA = {
    "main": {
        "r": {"id": "BIGINT", "k": "BIGINT", "v": "BIGINT", "name": "VARCHAR", "l": "BIGINT[]", "t": "TIMESTAMP"},
        "s": {"id": "BIGINT", "k": "BIGINT", "w": "BIGINT"},
        "u": {"k": "BIGINT", "x": "BIGINT"},
    }
}
SOURCES = {"main.r": 0, "main.s": 1, "main.u": 2}
TYPES = list(SCHEMA["main"].values())
COLUMNS = {f"main.{name}": list(columns) for name, columns in SCHEMA["main"].items()}

QUERIES = {
    "filter": "SELECT id, v + 1 AS w FROM r WHERE v > 2",
    "project to duplicates": "SELECT k FROM r",
    "union all": "SELECT k, v FROM r UNION ALL SELECT k, w FROM s",
    "union of wide decimals": "SELECT sum(v::DECIMAL(10, 0)) AS t FROM r GROUP BY k UNION ALL SELECT 0.25 FROM s",
    "unnest in from": "SELECT id, e FROM r, UNNEST(l) AS t(e)",
    "unnest in select": "SELECT id, unnest(l) AS e FROM r",
    "left unnest": "SELECT id, e FROM r LEFT JOIN UNNEST(l) AS t(e) ON TRUE",
    "inner join": "SELECT r.id, r.v, s.w FROM r JOIN s ON r.k = s.k",
    "using": "SELECT * FROM r JOIN s USING (k)",
    "using after a full join": "SELECT k, w, x FROM s FULL JOIN u USING (k) FULL JOIN (SELECT k, v FROM r) q USING (k)",
    "using after a right join": "SELECT k, w FROM s RIGHT JOIN u USING (k) LEFT JOIN (SELECT k, v FROM r) q USING (k)",
    "using before a right join": "SELECT k, w, x FROM s JOIN u USING (k) RIGHT JOIN (SELECT k, v FROM r) q USING (k)",
    "natural joins": "SELECT k, x FROM (SELECT k, w FROM s) NATURAL FULL JOIN u NATURAL FULL JOIN (SELECT k, v FROM r)",
    "semi join by a merged column": "SELECT k, s.w FROM s FULL JOIN u USING (k) SEMI JOIN r USING (k)",
    "using of two columns": "SELECT k, id, name FROM u JOIN s USING (k) JOIN r USING (k, id)",
    "qualify by a merged column": "SELECT x, w FROM u FULL JOIN s USING (k)"
    " QUALIFY row_number() OVER (PARTITION BY K ORDER BY x, w, id) = 1",
    "an alias like a merged column": "SELECT x AS k, count(*) AS n FROM u FULL JOIN s USING (k)"
    " GROUP BY k, x HAVING k > 1",
    "columns of an alias": "SELECT a.k, b.x FROM u AS a(k, x) JOIN u AS b(x, k) ON a.k = b.k",
    "some columns of an alias": "SELECT c.a, c.x FROM u AS c(a)",
    "columns of an alias of a CTE": "WITH c AS (SELECT id, k FROM s) SELECT x.k, x.id FROM c AS x(k, id)",
    "columns of an ordered subquery": "SELECT a.n FROM (SELECT k, w FROM s ORDER BY k, w, id LIMIT 3) AS a(m, n)",
    "columns of an ordered CTE": "WITH a(m, n) AS (SELECT k, w FROM s ORDER BY k, w, id LIMIT 3) SELECT a.n FROM a",
    "theta join": "SELECT r.id, s.id AS j FROM r JOIN s ON r.v < s.w AND r.k = s.k",
    "cross join": "SELECT r.id, u.x FROM r, u WHERE r.v = u.x",
    "three tables": "SELECT r.id, s.w, u.x FROM r JOIN s ON r.k = s.k JOIN u ON u.k = s.k",
    "self join": "SELECT a.id, b.id AS j FROM r a JOIN r b ON a.k = b.v",
    "left join": "SELECT r.id, r.k, s.w FROM r LEFT JOIN s ON r.k = s.k",
    "left join with residual": "SELECT r.id, s.w FROM r LEFT JOIN s ON r.k = s.k AND r.v < s.w",
    "right join": "SELECT r.id, s.w FROM r RIGHT JOIN s ON r.k = s.k",
    "full join": "SELECT r.id, s.w, coalesce(r.k, s.k) AS k FROM r FULL JOIN s ON r.k = s.k",
    "left join of left join": "SELECT r.id, s.w, u.x FROM r LEFT JOIN s ON r.k = s.k LEFT JOIN u ON u.k = s.w",
    "theta left join": "SELECT r.id, s.w FROM r LEFT JOIN s ON r.v < s.w",
    "exists": "SELECT id FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.k = r.k)",
    "exists with residual": "SELECT id FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.k = r.k AND s.w > r.v)",
    "not exists": "SELECT id, k FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.k = r.k)",
    "in": "SELECT id FROM r WHERE k IN (SELECT k FROM s WHERE w > 1) AND v > 0",
    "in aggregate": "SELECT id FROM r WHERE k IN (SELECT k FROM s GROUP BY k HAVING count(*) > 1)",
    "semi join": "SELECT r.id FROM r SEMI JOIN s ON r.k = s.k",
    "not in": "SELECT id FROM r WHERE k NOT IN (SELECT k FROM s)",
    "not in of two tables": "SELECT r.id, s.w FROM r, s WHERE r.v NOT IN (SELECT x FROM u WHERE x > 1) AND r.k = s.k",
    "not in beside not in": "SELECT id FROM r WHERE k NOT IN (SELECT k FROM s) AND v NOT IN (SELECT x FROM u)",
    "not in a group": "SELECT id FROM r WHERE k NOT IN (SELECT k FROM s GROUP BY k HAVING count(*) > 1)",
    "correlated not in": "SELECT id FROM r WHERE v NOT IN (SELECT w FROM s WHERE s.k = r.k)",
    "a constant among the keys": "SELECT count(*) AS n, sum(v) AS t, 5 AS c FROM r GROUP BY c, k",
    "a constant key like a place": "SELECT 5 AS c, list(v ORDER BY v)[2] AS e, sum(count(*)) OVER"
    " (ORDER BY k ROWS 1 PRECEDING) AS n, k FROM r GROUP BY c, k",
    "rollup by places": "SELECT v, k + 1 AS j, count(*) AS n FROM r GROUP BY ROLLUP (2, 1)",
    "rollup": "SELECT k, v, count(*) AS n FROM r GROUP BY ROLLUP (k, v)",
    "cube": "SELECT k, v, sum(id) AS n FROM r GROUP BY CUBE (k, v)",
    "rollup of nothing": "SELECT k FROM r GROUP BY ROLLUP (k, v)",
    "global aggregate that nobody sees": "SELECT r.id FROM r CROSS JOIN (SELECT count(*) AS n FROM s) AS q",
    "window over a cube": "SELECT count(*) OVER (PARTITION BY k || 'x') AS n FROM"
    " (SELECT name AS k FROM r GROUP BY CUBE (t, name)) GROUP BY k",
    "sides of different widths": "SELECT CAST(x AS VARCHAR) AS c, count(*) AS n FROM"
    " (SELECT k AS x FROM r UNION ALL SELECT w + 0.5 FROM s) GROUP BY c",
    "having over using": "SELECT count(*) AS n FROM r FULL JOIN s USING (k) GROUP BY v HAVING sum(k) > 1",
    "qualify over using": "SELECT v FROM r JOIN s USING (k) QUALIFY rank() OVER (PARTITION BY k ORDER BY v) = 1",
    "grouping sets": "SELECT k, v, name, count(*) AS n FROM r GROUP BY GROUPING SETS ((k), (k, v)), name",
    "exists or": "SELECT id FROM r WHERE v > 3 OR EXISTS (SELECT 1 FROM s WHERE s.k = r.k AND s.w > 2)",
    "not exists or": "SELECT id FROM r WHERE v > 3 OR NOT EXISTS (SELECT 1 FROM s WHERE s.k = r.k)",
    "in or": "SELECT id FROM r WHERE v > 3 OR k IN (SELECT k FROM s) OR k IN (SELECT x FROM u)",
    "exists as a value": "SELECT id, EXISTS (SELECT 1 FROM s WHERE s.k = r.k) AS known FROM r",
    "distinct on": "SELECT DISTINCT ON (k) k, id, v FROM r ORDER BY k, v DESC, id, name, t",
    "distinct on an alias": "SELECT DISTINCT ON (m) v % 3 AS m, id FROM r ORDER BY m, id, v, k, name, t",
    "distinct": "SELECT DISTINCT k, v FROM r",
    "union": "SELECT k FROM r UNION SELECT k FROM s",
    "intersect": "SELECT k FROM r INTERSECT SELECT k FROM s",
    "intersect all": "SELECT k FROM r INTERSECT ALL SELECT k FROM s",
    "except": "SELECT k FROM r EXCEPT SELECT k FROM s",
    "except all": "SELECT k FROM r EXCEPT ALL SELECT k FROM s",
    "group by": "SELECT k, count(*) AS n, sum(v) AS t, min(v) AS a, max(v) AS z FROM r GROUP BY k",
    "group by expression": "SELECT k % 2 AS odd, count(DISTINCT v) AS n, median(v) AS m FROM r GROUP BY odd",
    "group by a negation": "SELECT count(DISTINCT id) AS n FROM r GROUP BY k, NOT (v > 2)",
    "in a disjunction": "SELECT id FROM r WHERE (v > 2) IN (SELECT k > 2 OR w > 4 FROM s)",
    "not in a disjunction": "SELECT id FROM r WHERE (v > 2) NOT IN (SELECT k > 2 OR w > 4 FROM s)",
    "in a disjunction or": "SELECT id FROM r WHERE v > 4 OR (v > 2) IN (SELECT k > 2 OR w > 4 FROM s)",
    "group by all": "SELECT k, v, count(*) FROM r GROUP BY ALL",
    "group by without keys in select": "SELECT count(*) AS n FROM r GROUP BY k",
    "filter by a key": "SELECT k, count(*) FILTER (WHERE k > 1) AS n, sum(count(*)) FILTER (WHERE k > 1) OVER"
    " (PARTITION BY v) AS t FROM r GROUP BY k, v",
    "having": "SELECT k, sum(v) AS t FROM r GROUP BY k HAVING count(*) > 1 AND sum(v) > 3",
    "filtered aggregate": "SELECT k, sum(v) FILTER (WHERE v > 2) AS t FROM r GROUP BY k",
    "ordered list": "SELECT k, list(v ORDER BY v, id) AS vs, string_agg(name, ',' ORDER BY name) AS ns FROM r"
    " GROUP BY k",
    "group over join": "SELECT s.w, count(*) AS n, sum(r.v) AS t FROM r JOIN s ON r.k = s.k GROUP BY s.w",
    "group over left join": "SELECT r.k, count(s.id) AS n, sum(s.w) AS t FROM r LEFT JOIN s ON r.k = s.k GROUP BY r.k",
    "group over full join": "SELECT coalesce(r.k, s.k) AS k, count(*) AS n FROM r FULL JOIN s ON r.k = s.k GROUP BY 1",
    "extremes over a self join": "SELECT a.k, max(b.v) AS z, min(a.id + b.id) AS m FROM r a JOIN r b ON a.k = b.k"
    " GROUP BY a.k",
    "extremes over a join": "SELECT min(r.v + s.w) AS m, max(s.w) AS z, count(*) AS n FROM r JOIN s ON r.k = s.k",
    "extremes with a row of constants": "SELECT k, max(v) AS m FROM (SELECT k, v FROM r UNION ALL SELECT 1, 3)"
    " GROUP BY k",
    "extremes under a clock": "SELECT k, min(v) AS m FROM r WHERE t > now() - INTERVAL 2 DAY GROUP BY k",
    "extremes over a union": "SELECT k, min(v) AS m FROM"
    " (SELECT r.k, v FROM r JOIN s ON r.k = s.k UNION ALL SELECT k, w FROM s) GROUP BY k",
    "nested aggregates": "SELECT n, count(*) AS m FROM (SELECT k, count(*) AS n FROM r GROUP BY k) GROUP BY n",
    "join of aggregates": "SELECT a.k, a.t, b.n FROM (SELECT k, sum(v) AS t FROM r GROUP BY k) a"
    " JOIN (SELECT k, count(*) AS n FROM s GROUP BY k) b ON a.k = b.k",
    "global aggregate": "SELECT count(*) AS n, sum(v) AS t, max(name) AS z FROM r",
    "global over group": "SELECT max(t) AS m FROM (SELECT k, sum(v) AS t FROM r GROUP BY k)",
    "window": "SELECT id, k, sum(v) OVER (PARTITION BY k) AS t, row_number() OVER (PARTITION BY k ORDER BY v, id) AS n"
    " FROM r",
    "windows that share a key": "SELECT id, count(*) OVER (PARTITION BY k, v) AS a, max(v) OVER (PARTITION BY k) AS b"
    " FROM r",
    "windows without a common key": "SELECT id, count(*) OVER (PARTITION BY v) AS a, max(v) OVER (PARTITION BY k) AS b"
    " FROM r",
    "window without partition": "SELECT id, rank() OVER (ORDER BY v) AS n FROM r",
    "window over group": "SELECT k, v, sum(count(*)) OVER (PARTITION BY k) AS t FROM r GROUP BY k, v",
    "qualify": "SELECT k, id, v FROM r QUALIFY row_number() OVER (PARTITION BY k ORDER BY v DESC, id) = 1",
    "top": "SELECT id, v FROM r ORDER BY v DESC, id LIMIT 3",
    "top by places in brackets": "SELECT id, v FROM r ORDER BY (2) DESC, ((1)) LIMIT 3",
    "distinct on a place in brackets": "SELECT DISTINCT ON ((1)) k, id, v FROM r ORDER BY (1), v DESC, id, name, t",
    "keys in brackets": "SELECT k, v + 1 AS w, count(*) AS n FROM r GROUP BY (k), ((v + 1))",
    "an alias in brackets": "SELECT v % 3 AS m, sum(k) AS s FROM r GROUP BY (m)",
    "windows by a key in brackets": "SELECT id, sum(v) OVER (PARTITION BY (k)) AS s, min(v) OVER (PARTITION BY k) AS m"
    " FROM r",
    "top of groups": "SELECT k, sum(v) AS t FROM r GROUP BY k ORDER BY t DESC, k LIMIT 2",
    "scalar subquery": "SELECT id FROM r WHERE v > (SELECT avg(w) FROM s)",
    "correlated scalar": "SELECT id, (SELECT max(w) FROM s WHERE s.k = r.k) AS m FROM r",
    "correlated with a constant": "SELECT id, (SELECT count(*) FROM s WHERE s.w > 2 AND r.k = 2) AS n FROM r",
    "correlated count_if": "SELECT id, (SELECT count_if(w > 2) FROM s WHERE s.k = r.k) AS n FROM r",
    "correlated count": "SELECT id, (SELECT count(*) FROM s WHERE s.k = r.k) AS n FROM r",
    "correlated by a float": "SELECT id, (SELECT count(*) FROM (SELECT k + 16777216 AS k FROM s) y WHERE y.k = x.f)"
    " AS n FROM (SELECT id, (k + 16777216)::FLOAT AS f FROM r) x",
    "left join by sums": "SELECT x.k, x.t, y.n FROM (SELECT k, sum(v % 3 * 0.004) AS t FROM r GROUP BY k) x LEFT JOIN"
    " (SELECT sum(w % 2 * 0.01) AS t, count(*) AS n FROM s GROUP BY k) y ON x.t = y.t",
    "in floats or": "SELECT id FROM (SELECT id, v, (k + 16777216)::FLOAT AS f FROM r) x"
    " WHERE v > 3 OR f IN (SELECT k + 16777216 FROM s)",
    "joined by way of a float": "SELECT x.k, count(DISTINCT q.w) AS n FROM (SELECT k + 16777216 AS k FROM r) x JOIN"
    " (SELECT y.f, z.w FROM (SELECT (k + 16777216)::FLOAT AS f FROM u) y JOIN (SELECT k + 16777216 AS k, w FROM s) z"
    " ON z.k = y.f) q ON x.k = q.f GROUP BY x.k",
    "correlated by a group": "SELECT k, (SELECT max(w) FROM s WHERE s.k = r.k) AS m FROM r GROUP BY k",
    "correlated beside a sum": "SELECT k, sum(v) + (SELECT count(*) FROM s WHERE s.k = r.k) AS n FROM r GROUP BY k",
    "subquery in a join": "SELECT r.id, s.w FROM r JOIN s ON r.k = s.k"
    " AND s.w = (SELECT max(w) FROM s y WHERE y.k = r.k)",
    "exists in a join": "SELECT r.id, s.w FROM r JOIN s ON r.k = s.k AND EXISTS (SELECT 1 FROM u WHERE u.k = s.w)"
    " LEFT JOIN u ON u.k = r.k",
    "exists in a join in exists": "SELECT id FROM r WHERE EXISTS (SELECT 1 FROM s JOIN u ON u.k = s.k"
    " AND u.x IN (SELECT w FROM s WHERE w > 2) WHERE s.k = r.k)",
    "exists in a join of a scalar": "SELECT id, (SELECT count(*) FROM s JOIN u ON u.k = s.k"
    " AND EXISTS (SELECT 1 FROM r y WHERE y.k = u.x) WHERE s.k = r.k) AS n FROM r",
    "not in of a join with in": "SELECT id FROM r WHERE v NOT IN (SELECT w FROM s JOIN u ON u.k = s.k"
    " AND s.w IN (SELECT x FROM u))",
    "exists in a join with both": "SELECT r.id, s.w FROM r JOIN s ON r.k = s.k"
    " AND EXISTS (SELECT 1 FROM u WHERE u.k = s.w AND u.x = r.v)",
    "exists of groups": "SELECT id FROM r WHERE EXISTS"
    " (SELECT 1 FROM (SELECT k, sum(w) AS w FROM s GROUP BY k) c WHERE c.k = r.k)",
    "from first": "FROM r JOIN s USING (k) SELECT k, v, w",
    "order of what is distinct": "SELECT DISTINCT k, v FROM r ORDER BY k + v, k, v LIMIT 3",
    "fields": "SELECT id, o.st.a FROM (SELECT id, {'a': k, 'b': v} AS st FROM r) o WHERE o.st.b > 1",
    "correlated comparison": "SELECT id FROM r WHERE v < (SELECT 0.2 * avg(w) FROM s WHERE s.k = r.k)",
    "having over scalar": "SELECT k, sum(v) AS t FROM r GROUP BY k HAVING sum(v) > (SELECT sum(w) * 0.1 FROM s)",
    "cte twice": "WITH c AS (SELECT k, count(*) AS n FROM r GROUP BY k) SELECT a.k, b.n FROM c a JOIN c b ON a.n = b.n",
    "cte of cte": "WITH c AS (SELECT k, v FROM r WHERE v > 1), d AS (SELECT k, sum(v) AS t FROM c GROUP BY k)"
    " SELECT d.k, d.t, s.w FROM d JOIN s ON s.k = d.k",
    "case and in": "SELECT k, CASE WHEN v IN (1, 2) THEN 'low' ELSE 'high' END AS c, count(*) AS n FROM r"
    " GROUP BY 1, 2",
    "distinct over join": "SELECT DISTINCT r.k, s.w FROM r JOIN s ON r.k = s.k",
    "union of aggregates": "SELECT k, count(*) AS n FROM r GROUP BY k UNION ALL SELECT k, sum(w) FROM s GROUP BY k",
    "anti over group": "SELECT k, n FROM (SELECT k, count(*) AS n FROM r GROUP BY k) a"
    " WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = a.k)",
    "group over distinct": "SELECT k, count(*) AS n FROM (SELECT DISTINCT k, v FROM r) GROUP BY k",
    "group over window": "SELECT n, sum(v) AS t FROM"
    " (SELECT v, row_number() OVER (PARTITION BY k ORDER BY id, v) AS n FROM r) GROUP BY n",
    "a CTE that hides another": "WITH c AS (SELECT k FROM r), a AS (SELECT c.k FROM c) SELECT k FROM"
    " (WITH c AS (SELECT w AS k FROM s) SELECT a.k FROM a JOIN c ON a.k = c.k)",
    "a CTE in another's place": "WITH x AS (SELECT k FROM r), y AS (WITH x AS (SELECT k + 1 AS k FROM x)"
    " SELECT k FROM x) SELECT y.k FROM y JOIN x ON y.k = x.k",
    "a CTE of a table's name": "WITH u AS (SELECT k + 1 AS k FROM u) SELECT u.k FROM u",
    "a CTE of a table's name elsewhere": "SELECT s.id FROM s JOIN (WITH u AS (SELECT 1 AS id) SELECT id FROM u) x"
    " ON x.id = s.id JOIN u ON u.k = s.k",
    "group by all of constants": "SELECT 1 AS c FROM r GROUP BY ALL",
    "group by all beside having": "SELECT v % 2 AS m, count(*) AS n FROM r GROUP BY ALL HAVING m = 1",
    "group by all of windows": "SELECT 1 AS c, count(*) OVER () AS n FROM r GROUP BY ALL",
    "order by a column like an alias": "SELECT k, -x AS x FROM u ORDER BY x + 1, k LIMIT 3",
    "distinct on by a column like an alias": "SELECT DISTINCT ON (k) k, -x AS x FROM u ORDER BY k, x + 1",
    "having alone": "SELECT 5 AS n FROM r HAVING count(*) > 3",
    "having true": "SELECT 5 AS n FROM r HAVING true",
    "now in a filter": "SELECT id, v FROM r WHERE t > now() - INTERVAL 2 DAY",
    "now under a group": "SELECT k, count(*) AS n FROM r WHERE CAST(t AS DATE) = current_date GROUP BY k",
    "now under a join": "SELECT r.id, s.w FROM r JOIN s ON r.k = s.k WHERE r.t > localtimestamp - INTERVAL 1 DAY",
    "now in an outer join": "SELECT r.id, s.w FROM s LEFT JOIN (SELECT * FROM r WHERE t < now()) r ON r.k = s.k",
    "now over unnest": "SELECT e, count(*) AS n FROM r, UNNEST(l) AS x(e) WHERE t > now() - INTERVAL 2 DAY GROUP BY e",
    "now in a value": "SELECT id, current_date AS today FROM r",
    "now in a join condition": "SELECT r.id FROM r JOIN s ON r.k = s.k AND r.t < now() - to_days(s.w::INTEGER)",
    "now in a condition of one side": "SELECT r.id, s.w FROM r JOIN s ON r.k = s.k AND r.t > now() - INTERVAL 1 DAY",
    "now in a join of joins": "SELECT r.id, u.x FROM r JOIN s ON r.k = s.k AND r.t < now() - to_days(s.w::INTEGER)"
    " JOIN u ON u.k = s.k AND u.x > r.v",
    "now in WHERE over a join": "SELECT r.id, u.x FROM r, s, u WHERE r.k = s.k AND u.k = s.k"
    " AND r.t < now() - to_days(s.w::INTEGER)",
    "now and nothing else": "SELECT r.id, s.w FROM r JOIN s ON r.k = s.k AND now() > '2026-01-04'::TIMESTAMPTZ",
    "group over except": "SELECT k, count(*) AS n FROM (SELECT k, v FROM r EXCEPT ALL SELECT k, w FROM s) GROUP BY k",
}
WHOLE = {
    "top by places in brackets",
    "not in of a join with in",
    "order of what is distinct",
    "extremes over a join",
    "not in",
    "not in of two tables",
    "not in beside not in",
    "not in a group",
    "not in a disjunction",
    "now in a value",
    "group by all of windows",
    "order by a column like an alias",
    "having alone",
    "having true",
    "columns of an ordered subquery",
    "columns of an ordered CTE",
    "rollup",
    "a constant key like a place",
    "rollup by places",
    "cube",
    "rollup of nothing",
    "global aggregate that nobody sees",
    "window over a cube",
    "theta left join",
    "global aggregate",
    "global over group",
    "windows without a common key",
    "window without partition",
    "top",
    "top of groups",
    "scalar subquery",
    "having over scalar",
}


def tree_of(query: str) -> Node:
    return widened(build(qualified(query, SCHEMA), SOURCES, COLUMNS), TYPES)


def some(rng: Random, high: int) -> str:
    return "NULL" if rng.random() < 0.2 else str(rng.randrange(high))


def row(rng: Random, name: str) -> str:
    if name == "r":
        items = ", ".join(some(rng, 4) for _ in range(rng.randrange(3)))
        listed = "NULL" if rng.random() < 0.2 else f"[{items}]::BIGINT[]"
        text = "NULL" if rng.random() < 0.2 else f"'{rng.choice('xyz')}'"
        at = f"TIMESTAMP '2026-01-01' + to_hours({rng.randrange(144)})"
        return f"({rng.randrange(6)}, {some(rng, 4)}, {some(rng, 6)}, {text}, {listed}, {at})"
    return f"({some(rng, 4)}, {some(rng, 4)}, {some(rng, 6)})" if name == "s" else f"({some(rng, 4)}, {some(rng, 6)})"


def fill(connection: duckdb.DuckDBPyConnection, rng: Random) -> frozenset[int]:
    """Every source before, after, and its delta; which of them changed."""
    changed = set()
    for number, (name, columns) in enumerate(SCHEMA["main"].items()):
        typed = ", ".join(f"{column} {type_}" for column, type_ in columns.items())
        before = [row(rng, name) for _ in range(rng.choice([0, 4, 12]))]
        after = list(before)
        if rng.random() < 0.7:
            for _ in range(rng.randrange(1, 5)):
                kind = rng.choice(["insert", "delete", "update", "copy"])
                if kind == "insert" or not after:
                    after.append(row(rng, name))
                elif kind == "copy":
                    after.append(rng.choice(after))
                elif kind == "delete":
                    after.remove(rng.choice(after))
                else:
                    after[rng.randrange(len(after))] = row(rng, name)
            changed.add(number)
        for end, rows in (("a", before), ("b", after)):
            connection.execute(f"CREATE OR REPLACE TEMP TABLE source{number}_{end} ({typed})")
            if rows:
                connection.execute(f"INSERT INTO source{number}_{end} VALUES {', '.join(rows)}")
        subtract(connection, number)
    return frozenset(changed)


def subtract(connection: duckdb.DuckDBPyConnection, number: int) -> None:
    """The delta of a source, from its ends."""
    both = f"SELECT *, 1 AS one FROM source{number}_b UNION ALL SELECT *, -1 FROM source{number}_a"
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE source{number}_delta AS SELECT * EXCLUDE one,"
        f" sum(one)::BIGINT AS __weight FROM ({both}) GROUP BY ALL HAVING sum(one) <> 0"
    )


TIMES = {"now_a": "2026-01-03 00:30:00+00", "now_b": "2026-01-04 12:15:00+00"}


def answer(connection: duckdb.DuckDBPyConnection, query: str) -> list[Any]:
    """Rows of a query that may ask for the time of one end or of both."""
    return connection.execute(query, {name: t for name, t in TIMES.items() if f"${name}" in query}).fetchall()


def told(row: Sequence[Any]) -> str:
    """A row in words that don't depend on the width of its numbers: a table has its own."""
    return repr(tuple(map(_plain, row)))


def _plain(item: Any) -> Any:
    if isinstance(item, Decimal):
        return int(item) if item == item.to_integral_value() else item.normalize()
    return item


def bag(connection: duckdb.DuckDBPyConnection, query: str) -> Counter[str]:
    return Counter(map(told, answer(connection, query)))


def signed(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, int]:
    out: dict[str, int] = {}
    for *values, weight in answer(connection, query):
        key = told(values)
        assert key not in out, f"not consolidated: {key}"
        out[key] = weight
    return out


def run_steps(connection: duckdb.DuckDBPyConnection, delta: Delta, types: Types = ()) -> None:
    """A table for every step. Where types are given, its keys must be where they are said to come from."""
    tracing = Tracing({step.name: step.tree for step in delta.steps}, types)
    for step in delta.steps:
        values = {name: t for name, t in TIMES.items() if f"${name}" in step.sql}
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {step.name} AS {step.sql}", values)
        for key in names(step.tree) if types else ():
            if key != WEIGHT and (found := tracing.origins(step.name, key)) is not None:
                known = " UNION ".join(f'SELECT "{own}" FROM source{number}_delta' for number, own in found)
                beyond = answer(connection, f'(SELECT "{key}" FROM {step.name}) EXCEPT ({known})')
                assert not beyond, f"{key} of {step.name} is not only from {found}"


def narrow(connection: duckdb.DuckDBPyConnection, delta: Delta) -> None:
    """Of every leaf only what is needed is left: what lies within the keys that all its scans are restricted to."""
    for (number, end), found in needs(delta.tree, {s.name: s.tree for s in delta.steps}, delta.merged).items():
        if end == "delta" or () in found or f"source{number}_{end}" in {step.name for step in delta.steps}:
            continue
        within = []
        for use in found:
            ranges = []
            for own, step, key in use:
                asked = f'SELECT min("{key}"), max("{key}"), count(*) FILTER ("{key}" IS NULL) FROM {step}'
                low, high, nulls = answer(connection, asked)[0]
                known = isinstance(low, int) and isinstance(high, int) and not nulls
                ranges.append(f'"{own}" BETWEEN {low} AND {high}' if known else "TRUE")
            within.append(" AND ".join(ranges))
        connection.execute(f"DELETE FROM source{number}_{end} WHERE NOT coalesce({' OR '.join(within)}, FALSE)")


def check_signed(
    connection: duckdb.DuckDBPyConnection, delta: Delta, before: Counter[str], after: Counter[str], narrowly: bool
) -> None:
    """The delta is what is between them; ``narrowly``: also where only that is there which it says that it needs."""
    after.subtract(before)
    expected = {key: weight for key, weight in after.items() if weight}
    assert signed(connection, delta.sql) == expected
    if not narrowly:
        return
    connection.begin()
    narrow(connection, delta)
    run_steps(connection, delta)
    assert signed(connection, delta.sql) == expected, "it needs more than it says"
    connection.rollback()


def check(
    connection: duckdb.DuckDBPyConnection,
    query: str,
    tree: Node,
    changed: frozenset[int],
    sources: Mapping[str, int] = SOURCES,
    *,
    narrowly: bool = False,
) -> None:
    before, after = bag(connection, sql(at(tree, "a"))), bag(connection, sql(at(tree, "b")))
    for end, expected in (("a", before), ("b", after)):
        for name, number in sources.items():
            schema, plain = name.split(".")
            view = f"TEMP VIEW {plain}" if schema == "main" else f"VIEW {name}"
            connection.execute(f"CREATE OR REPLACE {view} AS FROM source{number}_{end}")
        assert bag(connection, at_time(query, TIMES[f"now_{end}"])) == expected, "the tree says another thing"
    delta = derive(tree, changed)
    run_steps(connection, delta)
    check_signed(connection, delta, before, after, narrowly)


def check_kept(
    connection: duckdb.DuckDBPyConnection,
    tree: Node,
    changed: frozenset[int],
    types: Types = TYPES,
    *,
    narrowly: bool = False,
) -> None:
    """The same with states, which hold what their groups were before."""
    check_unique(connection, tree, types)
    before, after = (bag(connection, sql(at(computed(tree), end))) for end in ("a", "b"))
    kept = keep(tree, types)
    whole, alone = (bag(connection, sql(at(one, "b"))) for one in (computed(kept), plain(tree, types)))
    assert whole == alone, "without states it is another table"
    for state in states(kept):
        end = sql(at(state.child, "a"))
        values = {name: t for name, t in TIMES.items() if f"${name}" in end}
        own = ", ".join(f'"{name}" AS {mine}' for name, mine in state.columns)
        connection.execute(f"CREATE OR REPLACE TEMP TABLE source{state.source}_a AS SELECT {own} FROM ({end})", values)
        connection.execute(f"CREATE OR REPLACE TEMP TABLE source{state.source}_b AS FROM source{state.source}_a")
        typed = connection.execute(f"DESCRIBE source{state.source}_a").fetchall()
        assert [(name, type_) for name, type_, *_ in typed] == list(column_types(state, types))
    delta = derive(kept, changed)
    run_steps(connection, delta, [*types, *(dict(column_types(state, types)) for state in states(kept))])
    delta = delta.without(frozenset(gate for gate in delta.gates if not answer(connection, f"FROM {gate} LIMIT 1")))
    for state in states(kept):
        now = answer(connection, sql(at(state.child, "b")))
        own = ", ".join(mine for _, mine in state.columns)
        found = bag(connection, f"SELECT {own} FROM source{state.source}_b")
        if isinstance(state.child, Top) and found.total() >= shown_by(state.child):
            now = now[: found.total()]  # it may have become shorter, as long as it is enough
        assert found == Counter(map(told, now)), "the state"
    check_signed(connection, delta, before, after, narrowly)


def check_unique(connection: duckdb.DuckDBPyConnection, tree: Node, types: Types = TYPES) -> None:
    """No two rows share what is said to be a key."""
    key = unique_key(tree, types)
    if key is not None:
        columns = ", ".join(f'"{name}"' for name in sorted(key))
        groups = f"GROUP BY {columns}" if columns else ""
        twice = answer(connection, f"SELECT count(*) FROM ({sql(at(tree, 'b'))}) {groups} HAVING count(*) > 1")
        assert not twice, f"{columns} is no key"


def at_time(query: str, t: str) -> str:
    """The query's own words with the time written in, as a person would."""
    instant = f"TIMESTAMPTZ '{t}'"
    local = f"({instant} AT TIME ZONE 'UTC')"
    query = query.replace("now()", instant).replace("localtimestamp", local)
    return query.replace("current_date", f"CAST({local} AS DATE)")


@pytest.mark.parametrize("name", QUERIES)
def test_the_delta_is_the_difference(name: str) -> None:
    query = QUERIES[name]
    tree = tree_of(query)
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1; SET TimeZone = 'UTC'")
        for seed in range(12):
            rng = Random(f"{name} {seed}")
            changed = fill(connection, rng)
            if changed & {scan.source for scan in scans(tree)} or "now" in name:
                check(connection, query, tree, changed, narrowly=seed < 3)


WITH_SCHEMAS = {
    "of a plain name": "SELECT main.r.id, v FROM r WHERE main.r.v > 2",
    "grouped": "SELECT main.r.k, count(*) AS n FROM r GROUP BY main.r.k HAVING max(main.r.v) > 1",
    "ordered": "SELECT id FROM r ORDER BY main.r.v DESC NULLS LAST, main.r.id, k, name, t LIMIT 3",
    "distinct on": "SELECT DISTINCT ON (main.r.k) main.r.k, v FROM r ORDER BY main.r.k, main.r.v DESC NULLS LAST",
    "in an aggregate": "SELECT k, string_agg(main.r.id::VARCHAR, ',' ORDER BY main.r.id) AS l FROM r GROUP BY k",
    "joined": "SELECT main.r.id, o.r.w FROM main.r JOIN o.r ON main.r.k = o.r.k",
    "left join": "SELECT main.r.id, o.r.w FROM main.r LEFT JOIN o.r ON main.r.k = o.r.k AND o.r.w > v",
    "exists": "SELECT main.r.id FROM main.r WHERE EXISTS (SELECT 1 FROM o.r WHERE o.r.k = main.r.k)",
    "the nearest": "SELECT r.id FROM main.r WHERE EXISTS (SELECT 1 FROM o.r WHERE r.w > 1 AND r.k = main.r.k)",
    "scalar": "SELECT main.r.id FROM main.r WHERE main.r.v > (SELECT max(o.r.w) FROM o.r WHERE o.r.k = main.r.k)",
    "not in": "SELECT main.r.id FROM main.r WHERE main.r.v NOT IN (SELECT o.r.w FROM o.r WHERE o.r.k = main.r.k)",
    "shown subquery": "SELECT o.r.id, (SELECT count(*) FROM main.r WHERE main.r.k = o.r.k) AS n FROM o.r",
    "beside a CTE": "WITH r AS (SELECT id, k FROM o.r) SELECT r.id, main.u.x FROM r JOIN main.u ON main.u.k = r.k",
}
TWINS = {"main.r": 0, "o.r": 1, "main.u": 2}


@pytest.mark.parametrize("name", WITH_SCHEMAS)
def test_columns_with_their_schema(name: str) -> None:
    """Also where two schemas have a table of one name; and the query's resolved words mean the same to DuckDB."""
    query, known = WITH_SCHEMAS[name], SCHEMA["main"]
    schema = {"main": {"r": known["r"], "u": known["u"]}, "o": {"r": known["s"]}}
    columns = {table: list(TYPES[number]) for table, number in TWINS.items()}
    tree = widened(build(qualified(query, schema), TWINS, columns), TYPES)
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1; SET TimeZone = 'UTC'; CREATE SCHEMA o")
        for seed in range(12):
            changed = fill(connection, Random(f"{name} {seed}"))
            if changed & {scan.source for scan in scans(tree)}:
                check(connection, query, tree, changed, TWINS)
                assert bag(connection, qualified(query, schema).sql("duckdb")) == bag(connection, query)


@pytest.mark.parametrize("name", [name for name in QUERIES if states(keep(tree_of(QUERIES[name]), TYPES))])
def test_the_delta_with_states(name: str) -> None:
    tree = tree_of(QUERIES[name])
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1; SET TimeZone = 'UTC'")
        for seed in range(40 if "extremes" in name else 12):
            rng = Random(f"{name} {seed}")
            changed = fill(connection, rng)
            if changed & {scan.source for scan in scans(tree)} or "now" in name:
                check_kept(connection, tree, changed, narrowly=seed < 3)


@pytest.mark.parametrize("name", QUERIES)
def test_what_is_evaluated_whole(name: str) -> None:
    assert bool(derive(tree_of(QUERIES[name]), frozenset({0, 1, 2})).whole) == (name in WHOLE)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT id FROM r WHERE v > 2", {0: {"id", "v"}}),
        ("SELECT count(*) AS n FROM r", {0: set()}),
        ("SELECT k, sum(v) AS t FROM r GROUP BY k", {0: {"k", "v"}}),
        ("SELECT n FROM (SELECT k, count(*) AS n, max(name) AS z FROM r GROUP BY k)", {0: {"k"}}),
        ("SELECT k FROM (SELECT DISTINCT k, v FROM r)", {0: {"k", "v"}}),
        ("SELECT k FROM (SELECT k, v FROM r UNION ALL SELECT k, w FROM s)", {0: {"k"}, 1: {"k"}}),
        ("SELECT r.id FROM r JOIN s ON r.k = s.k", {0: {"id", "k"}, 1: {"k"}}),
        ("SELECT a.id FROM r a JOIN r b ON a.k = b.v", {0: {"id", "k", "v"}}),
        ("SELECT id FROM r QUALIFY row_number() OVER (PARTITION BY k ORDER BY v) = 1", {0: {"id", "k", "v"}}),
        ("SELECT id FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.k = r.k)", {0: {"id", "k"}, 1: {"k"}}),
    ],
)
def test_only_used_columns_are_read(query: str, expected: dict[int, set[str]]) -> None:
    assert used_columns(tree_of(query)) == expected


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT DISTINCT ON (k) id FROM r", "DISTINCT_ON"),
        ("SELECT id FROM r LIMIT 3", "LIMIT_WITHOUT_ORDER"),
        ("SELECT k, grouping(k) FROM r GROUP BY ROLLUP (k)", "GROUPING_FUNCTION"),
        ("SELECT id FROM r WHERE v > 1 OR EXISTS (SELECT 1 FROM s WHERE s.k > r.k)", "CORRELATED_SUBQUERY"),
        ("SELECT id, (SELECT sum(s.w * r.v) FROM s WHERE s.k = r.k) AS t FROM r", "CORRELATED_SUBQUERY"),
        (
            "SELECT id FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.k = r.k AND EXISTS"
            " (SELECT 1 FROM u WHERE u.k = s.k AND u.x = r.v))",
            "CORRELATED_SUBQUERY",
        ),
        ("SELECT id FROM r WHERE v > 1 OR k NOT IN (SELECT k FROM s)", "SUBQUERY_PREDICATE"),
        ("SELECT id, k IN (SELECT k FROM s) AS known FROM r", "SUBQUERY_PREDICATE"),
        ("SELECT id FROM r WHERE (k, v) IN (SELECT k, w FROM s)", "ROW_IN_SUBQUERY"),
        ("SELECT k, sum(CASE WHEN v IN (SELECT w FROM s) THEN 1 END) AS n FROM r GROUP BY k", "SUBQUERY_PREDICATE"),
        ("SELECT k, count(*) FILTER (v > (SELECT avg(w) FROM s)) AS n FROM r GROUP BY k", "SUBQUERY_PREDICATE"),
        ("SELECT count(*) FROM r GROUP BY k, EXISTS (SELECT 1 FROM s WHERE s.k = r.k)", "SUBQUERY_PREDICATE"),
        ("SELECT r.id FROM r LEFT JOIN s ON r.k = s.k AND s.w IN (SELECT x FROM u)", "SUBQUERY_PREDICATE"),
        ("SELECT id FROM r WHERE EXISTS (SELECT 1 FROM s JOIN u ON u.x = r.v WHERE s.k = r.k)", "CORRELATED_SUBQUERY"),
        ("SELECT id FROM r WHERE EXISTS (SELECT 1 FROM s, UNNEST(r.l) AS t(e) WHERE s.k = e)", "CORRELATED_SUBQUERY"),
        ("SELECT id FROM s WHERE k IN (SELECT unnest(l) FROM r)", "UNNEST_FORM"),
        (
            "SELECT id, k IN (SELECT k FROM s) AS known FROM r WHERE NOT (k IN (SELECT k FROM s) OR v > 1)",
            "SUBQUERY_PREDICATE",
        ),
    ],
)
def test_reasons(query: str, reason: str) -> None:
    with pytest.raises(NotIncremental) as caught:
        tree_of(query)
    assert caught.value.reason == reason
    assert caught.value.remedy


@pytest.mark.parametrize("call", ["random()", "uuid()", "nextval('s')", "current_user", "age(t)"])
def test_what_nobody_decides_is_refused(call: str) -> None:
    with pytest.raises(Volatile):
        tree_of(f"SELECT id, {call} AS x FROM r")
