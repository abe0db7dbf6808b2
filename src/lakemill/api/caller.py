"""The caller of one request: who it is, what it may, and its ways to the lake. What endpoints ask for.

    @router.get("/v1/things/{name}")
    def get(name: str, caller: Who) -> Thing:
        caller.require(Action.SEE, parse_name(name))
        with caller.lake() as lake: …

Endpoints are plain functions, run in threads; admission (key, request quota) was ``api/frame``'s, before them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from fastapi import Depends, Request

from lakemill.api.authentication import Granted
from lakemill.api.desk import Desk
from lakemill.core.names import QualifiedName
from lakemill.core.quota import Resource
from lakemill.core.rights import Action, Identity, Reach, holder_of, reach_of, require, sees
from lakemill.errors import UserError
from lakemill.runtime.meaning import meaning
from lakemill.runtime.open import Lake
from lakemill.store import audit


@dataclass(frozen=True, slots=True)
class Caller:
    granted: Granted
    trace_id: str
    desk: Desk

    @property
    def identity(self) -> Identity:
        return self.granted.identity

    @property
    def holder(self) -> str:
        """What its pins are held by."""
        return holder_of(self.identity)

    @property
    def reach(self) -> Reach:
        """Whose queries and pins it may end."""
        return reach_of(self.identity)

    def require(self, action: Action, *tables: QualifiedName) -> None:
        """Refuse what it may not do, and tables that it does not see."""
        require(self.identity, action, *tables)

    def sees(self, table: QualifiedName) -> bool:
        return sees(self.identity, table)

    def lake(self) -> AbstractContextManager[Lake]:
        return self.desk.lake()

    def charge(self, *, rows: int = 0, bytes: int = 0) -> None:
        """Count it against the quotas of its key and tenant; refuse with Retry-After where they are used up."""
        self.desk.meter.charge(self.granted.limits, Resource.ROWS, rows)
        self.desk.meter.charge(self.granted.limits, Resource.BYTES, bytes)

    def query_slot(self, ttl: timedelta) -> AbstractContextManager[None]:
        """One of the queries that it may run at a time."""
        return self.desk.meter.query_slot(self.granted.limits, ttl)

    @contextmanager
    def audited(
        self, action: str, *, about: str | None = None, sql: str | None = None, tables: Sequence[QualifiedName] = ()
    ) -> Iterator[audit.Action]:
        """The body goes into the audit log, however it ends; it may add what it comes to know."""
        who = self.identity
        entry = audit.Action(who.name, action, self.trace_id, who.tenant, about, sql, tuple(map(str, tables)))
        begun = time.monotonic()
        try:
            yield entry
        except Exception as error:
            found = meaning(error)
            entry.outcome = audit.Ended.REFUSED if isinstance(found, UserError) else audit.Ended.FAILED
            entry.code = found.code
            raise
        finally:
            entry.seconds = time.monotonic() - begun
            self.desk.record(entry)


def _caller(request: Request) -> Caller:
    found: Caller = request.state.caller
    return found


Who = Annotated[Caller, Depends(_caller)]
"""An argument of an endpoint: the caller."""
