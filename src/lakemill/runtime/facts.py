"""Dynamic tables and upkeep as plain facts, for programs: the JSON of the command line and of HTTP are the same.

Values of ``runtime`` and ``store`` in, dictionaries with stable keys out; nothing is read, and nothing is worded for
people. Importing it imports no engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakemill.core.definition import Definition
    from lakemill.core.graph import Warned
    from lakemill.core.names import QualifiedName
    from lakemill.core.tending import Policy, Tended
    from lakemill.errors import LakemillError
    from lakemill.runtime.dynamic import Created
    from lakemill.runtime.explain import Explained
    from lakemill.runtime.show import Described, Shown
    from lakemill.runtime.tending import UpkeepStatus
    from lakemill.runtime.verify import Verified
    from lakemill.runtime.window import SourceWindow
    from lakemill.store.history import RefreshRecord


def refreshed(record: RefreshRecord) -> dict[str, Any]:
    """A refresh; None is what was not, or can't be, measured."""
    return {
        "table": str(record.name),
        "refresh": str(record.id),
        "trigger": record.trigger.value,
        "outcome": record.outcome.value,
        "action": record.action and record.action.value,
        "reason": record.reason,
        "remedy": record.remedy,
        "a": record.a,
        "b": record.b,
        "t": record.t,
        "commit": record.commit,
        "definition_version": record.definition_version,
        "started": record.started_at,
        "ended": record.ended_at,
        "seconds": record.seconds,
        "phases": dict(record.phases),
        "rows_in": record.rows_in,
        "rows_inserted": record.rows_inserted,
        "rows_deleted": record.rows_deleted,
        "rows_recomputed": record.rows_recomputed,
        "dedup_ratio": record.dedup_ratio,
        "records_read": record.records_read,
        "bytes_read": record.bytes_read,
        "bytes_written": record.bytes_written,
        "spark_jobs": record.spark_jobs,
        "spark_profile": record.spark_profile,
        "spark_tasks": record.spark_tasks,
        "spark_executors": record.spark_executors,
        "spilled_bytes": record.spilled_bytes,
        "error_code": record.error_code,
        "error": record.error_text,
        "sources": [
            {"table": str(s.name), "table_id": s.table_id, "a": s.a, "b": s.b, "rows": s.rows} for s in record.sources
        ],
    }


def created(found: Created, warned: Sequence[Warned]) -> dict[str, Any]:
    table = found.table
    own = found.records[-1] if found.records else None
    return {
        "table": str(table.name),
        "kept": found.kept,
        "state": table.state.value,
        "definition_version": table.definition_version,
        "action": own and own.action and own.action.value,
        "rows": own and own.rows_inserted,
        "mode": table.resolved.mode.value,
        "mode_reason": table.resolved.mode_reason,
        "warnings": [{"message": one.message, "remedy": one.remedy} for one in warned],
        "refreshes": [refreshed(record) for record in found.records],
    }


def standing(shown: Shown) -> dict[str, Any]:
    """How a table stands; times in seconds."""
    table, frontier, last = shown.table, shown.frontier, shown.last
    return {
        "table": str(table.name),
        "state": table.standing[0].value,
        "state_reason": table.standing[1],
        "mode": table.resolved.mode.value,
        "mode_reason": table.resolved.mode_reason,
        "data_snapshot": frontier and frontier.version.b_hi,
        "data_time": frontier and frontier.b_time,
        "point": shown.point,
        "lag": _seconds(shown.lag),
        **properties(table.definition),
        "effective_lag": _seconds(shown.effective_lag),
        "next_due": shown.due,
        "last_action": last and last.action and last.action.value,
        "last_outcome": last and last.outcome.value,
        "last_refresh": last and (last.ended_at or last.started_at),
        "progress": shown.progress,
        "last_error": last and last.error_text and f"{last.error_code}: {last.error_text}",
        "rows": shown.rows,
        "bytes": shown.bytes,
    }


def properties(definition: Definition) -> dict[str, Any]:
    """What was declared, beside the query: every property, those at their defaults too."""
    return {
        "target_lag": str(definition.target_lag),
        "refresh_mode": definition.refresh_mode.value,
        "strict": definition.strict,
        "cardinality_threshold": definition.cardinality_threshold,
        "initialize": definition.initialize.value,
        "scheduler": "ENABLE" if definition.scheduler else "DISABLE",
        "priority": definition.priority,
        "spark_profile": definition.spark_profile,
        "dialect": definition.dialect.value,
        "comment": definition.comment,
        "partition_by": list(definition.partition_by),
    }


