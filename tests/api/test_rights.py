"""Who may call what: every endpoint with every role, and what a tenant sees."""

from __future__ import annotations

from typing import Any

import pytest

from lakemill.api.app import make
from lakemill.api.frame import OPEN
from lakemill.core.rights import GRANTS, Action, Role
from tests.api.conftest import Api, problem

D = "/v1/dynamic-tables"
NOWHERE = "main.nowhere"
PIN = "22c382f8-94e7-4927-bb97-667fbefa532c"
SQL: dict[str, Any] = {"content": "SELECT 1", "headers": {"content-type": "application/sql"}}

# what each endpoint needs; bodies are such that nothing comes of it
ENDPOINTS: list[tuple[str, str, dict[str, Any], Action]] = [
    ("GET", "/v1/tables", {}, Action.SEE),
    ("GET", "/v1/tables/{table}", {}, Action.SEE),
    ("POST", "/v1/tables", {"json": {"name": NOWHERE}}, Action.DEFINE),
    ("PATCH", "/v1/tables/{table}", {"json": {}}, Action.DEFINE),
    ("DELETE", "/v1/tables/{table}", {}, Action.DEFINE),
    ("GET", "/v1/lag", {}, Action.SEE),
    ("POST", "/v1/ingest/{table}", {"json": {"records": []}}, Action.INGEST),
    ("GET", "/v1/letters", {}, Action.DEFINE),
    ("GET", "/v1/letters/{letter_id}", {}, Action.DEFINE),
    ("POST", "/v1/letters/{letter_id}/replay", {}, Action.DEFINE),
    ("DELETE", "/v1/letters/{letter_id}", {}, Action.DEFINE),
    ("POST", "/v1/query", {"json": {"sql": "SELECT 1"}}, Action.QUERY),
    ("GET", "/v1/queries", {}, Action.CANCEL),
    ("DELETE", "/v1/queries/{id}", {}, Action.CANCEL),
    ("GET", "/v1/snapshots", {}, Action.SEE),
    ("GET", D, {}, Action.SEE),
    ("GET", f"{D}/{{table}}", {}, Action.SEE),
    ("GET", f"{D}/{{table}}/history", {}, Action.SEE),
    ("GET", f"{D}/{{table}}/explain", {}, Action.SEE),
    ("GET", "/v1/graph", {}, Action.SEE),
    ("POST", D, SQL, Action.DEFINE),
    ("DELETE", f"{D}/{{table}}", {}, Action.DEFINE),
    ("POST", f"{D}/{{table}}/refresh", {}, Action.OPERATE),
    ("POST", f"{D}/{{table}}/suspend", {}, Action.OPERATE),
    ("POST", f"{D}/{{table}}/resume", {}, Action.OPERATE),
    ("POST", f"{D}/{{table}}/verify", {}, Action.OPERATE),
    ("GET", "/v1/points", {}, Action.SEE),
    ("POST", "/v1/points", {"json": {"tables": [NOWHERE]}}, Action.PIN),
    ("GET", "/v1/pins", {}, Action.PIN),
    ("POST", "/v1/pins", {"json": {"snapshot": 10**9}}, Action.PIN),
    ("DELETE", "/v1/pins/{id}", {}, Action.PIN),
    ("GET", "/v1/upkeep", {"params": {"table": NOWHERE}}, Action.TEND),
    ("POST", "/v1/upkeep/compact", {"json": {"table": NOWHERE, "dry_run": True}}, Action.TEND),
    ("POST", "/v1/upkeep/flush", {"json": {"table": NOWHERE}}, Action.TEND),
    ("POST", "/v1/upkeep/expire", {"json": {"snapshots": [10**9]}}, Action.TEND),
    ("POST", "/v1/upkeep/cleanup", {"json": {"dry_run": True}}, Action.TEND),
    ("POST", "/v1/upkeep/orphans", {"json": {"dry_run": True}}, Action.TEND),
    ("GET", "/v1/keys", {}, Action.KEYS),
    ("POST", "/v1/keys", {"json": {"name": "x", "roles": ["ops_admin"], "tenant": "nobody"}}, Action.KEYS),
    ("DELETE", "/v1/keys/{id}", {}, Action.KEYS),
    ("GET", "/v1/audit", {}, Action.AUDIT),
    ("GET", "/v1/tenants", {}, Action.TENANTS),
    ("POST", "/v1/tenants", {"json": {"name": "acme", "schemas": ["x"]}}, Action.TENANTS),
    ("PATCH", "/v1/tenants/{name}", {"json": {}}, Action.TENANTS),
]


