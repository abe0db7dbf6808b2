"""Due work: there once, taken by one, in order, and given on when its worker is gone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from lakemill.core.tending import Outcome
from lakemill.errors import Retry, SqlFailed
from lakemill.store import claims, db, tended, work
from lakemill.store.migrate import migrate
from lakemill.store.work import Kind
from tests.conftest import make_lakes
from tests.store.conftest import Make

LONG, OVER = timedelta(minutes=1), timedelta(seconds=-1)
REFRESH = (Kind.REFRESH,)


@pytest.fixture(scope="module")
def migrated(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A lake's database: how tables stand is asked of the catalog, too."""
    with make_lakes(postgres, tmp_path_factory.mktemp("work")) as make:
        dsn = make().dsn
        with db.connect(dsn) as connection:
            migrate(connection)
        yield dsn


@pytest.fixture(autouse=True)
def nothing_due(conn: db.Connection) -> None:
    conn.execute("TRUNCATE lakemill.work, lakemill.workers, lakemill.tended")


def add(where: db.Executor, subject: str, **options: object) -> int:
    return work.add(where, Kind.REFRESH, subject, "due", **options)[0]  # type: ignore[arg-type]


def test_there_once(where: db.Executor) -> None:
    first, new = work.add(where, Kind.REFRESH, "1", "due", b=7)
    assert new
    assert work.add(where, Kind.REFRESH, "1", "due again", b=9) == (first, False)
    assert work.add(where, Kind.UPKEEP, "1", "another kind")[1]
    found = work.take(where, "w", REFRESH, LONG)
    assert found is not None
    assert (found.id, found.b, found.reason) == (first, 7, "due")
    assert work.add(where, Kind.REFRESH, "1", "while it is done") == (first, False)
    work.done(where, "w", [first])
    assert work.add(where, Kind.REFRESH, "1", "later")[1]


def test_manual_first_then_priority_then_age(where: db.Executor) -> None:
    for subject, options in {"old": {}, "high": {"priority": 5}, "new": {}, "asked": {}}.items():
        add(where, subject, **options)
    where.execute("UPDATE lakemill.work SET manual = true WHERE subject = 'asked'")
    taken = [work.take(where, "w", REFRESH, LONG) for _ in range(5)]
    assert [one and one.subject for one in taken] == ["asked", "high", "old", "new", None]


def test_what_is_asked_for_goes_first_and_to_its_own_snapshot(where: db.Executor, make: Make) -> None:
    table, now = make("t"), datetime.now(UTC)
    add(where, "urgent", priority=1_000_000)
    due = add(where, str(table.id), dynamic_id=table.id, b=7, t=now)
    assert work.ask(where, table.id, "asked for", 9, now) == due, "there once"
    found = work.take(where, "w", REFRESH, LONG)
    assert found is not None
    assert (found.id, found.b, found.manual, found.reason) == (due, 9, True, "asked for")


def test_what_is_asked_for_while_it_is_done_is_done_again(where: db.Executor, make: Make) -> None:
    table, now = make("t"), datetime.now(UTC)
    due = add(where, str(table.id), dynamic_id=table.id, b=7, t=now)
    assert work.take(where, "w", REFRESH, LONG) is not None
    again = work.ask(where, table.id, "asked for", 9, now)
    assert again != due
    assert work.ask(where, table.id, "asked for once more", 10, now) == again, "there once"
    assert work.take(where, "w", REFRESH, LONG) is None, "nobody refreshes a table twice at a time"
    work.done(where, "w", [due])
    found = work.take(where, "w", REFRESH, LONG)
    assert found is not None
    assert (found.id, found.b, found.manual) == (again, 10, True)
    later = work.ask(where, table.id, "and again", 11, now)
    assert work.take(where, "w", REFRESH, LONG) is None
    work.done(where, "w", [again])
    assert work.take(where, "w", REFRESH, LONG) is not None
    assert later != again


ALL = (Kind.REFRESH, Kind.UPKEEP)
HOUR = timedelta(hours=1)


def wait(where: db.Executor, minutes: int) -> None:
    """As if time had passed since all that is known."""
    ago = timedelta(minutes=minutes)
    where.execute("UPDATE lakemill.work SET added_at = added_at - %s", (ago,))
    where.execute("UPDATE lakemill.tended SET at = at - %s", (ago,))


def course(where: db.Executor, minutes: int, patience: timedelta) -> list[str]:
    """One slot, a piece of work a minute, and always a refresh that is due; what was done."""
    done = []
    for minute in range(minutes):
        add(where, f"refresh {minute}", priority=minute % 3)
        wait(where, 1)
        found = work.take(where, "w", ALL, LONG, patience)
        assert found is not None
        done.append(found.subject)
        work.done(where, "w", [found.id])
        if found.kind is Kind.UPKEEP:
            tended.remember(where, "compact", found.id, Outcome.DONE)
    return done


def test_upkeep_comes_last_and_is_not_starved(where: db.Executor) -> None:
    """Nor does it starve the refreshes: of 15 jobs that wait, one is done in each time of patience."""
    for number in range(15):
        work.add(where, Kind.UPKEEP, f"compact {number}", "due", priority=-1_000_000)
    add(where, "one more")
    done = course(where, 40, timedelta(minutes=10))
    tending = [(minute, subject) for minute, subject in enumerate(done) if subject.startswith("compact")]
    assert [subject for _, subject in tending] == ["compact 0", "compact 1", "compact 2", "compact 3"], "in their order"
    assert [minute for minute, _ in tending] == [9, 19, 29, 39]
    assert sum(subject.startswith("refresh") or subject == "one more" for subject in done) == 36


