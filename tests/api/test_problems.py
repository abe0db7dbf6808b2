"""Errors over HTTP: one form for all, and nothing of the inside."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import APIRouter
from starlette.testclient import TestClient

from lakemill import errors
from lakemill.api import app, problems
from lakemill.api.caller import Who
from lakemill.api.desk import Desk
from lakemill.api.frame import trace_id
from lakemill.core.rights import Role
from lakemill.errors import InternalError, LakemillError, QuotaExceeded, StoreUnavailable
from lakemill.settings import Settings
from lakemill.telemetry import metrics
from tests.api.conftest import LOCAL, Api, problem
from tests.conftest import TestLake

EVERY = tuple(Role)


def leaves(kind: type[LakemillError]) -> Iterator[type[LakemillError]]:
    below = kind.__subclasses__()
    yield from (leaf for one in below for leaf in leaves(one)) if below else (kind,)


@pytest.mark.parametrize("kind", list(leaves(LakemillError)), ids=lambda kind: kind.code)
def test_every_error_has_a_status_and_the_form(kind: type[LakemillError]) -> None:
    secret = "lmk_ab3k5m2q7xyz_" + "s" * 43
    answer = problems.problem(kind(f"what {secret} password=hunter2", place="line 1"), "t")
    assert 400 <= answer.status_code < 600
    assert (answer.status_code == 500) == (kind is InternalError), "500 is for our own mistakes only"
    told = bytes(answer.body).decode()
    assert kind.code in told
    assert "sssss" not in told
    assert "hunter2" not in told
    assert ("line 1" in told) == (kind is not InternalError)
    assert ("retry-after" in answer.headers) == issubclass(kind, errors.UnavailableError)


def test_how_long_to_wait() -> None:
    refused = QuotaExceeded("over")
    refused.wait = 3.2
    assert problems.problem(refused, "t").headers["retry-after"] == "4"


@pytest.fixture(scope="module")
def key(api: Api) -> str:
    return api.key(*EVERY)


JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "code", "where"),
    [
        ("GET", "/nothing", {}, 404, "UNKNOWN_ROUTE", None),
        ("GET", "/v1/tables/", {"follow_redirects": False}, 404, "UNKNOWN_ROUTE", None),
        ("PUT", "/v1/tables", {}, 405, "WRONG_METHOD", None),
        ("POST", "/v1/keys", {"content": "{", "headers": JSON}, 400, "MALFORMED_BODY", None),
        ("POST", "/v1/keys", {"content": b"\xff", "headers": JSON}, 400, "MALFORMED_BODY", None),
        ("POST", "/v1/keys", {"content": "[" * 100_000, "headers": JSON}, 400, "MALFORMED_BODY", None),
        ("POST", "/v1/keys", {"content": "{}"}, 415, "UNSUPPORTED_MEDIA", None),
        ("POST", "/v1/keys", {"data": {"name": "x"}}, 415, "UNSUPPORTED_MEDIA", None),
        ("POST", "/v1/keys", {}, 422, "BAD_REQUEST", "body"),
        ("POST", "/v1/keys", {"json": []}, 422, "BAD_REQUEST", "body"),
        ("POST", "/v1/keys", {"json": {"name": "x", "roles": ["boss"]}}, 422, "BAD_REQUEST", "body.roles.0"),
        ("POST", "/v1/keys", {"json": {"name": "x", "roles": []}}, 422, "BAD_REQUEST", "body.roles"),
        ("POST", "/v1/keys", {"json": {"name": "a b", "roles": ["ops_admin"]}}, 422, "BAD_REQUEST", "body.name"),
        ("POST", "/v1/pins", {"json": {"second": 3}}, 422, "BAD_REQUEST", "body.second"),
        ("POST", "/v1/pins", {"json": {"reason": "\x00"}}, 422, "BAD_REQUEST", "body.reason"),
        ("POST", "/v1/pins", {"json": {"snapshot": 2**63}}, 422, "BAD_REQUEST", "body.snapshot"),
        ("POST", "/v1/pins", {"json": {"snapshot": 10**9}}, 404, "UNKNOWN_SNAPSHOT", None),
        ("DELETE", "/v1/pins/x", {}, 422, "BAD_REQUEST", "path.id"),
        ("GET", "/v1/snapshots?limit=0", {}, 422, "BAD_REQUEST", "query.limit"),
        ("GET", "/v1/tables?at=1%00", {}, 422, "BAD_REQUEST", None),
        ("GET", "/v1/tables/a%00b", {}, 422, "BAD_REQUEST", None),
        ("GET", '/v1/tables/"', {}, 400, "BAD_ARGUMENT", None),
        ("GET", "/v1/tables/nothing", {}, 404, "UNKNOWN_TABLE", None),
        ("GET", "/v1/dynamic-tables/nothing", {}, 404, "UNKNOWN_DYNAMIC_TABLE", None),
        ("PATCH", "/v1/tenants/nobody", {"json": {}}, 404, "UNKNOWN_TENANT", None),
        ("POST", "/v1/tenants", {"json": {"name": "acme", "schemas": ["x"]}}, 409, "TENANT_EXISTS", None),
        ("POST", "/v1/dynamic-tables", {"content": "SELECT 1"}, 415, "UNSUPPORTED_MEDIA", None),
    ],
)
def test_what_is_wrong(
    api: Api, key: str, method: str, path: str, options: dict[str, Any], status: int, code: str, where: str | None
) -> None:
    told = problem(api.ask(method, path, key, **options), status, code)
    assert where is None or told["where"] == where
    if code == "BAD_REQUEST" and where is not None:
        assert where in [one["path"] for one in told["fields"]]


@pytest.mark.parametrize(
    ("sql", "status", "code", "where"),
    [
        ("", 422, "BAD_REQUEST", None),
        ("SELECT 1", 400, "BAD_STATEMENT", "line 1"),
        ("CREATE DYNAMIC TABLE d TARGET_LAG = 'soon' AS SELECT 1", 400, "BAD_STATEMENT", "line 1, column"),
        ("CREATE DYNAMIC TABLE d TARGET_LAG = '1 day' AS SELECT x FROM orders", 400, "SQL_FAILED", "line 1, column"),
        ("CREATE DYNAMIC TABLE d TARGET_LAG = '1 day' AS SELECT random() AS r", 400, "BAD_STATEMENT", "line 1"),
        ("CREATE DYNAMIC TABLE d TARGET_LAG = '1 day' AS SELECT * FROM nothing", 404, "UNKNOWN_TABLE", "line 1"),
        ("CREATE DYNAMIC TABLE orders TARGET_LAG = '1 day' AS SELECT 1 AS a", 409, "TABLE_EXISTS", "line 1"),
        ("\x00", 400, "MALFORMED_BODY", None),
    ],
)
def test_statements(api: Api, key: str, sql: str, status: int, code: str, where: str | None) -> None:
    told = problem(api.define(key, sql), status, code)
    assert where is None or told["where"].startswith(where)


def test_an_allowed_method_is_named(api: Api, key: str) -> None:
    assert "GET" in api.ask("PUT", "/v1/tables", key).headers["allow"]


# ---------------------------------------------------------------- bodies
def test_a_body_that_is_too_large(made_lake: TestLake) -> None:
    desk = Desk(Settings.load(made_lake.settings.root, {"api.max_body": "1kB", "api.auth": "off"}), LOCAL)
    client = TestClient(app.make(desk), base_url=f"http://{LOCAL}", raise_server_exceptions=False)
    large = '{"reason": "' + "x" * 2000 + '"}'

    def pieces() -> Iterator[bytes]:  # without a length
        for letter in large:
            yield letter.encode()

    for body in (large, pieces()):
        problem(client.post("/v1/pins", content=body, headers=JSON), 413, "BODY_TOO_LARGE")
    for digits in (30, 5000):  # Python reads no number of so many
        lied = client.post("/v1/pins", content="{}", headers={**JSON, "content-length": "9" * digits})
        problem(lied, 413, "BODY_TOO_LARGE")
    desk.close()


# ---------------------------------------------------------------- our own mistakes
@pytest.fixture
def broken(made_lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """The service, with endpoints that go wrong in it."""
    router = APIRouter()
    secret = "lmk_ab3k5m2q7xyz_" + "s" * 43

    @router.get("/v1/mistake")
    def mistake(caller: Who) -> None:
        raise ZeroDivisionError(f"at /secret/path {secret}")

    @router.get("/v1/internal")
    def internal(caller: Who) -> None:
        raise InternalError("a table of ours is gone", place="/secret/path")

    @router.get("/v1/postgres")
    def postgres(caller: Who) -> None:
        with caller.lake() as lake:
            lake.conn.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    @router.get("/v1/stream")
    def stream(caller: Who) -> Any:
        from starlette.responses import StreamingResponse

        def rows() -> Iterator[bytes]:
            yield b"one"
            raise ZeroDivisionError("in the middle")

        return StreamingResponse(rows())

    module = type("module", (), {"router": router})
    monkeypatch.setattr(app, "ROUTERS", (*app.ROUTERS, module))
    desk = Desk(Settings.load(made_lake.settings.root, {"api.auth": "off"}), LOCAL)
    yield TestClient(app.make(desk), base_url=f"http://{LOCAL}", raise_server_exceptions=False)
    desk.close()


@pytest.mark.parametrize("path", ["/v1/mistake", "/v1/internal"])
def test_nothing_of_the_inside_is_told(broken: TestClient, caplog: pytest.LogCaptureFixture, path: str) -> None:
    with caplog.at_level(logging.ERROR, "lakemill"):
        answer = broken.get(path)
    told = problem(answer, 500, "INTERNAL_ERROR")
    assert not re.search(r"Zero|secret|gone|line|/path", answer.text)
    (record,) = caplog.records
    assert record.lakemill["trace_id"] == told["trace_id"]  # type: ignore[attr-defined]
    assert record.exc_info is not None


def test_a_connection_that_is_lost_is_not_lent_again(broken: TestClient) -> None:
    told = problem(broken.get("/v1/postgres"), 503, StoreUnavailable.code)
    assert told["retryable"] is True
    assert [broken.get("/v1/tables").status_code for _ in range(3)] == [200, 200, 200]


def test_a_stream_that_breaks_is_cut(broken: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "lakemill"):
        answer = broken.get("/v1/stream")
    assert answer.status_code == 200, "that was sent before"
    assert "code" not in answer.text
    assert "in the middle" in caplog.text


# ---------------------------------------------------------------- what surrounds a request
PARENT = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (f"00-{PARENT}-00f067aa0ba902b7-01", True),
        (f"01-{PARENT}-00f067aa0ba902b7-00", True),
        (f"00-{PARENT.upper()}-00f067aa0ba902b7-01", False),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", False),
        (f"00-{PARENT}", False),
        ("<script>", False),
        ("", False),
    ],
)
def test_trace_ids(given: str, taken: bool) -> None:
    found = trace_id({"traceparent": given})
    assert re.fullmatch(r"[0-9a-f]{32}", found)
    assert (found == PARENT) is taken


def test_a_trace_goes_through_to_the_audit_log(api: Api, key: str) -> None:
    headers = {"traceparent": f"00-{PARENT}-00f067aa0ba902b7-01"}
    answer = api.post("/v1/pins", key, json={"seconds": 1}, headers=headers)
    assert answer.headers["x-trace-id"] == PARENT
    (entry,) = api.get("/v1/audit?action=pins.create&limit=1", key).json()
    assert (entry["trace_id"], entry["outcome"], entry["snapshot"]) == (PARENT, "done", answer.json()["snapshot"])
    assert entry["who"] == f"key:{api.made[key]}"
    assert entry["seconds"] >= 0


def test_requests_are_counted_by_route(api: Api, key: str) -> None:
    labels = {"method": "GET", "route": "/v1/tables/{table}", "status": "404"}
    before = metrics.REGISTRY.get_sample_value("lakemill_http_requests_total", labels) or 0
    api.get("/v1/tables/nothing", key)
    api.get("/v1/tables/nothing_else", key)
    assert metrics.REGISTRY.get_sample_value("lakemill_http_requests_total", labels) == before + 2
    unrouted = {"method": "other", "route": "none", "status": "404"}
    api.ask("BREW", "/teapot/12345", key)
    assert metrics.REGISTRY.get_sample_value("lakemill_http_requests_total", unrouted) == 1
    assert "12345" not in api.get("/metrics").text


def test_the_documentation_is_whole(api: Api) -> None:
    page = api.get("/openapi.json").json()
    schemes = page["components"]["securitySchemes"]
    assert {scheme["type"] for scheme in schemes.values()} == {"http", "apiKey"}
    for path, methods in page["paths"].items():
        for method, about in methods.items():
            assert about["description"], f"{method} {path}"
            assert about["security"], f"{method} {path}"
            for status, answer in about["responses"].items():
                if int(status) >= 400:
                    form = answer["content"]["application/problem+json"]["schema"]
                    assert form == {"$ref": "#/components/schemas/Problem"}, f"{method} {path} {status}"
