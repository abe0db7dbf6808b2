"""Keys at the door: those that hold, those that don't, and when none is needed."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from starlette.testclient import TestClient

import lakemill
from lakemill.api.app import make
from lakemill.api.attempts import Attempts, source
from lakemill.api.authentication import is_loopback
from lakemill.api.desk import Desk
from lakemill.core.quota import Quotas
from lakemill.core.rights import Role
from lakemill.errors import BadSettings, TooManyFailures
from lakemill.settings import Settings
from lakemill.store import keys
from lakemill.telemetry import metrics
from tests.api.conftest import LOCAL, Api, problem
from tests.conftest import MakeLake, TestLake

READER = Role.QUERY_READER


@contextmanager
def serving(lake: TestLake, host: str = LOCAL, base: str = f"http://{LOCAL}", **flags: object) -> Iterator[Api]:
    settings = Settings.load(lake.settings.root, {"api.key_cache": "200ms", **flags})
    desk = Desk(settings, host)
    desk.start()
    try:
        with TestClient(make(desk), base_url=base, raise_server_exceptions=False) as client:
            yield Api(lake, desk, client)
    finally:
        desk.close()


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example", False),
    ],
)
def test_what_loopback_is(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_a_key_lets_in_by_either_header(api: Api) -> None:
    key = api.key(READER)
    assert api.get("/v1/tables", key).status_code == 200
    assert api.get("/v1/tables", headers={"x-api-key": key}).status_code == 200
    assert api.get("/v1/tables", headers={"authorization": f"bearer  {key} "}).status_code == 200


def test_what_does_not_hold(api: Api) -> None:
    key = api.key(READER)
    other = api.key(READER)
    mixed = key[:17] + other[17:]
    ended = api.key(READER, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    cases = {
        "unknown": ["x", "", "lmk_aaaaaaaaaaaa_" + "a" * 43, key + "x", key.upper(), "eyJhbGciOiJub25lIn0.e30.", "ä"],
        "wrong": [mixed],
        "expired": [ended],
    }
    for reason, texts in cases.items():
        for text in texts:
            before = metrics.REGISTRY.get_sample_value("lakemill_auth_failures_total", {"reason": reason})
            sent = {"x-api-key": text.encode()}
            answer = api.client.get("/v1/tables", headers=sent)  # type: ignore[arg-type]
            told = problem(answer, 401, "UNAUTHENTICATED")
            assert len(text) < 10 or text not in answer.text
            assert told["remedy"]
            after = metrics.REGISTRY.get_sample_value("lakemill_auth_failures_total", {"reason": reason})
            assert after == (before or 0) + 1, (reason, text)
    problem(api.get("/v1/tables", headers={"authorization": "Basic eDp5"}), 401, "UNAUTHENTICATED")


def test_a_revoked_key_ends_here_at_once_and_elsewhere_soon(api: Api) -> None:
    admin, key = api.key(Role.OPS_ADMIN), api.key(READER)
    with serving(api.lake) as elsewhere:
        assert [one.get("/v1/tables", key).status_code for one in (api, elsewhere)] == [200, 200]
        assert api.ask("DELETE", f"/v1/keys/{api.made[key]}", admin).json()["revoked_at"]
        problem(api.get("/v1/tables", key), 401, "UNAUTHENTICATED")
        time.sleep(0.25)  # api.key_cache
        problem(elsewhere.get("/v1/tables", key), 401, "UNAUTHENTICATED")
    problem(api.ask("DELETE", f"/v1/keys/{api.made[admin]}", admin), 400, "BAD_ARGUMENT")


def test_a_key_that_expires_is_not_kept_alive_by_the_cache(made_lake: TestLake) -> None:
    with serving(made_lake, **{"api.key_cache": "1 hour"}) as api:
        key = api.key(READER, expires_at=datetime.now(UTC) + timedelta(seconds=0.4))
        assert api.get("/v1/tables", key).status_code == 200
        time.sleep(0.5)
        problem(api.get("/v1/tables", key), 401, "UNAUTHENTICATED")


def test_last_use_is_known(api: Api) -> None:
    key = api.key(READER)
    api.get("/v1/tables", key)
    with lakemill.open(api.lake.settings) as lake:
        (found,) = (one for one in keys.list_all(lake.conn) if one.id == api.made[key])
    assert found.last_used_at is not None


# ---------------------------------------------------------------- without keys
def test_on_loopback_it_is_off_until_there_is_a_key(make_lake: MakeLake, caplog: pytest.LogCaptureFixture) -> None:
    lake = make_lake()
    with caplog.at_level(logging.WARNING, "lakemill"), serving(lake) as api:
        assert "authentication is off" in caplog.text
        assert api.get("/v1/tables").status_code == 200
        made = api.post("/v1/keys", json={"name": "first", "roles": ["ops_admin"]}).json()
        problem(api.get("/v1/tables"), 401, "UNAUTHENTICATED")
        assert api.get("/v1/tables", made["key"]).status_code == 200
        entries = api.get("/v1/audit", made["key"]).json()
        assert [(one["who"], one["action"]) for one in entries] == [("anonymous", "keys.create")]
    with serving(lake, **{"api.auth": "off"}) as api:
        assert api.get("/v1/tables").status_code == 200
        problem(api.get("/v1/tables", "wrong"), 401, "UNAUTHENTICATED")


def test_a_key_that_is_made_elsewhere_turns_it_on(make_lake: MakeLake) -> None:
    with serving(make_lake()) as api:
        assert api.get("/v1/tables").status_code == 200
        with lakemill.open(api.lake.settings) as lake:
            keys.create(lake.conn, "x", frozenset({READER}), by="cli:me")
        problem(api.get("/v1/tables"), 401, "UNAUTHENTICATED")


def test_pages_of_others_can_not_use_it(make_lake: MakeLake) -> None:
    """A name that leads here, or a page in a browser on this machine."""
    with serving(make_lake()) as api:
        for foreign in ({"host": "evil.example"}, {"host": "evil.example:8640"}, {"origin": "https://evil.example"}):
            problem(api.get("/v1/tables", headers=foreign), 403, "FORBIDDEN")
        local = {"host": "localhost:1", "origin": "http://127.0.0.1:8640"}
        assert api.get("/v1/tables", headers=local).status_code == 200


def test_elsewhere_it_is_on(make_lake: MakeLake) -> None:
    lake = make_lake()
    with serving(lake, "0.0.0.0") as api:
        problem(api.get("/v1/tables"), 401, "UNAUTHENTICATED")
    with serving(lake, **{"api.auth": "on"}) as api:
        problem(api.get("/v1/tables"), 401, "UNAUTHENTICATED")
    with (
        pytest.raises(BadSettings, match=r"can't be off on 0\.0\.0\.0"),
        serving(lake, "0.0.0.0", **{"api.auth": "off"}),
    ):
        pytest.fail("it started")


# ---------------------------------------------------------------- quotas
def test_who_is_over_its_quota_is_told_when_to_come_back(api: Api) -> None:
    key = api.key(READER, quotas=Quotas(requests=2))
    answers = [api.get("/v1/snapshots?limit=1", key) for _ in range(10)]
    assert {answer.status_code for answer in answers[:4]} == {200}, "two seconds' worth at once"
    refused = next(answer for answer in answers if answer.status_code == 429)
    told = problem(refused, 429, "QUOTA_EXCEEDED")
    assert told["retryable"] is True
    assert refused.headers["retry-after"] == "1"
    assert api.get("/v1/snapshots?limit=1", api.key(READER)).status_code == 200, "others are served"


def test_who_fails_too_often_waits(lake: TestLake) -> None:
    with lakemill.open(lake.settings) as opened:
        _, good = keys.create(opened.conn, "good", frozenset({READER}), by="test")
        _, other = keys.create(opened.conn, "other", frozenset({READER}), by="test")
        revoked, bad = keys.create(opened.conn, "bad", frozenset({READER}), by="test")
    with serving(lake, **{"api.failed_logins": 3}) as api:
        assert api.get("/v1/tables", good).status_code == api.get("/v1/tables", bad).status_code == 200
        with lakemill.open(lake.settings) as opened:
            keys.revoke(opened.conn, revoked.id)
        time.sleep(0.25)  # api.key_cache
        for key in (bad, "nonsense", good[:-1] + ("a" if good[-1] != "a" else "b")):
            problem(api.get("/v1/tables", key), 401, "UNAUTHENTICATED")
        for key in (bad, "nonsense", other):  # the last one would hold: nobody looks
            answer = api.get("/v1/tables", key)
            problem(answer, 429, "TOO_MANY_FAILURES")
            assert 1 <= int(answer.headers["retry-after"]) <= 20
        problem(api.get("/v1/tables"), 401, "UNAUTHENTICATED")
        time.sleep(0.25)
        assert api.get("/v1/tables", good).status_code == 200, "it held before"
        assert metrics.REGISTRY.get_sample_value("lakemill_auth_failures_total", {"reason": "limited"}) == 3


def test_attempts_are_counted_by_address_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("lakemill.api.attempts.time.monotonic", lambda: now)
    attempts = Attempts(2, most=3)
    for _ in range(2):
        attempts.check("2001:db8::1")
        attempts.failed("2001:db8::1")
    with pytest.raises(TooManyFailures) as told:
        attempts.check("2001:db8::ffff")  # the same network
    assert told.value.wait == pytest.approx(30)
    attempts.check("2001:db8:0:1::1")
    now += 30
    attempts.check("2001:db8::1")
    attempts.failed("2001:db8::1")
    with pytest.raises(TooManyFailures):
        attempts.check("2001:db8::1")
    for n in range(50):
        attempts.failed(f"10.0.0.{n}")
    assert len(attempts) == 3
    attempts.check("2001:db8::1")  # forgotten, for those that came after it
    unlimited = Attempts(0)
    for _ in range(1000):
        unlimited.failed("10.0.0.1")
    unlimited.check("10.0.0.1")
    assert len(unlimited) == 0


@pytest.mark.parametrize(
    ("address", "own"),
    [("10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("fe80::1%eth0", "fe80::/64"), ("testclient",) * 2],
)
def test_what_counts_as_one_source(address: str, own: str) -> None:
    assert source(address) == own
