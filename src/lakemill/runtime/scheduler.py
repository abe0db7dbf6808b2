"""The scheduler: at every look, what is due becomes work in the queue.

Lines 1 to 4 of a refresh for all tables at once. It looks when somebody commits, when work is done, when a table is
declared or resumed, and at least once a tick; `core/rounds` decides. Any number may run: one leads, the others wait for
its connection to end. It holds nothing that the next one could not read anew, so that it may be killed at any line.
"""

from __future__ import annotations

import time
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import TYPE_CHECKING

from lakemill.core.lag import lag_since
from lakemill.core.names import QualifiedName
from lakemill.core.retry import Backoff
from lakemill.core.rounds import Round, Wait, next_look, plan_rounds, shortfalls
from lakemill.runtime.open import open as open_lake
from lakemill.runtime.points import Keeper
from lakemill.runtime.standings import Look, Looks, raise_idle
from lakemill.runtime.tending import Tending
from lakemill.store import audit, db, definitions, history, publishes, quotas, versions, work
from lakemill.store.work import Kind
from lakemill.telemetry import metrics, tracing
from lakemill.telemetry.failures import failed
from lakemill.telemetry.log import log

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake
    from lakemill.settings import Settings

IDLE = timedelta(minutes=1)
"""How often the data snapshot of tables that nothing happened to is raised."""
MEASURE = timedelta(seconds=5)
"""How often the gauges of all tables are set: nobody scrapes more often."""
FORGET = timedelta(hours=1)
PUBLISHES = timedelta(days=7)
"""How long the id of a publish is known. Whoever lost its answer asks within minutes, and no transaction lives that
long: after a week none can be settled any more, or be published a second time."""
SETTLE = 0.05
"""Seconds between being told of a commit and looking: commits come in bursts."""
STANDBY = 2.0


@dataclass(frozen=True, slots=True)
class Ticked:
    """What a look came to."""

    rounds: tuple[Round, ...]
    added: int
    seconds: float


class Scheduler:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        service = settings.service
        self._backoff = Backoff(service.retry_base, service.retry_factor, service.retry_cap)
        self._told: dict[QualifiedName, str] = {}
        self._warned: frozenset[QualifiedName] = frozenset()
        self._raised = self._measured = self._forgot = datetime.min.replace(tzinfo=UTC)
        self._keeper = Keeper()
        self._tending = Tending(settings)
        self.leads = False
        self.ready = False
        """Whether it looks, or stands by for another that does."""

    def run(self, stop: Event) -> None:
        """Until it is told to stop; what does not answer is tried again."""
        pause = self._settings.service.retry_base.total_seconds()
        while not stop.is_set():
            try:
                with open_lake(self._settings) as lake, closing(db.connect(lake.dsn)) as heard:
                    self._lead(lake, heard, stop)
            except Exception as error:  # whatever it is, the next look is tried
                failed("schedule", error)
            if self.leads:  # what it saw last would stay for ever
                metrics.set_lags({})
                metrics.set_queue({}, {})
                metrics.set_workers({})
            self.leads = self.ready = False
            stop.wait(pause)

    def _lead(self, lake: Lake, heard: db.Connection, stop: Event) -> None:
        self.ready = True
        while not (leads := work.lead(heard)) and not stop.wait(STANDBY):
            pass
        if not leads:
            return
        self.leads = True
        self._tending = Tending(self._settings)  # another may have led meanwhile
        log().info("scheduling", lake=lake.settings.data_path)
        looks = Looks(lake)
        with work.listening(heard, work.COMMIT, work.DONE, work.DECLARED):
            while not stop.is_set():
                look, now = looks.look(), datetime.now(UTC)
                self.tick(lake, look, now)
                self._rest(heard, self._patience(look, now), stop)

    def _rest(self, heard: db.Connection, seconds: float, stop: Event) -> None:
        """Until somebody tells of something or the time is over; told to stop it does so soon, however long a tick."""
        end = time.monotonic() + seconds
        while not stop.is_set() and (left := end - time.monotonic()) > 0:
            if work.wait(heard, min(left, STANDBY)):
                stop.wait(SETTLE)
                return

    def _patience(self, look: Look, now: datetime) -> float:
        """Seconds until the next look, unless somebody tells of something."""
        tick = self._settings.service.tick
        moment = next_look(look.graph, look.standings.values(), now, tick, self._backoff)
        return min(tick, moment - now if moment else tick).total_seconds()

    def _plan(self, lake: Lake, look: Look, now: datetime) -> tuple[Round, ...]:
        """What is due; not at snapshots that were expired meanwhile, where nothing can be read."""
        schema, gone = lake.settings.lake.catalog_schema, frozenset[int]()
        while True:
            rounds = plan_rounds(
                look.graph,
                look.standings.values(),
                look.head.snapshot,
                now,
                self._settings.service.tick,
                self._backoff,
                gone,
            )
            wanted = {run.b for one in rounds for run in one.runs} - {look.head.snapshot} - gone
            lost = wanted - work.kept(lake.conn, wanted, schema) if wanted else wanted
            if not lost:
                return rounds
            gone |= lost

    def tick(self, lake: Lake, look: Look, now: datetime) -> Ticked:
        """One look: due work is in the queue afterwards."""
        started = time.monotonic()
        rounds = self._plan(lake, look, now)
        added = 0
        for one in rounds:
            with suppress(work.DROPPED):  # the next look knows
                added += _enqueue(lake, look, one)
        if now - self._raised >= IDLE:
            raise_idle(lake, look)
            self._raised = now
        if added:
            work.tell(lake.conn, work.DUE)
        self._keeper.keep(lake, look)
        self._say([wait for one in rounds for wait in one.waits])
        added += self._tending.tick(lake, now)
        if now - self._forgot >= FORGET:
            _forget(lake, now)
            self._forgot = now
        if now - self._measured >= MEASURE:
            self._measure(lake, look, now)
            self._warn(look)
            self._measured = now
        done = Ticked(rounds, added, time.monotonic() - started)
        metrics.observe_tick(done.seconds)
        return done

    def _say(self, waits: list[Wait]) -> None:
        """Who waits, and for whom; once for each reason."""
        for wait in waits:
            if self._told.get(wait.name) != wait.reason:
                log().info(f"{wait.name} waits: {wait.reason}")
        self._told = {wait.name: wait.reason for wait in waits}

    def _warn(self, look: Look) -> None:
        """Of promises that can't be kept, by the time that refreshes take; once for each table."""
        found = {one.name: one for one in shortfalls(look.graph, look.standings.values(), self._settings.service.tick)}
        for name in found.keys() - self._warned:
            log().warning(f"{found[name].message} → {found[name].remedy}")
        self._warned = frozenset(found)

    def _measure(self, lake: Lake, look: Look, now: datetime) -> None:
        targets = look.graph.effective_lags()
        unloaded = any(not standing.versions for standing in look.standings.values())
        declared = definitions.unloaded(lake.conn) if unloaded else {}
        behind = {name: lag_since(one, now, declared.get(name, now)) for name, one in look.standings.items()}
        metrics.set_lags(
            {
                str(name): (found.total_seconds(), target.total_seconds() if (target := targets[name]) else None)
                for name, found in behind.items()
            }
        )
        depth = work.depth(lake.conn)
        kinds = [kind.value for kind in Kind]
        metrics.set_queue(
            {kind: depth.get(kind, (0, 0.0))[0] for kind in kinds},
            {kind: depth.get(kind, (0, 0.0))[1] for kind in kinds},
        )
        silent = self._settings.service.heartbeat * 2
        metrics.set_workers({one.name: one.silent <= silent for one in work.workers(lake.conn)})


