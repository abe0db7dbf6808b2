"""`/v1/query` and `/v1/queries`: formats, snapshots, parameters, who sees what, cancelling. No JVM."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

import lakemill
from lakemill.api.app import make
from lakemill.api.desk import Desk
from lakemill.api.probes import serve_in_thread
from lakemill.core.rights import Role
from lakemill.errors import QueryTimedOut, WrongType
from lakemill.store import audit
from lakemill.telemetry import metrics
from lakemill.telemetry.declared import QUERY_ENDS
from tests.api.conftest import LOCAL, Api, problem

READER = (Role.QUERY_READER,)
SLOW = "SELECT count(*) FROM range(100000) a, range(100000) b WHERE a.range % 7 = b.range % 11"


@pytest.fixture(scope="module")
def key(api: Api) -> str:
    return api.key(*READER)


def asked(api: Api, key: str, sql: str, **more: Any) -> Any:
    return api.post("/v1/query", key, json={"sql": sql, **more})


def test_json(api: Api, key: str) -> None:
    found = asked(
        api,
        key,
        "SELECT id, amount, DATE '2026-01-02' AS day, NULL AS n FROM orders WHERE id < ? ORDER BY id",
        params=[2],
    )
    assert found.status_code == 200, found.text
    told = found.json()
    assert told["columns"][:3] == [
        {"name": "id", "type": "BIGINT"},
        {"name": "amount", "type": "DECIMAL(21,1)"},
        {"name": "day", "type": "DATE"},
    ]
    assert told["rows"] == [[0, "0.0", "2026-01-02", None], [1, "1.5", "2026-01-02", None]]
    assert (told["statistics"]["rows"], told["statistics"]["truncated"]) == (2, False)
    assert found.headers["x-snapshot-id"] == str(told["snapshot_id"])
    assert datetime.fromisoformat(told["snapshot_time"]).tzinfo is not None
    assert asked(api, key, "SELECT 1 AS x WHERE false").json()["rows"] == []
    assert asked(api, key, "SELECT $a + $b AS x", params={"a": 1, "b": 2}).json()["rows"] == [[3]]


@pytest.mark.parametrize(
    ("media", "read"),
    [
        ("application/vnd.apache.arrow.stream", lambda data: pa.ipc.open_stream(data).read_all()),
        ("application/vnd.apache.parquet", lambda data: pq.read_table(io.BytesIO(data))),
        ("text/csv", lambda data: pcsv.read_csv(io.BytesIO(data))),
    ],
)
def test_other_formats(api: Api, key: str, media: str, read: Any) -> None:
    sql = "SELECT i AS id, 'x' || i AS word FROM range(200000) t(i)"
    found = api.post("/v1/query", key, json={"sql": sql}, headers={"accept": f"{media}, */*;q=0.1"})
    assert found.headers["content-type"].startswith(media)
    table = read(found.content)
    assert (table.num_rows, table.column("id")[199_999].as_py(), table.column("word")[7].as_py()) == (
        200_000,
        199_999,
        "x7",
    )
    assert found.headers["x-query-id"]


def test_a_format_that_can_not_hold_it(api: Api, key: str) -> None:
    told = problem(asked(api, key, "SELECT [1, 2] AS l", format="csv"), 400, "BAD_ARGUMENT")
    assert "Arrow or JSON" in told["remedy"]


# What JSON and CSV say of a value, by DuckDB's SQL for it; None: CSV can't hold it.
TOLD: dict[str, tuple[Any, str | None]] = {
    "'NaN'::DOUBLE": ("NaN", "nan"),
    "'inf'::FLOAT": ("Infinity", "inf"),
    "['-inf'::DOUBLE, 1.5, NULL]": (["-Infinity", 1.5, None], None),
    "{'a': 'NaN'::DOUBLE, 'b': [1.5::DOUBLE]}": ({"a": "NaN", "b": [1.5]}, None),
    "MAP {'k': 'inf'::DOUBLE}": ([["k", "Infinity"]], None),
    "170141183460469231731687303715884105727::HUGEINT": ("170141183460469231731687303715884105727",) * 2,
    "340282366920938463463374607431768211455::UHUGEINT": ("340282366920938463463374607431768211455",) * 2,
    "[7::UHUGEINT, NULL]": (["7", None], None),
    "{'a b': TIMETZ '12:00:00+05:30', 'n': 1}": ({"a b": "12:00:00+05:30", "n": 1}, None),
    "MAP {1: TIMETZ '12:00:00+00'}": ([[1, "12:00:00+00"]], None),
    "[[TIMETZ '12:00:00+02']]::TIMETZ[1][]": ([["12:00:00+02"]], None),
    "TIMETZ '12:00:00+05:30'": ("12:00:00+05:30",) * 2,
    "'10101'::BIT": ("10101",) * 2,
    "repeat('9', 50)::BIGNUM": ("9" * 50,) * 2,
    "{'a': 1}::VARIANT": ("{'a': 1}",) * 2,
    "DATE 'infinity'": ("infinity",) * 2,
    "DATE '0044-03-15 (BC)'": ("-0043-03-15",) * 2,
    "[DATE '5000000-12-31']": (["5000000-12-31"], None),
    "DATE '0001-01-01'": ("0001-01-01",) * 2,
    "DATE '10000-03-01'": ("10000-03-01",) * 2,
    "TIMESTAMP '-infinity'": ("-infinity",) * 2,
    "TIMESTAMP '290000-02-28 01:02:03.5'": ("290000-02-28T01:02:03.500000", "290000-02-28 01:02:03.500000"),
    "TIMESTAMPTZ '0044-03-15 (BC) 00:00:00+00'": ("-0043-03-15T00:00:00Z", "-0043-03-15 00:00:00Z"),
    "TIMESTAMP_NS '2026-01-02 03:04:05.678901234'": ("2026-01-02T03:04:05.678901234", "2026-01-02 03:04:05.678901234"),
    "TIME '24:00:00'": ("24:00:00",) * 2,
    "INTERVAL '14 months 2 days 3.5 seconds'": ("P14M2DT3.5S",) * 2,
    "INTERVAL (-5) DAY": ("P-5D",) * 2,
    "INTERVAL 0 DAY": ("PT0S",) * 2,
    "[INTERVAL (-90) SECOND]": (["PT-90S"], None),
    "from_hex('deadff')": ("3q3/",) * 2,
    "union_value(n := 'NaN'::DOUBLE)": ("NaN", None),
}


@pytest.mark.parametrize("sql", TOLD)
def test_no_value_is_lost_in_a_text(api: Api, key: str, sql: str) -> None:
    as_json, as_csv = TOLD[sql]
    text = f"SELECT {sql} AS x, 1 AS x; -- twice the same name"
    found = asked(api, key, text)
    assert found.status_code == 200, found.text
    assert found.json()["rows"] == [[as_json, 1]]
    in_arrow = asked(api, key, text, format="arrow")
    with pa.ipc.open_stream(in_arrow.content) as stream:
        assert stream.read_all().num_rows == 1
    other = asked(api, key, text, format="csv")
    if as_csv is None:
        problem(other, 400, "BAD_ARGUMENT")
    else:
        assert other.text.replace('"', "") == f"x,x\n{as_csv},1\n"


def test_texts_in_place_of_types_keep_order_names_and_parameters(api: Api, key: str) -> None:
    told = asked(
        api, key, 'FROM range(?) r(i) SELECT i::UHUGEINT AS "a b", i ORDER BY i DESC -- so', params=[3], row_limit=2
    ).json()
    assert told["columns"] == [{"name": "a b", "type": "UHUGEINT"}, {"name": "i", "type": "BIGINT"}]
    assert told["rows"] == [["2", 2], ["1", 1]]
    assert told["statistics"]["truncated"]


def test_what_arrow_can_not_hold_is_the_callers_to_cast(api: Api, key: str) -> None:
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    assert "cast" in problem(asked(api, key, "SELECT ?", params=[deep]), 400, "UNSUPPORTED_TYPE")["remedy"]


@pytest.mark.parametrize("sent", [{"__lakemill": "Decimal", "value": "x"}, {"__lakemill": "date"}])
def test_a_parameter_that_looks_like_one_of_ours(api: Api, key: str, sent: dict[str, str]) -> None:
    assert asked(api, key, "SELECT ?", params=[sent]).json()["rows"] == [[sent]]


def test_every_format_says_whether_it_was_cut_but_csv(api: Api, key: str) -> None:
    def told(format_: str, rows: int) -> Any:
        sql = f"SELECT i, 'a'::ENUM('a', 'b') AS e FROM range({rows}) r(i)"
        return asked(api, key, sql, row_limit=9000, format=format_).content

    for rows in (9000, 9001):
        batches = []
        with pa.ipc.open_stream(told("arrow", rows)) as stream, suppress(StopIteration):
            while True:
                batches.append(stream.read_next_batch_with_custom_metadata())
        assert sum(one.batch.num_rows for one in batches) == 9000
        in_arrow = json.loads(batches[-1].custom_metadata[b"lakemill"])["statistics"]
        file = pq.ParquetFile(io.BytesIO(told("parquet", rows)))
        in_parquet = json.loads(file.metadata.metadata[b"lakemill"])["statistics"]
        for found in (in_arrow, in_parquet):
            assert (found["rows"], found["truncated"]) == (9000, rows > 9000)


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("application/json;q=0.1, text/csv", "text/csv"),
        ("text/csv;q=0, application/json", "application/json"),
        ("text/csv; q=0.5; x=y, application/vnd.apache.parquet;q=0.6", "application/vnd.apache.parquet"),
        ("text/html, */*", "application/json"),
        ("text/csv;q=x", "text/csv"),
    ],
)
def test_what_is_accepted_most_is_answered(api: Api, key: str, accept: str, media: str) -> None:
    found = api.post("/v1/query", key, json={"sql": "SELECT 1"}, headers={"accept": accept})
    assert found.headers["content-type"].startswith(media)


def test_snapshots(api: Api, key: str) -> None:
    before = asked(api, key, "SELECT count(*) FROM orders").json()
    with api.lake.duck() as duck:
        duck.execute("INSERT INTO main.orders VALUES (100, 1, 1.5)")
    count = "SELECT count(*) AS n FROM orders"
    assert asked(api, key, count).json()["rows"] == [[10]]
    assert asked(api, key, count, snapshot_id=before["snapshot_id"]).json()["rows"] == [[9]]
    assert asked(api, key, count, snapshot_time=before["snapshot_time"]).json()["rows"] == [[9]]
    assert asked(api, key, count, point={"main.orders": before["snapshot_id"]}).json()["rows"] == [[9]]
    problem(asked(api, key, count, snapshot_id=1, snapshot_time=datetime.now(UTC).isoformat()), 400, "BAD_ARGUMENT")
    problem(asked(api, key, count, snapshot_id=10**6), 404, "UNKNOWN_SNAPSHOT")


def test_limits(api: Api, key: str) -> None:
    cut = asked(api, key, "SELECT * FROM range(1000)", row_limit=3).json()
    assert (len(cut["rows"]), cut["statistics"]["truncated"]) == (3, True)
    problem(asked(api, key, SLOW, timeout_ms=300), 504, "QUERY_TIMED_OUT")


def test_what_is_refused(api: Api, key: str) -> None:
    problem(asked(api, key, "SELECT 1; SELECT 2"), 403, "QUERY_REFUSED")
    problem(asked(api, key, "SELECT * FROM nowhere"), 404, "UNKNOWN_TABLE")
    problem(asked(api, key, "SELEC 1"), 403, "QUERY_REFUSED")
    problem(asked(api, key, "SELECT nothing FROM orders"), 400, "UNKNOWN_COLUMN")
    problem(asked(api, api.key(Role.INGEST_WRITER), "SELECT 1"), 403, "FORBIDDEN")


def test_a_tenant_reads_its_own_tables_only(api: Api) -> None:
    acme = api.key(*READER, of="acme")
    assert asked(api, acme, "SELECT count(*) FROM acme.orders").json()["rows"] == [[5]]
    for sql in (
        "FROM globex.secrets",
        "FROM acme.window_to_globex",
        "SELECT * FROM main.orders",
        "FROM globex.nothing",
    ):
        assert problem(asked(api, acme, sql), 404, "UNKNOWN_TABLE")["message"].startswith("there is no table")


def test_queries_are_counted_by_how_they_end(api: Api, key: str) -> None:
    def counted() -> dict[str, float]:
        of = metrics.REGISTRY.get_sample_value
        found = {end: of("lakemill_query_total", {"status": end}) or 0.0 for end in QUERY_ENDS}
        return found | {"seconds": of("lakemill_query_seconds_count") or 0.0}

    before = counted()
    asked(api, key, "SELECT 1")
    asked(api, key, "SELECT 2", format="csv")
    asked(api, key, "SELECT * FROM read_csv('/etc/passwd')")
    asked(api, api.key(Role.INGEST_WRITER), "SELECT 1")
    asked(api, key, "SELECT nothing FROM orders")
    asked(api, key, "FROM nowhere")
    asked(api, key, SLOW, timeout_ms=200)
    grown = {end: now - before[end] for end, now in counted().items() if now != before[end]}
    assert grown == {"answered": 2, "seconds": 2, "denied": 2, "wrong": 2, "timed_out": 1}


def test_it_is_in_the_audit_log(api: Api, key: str) -> None:
    asked(api, key, "SELECT 4711 AS marked FROM orders LIMIT 2")
    asked(api, key, "SELECT 4712 AS marked FROM nowhere")
    with lakemill.open(api.lake.settings) as lake:
        entries = {entry.sql: entry for entry in audit.entries(lake.conn, limit=100)}
    good, bad = (entries[f"SELECT {n} AS marked FROM {of}"] for n, of in ((4711, "orders LIMIT 2"), (4712, "nowhere")))
    assert (good.outcome, good.rows, good.action) == (audit.Ended.DONE, 2, "query")
    assert good.tables == ("main.orders",)
    assert (bad.outcome, bad.code) == (audit.Ended.REFUSED, "UNKNOWN_TABLE")


# ---------------------------------------------------------------- cancelling
@pytest.fixture(scope="module")
def urls(api: Api) -> Iterator[tuple[str, str]]:
    """Two processes' worth of servers on the same lake."""
    desks = [Desk(api.lake.settings, LOCAL) for _ in range(2)]
    for desk in desks:
        desk.start()
    serving = [serve_in_thread(make(desk)) for desk in desks]
    yield serving[0].url, serving[1].url
    for one, desk in zip(serving, desks, strict=True):
        one.stop()
        desk.close()


