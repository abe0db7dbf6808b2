"""Dynamic tables over HTTP, with a worker in the process (Spark) and without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

import lakemill
from lakemill.api.app import make
from lakemill.api.desk import Desk
from lakemill.core.rights import Role
from lakemill.settings import Settings
from lakemill.store import work
from lakemill.store.work import Kind
from lakemill.telemetry import metrics
from tests.api.conftest import LOCAL, Api, problem
from tests.conftest import TestLake

D = "/v1/dynamic-tables"
SQL = "CREATE DYNAMIC TABLE {name} TARGET_LAG = '1 hour' {options} AS {query}"
COUNTS = "SELECT k, count(*) AS n FROM main.orders GROUP BY k"


@pytest.fixture(scope="module")
def key(api: Api) -> str:
    return api.key(*Role)


@pytest.fixture
def serving(made_lake: TestLake, spark: Any) -> Iterator[Api]:
    """As `lakemill serve` has it."""
    desk = Desk(Settings.load(made_lake.settings.root, {"duck.threads": 2}), LOCAL, works=True)
    with TestClient(make(desk), base_url=f"http://{LOCAL}", raise_server_exceptions=False) as client:
        yield Api(made_lake, desk, client)
    desk.close()


def test_a_life_in_a_process_that_has_spark(serving: Api) -> None:
    key = serving.key(*Role)
    made = serving.define(key, SQL.format(name="counts", options="", query=COUNTS))
    assert made.status_code == 201, made.text
    assert made.headers["location"] == f"{D}/main.counts"
    assert (made.json()["action"], made.json()["rows"], made.json()["work"]) == ("INITIALIZE", 3, None)
    with serving.lake.duck() as duck:
        duck.execute("INSERT INTO main.orders VALUES (100, 7, 1.5)")
    plan = serving.get(f"{D}/counts/explain", key).json()
    assert (plan["action"], plan["sources"][0]["delta_rows"]) == ("MERGE", 1)
    before = metrics.REGISTRY.get_sample_value("lakemill_refresh_total", {"status": "SUCCEEDED", "action": "MERGE"})
    (done,) = serving.post(f"{D}/counts/refresh", key).json()
    after = metrics.REGISTRY.get_sample_value("lakemill_refresh_total", {"status": "SUCCEEDED", "action": "MERGE"})
    assert (before or 0) + 1 == after, "metrics know of it, as of a worker's"
    assert (done["outcome"], done["action"], done["rows_inserted"]) == ("SUCCEEDED", "MERGE", 1)
    verified = serving.post(f"{D}/counts/verify", key).json()
    assert (verified["equal"], verified["rows"], verified["engine"]) == (True, 4, "duckdb")
    about = serving.get(f"{D}/counts", key).json()
    assert (about["rows"], about["last_action"], about["sources"][0]["name"]) == (4, "MERGE", "main.orders")
    assert serving.get("/v1/tables/counts", key).json()["kind"] == "dynamic"
    point = serving.post("/v1/points", key, json={"tables": ["orders", "counts"], "seconds": 60}).json()
    assert [table["kind"] for table in point["tables"]] == ["base", "dynamic"]
    assert len(serving.get("/v1/pins", key).json()) == len({table["snapshot"] for table in point["tables"]})
    assert len(serving.get(f"{D}/counts/history", key).json()) == 2
    with lakemill.open(serving.lake.settings) as lake:
        (kept,) = lake.points()  # as a scheduler keeps it
    (seen,) = serving.get("/v1/points", key).json()
    assert (seen["data_snapshot"], seen["clock_time"]) == (kept.b, None)
    assert seen["tables"] == [{"table": "main.counts", "kind": "dynamic", "snapshot": kept.tables[0][1]}]
    assert serving.get("/v1/points", serving.key(Role.QUERY_READER, tables=("other.*",))).json() == []
    assert serving.ask("DELETE", f"{D}/counts", key).json() == {"dropped": ["main.counts"]}


def test_without_spark_the_workers_are_asked(api: Api, key: str) -> None:
    made = api.define(key, SQL.format(name="first", options="", query=COUNTS))
    assert (made.status_code, made.json()["state"]) == (202, "PENDING_INIT"), made.text
    later = api.define(key, SQL.format(name="later", options="INITIALIZE = ON_SCHEDULE", query="SELECT n FROM first"))
    assert (later.status_code, later.json()["work"]) == (201, None)
    asked = api.post(f"{D}/later/refresh", key)
    assert (asked.status_code, asked.json()["look"]) == (202, f"{D}/main.later/history")
    assert asked.headers["location"] == asked.json()["look"]
    with lakemill.open(api.lake.settings) as lake:
        rows = lake.conn.execute("SELECT work_id, after, manual, b, t FROM lakemill.work ORDER BY work_id").fetchall()
        (first, second), head = rows, lake.snapshot().id
        assert (first[0], second[0]) == (made.json()["work"], asked.json()["work"])
        assert (first[1], second[1]) == ([], [first[0]]), "what it reads comes first"
        assert all(row[2] and row[3] <= head and row[4] is not None for row in rows)
        taken = work.take(lake.conn, "test", (Kind.REFRESH,), lake.settings.service.claim_expiry)
        assert taken is not None
        assert taken.id == first[0]
    problem(api.post(f"{D}/first/refresh?full=true", key), 503, "MISSING_PART")
    in_spark = SQL.format(name="third", options="DIALECT = 'spark' INITIALIZE = ON_SCHEDULE", query=COUNTS)
    problem(api.define(key, in_spark), 503, "MISSING_PART")
    again = api.define(key, SQL.format(name="IF NOT EXISTS first", options="", query=COUNTS))
    assert (again.json()["kept"], again.status_code) == (True, 202), "it still waits for its first load"
    assert api.ask("DELETE", f"{D}/first", key).status_code == 409
    assert api.ask("DELETE", f"{D}/first?cascade=true", key).json() == {"dropped": ["main.first", "main.later"]}


def test_a_name_of_any_letters(api: Api, key: str) -> None:
    made = api.define(key, SQL.format(name='"Ä b/c"', options="", query=COUNTS).encode())
    assert (made.status_code, made.headers["location"]) == (202, f"{D}/main.%22%C3%84%20b%2Fc%22")
    assert [one["table"] for one in api.get(D, key).json()] == ['main."Ä b/c"']
    with lakemill.open(api.lake.settings) as lake:  # a slash can't stand in an address
        lake.drop('"Ä b/c"')


def test_suspended_and_resumed(api: Api, key: str) -> None:
    api.define(key, SQL.format(name="s", options="INITIALIZE = ON_SCHEDULE", query=COUNTS))
    assert api.post(f"{D}/s/suspend", key).json() == {"changed": ["main.s"]}
    assert api.get(f"{D}?like=s", key).json()[0]["state"] == "SUSPENDED"
    assert api.post(f"{D}/s/resume", key).json() == {"changed": ["main.s"]}
    assert api.get(f"{D}?like=none%25", key).json() == []
    problem(api.get(f"{D}?like=%5C", key), 400, "BAD_ARGUMENT")
    problem(api.post(f"{D}/s/verify", key), 404, "UNKNOWN_SNAPSHOT")
    graph = api.get("/v1/graph?table=s", key).json()
    assert graph["edges"] == [{"from": "main.orders", "to": "main.s"}]
    actions = [one["action"] for one in api.get("/v1/audit", key).json()]
    assert actions[:4] == ["dynamic.verify", "dynamic.resume", "dynamic.suspend", "dynamic.create"]
    assert api.ask("DELETE", f"{D}/s", key).status_code == 200
