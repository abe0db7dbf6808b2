"""Histories in which Lakemill publishes in between: stock DuckDB must stay right wherever it is right without us.

The course is that of a stock history with two to four writes of Lakemill's. At the end stock DuckDB is asked for every
snapshot, for what it answers from statistics, and to do its maintenance; then Lakemill is asked for everything. When
stock is wrong, the same history is written once more with stock statements only: a wrong answer of the same area there
excuses Lakemill, and is counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import duckdb
from psycopg.conninfo import make_conninfo

from lakemill.errors import LakemillError
from tests.fuzz import publishes
from tests.fuzz.check import Verdict, check_history, open_lake
from tests.fuzz.course import finish, prepare, step
from tests.fuzz.doubt import Doubts
from tests.fuzz.history import HIDDEN, Commit, History, Machine, first_line, forget, leak, machine
from tests.fuzz.kinds import count_kinds
from tests.fuzz.publishes import Publish
from tests.fuzz.sandbox import Sandbox
from tests.fuzz.statements import Model
from tests.fuzz.stock import wrong_answers, wrong_by_statistics
from tests.fuzz.truth import Bag, Column, State, Truth, difference

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake
    from tests.fuzz.run import Options

FRAMES = 3
PROBES = 12


def check_mixed(seed: int, options: Options) -> tuple[History, Verdict, Counter[str]]:
    with machine(seed, "mixed", options.server, options.root) as it:
        history = it.history
        prepare(it)
        dsn = make_conninfo(options.server, dbname=history.name)
        with open_lake(history, dsn) as lake:
            verdict = Verdict()
            try:
                write(it, lake)
                if not history.failures:
                    judge(it, lake, verdict, options)
            except FlushCrashes:
                history.operations["the extension crashed at a flush"] += 1
                leak(lake.__dict__.pop("duck"))
            kinds = count_kinds(lake.conn)
    if not (options.keep and (history.failures or verdict.failures)):
        forget(history, options.server)
    return history, verdict, kinds


class FlushCrashes(Exception):
    """Lakemill asked the extension to flush inlined rows, and it failed one of its own assertions, in stock too."""


def write(it: Machine, lake: Lake) -> None:
    steps = ["publish"] * it.rng.randint(2, 4) + ["stock"] * it.rng.randint(3, 8)
    it.rng.shuffle(steps)
    for what in steps:
        if it.history.truth.lost or it.history.failures:
            break
        if what == "stock":
            step(it)
        else:
            publish(it, lake)
    finish(it)


def publish(it: Machine, lake: Lake) -> None:
    if it.history.inline_rows and any(writer.open for writer in it.writers):
        for writer in it.writers:  # a flush would wait for their locks, and we are one thread
            if writer.open is not None:
                it.commit(writer)
        if it.history.truth.lost:
            return
    name = it.rng.choice(list(it.models))
    try:
        chosen = publishes.draw(it, lake, name)
    except duckdb.Error:
        it.renew_reader()
        it.history.operations["stock could not say what a write means"] += 1
        return
    it.history.log.append(f"{it.box.head():>3} LM {chosen.kind} {chosen.table}: {'; '.join(chosen.stock)}")
    it.history.actions.append((0, chosen.stock))
    try:
        with it.flushing():
            chosen.run()
    except LakemillError as error:
        if error.code == "ENGINE_LOST" and stock_dies(it, it.models[name]):
            raise FlushCrashes from error
        if error.code == "UNSUPPORTED_LAKE" and stock_loses(it, it.models[name]):
            it.history.operations["refused: the extension would lose deletes at a flush"] += 1
            it.history.actions.pop()  # it did not happen, nor shall it in the twin
            return
        it.history.failures.append(f"{chosen.kind} on {chosen.table}: {error}")
        return
    it.history.operations[chosen.kind] += 1
    accept(it, chosen)


def stock_dies(it: Machine, model: Model) -> bool:
    """Whether the flush kills a new stock client as well."""
    client = it.box.connect("flush")
    try:
        client.execute(f"CALL ducklake_flush_inlined_data('lake', table_name => {model.sql_name!r})").fetchall()
    except (duckdb.InternalException, duckdb.FatalException):
        leak(client)
        it.box.end_sessions("flush")
        return True
    client.close()
    return False


def stock_loses(it: Machine, model: Model) -> bool:
    """Whether a stock client that flushes has other rows afterwards."""
    client = it.box.connect("flush")
    client.execute("BEGIN")
    counts = []
    for statement in ("SELECT 1", f"CALL ducklake_flush_inlined_data('lake', table_name => {model.sql_name!r})"):
        client.execute(statement).fetchall()
        counts.append(client.execute(f"SELECT count(*) FROM {model.table}").fetchall())
    client.execute("ROLLBACK")
    client.close()
    return counts[0] != counts[1]


def accept(it: Machine, done: Publish) -> None:
    """The truth after Lakemill's write is what the write means, not what stock reads; but stock must read it."""
    history, head = it.history, it.box.head()
    before = max(history.truth.states)
    history.published = before + 1 if history.published is None else history.published
    last = history.truth.states[before]
    for snapshot in range(before + 1, head):
        history.truth.states[snapshot] = last
    for snapshot in it.box.flushes(before):  # by the extension, which Lakemill asked for it
        history.commits.append(Commit(snapshot, before, frozenset(it.models), ("flush",)))
    try:
        seen = it.read()
    except duckdb.Error as error:
        history.failures.append(f"after {done.kind} stock can't read the head: {first_line(error)}")
        return
    states = dict(last)
    now = seen[done.table]
    if now.table_id != last[done.table].table_id:  # a new generation: same columns, other ids
        states[done.table] = replace(now, rows=renumbered(done.expected, last[done.table], now))
    else:
        states[done.table] = replace(last[done.table], rows=done.expected)
    for name, state in states.items():
        if seen[name].rows != state.rows:
            off = difference(seen[name].rows, state.rows)
            history.failures.append(
                f"after {done.kind} on {done.table} stock reads {name} wrongly at {head}: "
                f"{sum(w for w in off.values() if w > 0)} too many, {-sum(w for w in off.values() if w < 0)} missing, "
                f"e.g. {next(iter(off.items()))}; columns {[(c.name, c.type) for c in state.columns]}"
            )
    if it.box.doubly_deleted():
        history.failures.append(f"after {done.kind} on {done.table} a data file has two live delete files")
    history.truth.states[head] = states


