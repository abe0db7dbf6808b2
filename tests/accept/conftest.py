"""What tests of ingest share: a lake with an `Ingest` on it, tables that take requests, and ways to send to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lakemill.core.names import parse_name
from lakemill.core.receipts import read_token
from lakemill.lake.tables import parse_columns
from lakemill.runtime import ingest_tables
from lakemill.runtime.bodies import Given, parse
from lakemill.runtime.ingest import Answer, Ingest
from lakemill.store.ingest import IngestTable, Policy
from tests.conftest import MakeLake, TestLake, make_lakes

ORDERS = "id BIGINT NOT NULL, price DECIMAL(10,2), note VARCHAR DEFAULT 'none'"


@pytest.fixture(scope="module")
def make_module_lake(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeLake]:
    with make_lakes(postgres, tmp_path_factory.mktemp("lakes")) as make:
        yield make


@pytest.fixture(scope="module")
def shared(make_module_lake: MakeLake) -> TestLake:
    """A lake for a module: making one takes longer than most tests; each test has tables of its own."""
    return make_module_lake()


@pytest.fixture(scope="module")
def ingest(shared: TestLake) -> Iterator[Ingest]:
    with Ingest(shared.settings) as made:
        yield made


MakeTable = Callable[..., IngestTable]


@pytest.fixture
def table(ingest: Ingest, request: pytest.FixtureRequest) -> Iterator[MakeTable]:
    """``table(ORDERS, key=["id"])``: a table that takes requests, gone after the test."""
    made: list[IngestTable] = []

    def make(columns: str = ORDERS, policy: str = "reject", **options: Any) -> IngestTable:
        name = parse_name(f"t{abs(hash(request.node.name)) % 10**8}_{len(made)}")
        declared = parse_columns(columns)
        made.append(ingest_tables.create(ingest.lake, name, declared, policy=Policy(policy), **options))
        return made[-1]

    yield make
    for one in made:
        if ingest_tables.find_lake_table(ingest.lake, one.name) is not None:
            ingest_tables.drop(ingest.lake, one.name, force=True)


def rows(*payloads: Any, key: str | None = None, **options: Any) -> Given:
    """A request with these payloads; a tuple is (payload, idempotency key)."""
    records = [{"payload": p[0], "idempotency_key": p[1]} if isinstance(p, tuple) else {"payload": p} for p in payloads]
    return parse(json.dumps({"records": records, **options}).encode(), most=10**7).under(key)


def number(ingest: Ingest, answer: Answer) -> int:
    return read_token(ingest.lake_id, answer.token)


def waiting(ingest: Ingest, table: IngestTable) -> list[Any]:
    """What lies in the bus for a table: payloads, in the order of tokens and places."""
    query = "SELECT body FROM lakemill.bus WHERE table_id = %s ORDER BY token"
    bodies = ingest.lake.conn.execute(query, (table.table_id,)).fetchall()
    return [json.loads(line)["p"] for (body,) in bodies for line in body.split("\n")]
