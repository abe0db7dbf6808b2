"""Beside a batch: its claim is kept alive while it works, and one that works for too long is stopped.

A thread a batch. When the time is over it gives the claim back, with the reason and a pause, so that anybody can try
again; what the late one still does can't be published any more. Then its Spark jobs are cancelled until it returns.
That it returns is not certain: whoever runs batches must be able to do without the thread (``runtime/coordinator``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from lakemill.core.batch import Claim, Consumer
from lakemill.core.names import QualifiedName
from lakemill.core.retry import Backoff
from lakemill.errors import BatchTimedOut, LakemillError
from lakemill.runtime.buses import consuming
from lakemill.settings import Settings
from lakemill.store import db
from lakemill.telemetry import metrics
from lakemill.telemetry.failures import failed

GRACE = 20.0
"""Seconds that a late batch has to return after its jobs were cancelled; until then they are cancelled again."""
_AGAIN = 1.0


@dataclass(slots=True)
class Watch:
    settings: Settings
    dsn: str
    held: Claim
    cancel: Callable[[], None]
    """Stops the Spark jobs of the batch, from another thread."""
    done: threading.Event = field(default_factory=threading.Event)
    late: threading.Event = field(default_factory=threading.Event)
    """The time was over, and the claim is given back: nothing more is to be told of it."""

    def run(self) -> None:
        ingest = self.settings.ingest
        limit, beat = ingest.batch_timeout.total_seconds(), ingest.claim_expiry.total_seconds() / 3
        end = time.monotonic() + limit
        while (left := end - time.monotonic()) > 0:
            if self.done.wait(min(beat, left)):
                return
            with suppress(LakemillError, *db.LOST), consuming(self.dsn) as consumer:
                consumer.extend(self.held, ingest.claim_expiry)  # one that is lost, the publish finds out
        self._stop(BatchTimedOut(f"it took longer than {limit:g} s"))

    def _stop(self, error: LakemillError) -> None:
        with suppress(LakemillError, *db.LOST), consuming(self.dsn) as consumer:
            if not give_back(consumer, self.settings, self.held, error, "timed_out"):
                return  # it is passed already, or somebody else's
        self.late.set()  # without PostgreSQL, too: then the claim runs out by itself
        until = time.monotonic() + GRACE
        while not self.done.is_set() and time.monotonic() < until:
            self.cancel()  # again: it may have been between two jobs
            self.done.wait(_AGAIN)


@contextmanager
def watched(settings: Settings, dsn: str, held: Claim, cancel: Callable[[], None]) -> Iterator[Watch]:
    """The body makes a batch under this claim."""
    watch = Watch(settings, dsn, held, cancel)
    threading.Thread(target=watch.run, daemon=True, name="lakemill-ingest-watch").start()
    try:
        yield watch
    finally:
        watch.done.set()


def give_back(consumer: Consumer, settings: Settings, held: Claim, error: Exception, status: str) -> bool:
    """It was tried in vain: others may try it, after a pause. False where the claim was lost meanwhile."""
    service = settings.service
    backoff = Backoff(service.retry_base, service.retry_factor, service.retry_cap)
    pause = backoff.delay(held.attempts + 1, QualifiedName("ingest", str(held.table_id)))
    if consumer.nack(held, str(error), pause) is None:
        return False
    failed("ingest", error, table_id=held.table_id, attempt=held.attempts + 1)
    metrics.count_batch(status)
    return True
