"""A simulated week: a thousand tables, their commits, workers and failures, planned by ``core/rounds`` alone.

It goes from event to event as a scheduler does: look after each commit and each end of a job, and at ``next_look``.
What must always hold is asserted where it would break, what must hold in the end, afterwards.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count

import pytest

from lakemill.core.definition import DOWNSTREAM, TargetLag
from lakemill.core.graph import Graph, Node, build_graph
from lakemill.core.lag import ZERO, Commit, Failure, Past, Seen, Standing, Version, attainment, lag
from lakemill.core.names import QualifiedName
from lakemill.core.retry import BACKOFF, retry_at, suspends
from lakemill.core.rounds import ORIGIN, Run, next_look, periods, plan_rounds, shortfalls, slot
from lakemill.errors import Retry, SqlFailed, StorageUnavailable

START = ORIGIN + timedelta(days=20_770)
END = START + timedelta(days=7)
SETTLED = START + timedelta(hours=12)
"""When the first loads are over, with few workers too."""
TICK = timedelta(milliseconds=200)
LAGS = [10, 30, 60, 300, 900, 3600, 6 * 3600, 86400]
VERSIONS = 20
SUSPENDED_FOR = timedelta(hours=3)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


@dataclass
class Table:
    node: Node
    standing: Standing
    component: int
    commits: list[Commit]
    """All that will change what it reads, in order."""
    fails: tuple[datetime, datetime, Retry] | None = None
    clean: bool = True
    """Neither it nor a table that it comes from fails or is suspended."""
    held: list[Version] = field(default_factory=list)
    """All its versions; a standing has the last of them."""
    seen: list[Seen] = field(default_factory=list)
    worst: timedelta = ZERO
    """The most that it ever lagged beyond its target, after the first loads."""


@dataclass
class Job:
    table: Table
    run: Run
    planned: datetime
    previous: datetime | None
    """``round_at`` before this round."""
    missing: int = 0
    dependents: list[Job] = field(default_factory=list)
    ready: datetime = START
    started: datetime = END


History = list[tuple[QualifiedName, Commit]]


@dataclass
class Lake:
    """What is declared, how long each refresh takes, what is committed, who fails from when to when."""

    nodes: list[Node]
    expected: dict[QualifiedName, timedelta]
    history: History
    fails: dict[QualifiedName, tuple[datetime, datetime, Retry]] = field(default_factory=dict)


def random_lake(dice: random.Random, tables: int) -> Lake:
    bases = [QualifiedName("main", f"base{i}") for i in range(max(tables // 10, 5))]
    nodes: list[Node] = []
    while len(nodes) < tables:
        nodes += random_dag(dice, len(nodes), min(dice.choice([1, 2, 4, 8, 16, 30]), tables - len(nodes)), bases)
    lake = Lake(nodes, {}, random_history(dice, bases))
    for node in nodes:
        target = (node.target_lag.duration or seconds(60)).total_seconds()
        lake.expected[node.name] = seconds(min(dice.uniform(0.002, 0.06) * target, 600) + 0.05)
        if dice.random() < 0.1:
            _, commit = dice.choice(lake.history)
            begin = commit.time - seconds(10 ** dice.uniform(0, 4))
            lake.fails[node.name] = (begin, commit.time + seconds(10 ** dice.uniform(0, 5)), dice.choice(list(Retry)))
    return lake


def random_dag(dice: random.Random, first: int, size: int, bases: list[QualifiedName]) -> list[Node]:
    found = list[Node]()
    levels: list[list[QualifiedName]] = [[] for _ in range(5)]
    for i in range(first, first + size):
        name = QualifiedName("main", f"t{i}")
        level = min(dice.randint(0, 4), sum(1 for each in levels if each))
        suppliers = {dice.choice(levels[level - 1])} if level else set()
        suppliers |= {dice.choice(dice.choice([each for each in levels[:level] if each])) for _ in range(level // 2)}
        target = TargetLag(seconds(dice.choice(LAGS))) if dice.random() < 0.65 else DOWNSTREAM
        sources = (*sorted(suppliers), *dice.sample(bases, 1 if level == 0 or dice.random() < 0.3 else 0))
        levels[level].append(name)
        found.append(Node(name, target, sources, active=dice.random() > 0.04))
    return found


def random_history(dice: random.Random, bases: list[QualifiedName]) -> History:
    """Each base is quiet mostly, with commits now and then, and some have minutes in which they are busy."""
    times = [(START, base) for base in bases]
    length = (END - START).total_seconds()
    for base in bases:
        times += [(START + seconds(dice.uniform(0, length)), base) for _ in range(dice.randint(3, 12))]
        begin, gap = dice.uniform(0, length), dice.uniform(0.5, 20)
        busy = dice.choice([0, 10, 40])
        times += [(START + seconds(begin + i * gap * dice.uniform(0.9, 1.1)), base) for i in range(busy)]
    return dated((time, base) for time, base in times if time < END)


def dated(times: Iterable[tuple[datetime, QualifiedName]]) -> History:
    return [(base, Commit(i, time)) for i, (time, base) in enumerate(sorted(times), 1)]


class Week:
    def __init__(self, lake: Lake, slots: int, settled: datetime = SETTLED) -> None:
        self.dice = random.Random(0)
        self.settled = settled
        self.now, self.head = START, 0
        self.free, self.queue = slots, list[tuple[datetime, int, Job]]()
        self.events: list[tuple[datetime, int, str, object]] = []
        self.sequence = count()
        self.longest_queue = ZERO
        self.looks = self.runs = self.skipped = self.retried = self.suspended = self.caught_up = 0
        self.graphs: list[Graph] = []
        self.members: list[list[Table]] = []
        self.tables: dict[QualifiedName, Table] = {}
        self._declare(lake)
        for base, commit in lake.history:
            self._at(commit.time, "commit", (base, commit))
        self.next_looks: list[datetime | None] = [START] * len(self.graphs)
        for component in range(len(self.graphs)):
            self._at(START, "look", component)

    def _declare(self, lake: Lake) -> None:
        """Components share nothing but workers, so that each is looked at by itself."""
        whole = build_graph(lake.nodes)
        commits: dict[tuple[QualifiedName, ...], list[Commit]] = {}
        for names in whole.components():
            graph = whole.only(names)
            self.members.append([])
            for name in names:
                reached = graph.bases(name)
                if reached not in commits:
                    commits[reached] = [commit for base, commit in lake.history if base in reached]
                standing = Standing(name, expected=lake.expected[name])
                table = Table(graph.nodes[name], standing, len(self.graphs), commits[reached], lake.fails.get(name))
                table.clean = table.fails is None and table.node.active
                table.clean = table.clean and all(self.tables[supplier].clean for supplier in graph.suppliers(name))
                self.tables[name] = table
                self.members[-1].append(table)
            self.graphs.append(graph)

    # -------------------------------------------------------- time
    def _at(self, time: datetime, kind: str, what: object) -> None:
        heapq.heappush(self.events, (time, next(self.sequence), kind, what))

    def run(self) -> None:
        while self.events:
            self.now, _, kind, what = heapq.heappop(self.events)
            match kind, what:
                case "commit", (base, Commit() as commit):
                    self.head = commit.snapshot
                    for component, graph in enumerate(self.graphs):
                        if base in graph.readers:
                            self._look(component)
                case "look", int(component):
                    if self.next_looks[component] == self.now:
                        self._look(component)
                case "done", Job() as job:
                    self._done(job)
                case "resume", Table() as table:
                    self._activate(table, True)
                    table.standing = replace(table.standing, failure=None)
                    self._look(table.component)

    def _activate(self, table: Table, active: bool) -> None:
        table.node = replace(table.node, active=active)
        self.graphs[table.component] = build_graph(member.node for member in self.members[table.component])

    # -------------------------------------------------------- the scheduler
    def _standings(self, component: int) -> list[Standing]:
        found = []
        for table in self.members[component]:
            known = bisect_right(table.commits, self.head, key=lambda commit: commit.snapshot)
            held = table.standing.versions[-1].b_hi if table.standing.versions else 0
            first = bisect_right(table.commits, held, key=lambda commit: commit.snapshot)
            table.standing = replace(
                table.standing,
                change=table.commits[first] if first < known else None,
                newest=table.commits[known - 1] if known else None,
            )
            found.append(table.standing)
        return found

    def _look(self, component: int) -> None:
        self.looks += 1
        graph, standings = self.graphs[component], self._standings(component)
        for found in plan_rounds(graph, standings, self.head, self.now, TICK):
            assert (found.b, found.t) == (self.head, self.now)
            jobs: dict[QualifiedName, Job] = {}
            lengths = periods(graph, standings, TICK) if found.runs else {}
            for run in found.runs:
                self._judge(graph, run, jobs, lengths)
                self._plan(graph, run, jobs)
            for job in jobs.values():
                if not job.missing:
                    self._enqueue(job)
        self._work()
        again = next_look(graph, [table.standing for table in self.members[component]], self.now, TICK)
        assert again is None or again > self.now
        self.next_looks[component] = again
        if again is not None:
            self._at(again, "look", component)

    def _judge(
        self, graph: Graph, run: Run, jobs: dict[QualifiedName, Job], lengths: Mapping[QualifiedName, timedelta]
    ) -> None:
        """What no round may ever do."""
        table = self.tables[run.name]
        standing, failure = table.standing, table.standing.failure
        assert table.node.active
        assert not standing.busy, "twice at once"
        assert run.b <= self.head
        assert not standing.versions or run.b > standing.versions[-1].b_hi, "b must grow"
        for supplier in graph.suppliers(run.name):
            same = supplier in jobs and jobs[supplier].run.b == run.b
            assert same or self.tables[supplier].standing.usable(run.b, self.now), "no supplier's version for this b"
        if table.node.target_lag == DOWNSTREAM:
            assert graph.effective_lags()[run.name] is not None, "nobody needs it"
        elif standing.round_at is not None and (failure is None or failure.retry is Retry.NEVER):
            assert slot(self.now, lengths[run.name]) > slot(standing.round_at, lengths[run.name]), "twice in a slot"
        if failure is not None:
            self.retried += 1
            again = retry_at(failure, BACKOFF, run.name)
            if again is None:
                assert standing.newest is not None
                assert standing.newest.snapshot > failure.b, "nothing new to try"
            else:
                assert again <= self.now, "backing off"
        self.caught_up += run.b < self.head

    def _plan(self, graph: Graph, run: Run, jobs: dict[QualifiedName, Job]) -> None:
        table = self.tables[run.name]
        job = jobs[run.name] = Job(table, run, self.now, table.standing.round_at)
        table.standing = replace(table.standing, busy=True, round_at=self.now)
        for supplier in graph.suppliers(run.name):
            if supplier in jobs and jobs[supplier].run.b == run.b:
                jobs[supplier].dependents.append(job)
                job.missing += 1
            else:  # it asks for that version, so it is widened at once
                self._widen(self.tables[supplier], run.b)

    def _widen(self, table: Table, b: int) -> None:
        if table.held[-1].b_hi < b:
            table.held[-1] = replace(table.held[-1], b_hi=b)
            table.standing = replace(table.standing, versions=tuple(table.held[-VERSIONS:]))

    # -------------------------------------------------------- the workers
    def _enqueue(self, job: Job) -> None:
        job.ready = self.now
        heapq.heappush(self.queue, (job.planned, next(self.sequence), job))

    def _work(self) -> None:
        while self.free and self.queue:
            planned, _, job = heapq.heappop(self.queue)
            if planned > self.settled:
                self.longest_queue = max(self.longest_queue, self.now - job.ready)
            self.free -= 1
            job.started = self.now
            for supplier in self.graphs[job.table.component].suppliers(job.run.name):
                assert any(version.holds(job.run.b) for version in reversed(self.tables[supplier].held)), "DAG order"
            self._at(self.now + job.table.standing.expected * self.dice.uniform(0.5, 1.1), "done", job)

    def _done(self, job: Job) -> None:
        self.free += 1
        table, b = job.table, job.run.b
        if table.fails is not None and table.fails[0] <= job.started < table.fails[1]:
            self._fail(job, table.fails[2])
        else:
            late = lag(
                table.standing, self.now
            )  # as of the last look; the change that it waits for is known since then
            target = table.node.target_lag.duration
            if late is not None and target is not None and job.planned > self.settled:
                table.worst = max(table.worst, late - target)
            table.held.append(Version(b, b, b, 1, 1))
            table.standing = replace(table.standing, versions=tuple(table.held[-VERSIONS:]), busy=False, failure=None)
            table.seen.append(Seen(self.now, b))
            self.runs += 1
            for dependent in job.dependents:
                dependent.missing -= 1
                if not dependent.missing:
                    self._enqueue(dependent)
        self._look(table.component)

    def _fail(self, job: Job, retry: Retry) -> None:
        table = job.table
        times = 1 if table.standing.failure is None else table.standing.failure.count + 1
        failure = Failure(times, self.now, job.run.b, retry)
        table.standing = replace(table.standing, busy=False, failure=failure)
        todo = list(job.dependents)
        while todo:
            skipped = todo.pop()
            if skipped.table.standing.busy and skipped.started == END:
                self.skipped += 1
                skipped.table.standing = replace(skipped.table.standing, busy=False, round_at=skipped.previous)
                skipped.missing = -1
                todo += skipped.dependents
        if suspends(failure, SqlFailed if retry in (Retry.NEVER, Retry.REPLAN) else StorageUnavailable, 5):
            self.suspended += 1
            self._activate(table, False)
            self._at(self.now + SUSPENDED_FOR, "resume", table)


def promising(week: Week) -> list[Table]:
    """The tables that can keep their target lag: nothing fails, nothing that they wait for promises less or is slow."""
    found: dict[QualifiedName, Table] = {}
    for graph, members in zip(week.graphs, week.members, strict=True):
        short = {warned.name for warned in shortfalls(graph, [table.standing for table in members], TICK)}
        good: dict[QualifiedName, timedelta | None] = {}
        for table in members:
            own, name = table.node.target_lag.duration, table.node.name
            given = [good.get(supplier) for supplier in graph.suppliers(name)]
            if not table.clean or name in short or any(one is None for one in given):
                continue
            least = max((one for one in given if one is not None), default=ZERO)
            if own is None:
                good[name] = least
            elif least <= own:
                good[name] = own
                found[name] = table
    return list(found.values())


def share(table: Table, since: datetime, until: datetime) -> float:
    target = table.node.target_lag.duration
    assert target is not None
    found = attainment(Past(tuple(table.seen), tuple(table.commits)), target, since, until)
    assert found is not None
    return found


def check_the_end(week: Week) -> None:
    assert not week.queue
    for component, graph in enumerate(week.graphs):
        standings = {standing.name: standing for standing in week._standings(component)}
        needed = graph.effective_lags()
        for name, standing in standings.items():
            seen = week.tables[name].seen
            assert not standing.busy
            assert [each.b for each in seen] == sorted({each.b for each in seen})
            given_up = standing.failure is not None and standing.failure.retry is Retry.NEVER
            fed = all(graph.nodes[one].active and not standings[one].failure for one in graph.ancestors(name))
            if needed[name] is None:
                assert not seen, "nobody needs it"
            elif graph.nodes[name].active and graph.nodes[name].target_lag != DOWNSTREAM and fed and not given_up:
                assert standing.versions, "never loaded"
                assert standing.change is None, "left behind"
                assert standing.failure is None, "not tried again"


WEEK = [200, pytest.param(1000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("tables", WEEK)
def test_with_workers_enough_every_promise_that_can_be_kept_is_kept(tables: int) -> None:
    week = Week(random_lake(random.Random(3), tables), slots=tables)
    week.run()
    check_the_end(week)
    good = promising(week)
    assert len(good) > tables / 5
    assert all(share(table, START, END) > 0.99 for table in good)
    assert max(table.worst for table in good) < seconds(3), "durations are not quite what was expected"
    assert min(week.skipped, week.retried, week.suspended, week.caught_up) > 0, "the week was too quiet"


@pytest.mark.parametrize("tables", WEEK)
def test_with_few_workers_nobody_starves(tables: int) -> None:
    week = Week(random_lake(random.Random(6), tables), slots=tables // 50)
    week.run()
    check_the_end(week)
    for table in promising(week):
        assert table.worst <= 2 * week.longest_queue + seconds(3)


@pytest.mark.parametrize("seed", range(2))
def test_promises_are_kept_while_commits_never_end(seed: int) -> None:
    dice = random.Random(seed)
    lake = random_lake(dice, 50)
    bases = sorted({base for base, _ in lake.history})
    end = START + timedelta(minutes=15)
    gaps = {base: dice.choice([1, 3, 7]) for base in bases}
    lake.history = dated((START + seconds(i * gaps[base]), base) for base in bases for i in range(900 // gaps[base]))
    lake.fails.clear()
    week = Week(lake, slots=50)
    week.run()
    check_the_end(week)
    good = [table for table in promising(week) if table.node.target_lag.duration <= timedelta(minutes=1)]
    assert len(good) > 5
    assert all(share(table, START + timedelta(minutes=5), end) > 0.99 for table in good)


@pytest.mark.parametrize("times", [(12, 20, 1), (12, 12, 1), (7, 11, 13), (5.5, 6.7, 3)])
def test_suppliers_too_slow_for_their_lag_still_come_together(times: tuple[float, ...]) -> None:
    """Each by itself would begin again as soon as it is done, and the two might never hold one b."""
    x, a, b, c = (QualifiedName("main", name) for name in "xabc")
    ten = TargetLag(seconds(10))
    expected = dict(zip((a, b, c), map(seconds, times), strict=True))
    history = dated((START + seconds(i / 2), x) for i in range(3600))
    lake = Lake([Node(a, ten, (x,)), Node(b, ten, (x,)), Node(c, ten, (a, b))], expected, history)
    week = Week(lake, slots=3, settled=START)
    week.run()
    check_the_end(week)
    assert week.tables[c].worst < 6 * seconds(sum(times))
    assert max(week.tables[a].worst, week.tables[b].worst) < 3 * seconds(max(times))


def test_a_look_at_the_whole_lake_finds_what_looks_at_its_components_find() -> None:
    week = Week(random_lake(random.Random(3), 60), slots=60)
    whole = build_graph(table.node for table in week.tables.values())
    week.head, week.now = 40, START + timedelta(hours=1)
    standings = [week._standings(component) for component in range(len(week.graphs))]
    parts = [plan_rounds(*each, week.head, week.now, TICK) for each in zip(week.graphs, standings, strict=True)]
    found = plan_rounds(whole, [standing for each in standings for standing in each], week.head, week.now, TICK)
    assert set(found) == {round for each in parts for round in each}
    assert len(found) > 5
