"""Traces, as a collector receives them: real protobuf over HTTP, from real refreshes; no Spark."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

import lakemill
from lakemill.core.names import parse_name
from lakemill.core.refresh import Outcome
from lakemill.errors import EngineLost
from lakemill.runtime import refresh as refreshing
from lakemill.runtime.refresh import refresh_at
from lakemill.store import definitions, work
from lakemill.store.work import Kind
from lakemill.telemetry import tracing
from tests.conftest import MakeLake
from tests.receiver import Receiver, receiving
from tests.service.test_scheduler import LONG, Service

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def collector() -> Iterator[Receiver]:
    with receiving() as server:
        yield server
        tracing.shut()


def spans(collector: Receiver) -> dict[str, Span]:
    """By name, after all have left."""
    tracing.shut()
    found = {}
    for path, body in collector.bodies:
        assert path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            who = {one.key: one.value.string_value for one in resource.resource.attributes}
            assert who["service.name"] == "lakemill"
            found |= {span.name: span for scope in resource.scope_spans for span in scope.spans}
    return found


def attributes(span: Span) -> dict[str, Any]:
    values = {one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in span.attributes}
    return {name.removeprefix("lakemill."): value for name, value in values.items()}


@pytest.fixture
def service(make_lake: MakeLake, collector: Receiver) -> Iterator[Service]:
    with lakemill.open(make_lake(flags={"telemetry.otlp_endpoint": collector.url}).settings) as lake:
        yield Service(lake)


def test_a_refresh_is_a_span_with_its_phases_in_the_trace_of_its_round(
    service: Service, collector: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.create("a", "SELECT k FROM r")
    service.tick()
    found = work.take(service.lake.conn, "w", (Kind.REFRESH,), LONG)
    assert found is not None
    assert found.traceparent is not None

    def lose(work: Any, *_: Any) -> None:
        with work.phase("compute"):
            raise EngineLost("Spark's JVM is gone", remedy="")

    monkeypatch.setattr(refreshing, "carry_out", lose)
    monkeypatch.setattr(type(service.lake), "spark", property(lambda _: None))
    dynamic_id = definitions.get(service.lake.conn, parse_name("a")).id
    with tracing.carried(found.traceparent):
        record = refresh_at(service.lake, dynamic_id, service.lake.snapshot(), datetime.now(UTC))
    assert record is not None
    assert record.outcome is Outcome.FAILED

    got = spans(collector)
    assert set(got) == {"round", "refresh", "look", "start", "compute"}
    assert {span.trace_id.hex() for span in got.values()} == {found.traceparent.split("-")[1]}
    assert got["refresh"].parent_span_id == got["round"].span_id
    for phase in ("look", "start", "compute"):
        assert got[phase].parent_span_id == got["refresh"].span_id
    assert got["refresh"].status.code == got["compute"].status.code == Status.STATUS_CODE_ERROR
    assert got["refresh"].status.message == "ENGINE_LOST: Spark's JVM is gone"
    assert got["look"].status.code == Status.STATUS_CODE_UNSET
    told = attributes(got["refresh"])
    assert (told["table"], told["b"], told["error.type"]) == ("main.a", service.lake.snapshot().id, "ENGINE_LOST")
    assert (told["trigger"], told["outcome"], told["refresh"]) == ("SCHEDULED", "FAILED", str(record.id))
    assert attributes(got["round"]) == {"b": found.b, "tables": 1}


def test_the_trace_of_a_program_around_us_is_ours(collector: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", PARENT)
    assert tracing.configure(f"{collector.url}/v1/traces")
    with tracing.span("outer"), tracing.span("inner", table="t", nothing=None):
        assert tracing.traceparent() is not None
    got = spans(collector)
    assert {span.trace_id.hex() for span in got.values()} == {PARENT.split("-")[1]}
    assert got["outer"].parent_span_id.hex() == PARENT.split("-")[2]
    assert got["inner"].parent_span_id == got["outer"].span_id
    assert attributes(got["inner"]) == {"table": "t"}


def test_without_an_endpoint_nothing_is_traced() -> None:
    assert not tracing.configure("")
    with tracing.span("outer"), tracing.carried(PARENT):
        assert tracing.traceparent() is None


def test_a_collector_that_is_down_delays_nothing(collector: Receiver) -> None:
    collector.delay = 3.0
    tracing.configure(collector.url)
    begun = time.monotonic()
    for _ in range(1000):
        with tracing.span("refresh"):
            pass
    assert time.monotonic() - begun < 2.0
    collector.delay = 0.0


def test_it_works_without_the_extra() -> None:
    """In a process of its own, where the library can't be imported."""
    told = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from lakemill.telemetry import tracing\n"
        "assert not tracing.configure('http://127.0.0.1:1')\n"
        "with tracing.span('x'): assert tracing.traceparent() is None\n"
        "assert tracing.traced(lambda: 7)() == 7\n"
    )
    subprocess.run([sys.executable, "-c", told], check=True, timeout=60)
