"""`lakemill keys`, `lakemill tenants` and `lakemill api`, as a person uses them. No Spark."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from lakemill.core.keys import split
from lakemill.store import audit, db
from tests.cli.conftest import Lakemill
from tests.conftest import MakeLake, TestLake

ROOT = Path(__file__).parents[2]
SECONDS = 60


def test_a_key_from_its_making_to_its_end(lakemill: Lakemill, lake: TestLake) -> None:
    assert lakemill(lake, "keys", "list").out == "no keys\n"
    made = lakemill(lake, "keys", "create", "loader", "--role", "ingest_writer", "--expires", "90 days")
    parts = split(made.out.strip())
    assert parts is not None, "nothing but the key is on standard output"
    assert "can't be shown again" in made.err
    (listed,) = lakemill(lake, "keys", "list", "--format", "json").json
    assert (listed["id"], listed["name"], listed["roles"], listed["tenant"]) == (
        parts[0],
        "loader",
        ["ingest_writer"],
        None,
    )
    assert listed["created_by"].startswith("cli:")
    assert listed["expires_at"] is not None
    shown = lakemill(lake, "keys", "list").out
    assert parts[0] in shown
    assert parts[1] not in shown
    assert lakemill(lake, "keys", "revoke", parts[0]).out == f"key {parts[0]} (loader): revoked\n"
    assert "revoked" in lakemill(lake, "keys", "list").out
    lakemill(lake, "keys", "revoke", "nobody").failed("UNKNOWN_KEY", 2, about="nobody", remedy="keys list")
    with db.connect(lake.dsn) as conn:
        found = [(one.action, one.about, one.outcome, one.code) for one in audit.entries(conn, 10)]
    assert found == [
        ("keys.revoke", "nobody", "refused", "UNKNOWN_KEY"),
        ("keys.revoke", parts[0], "done", None),
        ("keys.create", f"{parts[0]} (loader)", "done", None),
    ]


def test_tenants_and_their_keys(lakemill: Lakemill, lake: TestLake) -> None:
    assert lakemill(lake, "tenants", "list").out == "no tenants\n"
    made = lakemill(lake, "tenants", "create", "acme", "--schema", "acme", "--requests", 50, "--queries", 4)
    assert made.out == "tenant acme: made; sees acme; 50 requests/s, 4 queries at a time\n"
    altered = lakemill(
        lake, "tenants", "alter", "acme", "--rows", 10, "--unlimited", "requests", "--schema", "a", "--schema", "b"
    )
    assert altered.out == "tenant acme: altered; sees a, b; 10 rows/s, 4 queries at a time\n"
    (listed,) = lakemill(lake, "tenants", "list", "--format", "json").json
    assert listed["quotas"] == {"requests": None, "rows": 10, "bytes": None, "queries": 4}
    words = ("keys", "create", "x", "--role", "query_reader", "--role", "ops_admin", "--tenant", "acme")
    key = lakemill(lake, *words, "--table", "A.Sales_*", "--bytes", 1000, "--format", "json").json
    assert (key["tenant"], key["tables"], key["roles"]) == ("acme", ["a.sales_*"], ["ops_admin", "query_reader"])
    assert key["quotas"]["bytes"] == 1000
    assert split(key["key"]) is not None


WRONG = [
    (["keys", "create", "x", "--role", "boss"], "BAD_ARGUMENT", "boss"),
    (["keys", "create", "x"], "BAD_ARGUMENT", "--role"),
    (["keys", "create", "x", "--role", "ops_admin", "--tenant", "nobody"], "UNKNOWN_TENANT", "nobody"),
    (["keys", "create", "x", "--role", "ops_admin", "--table", "orders"], "BAD_ARGUMENT", "orders"),
    (["keys", "create", "x", "--role", "ops_admin", "--expires", "soon"], "BAD_ARGUMENT", "soon"),
    (["keys", "create", "x", "--role", "ops_admin", "--rows", "0"], "BAD_ARGUMENT", "rows"),
    (["keys", "create", " ", "--role", "ops_admin"], "BAD_ARGUMENT", "name"),
    (["tenants", "create", "x"], "BAD_ARGUMENT", "schema"),
    (["tenants", "alter", "nobody"], "UNKNOWN_TENANT", "nobody"),
    (["tenants", "alter", "x", "--unlimited", "love"], "BAD_ARGUMENT", "love"),
]


def test_what_can_not_be(lakemill: Lakemill, lake: TestLake) -> None:
    for words, code, about in WRONG:
        lakemill(lake, *words).failed(code, 2, about=about)


def test_it_does_not_start_open_to_the_world(lakemill: Lakemill, lake: TestLake) -> None:
    ran = lakemill(lake, "--set", "api.auth=off", "api", "--host", "0.0.0.0", "--port", 0)
    ran.failed("BAD_SETTINGS", 2, about="can't be off on 0.0.0.0", remedy="keys create")


def test_two_processes_serve_one_lake(lakemill: Lakemill, make_lake: MakeLake) -> None:
    lake = make_lake()
    key = lakemill(lake, "keys", "create", "x", "--role", "query_reader", "--format", "json").json["key"]
    logs = [lake.settings.root / f"api{number}.log" for number in range(2)]
    running = []
    for log in logs:
        words = [sys.executable, "-m", "lakemill.cli.main", "-C", str(lake.settings.root), "api", "--port", "0"]
        with log.open("wb") as out:
            env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
            running.append(subprocess.Popen(words, env=env, stdout=out, stderr=out))
    try:
        end, urls = time.monotonic() + SECONDS, []
        for log in logs:
            while not (found := re.search(r"listening on (http://\S+)", log.read_text())):
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.1)
            urls.append(found[1])
        pin = json.loads(ask(f"{urls[0]}/v1/pins", key, b'{"seconds": 60}')[1])
        assert [one["id"] for one in json.loads(ask(f"{urls[1]}/v1/pins", key)[1])] == [pin["id"]]
        assert [ask(f"{url}/v1/tables")[0] for url in urls] == [401, 401]
        assert [ask(f"{url}/readyz")[0] for url in urls] == [200, 200]
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(30) for process in running]
    assert codes == [0, 0], [log.read_text() for log in logs]


def ask(url: str, key: str = "", body: bytes | None = None) -> tuple[int, str]:
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
