"""The HTTP service on a lake with tables of two tenants, asked in this process; no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from starlette.testclient import TestClient

import lakemill
from lakemill.api.app import make
from lakemill.api.desk import Desk
from lakemill.core.quota import Quotas
from lakemill.core.rights import Role
from lakemill.store import keys
from tests.conftest import TestLake, make_lakes

LOCAL = "127.0.0.1"
Answer: TypeAlias = Any
"""Of whichever client Starlette's tests use."""
TABLES = """
CREATE TABLE main.orders AS SELECT i AS id, i % 3 AS k, i * 1.5 AS amount FROM range(9) t(i);
CREATE SCHEMA acme;
CREATE TABLE acme.orders AS SELECT i AS id, i % 3 AS k FROM range(5) t(i);
CREATE TABLE acme.parts AS SELECT 1 AS id;
CREATE SCHEMA globex;
CREATE TABLE globex.secrets AS SELECT 'globex' AS word;
CREATE VIEW acme.window_to_globex AS SELECT * FROM globex.secrets;
"""


@dataclass
class Api:
    """``api.get("/v1/tables", key)``; each method gives the answer as it is."""

    lake: TestLake
    desk: Desk
    client: TestClient
    made: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, key: str | None = None, **options: Any) -> Answer:
        headers = {**({"authorization": f"Bearer {key}"} if key else {}), **options.pop("headers", {})}
        return self.client.request(method, path, headers=headers, **options)

    def get(self, path: str, key: str | None = None, **options: Any) -> Answer:
        return self.ask("GET", path, key, **options)

    def post(self, path: str, key: str | None = None, **options: Any) -> Answer:
        return self.ask("POST", path, key, **options)

    def key(self, *roles: Role, **options: Any) -> str:
        """A new key."""
        with lakemill.open(self.lake.settings) as lake:
            made, text = keys.create(lake.conn, "test", frozenset(roles), by="test", **options)
        self.desk.authentication.forget()
        self.made[text] = made.id
        return text

    def define(self, key: str, sql: str, **options: Any) -> Answer:
        return self.post("/v1/dynamic-tables", key, content=sql, headers={"content-type": "application/sql"}, **options)


def problem(answer: Answer, status: int, code: str) -> dict[str, Any]:
    """The one form of errors, whole."""
    assert (answer.status_code, answer.json().get("code")) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert found["status"] == status
    assert found["message"]
    assert isinstance(found["retryable"], bool)
    assert found["trace_id"] == answer.headers["x-trace-id"]
    assert "Traceback" not in answer.text
    return found


@pytest.fixture(scope="module")
def made_lake(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestLake]:
    folder: Path = tmp_path_factory.mktemp("api")
    with make_lakes(postgres, folder) as make_lake:
        lake = make_lake(flags={"api.key_cache": "200ms"})
        with lake.duck() as duck:
            duck.execute(TABLES)
        with lakemill.open(lake.settings) as opened:
            keys.create_tenant(opened.conn, "acme", ["acme"], Quotas())
            keys.create_tenant(opened.conn, "globex", ["globex"], Quotas())
        yield lake


@pytest.fixture(scope="module")
def api(made_lake: TestLake) -> Iterator[Api]:
    desk = Desk(made_lake.settings, LOCAL)
    desk.start()
    with TestClient(make(desk), base_url=f"http://{LOCAL}", raise_server_exceptions=False) as client:
        yield Api(made_lake, desk, client)
    desk.close()
