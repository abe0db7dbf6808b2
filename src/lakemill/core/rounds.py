"""What is refreshed now, at which data snapshot, and when to look again.

Line 4 of a refresh, for the scheduler. Each component of the DAG is a round of its own: the tables that are due, the
DOWNSTREAM ones that those pull along, one b for all of them. Due is who has something to do in a new slot of the grid:
all periods are BASE·2^n from one origin, so that the slots of suppliers and consumers begin together. Pure: now, the
newest snapshot and how each table stands are given; what is held and how old it is, ``core/lag`` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from lakemill.core.graph import Graph, Warned
from lakemill.core.lag import ZERO, Standing, lag, largest_common
from lakemill.core.names import QualifiedName
from lakemill.core.retry import BACKOFF, Backoff, retry_at
from lakemill.errors import Retry

BASE = timedelta(milliseconds=125)
ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Run:
    name: QualifiedName
    b: int
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """A table that is due and can't run."""

    name: QualifiedName
    supplier: QualifiedName
    reason: str


@dataclass(frozen=True, slots=True)
class Round:
    """What to do for one component, in order; ``t`` is what now() means in it."""

    b: int
    t: datetime
    runs: tuple[Run, ...]
    waits: tuple[Wait, ...] = ()


# ---------------------------------------------------------------- the grid
def period(target: timedelta, lead: timedelta, tick: timedelta = ZERO) -> timedelta:
    """The largest BASE·2^n that leaves time for the work within the target lag; BASE where even that does not."""
    room = (target - lead - tick) // BASE
    return BASE * (1 << room.bit_length() - 1) if room > 0 else BASE


def slot(time: datetime, length: timedelta) -> int:
    return (time - ORIGIN) // length


def periods(graph: Graph, standings: Iterable[Standing], tick: timedelta = ZERO) -> Mapping[QualifiedName, timedelta]:
    """How often each table with a lag of its own is looked after."""
    by_name = {standing.name: standing for standing in standings}
    leads = _leads(graph, graph.order, by_name, tick)
    return {name: lead.period for name, lead in leads.items() if lead.period is not None}


@dataclass(frozen=True, slots=True)
class _Lead:
    work: timedelta
    """From the start of a round until the table is there: what it waits for in the round, and its own time."""
    period: timedelta | None
    """None for DOWNSTREAM."""


def _leads(
    graph: Graph, names: Sequence[QualifiedName], standings: Mapping[QualifiedName, Standing], tick: timedelta
) -> dict[QualifiedName, _Lead]:
    """Of whole components. A table waits for the active suppliers that come along in its rounds: those that it pulls,
    and those with a lag of their own unless that is so long that few of its rounds see them run."""
    needed: dict[QualifiedName, timedelta | None] = {}
    for name in reversed(names):
        needed[name] = graph.nodes[name].target_lag.duration
        if needed[name] is None:
            theirs = (needed[reader] for reader in graph.consumers(name) if graph.nodes[reader].active)
            needed[name] = min((one for one in theirs if one is not None), default=None)
    found: dict[QualifiedName, _Lead] = {}
    for name in names:
        work, most = ZERO, needed[name]
        for supplier in graph.suppliers(name):
            lead = found[supplier]
            if graph.nodes[supplier].active and (lead.period is None or most is None or lead.period <= most):
                work = max(work, lead.work)
        work += standings[name].expected
        target = graph.nodes[name].target_lag.duration
        found[name] = _Lead(work, None if target is None else period(target, work, tick))
    return found


def shortfalls(graph: Graph, standings: Iterable[Standing], tick: timedelta = ZERO) -> tuple[Warned, ...]:
    """The active tables whose work takes too long for their target lag, however often it is done."""
    by_name = {standing.name: standing for standing in standings}
    found = []
    for name, lead in _leads(graph, graph.order, by_name, tick).items():
        node = graph.nodes[name]
        if node.active and node.target_lag.duration is not None and BASE + lead.work + tick > node.target_lag.duration:
            own, rest = by_name[name].expected.total_seconds(), lead.work.total_seconds()
            waits = f", {rest:.1f} s with the suppliers that it waits for" if rest > own else ""
            message = f"{name} may lag {node.target_lag}, but its refresh takes {own:.1f} s{waits}"
            found.append(Warned(name, message, "give it a longer TARGET_LAG"))
    return tuple(found)


# ---------------------------------------------------------------- rounds
def plan_rounds(
    graph: Graph,
    standings: Iterable[Standing],
    head: int,
    now: datetime,
    tick: timedelta = ZERO,
    backoff: Backoff = BACKOFF,
    without: frozenset[int] = frozenset(),
) -> tuple[Round, ...]:
    """The rounds that are due, none for a component where nothing is.

    A table is due once in each slot of its period, as soon as there is something to do; where its work is not done by
    the next slot, that one is skipped and a later one covers more. Periods leave time for the work, for what it waits
    for, and for a ``tick``, the longest time between two looks. A supplier with a lag of its own is not pulled: where
    it can't come to ``head`` in this round, its consumer runs at the largest b that all suppliers hold, and at none of
    those ``without``, which were expired.
    """
    by_name = {standing.name: standing for standing in standings}
    moved = [name for name, node in graph.nodes.items() if node.active and _waits_for_slot(graph, by_name[name])]
    looks = (_Look(graph, names, by_name, head, now, tick, backoff, without) for names in graph.components(moved))
    return tuple(found for look in looks if (found := look.round()).runs or found.waits)