def described(found: Described) -> dict[str, Any]:
    from lakemill.core.ddl import to_sql

    table, last = found.shown.table, found.shown.last
    return standing(found.shown) | {
        "definition": to_sql(table.definition),
        "definition_version": table.definition_version,
        "created": table.created_at,
        "declared": table.declared_at,
        "state_since": table.standing[2],
        "table_id": table.table_id,
        "query": table.resolved.query,
        "columns": [{"name": column.name, "type": column.type} for column in table.resolved.columns],
        "sources": [
            {
                "name": str(one.source.name),
                "kind": one.source.kind.value,
                "columns": list(one.source.columns),
                "table_id": one.read.table_id if one.read else one.source.table_id,
                "commit": one.read and one.read.commit,
                "rows": one.read and one.read.rows,
            }
            for one in found.sources
        ],
        "consumers": [str(name) for name in found.consumers],
        "versions": [
            {"commit": v.commit, "b_lo": v.b_lo, "b_hi": v.b_hi, "t": v.t, "definition_version": v.definition_version}
            for v in found.versions
        ],
        "within_target": {"hour": found.within.get(timedelta(hours=1)), "day": found.within.get(timedelta(days=1))},
        "warnings": [{"message": one.message, "remedy": one.remedy} for one in found.warnings],
        "last": last and refreshed(last),
    }


def explained(one: Explained) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "table": str(one.name),
        "b": one.b.id,
        "waits_for": [str(name) for name in one.waits_for],
        **dict.fromkeys(("action", "reason_code", "reason", "remedy", "incremental_bytes", "full_bytes")),
        **dict.fromkeys(("changed_share", "affected_keys", "spark_profile", "profile_reason", "batches")),
        "sources": [],
    }
    if one.planned is None:
        return facts
    plan, window = one.planned
    return facts | {
        "action": plan.action.value,
        "reason_code": plan.reason.code,
        "reason": plan.reason.text,
        "remedy": plan.reason.remedy,
        "incremental_bytes": plan.incremental_bytes,
        "full_bytes": plan.full_bytes,
        "changed_share": plan.share,
        "affected_keys": plan.profile.affected,
        "spark_profile": plan.profile.name,
        "profile_reason": plan.profile.reason.text,
        "batches": plan.profile.batches,
        "sources": [_source(source) for source in window.sources],
    }


def verified(found: Verified) -> dict[str, Any]:
    """With the first rows that differ; the same keys as ``unjudged``."""
    return {
        "table": str(found.name),
        "equal": found.equal,
        "engine": found.engine,
        "data_snapshot": found.b,
        "commit": found.commit,
        "rows": found.rows,
        "missing": found.missing,
        "extra": found.extra,
        "examples": [{"side": side, "row": dict(zip(found.columns, row, strict=True))} for side, row in found.examples],
        "error_code": None,
        "error": None,
        "remedy": None,
    }


def unjudged(name: QualifiedName, error: LakemillError) -> dict[str, Any]:
    """A table that could not be verified, and why."""
    unknown = ("equal", "engine", "data_snapshot", "commit", "rows", "missing", "extra")
    told = {"error_code": error.code, "error": error.message, "remedy": error.remedy or None}
    return {"table": str(name), **dict.fromkeys(unknown), "examples": [], **told}


def _source(source: SourceWindow) -> dict[str, Any]:
    return {
        "name": str(source.source.name),
        "table_id": source.table.id,
        "a": source.a,
        "b": source.b,
        "rows": source.size.rows,
        "bytes": source.size.bytes,
        "changed": source.size.changed,
        "only_inserts": source.size.only_inserts,
        "delta_rows": source.size.delta_rows,
        "delta_bytes": source.size.delta_bytes,
    }


def _seconds(length: timedelta | None) -> float | None:
    return None if length is None else length.total_seconds()


# ---------------------------------------------------------------- upkeep
def upkeep_status(found: UpkeepStatus) -> dict[str, Any]:
    """What upkeep is due, by which policy, and how the last went."""
    return {
        "tables": [
            {
                "table": one.crowd.table,
                "due": one.verdict.due,
                "why": one.verdict.why,
                "gain": round(one.verdict.gain, 3) if one.verdict.due else None,
                "small_files": one.crowd.small,
                "small_bytes": one.crowd.small_bytes,
                "bytes": one.crowd.bytes,
                "rows": one.crowd.rows,
                "deleted_rows": one.crowd.deleted,
                "retention": _seconds(one.retention),
                "last": one.last and _tended(one.last),
                "policy": _policy(one.policy),
            }
            for one in found.tables
        ],
        "policy": _policy(found.lake),
        "jobs": {job: _tended(last) for job, last in sorted(found.jobs.items())},
        "looked": dict(found.looked),
        "nowhere": list(found.nowhere),
    }


def _tended(last: Tended) -> dict[str, Any]:
    return {"at": last.at, "outcome": last.outcome.value, "reason": last.reason, "failures": last.count}


def _policy(policy: Policy) -> dict[str, Any]:
    return {
        "name": policy.name or None,
        "auto": ", ".join(sorted(policy.jobs)),
        "interval": _seconds(policy.interval),
        "window": policy.window or None,
        "small_files": policy.small_files,
        "small_size": policy.small_size or policy.target_file_size // 4,
        "small_age": _seconds(policy.small_age),
        "deleted_share": policy.deleted_share,
        "target_file_size": policy.target_file_size,
        "retention": _seconds(policy.retention),
        "from": {"auto" if key == "jobs" else key: name for key, name in policy.whence.items()},
    }