def test_one_job_of_upkeep_at_a_time_goes_before_refreshes(where: db.Executor) -> None:
    for number in range(3):
        work.add(where, Kind.UPKEEP, f"compact {number}", "due", priority=-1_000_000)
    add(where, "a")
    add(where, "b")
    wait(where, 60)
    add(where, "asked")
    where.execute("UPDATE lakemill.work SET manual = true WHERE subject = 'asked'")
    taken = [work.take(where, f"w{n}", ALL, LONG, HOUR) for n in range(6)]
    assert [one and one.subject for one in taken] == ["asked", "compact 0", "a", "b", "compact 1", "compact 2"]


def test_without_refreshes_upkeep_need_not_wait(where: db.Executor) -> None:
    work.add(where, Kind.UPKEEP, "compact", "due", priority=-1_000_000)
    assert work.take(where, "w", REFRESH, LONG) is None
    assert work.take(where, "w", ALL, LONG, HOUR) is not None


def test_what_comes_before_is_done_first(where: db.Executor) -> None:
    a = add(where, "a")
    b = add(where, "b", after=[a])
    add(where, "c", after=[b])
    assert [
        one and one.subject for one in (work.take(where, "w", REFRESH, LONG), work.take(where, "w", REFRESH, LONG))
    ] == [
        "a",
        None,
    ]
    assert [work_id for work_id, _, _ in work.waiting_for(where, a)] == [b, b + 1]
    work.done(where, "w", [a])
    found = work.take(where, "w", REFRESH, LONG)
    assert found is not None
    assert found.subject == "b"


def test_a_silent_worker_loses_its_work(where: db.Executor) -> None:
    first = add(where, "1")
    assert work.take(where, "w1", REFRESH, OVER) is not None
    assert work.extend(where, "w1", 1, REFRESH, [first], LONG) == frozenset()
    found = work.take(where, "w2", REFRESH, LONG)
    assert found is not None
    work.done(where, "w1", [first])  # too late: it is another's
    assert work.take(where, "w3", REFRESH, LONG) is None
    assert work.extend(where, "w2", 1, REFRESH, [first], LONG) == {first}
    assert [one.name for one in work.workers(where)] == ["w1", "w2"]
    work.leave(where, "w2")
    assert work.take(where, "w3", REFRESH, LONG) is not None
    assert [one.name for one in work.workers(where)] == ["w1"]


def test_a_table_that_somebody_works_on_waits(where: db.Executor, make: Make) -> None:
    table = make("t")
    add(where, str(table.id), dynamic_id=table.id)
    held = claims.claim(where, table.id, "by hand", LONG)
    assert held is not None
    assert work.take(where, "w", REFRESH, LONG) is None
    claims.release(where, held)
    assert work.take(where, "w", REFRESH, LONG) is not None


def test_depth_and_known(where: db.Executor, make: Make) -> None:
    table, other = make("t"), make("u", "t")
    add(where, str(table.id), dynamic_id=table.id)
    assert work.depth(where)["refresh"][0] == 1
    work.failed(where, table.id, 4, SqlFailed)
    second = work.failed(where, table.id, 5, SqlFailed)
    assert second is not None
    assert (second.count, second.retry) == (2, Retry.NEVER)
    assert work.failed(where, 999, 5, SqlFailed) is None
    now = datetime.now(UTC)
    work.take_up(where, [other.id], now)
    work.took(where, other.id, timedelta(seconds=10))
    work.took(where, other.id, timedelta(seconds=20))
    found = {str(one.name): one for one in work.known(where)}
    assert found["main.t"].busy
    assert found["main.t"].failure is not None
    assert (found["main.t"].failure.count, found["main.t"].failure.b) == (2, 5)
    assert not found["main.u"].busy
    assert found["main.u"].round_at == now
    assert found["main.u"].expected == timedelta(seconds=13)
    assert [str(source) for source in found["main.u"].sources] == ["main.t"]
    work.recovered(where, [table.id])
    assert next(one for one in work.known(where) if one.id == table.id).failure is None


def test_four_workers_share_four_hundred_evenly(conn: db.Connection, migrated: str) -> None:
    for number in range(400):
        add(conn, str(number))

    def toil(name: str) -> Counter[str]:
        did: Counter[str] = Counter()
        with db.connect(migrated) as own:
            while (found := work.take(own, name, REFRESH, LONG)) is not None:
                did[name] += 1
                did[f"work {found.subject}"] += 1
                own.execute("SELECT pg_sleep(0.004)")
                work.done(own, name, [found.id])
        return did

    names = ["w1", "w2", "w3", "w4"]
    with ThreadPoolExecutor(4) as pool:
        did = sum(pool.map(toil, names), Counter())
    shares = sorted(did[name] for name in names)
    assert sum(shares) == 400
    assert {count for key, count in did.items() if key.startswith("work ")} == {1}
    assert shares[-1] <= 1.5 * shares[0]


def test_one_leads(conn: db.Connection, migrated: str) -> None:
    with db.connect(migrated) as first, db.connect(migrated) as second:
        assert work.lead(first)
        assert not work.lead(second)
        first.close()
        until = time.monotonic() + 10  # its session ends a moment after its connection
        while not work.lead(second):
            assert time.monotonic() < until


def test_told(conn: db.Connection, migrated: str) -> None:
    with db.connect(migrated) as heard, work.listening(heard, work.DUE):
        assert not work.wait(heard, 0.05)
        work.tell(conn, work.DUE)
        assert work.wait(heard, 5)
