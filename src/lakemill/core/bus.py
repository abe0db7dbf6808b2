"""What is put on the bus, and what it answers: the contract of any bus, and the decision who gets a token.

A bus takes several requests at once and makes them durable in one step; each gets a token, or is recognised as one
that was accepted before, or is refused, without an effect on the others. ``decide`` is that judgement, on what the bus
remembers of keys while nobody else can add to it. The consuming side is ``core/batch``. No bus's own words here or
above.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from lakemill.core.records import DIGEST, Bad
from lakemill.errors import BadArgument, DefinitionChanged, IdempotencyConflict, LakemillError, NoIngestTable

TableKey = tuple[int, str]
ONCE = "a letter can be replayed once; send a new request instead"


@dataclass(frozen=True, slots=True)
class Request:
    """Checked records of one table, with what makes a repetition of it known."""

    table_id: int
    columns: str
    """The version that the records were checked against."""
    lines: Sequence[bytes]
    positions: Sequence[int]
    keys: Mapping[int, str] = field(default_factory=dict)
    """Idempotency keys of lines, by number."""
    digests: Mapping[int, bytes] = field(default_factory=dict)
    letters: Sequence[Bad] = ()
    key: str | None = None
    digest: bytes = b""
    """Of what was asked, in canonical form; and of its bytes, which stay the same when the table changes."""
    table_key: tuple[str, ...] = ()
    """What the table's key was when the records were checked."""
    replays: int | None = None
    """The dead letter that it is a replay of."""
    refused: LakemillError | None = None
    """Why it can't be accepted, unless it was before."""

    @property
    def size(self) -> int:
        return sum(map(len, self.lines)) + len(self.lines) + sum(len(bad.body) for bad in self.letters)


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a request is told; a repeated one is told the same again."""

    token: int
    accepted: int
    duplicate: int = 0
    rejected: int = 0
    repeated: bool = False
    """The answer of an earlier request under the same key."""
    originals: tuple[int, ...] = ()
    """With which tokens its duplicates came first; a repeated one is not told."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What was accepted and is not yet passed."""

    requests: int = 0
    records: int = 0
    bytes: int = 0
    age: float = 0.0
    """Seconds since the oldest of it was accepted."""


@dataclass(frozen=True, slots=True)
class Head:
    lake_id: UUID
    token: int
    watermark: int


Outcome = Accepted | LakemillError


class Bus(Protocol):
    """The accepting side of a bus. One caller at a time, but for ``forget``."""

    def publish(self, requests: Sequence[Request]) -> Sequence[Outcome]:
        """All of them durable in one step, one outcome each; raises only where nothing is known of any."""
        ...

    def head(self) -> Head: ...

    def backlog(self) -> Backlog: ...

    def forget(self) -> None:
        """Keys whose window is over, in bulk. It may take its time, and be called beside all others."""
        ...

    def close(self) -> None: ...


# ---------------------------------------------------------------- who gets a token
@dataclass(frozen=True, slots=True)
class Seen:
    """A key that was used: by whom, and for what."""

    token: int
    digest: bytes
    answer: Accepted | None = None
    """Of a request's key."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A request that leaves something: which of its lines are new, and which letters; or only its key."""

    request: Request
    token: int
    lines: Sequence[int]
    letters: Sequence[Bad]
    answer: Accepted


@dataclass(slots=True)
class Decided:
    outcomes: list[Outcome] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    head: int = 0


def decide(
    requests: Sequence[Request],
    head: int,
    tables: Mapping[int, tuple[str, ...]],
    known_requests: Mapping[TableKey, Seen],
    known_records: Mapping[TableKey, Seen],
    waiting_letters: Iterable[int] = (),
) -> Decided:
    """In order: tokens from ``head`` on for those with anything new; originals for those that were there before.

    ``tables`` are those that take requests, with their keys.
    """
    waiting = set(waiting_letters)
    asked, records = dict(known_requests), dict(known_records)
    done = Decided(head=head)
    for request in requests:
        try:
            done.outcomes.append(_one(request, done, tables, waiting, asked, records))
        except LakemillError as error:
            done.outcomes.append(error)
    return done


def _one(
    request: Request,
    done: Decided,
    tables: Mapping[int, tuple[str, ...]],
    waiting: set[int],
    asked: dict[TableKey, Seen],
    records: dict[TableKey, Seen],
) -> Accepted:
    if request.table_id not in tables:
        raise NoIngestTable("the table was dropped")
    if request.table_key != tables[request.table_id]:
        raise DefinitionChanged("the table has another key by now")
    if request.replays is not None and request.replays not in waiting:
        raise BadArgument(f"letter {request.replays} was replayed or dropped already", remedy=ONCE)
    if request.key is not None and (before := asked.get((request.table_id, request.key))) is not None:
        if before.answer is None or not _same(before.digest, request.digest):
            raise IdempotencyConflict(f"the key {request.key!r} was used for another request", place="Idempotency-Key")
        told = before.answer
        return Accepted(told.token, told.accepted, told.duplicate, told.rejected, repeated=True)
    if request.refused is not None:
        raise request.refused
    token = done.head + 1
    mine: dict[TableKey, Seen] = {}
    lines: Sequence[int] = range(len(request.lines))
    letters, originals = request.letters, set[int]()
    if request.keys or any(bad.key for bad in letters):
        new: list[int] = []
        for number in lines:
            key = request.keys.get(number)
            place = request.positions[number]
            found = None if key is None else _seen(request, key, request.digests[number], place, token, mine, records)
            if found is None:
                new.append(number)
            elif found != token:
                originals.add(found)
        lines = new
        fresh: list[Bad] = []
        for bad in letters:
            found = None if bad.key is None else _seen(request, bad.key, bad.digest, bad.position, token, mine, records)
            if found is None:
                fresh.append(bad)
            elif found != token:
                originals.add(found)
        letters = fresh
    duplicate = len(request.lines) - len(lines) + len(request.letters) - len(letters)
    if not lines and not letters:
        answer = Accepted(max(originals, default=done.head), 0, duplicate, originals=tuple(sorted(originals)))
    else:
        done.head = token
        answer = Accepted(token, len(lines), duplicate, len(letters), originals=tuple(sorted(originals)))
    if request.replays is not None:
        waiting.discard(request.replays)
    records.update(mine)
    if request.key is not None:
        asked[(request.table_id, request.key)] = Seen(answer.token, request.digest, answer)
    if lines or letters or request.key is not None:
        done.taken.append(Taken(request, answer.token, lines, letters, answer))
    return answer


def _same(one: bytes, other: bytes) -> bool:
    """Whether two requests are the same by either half of their digests."""
    halves = ((part[:DIGEST], part[DIGEST:]) for part in (one, other))
    (meaning, sent), (other_meaning, other_sent) = halves
    return meaning == other_meaning or (sent == other_sent != b"")


def _seen(
    request: Request,
    key: str,
    digest: bytes,
    position: int,
    token: int,
    mine: dict[TableKey, Seen],
    records: Mapping[TableKey, Seen],
) -> int | None:
    """The token that a record's key came with before; None for a new one, which is noted."""
    where = (request.table_id, key)
    before = mine.get(where) or records.get(where)
    if before is None:
        mine[where] = Seen(token, digest)
        return None
    if before.digest != digest:
        place = f"records[{position}].idempotency_key"
        raise IdempotencyConflict(f"the key {key!r} was used for another record", place=place)
    return before.token