def path_of(pattern: str) -> str:
    return (
        pattern.replace("{table}", NOWHERE).replace("{id}", PIN).replace("{name}", "nobody").replace("{letter_id}", "0")
    )


@pytest.fixture(scope="module")
def of_role(api: Api) -> dict[Role, str]:
    return {role: api.key(role) for role in Role}


def test_every_endpoint_is_here(api: Api) -> None:
    described = make(api.desk).openapi()["paths"]
    there = {(method.upper(), path) for path, methods in described.items() for method in methods}
    assert there == {(method, path) for method, path, _, _ in ENDPOINTS}
    assert not {path for _, path in there} & OPEN


@pytest.mark.parametrize("role", Role)
def test_a_role_may_what_it_is_for_and_nothing_else(api: Api, of_role: dict[Role, str], role: Role) -> None:
    for method, pattern, options, action in ENDPOINTS:
        answer = api.ask(method, path_of(pattern), of_role[role], **options)
        if action in GRANTS[role]:
            assert answer.status_code not in (401, 403, 500), f"{method} {pattern}: {answer.text}"
        else:
            assert problem(answer, 403, "FORBIDDEN")["remedy"], f"{method} {pattern}"


def test_nobody_may_anything(api: Api, of_role: dict[Role, str]) -> None:
    for method, pattern, options, _ in ENDPOINTS:
        answer = api.ask(method, path_of(pattern), **options)
        problem(answer, 401, "UNAUTHENTICATED")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert [api.get(path).status_code for path in sorted(OPEN)] == [200] * len(OPEN)


# ---------------------------------------------------------------- tenants
EVERY = tuple(Role)


@pytest.fixture(scope="module")
def acme(api: Api) -> str:
    return api.key(*EVERY, of="acme")


@pytest.fixture(scope="module")
def whole(api: Api) -> str:
    return api.key(*EVERY)


def create(api: Api, key: str, name: str, query: str, options: str = "INITIALIZE = ON_SCHEDULE") -> Any:
    return api.define(key, f"CREATE DYNAMIC TABLE {name} TARGET_LAG = '1 hour' {options} AS {query}")


def test_a_tenant_sees_its_tables_only(api: Api, acme: str) -> None:
    listed = {one["table"] for one in api.get("/v1/tables", acme).json()}
    assert listed == {"acme.orders", "acme.parts", "acme.window_to_globex"}
    assert api.get("/v1/tables/ACME.orders", acme).json()["rows"] == 5
    for name in ("globex.secrets", "globex.nothing", "main.orders", "_lakemill.s1"):
        told = problem(api.get(f"/v1/tables/{name}", acme), 404, "UNKNOWN_TABLE")
        assert told["message"] == f"there is no table {name}", "whether there is one is not told"
    history = api.get("/v1/snapshots?limit=1000", acme)
    assert "globex.secrets" not in history.text
    assert {name for one in history.json() for name in one["tables"]} == listed


def test_a_scope_narrows_it_further(api: Api) -> None:
    key = api.key(*EVERY, of="acme", tables=("acme.ord*",))
    assert [one["table"] for one in api.get("/v1/tables", key).json()] == ["acme.orders"]
    problem(api.get("/v1/tables/acme.parts", key), 404, "UNKNOWN_TABLE")
    problem(api.get("/v1/keys", key), 403, "FORBIDDEN")
    problem(api.get("/v1/audit", key), 403, "FORBIDDEN")


@pytest.mark.parametrize(
    ("name", "query", "code"),
    [
        ("acme.a", "SELECT * FROM globex.secrets", "UNKNOWN_TABLE"),
        ("acme.a", "SELECT * FROM globex.nothing", "UNKNOWN_TABLE"),
        ("acme.a", "SELECT id FROM acme.orders WHERE EXISTS (SELECT 1 FROM globex.secrets)", "UNKNOWN_TABLE"),
        ("acme.a", "WITH s AS (SELECT * FROM globex.secrets) SELECT * FROM s", "UNKNOWN_TABLE"),
        ("acme.a", "SELECT * FROM acme.window_to_globex", "UNKNOWN_TABLE"),
        ("acme.a", "SELECT * FROM orders", "UNKNOWN_TABLE"),
        ("globex.a", "SELECT * FROM acme.orders", "UNKNOWN_TABLE"),
        ("a", "SELECT * FROM acme.orders", "UNKNOWN_TABLE"),
        ("acme.a", "SELECT * FROM lake.globex.secrets", "UNKNOWN_TABLE"),
        ("acme.a", "SELECT * FROM read_csv('/etc/passwd')", ""),
        ("acme.a", "SELECT * FROM read_text('/etc/hostname')", ""),
        ("acme.a", "SELECT * FROM '/etc/passwd'", "UNKNOWN_TABLE"),
        ("acme.a", "SELECT * FROM glob('/etc/*')", ""),
        ("acme.a", "SELECT * FROM duckdb_secrets()", ""),
        ("acme.a", "SELECT getenv('HOME') AS x FROM acme.orders", ""),
        ("acme.a", "FROM query('SELECT * FROM globex.secrets')", ""),
        ("acme.a", "FROM query_table('globex.secrets')", ""),
    ],
)
def test_a_definition_reaches_nothing_else(api: Api, acme: str, name: str, query: str, code: str) -> None:
    answer = create(api, acme, name, query)
    assert 400 <= answer.status_code < 500, answer.text
    assert not code or answer.json()["code"] == code, answer.text
    assert "root:" not in answer.text
    assert api.get(D, acme).json() == []


