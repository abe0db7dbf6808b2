"""All 22 queries of TPC-H as dynamic tables, through refreshes like RF1 and RF2 and updates; DuckDB is the judge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import lakemill
from lakemill.core.ddl import parse_definition
from lakemill.core.names import parse_name
from lakemill.core.refresh import Outcome
from lakemill.runtime import dynamic, refresh, verify
from tests.conftest import SECOND_JVM, make_lakes
from tests.core.test_delta_tpch import CHANGES, TABLES
from tests.fuzz.sandbox import extension

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]  # 22 tables with their states, loaded and refreshed twice
ORDERS = dict.fromkeys(range(1, 23), "MERGE")
OTHERS = ORDERS | {15: "DELTA", 20: "KEYS"}  # whose states are of lines, which stay
"""What each refresh does, or why it computes the query whole; whoever changes a line here has changed its cost."""


@pytest.fixture(scope="module")
def lake(postgres: str, spark_session: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[lakemill.Lake]:
    folder: Path = tmp_path_factory.mktemp("tpch")
    with make_lakes(postgres, folder) as make, lakemill.open(make().settings) as lake:
        with duckdb.connect() as source:
            source.execute(f"LOAD {extension('tpch')}; SET threads = 1; CALL dbgen(sf = 0.01)")
            for name in TABLES:
                source.execute(f"COPY {name} TO '{folder / name}.parquet'")
        for name in TABLES:
            lake.sql(f"CREATE TABLE {name} AS FROM '{folder / name}.parquet'")
        yield lake


def queries() -> dict[int, str]:
    with duckdb.connect() as connection:
        connection.execute(f"LOAD {extension('tpch')}")
        return dict(connection.execute("SELECT query_nr, query FROM tpch_queries()").fetchall())


@SECOND_JVM
def test_all_of_them_are_right_after_every_step(lake: lakemill.Lake) -> None:
    names = []
    for number, query in queries().items():
        text = query.strip().rstrip(";")
        dynamic.create(lake, parse_definition(f"CREATE DYNAMIC TABLE q{number} TARGET_LAG = '1 minute' AS {text}"))
        names.append(parse_name(f"q{number}"))
    judge(lake, names)
    changes = [statement for statement in CHANGES.split(";") if statement.strip()]
    orders = [statement for statement in changes if "orders" in statement or "lineitem" in statement]
    others = [statement for statement in changes if statement not in orders]
    for statements, expected in ((orders, ORDERS), (others, OTHERS)):
        for statement in statements:
            lake.sql(statement)
        records = refresh.refresh(lake, names)
        assert [record for record in records if record.outcome is not Outcome.SUCCEEDED] == []
        judge(lake, names)
        reasons = {int(record.name.name[1:]): (record.reason or "").split(":")[0] for record in records}
        assert {number: told for number, told in reasons.items() if told not in ("NO_CHANGE", expected[number])} == {}
        assert len([told for told in reasons.values() if told != "NO_CHANGE"]) > 10


def judge(lake: lakemill.Lake, names: list[Any]) -> None:
    wrong = [found for name in names if not (found := verify.verify(lake, name)).equal]
    assert not wrong, [(found.name, found.missing, found.extra, found.examples[:3]) for found in wrong]
