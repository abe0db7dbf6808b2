"""The door to the query plane: a question in, an answer that streams out.

    with Gateway(settings, dsn) as gateway, gateway.query(Question("SELECT …")) as answer:
        for batch in answer: …

The lines of ``query`` are the way of every query: text, turn, tree, names, pins, plans, excerpt, executor. It may be
called from many threads; each answer belongs to one. PostgreSQL is asked by this process alone.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any

import pyarrow as pa

from lakemill.core.allowed import Allowed, allowed
from lakemill.core.names import QualifiedName
from lakemill.core.reading import check_text, without_end
from lakemill.core.scan import Snapshot, View
from lakemill.errors import BadArgument, EngineLost, LakemillError, QueryCancelled
from lakemill.gateway import confine, wire
from lakemill.gateway.excerpt import Excerpt, excerpt
from lakemill.gateway.failure import explained, unconfined
from lakemill.gateway.holding import Holding
from lakemill.gateway.pool import Pool, Turn
from lakemill.gateway.question import Column, Question, Statistics
from lakemill.gateway.resolve import Resolved, chosen, resolve
from lakemill.gateway.wire import Kind
from lakemill.lake import duck
from lakemill.lake.catalog import reading
from lakemill.lake.stamps import Stamps
from lakemill.settings import Settings
from lakemill.store import db
from lakemill.store.migrate import migrate
from lakemill.telemetry.log import log

_JOIN_KEYS = "join_filter_pushdown"


class Gateway:
    """Queries over one lake."""

    def __init__(self, settings: Settings, dsn: str) -> None:
        check_confinement(settings)
        self._settings, self._dsn = settings, dsn
        self._schema = settings.lake.catalog_schema
        self._lock = Lock()
        self._idle: list[db.Connection] = []
        with self._connection() as conn:
            with reading(conn, self._schema):  # refuse what is no lake of ours before anything of ours is written
                pass
            migrate(conn, self._schema)
        self._duck = duck.connect(settings, dsn, attach=False)
        self._stamps = Stamps(self._duck)
        self._holding = Holding(self._schema)
        given = settings.query
        self._folder = tempfile.TemporaryDirectory(prefix="lakemill-", dir=given.temp_dir, ignore_cleanup_errors=True)
        self._pool = Pool(
            executor_config(settings, self._duck),
            Path(self._folder.name),
            given.executors,
            given.queue,
            given.queue_timeout.total_seconds(),
            self._holding.let_go,
        )

    def __enter__(self) -> Gateway:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def warm(self) -> None:
        """Have executors ready before the first query."""
        self._pool.warm()

    def close(self) -> None:
        """Cancel what runs, end every process, let go of every pin."""
        self._pool.close()
        with suppress(LakemillError), self._connection() as conn:  # without PostgreSQL they run out by themselves
            self._holding.close(conn)
        while self._idle:
            self._idle.pop().close()
        self._duck.close()
        self._folder.cleanup()

    @property
    def running(self) -> tuple[str, ...]:
        """The ids of the queries that run."""
        return self._pool.running

    def cancel(self, id_: str) -> bool:
        """Stop a query of this gateway; False when it does not run here."""
        return self._pool.cancel(id_, QueryCancelled("it was cancelled"))

    def query(self, question: Question) -> Answer:
        """The answer, whose columns are known and whose first rows are on their way; close it when done."""
        check_text(question.sql, self._settings.query.text_limit)
        timeout = (question.timeout or self._settings.query.timeout).total_seconds()
        turn = self._pool.turn(question.id, timeout)
        try:
            at, found = self._resolved(turn, question, timeout)
            extract = excerpt(found.at, found.plans, found.views, found.bounds)
            self._pool.widen(turn, _folders(extract.files, self._settings.data_path))
            turn.executor.run(self._job(question, found, extract))
            answer = Answer(self, question, turn, at, len(extract.files), _names(found))
            answer.begin()
        except BaseException:
            self._pool.end(turn)
            raise
        return answer

    def reads(self, question: Question) -> tuple[QualifiedName, ...]:
        """The tables that a query reads, through views too; it is judged as it would be, and does not run."""
        check_text(question.sql, self._settings.query.text_limit)
        timeout = (question.timeout or self._settings.query.timeout).total_seconds()
        turn = self._pool.turn(question.id, timeout)
        try:
            _, found = self._resolved(turn, question, timeout)
        finally:
            self._pool.end(turn)
        return _names(found)

    def _resolved(self, turn: Turn, question: Question, timeout: float) -> tuple[Snapshot, Resolved]:
        """What it reads, at the snapshot that it names, which is kept until its turn ends."""
        named = allowed(turn.executor.parse(question.sql, self._settings.data_path), question.sql)
        with self._connection() as conn:
            with reading(conn, self._schema) as catalog:
                at, snapshots = chosen(catalog, question.at)
            self._pool.hold(turn, self._holding.take(conn, snapshots, timeout))
            with reading(conn, self._schema) as catalog:
                found = resolve(
                    catalog,
                    self._stamps,
                    named,
                    lambda view: self._view(turn, view),
                    at,
                    question.at.point,
                    question.visible,
                )
        return at, found

    def end(self, turn: Turn) -> None:
        """Called by an answer that is over."""
        self._pool.end(turn)

    @property
    def data_path(self) -> str:
        return self._settings.data_path

    def _view(self, turn: Turn, view: View) -> Allowed:
        return allowed(turn.executor.parse(view.sql, self._settings.data_path), view.sql)

    def _job(self, question: Question, found: Resolved, extract: Excerpt) -> dict[str, Any]:
        limits = self._settings.query
        if question.row_limit is not None and question.row_limit < 0:
            raise BadArgument("row_limit is below zero")
        return {
            "sql": question.sql,
            "bare": without_end(question.sql),
            "params": _parameters(question.params),
            "excerpt": extract.message,
            "files": sorted(set(extract.files)),
            "cut": question.row_limit,
            "rows": limits.row_limit,
            "bytes": min(question.byte_limit or limits.byte_limit, limits.byte_limit),
            # DuckDB passes the keys of a join below a LIMIT, and then shows rows that are not among the first ones
            "without": _JOIN_KEYS if found.cuts_inside else "",
        }

    @contextmanager
    def _connection(self) -> Iterator[db.Connection]:
        """One for this thread, for a moment; one that was lost is not used again."""
        with self._lock:
            conn = self._idle.pop() if self._idle else None
        conn = conn or db.connect(self._dsn, connect_timeout=self._settings.lake.connect_seconds)
        try:
            yield conn
        except db.LOST as error:
            conn.close()
            raise db.unavailable(error) from error
        finally:
            if not conn.closed:
                with self._lock:
                    self._idle.append(conn)


class Answer:
    """Rows as they come; one thread reads them. Leaving it, or closing it, stops the query."""

    def __init__(
        self,
        gateway: Gateway,
        question: Question,
        turn: Turn,
        at: Snapshot,
        files: int,
        tables: tuple[QualifiedName, ...],
    ) -> None:
        self.id = question.id
        self.snapshot = at
        self.tables = tables
        """What it reads, through views too."""
        self.columns: tuple[Column, ...] = ()
        self.statistics: Statistics | None = None
        """Known when the last batch has come."""
        self._gateway, self._question, self._turn, self._files = gateway, question, turn, files
        self._first: pa.RecordBatch | None = None
        self._over = False

    def __enter__(self) -> Answer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(self) -> None:
        """Wait for its columns and its first batch, which gives the schema."""
        self.columns = tuple(Column(*column) for column in wire.decode(self._expect(Kind.COLUMNS)))
        self._first = _batch(self._expect(Kind.BATCH))

    @property
    def schema(self) -> pa.Schema:
        assert self._first is not None  # noqa: S101  (begin)
        return self._first.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Every batch once."""
        if self._over or self._first is None:
            return
        yield self._first
        while (kind_payload := self._receive())[0] is Kind.BATCH:
            yield _batch(kind_payload[1])
        self._done(wire.decode(kind_payload[1]))

    def table(self) -> pa.Table:
        """All of it."""
        return pa.Table.from_batches(list(self), self.schema)

    def close(self) -> None:
        if not self._over:
            self._over = True
            self._gateway.end(self._turn)

    def _expect(self, wanted: Kind) -> bytearray:
        kind, payload = self._receive()
        if kind is not wanted:
            raise EngineLost(f"the executor answered {kind.name} instead of {wanted.name}")
        return payload

    def _receive(self) -> tuple[Kind, bytearray]:
        """The next frame; an error of the executor is raised, and is the end of it."""
        try:
            kind, payload = self._turn.executor.receive()
            if kind is Kind.FAILED:
                # told to stop, it fails with an error of its own; the reason is ours
                raise self._turn.executor.why or explained(
                    wire.decode(payload), self._question.sql, self._gateway.data_path
                )
        except BaseException:
            self.close()
            raise
        return kind, payload

    def _done(self, told: Mapping[str, Any]) -> None:
        duration = time.monotonic() - self._turn.began
        self.close()
        try:
            self.statistics = Statistics(files=self._files, queued=self._turn.queued, duration=duration, **told)
        except TypeError as error:
            raise EngineLost("the executor's statistics can't be read") from error


