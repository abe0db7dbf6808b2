"""Ask Lakemill what stock DuckDB's history says, and compare.

Every readable snapshot is scanned and random (a, b] are asked as deltas. Planning is per question; the frames of one
history are unioned into one Spark job, each row tagged with its question. Types stay typed on the way: the union has a
slot for every Spark type, and a frame fills those that it has. Questions whose plans are equal share a frame.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import lakemill
from lakemill.errors import LakemillError
from lakemill.settings import Settings
from tests.fuzz.doubt import Doubts
from tests.fuzz.history import History
from tests.fuzz.truth import Bag, Column, Defaults, Row, State, canonical, convert, difference

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakemill.core.scan import ReadPlan
    from lakemill.runtime.open import Lake

DELTAS_PER_TABLE = 5


@dataclass(frozen=True, slots=True)
class Question:
    table: str
    a: int | None
    b: int

    def __str__(self) -> str:
        return f"{self.table} at {self.b}" if self.a is None else f"{self.table} over ({self.a}, {self.b}]"


@dataclass(slots=True)
class Verdict:
    """What was asked of one history and how it went; ``failures`` are lines for people."""

    scans: int = 0
    deltas: int = 0
    frames: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def open_lake(history: History, dsn: str, spark_flags: dict[str, object] | None = None) -> Lake:
    (history.root / "lakemill.toml").write_text(f'[lake]\npostgres = "{dsn}"\ndata_path = "{history.root}/data/"\n')
    return lakemill.open(Settings.load(history.root, {"duck.threads": 1, **(spark_flags or {})}))


def check_history(history: History, lake: Lake, rng: Random, defaults: Defaults) -> Verdict:
    verdict = Verdict()
    doubts = Doubts(history, lake)
    answered: dict[Any, list[Question]] = defaultdict(list)
    frames: dict[Any, DataFrame] = {}
    for question in questions(history, lake, rng):
        table = lake.table(f"main.{question.table}")
        try:
            plan = table.plan_scan(question.b) if question.a is None else table.plan_delta(question.a, question.b)
            key = plan_key(plan)
            if key not in frames:
                frames[key] = table.frame(plan)
        except LakemillError as error:
            judge_refusal(history, question, error, doubts, verdict)
            continue
        answered[key].append(question)
    keys = list(frames)
    for number, rows in enumerate(collect([frames[key] for key in keys])):
        for question in answered[keys[number]]:
            compare(history, question, rows, defaults, verdict)
    verdict.frames = len(frames)
    return verdict


def questions(history: History, lake: Lake, rng: Random) -> Iterable[Question]:
    """Every readable snapshot, and random deltas between readable ones where the table is the same."""
    found = lake.conn.execute("SELECT snapshot_id FROM ducklake_snapshot ORDER BY 1").fetchall()
    readable = [snapshot for (snapshot,) in found if snapshot in history.truth.states]
    ids: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for snapshot in readable:
        for name, state in history.truth.states[snapshot].items():
            if not history.truth.is_lost(name, snapshot):
                yield Question(name, None, snapshot)
                ids[name][state.table_id].append(snapshot)
    for name, by_id in ids.items():
        for snapshots in by_id.values():
            pairs = [(a, b) for i, a in enumerate(snapshots) for b in snapshots[i + 1 :]]
            chosen = rng.sample(pairs, min(DELTAS_PER_TABLE, len(pairs)))
            for a, b in {*chosen, *((snapshots[0], snapshots[-1]) for _ in pairs[:1])}:
                yield Question(name, a, b)


def plan_key(plan: ReadPlan) -> Any:
    """Equal keys read equal rows: the ends matter only where rows are stamped, or in a delta."""
    stamped = any(read.file.partial_max is not None for read in plan.files) or plan.a is not None
    ends = (plan.a, plan.b) if stamped else None
    inlined = repr(plan.inlined_rows)
    files = tuple((read.file.id, read.file.path, read.at_a, read.at_b) for read in plan.files)
    deletes = tuple((d.file.id, d.file.path, d.cut_a, d.cut_b) for d in plan.deletes)
    return (plan.table.id, plan.table.columns, files, deletes, plan.inlined_deletes, inlined, ends)


def judge_refusal(
    history: History, question: Question, error: LakemillError, doubts: Doubts, verdict: Verdict
) -> None:
    """A refusal is right only where the catalog leaves a delete's commit in doubt or the extension lost the table."""
    verdict.refused[error.code] += 1
    if error.code == "DELETE_IN_DOUBT" and doubts.real(question.table, question.a, question.b):
        return
    if error.code == "CATALOG_INCONSISTENT" and question.table in history.truth.lost:
        return
    verdict.failures.append(f"{question}: refused: {error}")


