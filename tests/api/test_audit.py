"""The audit log over HTTP: what goes in, what comes out, and when it goes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import lakemill
from lakemill.core.rights import Role
from lakemill.runtime.scheduler import _forget
from lakemill.store import audit
from tests.api.conftest import Api, problem


def test_what_is_refused_is_there_too_and_old_entries_go(api: Api) -> None:
    admin, reader = api.key(Role.OPS_ADMIN), api.key(Role.QUERY_READER)
    problem(api.post("/v1/keys", reader, json={"name": "more", "roles": ["ops_admin"]}), 403, "FORBIDDEN")
    problem(api.ask("PATCH", "/v1/tenants/nobody", admin, json={}), 404, "UNKNOWN_TENANT")
    made = api.post("/v1/tenants", admin, json={"name": "new", "schemas": ["new"]})
    assert made.status_code == 201
    found = api.get("/v1/audit", admin).json()
    assert [(one["who"], one["action"], one["about"], one["outcome"], one["code"]) for one in found] == [
        (f"key:{api.made[admin]}", "tenants.create", "new", "done", None),
        (f"key:{api.made[admin]}", "tenants.alter", "nobody", "refused", "UNKNOWN_TENANT"),
        (f"key:{api.made[reader]}", "keys.create", "more", "refused", "FORBIDDEN"),
    ]
    assert found[0]["trace_id"] == made.headers["x-trace-id"]
    newest = found[0]["id"]
    assert [one["id"] for one in api.get(f"/v1/audit?limit=1&before={newest}", admin).json()] == [found[1]["id"]]
    assert len(api.get(f"/v1/audit?who=key:{api.made[reader]}", admin).json()) == 1
    with lakemill.open(api.lake.settings) as lake:
        kept = lake.settings.api.audit_retention
        _forget(lake, datetime.now(UTC) + kept - timedelta(hours=1))
        assert len(audit.entries(lake.conn, 10)) == 3
        _forget(lake, datetime.now(UTC) + kept + timedelta(hours=1))
        assert audit.entries(lake.conn, 10) == ()


def test_a_query_is_told_whole(api: Api) -> None:
    """As the gateway will have it: what was read, at which snapshot, how many rows."""
    from lakemill.api.authentication import Granted
    from lakemill.api.caller import Caller
    from lakemill.core.names import parse_name
    from lakemill.core.rights import Identity

    caller = Caller(Granted(Identity("key:q", frozenset({Role.QUERY_READER}), "acme"), {}), "t" * 32, api.desk)
    with caller.audited("query", sql="SELECT 1", tables=[parse_name("acme.orders")]) as entry:
        entry.snapshot, entry.rows = 7, 1
    admin = api.key(Role.OPS_ADMIN, of="acme")
    (found,) = api.get("/v1/audit?action=query", admin).json()
    assert (found["sql"], found["tables"], found["snapshot"], found["rows"]) == ("SELECT 1", ["acme.orders"], 7, 1)
    assert api.get("/v1/audit", api.key(Role.OPS_ADMIN, of="globex")).json() == []