def next_look(
    graph: Graph,
    standings: Iterable[Standing],
    now: datetime,
    tick: timedelta = ZERO,
    backoff: Backoff = BACKOFF,
) -> datetime | None:
    """The next moment at which something can become due without a commit, the end of a job or a statement, all of which
    are to wake the scheduler; None if there is no such moment. What is due now has been planned already."""
    by_name = {standing.name: standing for standing in standings}
    moments: list[datetime] = []
    slotted: dict[QualifiedName, datetime] = {}
    for name, node in graph.nodes.items():
        standing = by_name[name]
        if not node.active or standing.busy or not standing.behind:
            continue
        again = None if standing.failure is None else retry_at(standing.failure, backoff, name)
        if again is not None:
            moments.append(again)
        elif _waits_for_slot(graph, standing) and standing.round_at is not None and not _given_up(standing):
            slotted[name] = standing.round_at
    for names in graph.components(slotted):
        leads = _leads(graph, names, by_name, tick)
        for name in names:
            length = leads[name].period
            if name in slotted and length is not None:
                moments.append(ORIGIN + length * (slot(slotted[name], length) + 1))
    return min((moment for moment in moments if moment > now), default=None)


def _waits_for_slot(graph: Graph, standing: Standing) -> bool:
    own = graph.nodes[standing.name].target_lag.duration is not None
    return own and standing.behind and not standing.busy


