"""A refresh in a process of its own, which kills itself at a named point: ``python -m tests.refresh.child ROOT STAGE``.

``claimed``: it has the claim; ``looking``: it asks what changed; ``planned``: it knows what to do; ``computing``: Spark
is at work; ``staged``: all files are there, and no lock is held; ``bookkept``: all is written, COMMIT comes next;
``committed``: COMMIT was answered, and nobody was told. It prints the point first. Its claim lives for seconds.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import lakemill
from lakemill.core.names import parse_name
from lakemill.runtime import refresh
from lakemill.settings import Settings


def main(root: str, stage: str) -> None:
    short = {"service.claim_expiry": "3s", "service.heartbeat": "500ms"}
    settings = Settings.load(Path(root), {"duck.threads": 1, "spark.master": "local[2]", **short})
    with lakemill.open(settings) as lake:

        def die(*_: Any) -> Any:
            print(stage, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

        if stage == "claimed":
            refresh.Refresh._attempt = die  # type: ignore[method-assign]
        elif stage == "looking":
            refresh.Refresh.planned = die  # type: ignore[method-assign]
        elif stage == "planned":
            planned = refresh.Refresh.planned
            refresh.Refresh.planned = lambda self: (planned(self), die())[0]  # type: ignore[method-assign]
        elif stage == "computing":
            threading.Thread(target=_at_work, args=(lake, die), daemon=True).start()
        else:
            lake.publisher._trace = lambda reached: die() if reached == stage else None
        print(refresh.refresh(lake, [parse_name("copy")]))


def _at_work(lake: lakemill.Lake, die: Any) -> None:
    """As soon as the refresh has a job of Spark's under way."""
    tracker = lake.spark.sparkContext.statusTracker()
    while not tracker.getActiveStageIds():
        time.sleep(0.001)
    die()


if __name__ == "__main__":
    main(*sys.argv[1:])
