"""What Prometheus is told: all metrics in one table, with their labels and meaning, and the functions that fill them.

Line 11 of a refresh, with `telemetry.log`. Two kinds of values: what a process did itself (counters and histograms, to
be summed over processes) and what it sees of all (gauges of tables, workers and the queue, which schedulers tell alike:
take the maximum). The registry is our own, so that a program around us keeps its metrics to itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric as Family

from lakemill.core.refresh import Action, Outcome
from lakemill.errors import ClaimLost
from lakemill.telemetry.log import Refresh

PREFIX = "lakemill_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"  # the newer one only matters for names beyond ASCII
UNPLANNED = "NONE"
"""The action of a refresh that ended before it had one."""

AUTH_FAILURES = ("none", "unknown", "wrong", "expired", "revoked", "jwt")
"""Why a caller was not let in: nothing was sent, no such key, a wrong secret, …, a JWT that does not hold."""

Kind = type[Counter] | type[Gauge] | type[Histogram]


@dataclass(frozen=True, slots=True)
class Metric:
    """`name` without the prefix; `from_start` are label values that stand at zero before anything happened."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    from_start: tuple[tuple[str, ...], ...] = ()

    @property
    def exposed(self) -> str:
        return PREFIX + self.name

    @property
    def series(self) -> tuple[str, ...]:
        """The names that a query can use."""
        parts = ("_bucket", "_sum", "_count") if self.kind is Histogram else ("",)
        return tuple(self.exposed + part for part in parts)


_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
_SHORT = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_KEYS = tuple(float(10**n) for n in range(9))
_SHARES = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 0.9, 0.99, 1.0)

# `increase()` does not see a series begin: what an alert counts must stand at zero first
_ENDS = tuple(outcome.value for outcome in Outcome if outcome is not Outcome.EXECUTING)
_REFRESHES = tuple(product(_ENDS, (*(action.value for action in Action), UNPLANNED)))

METRICS: tuple[Metric, ...] = (
    Metric("refresh_duration_seconds", Histogram, "How long refreshes that succeeded took.", ("action",), _SECONDS),
    Metric(
        "refresh_total",
        Counter,
        "Refreshes that ended, by how they ended and what they did; action NONE: before it was planned.",
        ("status", "action"),
        from_start=_REFRESHES,
    ),
    Metric(
        "lag_seconds",
        Gauge,
        "Age of the first change that a dynamic table does not show yet; 0 when it shows everything.",
        ("table",),
    ),
    Metric(
        "target_lag_seconds",
        Gauge,
        "The lag that a dynamic table may have: its TARGET_LAG, or what its consumers need of a DOWNSTREAM one.",
        ("table",),
    ),
    Metric(
        "affected_keys",
        Histogram,
        "Keys that a refresh computed anew; changed rows where its query has no key.",
        buckets=_KEYS,
    ),
    Metric(
        "cardinality_ratio",
        Histogram,
        "Affected keys of a refresh, divided by those that there were; 1: as many as all.",
        buckets=_SHARES,
    ),
    Metric(
        "dedup_ratio",
        Histogram,
        "Share of the recomputed rows of a refresh that were as before, and were not written.",
        buckets=_SHARES,
    ),
    Metric(
        "rows_changed_total",
        Counter,
        "Rows that refreshes wrote and removed; change is inserted or deleted.",
        ("change",),
        from_start=(("inserted",), ("deleted",)),
    ),
    Metric(
        "errors_total", Counter, "Errors by their code (errors.md), of refreshes and of everything else.", ("code",)
    ),
    Metric(
        "worker_up", Gauge, "1: the worker's heartbeat is fresh; 0: it stopped without saying goodbye.", ("worker",)
    ),
    Metric("tick_duration_seconds", Histogram, "How long the scheduler took to find out what is due.", buckets=_SHORT),
    Metric("queue_depth", Gauge, "Work that is due and not claimed, by kind.", ("kind",)),
    Metric("queue_age_seconds", Gauge, "How long the oldest of that work has been due, by kind.", ("kind",)),
    Metric(
        "publish_conflicts_total",
        Counter,
        "Publishes that met another commit and were tried again or planned anew.",
    ),
    Metric(
        "publish_fenced_total",
        Counter,
        "Publishes that were refused because the worker's claim had passed to somebody else.",
    ),
    Metric(
        "claims_lost_total", Counter, "Claims that expired under their worker, or were taken over.", from_start=((),)
    ),
    Metric(
        "http_requests_total",
        Counter,
        "Requests that the API answered, by what was asked for and the status of the answer.",
        ("method", "route", "status"),
    ),
    Metric("http_request_duration_seconds", Histogram, "How long those requests took.", ("route",), _SHORT),
    Metric(
        "auth_failures_total",
        Counter,
        "Requests of callers that could not say who they are.",
        ("reason",),
        from_start=tuple((reason,) for reason in AUTH_FAILURES),
    ),
    Metric(
        "quota_refusals_total",
        Counter,
        "Requests that were refused because a key or tenant is over its quota.",
        ("resource",),
        from_start=(("requests",), ("rows",), ("bytes",), ("queries",)),
    ),
    Metric(
        "ingest_batches_total",
        Counter,
        "Batches of requests, by what they came to: published, unchanged (nothing became another row) or failed.",
        ("status",),
        from_start=(("published",), ("unchanged",), ("failed",)),
    ),
    Metric("ingest_records_total", Counter, "Records of requests that were passed: visible, or dead letters."),
    Metric("ingest_letters_total", Counter, "Those of them that became dead letters when their batch was made."),
    Metric("ingest_batch_seconds", Histogram, "How long batches took, from their claim to their commit.", (), _SECONDS),
    Metric(
        "write_to_visible_seconds",
        Histogram,
        "From the acceptance of the first request of a batch until it was visible.",
        (),
        _SECONDS,
    ),
    Metric("ingest_lag_seconds", Gauge, "Age of the oldest request of a table that is not passed yet.", ("table",)),
    Metric("ingest_pending_records", Gauge, "Records of a table that wait, as far as they were counted.", ("table",)),
)


