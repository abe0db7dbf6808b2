"""Every metric that there is: name, kind, labels and meaning, as a table. ``telemetry/metrics`` makes and fills them.

Labels have few values each, all known here or bounded where they are filled; a client's text is never one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from prometheus_client import Counter, Gauge, Histogram

from lakemill.core.refresh import Action, Outcome

PREFIX = "lakemill_"
UNPLANNED = "NONE"
"""The action of a refresh that ended before it had one."""

AUTH_FAILURES = ("none", "unknown", "wrong", "expired", "revoked", "jwt", "limited")
"""Why a caller was not let in: nothing was sent, no such key, a wrong secret, …, a JWT that does not hold, too many
of these from its address."""

QUERY_ENDS = ("answered", "denied", "wrong", "not_visible", "timed_out", "cancelled", "failed")
"""How a query ends: … it asks for what nobody may, or what it may not; it is no SELECT that can run; its token was not
visible in time; …"""

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
        "Age of the first change that a dynamic table does not show yet; 0 when it shows everything. Of one that was "
        "never loaded: since it was declared.",
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
        "slots_left_behind_total",
        Counter,
        "Slots of workers that did not return after they were cancelled, and were replaced.",
    ),
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
        "query_total",
        Counter,
        "Queries, by how they ended.",
        ("status",),
        from_start=tuple((end,) for end in QUERY_ENDS),
    ),
    Metric("query_seconds", Histogram, "How long queries took that were answered, to their last byte.", (), _SECONDS),
    Metric("ingest_accepted_total", Counter, "Records that became durable, and got a token."),
    Metric("ingest_duplicates_total", Counter, "Records that were there before, by their own key or their request's."),
    Metric(
        "ingest_rejected_total",
        Counter,
        "Records that were not accepted, by the code of the error; also those that became dead letters at once.",
        ("code",),
        from_start=(("BAD_RECORDS",), ("IDEMPOTENCY_CONFLICT",), ("BACKLOGGED",)),
    ),
    Metric(
        "ingest_backlog_records", Gauge, "Records of all tables that are not visible yet, as an API process sees them."
    ),
    Metric("ingest_backlog_bytes", Gauge, "Bytes of their requests."),
    Metric("ingest_backlog_seconds", Gauge, "Age of the oldest of them."),
    Metric(
        "ingest_batches_total",
        Counter,
        "Batches of requests, by what they came to: published, unchanged (no row is another one), failed or timed_out.",
        ("status",),
        from_start=(("published",), ("unchanged",), ("failed",), ("timed_out",)),
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
    Metric(
        "ingest_lag_seconds",
        Gauge,
        "Age of the oldest request of a table that is not passed yet; the tables that wait longest, and `others`.",
        ("table",),
    ),
    Metric("ingest_pending_records", Gauge, "Records of a table that wait, as far as they were counted.", ("table",)),
    Metric("ingest_pending_bytes", Gauge, "Bytes of their requests, as far as they were counted.", ("table",)),
)
