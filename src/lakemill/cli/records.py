"""Refreshes in words: a line for people, all fields for programs. `create`, `refresh` and `history` print them so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakemill.cli.output import size

if TYPE_CHECKING:
    from lakemill.store.history import RefreshRecord

UNKNOWN = "unknown"


def summary(record: RefreshRecord) -> str:
    """``main.orders_by_day: KEYS, +3 −1 rows, 41.0 kB read, 0.8 s``."""
    from lakemill.core.refresh import Action, Outcome

    parts = [_done(record)]
    if record.outcome is Outcome.SUCCEEDED and record.action is not Action.NO_DATA:
        parts += [f"{rows_out(record)} rows", f"{size(record.bytes_read) or UNKNOWN} read"]
    elif record.error_code:
        parts.append(f"{record.error_code}: {(record.error_text or '').partition(' → ')[0]}")
    parts.append(f"{UNKNOWN if (taken := record.seconds) is None else f'{taken:.1f} s'}")
    return f"{record.name}: {', '.join(parts)}"


def rows_out(record: RefreshRecord) -> str:
    """What came and what went."""
    if record.rows_inserted is None or record.rows_deleted is None:
        return UNKNOWN
    return f"+{record.rows_inserted} −{record.rows_deleted}"


def fields(record: RefreshRecord) -> dict[str, Any]:
    """Everything, for programs; None is what was not, or can't be, measured."""
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


def _done(record: RefreshRecord) -> str:
    return record.outcome.value if record.action is None else record.action.value
