"""The bus in PostgreSQL, accepting side: several requests become durable in one short transaction.

Tables and letters are locked first, then the head, which is held to COMMIT; under it three short statements: which keys
are known, everything that is new, COMMIT. No pipeline and no COPY under the lock, because the server's idle timeout
does not reach into those. A commit whose answer is lost is looked up by its id, so that it is never done
twice. The consuming side is ``store/consumer``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import psycopg
from psycopg import errors as pg

from lakemill.core.bus import Accepted, Backlog, Decided, Head, Outcome, Request, Seen, TableKey, Taken, decide
from lakemill.errors import BadRecords, InternalError, OutcomeUnknown, StoreUnavailable
from lakemill.store.db import LOST, Connection, reason, unavailable
from lakemill.store.queries import load_queries
from lakemill.store.work import ACCEPTED

QUERIES = load_queries("bus")
ATTEMPTS = 3
SETTLE_SECONDS = 30.0
FORGET = 50_000
"""Keys that one statement removes."""
_FORGETTING = 0x6C616B652D666F72  # any constant will do, as long as nobody else in this database uses it
_IDLE = "SET idle_in_transaction_session_timeout = '5s'; SET lock_timeout = '20s'"
"""A process that is paused while it has the head must not stop all others."""

Connect = Callable[[], Connection]


@dataclass(slots=True)
class PostgresBus:
    """Opens its connection when it is needed, and again when it was lost."""

    connect: Connect
    settle_seconds: float = SETTLE_SECONDS
    _conn: Connection | None = field(default=None, repr=False)
    _look_up: bool = False
    """Whether keys of records are looked up before they are written: most are new, and then it costs a third."""

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def _connection(self) -> Connection:
        if self._conn is None or self._conn.closed:
            self._conn = self.connect()
            self._conn.execute(_IDLE)
        return self._conn

    # ------------------------------------------------------------ publishing
    def publish(self, requests: Sequence[Request]) -> Sequence[Outcome]:
        """See ``core/bus``. Tried again where it is known that nothing happened."""
        for attempt in range(1, ATTEMPTS + 1):
            commit_id = uuid.uuid4()
            try:
                outcomes = self._publish(requests, commit_id)
            except _Known:
                self._look_up = True
                return self.publish(requests)
            except _Lost as lost:
                self.close()
                if lost.decided is not None and self._happened(commit_id):
                    return lost.decided.outcomes
                if attempt == ATTEMPTS:
                    raise unavailable(lost) from lost
            except (pg.IdleInTransactionSessionTimeout, pg.LockNotAvailable, pg.DeadlockDetected) as error:
                self.close()
                if attempt == ATTEMPTS:
                    raise StoreUnavailable(f"the bus is held by somebody else: {reason(error)}") from error
            else:
                return outcomes
        raise InternalError("unreachable")

    def _publish(self, requests: Sequence[Request], commit_id: uuid.UUID) -> Sequence[Outcome]:
        decided: Decided | None = None
        try:
            conn = self._connection()
            conn.execute("BEGIN")
            try:
                done = self._decide(conn, requests)
                if done.taken and not self._write(conn, done, commit_id):
                    raise _Known
                decided = done if done.taken else None
                conn.execute("COMMIT")
                self._look_up = any(isinstance(one, Accepted) and one.duplicate for one in done.outcomes)
            except BaseException:
                if not conn.closed:
                    conn.execute("ROLLBACK")
                raise
            return done.outcomes
        except (pg.IdleInTransactionSessionTimeout, pg.LockNotAvailable, pg.DeadlockDetected):
            raise
        except LOST as error:
            raise _Lost(reason(error), decided) from error

    def _decide(self, conn: Connection, requests: Sequence[Request]) -> Decided:
        tables = sorted({request.table_id for request in requests})
        replays = sorted({request.replays for request in requests if request.replays is not None})
        live = {row[0]: tuple(row[1]) for row in conn.execute(QUERIES["ensure_tables"].compose(), {"tables": tables})}
        waiting = []
        if replays:
            waiting = [row[0] for row in conn.execute(QUERIES["waiting_letters"].compose(), {"letters": replays})]
        row = conn.execute(QUERIES["lock_head"].compose()).fetchone()
        assert row is not None  # noqa: S101 - the migration made it
        asked: dict[TableKey, Seen] = {}
        keys = [(request.table_id, request.key) for request in requests if request.key is not None]
        for table_id, key, token, digest, answer in _look_up(conn, "known_requests", keys):
            asked[table_id, key] = Seen(token, bytes(digest), msgspec.convert(answer | {"token": token}, Accepted))
        keys = [(request.table_id, key) for request in requests for key in request.keys.values()]
        keys += [(request.table_id, bad.key) for request in requests for bad in request.letters if bad.key is not None]
        found = _look_up(conn, "known_records", keys if self._look_up else ())
        records = {(table, key): Seen(token, bytes(digest)) for table, key, token, digest in found}
        return decide(requests, row[0], live, asked, records, waiting)

    def _write(self, conn: Connection, done: Decided, commit_id: uuid.UUID) -> bool:
        """False: a key of a record that nobody looked up was there before, so that what was decided is wrong."""
        values = _values(done.taken) | {"commit_id": commit_id, "channel": ACCEPTED, "looked_up": self._look_up}
        tokens = {one.token for one in done.taken if one.lines or one.letters}
        values |= {"head": done.head, "before": done.head - len(tokens)}
        row = conn.execute(QUERIES["write"].compose(), values).fetchone()
        if row is None:
            raise InternalError("the head of the bus moved although it was locked")
        return bool(row[0] == len(values["record_keys"]))

    def _happened(self, commit_id: uuid.UUID) -> bool:
        """Whether a commit whose answer was lost did happen; waits for it, where it is still under way."""
        until = time.monotonic() + self.settle_seconds
        while True:
            try:
                conn = self._connection()
                if conn.execute(QUERIES["settle"].compose(), {"commit_id": commit_id}).fetchone() is not None:
                    return False
                row = conn.execute(QUERIES["settled"].compose(), {"commit_id": commit_id}).fetchone()
                return row is not None and row[0] is not None
            except (*LOST, StoreUnavailable) as error:
                self.close()
                if time.monotonic() > until:
                    raise OutcomeUnknown(
                        f"the connection was lost at COMMIT: {reason(error)}",
                        remedy="send the request again under the same key",
                    ) from error
                time.sleep(0.2)

    # ------------------------------------------------------------ how it stands
    def head(self) -> Head:
        return Head(*self._ask("head"))

    def backlog(self) -> Backlog:
        return Backlog(*self._ask("backlog"))

    def forget(self) -> None:
        """One process does it at a time, by a connection of its own."""
        try:
            with self.connect() as conn:
                row = conn.execute(QUERIES["forgetting"].compose(), {"lock": _FORGETTING}).fetchone()
                if row is None or not row[0]:
                    return
                for query in ("forget_records", "forget_requests"):
                    while conn.execute(QUERIES[query].compose(), {"most": FORGET}).rowcount == FORGET:
                        pass
                conn.execute(QUERIES["forget_commits"].compose())
                conn.execute(QUERIES["forget_letters"].compose())
        except LOST as error:
            raise unavailable(error) from error

    def _ask(self, query: str) -> Any:
        for attempt in (1, 2):
            try:
                row = self._connection().execute(QUERIES[query].compose()).fetchone()
                assert row is not None  # noqa: S101 - they always give one
                return row
            except LOST as error:
                self.close()
                if attempt == 2:
                    raise unavailable(error) from error
        raise InternalError("unreachable")


class _Known(Exception):
    """A key was there that was taken for new."""


class _Lost(psycopg.OperationalError):
    """The connection is gone; with what was decided, where COMMIT may have happened."""

    def __init__(self, text: str, decided: Decided | None) -> None:
        super().__init__(text)
        self.decided = decided


def _look_up(conn: Connection, query: str, keys: Sequence[TableKey]) -> Sequence[Any]:
    if not keys:
        return ()
    values = {"tables": [table for table, _ in keys], "keys": [key for _, key in keys]}
    return conn.execute(QUERIES[query].compose(), values).fetchall()


def _values(taken: Sequence[Taken]) -> dict[str, Any]:
    """Columns of everything that is written."""
    bodies = [one for one in taken if one.lines]
    keyed = [one for one in taken if one.request.key is not None]
    letters = [(one, bad) for one in taken for bad in one.letters]
    records: list[tuple[int, str, int, bytes]] = []
    for one in taken:
        of = one.request
        if of.keys:
            numbers = [n for n in one.lines if n in of.keys]
            records += [(of.table_id, of.keys[n], one.token, of.digests[n]) for n in numbers]
        records += [(of.table_id, bad.key, one.token, bad.digest) for bad in one.letters if bad.key is not None]
    raw = [b"\n".join(one.request.lines[n] for n in one.lines) for one in bodies]
    return {
        "tokens": [one.token for one in bodies],
        "tables": [one.request.table_id for one in bodies],
        "columns": [one.request.columns for one in bodies],
        "records": [len(one.lines) for one in bodies],
        "bytes": [len(body) for body in raw],
        "bodies": [body.decode() for body in raw],
        "request_tables": [one.request.table_id for one in keyed],
        "request_keys": [one.request.key for one in keyed],
        "request_tokens": [one.token for one in keyed],
        "request_digests": [one.request.digest for one in keyed],
        "answers": [msgspec.json.encode(_told(one.answer)).decode() for one in keyed],
        "record_tables": [row[0] for row in records],
        "record_keys": [row[1] for row in records],
        "record_tokens": [row[2] for row in records],
        "record_digests": [row[3] for row in records],
        "letter_tables": [one.request.table_id for one, _ in letters],
        "letter_tokens": [one.token for one, _ in letters],
        "letter_positions": [bad.position for _, bad in letters],
        "letter_bodies": [_text(bad.body) for _, bad in letters],
        "letter_codes": [BadRecords.code for _ in letters],
        "letter_reasons": [_text(bad.reason.encode()) for _, bad in letters],
        "letter_places": [_text(bad.place.encode()) for _, bad in letters],
        "replayed": [one.request.replays for one in taken if one.request.replays is not None],
        "replayed_tokens": [one.token for one in taken if one.request.replays is not None],
    }


def _told(answer: Accepted) -> dict[str, int]:
    return {"accepted": answer.accepted, "duplicate": answer.duplicate, "rejected": answer.rejected}


def _text(raw: bytes) -> str:
    """As it came, as far as PostgreSQL can hold it."""
    return raw.decode("utf-8", "replace").replace("\x00", "\\u0000")
