"""`lakemill serve` as a user runs it: one process, told to stop by a signal."""

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
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import lakemill
from lakemill.core.names import parse_name
from lakemill.runtime.verify import verify
from tests.conftest import MakeLake
from tests.receiver import Receiver, receiving

ROOT = Path(__file__).parents[2]
SECONDS = 120


def ask(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


@pytest.mark.xdist_group("processes")  # with a JVM of its own: one such test at a time
def test_it_serves_until_it_is_told_to_stop(make_lake: MakeLake, receiver: Receiver) -> None:
    """And tells of it: by its log, its metrics, a trace, and its lineage."""
    given = make_lake()
    log = given.settings.root / "serve.log"
    with lakemill.open(given.settings) as lake:
        lake.sql("CREATE TABLE r AS SELECT i AS id, i % 3 AS k FROM range(9) t(i)")
        lake.create(
            "CREATE DYNAMIC TABLE d TARGET_LAG = '1 second' INITIALIZE = ON_SCHEDULE"
            " AS SELECT k, count(*) AS n FROM r GROUP BY k"
        )
        words = ["-C", str(given.settings.root), "--set", "service.log_format=json", "serve", "--port", "0"]
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "lakemill.cli.main", *words],
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT / "src"),
                    "LAKEMILL_TELEMETRY__OTLP_ENDPOINT": receiver.url,
                    "LAKEMILL_TELEMETRY__OPENLINEAGE_URL": receiver.url,
                },
                stdout=out,
                stderr=out,
            )
        try:
            end = time.monotonic() + SECONDS
            while not (found := re.search(r"listening on (http://\S+?)\"", log.read_text())):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.2)
            while ask(f"{found[1]}/readyz")[0] != 200:
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.2)
            assert ask(f"{found[1]}/healthz") == (200, '{"status":"alive"}')
            code, tables = ask(f"{found[1]}/v1/tables")  # the API is on the same port
            assert (code, [one["table"] for one in json.loads(tables)][-1:]) == (200, ["main.r"])
            done = 'lakemill_refresh_total{action="INITIALIZE",status="SUCCEEDED"} 1.0'
            while done not in ask(f"{found[1]}/metrics")[1]:
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.2)
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)
        assert code == 0, log.read_text()
        assert verify(lake, parse_name("d")).equal
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        (refreshed,) = (line for line in lines if line.get("event") == "refresh")
        assert (refreshed["table"], refreshed["action"], refreshed["rows_inserted"]) == ("main.d", "INITIALIZE", 3)
        assert lake.conn.execute("SELECT count(*) FROM lakemill.workers").fetchone() == (0,), "it said goodbye"
        check_traces([body for path, body in receiver.bodies if path == "/v1/traces"])
        lineage = [json.loads(body) for path, body in receiver.bodies if path == "/api/v1/lineage"]
        assert [one["eventType"] for one in lineage] == ["START", "COMPLETE"]
        assert {one["run"]["runId"] for one in lineage} == {refreshed["refresh"]}
        (output,) = lineage[1]["outputs"]
        assert output["outputFacets"]["outputStatistics"]["rowCount"] == 3
        assert output["facets"]["version"]["datasetVersion"] == str(refreshed["commit"])
        assert set(output["facets"]["columnLineage"]["fields"]) == {"k", "n"}


def check_traces(bodies: list[bytes]) -> None:
    """One trace: the round, its refresh, and the phases of that, in their order."""
    requests = [ExportTraceServiceRequest.FromString(body) for body in bodies]
    resources = [resource for request in requests for resource in request.resource_spans]
    spans = {span.name: span for one in resources for scope in one.scope_spans for span in scope.spans}
    assert spans["refresh"].parent_span_id == spans["round"].span_id
    phases = sorted(
        (span for span in spans.values() if span.parent_span_id == spans["refresh"].span_id),
        key=lambda span: span.start_time_unix_nano,
    )
    assert [span.name for span in phases] == ["look", "start", "prepare", "compute", "publish"]
    told = {one.key: one.value for one in spans["refresh"].attributes}
    assert told["lakemill.action"].string_value == "INITIALIZE"
    assert told["lakemill.rows_inserted"].int_value == 3
    assert told["lakemill.spark_jobs"].int_value > 0
