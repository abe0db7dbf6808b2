"""``python -m tests.refresh --courses N --seed S``: random courses of dynamic tables, DuckDB as the judge.

``--jobs`` processes share them, some courses at a time, which have a Spark session and a lake of their own, and every
course a schema of its own. A failure is run again with less in it, and printed with its seed and what was told to the
lake; then exit code 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from tests.refresh.run import run

PER_LAKE = 50  # a catalog that grows for ever would slow the last courses down


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.refresh", description=__doc__)
    parser.add_argument("--courses", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--only", type=int, nargs="+", help="these seeds")
    parser.add_argument("--query", nargs="+", default=(), help="with these queries, by name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("-v", "--verbose", action="store_true")
    given = parser.parse_args()
    seeds = list(given.only or range(given.seed, given.seed + given.courses))
    started, done, failed, told = time.monotonic(), 0, 0, Counter[str]()
    size = min(PER_LAKE, -(-len(seeds) // given.jobs))
    parts = [seeds[first : first + size] for first in range(0, len(seeds), size)]
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        running = {pool.submit(run, part, tuple(given.query), given.verbose): part for part in parts}
        for part in as_completed(running):
            wrong, did = part.result()
            done, failed, told = done + len(running[part]), failed + wrong, told + did
            print(f"{time.strftime('%H:%M:%S')} {done} courses, {failed} failed", flush=True)
    print(f"{len(seeds)} courses, {failed} failed; {dict(told)}; {time.monotonic() - started:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