def _enqueue(lake: Lake, look: Look, one: Round) -> int:
    """A round in order, so that each can name those that must be done before it; how many are new."""
    ids: dict[QualifiedName, int] = {}
    added = 0
    traced = tracing.span("round", b=one.b, tables=len(one.runs)) if one.runs else nullcontext()
    with traced, lake.conn.transaction():
        for run in one.runs:
            known = look.known[run.name]
            before = [ids[supplier] for supplier in look.graph.suppliers(run.name) if supplier in ids]
            ids[run.name], new = work.add(
                lake.conn,
                Kind.REFRESH,
                str(known.id),
                run.reason,
                dynamic_id=known.id,
                after=before,
                b=run.b,
                t=one.t,
                priority=known.priority,
                traceparent=tracing.traceparent(),
            )
            added += new
        work.take_up(lake.conn, [look.known[run.name].id for run in one.runs], one.t)
    _widen(lake, look, one)
    return added


def _widen(lake: Lake, look: Look, one: Round) -> None:
    """Suppliers that nothing happened to since are right at the round's b, too: they may move on before it is read."""
    running = {run.name for run in one.runs}
    needed = {(run.b, name) for run in one.runs for name in look.graph.ancestors(run.name)}
    idle: dict[int, list[int]] = {}
    for b, name in needed:
        standing, version_id = look.standings[name], look.known[name].version_id
        held = any(version.holds(b, one.t) for version in standing.versions)
        if name not in running and version_id is not None and standing.usable(b, one.t) and not held:
            idle.setdefault(b, []).append(version_id)
    for b in sorted(idle):
        versions.raise_idle(lake.conn, idle[b], b, lake.snapshot(b).time, lake.settings.lake.catalog_schema)


def _forget(lake: Lake, now: datetime) -> None:
    """Old records, and versions that nobody can read any more."""
    history.forget_refreshes(lake.conn, now - lake.settings.service.history)
    audit.forget(lake.conn, now - lake.settings.api.audit_retention)
    quotas.forget(lake.conn)
    with lake.catalog() as catalog:
        oldest = catalog.oldest()
    versions.forget_versions(lake.conn, oldest)
    publishes.forget_publishes(lake.conn, PUBLISHES)