def _names(found: Resolved) -> tuple[QualifiedName, ...]:
    return tuple(QualifiedName(plan.table.schema, plan.table.name) for plan in found.plans)


def _folders(files: Sequence[str], data_path: str) -> frozenset[str]:
    """Where local files are: under the data path, or each in a folder of its own."""
    local = (file for file in files if "://" not in file)
    return frozenset(data_path if file.startswith(data_path) else str(Path(file).parent) for file in local)


def _batch(payload: bytearray) -> pa.RecordBatch:
    """It comes from a process that ran a stranger's SQL: it is looked at before it is used."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(payload)) as stream:
            batch = stream.read_next_batch()
        batch.validate()
        return batch
    except (pa.ArrowException, StopIteration) as error:
        raise EngineLost("the executor's rows can't be read") from error


def _parameters(given: Any) -> Any:
    try:
        wire.encode(given)
    except (TypeError, ValueError) as error:
        raise BadArgument(str(error)) from error
    return given


def check_confinement(settings: Settings) -> None:
    """Refuse to answer queries where the machine can't keep them from other files; say so where it is accepted."""
    if lacking := "; ".join(confine.lacking()):
        if settings.query.confinement == "require":
            raise unconfined(lacking)
        log().warning(f"queries are kept from other files by DuckDB alone: {lacking}")


def executor_config(settings: Settings, connection: duck.Connection) -> dict[str, Any]:
    """What every executor is told when it is born; of secrets only the one that opens the bucket."""
    query, s3 = settings.query, settings.s3
    extensions, statements = ["ducklake"], []
    if settings.on_s3:
        extensions.append("httpfs")
        if query.s3_access_key_id:
            own = {"access_key_id": query.s3_access_key_id, "secret_access_key": query.s3_secret_access_key}
            settings = settings.model_copy(update={"s3": s3.model_copy(update=own)})
        chain = not settings.s3.access_key_id and duck.finds_credentials(connection)
        extensions += ["aws"] if chain else []
        statements = [duck.s3_secret(settings, chain=chain), *duck.http_statements(settings)]
    return {
        "memory": query.memory_limit,
        "temp_bytes": query.temp_limit,
        "threads": query.threads,
        "require": query.confinement == "require",
        "roots": [] if settings.on_s3 else [settings.data_path],
        "network": settings.on_s3,
        "extensions": [str(duck.wheel_file(name) or name) for name in extensions],
        "statements": statements,
    }
