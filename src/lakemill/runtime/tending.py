"""Upkeep that the service does by itself: what is due by which policy, doing it, and remembering how it went.

The scheduler asks ``Tending`` at every tick; a worker calls ``tend`` for each job that it took; `lakemill upkeep
status` shows the same verdicts. ``core/tending`` decides, ``runtime/upkeep`` does the work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lakemill.core.names import QualifiedName, parse_name
from lakemill.core.tending import (
    LAKE,
    OF_TABLES,
    Crowd,
    Outcome,
    Policies,
    Policy,
    Tended,
    Verdict,
    judge,
    open_at,
    ranked,
    retry_after,
)
from lakemill.lake.listing import list_crowds, list_inlined
from lakemill.runtime import upkeep
from lakemill.runtime.upkeep import UpkeepReport, policies_of
from lakemill.store import db, tended, work
from lakemill.store.work import Kind, Work
from lakemill.telemetry.failures import failed
from lakemill.telemetry.log import log

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake
    from lakemill.settings import Settings

AT_ONCE = 20
"""Tables that are compacted after one look, the best first."""
LAST = -1_000_000
"""The priority of upkeep."""
_LAKE_JOBS: Mapping[str, Callable[[Lake], UpkeepReport]] = {
    "expire": upkeep.expire,
    "cleanup": upkeep.cleanup,
    "orphans": upkeep.orphans,
}


@dataclass(frozen=True, slots=True)
class TableUpkeep:
    """How a table stands: its files, the policy that it has, how the last job went, and what is to be done."""

    crowd: Crowd
    policy: Policy
    last: Tended | None
    verdict: Verdict
    retention: timedelta
    """For how long its past is kept, whoever says so."""


@dataclass(frozen=True, slots=True)
class UpkeepStatus:
    tables: tuple[TableUpkeep, ...]
    """The most worthwhile first, then by name."""
    lake: Policy
    jobs: Mapping[str, Tended]
    """How the last jobs of the whole lake went."""
    looked: Mapping[str, datetime]
    """By policy: when the service last looked for work."""
    nowhere: tuple[str, ...]
    """Policies of what the lake does not have."""


# ---------------------------------------------------------------- the scheduler
class Tending:
    def __init__(self, settings: Settings) -> None:
        self._policies = policies_of(settings)
        self._looked: dict[str, datetime] = {}
        self._warned: frozenset[str] = frozenset()

    def tick(self, lake: Lake, now: datetime) -> int:
        """Upkeep that is due becomes work in the queue; how much is new."""
        due = self._due(lake, now)
        if not due:
            return 0
        tables = _judged(lake, self._policies, now)
        self._warn(tables)
        found = [*self._of_lake(due), *self._flushes(lake, due, tables, now)]
        theirs = ranked(one.verdict for one in tables if one.policy.name in due)
        found += [(f"compact {one.table}", one.why) for one in theirs[:AT_ONCE]]
        added = sum(work.add(lake.conn, Kind.UPKEEP, subject, why, priority=LAST)[1] for subject, why in found)
        tended.look(lake.conn, due, now)
        tended.forget(lake.conn, [one.crowd.table_id for one in tables])
        self._looked |= dict.fromkeys(due, now)
        return added

    def _due(self, lake: Lake, now: datetime) -> list[str]:
        """Policies whose window is open, and whose interval is over; whoever looked last, in whatever process."""
        named = self._policies.named()
        if not self._looked:
            self._looked = dict(tended.looked(lake.conn, [one.name for one in named], now))
        late = [one for one in named if one.jobs and now - self._looked[one.name] >= one.interval]
        return [one.name for one in late if open_at(one.window, now)]

    def _of_lake(self, due: Sequence[str]) -> list[tuple[str, str]]:
        jobs = self._policies.lake.jobs if LAKE in due else ()
        return [(job, "by upkeep.auto") for job in _LAKE_JOBS if job in jobs]

    def _flushes(
        self, lake: Lake, due: Sequence[str], tables: Sequence[TableUpkeep], now: datetime
    ) -> list[tuple[str, str]]:
        if not any("flush" in one.jobs for one in self._policies.named() if one.name in due):
            return []
        before = tended.tended(lake.conn)
        ids = {parse_name(one.crowd.table): one.crowd.table_id for one in tables}
        found = []
        for table in list_inlined(lake.conn, lake.settings.lake.catalog_schema):
            policy, last = self._policies.of(table), before.get(("flush", ids.get(table, -1)))
            if policy.name in due and "flush" in policy.jobs and (last is None or now >= retry_after(last, policy)):
                found.append((f"flush {table}", "it has rows or deletes in the catalog"))
        return found

    def _warn(self, tables: Sequence[TableUpkeep]) -> None:
        found = frozenset(self._policies.nowhere(parse_name(one.crowd.table) for one in tables))
        for name in sorted(found - self._warned):
            log().warning(f"upkeep.policies: the lake has no schema and no table {name}")
        self._warned = found


# ---------------------------------------------------------------- a worker
def tend(lake: Lake, found: Work) -> Exception | None:
    """Do one job, and remember how it went; what went wrong, where something did."""
    job, _, table = found.subject.partition(" ")
    policies = policies_of(lake.settings)
    policy = policies.of(parse_name(table)) if table else policies.lake
    if not open_at(policy.window, datetime.now(UTC)):  # it was due within it, and nobody had time
        log().info(f"{found.subject}: left for the next {policy.window}")
        return None
    crowd = _crowd(lake, table, policy) if table else None  # before: what comes meanwhile was not looked at
    wrong: Exception | None = None
    try:
        report = _do(lake, job, table)
    except db.LOST:
        raise
    except Exception as error:  # whatever it is, it is not done again at once
        failed(found.subject, error)
        outcome, reason, wrong = Outcome.FAILED, getattr(error, "message", str(error)), error
    else:
        log().info(f"{found.subject}: {len(report.done)} done, {len(report.kept)} kept ({found.reason})")
        outcome, reason = _outcome(report, crowd)
    if table and crowd is None:
        return wrong  # dropped meanwhile
    mark = crowd.mark if crowd is not None else ""
    tended.remember(lake.conn, job, crowd.table_id if crowd is not None else tended.LAKE, outcome, reason, mark)
    return wrong


def _do(lake: Lake, job: str, table: str) -> UpkeepReport:
    if job == "compact":
        return upkeep.compact(lake, table)
    return upkeep.flush(lake, table) if job == "flush" else _LAKE_JOBS[job](lake)


def _outcome(report: UpkeepReport, crowd: Crowd | None) -> tuple[Outcome, str]:
    whys = Counter(item.why for item in report.kept)
    reason = "; ".join(f"{count}× {why}" if count > 1 else why for why, count in whys.most_common(3))
    if report.job not in OF_TABLES or report.done:
        return Outcome.DONE, reason
    if report.conflicts:
        return Outcome.FAILED, reason
    if report.job == "flush":
        return (Outcome.FAILED, reason) if report.kept else (Outcome.DONE, "")
    if not reason:
        reason = "no two of its files can become one: they are large enough, or of other partitions or columns"
        if crowd is not None and crowd.deleted:
            reason += "; too many of its deleted rows are shown by snapshots that are kept"
    return Outcome.KEPT, reason


# ---------------------------------------------------------------- a look
def status(lake: Lake, table: QualifiedName | None = None, now: datetime | None = None) -> UpkeepStatus:
    """How every table stands, and what the service would do next."""
    policies, now = policies_of(lake.settings), now or datetime.now(UTC)
    found = _judged(lake, policies, now)
    nowhere = policies.nowhere(parse_name(one.crowd.table) for one in found)
    if table is not None:
        lake.table(str(table)).describe()  # or it is not there, and that is said
        found = [one for one in found if parse_name(one.crowd.table) == table]
    order = {one.table: place for place, one in enumerate(ranked(one.verdict for one in found))}
    found.sort(key=lambda one: (order.get(one.verdict.table, len(order)), one.crowd.table))
    before = tended.tended(lake.conn)
    jobs = {job: last for (job, table_id), last in before.items() if table_id == tended.LAKE}
    names = {one.name for one in policies.named()}
    looked = {name: at for name, at in tended.last_looks(lake.conn).items() if name in names}
    return UpkeepStatus(tuple(found), policies.lake, jobs, looked, nowhere)


def _judged(lake: Lake, policies: Policies, now: datetime) -> list[TableUpkeep]:
    before = tended.tended(lake.conn)
    own = {one.table_id: one.retention for one in upkeep.retained(lake)}
    found = []
    for crowd in _crowds(lake, policies):
        policy = policies.of(parse_name(crowd.table))
        last = before.get(("compact", crowd.table_id))
        retention = own.get(crowd.table_id, policies.lake.retention)
        found.append(TableUpkeep(crowd, policy, last, judge(crowd, policy, last, now), retention))
    return found


def _crowds(lake: Lake, policies: Policies) -> list[Crowd]:
    """Every table once, by what its own policy calls small."""
    schema, found = lake.settings.lake.catalog_schema, list[Crowd]()
    for sizes in dict.fromkeys((one.target_file_size, one.small_size) for one in policies.named()):
        for crowd in list_crowds(lake.conn, schema, *sizes):
            policy = policies.of(parse_name(crowd.table))
            found += [crowd] if (policy.target_file_size, policy.small_size) == sizes else []
    return found


def _crowd(lake: Lake, table: str, policy: Policy) -> Crowd | None:
    sizes = policy.target_file_size, policy.small_size
    found = list_crowds(lake.conn, lake.settings.lake.catalog_schema, *sizes, parse_name(table))
    return found[0] if found else None
