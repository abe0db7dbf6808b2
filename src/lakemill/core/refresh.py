"""The words of a refresh: how a dynamic table stands, who asked, what was done, how it ended.

One vocabulary for plans, history, metrics and people (DESIGN: section 2); the values are what PostgreSQL holds.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """Of a dynamic table."""

    PENDING_INIT = "PENDING_INIT"  # declared, not loaded yet
    ACTIVE = "ACTIVE"
    SUSPENDED = "SUSPENDED"  # by somebody
    SUSPENDED_DUE_TO_ERRORS = "SUSPENDED_DUE_TO_ERRORS"  # its refreshes kept failing
    UPSTREAM_SUSPENDED = "UPSTREAM_SUSPENDED"
    UPSTREAM_FAILED = "UPSTREAM_FAILED"
    STALE = "STALE"  # its frontier no longer holds expiry: it will be loaded anew


class Trigger(Enum):
    SCHEDULED = "SCHEDULED"
    MANUAL = "MANUAL"
    CREATION = "CREATION"


class Action(Enum):
    INITIALIZE = "INITIALIZE"  # first load, no delta read
    NO_DATA = "NO_DATA"  # nothing that it reads changed
    APPEND = "APPEND"  # only inserts, written as they are
    DELTA = "DELTA"  # signed rows computed from signed rows
    MERGE = "MERGE"  # stored state combined with the delta
    KEYS = "KEYS"  # affected keys recomputed from the sources
    FULL = "FULL"  # whole query, minimal diff written
    REINITIALIZE = "REINITIALIZE"  # as FULL, because history can't be used


DELTAS = frozenset({Action.APPEND, Action.DELTA, Action.MERGE, Action.KEYS})
WHOLE = frozenset({Action.INITIALIZE, Action.FULL, Action.REINITIALIZE})


class Outcome(Enum):
    EXECUTING = "EXECUTING"  # not yet one
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"
    UPSTREAM_FAILED = "UPSTREAM_FAILED"
