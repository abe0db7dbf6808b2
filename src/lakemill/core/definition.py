"""What ``CREATE DYNAMIC TABLE`` declares, as a value: name, query, lag, mode, options.

``core/ddl`` makes it from text and prints it again, ``store/definitions`` keeps it. The query is text here;
``core/query`` reads it. A definition is what the user asked for: what the mode resolved to, which sources the query has
and how it is doing is kept beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from lakemill.core.names import QualifiedName
from lakemill.values import parse_duration

SHORTEST_LAG = timedelta(seconds=1)
LONGEST_LAG = timedelta(days=366)
DEFAULT_THRESHOLD = 0.3
PRIORITIES = range(-1000, 1001)


class RefreshMode(Enum):
    AUTO = "AUTO"  # INCREMENTAL or FULL, decided at creation
    INCREMENTAL = "INCREMENTAL"
    FULL = "FULL"
    ADAPTIVE = "ADAPTIVE"  # decided per refresh, by cost


class Initialize(Enum):
    ON_CREATE = "ON_CREATE"
    ON_SCHEDULE = "ON_SCHEDULE"


class Dialect(Enum):
    DUCKDB = "duckdb"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class TargetLag:
    """How far a table may fall behind; None is DOWNSTREAM: as far as its consumers allow."""

    duration: timedelta | None

    def __str__(self) -> str:
        """``5 minutes``, in the largest unit that is whole."""
        if self.duration is None:
            return "DOWNSTREAM"
        seconds = round(self.duration.total_seconds())
        for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
            if seconds % length == 0:
                return _counted(seconds // length, unit)
        return _counted(seconds, "second")


DOWNSTREAM = TargetLag(None)


def parse_lag(text: str) -> TargetLag:
    """``'5 minutes'`` or ``'downstream'``; a ValueError says what is wrong with any other text."""
    if text.strip().upper() == "DOWNSTREAM":
        return DOWNSTREAM
    if not any(char.isalpha() for char in text):
        raise ValueError(f"'{text}' is not a lag: it has no unit")
    try:
        duration = parse_duration(text)
    except OverflowError:
        duration = 2 * LONGEST_LAG
    if not isinstance(duration, timedelta) or duration.microseconds:
        raise ValueError(f"'{text}' is not a lag: it must be whole seconds")
    if not SHORTEST_LAG <= duration <= LONGEST_LAG:
        raise ValueError(f"'{text}' is not between {TargetLag(SHORTEST_LAG)} and {TargetLag(LONGEST_LAG)}")
    return TargetLag(duration)


@dataclass(frozen=True, slots=True)
class Definition:
    name: QualifiedName
    query: str
    target_lag: TargetLag
    columns: tuple[str, ...] = ()
    """The names of the output, where the query's own are not wanted; else empty."""
    refresh_mode: RefreshMode = RefreshMode.AUTO
    strict: bool = False
    """Never reinitialise by itself: fail instead."""
    cardinality_threshold: float = DEFAULT_THRESHOLD
    initialize: Initialize = Initialize.ON_CREATE
    scheduler: bool = True
    priority: int = 0
    spark_profile: str | None = None
    dialect: Dialect = Dialect.DUCKDB
    partition_by: tuple[str, ...] = ()
    comment: str | None = None


def _counted(count: int, unit: str) -> str:
    return f"{count} {unit}{'' if count == 1 else 's'}"