def _given_up(standing: Standing) -> bool:
    """It failed in a way that no repetition cures, and nothing changed since."""
    failure, newest = standing.failure, standing.newest
    if failure is None or failure.retry is not Retry.NEVER:
        return False
    return newest is None or newest.snapshot <= failure.b


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at a component."""

    graph: Graph
    names: tuple[QualifiedName, ...]
    standings: Mapping[QualifiedName, Standing]
    head: int
    now: datetime
    tick: timedelta
    backoff: Backoff
    without: frozenset[int] = frozenset()
    leads: dict[QualifiedName, _Lead] = field(default_factory=dict)
    due: dict[QualifiedName, str] = field(default_factory=dict)
    """Who must run on its own account, and why."""
    early: dict[QualifiedName, int] = field(default_factory=dict)
    """Of those, the first loads that take what the suppliers hold."""
    blocked: dict[QualifiedName, QualifiedName] = field(default_factory=dict)
    """Who can't come to ``head`` in this round, and the supplier that holds it back."""

    def round(self) -> Round:
        self._find_due()
        if not self.due:
            return Round(self.head, self.now, ())
        self._find_early()
        self._find_blocked()
        self._hold_back()
        chosen = self._chosen()
        runs: list[Run] = []
        waits: list[Wait] = []
        for name in self.names:
            if name in chosen:
                runs.append(Run(name, self.head, chosen[name]))
            elif name in self.early:
                runs.append(Run(name, self.early[name], f"{self.due[name]}; what it reads is fresh enough there"))
            elif name in self.due:
                supplier = self.blocked[name]
                b, why = self._catch_up(name), self._hindrance(supplier)
                if b is None:
                    waits.append(Wait(name, supplier, f"{supplier} {why}"))
                else:
                    runs.append(Run(name, b, f"{self.due[name]}; {supplier} {why}, and holds {b} only"))
        return Round(self.head, self.now, tuple(runs), tuple(waits))

    def _find_due(self) -> None:
        self.leads.update(_leads(self.graph, self.names, self.standings, self.tick))
        for name in self.names:
            node, standing = self.graph.nodes[name], self.standings[name]
            if node.target_lag.duration is None or not node.active or not standing.behind:
                continue
            retried = standing.failure is not None and standing.failure.retry is not Retry.NEVER
            if self._held(name) is not None or not (retried or self._in_new_slot(name)):
                continue
            behind = lag(standing, self.now)
            why = "it was never loaded" if behind is None else f"it lags {behind} of {node.target_lag}"
            failed = f", and failed {_times(standing.failure.count)}" if standing.failure is not None else ""
            self.due[name] = why + failed

    def _find_early(self) -> None:
        """A first load need not make its suppliers run again where what they hold together is within its lag."""
        for name in self.due:
            target = self.graph.nodes[name].target_lag.duration
            if self.standings[name].versions or target is None:
                continue
            suppliers = [self.standings[supplier] for supplier in self.graph.suppliers(name)]
            b = largest_common(suppliers, self.head, self.now, self.without)
            if b is not None and b < self.head and all(_fresh(one, b, self.now, target) for one in suppliers):
                self.early[name] = b

    def _find_blocked(self) -> None:
        for name in self.names:
            for supplier in self.graph.suppliers(name):
                comes = supplier not in self.blocked and supplier not in self.early
                runs = supplier in self.due or (self._pulled(supplier) and self._held(supplier) is None)
                if not self.standings[supplier].usable(self.head, self.now) and not (runs and comes):
                    self.blocked[name] = supplier
                    break

    def _hold_back(self) -> None:
        """Suppliers of one table that are late, each by itself, might never hold a b in common: the next to begin waits
        for the one that is still at work, if its patience lasts, so that all begin together."""
        companies = [found for name in self.blocked if name in self.due and (found := self._company(name))]
        until: dict[QualifiedName, timedelta] = {}
        grown = bool(companies)
        while grown:
            grown = False
            for company in companies:
                longest = max(
                    self.standings[name].expected if self.standings[name].busy else until.get(name, ZERO)
                    for name in company
                )
                for name in company if longest > ZERO else ():
                    if name in self.due and name not in until and self._patience(name) >= longest:
                        until[name] = longest
                        grown = True
        if until:
            for name in until:
                self.due.pop(name)
                self.early.pop(name, None)
            self.blocked.clear()
            self._find_blocked()

    def _company(self, name: QualifiedName) -> set[QualifiedName]:
        """What must come to ``head`` for the table to follow; empty where that would not help, or not suffice."""
        todo = [one for one in self.graph.suppliers(name) if not self.standings[one].usable(self.head, self.now)]
        if len(todo) < 2 or self._catch_up(name) is not None:
            return set()
        found: set[QualifiedName] = set()
        while todo:
            one = todo.pop()
            late = self.standings[one].busy and self.graph.nodes[one].active and self._in_new_slot(one)
            if not (late or one in self.due or (self._pulled(one) and self._held(one) is None)):
                return set()
            found.add(one)
            above = (each for each in self.graph.suppliers(one) if each not in found)
            todo += [each for each in above if not self.standings[each].usable(self.head, self.now)]
        return found

    def _patience(self, name: QualifiedName) -> timedelta:
        """How long a due table may wait for company: what its lag leaves, or as long as its own work takes."""
        work, target = self.leads[name].work, self.graph.nodes[name].target_lag.duration or ZERO
        behind = lag(self.standings[name], self.now)
        if behind is None:
            return work
        return max(work, target - behind - work - self.tick) if behind <= 4 * max(work, target) else ZERO

    def _chosen(self) -> dict[QualifiedName, str]:
        """Who runs at ``head``: the due, and what they pull."""
        chosen = {
            name: reason for name, reason in self.due.items() if name not in self.blocked and name not in self.early
        }
        for name in reversed(self.names):  # consumers first, so that a pull goes all the way up
            puller = next((reader for reader in self.graph.consumers(name) if reader in chosen), None)
            wanted = puller is not None and name not in chosen and self._pulled(name)
            if wanted and not self.standings[name].usable(self.head, self.now):
                chosen[name] = f"{puller} needs it"
        return chosen

    def _catch_up(self, name: QualifiedName) -> int | None:
        """The largest b that all suppliers hold already, if it is further than the table is: time counts for some.

        Not one at which it failed for good.
        """
        suppliers = [self.standings[supplier] for supplier in self.graph.suppliers(name)]
        b = largest_common(suppliers, self.head, self.now, self.without)
        failure = self.standings[name].failure
        if b is not None and failure is not None and failure.retry is Retry.NEVER and b <= failure.b:
            return None
        versions = self.standings[name].versions
        if b is None or not versions:
            return b
        return b if b > versions[-1].b_hi or (b == versions[-1].b_hi and versions[-1].t is not None) else None

    def _in_new_slot(self, name: QualifiedName) -> bool:
        """Whether its last round was in an earlier slot; always for DOWNSTREAM."""
        length, last = self.leads[name].period, self.standings[name].round_at
        return length is None or last is None or slot(self.now, length) > slot(last, length)

    def _pulled(self, name: QualifiedName) -> bool:
        node = self.graph.nodes[name]
        return node.target_lag.duration is None and node.active

    def _held(self, name: QualifiedName) -> str | None:
        """Why it must not be started now, whoever needs it."""
        standing = self.standings[name]
        if standing.busy:
            return "is being refreshed"
        if standing.failure is None:
            return None
        failed = f"failed {_times(standing.failure.count)}"
        again = retry_at(standing.failure, self.backoff, name)
        if again is not None and again > self.now:
            return f"{failed} and is tried again at {again:%H:%M:%S}"
        return f"{failed} and is not tried again before its sources change" if _given_up(standing) else None

    def _hindrance(self, name: QualifiedName) -> str:
        if not self.graph.nodes[name].active:
            return "is not scheduled"
        return self._held(name) or "has not come further"


def _fresh(supplier: Standing, b: int, now: datetime, target: timedelta) -> bool:
    """Whether at ``b`` it is at its newest, and that within the target."""
    behind = lag(supplier, now)
    return behind is not None and behind <= target and supplier.versions[-1].b_lo <= b


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times in a row"
