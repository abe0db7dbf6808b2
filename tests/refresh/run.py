"""Some random courses, one after the other, on a lake and in a Spark session of their own."""

from __future__ import annotations

import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import lakemill
from lakemill.lake import duck
from lakemill.settings import Settings
from lakemill.spark import session
from lakemill.store.embedded import EmbeddedPostgres
from tests.fuzz.__main__ import SPARK
from tests.refresh.course import Course

FEW = 20


def smaller(course: Course, error: Exception) -> tuple[Course, Exception]:
    """The course with fewer rounds and without a writer, as far as it still fails."""
    for attempt, (rounds, alone) in enumerate(((1, True), (1, False), (course.rounds, True)), 1):
        other = Course(course.lake, course.seed, course.given, rounds, alone, attempt)
        try:
            other.run()
        except Exception as again:
            return other, again
    return course, error


def run(seeds: Sequence[int], queries: tuple[str, ...], verbose: bool) -> tuple[int, Counter[str]]:
    """These courses, on a lake of their own: how many failed, and what refreshes did, and why."""
    failed, told = 0, Counter[str]()
    root = Path(tempfile.mkdtemp(prefix="lakemill-refresh-"))
    server = EmbeddedPostgres(root / ".lakemill" / "postgres", fast=True)
    try:
        # a JVM that lives for hundreds of courses is worth its second compiler, which takes half a minute
        profile = "batch" if len(seeds) > FEW else "small"
        settings = Settings.load(root, {**SPARK, "spark.profile": profile})
        with duck.connect(settings, server.start(), create=True, inline=0) as connection:
            connection.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
        with lakemill.open(settings) as lake:
            for seed in seeds:
                course = Course(lake, seed, queries)
                try:
                    course.run()
                except Exception as error:
                    failed += 1
                    course, error = smaller(course, error)
                    print(f"✗ {seed} {course.names}: {str(error)[:600]}")
                    print(f"  in {course.rounds} rounds, {'alone' if course.alone else 'with a writer'}")
                    print("\n".join(f"  {line}" for line in course.log), flush=True)
                    if verbose:
                        traceback.print_exception(error)
                told.update(action for _, action in course.actions)
                told.update(course.reasons)
    finally:
        session.stop()
        server.remove()
        shutil.rmtree(root, ignore_errors=True)
    return failed, told
