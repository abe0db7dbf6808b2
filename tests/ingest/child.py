"""Requests and batches in a process that ends where it is told: ``python -m tests.ingest.child ROOT …``.

``accept STEP``: one request for table t, under the step as its key; it kills itself at the step.
``by hand STEP``: without Spark, one batch of table t, whose file is written here; it kills itself at the step.
``at command``: with Spark; each line of its input is a step and a signal (``- -`` for none): it makes a batch, sends
itself the signal at that step, and prints what came of it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lakemill
from lakemill.core.names import parse_name
from lakemill.runtime.bodies import Given
from lakemill.runtime.ingest import Ingest
from lakemill.settings import Settings
from lakemill.store import db
from lakemill.store.bus import QUERIES, PostgresBus
from tests.ingest.by_hand import pass_by_hand

QUICK = {"service.retry_base": "1ms", "service.retry_cap": "1ms"}
SHORT = {"ingest.claim_expiry": "4s"}

ACCEPTING = ("begun", "BEGIN", "ensure_tables", "lock_head", "known_requests", "write", "COMMIT")
"""The steps of an acceptance, each after it happened: statements of the bus, in their order."""
NAMES = {QUERIES[name].text if name.islower() else name: name for name in ACCEPTING[1:]}


def main(root: str, how: str, step: str = "") -> None:
    claim = {} if how == "by hand" else SHORT  # nothing keeps the claim of the one alive but its length
    settings = Settings.load(Path(root), {"duck.threads": 1, "spark.master": "local[1]", **QUICK, **claim})
    if how == "accept":
        accept(settings, step)
        return
    with lakemill.open(settings) as lake:
        if how == "by hand":
            print(pass_by_hand(lake, "t", _at(step, signal.SIGKILL)), flush=True)
            return
        from lakemill.runtime.materialise import materialise, warm

        warm(lake)
        print("ready", flush=True)
        for line in sys.stdin:
            step, name = line.split()
            lake.publisher._trace = _at(step, signal.Signals[name]) if name != "-" else lambda _: None
            print("passed" if materialise(lake, lake.table("t").describe().id) else "nothing", flush=True)


def request(step: str) -> Given:
    """Of one record, under the step's name."""
    return Given([f'{{"k":{ACCEPTING.index(step)}}}'.encode()], key=step)


def accept(settings: Settings, step: str) -> None:
    trace = _at(step, signal.SIGKILL)
    dsn = settings.lake.postgres

    def connect() -> db.Connection:
        """One that tells what it has done."""
        conn = db.connect(dsn)
        execute = conn.execute

        def told(query: Any, *words: Any, **options: Any) -> Any:
            done = execute(query, *words, **options)
            trace(NAMES.get(query if isinstance(query, str) else query.as_string(), ""))
            return done

        conn.execute = told  # type: ignore[method-assign]
        return conn

    with Ingest(settings, bus=PostgresBus(connect)) as ingest:
        trace("begun")
        print(ingest.ingest(parse_name("t"), request(step)), flush=True)


def _at(step: str, how: signal.Signals) -> Callable[[str], None]:
    def trace(reached: str) -> None:
        if reached == step:
            print(reached, flush=True)
            os.kill(os.getpid(), how)

    return trace


if __name__ == "__main__":
    main(*sys.argv[1:])
