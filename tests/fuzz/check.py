"""Ask Lakemill what a history says, and compare with its truth.

Every readable snapshot is a question, and so are random (a, b]. Each is planned and the plan is evaluated in Python;
then Spark runs a sample of the plans (or all), the frames of one history unioned into one job, each row tagged with its
question. Types stay typed on the way: the union has a slot for every Spark type, and a frame fills those that it has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

import lakemill
from lakemill.errors import LakemillError
from lakemill.lake.inlined import inlined_table
from lakemill.settings import Settings
from tests.fuzz.doubt import Doubts
from tests.fuzz.evaluate import Evaluator
from tests.fuzz.history import History, first_line
from tests.fuzz.sandbox import parse_default
from tests.fuzz.truth import Column, Defaults, Row, State, canonical, convert, difference
from tests.fuzz.values import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakemill.core.scan import ReadPlan
    from lakemill.runtime.open import Lake

DELTAS_PER_TABLE = 5
# Frames of a hundred rows: planning and compiling them is all the work. Every tenth history runs as users run it.
QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.shuffle.partitions": "1",
}
USUAL = QUICK | {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.shuffle.partitions": "2",
}


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


def open_lake(history: History, dsn: str) -> Lake:
    (history.root / "lakemill.toml").write_text(f'[lake]\npostgres = "{dsn}"\ndata_path = "{history.root}/data/"\n')
    conf = QUICK if history.seed % 10 else USUAL
    return lakemill.open(Settings.load(history.root, {"duck.threads": 1, "spark.conf": conf}))


def check_history(history: History, lake: Lake, rng: Random, frames: int | None) -> Verdict:
    """All questions by plan, and ``frames`` of the distinct plans (None: all) by Spark."""

    def parse(type_: str, text: str) -> Any:
        return parse_default(lake.duck, type_, text)

    verdict = Verdict()
    defaults = Defaults(parse)
    evaluator = Evaluator(defaults, parse)
    doubts = Doubts(history, lake)
    asked: dict[Any, tuple[ReadPlan, list[Question]]] = {}
    for question in questions(history, lake, rng):
        state = history.truth.states[question.b][question.table]
        table = lake.table(f"main.{quote(state.name)}")
        try:
            plan = table.plan_scan(question.b) if question.a is None else table.plan_delta(question.a, question.b)
            inlined = [inlined_table(lake.duck, rows, plan.table.columns, plan.b) for rows in plan.inlined_rows]
        except LakemillError as error:
            judge_refusal(history, question, error, doubts, verdict)
            continue
        got = evaluator.weights(plan, state.columns, inlined)
        if got != (wanted := answer(history, question, defaults)):
            verdict.failures.append(f"{question}: plan: {explain(got, wanted, state)}")
        verdict.scans += question.a is None
        verdict.deltas += question.a is not None
        asked.setdefault(plan_key(plan), (plan, []))[1].append(question)
    check_replaced(history, lake, verdict)
    check_by_spark(history, lake, rng, frames, asked, defaults, verdict)
    return verdict


def check_replaced(history: History, lake: Lake, verdict: Verdict) -> None:
    """A delta over the replacement of a table must be refused for that reason."""
    found = lake.conn.execute("SELECT snapshot_id FROM ducklake_snapshot ORDER BY 1").fetchall()
    last: dict[str, dict[int, tuple[int, str]]] = defaultdict(dict)
    for (snapshot,) in found:
        for name, state in history.truth.states.get(snapshot, {}).items():
            last[name][state.table_id] = (snapshot, state.name)
    for by_id in last.values():
        for (a, _), (b, name) in pairwise(sorted(by_id.values())):
            try:
                lake.table(f"main.{quote(name)}").plan_delta(a, b)
            except LakemillError as error:
                if error.code == "TABLE_REPLACED":
                    continue
                verdict.failures.append(f"{name} over ({a}, {b}]: replaced in between, but refused: {error}")
            else:
                verdict.failures.append(f"{name} over ({a}, {b}]: replaced in between, and not refused")


def check_by_spark(
    history: History,
    lake: Lake,
    rng: Random,
    limit: int | None,
    asked: dict[Any, tuple[ReadPlan, list[Question]]],
    defaults: Defaults,
    verdict: Verdict,
) -> None:
    chosen = list(asked.values())
    if limit is not None and len(chosen) > limit:
        chosen = rng.sample(chosen, limit)
    frames = [lake.table(f"main.{quote(plan.table.name)}").frame(plan) for plan, _ in chosen]
    try:
        answers = collect(frames)
    except Exception as error:  # one bad frame fails the whole job: find it
        answers = []
        for (_, found), frame in zip(chosen, frames, strict=True):
            try:
                answers += collect([frame])
            except Exception as own:
                verdict.failures.append(f"{found[0]}: Spark: {first_line(own)}")
                answers.append([])
        if not verdict.failures:
            verdict.failures.append(f"Spark failed on the union only: {first_line(error)}")
    verdict.frames += len(frames)
    for (_, found), rows in zip(chosen, answers, strict=True):
        for question in found:
            compare(history, question, rows, defaults, verdict)


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
    stamped = plan.a is not None or any((read.file.partial_max or 0) > plan.b for read in plan.files)
    ends = (plan.a, plan.b) if stamped else None
    inlined = repr(plan.inlined_rows)
    files = tuple((read.file.id, read.file.path, read.at_a, read.at_b) for read in plan.files)
    deletes = tuple((d.file.id, d.file.path, d.cut_a, d.cut_b) for d in plan.deletes)
    return (plan.table.id, plan.table.columns, files, deletes, plan.inlined_deletes, inlined, ends)


def judge_refusal(history: History, question: Question, error: LakemillError, doubts: Doubts, verdict: Verdict) -> None:
    """A refusal is right only where the catalog leaves a delete's commit in doubt or the extension lost the table."""
    verdict.refused[error.code] += 1
    if error.code == "DELETE_IN_DOUBT" and doubts.real(question.table, question.a, question.b):
        return
    if error.code == "CATALOG_INCONSISTENT" and question.table in history.truth.lost:
        return
    verdict.failures.append(f"{question}: refused: {error}")


def answer(history: History, question: Question, defaults: Defaults) -> dict[Row, int]:
    """The truth: rows and their copies, or signed rows."""
    states = history.truth.states
    state = states[question.b][question.table]
    if question.a is None:
        return dict(state.rows)
    return difference(state.rows, convert(states[question.a][question.table], state.columns, defaults))


def compare(
    history: History, question: Question, rows: Sequence[tuple[Any, ...]], defaults: Defaults, verdict: Verdict
) -> None:
    state = history.truth.states[question.b][question.table]
    got: dict[Row, int] = {}
    for row in rows:
        *values, weight = row if question.a is not None else (*row, 1)
        key = canonical_row(state.columns, values)
        if question.a is not None and key in got:
            verdict.failures.append(f"{question}: Spark: not consolidated: {key}")
        got[key] = got.get(key, 0) + weight
    if got != (wanted := answer(history, question, defaults)):
        verdict.failures.append(f"{question}: Spark: {explain(got, wanted, state)}")


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
        level = [level[i].unionAll(level[i + 1]) if i + 1 < len(level) else level[i] for i in range(0, len(level), 2)]
    return level[0]
