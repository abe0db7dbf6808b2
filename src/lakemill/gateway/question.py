"""What is asked of the gateway and what it answers, as values.

A ``Question`` names its SQL, its parameters, the snapshot it wants and what its asker may see. An ``Answer`` streams:
its columns are known when it is made, its batches come as they are computed, its statistics when the last has come.
Nothing here knows of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from lakemill.core.names import QualifiedName

Visible = Callable[[QualifiedName], bool]
"""Whether the asker may know of a table or view; what it may not, does not exist for it."""


def everything(_: QualifiedName) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class At:
    """Which snapshot: at most one of the three; none is the newest."""

    snapshot: int | None = None
    time: datetime | None = None
    point: Mapping[QualifiedName, int] | None = None
    """Table → snapshot of the lake where it is read (``runtime/point``); what it does not name can't be read."""


NEWEST = At()


@dataclass(frozen=True, slots=True)
class Question:
    sql: str
    params: Sequence[Any] | Mapping[str, Any] | None = None
    at: At = NEWEST
    row_limit: int | None = None
    """The answer ends after so many rows, and says so; without, more rows than the settings allow are an error."""
    byte_limit: int | None = None
    timeout: timedelta | None = None
    visible: Visible = everything
    id: str = field(default_factory=lambda: uuid4().hex)


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    """DuckDB's."""


@dataclass(frozen=True, slots=True)
class Statistics:
    rows: int
    bytes: int
    """Of the answer, as Arrow."""
    truncated: bool
    files: int
    """Data and delete files that it could have read."""
    queued: float
    duration: float
    """Seconds, from its turn to its last row."""
    cpu: float
    memory: int
    """The most that its process held."""
