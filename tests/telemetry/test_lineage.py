"""OpenLineage events, as a receiver gets them: of real refreshes over HTTP and into a file; no Spark."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from openlineage.client.event_v2 import RunEvent
from openlineage.client.serde import Serde

import lakemill
from lakemill.core.names import parse_name
from lakemill.core.refresh import Action, Outcome
from lakemill.errors import EngineLost, Stopped
from lakemill.runtime import refresh as refreshing
from lakemill.runtime.refresh import refresh_at
from lakemill.store import definitions
from lakemill.store.history import RefreshRecord
from lakemill.telemetry import lineage
from tests.conftest import MakeLake
from tests.receiver import Receiver, receiving
from tests.service.test_scheduler import Service

QUERY = "SELECT s.K, sum(r.id) AS Total FROM r JOIN s ON r.k = s.k WHERE r.id > 1 GROUP BY s.K"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server
        lineage.shut()


@pytest.fixture
def service(make_lake: MakeLake, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with lakemill.open(make_lake(flags={"telemetry.openlineage_url": receiver.url}).settings) as lake:
        monkeypatch.setattr(type(lake), "spark", property(lambda _: None))
        found = Service(lake)
        found.create("d", QUERY)
        yield found


def events(receiver: Receiver) -> list[dict[str, Any]]:
    """All that were sent, after the last has left."""
    lineage.shut()
    assert {path for path, _ in receiver.bodies} <= {"/api/v1/lineage"}
    return [json.loads(body) for _, body in receiver.bodies]


def refresh(service: Service, monkeypatch: pytest.MonkeyPatch, carry_out: Any, lost: Any = None) -> RefreshRecord:
    """One refresh whose work is a stand-in for Spark's."""
    monkeypatch.setattr(refreshing, "carry_out", carry_out)
    dynamic_id = definitions.get(service.lake.conn, parse_name("d")).id
    record = refresh_at(service.lake, dynamic_id, service.lake.snapshot(), datetime.now(UTC), lambda: lost)
    assert record is not None
    return record


def test_a_refresh_that_succeeds(service: Service, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    def succeed(work: Any, *_: Any) -> RefreshRecord:
        done = {"rows_inserted": 3, "bytes_written": 41_000, "files": 2}
        return replace(work.record, outcome=Outcome.SUCCEEDED, action=Action.INITIALIZE, commit=77, **done)

    record = refresh(service, monkeypatch, succeed)
    b = service.lake.snapshot().id
    start, complete = events(receiver)
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert {one["run"]["runId"] for one in (start, complete)} == {str(record.id)}
    namespace = f"file://{service.lake.settings.data_path.rstrip('/')}"
    for one in (start, complete):
        assert (one["job"]["namespace"], one["job"]["name"]) == (namespace, "main.d")
        assert one["job"]["facets"]["sql"]["query"] == QUERY
        assert one["job"]["facets"]["sql"]["dialect"] == "duckdb"
        assert {found["name"] for found in one["inputs"]} == {"main.r", "main.s"}
        assert datetime.fromisoformat(one["eventTime"]).tzinfo is not None

    inputs = {found["name"]: found["facets"] for found in complete["inputs"]}
    assert {facets["version"]["datasetVersion"] for facets in inputs.values()} == {str(b)}
    fields = [(one["name"], one["type"]) for one in inputs["main.r"]["schema"]["fields"]]
    assert fields == [("id", "BIGINT"), ("k", "BIGINT")]

    (output,) = complete["outputs"]
    assert (output["namespace"], output["name"]) == (namespace, "main.d")
    assert output["facets"]["version"]["datasetVersion"] == "77"
    assert [one["name"] for one in output["facets"]["schema"]["fields"]] == ["k", "Total"]
    statistics = output["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"], statistics["fileCount"]) == (3, 41_000, 2)
    facet = output["facets"]["columnLineage"]

    def shown(found: dict[str, Any]) -> tuple[Any, ...]:
        how = [(one["type"], one["subtype"]) for one in found["transformations"]]
        return found["namespace"], found["name"], found["field"], how

    assert [shown(one) for one in facet["fields"]["k"]["inputFields"]] == [
        (namespace, "main.s", "k", [("DIRECT", "IDENTITY")])
    ]
    assert [shown(one) for one in facet["fields"]["Total"]["inputFields"]] == [
        (namespace, "main.r", "id", [("DIRECT", "AGGREGATION")])
    ]
    assert {one["field"] + " of " + one["name"] for one in facet["dataset"]} == {
        "id of main.r", "k of main.r", "k of main.s"
    }  # fmt: skip


def test_a_refresh_that_fails_or_is_stopped(
    service: Service, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*_: Any) -> None:
        raise EngineLost("Spark's JVM is gone", remedy="")

    refresh(service, monkeypatch, lose)
    refresh(service, monkeypatch, lose, Stopped("the worker was told to stop", remedy=""))
    found = events(receiver)
    assert [one["eventType"] for one in found] == ["START", "FAIL", "START", "ABORT"]
    assert found[1]["run"]["facets"]["errorMessage"]["message"] == "ENGINE_LOST: Spark's JVM is gone"
    assert found[3]["run"]["facets"]["errorMessage"]["message"] == "STOPPED: the worker was told to stop"
    assert "version" not in found[1]["outputs"][0]["facets"]


TOLD = lineage.Told(
    "s3://lake", "0190f3b8-6c5e-7c1a-9a50-2b8f8b7f3a11", "SELECT 1", "SELECT id FROM main.r", "duckdb",
    (lineage.Dataset("main.r", (("id", "INTEGER"),), 3),), ("main.r",), lineage.Dataset("main.d", (("id", "INTEGER"),)),
)  # fmt: skip


def test_events_are_made_of_the_librarys_classes() -> None:
    event = lineage.event(replace(TOLD, at=datetime.now(UTC)))
    assert isinstance(event, RunEvent)
    assert json.loads(Serde.to_json(event))["producer"].startswith("urn:lakemill:")


def test_a_file_takes_them_too(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    assert lineage.configure(str(file))
    lineage.begun(TOLD)
    lineage.aborted(TOLD, KeyboardInterrupt())
    lineage.shut()
    told = [json.loads(line)["eventType"] for line in file.read_text().splitlines()]
    assert told == ["START", "ABORT"]


def test_a_receiver_that_is_down_delays_nothing(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """Slow, then gone: thousands of events cost no time, and one line of log."""
    receiver.delay, receiver.status = 0.3, 503
    lineage.configure(f"{receiver.url}/api/v1/lineage")
    begun = time.monotonic()
    for _ in range(3 * lineage.MOST):
        lineage.begun(TOLD)
    assert time.monotonic() - begun < 2.0
    assert lineage.on()
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("lineage:")]
    assert len(told) == 1
    assert told[0].startswith("lineage: 1 events were lost")
    receiver.delay = 0.0
    assert lineage._sender is not None
    lineage._sender._waiting.queue.clear()  # the rest need not be waited for


def test_without_a_place_nothing_is_told() -> None:
    assert not lineage.configure("")
    assert not lineage.on()
    lineage.begun(TOLD)


def test_it_works_without_the_extra() -> None:
    """In a process of its own, where the library can't be imported."""
    told = (
        "import sys; sys.modules['openlineage'] = None\n"
        "from lakemill.telemetry import lineage\n"
        "assert not lineage.configure('http://127.0.0.1:1')\n"
        "assert not lineage.on()\n"
    )
    subprocess.run([sys.executable, "-c", told], check=True, timeout=60)
