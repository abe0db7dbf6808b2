"""What came from where, as OpenLineage events: START, and COMPLETE, FAIL or ABORT, of every refresh.

Line 11 of a refresh. Off unless a URL or a file is set; the extra ``lineage`` brings the library, and without it
everything here does nothing. A refresh leaves values in a queue; a thread makes events of them, with the lineage of
their columns, and sends them: a receiver that is slow or down costs events and lines of log, and no refresh waits.
"""

from __future__ import annotations

import atexit
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from lakemill.core.lineage import Lineage, lineage
from lakemill.core.names import fold
from lakemill.core.refresh import Outcome
from lakemill.settings import without_password
from lakemill.telemetry.log import Refresh, log

PRODUCER = f"urn:lakemill:{version('lakemill')}"
MOST = 1000
"""Events that wait to be sent; when there are more, the newest are dropped."""
TIMEOUT = 5.0
QUIET = 60.0
"""Seconds between two complaints about a receiver."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table: ``schema.name``, its columns with their types, and the snapshot at which it is meant."""

    name: str
    columns: tuple[tuple[str, str], ...] = ()
    snapshot: int | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """A refresh, as events tell it."""

    namespace: str
    """The lake, as one place that all its tables are in."""
    run_id: str
    query: str
    """As it was declared."""
    resolved: str
    """Stars and views expanded."""
    dialect: str
    inputs: tuple[Dataset, ...]
    keys: tuple[str, ...]
    """What the query calls each input."""
    output: Dataset
    state: str = "START"
    at: datetime = datetime.min
    record: Refresh | None = None
    error: str | None = None


# ---------------------------------------------------------------- on and off
class _Sender:
    def __init__(self, place: str, send: Callable[[Any], object]) -> None:
        self.place, self._send = place, send
        self._waiting: queue.Queue[Told | None] = queue.Queue(MOST)
        self._complained = -QUIET
        self._lost = 0
        self._thread = threading.Thread(target=self._run, name="lakemill-lineage", daemon=True)
        self._thread.start()

    def put(self, told: Told) -> None:
        try:
            self._waiting.put_nowait(told)
        except queue.Full:
            self._complain("more events wait than are kept")

    def end(self) -> None:
        try:
            self._waiting.put(None, timeout=TIMEOUT)
        except queue.Full:
            return
        self._thread.join(TIMEOUT)

    def _run(self) -> None:
        while (told := self._waiting.get()) is not None:
            try:
                self._send(event(told))
            except Exception as error:  # whatever a receiver or the library does, the next event is tried
                self._complain(f"{type(error).__name__}: {error}")

    def _complain(self, why: str) -> None:
        self._lost += 1
        if time.monotonic() - self._complained >= QUIET:
            self._complained = time.monotonic()
            log().warning(f"lineage: {self._lost} events were lost: {without_password(why)}")
            self._lost = 0


_lock = threading.Lock()
_place = ""
_sender: _Sender | None = None


def configure(place: str) -> bool:
    """Events of this process go to that URL or file from now on; whether they do. Empty: off."""
    global _place, _sender
    with _lock:
        if place == _place:
            return _sender is not None
        old, _sender, _place = _sender, None, place
        if place:
            try:
                _sender = _Sender(place, _transport(place))
                atexit.register(shut)
            except ImportError as error:
                log().warning(f"no lineage: {error.name} is not installed → pip install 'lakemill[lineage]'")
    if old is not None:
        old.end()
    return _sender is not None


def shut() -> None:
    """What is still here leaves, within a few seconds."""
    configure("")


def on() -> bool:
    return _sender is not None


def _transport(place: str) -> Callable[[Any], object]:
    if place.startswith(("http://", "https://")):
        from openlineage.client.transport.http import HttpConfig, HttpTransport

        url, marker, path = place.partition("/api/")
        endpoint = f"api/{path}" if marker else "api/v1/lineage"
        # one try again: what is lost while a receiver is away is not worth a queue that grows
        retry = {"total": 1, "allowed_methods": ["POST"]}
        return HttpTransport(HttpConfig(url=url, endpoint=endpoint, timeout=TIMEOUT, retry=retry)).emit
    from openlineage.client.transport.file import FileConfig, FileTransport

    return FileTransport(FileConfig(log_file_path=place.removeprefix("file://"), append=True)).emit


# ---------------------------------------------------------------- what is told
def begun(told: Told) -> None:
    _put(replace(told, state="START"))


