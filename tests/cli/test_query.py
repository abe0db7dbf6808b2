"""`lakemill query`, as a person uses it, against a service in this process. No Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakemill.api.app import make
from lakemill.api.desk import Desk
from lakemill.api.probes import serve_in_thread
from tests.cli.conftest import Lakemill
from tests.conftest import MakeLake, TestLake

LOCAL = "127.0.0.1"


@pytest.fixture
def served(make_lake: MakeLake) -> Iterator[tuple[TestLake, str]]:
    """A lake, and where it is served."""
    lake = make_lake()
    with lake.duck() as duck:
        duck.execute("CREATE TABLE orders AS SELECT i AS id, i * 1.5 AS amount FROM range(5) r(i)")
    desk = Desk(lake.settings, LOCAL)
    desk.start()
    serving = serve_in_thread(make(desk))
    yield lake, serving.url
    serving.stop()
    desk.close()


def test_a_query(lakemill: Lakemill, served: tuple[TestLake, str]) -> None:
    lake, url = served

    def asked(sql: str, *words: object) -> list[list[object]]:
        ran = lakemill(lake, "query", sql, "--url", url, "--format", "json", *words)
        assert ran.code == 0, ran.err
        return [list(row.values()) for row in ran.json]

    assert asked("SELECT id FROM orders WHERE id > ? ORDER BY id", "--param", 2) == [[3], [4]]
    assert asked("SELECT id FROM orders ORDER BY id", "--limit", 2) == [[0], [1]]
    assert asked("SELECT count(*) AS n FROM orders WHERE id < $1 AND amount>$2", "--param", 4, "--param", 1) == [[3]]
    with lake.duck() as duck:
        duck.execute("DELETE FROM orders")
    assert asked("SELECT count(*) AS n FROM orders") == [[0]]
    assert asked("SELECT count(*) AS n FROM orders", "--at", 1) == [[5]]
    odd = "SELECT DATE 'infinity' AS d, INTERVAL 1 DAY AS i, 'NaN'::DOUBLE AS n, 7::UHUGEINT AS u"
    assert asked(odd) == [["infinity", "P1D", "NaN", "7"]]
    twice = lakemill(lake, "query", "SELECT 1 AS a, 2 AS a", "--url", url)
    assert (twice.code, "1" in twice.out, "2" in twice.out) == (0, True, True)


def test_what_goes_wrong_is_one_line(lakemill: Lakemill, served: tuple[TestLake, str]) -> None:
    lake, url = served
    lakemill(lake, "query", "SELECT * FROM nothing", "--url", url).failed("UNKNOWN_TABLE", 2, about="main.nothing")
    lakemill(lake, "query", "DROP TABLE orders", "--url", url).failed("QUERY_REFUSED", 2, about="DROP")
    lakemill(lake, "query", "FROM orders", "--at", 99, "--url", url).failed("UNKNOWN_SNAPSHOT", 2)
    wrong = lakemill(lake, "query", "FROM orders", "--token", "x", "--url", url)
    wrong.failed("BAD_TOKEN", 2, about="'x' is not a token")
