"""Measuring side by side: contestants take turns in one process, so that a noisy machine is noisy for all of them.

A figure is the median of its runs; a ratio is the median of the ratios of runs that stood next to each other, which
wobbles less than a ratio of medians. Results are printed as a table and written as JSON.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def take_turns(
    contestants: Mapping[str, Callable[[], Any]], *, rounds: int, warm_up: int = 1
) -> dict[str, list[float]]:
    """Seconds of each contestant in each round; the order is turned round every time."""
    names = list(contestants)
    for _ in range(warm_up):
        for name in names:
            contestants[name]()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            started = time.perf_counter()
            contestants[name]()
            seconds[name].append(time.perf_counter() - started)
    return seconds


def ratio(seconds: Mapping[str, list[float]], mine: str, other: str) -> float:
    return statistics.median(a / b for a, b in zip(seconds[mine], seconds[other], strict=True))


@dataclass(slots=True)
class Report:
    """What was measured: one line per question, with its target where it has one."""

    lines: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self, question: str, figure: str, value: float, *, unit: str, target: str = "", met: bool | None = None
    ) -> None:
        self.lines.append(
            {"question": question, "figure": figure, "value": value, "unit": unit, "target": target, "met": met}
        )
        print(f"  {question} · {figure}: {value:,.3f} {unit} {target}", flush=True)

    def at_most(self, question: str, figure: str, value: float, most: float | None, *, unit: str) -> None:
        """A figure with an upper limit, where it has one."""
        met = None if most is None else value <= most
        self.add(question, figure, value, unit=unit, target="" if most is None else f"≤ {most:.2g}", met=met)

    def finish(self, file: Path) -> None:
        machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"machine": machine, "results": self.lines}, indent=1) + "\n")
        table = Table("question", "figure", "value", "target", "met")
        for line in self.lines:
            met = {True: "yes", False: "no", None: ""}[line["met"]]
            table.add_row(line["question"], line["figure"], f"{line['value']:,.3f} {line['unit']}", line["target"], met)
        Console(width=140).print(table)
        print(json.dumps(self.lines))
        print(f"written to {file}")