def ended(told: Told, record: Refresh) -> None:
    """However it ended; what was cancelled, or not tried after all, is aborted."""
    states = {Outcome.SUCCEEDED: "COMPLETE", Outcome.FAILED: "FAIL"}
    error = f"{record.error_code}: {record.error_text}" if record.error_code else None
    _put(replace(told, state=states.get(record.outcome, "ABORT"), record=record, error=error))


def aborted(told: Told, why: BaseException) -> None:
    _put(replace(told, state="ABORT", error=str(why) or type(why).__name__))


def _put(told: Told) -> None:
    if (sender := _sender) is not None:
        sender.put(replace(told, at=datetime.now(UTC)))


# ---------------------------------------------------------------- events
def event(told: Told) -> Any:
    """The event, made of the library's own classes, which check it."""
    from openlineage.client import event_v2 as ol
    from openlineage.client import facet_v2 as facets

    ol.set_producer(PRODUCER)
    run: dict[str, Any] = {}
    if told.error is not None:
        run["errorMessage"] = facets.error_message_run.ErrorMessageRunFacet(told.error, "SQL")
    job: dict[str, Any] = {
        "sql": facets.sql_job.SQLJobFacet(told.query, dialect=told.dialect),
        "jobType": facets.job_type_job.JobTypeJobFacet("BATCH", "LAKEMILL", "DYNAMIC_TABLE"),
    }
    output = _facets(told.output)
    statistics: dict[str, Any] = {}
    if told.state == "COMPLETE" and told.record is not None:
        found = column_lineage(told)
        output |= {} if found is None else {"columnLineage": found}
        statistics["outputStatistics"] = facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=told.record.rows_inserted, size=told.record.bytes_written, fileCount=told.record.files
        )
    return ol.RunEvent(
        eventTime=told.at.isoformat(),
        eventType=ol.RunState[told.state],
        run=ol.Run(told.run_id, facets=run),
        job=ol.Job(told.namespace, told.output.name, facets=job),
        inputs=[ol.InputDataset(told.namespace, one.name, facets=_facets(one)) for one in told.inputs],
        outputs=[ol.OutputDataset(told.namespace, told.output.name, facets=output, outputFacets=statistics)],
    )


def _facets(dataset: Dataset) -> dict[str, Any]:
    from openlineage.client import facet_v2 as facets

    found: dict[str, Any] = {}
    if dataset.columns:
        field = facets.schema_dataset.SchemaDatasetFacetFields
        found["schema"] = facets.schema_dataset.SchemaDatasetFacet(
            [field(name, type_ or None, ordinal_position=i) for i, (name, type_) in enumerate(dataset.columns, 1)]
        )
    if dataset.snapshot is not None:
        found["version"] = facets.dataset_version_dataset.DatasetVersionDatasetFacet(str(dataset.snapshot))
    return found


@lru_cache(maxsize=1000)
def _lineage(query: str, tables: tuple[tuple[str, tuple[str, ...]], ...], dialect: str) -> Lineage | None:
    return lineage(query, dict(tables), dialect)


def column_lineage(told: Told) -> Any:
    """The facet; None where the query can't be followed."""
    from openlineage.client.facet_v2 import column_lineage_dataset as facet

    inputs = dict(zip(told.keys, told.inputs, strict=True))
    tables = tuple((key, tuple(name for name, _ in one.columns)) for key, one in inputs.items())
    found = _lineage(told.resolved, tables, told.dialect)
    if found is None:
        return None
    spelled = {(key, fold(name)): name for key, one in inputs.items() for name, _ in one.columns}

    def input_field(origin: Any, how: list[Any]) -> Any:
        name = spelled.get((origin.table, origin.column), origin.column)
        return facet.InputField(told.namespace, inputs[origin.table].name, name, how)

    fields = {}
    for (name, _), origins in zip(told.output.columns, found.columns, strict=False):
        fields[name] = facet.Fields(
            [
                input_field(origin, [facet.Transformation("DIRECT", how.name, "", False)])
                for origin, how in sorted(origins.items())
                if origin.table in inputs
            ]
        )
    rows = [
        input_field(origin, [facet.Transformation("INDIRECT", one, "", False) for one in sorted(why)])
        for origin, why in sorted(found.rows.items())
        if origin.table in inputs
    ]
    return facet.ColumnLineageDatasetFacet(fields, rows)
