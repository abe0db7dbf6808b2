"""A process that reads its own writes: ``python -m tests.ingest.checkers FOLDER NAME URL URL``, until SIGTERM.

Each of its threads writes by ``lakemill.Client`` to all three tables, one request after the other, and asks by either
API for what it wrote, with its token: all of it, or a refusal that says to try again; never an answer without it.
Without a token it sees as much as the answer's own token says, and whatever it was told is visible; nothing later
before something earlier; and a snapshot that was seen stays what it was.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from lakemill.client import Client, Receipt, Result
from lakemill.errors import ConsistencyTimeout, LakemillError, Retry
from tests.ingest.journal import Journal, Kind, Record, Request, Told
from tests.ingest.producers import TABLES, TurnedAway, Wrong, token_of

KEYS = 20
"""Of its own, which nobody else writes to."""
PATIENCE = 25.0
WAITING = 0.15
THREADS = 4
"""Each for itself: they mostly wait."""
ROWS = {
    "plain": "SELECT req, i, v FROM plain WHERE starts_with(req, ?)",
    "noted": "SELECT req, i, v FROM noted WHERE starts_with(req, ?)",
    "keyed": "SELECT req, k, v FROM keyed WHERE starts_with(req, ?)",
}
Row = tuple[str, int, int]


class Checker:
    def __init__(self, journal: Journal, urls: Sequence[str], name: str, first_key: int, stop: threading.Event) -> None:
        self.journal, self.name, self.first_key, self.stop = journal, f"{name}.", first_key, stop
        self.rng = Random(name)
        self.clients = [Client(url, retry_for=2.0) for url in urls]
        self.tokens: dict[Kind, list[tuple[int, Request]]] = {table: [] for table in TABLES}
        """What was accepted, in order."""
        self.texts: dict[int, str] = {}
        self._number = 0

    def run(self) -> None:
        while not self.stop.wait(self.rng.uniform(0.05, 0.6)):
            try:
                written = [self._write() for _ in range(self.rng.choice((1, 1, 2, 4)))]
                if (latest := written[-1]) is None:
                    return
                self._read(latest, self.rng.sample(TABLES, self.rng.choice((1, 1, 2))))
                if self.rng.random() < 0.4:
                    self._glance(self.rng.choice(TABLES))
            except TurnedAway as error:
                self.journal.turned_away(str(error))
            except Wrong as error:
                self.journal.wrong(str(error))
            except LakemillError as error:
                self.journal.wrong(f"refused: {error}")

    # ------------------------------------------------------------ writing
    def _write(self) -> int | None:
        """Until it is accepted; its token. None when it must stop before."""
        self._number += 1
        key, table = f"{self.name}{self._number}", self.rng.choice(TABLES)
        records = tuple(self._record(table, key, i) for i in range(self.rng.choice((1, 2, 3))))
        request = Request(key, table, records)
        self.journal.sent(request)
        while not self.stop.is_set():
            try:
                receipt = self._sent(request)
            except LakemillError as error:
                if error.retry not in (Retry.BACK_OFF, Retry.LOOK_FIRST):
                    raise Wrong(f"{key}: {error}") from error
                self.journal.turned_away(error.code)
                self.stop.wait(0.3)
                continue
            token = token_of(receipt.token)
            counts = (receipt.accepted, receipt.duplicate, receipt.rejected)
            self.journal.told(Told(key, token, *counts, receipt.repeated))
            if any(earlier >= token for of in self.tokens.values() for earlier, _ in of):
                raise Wrong(f"{key} came later than others, and has the token {token}")
            self.tokens[table].append((token, request))
            self.texts[token] = receipt.token
            if receipt.visible:
                self._seen(table, token)
            return token
        return None

    def _record(self, table: Kind, key: str, i: int) -> Record:
        v = self.rng.randrange(10**6)
        if table != "keyed":
            return Record("insert", {"req": key, "i": i, "v": v}, f"{key}/{i}" if table == "noted" else None)
        k = self.first_key - self.rng.randrange(KEYS)
        if self.rng.random() < 0.2:
            return Record("delete", {"k": k})
        return Record("upsert", {"k": k, "v": v, "req": key, "i": i})

    def _sent(self, request: Request) -> Receipt:
        """Now and then it waits until it is visible, or for a while."""
        body = json.loads(request.body())
        if self.rng.random() < WAITING:
            body |= {"wait_for_visibility": True, "visibility_timeout_ms": round(1000 * PATIENCE)}
        client = self.rng.choice(self.clients)
        return client.send(f"main.{request.table}", json.dumps(body).encode(), key=request.key)

    # ------------------------------------------------------------ reading
    def _read(self, token: int, tables: Sequence[Kind]) -> None:
        """With the token: all that was written up to it; nothing of it was written after."""
        begun = time.monotonic()
        for table in tables:
            result = self._asked(table, token=self.texts[token], timeout=PATIENCE)
            self._require(table, result, token, f"with token {token}")
        self.journal.seen("read", time.monotonic() - begun)

    def _seen(self, table: Kind, token: int) -> None:
        """It was told that its write is visible: whoever asks from now on sees it, by either API, without a token."""
        begun = time.monotonic()
        self._require(table, self._asked(table, own_writes=False), token, f"after {token} was visible")
        self.journal.seen("visible", time.monotonic() - begun)

    def _glance(self, table: Kind) -> None:
        """Without: what the answer says that it covers, and a beginning of all; the same again at its snapshot."""
        begun = time.monotonic()
        result = self._asked(table, own_writes=False)
        covered = token_of(result.headers["x-visibility-token"])
        rows = self._require(table, result, covered, f"covering {covered}", more=True)
        again = self._asked(table, snapshot=int(result.headers["x-snapshot-id"]))
        if Counter(_rows(again)) != rows:
            raise Wrong(f"{table} at snapshot {result.headers['x-snapshot-id']} is another one by now")
        self.journal.seen("glance", time.monotonic() - begun)

    def _asked(self, table: Kind, **how: Any) -> Result:
        client = self.rng.choice(self.clients)
        try:
            return client.query(ROWS[table], [self.name], **how)
        except ConsistencyTimeout as error:
            raise TurnedAway(f"query: {error.code}") from error
        except LakemillError as error:
            if error.retry is Retry.NEVER:
                raise Wrong(f"a query of {table}: {error}") from error
            raise TurnedAway(f"query: {error.code}") from error

    def _require(self, table: Kind, result: Result, token: int, how: str, *, more: bool = False) -> Counter[Row]:
        """The rows are those of all writes up to the token; or, with ``more``, up to one of the later ones."""
        found = Counter(_rows(result))
        writes = self.tokens[table]
        least = sum(1 for at, _ in writes if at <= token)
        for upto in range(least, len(writes) + 1) if more else (len(writes),):
            if Counter(content([request for _, request in writes[:upto]])) == found:
                return found
        wanted = Counter(content([request for _, request in writes[:least]]))
        at = result.headers["x-snapshot-id"]
        raise Wrong(f"{table} {how} at snapshot {at}: missing {wanted - found}, more {found - wanted}")


def _rows(result: Result) -> list[Row]:
    return [(row[0], row[1], row[2]) for row in zip(*result.arrow().to_pydict().values(), strict=True)]


def content(requests: Sequence[Request]) -> list[Row]:
    """What these requests of one table make, in their order."""
    rows: list[Row] = []
    keys: dict[int, Row] = {}
    for request in requests:
        for record in request.records:
            payload = record.payload
            if request.table != "keyed":
                rows += [(payload["req"], payload["i"], payload["v"])] if record.good else []
            elif record.op == "delete":
                keys.pop(payload["k"], None)
            else:
                keys[payload["k"]] = (payload["req"], payload["k"], payload["v"])
    return rows + list(keys.values())


def main() -> None:
    folder, name, *urls = sys.argv[1:]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    running = []
    for number in range(THREADS):
        journal = Journal(Path(folder) / f"{name}-{number}.jsonl")
        first_key = -1000 * (1 + int(name.removeprefix("c")) * THREADS + number)
        checker = Checker(journal, urls, f"{name}.{number}", first_key, stop)
        running.append(threading.Thread(target=checker.run))
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


if __name__ == "__main__":
    main()
