"""What Prometheus is told: the functions that fill the metrics, which stand in one table (``telemetry/declared``).

Line 11 of a refresh, with `telemetry.log`. Two kinds of values: what a process did itself (counters and histograms, to
be summed over processes) and what it sees of all (gauges of tables, workers and the queue, which schedulers tell alike:
take the maximum). The registry is our own, so that a program around us keeps its metrics to itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric as Family

from lakemill.core.refresh import Outcome
from lakemill.errors import ClaimLost
from lakemill.telemetry import declared
from lakemill.telemetry.declared import Metric
from lakemill.telemetry.log import Refresh

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"  # the newer one only matters for names beyond ASCII
AUTH_FAILURES, METRICS, PREFIX, UNPLANNED = (
    declared.AUTH_FAILURES,
    declared.METRICS,
    declared.PREFIX,
    declared.UNPLANNED,
)
MOST_TABLES = 50
"""Tables that a gauge of ingest names; the rest is told as `others`."""
OTHERS = "others"


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


def count_left_behind() -> None:
    """A slot of a worker hangs, and was replaced."""
    _count("slots_left_behind_total")


def observe_request(method: str, route: str, status: int, seconds: float) -> None:
    """``route`` is the pattern, not the path: there are only so many."""
    _count("http_requests_total", method, route, str(status))
    _observe("http_request_duration_seconds", seconds, route)


def count_auth_failure(reason: str) -> None:
    _count("auth_failures_total", reason)


def count_quota(resource: str) -> None:
    _count("quota_refusals_total", resource)


def observe_query(status: str, seconds: float) -> None:
    """A query that is over; one of ``declared.QUERY_ENDS``."""
    _count("query_total", status)
    if status == "answered":
        _observe("query_seconds", seconds)


def count_accepted(accepted: int, duplicate: int) -> None:
    """Records of a request that is durable."""
    _count("ingest_accepted_total", amount=accepted)
    _count("ingest_duplicates_total", amount=duplicate)


def count_rejected(code: str, records: int) -> None:
    """Records that were not accepted; ``code`` is one of our errors'."""
    _count("ingest_rejected_total", code, amount=records)


def set_backlog(records: int, bytes_: int, age: float) -> None:
    """What is not visible yet, of all tables."""
    for name, value in (("records", records), ("bytes", bytes_), ("seconds", age)):
        cast(Gauge, _MADE[f"ingest_backlog_{name}"]).set(value)


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
def set_pending(waiting: Mapping[str, tuple[float, int, int]]) -> None:
    """Of every table for which requests wait: the age of the oldest, records and bytes; others disappear."""
    ranked = sorted(waiting, key=lambda table: waiting[table], reverse=True)
    named = {table: waiting[table] for table in ranked[:MOST_TABLES]}
    if rest := [waiting[table] for table in ranked[MOST_TABLES:]]:
        ages, records, sizes = zip(*rest, strict=True)
        named[OTHERS] = max(ages), sum(records), sum(sizes)
    for number, name in enumerate(("ingest_lag_seconds", "ingest_pending_records", "ingest_pending_bytes")):
        _replace(name, {table: told[number] for table, told in named.items()})


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
