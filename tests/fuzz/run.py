"""A run: write histories, check each, forget those that passed."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from psycopg.conninfo import make_conninfo

from tests.fuzz.check import check_history, open_lake
from tests.fuzz.generate import generate
from tests.fuzz.history import History, forget
from tests.fuzz.kinds import count_kinds
from tests.fuzz.mixed import check_mixed
from tests.fuzz.report import Report

SPARK = {"spark.master": "local[2]", "spark.driver_memory": "1g"}


@dataclass(frozen=True, slots=True)
class Options:
    """``frames``: how many plans of a stock history Spark runs (None: all)."""

    server: str
    root: Path
    jobs: int = 1
    frames: int | None = 8
    keep: bool = False
    verbose: bool = False


def run(kinds: Sequence[str], histories: int, seed: int, options: Options) -> Report:
    report = Report()
    seeds = range(seed, seed + histories)
    if "stock" in kinds:
        for number, written in generate(seeds, options.server, options.root, options.jobs):
            count(report, "stock")
            if isinstance(written, History):
                check_stock(written, report, options)
            elif written == "aborted":
                report.lost["the extension aborted its process"] += 1
            else:
                report.fail("stock", number, [written], [])
    if "mixed" in kinds:
        for number in seeds:
            count(report, "mixed")
            try:
                check_mixed(number, report, options)
            except Exception:
                report.fail("mixed", number, [last_lines()], [])
    return report


def check_stock(history: History, report: Report, options: Options) -> None:
    failed = len(report.failed)
    try:
        with open_lake(history, make_conninfo(options.server, dbname=history.name), SPARK) as lake:
            verdict = check_history(history, lake, Random(history.seed), options.frames)
            report.add(history, verdict, count_kinds(lake.conn))
    except Exception:
        report.fail(history.kind, history.seed, [*history.failures, last_lines()], history.log)
    if not (options.keep and len(report.failed) > failed):
        forget(history, options.server)


def count(report: Report, kind: str) -> None:
    report.histories[kind] += 1
    done = sum(report.histories.values())
    if done % 20 == 0:
        print(f"… {done} histories, {len(report.failed)} failed", flush=True)


def last_lines() -> str:
    """The end of the exception in hand: what it says, and where."""
    text = traceback.format_exc(limit=-4).strip().splitlines()
    return " | ".join(line.strip() for line in reversed(text[1:]))[:2000]
