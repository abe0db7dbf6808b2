"""The ids of publishes: which became which snapshot. They are written inside a publish, and only forgotten here.

A row answers whoever lost the answer to a COMMIT, and keeps the same files from being published twice; a void row keeps
a transaction that was given up from ever committing. So a row may go only when nobody can ask for it any more.
"""

from __future__ import annotations

from datetime import timedelta

from lakemill.store.db import Executor
from lakemill.store.queries import load_queries

QUERIES = load_queries("publishes")


def forget_publishes(where: Executor, age: timedelta) -> int:
    """Ids that are older, by the clock of the server; how many went."""
    return where.execute(QUERIES["forget_publishes"].compose(), {"age": age}).rowcount
