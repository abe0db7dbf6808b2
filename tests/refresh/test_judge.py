"""Who verifies reads the user's own words: what we took a query for is itself what is judged."""

from __future__ import annotations

from typing import Any

import pytest
from sqlglot import exp

from lakemill.core.names import parse_name
from lakemill.core.qualified import qualified
from lakemill.runtime import analyse, verify, words
from tests.refresh.mill import Mill


def test_a_name_that_we_take_for_another(mill: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*given: Any) -> exp.Query:
        query = qualified(*given)
        for column in query.find_all(exp.Column):
            if column.name == "k":
                column.set("this", exp.to_identifier("id"))
        return query

    for module in (analyse, words):
        monkeypatch.setattr(module, "qualified", mistaken)
    mill.create("n", "SELECT k, count(*) AS n FROM r GROUP BY k")
    found = verify.verify(mill.lake, parse_name("n"))
    assert (found.missing, found.extra) == (10, 40)


def test_what_its_words_would_mean_by_now(mill: Mill) -> None:
    """A star keeps the columns that it had; a view is read as it is kept until the next refresh."""
    mill.tell("CREATE VIEW v AS SELECT k, w FROM s")
    mill.create("starred", "SELECT * FROM r")
    mill.create("viewed", "SELECT * FROM v")
    mill.tell("ALTER TABLE r ADD COLUMN late INTEGER", "CREATE OR REPLACE VIEW v AS SELECT k, w + 1 AS w FROM s")
    mill.judge("starred", "viewed")
    mill.tell("INSERT INTO r VALUES (100, 1, 1.5, 'n', 7)")
    mill.refresh("starred", "viewed")


def test_capitals_that_come_later(mill: Mill) -> None:
    mill.tell("CREATE VIEW v AS SELECT * FROM s")
    mill.create("viewed", "SELECT * FROM v")
    mill.create("starred", "SELECT * FROM s")
    mill.tell("ALTER TABLE s RENAME COLUMN w TO other", "ALTER TABLE s RENAME COLUMN other TO W")
    mill.tell("INSERT INTO s VALUES (100, 1)")
    mill.refresh("viewed", "starred")
    assert mill.rows("DESCRIBE viewed")[1][0] == "w"


def test_names_that_the_judge_has_for_itself(mill: Mill) -> None:
    mill.tell("CREATE TABLE wanted AS SELECT 1 AS c0", "CREATE TABLE kept AS SELECT 2 AS c0", "CREATE SCHEMA lake.lake")
    mill.tell("CREATE TABLE lake.lake.extra AS SELECT 3 AS c0")
    mill.create("missing", "SELECT c0 FROM wanted UNION ALL SELECT c0 FROM kept -- and no more")
    mill.create("again", "SELECT c0 FROM lake.extra UNION ALL SELECT c0 FROM missing")
    mill.tell("INSERT INTO kept VALUES (5)")
    mill.refresh("missing", "again")
    with verify.judge(mill.lake) as by:
        assert all(verify.verify(mill.lake, parse_name(name), by=by).equal for name in ("missing", "again", "missing"))


def test_the_clock_in_its_words(mill: Mill) -> None:
    mill.tell(
        "CREATE TABLE events AS SELECT i AS id, now()::TIMESTAMP - INTERVAL 1 HOUR * i AS seen FROM range(5) t(i)"
    )
    mill.tell("CREATE VIEW recent AS SELECT id FROM events WHERE seen > now()::TIMESTAMP - INTERVAL 3 HOUR")
    mill.create("lately", "SELECT id FROM events WHERE seen > now()::TIMESTAMP - INTERVAL 3 HOUR")
    mill.create("by_view", "SELECT count(*) AS n FROM recent")
    mill.judge("lately", "by_view")
