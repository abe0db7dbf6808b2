"""Batches in a process of its own, which ends where it is told: ``python -m tests.ingest.child ROOT …``.

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

import lakemill
from lakemill.settings import Settings
from tests.ingest.by_hand import pass_by_hand

QUICK = {"service.retry_base": "1ms", "service.retry_cap": "1ms"}
SHORT = {"ingest.claim_expiry": "4s"}


def main(root: str, how: str, step: str = "") -> None:
    claim = {} if how == "by hand" else SHORT  # nothing keeps the claim of the one alive but its length
    settings = Settings.load(Path(root), {"duck.threads": 1, "spark.master": "local[1]", **QUICK, **claim})
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


def _at(step: str, how: signal.Signals) -> Callable[[str], None]:
    def trace(reached: str) -> None:
        if reached == step:
            print(reached, flush=True)
            os.kill(os.getpid(), how)

    return trace


if __name__ == "__main__":
    main(*sys.argv[1:])
