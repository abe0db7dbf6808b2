"""Metrics: what is declared is what is exposed and documented, and each call fills what it should."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lakemill.core.names import QualifiedName
from lakemill.core.refresh import Action, Outcome, Trigger
from lakemill.errors import StoreUnavailable
from lakemill.store.history import RefreshRecord
from lakemill.telemetry import metrics
from lakemill.telemetry.failures import failed

ROOT = Path(__file__).parents[2]
START = datetime(2026, 11, 16, 9, tzinfo=UTC)
RECORD = RefreshRecord(
    UUID(int=7),
    1,
    QualifiedName("main", "orders_by_day"),
    1,
    Trigger.SCHEDULED,
    START,
    outcome=Outcome.SUCCEEDED,
    action=Action.KEYS,
    ended_at=START + timedelta(seconds=0.8),
    rows_inserted=3,
    rows_deleted=1,
    rows_recomputed=40,
    affected_keys=12,
    cardinality_ratio=0.02,
)


def value(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(f"lakemill_{name}", labels) or 0.0


def labelled(name: str, label: str) -> dict[str, float]:
    families = text_string_to_metric_families(metrics.exposition().decode())
    samples = [sample for family in families for sample in family.samples if sample.name == f"lakemill_{name}"]
    return {sample.labels[label]: sample.value for sample in samples}


def test_what_the_issue_names_is_there() -> None:
    declared = {metric.name: metric.labels for metric in metrics.METRICS}
    assert declared == {
        "refresh_duration_seconds": ("action",),
        "refresh_total": ("status", "action"),
        "lag_seconds": ("table",),
        "target_lag_seconds": ("table",),
        "affected_keys": (),
        "cardinality_ratio": (),
        "dedup_ratio": (),
        "rows_changed_total": ("change",),
        "errors_total": ("code",),
        "worker_up": ("worker",),
        "tick_duration_seconds": (),
        "queue_depth": ("kind",),
        "queue_age_seconds": ("kind",),
        "slots_left_behind_total": (),
        "publish_conflicts_total": (),
        "publish_fenced_total": (),
        "claims_lost_total": (),
        "http_requests_total": ("method", "route", "status"),
        "http_request_duration_seconds": ("route",),
        "auth_failures_total": ("reason",),
        "quota_refusals_total": ("resource",),
        "query_total": ("status",),
        "query_seconds": (),
        "ingest_accepted_total": (),
        "ingest_duplicates_total": (),
        "ingest_rejected_total": ("code",),
        "ingest_backlog_records": (),
        "ingest_backlog_bytes": (),
        "ingest_backlog_seconds": (),
        "ingest_batches_total": ("status",),
        "ingest_records_total": (),
        "ingest_letters_total": (),
        "ingest_batch_seconds": (),
        "write_to_visible_seconds": (),
        "ingest_lag_seconds": ("table",),
        "ingest_pending_records": ("table",),
        "ingest_pending_bytes": ("table",),
    }


def test_names_follow_prometheus() -> None:
    for metric in metrics.METRICS:
        assert re.fullmatch(r"lakemill_[a-z_]+", metric.exposed)
        assert metric.exposed.endswith("_total") == (metric.kind.__name__ == "Counter"), metric.name
        assert metric.help.endswith("."), metric.name
        assert not re.search(r"_(ms|milliseconds|minutes|kb|mb|percent)\b", metric.name), "base units"


def test_the_exposition_is_what_was_declared() -> None:
    metrics.observe_refresh(RECORD)
    text = metrics.exposition().decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for metric in metrics.METRICS:
        family = families[metric.exposed.removesuffix("_total")]
        assert family.type == metric.kind.__name__.lower()
        assert family.documentation == metric.help
        assert {sample.name for sample in family.samples} <= set(metric.series)
    assert "_created" not in text
    assert len(families) == len(metrics.METRICS)


def test_a_refresh_that_succeeded() -> None:
    names = ("affected_keys_sum", "cardinality_ratio_count", "dedup_ratio_sum", "refresh_duration_seconds_count")
    labels = {"refresh_duration_seconds_count": {"action": "KEYS"}}
    before = {name: value(name, **labels.get(name, {})) for name in names}
    total, rows = (
        value("refresh_total", status="SUCCEEDED", action="KEYS"),
        value("rows_changed_total", change="inserted"),
    )
    metrics.observe_refresh(RECORD)
    grown = {name: value(name, **labels.get(name, {})) - before[name] for name in names}
    assert grown == pytest.approx(dict(zip(names, (12, 1, 0.9, 1), strict=True)))
    assert value("refresh_total", status="SUCCEEDED", action="KEYS") == total + 1
    assert value("rows_changed_total", change="inserted") == rows + 3


@pytest.mark.parametrize(
    ("outcome", "code", "errors", "claims"),
    [
        (Outcome.FAILED, "STORE_UNAVAILABLE", 1, 0),
        (Outcome.FAILED, "CLAIM_LOST", 1, 1),
        (Outcome.SKIPPED, "CLAIM_LOST", 0, 0),  # it waited, and never had one
        (Outcome.UPSTREAM_FAILED, "UPSTREAM_FAILED", 1, 0),
    ],
)
def test_a_refresh_that_did_not(outcome: Outcome, code: str, errors: int, claims: int) -> None:
    record = replace(RECORD, outcome=outcome, action=None, error_code=code, error_text="x")
    before = value("errors_total", code=code), value("claims_lost_total"), value("rows_changed_total", change="deleted")
    total = value("refresh_total", status=outcome.value, action="NONE")
    metrics.observe_refresh(record)
    assert value("errors_total", code=code) - before[0] == errors
    assert value("claims_lost_total") - before[1] == claims
    assert value("rows_changed_total", change="deleted") == before[2]
    assert value("refresh_total", status=outcome.value, action="NONE") == total + 1


def test_failures_stand_at_zero_before_the_first() -> None:
    """`increase()` sees a step from 0 to 1, and not a series that begins at 1."""
    samples = [family for family in metrics.REGISTRY.collect() if family.name == "lakemill_refresh"]
    shown = {(sample.labels["status"], sample.labels["action"]) for sample in samples[0].samples}
    assert {("FAILED", action.value) for action in Action} | {("FAILED", "NONE")} <= shown
    assert not [status for status, _ in shown if status == "EXECUTING"]


def test_what_is_gone_disappears() -> None:
    metrics.set_lags({"main.a": (3.0, 60.0), "main.b": (0.0, None)})
    assert labelled("lag_seconds", "table") == {"main.a": 3.0, "main.b": 0.0}
    assert labelled("target_lag_seconds", "table") == {"main.a": 60.0}
    metrics.set_lags({"main.b": (1.0, 10.0)})
    assert labelled("lag_seconds", "table") == {"main.b": 1.0}
    assert labelled("target_lag_seconds", "table") == {"main.b": 10.0}
    metrics.set_lags({})
    assert labelled("lag_seconds", "table") == {}

    metrics.set_workers({"w1": True, "w2": False})
    assert labelled("worker_up", "worker") == {"w1": 1.0, "w2": 0.0}
    metrics.set_workers({"w2": True})
    assert labelled("worker_up", "worker") == {"w2": 1.0}
    metrics.set_workers({})

    metrics.set_queue({"refresh": 4, "upkeep": 0}, {"refresh": 2.5})
    assert labelled("queue_depth", "kind") == {"refresh": 4.0, "upkeep": 0.0}
    assert labelled("queue_age_seconds", "kind") == {"refresh": 2.5, "upkeep": 0.0}
    metrics.set_queue({}, {})


def test_tables_that_wait_longest_are_named_and_the_rest_together() -> None:
    most = metrics.MOST_TABLES
    waiting = {f"main.t{n}": (float(n), 10, 100) for n in range(most + 3)}
    metrics.set_pending(waiting)
    lags = labelled("ingest_lag_seconds", "table")
    assert len(lags) == most + 1
    assert (lags["main.t52"], lags["others"]) == (52.0, 2.0)
    assert "main.t2" not in lags
    assert labelled("ingest_pending_records", "table")["others"] == 30
    assert labelled("ingest_pending_bytes", "table")["main.t3"] == 100
    metrics.set_pending({"main.t1": (1.5, 2, 3)})
    assert labelled("ingest_lag_seconds", "table") == {"main.t1": 1.5}
    metrics.set_pending({})
    assert labelled("ingest_pending_bytes", "table") == {}


def test_the_rest_is_counted() -> None:
    names = ("publish_conflicts_total", "publish_fenced_total", "tick_duration_seconds_count")
    before = [value(name) for name in names]
    metrics.count_conflict()
    metrics.count_fenced()
    metrics.observe_tick(0.02)
    assert [value(name) for name in names] == [count + 1 for count in before]


def test_what_goes_wrong_beside_refreshes_is_counted_too() -> None:
    codes = ("STORE_UNAVAILABLE", "INTERNAL_ERROR")
    before = [value("errors_total", code=code) for code in codes]
    failed("heartbeat", StoreUnavailable("it does not answer"))
    failed("schedule", RuntimeError("a mistake"))
    assert [value("errors_total", code=code) for code in codes] == [count + 1 for count in before]


def test_the_page_is_what_the_code_says() -> None:
    assert (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8") == metrics.reference(), "run `make docs`"
