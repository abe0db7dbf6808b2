"""A process of producers: ``python -m tests.ingest.producers FOLDER NAME THREADS URL URL``, until SIGTERM or a kill.

Each thread sends small requests to three tables, by either API, and sends three in ten of them again on purpose: after
their answer, after an answer that it did not wait for, or to both at once. The answer must be the same each time. What
a process before it left unanswered it sends again, half of the time.
"""

from __future__ import annotations

import itertools
import json
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import httpx

from tests.ingest.journal import Journal, Journals, Kind, Record, Request, Told

RETRIED = 0.3
REFUSED, CONFLICTING = 0.02, 0.03
KEYS = 150
"""All producers write to these keys."""
PAUSE = (0.5, 2.5)
PATIENCE = 30.0
TABLES: tuple[Kind, ...] = ("plain", "keyed", "noted")


def token_of(text: str) -> int:
    return int(text.split("-")[2])


class Wrong(Exception):
    """An answer that must never be."""


class TurnedAway(Exception):
    """It was not accepted, or nobody knows: it may be sent again."""


class Door:
    """Both APIs."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = urls
        limits = httpx.Limits(max_connections=200, max_keepalive_connections=50)
        self._http = httpx.Client(timeout=PATIENCE, limits=limits, trust_env=False)

    def send(self, request: Request, where: int, *, body: bytes | None = None, patience: float = PATIENCE) -> Told:
        headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": request.key} if request.keyed else {})
        try:
            answer = self._http.post(
                f"{self.urls[where]}/v1/ingest/main.{request.table}",
                content=body or request.body(),
                headers=headers,
                timeout=httpx.Timeout(PATIENCE, read=patience),
            )
        except httpx.TransportError as error:
            raise TurnedAway(type(error).__name__) from error
        if answer.status_code not in (200, 202):
            raise _problem(answer)
        said = answer.json()
        counts = (said["accepted_count"], said["duplicate_count"], said["rejected_count"])
        told = Told(request.key, token_of(said["visibility_token"]), *counts, said["repeated"])
        if sum(counts) != len(request.records):
            raise Wrong(f"{request.key}: {said} of {len(request.records)} records")
        return told


def _problem(answer: httpx.Response) -> Exception:
    try:
        said = answer.json()
        code, retryable = said["code"], said["retryable"]
    except (ValueError, KeyError):
        return Wrong(f"HTTP {answer.status_code} {answer.text[:200]}")
    if retryable or code == "OUTCOME_UNKNOWN":
        return TurnedAway(code)
    return Wrong(f"{code}: {said['message']}, {said.get('trace_id')}")


class Producer:
    def __init__(self, journal: Journal, door: Door, name: str, stop: threading.Event) -> None:
        self.journal, self.door, self.name, self.stop = journal, door, name, stop
        self.rng = Random(name)
        self._numbers = itertools.count()
        self._both = ThreadPoolExecutor(1)
        self._known: list[Record] = []
        """Records with keys that were accepted."""

    def run(self, left: Sequence[Request]) -> None:
        for request in left:
            self._once(request, again=True)
        while not self.stop.wait(self.rng.uniform(*PAUSE)):
            request = self.next()
            self.journal.sent(request)
            self._once(request)

    # ------------------------------------------------------------ requests
    def next(self) -> Request:
        key, table = f"{self.name}.{next(self._numbers)}", self.rng.choice(TABLES)
        count = self.rng.choice((1, 1, 2, 3, 5))
        if table == "plain":
            refused = self.rng.random() < REFUSED
            rows: list[dict[str, Any]] = [{"req": key, "i": i, "v": self.rng.randrange(10**6)} for i in range(count)]
            if refused:
                rows[-1]["v"] = "many"
            return Request(key, table, tuple(Record("insert", row) for row in rows), refused=refused)
        if table == "keyed":
            return Request(key, table, tuple(self._write(key, i) for i in range(count)))
        records = [self._noted(key, i) for i in range(count)]
        if self._known and self.rng.random() < 0.3:  # some that it has sent before
            records += self.rng.sample(self._known, min(len(self._known), 2))
        return Request(key, table, tuple(records), keyed=self.rng.random() < 0.5)

    def _write(self, key: str, i: int) -> Record:
        k = self.rng.randrange(KEYS)
        if self.rng.random() < 0.25:
            return Record("delete", {"k": k})
        return Record("upsert", {"k": k, "v": self.rng.randrange(10**6), "req": key, "i": i})

    def _noted(self, key: str, i: int) -> Record:
        payload: dict[str, Any] = {"req": key, "i": i, "v": self.rng.randrange(10**6)}
        good = self.rng.random() < 0.8
        if not good:
            payload |= self.rng.choice(({"v": "many"}, {"more": 1}))
        return Record("insert", payload, f"{key}/{i}", good)

    # ------------------------------------------------------------ one request
    def _once(self, request: Request, *, again: bool = False) -> None:
        try:
            if request.refused:
                self._refused(request)
                return
            way = self.rng.choice(("after", "unheard", "both")) if self.rng.random() < RETRIED else "once"
            answers = self._both_at_once(request) if way == "both" else []
            if way == "unheard":  # it does not wait for the answer
                answers += self._tried(request, patience=self.rng.uniform(0.001, 0.03))
            if not answers or way != "both":
                answers += self._until_told(request)
            if answers and way == "after":
                answers += self._tried(request)
            self._compare(request, answers)
            if answers and self.rng.random() < CONFLICTING and request.keyed:
                self._conflict(request)
        except Wrong as error:
            self.journal.wrong(f"{error} (again: {again})")

    def _compare(self, request: Request, answers: Sequence[Told]) -> None:
        if answers and request.table == "noted":
            self._known = [*self._known, *request.records][-20:]
        if len({told.token for told in answers}) > 1:
            raise Wrong(f"{request.key} got several tokens: {answers}")

    def _until_told(self, request: Request) -> list[Told]:
        """None when it gives up: nobody knows then whether it was accepted."""
        while not (found := self._tried(request)):
            if self.stop.wait(self.rng.uniform(0.1, 1.5)) or self.rng.random() < 0.02:
                break
        return found

    def _tried(self, request: Request, *, where: int | None = None, patience: float = PATIENCE) -> list[Told]:
        try:
            told = self.door.send(request, self.rng.randrange(2) if where is None else where, patience=patience)
        except TurnedAway as error:
            self.journal.turned_away(str(error))
            return []
        self.journal.told(told)
        return [told]

    def _both_at_once(self, request: Request) -> list[Told]:
        other = self._both.submit(self._tried, request, where=0)
        return self._tried(request, where=1) + other.result()

    def _refused(self, request: Request) -> None:
        self._expect(request, request.body(), "BAD_RECORDS")

    def _conflict(self, request: Request) -> None:
        body = json.loads(request.body())
        body["records"].append(body["records"][0] | {"idempotency_key": f"{request.key}/other"})
        self._expect(request, json.dumps(body).encode(), "IDEMPOTENCY_CONFLICT")

    def _expect(self, request: Request, body: bytes, code: str) -> None:
        try:
            told = self.door.send(request, self.rng.randrange(2), body=body)
        except TurnedAway as error:
            self.journal.turned_away(str(error))
        except Wrong as error:
            if not str(error).startswith(code):
                raise
        else:
            raise Wrong(f"{request.key} was accepted instead of {code}: {told}")


def main() -> None:
    folder, name, threads, *urls = sys.argv[1:]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    door, generation = Door(urls), time.time_ns()
    before = Journals.read(sorted(Path(folder).glob(f"{name}-*.jsonl"))).unanswered()
    left = [request for request in before if Random(request.key).random() < 0.5]
    running = []
    for number in range(int(threads)):
        journal = Journal(Path(folder) / f"{name}-{number}-{generation}.jsonl")
        producer = Producer(journal, door, f"{name}.{number}.{generation % 10**12}", stop)
        mine = left[number :: int(threads)]
        running.append(threading.Thread(target=producer.run, args=(mine,), daemon=True))
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


if __name__ == "__main__":
    main()
