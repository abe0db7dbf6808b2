"""``python -m tests.fuzz --histories N --seed S``: random histories against Lakemill.

One Spark session checks them all; stock histories are written ahead by ``--jobs`` processes. With ``-v`` a failure is
printed with its whole log; ``--keep`` leaves its database and files. Exit code 1 when a history failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from lakemill.settings import Settings
from lakemill.spark import session
from lakemill.store.embedded import EmbeddedPostgres
from tests.fuzz.run import Options, run

SPARK = {
    "spark.master": "local[2]",
    "spark.driver_memory": "1g",
    "spark.profile": "batch",
    "spark.conf": {"spark.python.sql.dataFrameDebugging.enabled": "false"},  # half of the talk between Python and Java
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--histories", type=int, default=60, help="how many, half of each kind")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--only", type=int, nargs="+", help="these seeds")
    parser.add_argument("--kind", choices=("stock", "mixed", "both"), default="both")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="writing processes")
    parser.add_argument("--frames", type=int, default=8, help="plans that Spark runs per stock history; 0: all")
    parser.add_argument("--keep", action="store_true", help="keep the databases and files of failed histories")
    parser.add_argument("-v", "--verbose", action="store_true")
    given = parser.parse_args()
    started = time.monotonic()
    root = Path(tempfile.mkdtemp(prefix="lakemill-fuzz-"))
    dsn = os.environ.get("LAKEMILL_TEST_POSTGRES")
    server = None if dsn else EmbeddedPostgres(root / "postgres", fast=True)
    try:
        options = Options(dsn or server.start(), root, given.jobs, given.frames or None, given.keep, given.verbose)  # type: ignore[union-attr]
        session.start(Settings.load(root, SPARK))
        kinds = ("stock", "mixed") if given.kind == "both" else (given.kind,)
        seeds = given.only or range(given.seed, given.seed + -(-given.histories // len(kinds)))
        report = run(kinds, seeds, options)
        print(report.text(given.verbose))
        print(f"{time.monotonic() - started:.0f} s")
        return 1 if report.failed else 0
    finally:
        session.stop()
        if not given.keep:
            if server is not None:
                server.remove()
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.exit(main())
