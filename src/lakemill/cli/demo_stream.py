"""The demo's last part: events arrive over HTTP, and whoever sent them reads what a dynamic table makes of them.

``runtime/demo`` has made the lake; here, above the API, a server of this process takes requests on loopback, as
`lakemill serve` does, a coordinator makes rows of them, and `lakemill.Client` is the one who writes and asks. Nothing
is shown that was not answered by the server.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from lakemill.client import Client, Receipt
from lakemill.core.ddl import parse_definition
from lakemill.core.names import MAIN, QualifiedName
from lakemill.core.refresh import Outcome
from lakemill.errors import ConsistencyTimeout, InternalError
from lakemill.lake.tables import Declared
from lakemill.runtime import ingest_tables
from lakemill.runtime.demo_step import Shown
from lakemill.runtime.dynamic import create
from lakemill.runtime.open import Lake
from lakemill.runtime.refresh import refresh
from lakemill.runtime.verify import verify
from lakemill.settings import Settings

PAYMENTS = QualifiedName(MAIN, "payments")
PAID = QualifiedName(MAIN, "paid")
DECLARED = """\
CREATE DYNAMIC TABLE paid TARGET_LAG = '1 minute' AS
SELECT o.country, count(*) AS payments, sum(p.amount) AS amount
FROM payments p JOIN orders o ON o.id = p.order_id GROUP BY o.country"""
COLUMNS = (("id", "BIGINT"), ("order_id", "BIGINT"), ("amount", "DECIMAL(9,2)"))
SEND = """\
client = lakemill.Client("{url}")
for n in range({requests}):
    receipt = client.ingest("payments", payments[n], key=f"till-7/{{n}}")
again = client.ingest("payments", payments[{last}], key="till-7/{last}")  # as if its answer was lost
client.wait(receipt.token)"""
ASK = """\
client.query("{query}", timeout=0.2)  # {refused}
lake.refresh("paid")
client.query("{query}")  # POST /v1/query, with the client's last token"""
QUERY = "FROM paid ORDER BY country"
REQUESTS, EACH = 40, 50
SECONDS = 60.0
Step = Callable[[], Shown]


@contextmanager
def streaming(lake: Lake) -> Iterator[Sequence[Step]]:
    """The steps, while server and coordinator run."""
    from lakemill.api.app import make
    from lakemill.api.desk import Desk
    from lakemill.api.probes import LOOPBACK, serve_in_thread
    from lakemill.runtime.coordinator import Coordinator

    settings = _settings(lake.settings)
    stop = threading.Event()
    coordinator = threading.Thread(target=Coordinator(settings).run, args=(stop,), name="demo-coordinator", daemon=True)
    desk = Desk(settings, LOOPBACK)
    desk.start()
    http = serve_in_thread(make(desk))
    try:
        with Client(http.url) as client:
            stream = _Stream(lake, client, http.url)
            coordinator.start()
            yield stream.declare, stream.send, stream.ask
    finally:
        stop.set()
        http.stop()
        desk.close()
        if coordinator.ident is not None:
            coordinator.join(SECONDS)


def _settings(given: Settings) -> Settings:
    """A demo runs on any machine, also where the kernel can't confine queries: here they are its own."""
    return given.model_copy(update={"query": given.query.model_copy(update={"confinement": "try"})})


class _Stream:
    def __init__(self, lake: Lake, client: Client, url: str) -> None:
        self.lake, self.client, self.url = lake, client, url

    def declare(self) -> Shown:
        ingest_tables.create(self.lake, PAYMENTS, [Declared(*column) for column in COLUMNS], key=("id",))
        create(self.lake, parse_definition(DECLARED))
        columns = ", ".join(map(" ".join, COLUMNS))
        code = f"lakemill serve\nlakemill table create payments '{columns}' --key id\nlakemill create \"{DECLARED}\""
        said = f"HTTP is served on {self.url}, {self.url}/docs tells what; `paid` joins what will come to the orders."
        return Shown("Let events in", "HTTP", code, "bash", said)

    def send(self) -> Shown:
        begun = time.monotonic()
        receipts = [self.client.ingest("payments", _events(n), key=f"till-7/{n}") for n in range(REQUESTS)]
        accepted = time.monotonic()
        again = self.client.ingest("payments", _events(REQUESTS - 1), key=f"till-7/{REQUESTS - 1}")
        if again.token != receipts[-1].token or not again.repeated:
            raise InternalError("a request of the demo that was sent again was taken for another one")
        if not self.client.wait(timeout=SECONDS):
            raise InternalError("what the demo sent did not become visible")
        visible = time.monotonic()
        said = (
            f"{REQUESTS * EACH:,} events were durable after {accepted - begun:.1f} s, and rows of the lake"
            f" {visible - accepted:.1f} s later: Spark wrote them, with the cursor, in one transaction. What was sent"
            " again got its first token, and was not written twice."
        )
        code = SEND.format(url=self.url, requests=REQUESTS, last=REQUESTS - 1)
        rows = (*map(_row, (0, REQUESTS - 1), (receipts[0], receipts[-1])), _row(REQUESTS - 1, again))
        return Shown("Stream events", "HTTP", code, "python", said, ("key", "status", "accepted", "token"), rows)

    def ask(self) -> Shown:
        try:
            self.client.query(QUERY, timeout=0.2)
            raise InternalError("a dynamic table of the demo shows what it has not seen")
        except ConsistencyTimeout as error:
            refused = error.code
        record = refresh(self.lake, [PAID])[-1]
        if record.outcome is not Outcome.SUCCEEDED or record.action is None:
            raise InternalError(f"the demo's {PAID} was not refreshed: {record.error_code}: {record.error_text}")
        answer = self.client.query(QUERY, timeout=SECONDS)
        found = answer.arrow()
        if not verify(self.lake, PAID).equal or sum(found["payments"].to_pylist()) != REQUESTS * EACH:
            raise InternalError(f"the demo's {PAID} does not show what was sent")
        said = (
            f"A query that brings a token sees what was written up to it, or says that it can't yet. After a refresh"
            f" ({record.action.value}, {record.rows_in:,} rows in) it is there, at snapshot"
            f" {answer.headers['x-snapshot-id']}: every event once. verified by DuckDB."
        )
        code = ASK.format(query=QUERY, refused=refused)
        rows = tuple(tuple(row.values()) for row in found.to_pylist())
        return Shown("Read your own writes", "HTTP", code, "python", said, tuple(found.column_names), rows)


def _events(request: int) -> list[dict[str, object]]:
    ids = range(request * EACH, (request + 1) * EACH)
    return [{"id": id_, "order_id": 20_000 + 37 * id_, "amount": f"{id_ % 90 + 10}.50"} for id_ in ids]


def _row(number: int, receipt: Receipt) -> tuple[str, str, int, str]:
    again = "accepted before" if receipt.repeated else receipt.status
    return f"till-7/{number}", again, receipt.accepted, receipt.token
