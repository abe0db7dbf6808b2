"""Upkeep over HTTP: each job does what the command does, tells it first in a dry run, and is in the audit log."""

from __future__ import annotations

import pytest

from lakemill.core.rights import Role
from tests.api.conftest import Api, problem


@pytest.fixture(scope="module")
def admin(api: Api) -> str:
    return api.key(Role.OPS_ADMIN)


def test_rows_in_the_catalog_become_files(api: Api, admin: str) -> None:
    with api.lake.duck() as duck:
        duck.execute("CREATE TABLE small (id INTEGER)")
        duck.execute("CALL lake.set_option('data_inlining_row_limit', 50, table_name => 'small')")
        duck.execute("INSERT INTO small VALUES (1), (2)")
    wanted = {"table": "small", "dry_run": True}
    planned = api.post("/v1/upkeep/flush", admin, json=wanted).json()
    assert [one["what"] for one in planned["done"]] == ["2 rows, 0 deletes of main.small"]
    assert (planned["job"], planned["dry_run"], planned["snapshots"]) == ("flush", True, [])
    assert api.post("/v1/upkeep/flush", admin, json=wanted).json() == planned  # nothing was done
    done = api.post("/v1/upkeep/flush", admin, json={"table": "small"}).json()
    assert done["done"] == planned["done"]
    assert api.get("/v1/snapshots?limit=1", admin).json()[0]["snapshot"] == done["snapshots"][0]
    assert api.get("/v1/tables/small", admin).json()["files"] == 1
    with api.lake.duck() as duck:
        assert duck.execute("FROM small ORDER BY id").fetchall() == [(1,), (2,)]
    assert api.post("/v1/upkeep/flush", admin, json={"table": "small"}).json()["done"] == []


def test_old_snapshots_and_their_files_go(api: Api, admin: str) -> None:
    with api.lake.duck() as duck:
        duck.execute("CREATE OR REPLACE TABLE gone AS SELECT * FROM range(1000)")
        duck.execute("DROP TABLE gone")
    assert api.post("/v1/upkeep/expire", admin).json()["done"] == []  # none is as old as upkeep.retention
    for age in ("10000 days", "900000000 days", 10**13):
        assert api.post("/v1/upkeep/expire", admin, json={"older_than": age}).json()["done"] == []
    for moment in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
        assert api.post("/v1/upkeep/expire", admin, json={"before": moment, "dry_run": True}).status_code == 200
    kept = api.post("/v1/upkeep/expire", admin, json={"snapshots": [1], "dry_run": True}).json()["kept"]
    assert "retention" in kept[0]["why"]
    problem(api.post("/v1/upkeep/expire", admin, json={"snapshots": [1], "older_than": "1 day"}), 400, "BAD_ARGUMENT")
    for job in ("cleanup", "orphans"):
        answer = api.post(f"/v1/upkeep/{job}", admin).json()
        assert (answer["job"], answer["files_removed"], answer["dry_run"]) == (job, 0, False)


def test_merging_needs_spark_and_its_plan_does_not(api: Api, admin: str) -> None:
    assert api.post("/v1/upkeep/compact", admin, json={"dry_run": True}).json()["job"] == "compact"
    found = problem(api.post("/v1/upkeep/compact", admin, json={"table": "orders"}), 503, "MISSING_PART")
    assert "lakemill serve" in found["remedy"]


def test_what_is_due_and_why(api: Api, admin: str) -> None:
    found = api.get("/v1/upkeep", admin).json()
    assert found["policy"]["small_files"] == 16
    shown = {one["table"]: one for one in found["tables"]}
    assert shown["main.orders"]["policy"]["from"] == {}
    assert not shown["main.orders"]["due"]
    assert api.get("/v1/upkeep?table=orders", admin).json()["tables"] == [shown["main.orders"]]
    problem(api.get("/v1/upkeep?table=nowhere", admin), 404, "UNKNOWN_TABLE")
    problem(api.get("/v1/upkeep", api.key(Role.QUERY_READER)), 403, "FORBIDDEN")


def test_what_is_wrong_is_told(api: Api, admin: str) -> None:
    problem(api.post("/v1/upkeep/compact", admin, json={"table": "nowhere", "dry_run": True}), 404, "UNKNOWN_TABLE")
    problem(api.post("/v1/upkeep/cleanup", admin, json={"table": "orders"}), 422, "BAD_REQUEST")
    problem(api.post("/v1/upkeep/vacuum", admin), 404, "UNKNOWN_ROUTE")
    own = api.key(Role.OPS_ADMIN, of="acme")
    problem(api.post("/v1/upkeep/flush", own, json={"table": "acme.orders"}), 403, "FORBIDDEN")


def test_it_is_in_the_audit_log(api: Api, admin: str) -> None:
    api.post("/v1/upkeep/orphans", admin, json={"dry_run": True})
    api.post("/v1/upkeep/flush", admin, json={"table": "nowhere"})
    flush, orphans = api.get("/v1/audit?limit=2", admin).json()
    assert (flush["action"], flush["outcome"], flush["tables"]) == ("upkeep.flush", "refused", ["main.nowhere"])
    assert (orphans["action"], orphans["about"]) == ("upkeep.orphans", "planned: 0, kept: 0")
