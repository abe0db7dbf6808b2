"""Publishing: one PostgreSQL transaction that makes an intent visible, with our own bookkeeping inside it.

Line 10 of a refresh. Files, footers and statistics are complete before; then: take the snapshot row (the commit lock
that stock DuckDB shares) and read the facts, judge, write, let the caller write its rows, COMMIT. Four round trips, no
COPY and no pipeline under the lock, because the server's idle timeout does not reach into those. A commit
whose answer is lost is settled by its publish id. It never writes Parquet and never deletes a file.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg import errors as pg
from psycopg import sql

from lakemill.core.commit import Check, Intent
from lakemill.core.conflict import Failure, Step, after_failure, conflicts
from lakemill.errors import (
    BadArgument,
    CatalogInconsistent,
    LakemillError,
    NameTaken,
    OutcomeUnknown,
    PublishConflict,
    PublishTimedOut,
    StoreUnavailable,
)
from lakemill.lake.facts import Taken, take
from lakemill.lake.rows import Rows, Staging, lay_out
from lakemill.lake.statements import QUERIES, Statements
from lakemill.lake.writing import write
from lakemill.settings import PublishSettings
from lakemill.store import db
from lakemill.telemetry import metrics

Connect = Callable[[], psycopg.Connection[Any]]
More = Callable[[psycopg.Cursor[Any], int], None]

STEPS = ("connected", "staged", "locked", "checked", "written", "bookkept", "committed")
"""What ``trace`` is told, in order, each after it happened; between ``bookkept`` and ``committed`` lies COMMIT."""

_TRANSACTION_TIMEOUT_SINCE = 170000
_LONGEST_PAUSE = 0.25
_SETTLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Published:
    publish_id: UUID
    snapshot_id: int
    schema_version: int | None = None
    first_id: int | None = None
    """First file id of the commit; None when it was found published already."""
    attempts: int = 1


class Publisher:
    """Publishes intents over one connection that it keeps, and opens again when it is lost."""

    def __init__(
        self,
        connect: Connect | str,
        settings: PublishSettings | None = None,
        *,
        catalog_schema: str = "public",
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self._connect: Connect = (lambda: db.connect(connect)) if isinstance(connect, str) else connect
        self._settings = settings or PublishSettings()
        self._schema = catalog_schema
        self._trace = trace or (lambda _: None)
        self._conn: psycopg.Connection[Any] | None = None
        self._statements: Statements
        self._timeouts: dict[str, int] = {}
        self._lent = False
        """Somebody else's code had the connection, and may have left it with another search_path."""

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    # ------------------------------------------------------------ publishing
    def publish(self, intent: Intent, more: More | None = None) -> Published:
        """Make the intent visible, exactly once per publish id, however often it is asked for.

        ``more`` writes rows of ours in the same transaction: it gets the cursor and the new snapshot id, may run
        several times (each time in a new transaction), and must be short.
        """
        rows = lay_out(intent)
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._attempt(intent, rows, more, attempt)
            except _Failed as failed:
                step = after_failure(failed.failure, attempt, self._settings.retries + 1)
                if step is Step.SETTLE:
                    return self._settled(intent.publish_id, failed)
                if step is Step.RETRY:
                    if failed.failure in (Failure.LOST_RACE, Failure.SERIALIZATION):
                        metrics.count_conflict()
                    self._pause(attempt)
                    continue
                raise failed.told(attempt) from failed.__cause__

    def settle(self, publish_id: UUID) -> int | None:
        """What became of a publish whose answer was lost: its snapshot id, or None when it will never be.

        Inserting a void row under the same key waits for the transaction in flight: a duplicate key means that it was
        committed, success means that it was not, and now can't be any more.
        """
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            try:
                conn = self._connection()
                try:
                    conn.execute(QUERIES["settle"].compose(), {"publish_id": publish_id})
                except pg.UniqueViolation:
                    row = conn.execute(QUERIES["published"].compose(), {"publish_id": publish_id}).fetchone()
                    return row[0] if row else None
                return None
            except (psycopg.OperationalError, psycopg.InterfaceError, StoreUnavailable) as error:
                self.close()
                if time.monotonic() > deadline:
                    raise OutcomeUnknown(f"publish {publish_id} could not be settled: {error}") from error
                time.sleep(random.uniform(0.1, 1.0))  # noqa: S311  (jitter)

    # ------------------------------------------------------------ one attempt
    def _attempt(self, intent: Intent, rows: Rows, more: More | None, attempt: int) -> Published:
        conn = self._connection()
        self._trace("connected")
        try:
            with Staging(conn, rows) as staging:
                self._trace("staged")
                return self._transaction(conn, intent, rows, staging, more, attempt)
        except pg.UniqueViolation as error:
            if error.diag.table_name == "publishes":
                return self._found(intent.publish_id)
            raise _Failed(Failure.LOST_RACE if error.diag.table_name == "ducklake_snapshot" else None, error) from error
        except (pg.SerializationFailure, pg.DeadlockDetected) as error:
            raise _Failed(Failure.SERIALIZATION, error) from error
        except (pg.LockNotAvailable, pg.QueryCanceled) as error:
            raise _Failed(Failure.LOCKED, error) from error
        except psycopg.Error as error:  # a server that ends an idle transaction has several ways of saying so
            lost = conn.broken or conn.closed
            self.close()  # whatever went wrong, the next publish starts from a connection that it knows
            if not lost:
                raise
            raise _Failed(Failure.CONNECTION_LOST, error) from error

    def _transaction(
        self,
        conn: psycopg.Connection[Any],
        intent: Intent,
        rows: Rows,
        staging: Staging,
        more: More | None,
        attempt: int,
    ) -> Published:
        statements = self._statements
        try:
            taken = take(statements, intent, rows, staging, self._timeouts)
            self._trace("locked")
            self._judge(conn, intent, taken)
            self._trace("checked")
            wrong = write(statements, intent, rows, staging, taken)
            if wrong is not None:
                raise _Failed(Failure.CONFLICT, PublishConflict(wrong))
            self._trace("written")
            if more is not None:
                self._lent = True
                more(psycopg.ClientCursor(conn), taken.snapshot_id)
            self._trace("bookkept")
        except BaseException:
            _roll_back(conn)
            raise
        self._commit(statements)
        self._trace("committed")
        return Published(intent.publish_id, taken.snapshot_id, taken.schema_version, taken.first_id, attempt)

    def _judge(self, conn: psycopg.Connection[Any], intent: Intent, taken: Taken) -> None:
        if not taken.newest:
            raise _Failed(Failure.LOST_RACE, PublishConflict("another commit came and went"))
        found = conflicts(intent, taken.facts)
        if found:
            kind = NameTaken if all(conflict.takes_name for conflict in found) else PublishConflict
            raise _Failed(Failure.CONFLICT, kind("; ".join(conflict.reason for conflict in found)))
        for requirement in intent.requirements:
            if isinstance(requirement, Check):
                self._lent = True
                requirement.run(psycopg.ClientCursor(conn), taken.snapshot_id)

    def _commit(self, statements: Statements) -> None:
        try:
            committed = statements.commit()
        except (pg.SerializationFailure, pg.DeadlockDetected) as error:
            raise _Failed(Failure.SERIALIZATION, error) from error
        except pg.IdleInTransactionSessionTimeout as error:  # said before COMMIT was read: certainly not committed
            self.close()
            raise _Failed(Failure.CONNECTION_LOST, error) from error
        except psycopg.Error as error:
            self.close()
            raise _Failed(Failure.COMMIT_UNANSWERED, error) from error
        except BaseException:  # Ctrl-C: it may or may not have happened, and this connection must not go on from there
            self.close()
            raise
        if not committed:
            raise _Failed(Failure.SERIALIZATION, PublishTimedOut("the server rolled the publish back"))

    # ------------------------------------------------------------ around it
    def _connection(self) -> psycopg.Connection[Any]:
        if self._conn is not None and self._conn.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            self.close()  # lost, or left inside a transaction that must not be continued
        if self._conn is not None and self._lent:
            self._find_catalog(self._conn)
        if self._conn is None:
            conn = self._connect()
            if not conn.autocommit or conn.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                raise BadArgument("a publish needs a connection in autocommit mode with no transaction open")
            conn.prepare_threshold = None  # after a ROLLBACK psycopg forgets all statements of a session, ours too
            self._find_catalog(conn)
            self._conn, self._statements, self._timeouts = conn, Statements(conn), self._limits(conn)
        return self._conn

    def _find_catalog(self, conn: psycopg.Connection[Any]) -> None:
        path = sql.Identifier(self._schema).as_string(conn)
        try:
            conn.execute(QUERIES["find_catalog"].compose(), {"search_path": path})
        except psycopg.Error as error:
            conn.close()
            raise StoreUnavailable(f"the connection was lost at once: {db.reason(error)}") from error
        self._lent = False

    def _limits(self, conn: psycopg.Connection[Any]) -> dict[str, int]:
        s = self._settings
        newer = conn.info.server_version >= _TRANSACTION_TIMEOUT_SINCE
        statement = round(s.statement_timeout.total_seconds() * 1000)
        return {
            "idle_ms": round(s.idle_timeout.total_seconds() * 1000),
            "statement_ms": statement,
            "lock_ms": statement,
            "transaction_ms": round(s.transaction_timeout.total_seconds() * 1000) if newer else 0,
        }

    def _pause(self, attempt: int) -> None:
        time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.002 * 1.5 ** min(attempt, 20))))  # noqa: S311  (jitter)

    def _found(self, publish_id: UUID) -> Published:
        """The publish id is in use: this intent was published before, or was given up."""
        row = self._connection().execute(QUERIES["published"].compose(), {"publish_id": publish_id}).fetchone()
        if row is None or row[0] is None:
            raise PublishTimedOut(
                f"publish {publish_id} was given up", remedy="publish the files under a new publish id"
            )
        return Published(publish_id, row[0], attempts=0)

    def _settled(self, publish_id: UUID, failed: _Failed) -> Published:
        snapshot_id = self.settle(publish_id)
        if snapshot_id is None:
            raise PublishTimedOut(
                f"the connection was lost at COMMIT; nothing was published: {failed}"
            ) from failed.__cause__
        return Published(publish_id, snapshot_id, attempts=0)