def renumbered(rows: Bag, old: State, new: State) -> Bag:
    """Rows whose struct fields go by the old generation's ids, by the new one's."""
    ids = {before.id: after.id for before, after in zip(walk(old.columns), walk(new.columns), strict=True)}
    places = list(zip(old.columns, new.columns, strict=True))

    def value(column: Column, item: Any) -> Any:
        if item is None:
            return None
        match column.type:
            case "struct":
                fields = {child.id: child for child in column.children}
                return tuple((ids[key], value(fields[key], inner)) for key, inner in item)
            case "list":
                return tuple(value(column.children[0], inner) for inner in item)
            case "map":
                return tuple(sorted(((k, value(column.children[1], v)) for k, v in item), key=repr))
        return item

    return Counter(
        {tuple(value(o, item) for (o, _), item in zip(places, row, strict=True)): n for row, n in rows.items()}
    )


def walk(columns: Sequence[Column]) -> Iterator[Column]:
    for column in columns:
        yield column
        yield from walk(column.children)


# ---------------------------------------------------------------- the verdict
def judge(it: Machine, lake: Lake, verdict: Verdict, options: Options) -> None:
    history, box = it.history, it.box
    rng, mark = Random(history.seed), len(it.history.actions)
    wrong = wrong_answers(box, history.truth, rng, snapshots=4, probes=PROBES)  # all snapshots after the upkeep
    upkeep = ["CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_merge_adjacent_files('lake')"]
    wrong += maintained(it, upkeep)
    if not wrong:
        wrong += [f"after upkeep, {line}" for line in wrong_answers(box, history.truth, rng, probes=PROBES)]
    wrong = not_misread(wrong, history, lake)  # now: the delete files are gone after the expiry
    found = check_history(history, lake, rng, FRAMES)
    wrong += maintained(
        it,
        [
            f"CALL ducklake_expire_snapshots('lake', versions => {box.readable()[:-3]})",
            "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
        ],
    )
    if not wrong:
        wrong += [f"after expiry, {line}" for line in wrong_answers(box, history.truth, rng, probes=PROBES)]
    wrong = not_misread(wrong, history, lake)
    after = check_history(history, lake, rng, 1)
    for one in (found, after):
        verdict.scans += one.scans
        verdict.deltas += one.deltas
        verdict.frames += one.frames
        verdict.refused += one.refused
        verdict.failures += one.failures
    for name, (at, why) in history.truth.lost.items():
        if history.published is None or at < history.published or why.startswith(HIDDEN):
            history.operations["lost by the extension alone"] += 1  # a twin need not lose the same: threads decide
        else:
            wrong.append(f"head: {name} lost at {at}: {why}")
    if wrong:
        there = twin(it, options, mark, wrong)
        for line in wrong:
            if line in there or areas([line]) <= areas(there - set(wrong)):
                history.operations[f"stock wrong in the stock-only twin too: {line.split(':')[0]}"] += 1
            else:
                history.failures.append(f"stock: {line}")


