"""What a producer writes down: each request before it is sent, each answer when it came, and what must not have been.

A line of JSON each, in a file of its own for every thread of every process. The line of a request is on the disk before
its first byte leaves, so that whoever kills the producer can't kill the knowledge of what it may have written. Read by
``model`` when all is over, and by the producer that comes after one that was killed.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Kind = Literal["plain", "keyed", "noted"]
"""The three tables: rows are appended; the last write of a key counts; records have keys, and bad ones are letters."""


@dataclass(frozen=True, slots=True)
class Record:
    op: str
    payload: Mapping[str, Any]
    key: str | None = None
    good: bool = True
    """Whether it fits its table."""

    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = {"op": self.op, "payload": self.payload}
        return found if self.key is None else {**found, "idempotency_key": self.key}


@dataclass(frozen=True, slots=True)
class Request:
    key: str
    """What it is called here, and its Idempotency-Key, unless its records' own keys have to do."""
    table: Kind
    records: tuple[Record, ...]
    keyed: bool = True
    """It is sent under its key."""
    refused: bool = False
    """It must not be accepted: a record does not fit, and its table refuses such requests."""

    def body(self) -> bytes:
        return json.dumps({"records": [record.body() for record in self.records]}).encode()


@dataclass(frozen=True, slots=True)
class Told:
    """An answer."""

    key: str
    token: int
    accepted: int
    duplicate: int
    rejected: int
    repeated: bool


class Journal:
    """Appends; any thread may."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._lock = threading.Lock()

    def sent(self, request: Request) -> None:
        self._write("sent", asdict(request), durable=True)

    def told(self, told: Told) -> None:
        self._write("told", asdict(told))

    def turned_away(self, reason: str) -> None:
        """Not accepted, or not known whether: it may be sent again."""
        self._write("turned away", reason)

    def seen(self, what: str, seconds: float) -> None:
        """A look that was right."""
        self._write("seen", [what, round(seconds, 3)])

    def wrong(self, text: str) -> None:
        """What must never be."""
        self._write("wrong", text)

    def _write(self, kind: str, what: Any, *, durable: bool = False) -> None:
        line = json.dumps([kind, what]).encode() + b"\n"
        with self._lock:
            os.write(self._file, line)
        if durable:
            os.fdatasync(self._file)


@dataclass(slots=True)
class Journals:
    """All that was written down."""

    requests: dict[str, Request] = field(default_factory=dict)
    answers: list[Told] = field(default_factory=list)
    turned_away: list[str] = field(default_factory=list)
    seen: list[tuple[str, float]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, files: Iterable[Path]) -> Journals:
        found = cls()
        for file in files:
            for line in file.read_bytes().split(b"\n")[:-1]:  # a line without its end was not sent
                found._take(file.stem, *json.loads(line))
        return found

    def unanswered(self) -> list[Request]:
        answered = {told.key for told in self.answers}
        return [one for one in self.requests.values() if one.key not in answered and not one.refused]

    def _take(self, whose: str, kind: str, what: Any) -> None:
        if kind == "sent":
            records = tuple(Record(**record) for record in what.pop("records"))
            self.requests[what["key"]] = Request(records=records, **what)
        elif kind == "told":
            self.answers.append(Told(**what))
        elif kind == "turned away":
            self.turned_away.append(what)
        elif kind == "seen":
            self.seen.append((what[0], what[1]))
        else:
            self.wrong.append(f"{whose}: {what}")