def running(url: str, key: str) -> list[Any]:
    found: list[Any] = httpx.get(f"{url}/v1/queries", headers={"x-api-key": key}).json()
    return found


def until(what: Any, seconds: float = 20.0) -> None:
    ends = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < ends
        time.sleep(0.02)


@pytest.mark.parametrize("server", [0, 1])
def test_a_query_is_cancelled_from_any_process(api: Api, key: str, urls: tuple[str, str], server: int) -> None:
    id_, answers = uuid4(), []
    words = {"sql": SLOW, "id": str(id_)}
    headers = {"x-api-key": key}

    def ask() -> None:
        answers.append(httpx.post(f"{urls[0]}/v1/query", json=words, headers=headers, timeout=60))

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: [one for one in running(urls[0], key) if one["id"] == str(id_)])
    other = {"x-api-key": api.key(*READER)}
    assert httpx.delete(f"{urls[0]}/v1/queries/{id_}", headers=other).status_code == 404, "it is somebody else's"
    problem(httpx.post(f"{urls[0]}/v1/query", json=words, headers=headers), 409, "QUERY_RUNS")
    assert httpx.delete(f"{urls[server]}/v1/queries/{id_}", headers=headers).status_code == 202
    asking.join(20)
    problem(answers[0], 499, "QUERY_CANCELLED")
    assert running(urls[0], key) == []


