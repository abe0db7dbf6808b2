"""What Spark says when it was stopped because nobody was there to work, as one error of ours.

Whoever stops it (``spark/executors``) gives these words as the reason, and Spark repeats them in what it raises. It
reads texts and imports no engine, so that the command line can ask it too.
"""

from __future__ import annotations

import re

from lakemill.errors import EngineUnreachable

NO_EXECUTORS = "LAKEMILL_NO_EXECUTORS"
_REMEDY = (
    "check that the cluster has free workers and memory for spark.executor.memory and spark.executor.cores,"
    " or wait longer (spark.executor_wait)"
)


def explain_stopped(text: str) -> EngineUnreachable | None:
    """None where it is about something else."""
    found = re.search(rf"{NO_EXECUTORS} for (\S+ s)", text)
    if found is None:
        return None
    return EngineUnreachable(f"Spark's cluster gave no executor for {found[1]}", remedy=_REMEDY)
