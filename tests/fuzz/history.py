"""A random history, written by stock DuckDB; ``course`` draws from a seed what happens in it.

Two or three writers, each a DuckDB instance of its own, take turns in one thread; their transactions stay open over
each other's commits. After every commit the whole lake is read by a plain SELECT from a connection that never writes,
and that is the truth for the new snapshot. What a transaction saw before it committed says what the truth must be;
where the extension disagrees with itself, the table counts as lost from there on. Statements that it refuses are
counted, and part of the history.
"""

from __future__ import annotations

import ctypes
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from random import Random

import duckdb
import psycopg

from tests.fuzz.sandbox import Sandbox, fetch, parse_default
from tests.fuzz.statements import Model, Numbers, Statement
from tests.fuzz.truth import Bag, Column, Defaults, State, Truth, canonical_rows, convert, difference, plus
from tests.fuzz.values import quote


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of ours: who made it, what it started from, and which tables it deleted from."""

    snapshot: int
    start: int
    deleted_from: frozenset[str]
    kinds: tuple[str, ...]


HIDDEN = "an expired commit hid a conflict: "
"""The extension asks the labels of commits for conflicts, and expiry removes them."""


@dataclass(slots=True)
class History:
    """All that a check needs to know; can be sent between processes."""

    seed: int
    kind: str
    name: str
    root: Path
    inline_rows: int
    truth: Truth = field(default_factory=Truth)
    commits: list[Commit] = field(default_factory=list)
    operations: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    actions: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    """Every statement by its writer's number, to be run again by a twin."""
    published: int | None = None
    """The first snapshot that is Lakemill's doing; None: it wrote nothing."""


@dataclass(slots=True)
class Transaction:
    start: int
    models: dict[str, Model]
    begun: dict[str, Model]
    touched: set[str] = field(default_factory=set)
    deleted_from: set[str] = field(default_factory=set)
    shaped: set[str] = field(default_factory=set)
    kinds: list[str] = field(default_factory=list)
    wrote: bool = False


@dataclass(slots=True)
class Writer:
    number: int
    connection: duckdb.DuckDBPyConnection
    open: Transaction | None = None


