"""What a run did, for people: how often everything occurred, and each failure with the way to see it again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.fuzz.check import Verdict
from tests.fuzz.history import History, shorten

LINE = 150


@dataclass(slots=True)
class Report:
    histories: Counter[str] = field(default_factory=Counter)
    snapshots: int = 0
    questions: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    refused_by_extension: Counter[str] = field(default_factory=Counter)
    refused_by_lakemill: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[str, int, list[str], list[str]]] = field(default_factory=list)

    def add(self, history: History, verdict: Verdict, kinds: Counter[str]) -> None:
        self.snapshots += len(history.truth.states)
        self.questions.update(scans=verdict.scans, deltas=verdict.deltas, frames=verdict.frames)
        self.operations.update(history.operations)
        self.kinds.update(kinds)
        self.refused_by_extension.update(history.refused)
        self.refused_by_lakemill.update(verdict.refused)
        self.lost.update(shorten(why) for _, why in history.truth.lost.values())
        if failures := history.failures + verdict.failures:
            self.fail(history.kind, history.seed, failures, history.log)

    def fail(self, kind: str, seed: int, failures: list[str], log: list[str]) -> None:
        print(f"✗ {kind} {seed}: {failures[0][:LINE]}", flush=True)
        self.failed.append((kind, seed, failures, log))

    def text(self, verbose: bool = False) -> str:
        lines = [
            f"{sum(self.histories.values())} histories {dict(self.histories)}, {self.snapshots} snapshots; "
            f"asked {self.questions['scans']} scans, {self.questions['deltas']} deltas; "
            f"{self.questions['frames']} by Spark",
            *section("operations", self.operations),
            *section("files and rows at the end", self.kinds),
            *section("refused by the extension", self.refused_by_extension, 12),
            *section("lost by the extension", self.lost),
            *section("refused by Lakemill", self.refused_by_lakemill),
        ]
        for kind, seed, failures, log in self.failed:
            lines += ["", f"FAILED: python -m tests.fuzz --kind {kind} --seed {seed} --histories 1 -v --keep"]
            lines += [f"  {failure[: 2000 if verbose else 600]}" for failure in failures[: 20 if verbose else 4]]
            if verbose:
                lines += [f"    {entry}" for entry in log]
            elif log:
                lines += [f"    {entry[:LINE]}" for entry in log[-25:]]
        lines.append(f"{len(self.failed)} of {sum(self.histories.values())} histories failed")
        return "\n".join(lines)


def section(title: str, counts: Counter[str], most: int | None = None) -> list[str]:
    found = [(name, count) for name, count in counts.most_common(most) if count]
    return [f"{title}:", *(f"  {count:>7} {name}" for name, count in found)] if found else []
