"""Where a refresh spent its time, as OpenTelemetry traces: a span per refresh, one per phase in it, one per round.

Line 11 of a refresh. Off unless an endpoint is set; the extra ``tracing`` brings the library, and without it everything
here does nothing. Spans leave in the background, in batches: a collector that is down costs lines of log, and nobody
waits for it. The provider is our own, so that a program around us keeps its set-up; what it traces is our parent.
"""

from __future__ import annotations

import functools
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, TypeVar

from lakemill.core.refresh import Outcome
from lakemill.telemetry.log import Refresh, log

PARENT = "traceparent"
"""The header of W3C Trace Context; in capitals the variable in which a program around us may give it."""
DELAY_MS = 1000
TIMEOUT = 5.0
_FAILED = (Outcome.FAILED, Outcome.UPSTREAM_FAILED, Outcome.CANCELLED)
_ATTRIBUTES = (
    ("table", "name"),
    ("refresh", "id"),
    ("trigger", "trigger"),
    ("outcome", "outcome"),
    ("action", "action"),
    ("reason", "reason"),
    ("a", "a"),
    ("b", "b"),
    ("commit", "commit"),
    ("worker", "holder"),
    ("rows_in", "rows_in"),
    ("rows_inserted", "rows_inserted"),
    ("rows_deleted", "rows_deleted"),
    ("bytes_read", "bytes_read"),
    ("bytes_written", "bytes_written"),
    ("files", "files"),
    ("spark_jobs", "spark_jobs"),
)

_lock = threading.Lock()
_endpoint = ""
_provider: Any = None
_tracer: Any = None

Run = TypeVar("Run", bound=Callable[..., Any])


# ---------------------------------------------------------------- on and off
def configure(endpoint: str) -> bool:
    """Spans of this process go to that OTLP/HTTP endpoint from now on; whether they do. Empty: off."""
    global _endpoint, _provider, _tracer
    with _lock:
        if endpoint == _endpoint:
            return _tracer is not None
        old, _provider, _tracer, _endpoint = _provider, None, None, endpoint
        if endpoint:
            try:
                _provider = _made(endpoint)
            except ImportError as error:
                log().warning(f"no traces: {error.name} is not installed → pip install 'lakemill[tracing]'")
            else:
                _tracer = _provider.get_tracer("lakemill", version("lakemill"))
    _end(old)
    return _tracer is not None


def shut() -> None:
    """What is still here leaves, within a few seconds; for processes that end without an ordinary exit."""
    configure("")


def _made(endpoint: str) -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    path = endpoint if endpoint.rstrip("/").endswith("/v1/traces") else endpoint.rstrip("/") + "/v1/traces"
    who = {
        "service.name": os.environ.get("OTEL_SERVICE_NAME", "lakemill"),
        "service.version": version("lakemill"),
        "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
    }
    provider = TracerProvider(resource=Resource.create(who))
    exporter = OTLPSpanExporter(endpoint=path, timeout=TIMEOUT)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=DELAY_MS))
    return provider


def _end(provider: Any) -> None:
    if provider is not None:
        ending = threading.Thread(target=provider.shutdown, name="lakemill-tracing-end", daemon=True)
        ending.start()
        ending.join(TIMEOUT)


# ---------------------------------------------------------------- spans
@contextmanager
def span(name: str, **attributes: Any) -> Iterator[None]:
    """A span around the body, below the one that is open in this thread."""
    if _tracer is None:
        yield
        return
    with _tracer.start_as_current_span(name, context=_context(None), attributes=_told(attributes)):
        yield


def traced(run: Run) -> Run:
    """For what returns the record of a refresh: a span around it, which says what the record says."""

    @functools.wraps(run)
    def traced_run(*words: Any, **more: Any) -> Any:
        if _tracer is None:
            return run(*words, **more)
        from opentelemetry.trace import Status, StatusCode

        with _tracer.start_as_current_span("refresh", context=_context(None)) as current:
            record: Refresh = run(*words, **more)
            current.set_attributes(_told({name: getattr(record, field) for name, field in _ATTRIBUTES}))
            if record.outcome in _FAILED:
                current.set_attribute("error.type", record.error_code or "")
                current.set_status(Status(StatusCode.ERROR, f"{record.error_code}: {record.error_text}"))
            return record

    return traced_run  # type: ignore[return-value]


@contextmanager
def carried(parent: str | None) -> Iterator[None]:
    """What begins in the body belongs to the trace of whoever asked for it."""
    if _tracer is None or parent is None:
        yield
        return
    from opentelemetry import context

    token = context.attach(_context(parent))
    try:
        yield
    finally:
        context.detach(token)


def traceparent() -> str | None:
    """The open span, for whoever goes on elsewhere; None where there is none."""
    if _tracer is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get(PARENT)


def _context(parent: str | None) -> Any:
    """None: the thread's own. Where nothing is open, what a program around us gave in its environment."""
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if parent is None and not trace.get_current_span().get_span_context().is_valid:
        parent = os.environ.get(PARENT.upper())
    return None if parent is None else TraceContextTextMapPropagator().extract({PARENT: parent})


def _told(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Under our own prefix; what is not known is left out."""
    told = {f"lakemill.{name}": getattr(value, "value", value) for name, value in attributes.items()}
    plain = (str, bool, int, float)
    return {
        name: value if isinstance(value, plain) else str(value) for name, value in told.items() if value is not None
    }