def test_sparks_own_sql_is_not_for_tenants(api: Api, acme: str) -> None:
    answer = create(api, acme, "acme.a", "SELECT id FROM acme.orders", "DIALECT = 'spark' INITIALIZE = ON_SCHEDULE")
    problem(answer, 403, "FORBIDDEN")


def test_what_reads_and_is_read_elsewhere_is_not_named(api: Api, acme: str, whole: str) -> None:
    """An operator may join what tenants must not see of each other."""
    assert create(api, whole, "acme.mine", "SELECT k, count(*) AS n FROM acme.orders GROUP BY k").status_code == 201
    assert create(api, whole, "globex.spy", "SELECT n FROM acme.mine").status_code == 201
    assert create(api, whole, "acme.gift", "SELECT word FROM globex.secrets").status_code == 201
    seen = [
        api.get(D, acme),
        api.get(f"{D}/acme.mine", acme),
        api.get(f"{D}/acme.gift", acme),
        api.get(f"{D}/acme.gift/explain", acme),
        api.get(f"{D}/acme.gift/history", acme),
        api.get("/v1/graph", acme),
        api.get("/v1/graph?as=mermaid", acme),
        api.get("/v1/graph?table=acme.mine", acme),
        api.post(f"{D}/acme.mine/suspend", acme),
        api.post(f"{D}/acme.mine/resume", acme),
        api.ask("DELETE", f"{D}/acme.mine", acme),
        api.ask("DELETE", f"{D}/acme.mine?cascade=true", acme),
    ]
    assert [answer.status_code for answer in seen] == [200] * 10 + [409] * 2, [answer.text for answer in seen]
    for answer in seen:
        assert "globex" not in answer.text
        assert "spy" not in answer.text
    assert {one["table"] for one in seen[0].json()} == {"acme.mine", "acme.gift"}
    assert seen[8].json() == {"changed": ["acme.mine"]}
    problem(api.get(f"{D}/globex.spy", acme), 404, "UNKNOWN_TABLE")
    problem(api.post("/v1/points", acme, json={"tables": ["acme.orders", "globex.secrets"]}), 404, "UNKNOWN_TABLE")
    assert api.ask("DELETE", f"{D}/acme.mine?cascade=true", whole).json() == {"dropped": ["acme.mine", "globex.spy"]}
    assert api.ask("DELETE", f"{D}/acme.gift", acme).status_code == 200


def test_errors_do_not_name_what_is_not_seen(api: Api, acme: str, whole: str) -> None:
    """Who reads a table that is to go, who is suspended on the way to it, and through whom a circle leads."""
    made = {"name": "acme.events", "columns": [{"name": "id", "type": "BIGINT"}]}
    assert api.post("/v1/tables", whole, json=made).status_code == 201
    assert create(api, whole, "globex.hidden", "SELECT id FROM acme.events").status_code == 201
    assert create(api, whole, "acme.through", "SELECT id FROM globex.hidden").status_code == 201
    writer = api.key(Role.INGEST_WRITER, Role.QUERY_READER, of="acme")
    sent = api.post("/v1/ingest/acme.events", writer, json={"records": [{"payload": {"id": 1}}]}).json()
    assert api.post(f"{D}/globex.hidden/suspend", whole).status_code == 200
    words = {"sql": "FROM acme.through", "min_visibility_token": sent["visibility_token"]}
    told = [
        problem(api.ask("DELETE", "/v1/tables/acme.events?force=true", acme), 409, "HAS_DEPENDENTS"),
        problem(create(api, acme, "acme.turn", "SELECT id FROM acme.turn"), 400, "CYCLE"),
    ]
    with api.lake.duck() as duck:
        duck.execute("CREATE TABLE acme.through AS SELECT 1 AS id")  # nobody has loaded it
        told.append(problem(api.post("/v1/query", writer, json=words), 409, "TABLE_SUSPENDED"))
        duck.execute("DROP TABLE acme.through")
    assert all("globex" not in str(one) and "hidden" not in str(one) for one in told), told
    whole_told = problem(api.ask("DELETE", "/v1/tables/acme.events?force=true", whole), 409, "HAS_DEPENDENTS")
    assert "globex.hidden" in whole_told["message"]
    assert api.ask("DELETE", f"{D}/globex.hidden?cascade=true", whole).status_code == 200
    assert api.ask("DELETE", "/v1/tables/acme.events?force=true", acme).status_code == 204