class _Registry(CollectorRegistry):
    """Without the `…_created` series that the client adds to each counter and histogram."""

    def collect(self) -> Iterator[Family]:
        for family in super().collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


REGISTRY = _Registry(auto_describe=True)
_lock = threading.Lock()
_shown: dict[str, frozenset[str]] = {}


def _make(metric: Metric) -> Counter | Gauge | Histogram:
    made: Counter | Gauge | Histogram
    if metric.kind is Histogram:
        made = Histogram(metric.exposed, metric.help, metric.labels, buckets=metric.buckets, registry=REGISTRY)
    else:
        made = metric.kind(metric.exposed, metric.help, metric.labels, registry=REGISTRY)
    for values in metric.from_start if metric.labels else ():
        made.labels(*values)
    return made


_MADE = {metric.name: _make(metric) for metric in METRICS}


def exposition() -> bytes:
    """All of it, as Prometheus reads it; its content type is `CONTENT_TYPE`."""
    return generate_latest(REGISTRY)


# ---------------------------------------------------------------- what this process did
def observe_refresh(record: Refresh, *, told: bool = False) -> None:
    """A refresh that is over, however it ended; ``told``: its error goes to a caller, and is counted there."""
    action = UNPLANNED if record.action is None else record.action.value
    _count("refresh_total", record.outcome.value, action)
    if record.outcome is Outcome.SUCCEEDED:
        if record.seconds is not None:
            _observe("refresh_duration_seconds", record.seconds, action)
        inserted, deleted = record.rows_inserted or 0, record.rows_deleted or 0
        _count("rows_changed_total", "inserted", amount=inserted)
        _count("rows_changed_total", "deleted", amount=deleted)
        if record.affected_keys is not None:
            _observe("affected_keys", record.affected_keys)
        if record.cardinality_ratio is not None:
            _observe("cardinality_ratio", record.cardinality_ratio)
        if record.rows_recomputed:
            _observe("dedup_ratio", max(0.0, 1 - (inserted + deleted) / record.rows_recomputed))
    elif not told and record.error_code is not None and record.outcome is not Outcome.SKIPPED:  # that had no claim
        count_error(record.error_code)


def observe_tick(seconds: float) -> None:
    _observe("tick_duration_seconds", seconds)


def count_error(code: str) -> None:
    """An error by its code; `observe_refresh` counts those of refreshes itself."""
    _count("errors_total", code)
    if code == ClaimLost.code:
        _count("claims_lost_total")


def count_conflict() -> None:
    """A publish met another commit."""
    _count("publish_conflicts_total")


