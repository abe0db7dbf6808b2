"""All 22 queries of TPC-H as dynamic tables, through refreshes like RF1 and RF2 and updates; DuckDB is the judge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import lakemill
from lakemill.core.ddl import parse_definition
from lakemill.core.names import QualifiedName, parse_name
from lakemill.core.refresh import Outcome
from lakemill.runtime import dynamic, refresh, verify
from tests.conftest import SECOND_JVM, make_lakes
from tests.core.test_delta_tpch import CHANGES, TABLES
from tests.fuzz.sandbox import extension

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]  # 22 tables with their states, loaded and refreshed
ORDERS = dict.fromkeys(range(1, 23), "MERGE")
OTHERS = ORDERS | {15: "DELTA", 20: "KEYS"}  # whose states are of lines, which stay
"""What each refresh does, or why it computes the query whole; whoever changes a line here has changed its cost."""


@pytest.fixture
def lake(postgres: str, spark_session: Any, tmp_path: Path) -> Iterator[lakemill.Lake]:
    with make_lakes(postgres, tmp_path) as make, lakemill.open(make().settings) as lake:
        with duckdb.connect() as source:
            source.execute(f"LOAD {extension('tpch')}; SET threads = 1; CALL dbgen(sf = 0.01)")
            for name in TABLES:
                source.execute(f"COPY {name} TO '{tmp_path / name}.parquet'")
        for name in TABLES:
            lake.sql(f"CREATE TABLE {name} AS FROM '{tmp_path / name}.parquet'")
        yield lake


def queries() -> dict[int, str]:
    with duckdb.connect() as connection:
        connection.execute(f"LOAD {extension('tpch')}")
        return dict(connection.execute("SELECT query_nr, query FROM tpch_queries()").fetchall())


@SECOND_JVM
def test_all_of_them_are_right_after_new_and_old_orders(lake: lakemill.Lake) -> None:
    names = create(lake)
    follow(lake, names, [statement for statement in changes() if of_orders(statement)], ORDERS)


@pytest.mark.slow
@SECOND_JVM
def test_all_of_them_are_right_after_every_step(lake: lakemill.Lake) -> None:
    names = create(lake)
    judge(lake, names)
    follow(lake, names, [statement for statement in changes() if of_orders(statement)], ORDERS)
    follow(lake, names, [statement for statement in changes() if not of_orders(statement)], OTHERS)


def changes() -> list[str]:
    return [statement for statement in CHANGES.split(";") if statement.strip()]


def of_orders(statement: str) -> bool:
    return "orders" in statement or "lineitem" in statement


def create(lake: lakemill.Lake) -> list[QualifiedName]:
    names = []
    for number, query in queries().items():
        text = query.strip().rstrip(";")
        dynamic.create(lake, parse_definition(f"CREATE DYNAMIC TABLE q{number} TARGET_LAG = '1 minute' AS {text}"))
        names.append(parse_name(f"q{number}"))
    return names


def follow(lake: lakemill.Lake, names: list[QualifiedName], statements: list[str], expected: dict[int, str]) -> None:
    for statement in statements:
        lake.sql(statement)
    records = refresh.refresh(lake, names)
    assert [record for record in records if record.outcome is not Outcome.SUCCEEDED] == []
    judge(lake, names)
    reasons = {int(record.name.name[1:]): (record.reason or "").split(":")[0] for record in records}
    assert {number: told for number, told in reasons.items() if told not in ("NO_CHANGE", expected[number])} == {}
    assert len([told for told in reasons.values() if told != "NO_CHANGE"]) > 10


def judge(lake: lakemill.Lake, names: list[QualifiedName]) -> None:
    wrong = [found for name in names if not (found := verify.verify(lake, name)).equal]
    assert not wrong, [(found.name, found.missing, found.extra, found.examples[:3]) for found in wrong]