def compare(
    history: History, question: Question, rows: Sequence[tuple[Any, ...]], defaults: Defaults, verdict: Verdict
) -> None:
    state = history.truth.states[question.b][question.table]
    if question.a is None:
        verdict.scans += 1
        got = dict(bag(state.columns, rows))
        wanted = dict(state.rows)
    else:
        verdict.deltas += 1
        before = history.truth.states[question.a][question.table]
        wanted = difference(state.rows, convert(before, state.columns, defaults))
        got = {}
        for *values, weight in rows:
            row = canonical_row(state.columns, values)
            if row in got:
                verdict.failures.append(f"{question}: not consolidated: {row}")
            got[row] = got.get(row, 0) + weight
    if got != wanted:
        verdict.failures.append(f"{question}: {explain(got, wanted, state)}")


def explain(got: dict[Row, int], wanted: dict[Row, int], state: State) -> str:
    """What is missing and what is too much, in few words."""
    off = difference(Counter(got), Counter(wanted))
    more = [(row, weight) for row, weight in off.items() if weight > 0]
    less = [(row, -weight) for row, weight in off.items() if weight < 0]
    names = [f"{column.name}:{column.type}#{column.id}" for column in state.columns]
    return (
        f"{sum(w for _, w in more)} rows too many {[r for r, _ in more[:2]]}, "
        f"{sum(w for _, w in less)} missing {[r for r, _ in less[:2]]}; columns {names}"
    )


def bag(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> Bag:
    return Counter(canonical_row(columns, row) for row in rows)


def canonical_row(columns: Sequence[Column], values: Sequence[Any]) -> Row:
    return tuple(canonical(column, value) for column, value in zip(columns, values, strict=True))


# ---------------------------------------------------------------- many frames, one job
def collect(frames: Sequence[DataFrame]) -> list[list[tuple[Any, ...]]]:
    """The rows of every frame, by one Spark job."""
    if not frames:
        return []
    layout, places = slots(frames)
    tagged = [
        frame.toDF(*(f"c{i}" for i in range(len(frame.columns)))).select(
            F.lit(number).alias("tag"),
            *(
                (F.col(f"c{filled[slot]}") if slot in filled else F.lit(None).cast(type_)).alias(f"s{slot}")
                for slot, type_ in enumerate(layout)
            ),
        )
        for number, (frame, filled) in enumerate(zip(frames, places, strict=True))
    ]
    table = union(tagged).toArrow()
    tags = table.column(0).to_pylist()
    columns = [table.column(i + 1).to_pylist() for i in range(len(layout))]
    out: list[list[tuple[Any, ...]]] = [[] for _ in frames]
    order = [[slot for _, slot in sorted((position, slot) for slot, position in filled.items())] for filled in places]
    for index, tag in enumerate(tags):
        out[tag].append(tuple(columns[slot][index] for slot in order[tag]))
    return out


def slots(frames: Sequence[DataFrame]) -> tuple[list[Any], list[dict[int, int]]]:
    """One slot per type and occurrence in a frame; for each frame: slot → position of its column."""
    layout: list[Any] = []
    known: dict[str, list[int]] = defaultdict(list)
    places = []
    for frame in frames:
        used: Counter[str] = Counter()
        filled = {}
        for position, column in enumerate(frame.schema.fields):
            name = column.dataType.simpleString()
            if used[name] == len(known[name]):
                known[name].append(len(layout))
                layout.append(column.dataType)
            filled[known[name][used[name]]] = position
            used[name] += 1
        places.append(filled)
    return layout, places


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """A balanced tree, so that the plan stays shallow."""
    level = list(frames)
    while len(level) > 1:
        level = [
            level[i].unionAll(level[i + 1]) if i + 1 < len(level) else level[i] for i in range(0, len(level), 2)
        ]
    return level[0]
