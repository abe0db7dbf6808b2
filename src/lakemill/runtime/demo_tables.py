"""The demo's second half: a chain of three dynamic tables that follows a writer, checked by DuckDB after each step.

``runtime/demo`` has made the lake and its orders. Here a writer (stock DuckDB, with a connection of its own) inserts,
updates, deletes, and at last goes on writing while Spark refreshes. Each step shows for each table what was done, how
many rows came in and went out, and whether DuckDB, computing the query at the same snapshot, finds the same rows.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from lakemill.core.ddl import parse_definition
from lakemill.core.names import MAIN, QualifiedName
from lakemill.core.refresh import Action, Outcome
from lakemill.errors import InternalError
from lakemill.lake import duck
from lakemill.runtime.demo_step import Shown
from lakemill.runtime.dynamic import create
from lakemill.runtime.open import Lake
from lakemill.runtime.refresh import refresh
from lakemill.runtime.verify import verify
from lakemill.store.history import RefreshRecord

DECLARED = """\
CREATE DYNAMIC TABLE big_orders TARGET_LAG = DOWNSTREAM AS
SELECT id, customer, country, amount FROM orders WHERE amount >= 450;

CREATE DYNAMIC TABLE revenue TARGET_LAG = DOWNSTREAM AS
SELECT country, customer, count(*) AS orders, sum(amount) AS amount
FROM big_orders GROUP BY country, customer;

CREATE DYNAMIC TABLE top_customers TARGET_LAG = '5 minutes' AS
SELECT country, customer, amount, rank() OVER (PARTITION BY country ORDER BY amount DESC) AS place
FROM revenue QUALIFY place <= 2"""
CHAIN = tuple(QualifiedName(MAIN, name) for name in ("big_orders", "revenue", "top_customers"))
INSERT = """\
INSERT INTO orders VALUES
  (200001, 'customer-7', 'FR', 950.00, DATE '2026-04-01'),
  (200002, 'customer-7', 'FR', 800.00, DATE '2026-04-01'),
  (200003, 'customer-8', 'DE',   5.00, DATE '2026-04-01')"""
UPDATE = "UPDATE orders SET amount = amount + 1000 WHERE id IN (200002, 200003)"
DELETE = "DELETE FROM orders WHERE customer = 'customer-7' AND country = 'FR' AND id >= 200000"
NOTHING = "UPDATE orders SET day = day + 1 WHERE id = 200003"
MEANWHILE = "INSERT INTO orders VALUES ({n}, 'customer-2', 'KE', 5000, DATE '2026-04-02')"
FIRST = 300_000
COLUMNS = ("table", "action", "rows in", "rows out", "verified by DuckDB")


class Chain:
    """The steps, in order; each works on what the one before it left."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake

    def declare(self) -> Shown:
        records = [create(self.lake, parse_definition(text)).records[-1] for text in DECLARED.split(";\n\n")]
        said = (
            "Each equals its query at one snapshot of the lake. Spark computed them; DuckDB computed them again from "
            "the orders and compared row by row: equal."
        )
        return self._shown("Declare three dynamic tables", DECLARED + ";", said, records)

    def insert(self) -> Shown:
        said = (
            "Orders only came, so big orders only come: APPEND. Behind them only the customer and the country that "
            "changed were computed anew: KEYS."
        )
        return self._step("A writer inserts", INSERT, said)

    def update(self) -> Shown:
        said = (
            "One order became bigger, one became big: what went and what came passed through the query with its sign."
        )
        return self._step("It updates", UPDATE, said)

    def delete(self) -> Shown:
        return self._step("It deletes", DELETE, "Rows that went are taken back, all along the chain.")

    def nothing(self) -> Shown:
        said = "Of a column that no table reads nothing is written, and the tables behind are not computed at all."
        return self._step("It changes what nobody reads", NOTHING, said)

    def meanwhile(self) -> Shown:
        """A writer that waits for nobody."""
        stop = threading.Event()
        writer = _Writer(self.lake, stop)
        writer.start()
        writer.wrote_once.wait()
        try:
            records = self._refreshed()
        finally:
            stop.set()
            writer.join()
        if writer.failed is not None:
            raise writer.failed
        b, head = records[-1].b, self.lake.snapshot().id
        said = (
            f"All three were refreshed at snapshot {b}, and equal their queries there, while the writer made "
            f"{writer.commits} commits; the lake is at {head} by now. The next refresh takes the rest along."
        )
        each = MEANWHILE.format(n=f"{FIRST} + n")
        code = f"{each};\n-- n = 0 … {writer.commits - 1}, a commit each; and at the same time:\n{_STATEMENT}"
        return self._shown("It does not wait for us", code, said, records)

    def top(self) -> Shown:
        query = "FROM top_customers ORDER BY country, place"
        cursor = self.lake.sql(query)
        columns = tuple(column[0] for column in cursor.description or [])
        said = "It is a plain table of the lake: stock DuckDB reads it, as any other client does."
        return Shown("Read it", "DuckDB", query, "sql", said, columns, tuple(cursor.fetchall()))

    # ------------------------------------------------------------ what the steps share
    def _step(self, title: str, statement: str, said: str) -> Shown:
        with duck.connect(self.lake.settings, self.lake.dsn) as writer:
            writer.execute(statement)
        return self._shown(title, f"{statement};\n{_STATEMENT}", said, self._refreshed())

    def _refreshed(self) -> Sequence[RefreshRecord]:
        return refresh(self.lake, CHAIN)

    def _shown(self, title: str, code: str, said: str, records: Sequence[RefreshRecord]) -> Shown:
        return Shown(title, "both", code, "sql", said, COLUMNS, tuple(self._row(record) for record in records))

    def _row(self, record: RefreshRecord) -> tuple[str, ...]:
        if record.outcome is not Outcome.SUCCEEDED or record.action is None:
            raise InternalError(f"the demo's {record.name} was not refreshed: {record.error_code}: {record.error_text}")
        found = verify(self.lake, record.name)
        if not found.equal:
            raise InternalError(f"Spark and DuckDB do not agree about the demo's {record.name}: {found.examples}")
        came = "all" if record.action is Action.INITIALIZE else f"{record.rows_in:,}"
        went = f"+{record.rows_inserted:,} −{record.rows_deleted:,}"
        return record.name.name, record.action.value, came, went, f"✓ {found.rows:,} rows, equal"


_STATEMENT = f"ALTER DYNAMIC TABLE {', '.join(name.name for name in CHAIN)} REFRESH;"


class _Writer(threading.Thread):
    """Commits one order after the other until it is told to stop."""

    def __init__(self, lake: Lake, stop: threading.Event) -> None:
        super().__init__(name="demo-writer", daemon=True)
        self.lake, self.stop = lake, stop
        self.commits = 0
        self.wrote_once = threading.Event()
        self.failed: Exception | None = None

    def run(self) -> None:
        try:
            with duck.connect(self.lake.settings, self.lake.dsn) as connection:
                while not self.stop.is_set():
                    connection.execute(MEANWHILE.format(n=FIRST + self.commits))
                    self.commits += 1
                    self.wrote_once.set()
                    self.stop.wait(0.2)
        except Exception as error:  # told by the step that waits for it
            self.failed = error
        finally:
            self.wrote_once.set()
