"""No secret leaves: keys and JWTs are sent in every way there is, and then looked for in all that was written."""

from __future__ import annotations

import logging

import pytest

import lakemill
from lakemill.core.keys import split
from lakemill.core.rights import Role
from lakemill.telemetry.log import configure
from tests.api.conftest import Api
from tests.store.test_keys import everything

D = "/v1/dynamic-tables"


def test_no_secret_in_logs_errors_metrics_or_the_store(api: Api, capfd: pytest.CaptureFixture[str]) -> None:
    handlers, level = list(logging.getLogger().handlers), logging.getLogger("lakemill").level
    configure("json", "debug")
    try:
        admin = api.key(*Role)
        made = api.post("/v1/keys", admin, json={"name": "spy", "roles": ["query_reader"]})
        key = made.json()["key"]
        parts = split(key)
        assert parts is not None
        wrong = key[:-3] + ("abc" if not key.endswith("abc") else "xyz")
        jwt = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"
        answers = []
        for secret in (key, wrong, jwt):
            answers += [
                api.get("/v1/tables", secret),
                api.get(f"/v1/tables/{secret}", admin),
                api.get(f"/v1/tables?at={secret}", admin),
                api.get(f"/v1/audit?who={secret}", admin),
                api.get("/v1/tables", headers={"x-api-key": secret}),
                api.get("/v1/tables", headers={"authorization": f"Basic {secret}"}),
                api.get("/v1/tables", headers={"traceparent": secret}),
                api.define(
                    admin, f"CREATE DYNAMIC TABLE d TARGET_LAG = '1 day' AS SELECT '{secret}' AS x, y FROM orders"
                ),
                api.define(admin, f"CREATE {secret}"),
                api.get(f"{D}/{secret}", admin),
                api.post(f"{D}/{secret}/refresh", admin),
                api.post("/v1/keys", admin, json={"name": "x", "roles": [secret]}),
                api.post("/v1/keys", admin, json={"name": secret, "roles": [], secret: 1}),
                api.post("/v1/tenants", admin, json={"name": "x", "schemas": []}, headers={"cookie": secret}),
                api.ask("DELETE", f"/v1/keys/{secret}", admin),
                api.ask("DELETE", f"/v1/pins/{secret}", admin),
                api.get(f"/nothing/{secret}", admin),
                api.get(f"/nothing/{secret}"),
            ]
        listed = [api.get("/v1/keys", admin), api.get("/v1/audit?limit=1000", admin), api.get("/metrics")]
        with lakemill.open(api.lake.settings) as lake:
            stored = everything(lake.conn)
    finally:
        root = logging.getLogger()
        for handler in list(root.handlers):
            if handler not in handlers:
                root.removeHandler(handler)
        logging.getLogger("lakemill").setLevel(level)
    assert not any(answer.status_code == 500 for answer in answers)
    out, err = capfd.readouterr()
    written = "\n".join([out, err, stored, *(answer.text for answer in (*answers, *listed))])
    written += "\n".join(str(dict(answer.headers)) for answer in (*answers, *listed))
    for secret in (parts[1], wrong[17:], jwt, jwt.rpartition(".")[0]):
        assert secret not in written, written[max(0, written.index(secret) - 300) :][:600]
    assert parts[0] in written, "its id is no secret"