def count_fenced() -> None:
    """A publish was refused for its fencing number; the error that follows counts as a lost claim by itself."""
    _count("publish_fenced_total")


def observe_request(method: str, route: str, status: int, seconds: float) -> None:
    """``route`` is the pattern, not the path: there are only so many."""
    _count("http_requests_total", method, route, str(status))
    _observe("http_request_duration_seconds", seconds, route)


def count_auth_failure(reason: str) -> None:
    _count("auth_failures_total", reason)


def count_quota(resource: str) -> None:
    _count("quota_refusals_total", resource)


def observe_batch(published: bool, records: int, letters: int, seconds: float, waited: float) -> None:
    """A batch of requests that was passed."""
    count_batch("published" if published else "unchanged")
    _count("ingest_records_total", amount=records)
    _count("ingest_letters_total", amount=letters)
    _observe("ingest_batch_seconds", seconds)
    _observe("write_to_visible_seconds", waited)


def count_batch(status: str) -> None:
    _count("ingest_batches_total", status)


# ---------------------------------------------------------------- what a scheduler sees of all
def set_pending(lags: Mapping[str, float], records: Mapping[str, int]) -> None:
    """Of every table for which requests wait: the age of the oldest, and how many records; others disappear."""
    _replace("ingest_lag_seconds", lags)
    _replace("ingest_pending_records", records)


def set_lags(lags: Mapping[str, tuple[float, float | None]]) -> None:
    """Of every dynamic table: lag and target in seconds, None where nobody asks for one; others disappear.

    A process that no longer schedules says so with ``{}``: what it last saw would stay for ever.
    """
    _replace("lag_seconds", {table: lag for table, (lag, _) in lags.items()})
    _replace("target_lag_seconds", {table: target for table, (_, target) in lags.items() if target is not None})


def set_queue(depths: Mapping[str, int], ages: Mapping[str, float]) -> None:
    """By kind of work: how much is due and unclaimed, and for how many seconds the oldest has been."""
    _replace("queue_depth", depths)
    _replace("queue_age_seconds", {kind: ages.get(kind, 0.0) for kind in depths} | dict(ages))


def set_workers(workers: Mapping[str, bool]) -> None:
    """Of every worker that began and did not say goodbye: whether its heartbeat is fresh; others disappear."""
    _replace("worker_up", {worker: float(up) for worker, up in workers.items()})


def _replace(name: str, values: Mapping[str, float]) -> None:
    """Set these and remove the rest, one by one: a scrape in between must not find an empty gauge."""
    gauge = cast(Gauge, _MADE[name])
    with _lock:
        for label, value in values.items():
            gauge.labels(label).set(value)
        for gone in _shown.get(name, frozenset()) - values.keys():
            gauge.remove(gone)
        _shown[name] = frozenset(values)


def _count(name: str, *labels: str, amount: float = 1) -> None:
    counter = cast(Counter, _MADE[name])
    (counter.labels(*labels) if labels else counter).inc(amount)


def _observe(name: str, value: float, *labels: str) -> None:
    histogram = cast(Histogram, _MADE[name])
    (histogram.labels(*labels) if labels else histogram).observe(value)


# ---------------------------------------------------------------- the page
def reference() -> str:
    """`docs/reference/metrics.md`."""
    parts = [
        "# Metrics\n",
        "<!-- Written by `make docs` from the code; edit the code instead. -->\n",
        "`GET /metrics` of every process of the service, in Prometheus' text format. Seconds and plain numbers; ratios "
        "go from 0 to 1. Counters and histograms are what one process did: sum them. Gauges are what a scheduler sees "
        "of all tables, workers and work: take the maximum, since several schedulers tell the same. A table, worker or "
        "kind of work that is gone has no series any more.\n",
        "| metric | type | labels | meaning |\n|---|---|---|---|",
    ]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        parts.append(f"| `{metric.exposed}` | {metric.kind.__name__.lower()} | {labels} | {metric.help} |")
    parts += [
        "",
        "`status` is SUCCEEDED, FAILED, CANCELLED, SKIPPED or UPSTREAM_FAILED; `action` is what the refresh did "
        "([refreshing](../explanation/refreshing.md)); `code` is one of [errors](errors.md).\n",
        "[Operations](../how-to/operations.md) says what to do about each alert in `deploy/alerts.yml`; "
        "`deploy/grafana.json` is a dashboard of all of them.",
    ]
    return "\n".join([*parts, ""])