class Machine:
    """The lake, its writers and its reader while a history is being written."""

    def __init__(self, seed: int, kind: str, server: str, root: Path) -> None:
        self.rng = Random(seed)
        self.box = Sandbox.create(server, f"fuzz_{kind}_{seed}", root)
        inline = self.rng.choice((0, 0, 10, 25, 100))
        self.history = History(seed, kind, self.box.name, self.box.root, inline)
        self.models: dict[str, Model] = {}
        self.numbers: dict[str, Numbers] = {}
        self.given: dict[str, list[str]] = {}
        self.expired: set[int] = set()
        self.rewrites = self.rng.random() < 0.25
        self.writers = [Writer(1, self.box.connect("w1", inline))]
        self.writers += [Writer(n, self.box.connect(f"w{n}")) for n in range(2, 3 + (self.rng.random() < 0.3))]
        self.reader = self.box.connect("reader")
        self.defaults = Defaults(lambda type_, text: parse_default(self.reader, type_, text))

    # ------------------------------------------------------------ truth
    def capture(self, commit: Transaction | None, views: dict[str, list[tuple[object, ...]]]) -> None:
        """Read the head, compare it with what it must be, and record it."""
        truth, head = self.history.truth, self.box.head()
        before = max(truth.states, default=-1)
        readable = set(self.box.readable())
        if taken := self.expired & readable:
            # a stock transaction that began before an expired snapshot takes its id, and so commits into the past
            for name in self.models:
                truth.lose(name, min(taken), f"a commit took the id of expired snapshot {min(taken)}")
        self.expired |= truth.states.keys() - readable
        try:
            states = self.read()
        except duckdb.Error as error:
            # a catalog that contradicts itself lets no client in, whichever snapshot it wants; and of a path that was
            # added twice a cleanup removes the file when one of the two is gone, from every snapshot of the other
            since = 0 if commit is None or isinstance(error, duckdb.CatalogException) else head
            for name in self.models:
                truth.lose(name, since, f"head unreadable: {first_line(error)}")
            return
        for name, state in states.items():
            expected = self.expected(name, state.columns, commit, views, before)
            if expected is not None and expected != state.rows:
                off = sum(abs(w) for w in difference(state.rows, expected).values())
                kinds = "+".join(commit.kinds) if commit else "upkeep"
                if commit and any(commit.start < gone < head for gone in self.expired):
                    kinds = f"{HIDDEN}{kinds}"
                # upkeep moves rows of older snapshots, and what it loses is lost there too
                truth.lose(name, head if commit else 0, f"{kinds}: {off} rows differ from what the transaction saw")
        twice = self.box.doubly_deleted()
        for name, state in states.items():
            if state.table_id in twice:
                truth.lose(name, head, "two live delete files for one data file")
        truth.states[head] = states
        if commit is not None and head > before:
            self.history.commits.append(Commit(head, commit.start, frozenset(commit.deleted_from), tuple(commit.kinds)))

    def read(self) -> dict[str, State]:
        """The head by the reader; by a new one where a flush pulled the old one's inlined tables away under it."""
        try:
            return self.by_first_name(self.box.states(self.reader))
        except duckdb.Error:
            self.history.operations["reader had to attach anew"] += 1
            self.renew_reader()
        try:
            return self.by_first_name(self.box.states(self.reader))
        except duckdb.Error:
            leak(self.reader)
            raise

    def renew_reader(self) -> None:
        """Replace the reader as after a crash: what it locked would make a flush fail after its commit.

        The extension then removes the files that it has just committed: it drops the tables of flushed rows in a
        transaction of its own, and takes the failure of that one for its own.
        """
        leak(self.reader)
        self.box.end_sessions("reader")
        self.reader = self.box.connect("reader")

    def by_first_name(self, states: dict[str, State]) -> dict[str, State]:
        first = {model.sql_name: name for name, model in self.models.items()}
        return {first.get(name, name): state for name, state in states.items()}

    def expected(
        self,
        name: str,
        columns: tuple[Column, ...],
        commit: Transaction | None,
        views: dict[str, list[tuple[object, ...]]],
        before: int,
    ) -> Bag | None:
        """The head before, plus what the transaction changed from where it started; None where it can't be known."""
        states = self.history.truth.states
        last = states.get(before, {}).get(name)
        if last is None:
            return None
        base = convert(last, columns, self.defaults)
        if commit is None or name not in commit.touched:
            return base
        if name in commit.shaped:  # inside it the extension forgets initial defaults, so only its data says little
            return base if not commit.wrote else None
        if name not in views:
            return None
        start = states.get(commit.start, {}).get(name)
        if start is None:
            return None
        seen = replace(start, rows=canonical_rows(start.columns, views[name]))
        after = plus(base, difference(convert(seen, columns, self.defaults), convert(start, columns, self.defaults)))
        return after if after is not None else Counter({("less than no rows",): 1})

    # ------------------------------------------------------------ one statement
    def run(self, writer: Writer, statement: Statement) -> bool:
        """One statement of a transaction; on refusal the transaction is rolled back."""
        transaction = writer.open
        assert transaction is not None
        self.note(writer, statement.sql)
        try:
            writer.connection.execute(statement.sql).fetchall()
        except duckdb.Error as error:
            self.refuse(statement.kind, error)
            self.give_up(writer, error)
            return False
        name = statement.model.name
        transaction.touched.add(name)
        transaction.kinds.append(statement.kind)
        if statement.deletes:
            transaction.deleted_from.add(name)
        if statement.model != transaction.models.get(name):
            transaction.shaped.add(name)
            transaction.models[name] = statement.model
        else:
            transaction.wrote = True
        return True

    def begin(self, writer: Writer) -> None:
        self.note(writer, "BEGIN")
        writer.connection.execute("BEGIN")
        row = writer.connection.execute("SELECT id FROM lake.current_snapshot()").fetchone()
        writer.open = Transaction(int(row[0]) if row else -1, dict(self.models), dict(self.models))

    def commit(self, writer: Writer, look: bool = True) -> bool:
        transaction = writer.open
        assert transaction is not None
        views = {}
        for name in transaction.touched if look else ():
            columns = ", ".join(quote(n) for n, _ in transaction.models[name].columns)
            with suppress(duckdb.Error):
                views[name] = fetch(writer.connection, f"SELECT {columns} FROM {transaction.models[name].table}")
        self.note(writer, "COMMIT")
        try:
            writer.connection.execute("COMMIT")
        except duckdb.Error as error:
            self.refuse("commit of " + "+".join(sorted(set(transaction.kinds))), error)
            self.give_up(writer, error)
            return False
        writer.open = None
        self.history.operations.update(transaction.kinds)
        self.history.operations["transaction"] += 1
        if self.box.head() > transaction.start + 1:
            self.history.operations["commit over another's commit"] += 1
        for name in transaction.shaped:
            self.models[name] = self.shaped(transaction, name)
        self.capture(transaction, views)
        return True

    def shaped(self, transaction: Transaction, name: str) -> Model:
        """What a table is after the commit: of two at once, one can rename what the other alters."""
        after = transaction.models[name]
        if name not in transaction.begun:
            return after
        new = {field.name: getattr(after, field.name) for field in fields(after)}
        old = transaction.begun[name]
        return replace(self.models[name], **{key: v for key, v in new.items() if v != getattr(old, key)})

    def give_up(self, writer: Writer, error: duckdb.Error) -> None:
        self.history.actions.append((writer.number, ("ROLLBACK",)))
        if isinstance(error, duckdb.InternalException | duckdb.FatalException):
            self.abandon(writer)
        else:
            self.roll_back(writer)

    def roll_back(self, writer: Writer) -> None:
        writer.open = None
        try:
            writer.connection.execute("ROLLBACK")
        except duckdb.TransactionException:
            return  # the failed COMMIT ended it
        except duckdb.Error:  # an INTERNAL error invalidates the whole instance
            self.abandon(writer)

    def abandon(self, writer: Writer) -> None:
        """Replace a writer as after a crash."""
        self.history.operations["writer died of an INTERNAL error"] += 1
        writer.open = None
        leak(writer.connection)
        self.box.end_sessions(f"w{writer.number}")
        writer.connection = self.box.connect(f"w{writer.number}")

    def upkeep(self, writer: Writer, kind: str, sql: str) -> None:
        """A maintenance call: content must stay what it is, at every snapshot."""
        self.note(writer, sql)
        try:
            with self.flushing() if "flush" in sql else nullcontext():
                writer.connection.execute(sql).fetchall()
        except duckdb.Error as error:
            self.refuse(kind, error)
            self.give_up(writer, error)
            return
        self.history.operations[kind] += 1
        before = max(self.history.truth.states)
        self.capture(None, {})
        if "flush" in sql and self.box.head() > before:  # it may write delete files, with true or untrue stamps
            self.history.commits.append(Commit(self.box.head(), before, frozenset(self.models), (kind,)))

    @contextmanager
    def flushing(self) -> Iterator[None]:
        """Note what a flush inside forgets: when a row died that a delete file and an inlined delete both name.

        Of the two the extension keeps the inlined one, which is the later. It writes such a delete itself: for a copy
        of the row where a path was added twice, which it can't tell apart, or in two transactions at a time.
        """
        inlined = self.box.inlined_deletes()
        dead = {table: self.box.dead(table) for table, places in inlined.items() if places}
        yield
        truth = self.history.truth
        names = {state.table_id: name for name, state in truth.states[max(truth.states)].items()}
        for table, before in dead.items():
            after = self.box.dead(table)
            for place in inlined[table] & before.keys() & after.keys():
                if table in names and (forgotten := before[place] - after[place]):
                    truth.forgotten.setdefault(names[table], set()).update(forgotten)
                    self.history.operations["a flush forgot when a row died"] += 1

    # ------------------------------------------------------------ records
    def note(self, writer: Writer, sql: str) -> None:
        self.history.log.append(f"{self.box.head():>3} w{writer.number} {sql}")
        self.history.actions.append((writer.number, (sql,)))

    def refuse(self, kind: str, error: Exception) -> None:
        line = first_line(error)
        self.history.log.append(f"       refused: {line}")
        self.history.refused[f"{kind}: {shorten(line)}"] += 1

    def close(self) -> None:
        for connection in (self.reader, *(w.connection for w in self.writers)):
            with suppress(duckdb.Error):
                connection.close()
        self.box.catalog.close()


@contextmanager
def machine(seed: int, kind: str, server: str, root: Path) -> Iterator[Machine]:
    it = Machine(seed, kind, server, root)
    try:
        yield it
    finally:
        it.close()


def leak(*connections: duckdb.DuckDBPyConnection) -> None:
    """Never close these: closing an instance that an INTERNAL error invalidated aborts the process."""
    for connection in connections:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def first_line(error: Exception) -> str:
    lines = [line for line in str(error).strip().split("\n") if line] or [type(error).__name__]
    return " | ".join(lines[:2] if lines[0].endswith("transaction.") else lines[:1])[:300]


def shorten(line: str) -> str:
    """A message without its numbers and names, so that equal causes are counted together."""
    return re.sub(
        r"\"[^\"]*\"|'[^']*'|\d+",
        "…",
        line.removeprefix("TransactionContext Error: Failed to commit: Failed to commit DuckLake transaction. | "),
    )[:130]


def forget(history: History, server: str) -> None:
    """Remove the history's database and files."""
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(
            psycopg.sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(psycopg.sql.Identifier(history.name))
        )
    shutil.rmtree(history.root, ignore_errors=True)
