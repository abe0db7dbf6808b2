"""What happens in a history, and in which order, drawn from its seed.

Statements come from ``statements``, the machine of ``history`` runs them and knows what is true. Only stock DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import TypeVar

from tests.fuzz import statements
from tests.fuzz.history import History, Machine, Writer, machine
from tests.fuzz.statements import Model, Numbers, Statement

T = TypeVar("T")


def write_history(seed: int, server: str, root: Path) -> History:
    with machine(seed, "stock", server, root) as it:
        prepare(it)
        for _ in range(it.rng.randint(5, 16)):
            if it.history.truth.lost:
                break
            step(it)
        finish(it)
        return it.history


def prepare(it: Machine) -> None:
    """One or two tables, some of them partitioned, with first rows."""
    it.history.truth.states[it.box.head()] = {}
    late = it.history.inline_rows > 0 and it.rng.random() < 0.4
    if late:
        inline(it, it.writers[0], 0)
    for name in ("t", "o")[: it.rng.choice((1, 2, 2, 2))]:
        it.numbers[name] = Numbers()
        it.given[name] = []
        single(it, it.writers[0], lambda name=name: statements.create(name, it.rng, it.history.inline_rows > 0))  # type: ignore[misc]
        if it.rng.random() < 0.3:
            single(it, it.writers[0], lambda name=name: statements.partition(it.models[name], it.rng, it.numbers[name]))  # type: ignore[misc]
        single(it, it.writers[0], lambda name=name: statements.insert(it.models[name], it.rng, it.numbers[name]))  # type: ignore[misc]
    if late:
        inline(it, it.writers[0], it.history.inline_rows)


def inline(it: Machine, writer: Writer, rows: int) -> None:
    """Small writes go into the catalog from now on, or no longer; tables that are there are not asked."""
    it.upkeep(writer, "inlining", f"CALL lake.set_option('data_inlining_row_limit', {rows})")


def step(it: Machine) -> None:
    writer = it.rng.choice(it.writers)
    roll = it.rng.random()
    if writer.open is not None:
        if roll < 0.55:
            draw_in(it, writer)
        elif roll < 0.93:
            it.commit(writer)
        else:
            it.note(writer, "ROLLBACK")
            it.history.operations["rollback"] += 1
            it.roll_back(writer)
    elif roll < 0.22 and len(it.models) > 1:
        overlap(it, writer)
    elif roll < 0.42:
        it.begin(writer)
        draw_in(it, writer)
        draw_in(it, writer)
    elif roll < 0.80:
        name = it.rng.choice(list(it.models))
        single(it, writer, lambda: draw(it, it.models[name]))
    elif roll < 0.88:
        add_files(it, writer)
    else:
        maintain(it, writer)


def overlap(it: Machine, late: Writer) -> None:
    """A transaction on one table that commits after another's commit to the other table (traps 1)."""
    early = next((writer for writer in it.writers if writer is not late and writer.open is None), None)
    if early is None:
        return
    name, other = it.rng.sample(list(it.models), 2)
    it.begin(late)
    for _ in range(it.rng.randint(1, 2)):
        if late.open is not None:
            it.run(late, weighted(it.rng, statements.DATA)(late.open.models[name], it.rng, it.numbers[name]))
    for _ in range(it.rng.randint(1, 2)):
        single(it, early, lambda: draw(it, it.models[other]))
    if late.open is not None:
        it.commit(late)


def finish(it: Machine) -> None:
    for writer in it.writers:
        if writer.open is not None:
            it.commit(writer)
    if not it.history.truth.lost:  # the reader has seen it all before; a new one must agree
        it.reader.close()
        it.reader = it.box.connect("reader")
        it.capture(None, {})


def draw(it: Machine, model: Model) -> Statement | None:
    numbers = it.numbers[model.name]
    maker: Callable[[Model, Random, Numbers], Statement | None]
    maker = weighted(it.rng, statements.DATA) if it.rng.random() < 0.84 else weighted(it.rng, statements.SHAPE)
    return maker(model, it.rng, numbers)


def draw_in(it: Machine, writer: Writer) -> None:
    """One more statement of an open transaction, mostly on a table that it touched already."""
    if writer.open is None:
        return
    name = it.rng.choice(sorted(writer.open.touched) or list(writer.open.models))
    if it.rng.random() < 0.25:
        name = it.rng.choice(list(writer.open.models))
    statement = draw(it, writer.open.models[name])
    if statement is not None:
        it.run(writer, statement)


def single(it: Machine, writer: Writer, maker: Callable[[], Statement | None]) -> None:
    """A transaction of one statement."""
    statement = maker()
    if statement is None:
        return
    it.begin(writer)
    if it.run(writer, statement):
        it.commit(writer)


def add_files(it: Machine, writer: Writer) -> None:
    name = it.rng.choice(list(it.models))
    if it.given[name] and it.rng.random() < 0.3:
        call = it.rng.choice(it.given[name])
        single(it, writer, lambda: Statement("add same path again", call, it.models[name]))
        return
    copy, statement = statements.give_files(it.models[name], it.rng, it.numbers[name], it.box.root / "given")
    it.note(writer, copy)
    it.reader.execute(copy)
    before = it.box.head()
    single(it, writer, lambda: statement)
    if it.box.head() > before:
        it.given[name].append(statement.sql)


def maintain(it: Machine, writer: Writer) -> None:
    table = it.models[it.rng.choice(list(it.models))].sql_name
    one = it.rng.random() < 0.5
    others = any(other.open for other in it.writers)
    match it.rng.choice(("flush", "flush", "merge", "merge", "merge", "expire", "cleanup", "rewrite", "inlining")):
        case "inlining" if it.history.inline_rows:
            inline(it, writer, it.rng.choice((0, it.history.inline_rows)))
        case "flush" if not others:  # it drops tables that an open transaction locks; one thread would wait for itself
            it.upkeep(
                writer,
                "flush",
                f"CALL ducklake_flush_inlined_data('lake'{f', table_name => {table!r}' if one else ''})",
            )
        case "merge":
            it.upkeep(
                writer, "merge adjacent", f"CALL ducklake_merge_adjacent_files('lake'{f', {table!r}' if one else ''})"
            )
        case "expire":
            old = it.box.readable()[:-1]
            if old:
                gone = (
                    old[: it.rng.randint(1, len(old))] if it.rng.random() < 0.7 else it.rng.sample(old, len(old) // 3)
                )
                it.upkeep(writer, "expire", f"CALL ducklake_expire_snapshots('lake', versions => {gone})")
        case "cleanup":
            it.upkeep(writer, "cleanup", "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
        case "rewrite" if it.rewrites:
            share = it.rng.choice((0.0, 0.3))
            it.upkeep(
                writer, "rewrite", f"CALL ducklake_rewrite_data_files('lake', {table!r}, delete_threshold => {share})"
            )


def weighted(rng: Random, choices: Mapping[T, int]) -> T:
    return rng.choices(list(choices), list(choices.values()))[0]