def not_misread(wrong: list[str], history: History, lake: Lake) -> list[str]:
    """The wrong answers without those that stock gives because of what it did to the times of deletes itself.

    It takes stamps at their word (traps 1), and a flush can forget when a row died.
    """
    misread = Doubts(history, lake).misread()
    kept = []
    for line in wrong:
        found = re.search(r"time travel: (.+) at (\d+): ", line)
        if found and int(found[2]) in history.truth.forgotten.get(found[1], ()):
            history.operations["stock read what a flush forgot"] += 1
        elif found and any(low <= int(found[2]) < high for low, high in misread.get(found[1], ())):
            history.operations["stock took the stamps of a delete at their word"] += 1
        else:
            kept.append(line)
    return kept


def maintained(it: Machine, calls: list[str]) -> list[str]:
    """Run maintenance by a stock writer; content must stay."""
    wrong = []
    for call in calls:
        refusals = sum(it.history.refused.values())
        it.upkeep(it.writers[0], "final upkeep", call)
        if sum(it.history.refused.values()) > refusals:
            wrong.append(f"upkeep: {call[:60]}: {it.history.log[-1]}")
    return wrong


def areas(lines: Iterable[str]) -> set[str]:
    return {line.removeprefix("after upkeep, ").removeprefix("after expiry, ").split(":")[0] for line in lines}


def twin(it: Machine, options: Options, mark: int, asked: Sequence[str]) -> set[str]:
    """The same history by stock statements only: what is wrong there, before the final upkeep and after it?

    Of the wrong answers that were ``asked`` for, those are named that statistics get wrong there, too.
    """
    box = Sandbox.create(options.server, it.box.name + "_twin", it.box.root.parent)
    first = it.history.inline_rows
    writers = {w.number: box.connect(f"w{w.number}", first if w.number == 1 else None) for w in it.writers}
    writers[0] = box.connect("w0")  # in Lakemill's place: its own, because the others have open transactions
    truth, reader, wrong = Truth(), box.connect("reader"), list[str]()
    try:
        for part in (it.history.actions[:mark], it.history.actions[mark:]):
            for number, lines in part:
                for line in lines:
                    run_again(writers[number], line.replace(str(it.box.root), str(box.root)), wrong)
                states = box.states(reader)
                if truth.states.setdefault(box.head(), states) != states:
                    wrong.append("head: changed without a snapshot")
            wrong += wrong_answers(box, truth, Random(0))
        wrong += wrong_by_statistics(reader, asked)
    except duckdb.Error as error:  # stock can't go on: whatever it says after that proves nothing
        leak(*writers.values(), reader)
        box.drop()
        return {*wrong, f"head: {first_line(error)}", "time travel: ", "upkeep: ", "crash: "}
    for connection in (*writers.values(), reader):
        connection.close()
    box.drop()
    return set(wrong)


def run_again(connection: duckdb.DuckDBPyConnection, line: str, wrong: list[str]) -> None:
    try:
        connection.execute(line).fetchall()
        if line == "BEGIN":
            connection.execute("SELECT id FROM lake.current_snapshot()").fetchall()
    except (duckdb.InternalException, duckdb.FatalException):
        raise
    except duckdb.Error as error:
        with suppress(duckdb.Error):
            connection.execute("ROLLBACK")
        if "CALL ducklake_" in line:
            wrong.append(f"upkeep: {first_line(error)}")
