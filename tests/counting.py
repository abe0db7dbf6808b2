"""How many statements a connection sends: libpq's own trace counts them, so that BEGIN and COMMIT count too.

For tests that hold a number, and for benches that report one.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg.pq import Trace

from lakemill.store.db import Connection

_SENT = re.compile(rb"^F\t\d+\t(?:Query|Execute)\t", re.MULTILINE)  # one of the two for each statement, by protocol


class Sent:
    def __init__(self) -> None:
        self.count = 0
        """Known when the body is over."""


@contextmanager
def counted(conn: Connection) -> Iterator[Sent]:
    """What the body sends over this connection."""
    sent = Sent()
    with tempfile.TemporaryFile() as file:
        conn.pgconn.trace(file.fileno())
        conn.pgconn.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS)
        try:
            yield sent
        finally:
            conn.pgconn.untrace()
        file.seek(0)
        sent.count = len(_SENT.findall(file.read()))
