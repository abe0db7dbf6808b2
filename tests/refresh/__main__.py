"""``python -m tests.refresh --courses N --seed S``: random courses of dynamic tables, DuckDB as the judge.

One Spark session runs them all, each in a schema of its own. A failure is run again with less in it, and printed with
its seed and what was told to the lake; then exit code 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import lakemill
from lakemill.lake import duck
from lakemill.settings import Settings
from lakemill.spark import session
from lakemill.store.embedded import EmbeddedPostgres
from tests.fuzz.__main__ import SPARK
from tests.refresh.course import Course

PER_LAKE = 100  # a catalog that grows for ever would slow the last courses down


def smaller(course: Course, error: Exception) -> tuple[Course, Exception]:
    """The course with fewer rounds and without a writer, as far as it still fails."""
    for attempt, (rounds, alone) in enumerate(((1, True), (1, False), (course.rounds, True)), 1):
        other = Course(course.lake, course.seed, course.given, rounds, alone, attempt)
        try:
            other.run()
        except Exception as again:
            return other, again
    return course, error


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.refresh", description=__doc__)
    parser.add_argument("--courses", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--only", type=int, nargs="+", help="these seeds")
    parser.add_argument("--query", nargs="+", default=(), help="with these queries, by name")
    parser.add_argument("-v", "--verbose", action="store_true")
    given = parser.parse_args()
    seeds = list(given.only or range(given.seed, given.seed + given.courses))
    started, failed, actions, reasons = time.monotonic(), 0, Counter[str](), Counter[str]()
    for first in range(0, len(seeds), PER_LAKE):
        some = seeds[first : first + PER_LAKE]
        root = Path(tempfile.mkdtemp(prefix="lakemill-refresh-"))
        server = EmbeddedPostgres(root / ".lakemill" / "postgres", fast=True)
        try:
            settings = Settings.load(root, {**SPARK, "spark.profile": "small"})
            with duck.connect(settings, server.start(), create=True, inline=0) as connection:
                connection.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
            with lakemill.open(settings) as lake:
                for seed in some:
                    course = Course(lake, seed, tuple(given.query))
                    try:
                        course.run()
                    except Exception as error:
                        failed += 1
                        course, error = smaller(course, error)
                        print(f"✗ {seed} {course.names}: {str(error)[:600]}")
                        print(f"  in {course.rounds} rounds, {'alone' if course.alone else 'with a writer'}")
                        print("\n".join(f"  {line}" for line in course.log), flush=True)
                        if given.verbose:
                            traceback.print_exception(error)
                    actions.update(action for _, action in course.actions)
                    reasons.update(course.reasons)
                    done = first + some.index(seed) + 1
                    if done % 10 == 0:
                        print(f"{time.strftime('%H:%M:%S')} {done} courses, {failed} failed", flush=True)
        finally:
            server.remove()
            shutil.rmtree(root, ignore_errors=True)
    session.stop()
    print(
        f"{len(seeds)} courses, {failed} failed; {dict(actions)}; {dict(reasons)}; {time.monotonic() - started:.0f} s",
        flush=True,
    )
    return 1 if failed else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # the JVM's end is not waited for
