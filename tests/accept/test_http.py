"""The endpoints of ingest; and the client, on a real port, through faults."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import httpx
import pyarrow as pa
import pytest
import zstandard
from fastapi import FastAPI
from fastapi.testclient import TestClient

import lakemill
from lakemill.api.app import make
from lakemill.api.desk import Desk
from lakemill.api.probes import serve_in_thread
from lakemill.core.receipts import write_token
from lakemill.errors import (
    BadBody,
    IdempotencyConflict,
    OutcomeUnknown,
    UnavailableError,
)
from lakemill.runtime.ingest import Ingest
from tests.accept.conftest import MakeTable, waiting

NDJSON = {"Content-Type": "application/x-ndjson"}
ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}


def framed(ingest: Ingest) -> FastAPI:
    """The whole application, whose requests this `Ingest` takes."""
    desk = Desk(ingest.lake.settings, "127.0.0.1")
    desk.start()
    desk._ingest = ingest
    return make(desk)


@pytest.fixture(scope="module")
def http(ingest: Ingest) -> Iterator[TestClient]:
    with TestClient(framed(ingest), base_url="http://127.0.0.1") as client:
        yield client


def post(http: TestClient, table: Any, *payloads: Any, **headers: str) -> httpx.Response:
    records = [{"payload": payload} for payload in payloads]
    return http.post(f"/v1/ingest/{table.name}", json={"records": records}, headers=headers)


def test_json(http: TestClient, ingest: Ingest, table: MakeTable) -> None:
    orders = table()
    answer = post(http, orders, {"id": 1, "price": "1.5"}, **{"Idempotency-Key": "k"})
    assert answer.status_code == 202
    told = answer.json()
    assert told.pop("visibility_token").startswith("lm1-")
    assert told == {
        "status": "accepted",
        "accepted_count": 1,
        "duplicate_count": 0,
        "rejected_count": 0,
        "watermark": None,
        "repeated": False,
        "faults": [],
    }
    again = post(http, orders, {"id": 1, "price": 1.50}, **{"Idempotency-Key": "k"}).json()
    assert (again["visibility_token"], again["repeated"]) == (answer.json()["visibility_token"], True)
    assert post(http, orders, {"id": 2}, **{"Idempotency-Key": "k"}).status_code == 409
    refused = post(http, orders, {"id": 2}, {"id": "x"})
    assert (refused.status_code, refused.json()["where"]) == (400, "records[1].payload.id")
    assert waiting(ingest, orders) == [{"id": 1, "price": "1.50", "note": "none"}]


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress),
        ("zstd", zstandard.compress),
        ("gzip, zstd", lambda b: zstandard.compress(gzip.compress(b))),
    ],
)
def test_lines_compressed(http: TestClient, ingest: Ingest, table: MakeTable, encoding: str, packed: Any) -> None:
    orders = table(key=["id"])
    body = packed(b'{"id": 1}\n{"id": 2, "price": 3}\n')
    headers = NDJSON | {"Content-Encoding": encoding}
    answer = http.post(f"/v1/ingest/{orders.name}?op=upsert", content=body, headers=headers)
    assert answer.json()["accepted_count"] == 2
    assert [row["id"] for row in waiting(ingest, orders)] == [1, 2]


def test_lines_in_envelopes(http: TestClient, ingest: Ingest, table: MakeTable) -> None:
    orders = table(key=["id"])
    body = b'{"payload":{"id":1},"idempotency_key":"a"}\n{"op":"delete","payload":{"id":1}}\n'
    for expected in (2, 1):
        answer = http.post(f"/v1/ingest/{orders.name}?envelope=true", content=body, headers=NDJSON)
        assert answer.json()["accepted_count"] == expected


def test_arrow(http: TestClient, ingest: Ingest, table: MakeTable) -> None:
    orders = table(
        "i BIGINT, d DECIMAL(10,2), t TIMESTAMP, z TIMESTAMPTZ, b BLOB, j JSON, l INTEGER[], m MAP(VARCHAR, INTEGER),"
        " f DOUBLE, s STRUCT(a INTEGER), day DATE"
    )
    made = pa.table(
        {
            "i": [1, None],
            "d": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
            "t": pa.array([0, None], pa.timestamp("us")),
            "z": pa.array([1, None], pa.timestamp("us", "UTC")),
            "b": [b"\x00\xff", None],
            "j": ['{"a": [1]}', None],
            "l": [[1, None], None],
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
            "f": [float("nan"), float("-inf")],
            "s": [{"a": 1}, None],
            "day": pa.array([0, None], pa.date32()),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, made.schema) as stream:
        stream.write_table(made)
    answer = http.post(f"/v1/ingest/{orders.name}", content=sink.getvalue().to_pybytes(), headers=ARROW)
    assert answer.json()["accepted_count"] == 2, answer.text
    first, second = waiting(ingest, orders)
    assert first == {
        "i": 1,
        "d": "1.50",
        "t": "1970-01-01T00:00:00",
        "z": "1970-01-01T00:00:00.000001Z",
        "b": "AP8=",
        "j": '{"a":[1]}',
        "l": [1, None],
        "m": [{"key": "k", "value": 1}],
        "f": "NaN",
        "s": {"a": 1},
        "day": "1970-01-01",
    }
    assert second == dict.fromkeys(first) | {"f": "-Infinity"}


BROKEN = [
    ({"content": b"{"}, "BAD_BODY", 400),
    ({"content": b"x", "headers": {"Content-Encoding": "gzip"}}, "BAD_BODY", 400),
    ({"content": gzip.compress(b"{}")[:-3], "headers": {"Content-Encoding": "gzip"}}, "BAD_BODY", 400),
    ({"content": b"x", "headers": {"Content-Encoding": "zstd"}}, "BAD_BODY", 400),
    ({"content": b"x", "headers": {"Content-Encoding": "br"}}, "BAD_BODY", 400),
    ({"content": b"x", "headers": ARROW}, "BAD_BODY", 400),
    ({"content": b"x", "headers": {"Content-Type": "text/csv"}}, "BAD_BODY", 400),
    ({"content": b"[" * 100_000, "headers": NDJSON}, "BAD_RECORDS", 400),
    ({"content": gzip.compress(b"0" * 20_000_000), "headers": {"Content-Encoding": "gzip"}}, "REQUEST_TOO_LARGE", 413),
    ({"content": zstandard.compress(b"0" * 2 * 10**7), "headers": {"Content-Encoding": "zstd"}},
     "REQUEST_TOO_LARGE", 413),
    ({"content": b"0" * 20_000_000}, "REQUEST_TOO_LARGE", 413),
    ({"content": b'{"records":[]}', "headers": {"Idempotency-Key": "k" * 300}}, "BAD_ARGUMENT", 400),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "code", "status"), BROKEN)
def test_broken_bodies(http: TestClient, table: MakeTable, sent: dict[str, Any], code: str, status: int) -> None:
    answer = http.post(f"/v1/ingest/{table().name}", **sent)
    assert (answer.json()["code"], answer.status_code) == (code, status)


def test_waiting_for_visibility(
    http: TestClient, ingest: Ingest, table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = table()
    asked: list[tuple[Any, int, float]] = []

    def wait(table_id: int, token: int, seconds: float) -> bool:
        asked.append((table_id, token, seconds))
        return len(asked) > 1

    monkeypatch.setattr(ingest, "_wait", wait)
    body = {"records": [{"payload": {"id": 1}}], "wait_for_visibility": True, "visibility_timeout_ms": 250}
    late = http.post(f"/v1/ingest/{orders.name}", json=body)
    assert (late.status_code, late.json()["status"]) == (202, "accepted")
    assert late.json()["watermark"].startswith("lm1-"), "never an error: how far the lake is"
    seen = http.post(f"/v1/ingest/{orders.name}", json=body)
    assert (seen.status_code, seen.json()["status"]) == (200, "visible")
    assert [(one[0], one[2]) for one in asked] == [(orders.table_id, 0.25)] * 2
    ingest.lake.conn.execute(
        "INSERT INTO lakemill.dead_letters (table_id, token, position, body, code, reason)"
        " VALUES (%s, %s, 0, '', '', '')",
        (orders.table_id, asked[-1][1] + 1),
    )
    dead = http.post(f"/v1/ingest/{orders.name}", json=body).json()
    assert (dead["status"], dead["accepted_count"], dead["rejected_count"]) == ("accepted", 0, 1)


def test_a_table_tells_its_watermark(http: TestClient, ingest: Ingest, table: MakeTable) -> None:
    """An idle table has passed whatever was given out; one that waits is just before what waits."""
    waits, idle = table(), table()
    before = http.get(f"/v1/tables/{waits.name}").json()["watermark"]
    token = post(http, waits, {"id": 1}).json()["visibility_token"]
    post(http, waits, {"id": 2})
    assert before == write_token(ingest.lake_id, ingest.number(token) - 1)
    assert http.get(f"/v1/tables/{waits.name}").json()["watermark"] == before
    assert http.get(f"/v1/tables/{idle.name}").json()["watermark"] == write_token(
        ingest.lake_id, ingest.number(token) + 1
    )
    ingest.lake.sql("CREATE TABLE other (i INTERVAL, s STRUCT(t TIMETZ))")
    other = http.get("/v1/tables/other").json()
    assert (other["watermark"], [column["type"] for column in other["schema"]]) == (
        None,
        ["INTERVAL", 'STRUCT("t" TIMETZ)'],
    )
    ingest.lake.sql("DROP TABLE other")


def test_tables_and_letters(http: TestClient, ingest: Ingest) -> None:
    made = http.post(
        "/v1/tables",
        json={
            "name": "http_made",
            "columns": [
                {"name": "id", "type": "BIGINT", "not_null": True},
                {"name": "n", "type": "INTEGER", "default": "3"},
            ],
            "key": ["id"],
            "policy": "dead_letter",
            "dedupe": "1 day",
        },
    )
    assert (made.status_code, made.json()["key"]) == (201, ["id"]), made.text
    sent = http.post("/v1/ingest/http_made", json={"records": [{"payload": {"id": 1}}, {"payload": {"id": 1, "m": 1}}]})
    assert (sent.json()["accepted_count"], sent.json()["rejected_count"]) == (1, 1)
    changed = http.patch("/v1/tables/http_made", json={"add": [{"name": "m", "type": "INTEGER"}], "rename": {"n": "o"}})
    assert changed.status_code == 200
    (letter,) = http.get("/v1/letters", params={"table": "http_made"}).json()
    assert (letter["place"], letter["state"]) == ("records[1].payload.m", "waiting")
    wrong = http.post(f"/v1/letters/{letter['id']}/replay", json={"payload": {"id": 12345678901234567890}})
    assert wrong.json()["code"] == "BAD_RECORDS"
    assert http.post(f"/v1/letters/{letter['id']}/replay").json()["accepted_count"] == 1
    assert http.get(f"/v1/letters/{letter['id']}").json()["state"] == "replayed"
    assert http.delete(f"/v1/letters/{letter['id']}").status_code == 204
    assert http.get("/v1/letters/999999").status_code == 404
    lag = http.get("/v1/lag").json()
    (mine,) = [one for one in lag["tables"] if one["table"] == "main.http_made"]
    assert (mine["requests"], mine["records"], mine["letters"]) == (2, 2, 0)
    assert http.delete("/v1/tables/http_made").json()["code"] == "REQUESTS_PENDING"
    assert http.delete("/v1/tables/http_made", params={"force": True}).status_code == 204


def test_openapi_tells_the_bodies(http: TestClient) -> None:
    told = http.get("/openapi.json").json()["paths"]["/v1/ingest/{table}"]["post"]["requestBody"]["content"]
    assert set(told) == {"application/json", NDJSON["Content-Type"], ARROW["Content-Type"]}


# ---------------------------------------------------------------- the client
@pytest.fixture(scope="module")
def url(ingest: Ingest) -> Iterator[str]:
    serving = serve_in_thread(framed(ingest))
    yield serving.url
    serving.stop()


def test_the_client_writes_and_knows_its_token(url: str, ingest: Ingest, table: MakeTable) -> None:
    orders = table(policy="dead_letter")
    with lakemill.Client(url) as client:
        assert client.wait() is True
        receipt = client.ingest(str(orders.name), [{"id": 1, "price": Decimal("2.50")}, {"id": "x"}])
        assert (receipt.accepted, receipt.rejected, receipt.visible) == (1, 1, False)
        assert receipt.faults == ("records[1].payload.id: expected a BIGINT, got 'x'",)
        again = client.ingest(str(orders.name), [{"id": 1, "price": Decimal("2.50")}, {"id": "x"}], key=receipt.key)
        assert (again.token, again.repeated, client.token) == (receipt.token, True, receipt.token)
        keyed = client.ingest(str(orders.name), [{"id": 5}, {"id": 6}], keys=["five", "six"])
        assert client.token == keyed.token != receipt.token
        assert client.wait(timeout=0.1) is False, "nobody makes it visible"
        with pytest.raises(IdempotencyConflict):
            client.ingest(str(orders.name), [{"id": 2}], key=receipt.key)
        with pytest.raises(BadBody):
            client.send(str(orders.name), b"nonsense")
    assert waiting(ingest, orders)[0] == {"id": 1, "price": "2.50", "note": "none"}


def test_the_client_repeats_under_the_same_key(ingest: Ingest, table: MakeTable) -> None:
    orders = table()
    seen: list[str] = []
    inner = TestClient(framed(ingest), base_url="http://127.0.0.1")

    def unsteady(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["Idempotency-Key"])
        if len(seen) == 1:
            told = {"code": "BACKLOGGED", "message": "full"}
            return httpx.Response(429, json=told, headers={"Retry-After": "0.2"})
        if len(seen) == 2:
            return httpx.Response(502, text="a proxy's own words")
        headers = {name: value for name, value in request.headers.items() if name != "host"}
        answer = inner.request(request.method, request.url.path, content=request.content, headers=headers)
        if len(seen) == 3:
            raise httpx.ReadError("the answer was lost")  # after it was written
        return httpx.Response(answer.status_code, content=answer.content)

    with lakemill.Client("http://lake", transport=httpx.MockTransport(unsteady)) as client:
        receipt = client.ingest(str(orders.name), [{"id": 1}])
    assert receipt.repeated
    assert len(set(seen)) == 1
    assert len(seen) == 4
    assert len(waiting(ingest, orders)) == 1


def test_the_client_gives_up_in_time() -> None:
    def dead(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("")

    transport = httpx.MockTransport(dead)
    with lakemill.Client("http://lake", transport=transport, retry_for=0.2) as client, pytest.raises(OutcomeUnknown):
        client.ingest("t", [])
    with lakemill.Client("http://127.0.0.1:9", retry_for=0) as client, pytest.raises(UnavailableError, match="answer"):
        client.ingest("t", [])


def test_the_client_waits_for_as_long_as_it_asks_the_service_to() -> None:
    seen: list[float] = []

    def service(request: httpx.Request) -> httpx.Response:
        seen.append(request.extensions["timeout"]["read"])
        counts = {"accepted_count": 0, "duplicate_count": 0, "rejected_count": 0}
        return httpx.Response(200, json={"status": "visible", "visibility_token": "lm1-0123456789ab-7-0000", **counts})

    with lakemill.Client("http://lake", timeout=10, transport=httpx.MockTransport(service)) as client:
        client.ingest("t", [], wait=True, timeout=90)
        client.ingest("t", [], timeout=90)
        client.send("t", b"", media="application/x-ndjson", wait_for_visibility=True, visibility_timeout_ms=500)
    assert seen == [100, 10, 10.5]


def test_the_client_reads_its_own_writes() -> None:
    asked: list[Any] = []
    made = pa.table({"n": [1, 2]})

    def service(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, made.schema) as stream:
            stream.write_table(made)
        return httpx.Response(200, content=sink.getvalue().to_pybytes())

    with lakemill.Client("http://lake", transport=httpx.MockTransport(service)) as client:
        client.token = "lm1-0123456789ab-7-0000"
        result = client.query("SELECT n FROM t WHERE n > ?", [0], timeout=1.5, row_limit=10)
        assert result.rows() == [{"n": 1}, {"n": 2}]
        assert result.pandas()["n"].sum() == 3
        client.query("SELECT 1", snapshot=4)
        client.query("SELECT 1", own_writes=False)
    assert asked == [
        {
            "sql": "SELECT n FROM t WHERE n > ?",
            "params": [0],
            "min_visibility_token": "lm1-0123456789ab-7-0000",
            "consistency_timeout_ms": 1500,
            "row_limit": 10,
        },
        {"sql": "SELECT 1", "snapshot_id": 4},
        {"sql": "SELECT 1"},
    ]


def test_many_clients_at_once(url: str, ingest: Ingest, table: MakeTable) -> None:
    orders = table()
    tokens: list[str] = []

    def write(number: int) -> None:
        with lakemill.Client(url) as client:
            for n in range(5):
                tokens.append(client.ingest(str(orders.name), [{"id": number * 10 + n}]).token)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(tokens)) == 40
    assert len(waiting(ingest, orders)) == 40