def test_keys_pins_and_audit_are_ones_own(api: Api, acme: str, whole: str) -> None:
    made = api.post("/v1/keys", acme, json={"name": "more", "roles": ["query_reader"]}).json()
    assert made["made"]["tenant"] == "acme", "its own, where none is given"
    wanted = {"name": "more", "roles": ["query_reader"], "tenant": "globex"}
    problem(api.post("/v1/keys", acme, json=wanted), 403, "FORBIDDEN")
    other = api.post("/v1/keys", whole, json=wanted).json()
    assert {one["tenant"] for one in api.get("/v1/keys", acme).json()} == {"acme"}
    problem(api.ask("DELETE", f"/v1/keys/{other['made']['id']}", acme), 404, "UNKNOWN_KEY")
    problem(api.get("/v1/tenants", acme), 403, "FORBIDDEN")
    assert {one["tenant"] for one in api.get("/v1/audit", acme).json()} == {"acme"}

    mine = api.post("/v1/pins", acme, json={"seconds": 60, "reason": "mine"}).json()
    theirs = api.post("/v1/pins", other["key"], json={"seconds": 60}).json()
    assert [pin["id"] for pin in api.get("/v1/pins", acme).json()] == [mine["id"]]
    problem(api.ask("DELETE", f"/v1/pins/{theirs['id']}", acme), 404, "UNKNOWN_PIN")
    assert {mine["id"], theirs["id"]} <= {pin["id"] for pin in api.get("/v1/pins", whole).json()}
    assert api.ask("DELETE", f"/v1/pins/{mine['id']}", acme).status_code == 204
    assert api.ask("DELETE", f"/v1/pins/{theirs['id']}", whole).status_code == 204
    problem(api.post("/v1/pins", acme, json={"seconds": 10**8}), 400, "BAD_ARGUMENT")


def test_the_letters_of_others_don_t_fill_a_tenants_page(api: Api, acme: str, whole: str) -> None:
    for schema, key in (("acme", acme), ("globex", whole)):
        made = {"name": f"{schema}.mail", "columns": [{"name": "id", "type": "BIGINT"}], "policy": "dead_letter"}
        assert api.post("/v1/tables", key, json=made).status_code == 201
        sent = {"records": [{"payload": {"id": schema}}]}
        assert api.post(f"/v1/ingest/{schema}.mail", key, json=sent).json()["rejected_count"] == 1
    try:
        assert [one["table"] for one in api.get("/v1/letters?limit=1", acme).json()] == ["acme.mail"]
        assert [one["table"] for one in api.get("/v1/letters?limit=1", whole).json()] == ["globex.mail"]
        assert api.get("/v1/letters?limit=1&table=acme.mail", whole).json()[0]["table"] == "acme.mail"
    finally:
        for name in ("acme.mail", "globex.mail"):
            assert api.ask("DELETE", f"/v1/tables/{name}?force=true", whole).status_code == 204


def test_who_administers_a_tenant_sees_and_takes_out_its_pins_alone(api: Api) -> None:
    reader, admin = api.key(Role.QUERY_READER, of="acme"), api.key(Role.OPS_ADMIN, of="acme")
    made = api.post("/v1/pins", reader, json={"seconds": 60})
    assert made.status_code == 201, made.text
    others = api.post("/v1/pins", api.key(Role.QUERY_READER), json={"seconds": 60}).json()["id"]
    id_ = made.json()["id"]
    assert [pin["id"] for pin in api.get("/v1/pins", admin).json()] == [id_]
    problem(api.ask("DELETE", f"/v1/pins/{others}", admin), 404, "UNKNOWN_PIN")
    problem(api.ask("DELETE", f"/v1/pins/{id_}", api.key(Role.OPS_ADMIN, of="globex")), 404, "UNKNOWN_PIN")
    assert api.ask("DELETE", f"/v1/pins/{id_}", admin).status_code == 204
    assert api.get("/v1/pins", reader).json() == []
