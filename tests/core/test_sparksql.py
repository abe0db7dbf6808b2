"""A query in Spark's own SQL: only names of tables and the clock are put in, and all else stays as it was written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

import pytest
import sqlglot
from sqlglot import exp

from lakemill.core.references import origin, spliced
from lakemill.core.sparksql import SparkQuery, read
from lakemill.errors import BadStatement

VIEWS = {"main.r": "R", "main.s": "S", "other.r": "O"}
T = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


def query(text: str) -> SparkQuery:
    return read(text, cast("exp.Query", sqlglot.parse_one(text, dialect="spark")))


NOW, TODAY = "'2026-01-02 03:04:05.000678'", "DATE '2026-01-02'"
RUN = {
    "SELECT id FROM r": "SELECT id FROM `R` AS `r`",
    "SELECT x.id FROM main.r x": "SELECT x.id FROM `R` x",
    "SELECT x.id FROM `main` . `r` AS x, s": "SELECT x.id FROM `R` AS x, `S` AS `s`",
    "SELECT 1 FROM r -- r\n JOIN Other.R o ON true": "SELECT 1 FROM `R` AS `r` -- r\n JOIN `O` o ON true",
    "WITH s AS (SELECT 'r' AS r FROM r) FROM s SELECT *": "WITH s AS (SELECT 'r' AS r FROM `R` AS `r`) FROM s SELECT *",
    "SELECT main.r.id, r.k FROM main.r": "SELECT r.id, r.k FROM `R` AS `r`",
    "SELECT * FROM r LATERAL VIEW explode(l) t AS e": "SELECT * FROM `R` AS `r` LATERAL VIEW explode(l) t AS e",
    "SELECT /*+ BROADCAST(s) */ 1 FROM r, s": "SELECT /*+ BROADCAST(s) */ 1 FROM `R` AS `r`, `S` AS `s`",
    "SELECT * FROM range(3)": "SELECT * FROM range(3)",
    "SELECT id <=> 1 FROM r WHERE k RLIKE '\\\\d'": "SELECT id <=> 1 FROM `R` AS `r` WHERE k RLIKE '\\\\d'",
    "SELECT now ( ) AS now": f"SELECT TIMESTAMP_LTZ {NOW} AS now",
    "SELECT current_date, current_date() AS current_date": f"SELECT {TODAY}, {TODAY} AS current_date",
    "SELECT localtimestamp() > curdate()": f"SELECT TIMESTAMP_NTZ {NOW} > {TODAY}",
    "SELECT r.now, 'now()' AS x FROM r": "SELECT r.now, 'now()' AS x FROM `R` AS `r`",
}


@pytest.mark.parametrize("written", RUN)
def test_what_is_run(written: str) -> None:
    assert spliced(written, query(written).pieces(VIEWS, T)) == RUN[written]


def test_places_are_found_again() -> None:
    text = "SELECT bad FROM main.r JOIN s ON worse = r.id WHERE worst"
    pieces = query(text).pieces(VIEWS)
    run = spliced(text, pieces)
    for word in ("bad", "worse", "worst"):
        assert origin(pieces, run.index(word)) == text.index(word)
    assert origin(pieces, run.index("`R`")) == text.index("main.r")
    assert text[origin(pieces, run.index("`S`") + 4) :].startswith("s ON")


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("SELECT a FROM r", ("a",)),
        ("SELECT count(*) FROM r WHERE B > 1", ("b",)),
        ("SELECT count(*) FROM r", ()),
        ("SELECT * FROM r", ("a", "b", "c")),
        ("SELECT r.*, 1 AS x FROM r", ("a", "b", "c")),
        ("SELECT count(r.*) FROM r", ("a", "b", "c")),
        ("SELECT 1 FROM r JOIN s USING (a)", ("a",)),
        ("SELECT 1 FROM r NATURAL JOIN s", ("a", "b", "c")),
        ("SELECT * FROM (SELECT a FROM r) PIVOT (max(a) FOR a IN (1))", ("a", "b", "c")),
    ],
)
def test_which_columns_are_used(text: str, used: tuple[str, ...]) -> None:
    assert query(text).uses(("a", "b", "c")) == used


@pytest.mark.parametrize(
    "text",
    [
        "SELECT rand()",
        "SELECT RAND ( 3 )",
        "SELECT id FROM r ORDER BY shuffle(l)",
        "SELECT first(id) FROM r",
        "SELECT collect_list(id) FROM r",
        "SELECT concat_ws(',', collect_set(id)) FROM r",
        "SELECT first(id) OVER (PARTITION BY k) FROM r",
        "SELECT id FROM r LIMIT 1",
        "SELECT id FROM r TABLESAMPLE (5 ROWS)",
        "SELECT CAST('today' AS DATE)",
        "SELECT TIMESTAMP 'now'",
        "SELECT session_user",
        "SELECT * FROM read_files('/tmp')",
        "SELECT id FROM IDENTIFIER('r')",
        "SELECT unix_timestamp() AS t FROM r",
    ],
)
def test_what_has_no_one_answer_is_refused(text: str) -> None:
    with pytest.raises(BadStatement):
        query(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT sort_array(collect_list(id)), size(collect_set(id)) FROM r",
        "SELECT array_sort(collect_list(id) FILTER (WHERE k > 1)) FROM r",
        "SELECT first(id) OVER (PARTITION BY k ORDER BY id) FROM r",
        "SELECT listagg(name, ',') WITHIN GROUP (ORDER BY name) FROM r",
        "SELECT id FROM r ORDER BY id LIMIT 3",
        "SELECT uuid, `rand` FROM r",
        "SELECT unix_timestamp(t), DATE '2026-01-01' FROM r",
    ],
)
def test_what_has_one_is_not(text: str) -> None:
    assert not query(text).clocked
