"""Refreshes in words, a line for people: `create`, `refresh` and `history` print them so."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def _done(record: RefreshRecord) -> str:
    return record.outcome.value if record.action is None else record.action.value