@pytest.mark.parametrize("sql", [SLOW, "SELECT i, repeat('x', 1000) FROM range(5000000) t(i)"], ids=["before", "after"])
def test_who_leaves_cancels(key: str, urls: tuple[str, str], sql: str) -> None:
    """Before its first row, and after it."""
    words = {"json": {"sql": sql}, "headers": {"x-api-key": key}, "timeout": 1.0}
    with suppress(httpx.ReadTimeout), httpx.stream("POST", f"{urls[0]}/v1/query", **words) as answer:
        next(answer.iter_bytes(100))
    until(lambda: not running(urls[0], key))


@pytest.mark.parametrize("format_", ["json", "csv", "arrow", "parquet"])
def test_an_answer_that_is_ended_in_its_middle_does_not_look_whole(
    key: str, urls: tuple[str, str], format_: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And it is no error of ours, which the log would have with a traceback."""
    id_, headers = uuid4(), {"x-api-key": key}
    words = {"sql": "SELECT i, repeat('x', 1000) AS x FROM range(5000000) t(i)", "id": str(id_), "format": format_}
    with httpx.stream("POST", f"{urls[0]}/v1/query", json=words, headers=headers, timeout=30) as answer:
        pieces = answer.iter_bytes()
        assert next(pieces)
        assert httpx.delete(f"{urls[1]}/v1/queries/{id_}", headers=headers).status_code == 202
        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)
    until(lambda: not running(urls[0], key))
    assert not [record for record in caplog.records if record.exc_info]


# ---------------------------------------------------------------- waiting for a token
@pytest.fixture(scope="module")
def unseen(api: Api) -> str:
    """A token of rows that nobody makes visible; the table is `main.waiting`."""
    admin = api.key(Role.TABLE_ADMIN, Role.INGEST_WRITER)
    made = api.post("/v1/tables", admin, json={"name": "waiting", "columns": [{"name": "id", "type": "BIGINT"}]})
    assert made.status_code == 201, made.text
    sent = api.post("/v1/ingest/waiting", admin, json={"records": [{"payload": {"id": 1}}]})
    return str(sent.json()["visibility_token"])


def test_who_waits_for_a_token_keeps_nobody_else_waiting(
    api: Api, key: str, urls: tuple[str, str], unseen: str
) -> None:
    """More wait than the process has connections; others are served, and a cancel ends the waiting at once."""
    many = api.lake.settings.api.connections + 4
    ids, answers = [str(uuid4()) for _ in range(many)], []
    words = {"sql": "FROM waiting", "min_visibility_token": unseen, "consistency_timeout_ms": 300_000}

    def ask(id_: str) -> None:
        headers = {"x-api-key": key}
        answers.append(httpx.post(f"{urls[0]}/v1/query", json={**words, "id": id_}, headers=headers, timeout=120))

    asking = [threading.Thread(target=ask, args=(id_,)) for id_ in ids]
    for thread in asking:
        thread.start()
    until(lambda: len(running(urls[0], key)) == many, 60)
    with httpx.Client(headers={"x-api-key": key}, timeout=60) as client:
        assert client.get(f"{urls[0]}/v1/tables").status_code == 200
        assert client.post(f"{urls[0]}/v1/query", json={"sql": "SELECT 1"}).status_code == 200
        for number, id_ in enumerate(ids):  # from this process and from another
            assert client.delete(f"{urls[number % 2]}/v1/queries/{id_}").status_code == 202
    for thread in asking:
        thread.join(60)
    assert len(answers) == many
    for answer in answers:
        problem(answer, 499, "QUERY_CANCELLED")


def test_who_leaves_does_not_wait_for_its_token(key: str, urls: tuple[str, str], unseen: str) -> None:
    words = {"sql": "FROM waiting", "min_visibility_token": unseen, "consistency_timeout_ms": 300_000}
    with suppress(httpx.ReadTimeout):
        httpx.post(f"{urls[0]}/v1/query", json=words, headers={"x-api-key": key}, timeout=2.0)
    until(lambda: not running(urls[0], key))


def test_a_token_that_does_not_come_is_told_with_the_watermark(api: Api, key: str, unseen: str) -> None:
    late = asked(api, key, "FROM waiting", min_visibility_token=unseen, consistency_timeout_ms=100)
    told = problem(late, 504, "CONSISTENCY_TIMEOUT")
    assert told["watermark"].startswith("lm1-")
    assert told["watermark"] != unseen


def test_dates_beyond_pythons_are_told_of(api: Api, key: str, urls: tuple[str, str]) -> None:
    with lakemill.Client(urls[0], key) as client:
        far = client.query("SELECT DATE '12000-01-01' AS d")
        with pytest.raises(WrongType, match="VARCHAR"):
            far.rows()
        assert far.arrow().num_rows == 1
        assert client.query("SELECT (DATE '12000-01-01')::VARCHAR AS d").rows() == [{"d": "12000-01-01"}]


@pytest.mark.parametrize("of", [None, "acme"])
def test_who_administers_sees_and_cancels_every_query_of_the_lake_or_of_a_tenant(
    api: Api, urls: tuple[str, str], of: str | None
) -> None:
    """Without the right to query, and whichever process is asked; not those of others, nor with a table scope."""
    id_, answers = uuid4(), []
    words, key = {"sql": SLOW, "id": str(id_)}, api.key(Role.QUERY_READER, of=of)

    def ask() -> None:
        answers.append(httpx.post(f"{urls[0]}/v1/query", json=words, headers={"x-api-key": key}, timeout=60))

    asking = threading.Thread(target=ask)
    asking.start()
    ops, other = api.key(Role.OPS_ADMIN, of=of), api.key(Role.OPS_ADMIN, of="globex")
    until(lambda: [one for one in running(urls[0], ops) if one["id"] == str(id_)])
    for stranger in (other, api.key(Role.OPS_ADMIN, tables=("acme.*",), of=of)):
        assert running(urls[0], stranger) == []
        assert httpx.delete(f"{urls[0]}/v1/queries/{id_}", headers={"x-api-key": stranger}).status_code == 404
        httpx.delete(f"{urls[1]}/v1/queries/{id_}", headers={"x-api-key": stranger})  # and tells the other
    time.sleep(0.5)
    assert running(urls[0], ops), "it runs on"
    assert httpx.delete(f"{urls[1]}/v1/queries/{id_}", headers={"x-api-key": ops}).status_code == 202
    asking.join(20)
    problem(answers[0], 499, "QUERY_CANCELLED")


def test_the_client_tells_whether_an_answer_was_cut(key: str, urls: tuple[str, str]) -> None:
    with lakemill.Client(urls[0], key) as client:
        for limit, cut in ((10, False), (9, True)):
            found = client.query("FROM range(10) r(i)", row_limit=limit)
            assert found.rows() == [{"i": i} for i in range(limit)]
            assert (found.statistics["rows"], found.statistics["truncated"]) == (limit, cut)


def test_a_table_is_told_of_whatever_its_types(api: Api, key: str) -> None:
    with api.lake.duck() as duck:
        duck.execute(
            "CREATE TABLE main.odd AS SELECT TIMETZ '12:00:00+00' AS a, [INTERVAL 1 DAY] AS b, 1::VARIANT AS c"
        )
    found = api.get("/v1/tables/odd", key)
    assert found.status_code == 200, found.text
    assert [one["type"] for one in found.json()["schema"]] == ["TIMETZ", "INTERVAL[]", "VARIANT"]
    told = asked(api, key, "FROM odd")
    assert told.json()["rows"] == [["12:00:00+00", ["P1D"], "1"]], told.text


def test_the_client_does_not_ask_again_what_took_too_long(key: str) -> None:
    """Neither when the service says so, nor when it says nothing; what is busy for a moment, it does."""
    answers: list[Any] = []
    sent = 0

    def answered(request: httpx.Request) -> httpx.Response:
        nonlocal sent
        sent += 1
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, httpx.Response)
        return found

    def told(code: str, status: int) -> httpx.Response:
        return httpx.Response(status, json={"code": code, "message": "why"})

    with lakemill.Client("http://lake", key, transport=httpx.MockTransport(answered)) as client:
        answers += [told("QUERY_TIMED_OUT", 504)]
        with pytest.raises(QueryTimedOut, match="why"):
            client.query("SELECT 1")
        answers += [httpx.ReadTimeout("silence")]
        with pytest.raises(QueryTimedOut, match="no answer came within 90 s"):
            client.query("SELECT 1")
        assert sent == 2
        answers += [told("QUERIES_QUEUED", 503), httpx.ReadError("lost"), httpx.Response(200, content=b"")]
        client.query("SELECT 1")
        assert sent == 5
