"""A scheduler, or a CREATE, that kills itself at a named point: ``python -m tests.service.child ROOT STAGE``.

``looked``: it knows how all tables stand; ``planned``: what is due is decided; ``enqueuing``: a round is written, and
COMMIT comes next; ``enqueued``: it is there, and no worker was told. ``analysed``: a CREATE knows what it means;
``declared``: its definition is there, and nothing is loaded. It prints the point first. No Spark.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from threading import Event
from typing import Any

import lakemill
from lakemill.core.ddl import parse_definition
from lakemill.runtime import dynamic
from lakemill.runtime.scheduler import Scheduler
from lakemill.settings import Settings
from lakemill.store import definitions, work

SCHEDULING = {
    "looked": (Scheduler, "tick"),
    "planned": (work, "add"),
    "enqueuing": (work, "take_up"),
    "enqueued": (work, "tell"),
}
CREATING = {"analysed": (definitions, "create"), "declared": (dynamic, "refresh")}


def main(root: str, stage: str) -> None:
    settings = Settings.load(Path(root), {"duck.threads": 1})

    def die(*_: Any, **__: Any) -> Any:
        print(stage, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    where, name = (SCHEDULING | CREATING)[stage]
    if stage == "enqueuing":  # with all that it writes itself
        take_up = work.take_up
        setattr(where, name, lambda *words: (take_up(*words), die()))
    else:
        setattr(where, name, die)
    if stage in SCHEDULING:
        Scheduler(settings).run(Event())
    with lakemill.open(settings) as lake:
        dynamic.create(lake, parse_definition(f"CREATE DYNAMIC TABLE {stage} TARGET_LAG = '1 hour' AS SELECT k FROM r"))


if __name__ == "__main__":
    main(*sys.argv[1:])
