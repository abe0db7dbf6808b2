"""A run: write histories, check each, forget those that passed."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from unittest import mock

import duckdb
from psycopg.conninfo import make_conninfo

from tests.fuzz.check import Verdict, check_history, open_lake
from tests.fuzz.generate import generate
from tests.fuzz.history import History, first_line, forget
from tests.fuzz.kinds import count_kinds
from tests.fuzz.mixed import check_mixed
from tests.fuzz.report import Report
from tests.fuzz.sandbox import unchecked


@dataclass(frozen=True, slots=True)
class Options:
    """``frames``: how many plans of a stock history Spark runs (None: all)."""

    server: str
    root: Path
    jobs: int = 1
    frames: int | None = 8
    keep: bool = False
    verbose: bool = False


def run(kinds: Sequence[str], seeds: Sequence[int], options: Options) -> Report:
    report = Report()
    with mock.patch.object(duckdb, "connect", unchecked):  # Lakemill's own too
        if "stock" in kinds:
            run_stock(seeds, report, options)
        if "mixed" in kinds:
            run_mixed(seeds, report, options)
    return report


def run_stock(seeds: Sequence[int], report: Report, options: Options) -> None:
    for number, written in generate(seeds, options.server, options.root, options.jobs):
        if isinstance(written, History):
            check_stock(written, report, options)
        elif written == "aborted":
            report.lost["the extension aborted its process"] += 1
        else:
            report.fail("stock", number, [written], [])
        count(report, "stock")


def run_mixed(seeds: Sequence[int], report: Report, options: Options) -> None:
    """Threads, because they share one Spark session, and each waits most of its time for others."""

    def one(seed: int) -> tuple[History, Verdict, Counter[str]] | str:
        try:
            return check_mixed(seed, options)
        except Exception as error:
            return last_lines(error)

    with ThreadPoolExecutor(options.jobs + 1) as pool:
        for number, checked in zip(seeds, pool.map(one, seeds), strict=True):
            if isinstance(checked, str):
                report.fail("mixed", number, [checked], [])
            else:
                report.add(*checked)
            count(report, "mixed")


def check_stock(history: History, report: Report, options: Options) -> None:
    failed = len(report.failed)
    try:
        with open_lake(history, make_conninfo(options.server, dbname=history.name)) as lake:
            verdict = check_history(history, lake, Random(history.seed), options.frames)
            report.add(history, verdict, count_kinds(lake.conn))
    except Exception as error:
        report.fail(history.kind, history.seed, [*history.failures, last_lines(error)], history.log)
    if not (options.keep and len(report.failed) > failed):
        forget(history, options.server)


def count(report: Report, kind: str) -> None:
    report.histories[kind] += 1
    done = sum(report.histories.values())
    if done % 20 == 0:
        print(f"{datetime.now():%H:%M:%S} {done} histories, {len(report.failed)} failed", flush=True)


def last_lines(error: Exception) -> str:
    """What it says, and where."""
    places = traceback.extract_tb(error.__traceback__)[-4:]
    words = [f"{place.filename}:{place.lineno} {place.line}" for place in reversed(places)]
    return " | ".join([f"{type(error).__name__}: {first_line(error)}", *words])