def publish(
    connect: Connect | str,
    intent: Intent,
    *,
    more: More | None = None,
    settings: PublishSettings | None = None,
    catalog_schema: str = "public",
) -> Published:
    """Publish once, over a connection of its own."""
    with Publisher(connect, settings, catalog_schema=catalog_schema) as publisher:
        return publisher.publish(intent, more)


class _Failed(Exception):
    """An attempt that did not publish, and in which way."""

    def __init__(self, failure: Failure | None, error: BaseException) -> None:
        super().__init__(str(error).strip())
        self.failure = failure or Failure.CONFLICT
        self._error = error
        self._known = failure is not None

    def told(self, attempts: int) -> LakemillError:
        """The error for the caller."""
        if not self._known:
            return CatalogInconsistent(f"the catalog refused the commit: {self}")
        if self.failure is Failure.CONFLICT and isinstance(self._error, LakemillError):
            return self._error
        if self.failure is Failure.CONNECTION_LOST:
            return StoreUnavailable(f"the connection was lost {attempts} times before COMMIT: {self}")
        return PublishTimedOut(f"gave up after {attempts} attempts ({self.failure.value}): {self}")


def _roll_back(conn: psycopg.Connection[Any]) -> None:
    if conn.closed or conn.broken:
        return
    try:
        conn.execute("ROLLBACK")
    except psycopg.Error:
        conn.close()
