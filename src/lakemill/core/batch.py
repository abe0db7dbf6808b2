"""What waits in a bus, who may pass it, and what passing means: the contract of a bus's consuming side.

Of a table one batch is made at a time, from its cursor on. Whoever makes it has a claim with a number; the transaction
that publishes the batch requires number and cursor as they were read, and moves the cursor itself. So a batch is passed
once, whoever was paused or killed, and the watermark stays below what is tried again. ``core/bus`` is the accepting
side. Wherever requests lie, claims, cursors, letters, ledger and watermark are the lake's: they change with a snapshot
or not at all. No bus's own words here or above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeAlias

LOOKED_AT = 10_000
"""Requests of a table that a look counts; more than that is many."""


@dataclass(frozen=True, slots=True)
class Pending:
    """What waits for a table."""

    table_id: int
    attempts: int
    requests: int
    records: int
    bytes: int
    age: float
    """Seconds since the oldest was accepted."""
    pause: float
    """Seconds for which it has to be left alone."""
    held: float
    """Seconds for which somebody has it, unless they say that it takes longer."""


@dataclass(frozen=True, slots=True)
class Claim:
    table_id: int
    holder: str
    fence: int
    cursor: int
    key: tuple[str, ...]
    policy: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Part:
    """Requests of one table with after < token ≤ upto, which one task reads."""

    after: int
    upto: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What is passed at once."""

    parts: tuple[Part, ...]
    first: int
    requests: int
    accepted_at: datetime
    """The first request's."""
    versions: frozenset[str]
    """Of the columns that the records were checked against."""

    @property
    def upto(self) -> int:
        return self.parts[-1].upto

    @property
    def records(self) -> int:
        return sum(part.records for part in self.parts)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)


@dataclass(frozen=True, slots=True)
class Letter:
    """A record that can't become a row."""

    token: int
    position: int
    code: str
    reason: str
    place: str = ""
    body: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one batch may hold; a single request may be larger."""

    requests: int = 10_000
    records: int = 500_000
    bytes: int = 64 * 10**6
    part: int = 8 * 10**6
    """Bytes that one task reads."""


Reader: TypeAlias = Callable[[Iterable[Any]], Iterable[Any]]
"""For executors: Arrow batches with numbers of parts → Arrow batches of their requests (token, body)."""


class Consumer(Protocol):
    """The consuming side of a bus, by one of the lake's connections: one caller at a time, and its transaction counts.

    A ``transaction`` that is handed over is that of the publish by which a batch becomes visible.
    """

    # ------------------------------------------------------------ what waits
    def any_table(self) -> bool:
        """Whether any table takes requests."""
        ...

    def pending(self, most: int = LOOKED_AT) -> tuple[Pending, ...]:
        """All tables with requests that wait, the one that waits longest first."""
        ...

    # ------------------------------------------------------------ whose it is
    def claim(self, table_id: int, holder: str, lease: timedelta) -> Claim | None:
        """The holder's for that long; None when somebody has it, it is to be left alone, or takes no requests."""
        ...

    def extend(self, held: Claim, lease: timedelta) -> None:
        """For longer, from now; ``ClaimLost`` where it is too late."""
        ...

    def release(self, held: Claim) -> None:
        """Left to others, at once. Nothing happens when it was lost."""
        ...

    def nack(self, held: Claim, reason: str, pause: timedelta) -> int | None:
        """Tried in vain: left alone for ``pause``, then anybody's. How often by now; None when the claim was lost."""
        ...

    def requeue_expired(self) -> tuple[int, ...]:
        """Tables whose holder said nothing for too long: anybody's again."""
        ...

    def held(self) -> tuple[tuple[int, str], ...]:
        """Tables that somebody has, and who."""
        ...

    def take_away(self, table_id: int, holder: str) -> None:
        """A holder is known to be gone. Should it live after all, its claim is lost."""
        ...

    # ------------------------------------------------------------ reading it
    def read(self, held: Claim, limits: Limits) -> Batch | None:
        """The next batch, counted and cut into parts; None when nothing waits."""
        ...

    def reader(self, table_id: int, parts: Sequence[Part]) -> Reader:
        """What executors read a batch's requests by; it travels to them by value."""
        ...

    def tokens(self, held: Claim, batch: Batch) -> tuple[tuple[int, int], ...]:
        """The requests of a batch in their order, and how many records each has."""
        ...

    def versions(self, held: Claim, batch: Batch) -> tuple[str, ...]:
        """Of the same, the version of the columns that each was accepted for."""
        ...

    def records(self, places: Iterable[tuple[int, int]]) -> Mapping[tuple[int, int], str]:
        """Few records, as they were accepted, by token and position."""
        ...

    # ------------------------------------------------------------ passing it
    def require(self, transaction: Any, held: Claim) -> None:
        """Claim and cursor are as they were, and stay so until the transaction ends; else ``ClaimLost``."""
        ...

    def ack(
        self, transaction: Any, held: Claim, batch: Batch, snapshot_id: int, rows: int, letters: Sequence[Letter] = ()
    ) -> None:
        """The batch is passed, by this transaction: cursor, ledger, letters, watermark. Those who wait are told."""
        ...

    def pass_by(self, held: Claim, batch: Batch, letters: Sequence[Letter] = ()) -> None:
        """The batch is passed, and nothing of it changes the table."""
        ...

    def bury(self, held: Claim, batch: Batch, code: str, reason: str) -> None:
        """The batch is passed, all of it as dead letters."""
        ...

    # ------------------------------------------------------------ how far it is
    def table_watermark(self, table_id: int) -> int | None:
        """Nothing at or below it can still become visible in the table; None where it takes no requests."""
        ...

    def not_passed(self, token: int, table_ids: Iterable[int] | None = None) -> tuple[int, ...]:
        """Of these tables, or of all, those where something at or below the token waits."""
        ...

    # ------------------------------------------------------------ tidying
    def tidy(self, keep: timedelta) -> None:
        """Requests that no batch can need any more go, and the ledger's part that is older than ``keep`` shrinks.

        The watermark is raised over tables that had nothing to do.
        """
        ...
