"""A process that sends requests by several threads, repeats some of them, and says what it was told.

    python -m tests.accept.producer DSN TABLE NAME THREADS REQUESTS

One line of JSON for each answer, as it came: key, token, accepted. With 0 requests it goes on until it is killed.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from itertools import count

from lakemill.core.bus import Request
from lakemill.runtime.accept import Acceptor
from lakemill.settings import IngestSettings
from lakemill.store import db
from lakemill.store.bus import PostgresBus

RETRIED = 0.3
COLUMNS = "v1"


def request(table_id: int, key: str, number: int) -> Request:
    """Every third one has keys for its records, too."""
    lines = [f'{{"o":"i","p":{{"k":"{key}","n":{n}}}}}'.encode() for n in range(1 + number % 3)]
    keys = {n: f"{key}.{n}" for n in range(len(lines))} if number % 3 == 0 else {}
    digests = dict.fromkeys(keys, b"d")
    return Request(table_id, COLUMNS, lines, range(len(lines)), keys, digests, key=key, digest=key.encode())


def main() -> None:
    dsn, table, name, threads, requests = sys.argv[1:]
    acceptor = Acceptor(PostgresBus(lambda: db.connect(dsn)), IngestSettings())
    told = threading.Lock()

    def produce(thread: int) -> None:
        choose = random.Random(f"{name} {thread}")
        for number in range(int(requests)) if int(requests) else count():
            key = f"{name}.{thread}.{number}"
            for _ in range(2 if choose.random() < RETRIED else 1):
                answer = acceptor.accept(request(int(table), key, number))
                with told:
                    print(json.dumps([key, answer.token, answer.accepted]), flush=True)

    running = [threading.Thread(target=produce, args=(thread,), daemon=True) for thread in range(int(threads))]
    for one in running:
        one.start()
    for one in running:
        one.join()
    acceptor.close()


if __name__ == "__main__":
    main()
