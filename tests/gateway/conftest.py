"""A lake of two tenants behind a gateway, made once a module; what it holds is told in `Tenants`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lakemill.core.names import QualifiedName
from lakemill.gateway.gate import Gateway
from lakemill.gateway.question import Question
from tests.conftest import TestLake, make_lakes

SECRET = "kingfisher-7781"
"""What only the other tenant's table holds."""


@dataclass(frozen=True, slots=True)
class Tenants:
    """`acme` asks; `other` is what it must not see."""

    lake: TestLake
    gateway: Gateway
    file: str
    """A data file of `acme.t`."""
    foreign: str
    """A data file of `other.secrets`."""

    def ask(self, sql: str, **options: Any) -> list[tuple[Any, ...]]:
        with self.gateway.query(Question(sql, visible=acme_only, **options)) as answer:
            return [tuple(row.values()) for row in answer.table().to_pylist()]


def acme_only(name: QualifiedName) -> bool:
    return name.key[0] in ("acme", "main")


@pytest.fixture(scope="module")
def tenants(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    with make_lakes(postgres, tmp_path_factory.mktemp("tenants")) as make:
        lake = make(flags={"query.executors": 2, "query.memory_limit": "128MB", "query.temp_limit": "50MB"})
        with lake.duck() as duck:
            duck.execute("CREATE SCHEMA acme")
            duck.execute("CREATE SCHEMA other")
            duck.execute("CREATE TABLE acme.t AS SELECT i::INTEGER AS id, 'n' || i AS name FROM range(1000) r(i)")
            duck.execute(f"CREATE TABLE other.secrets AS SELECT '{SECRET}' AS word FROM range(10)")
            duck.execute("CREATE VIEW acme.v AS SELECT id FROM acme.t WHERE id < 10")
            duck.execute("CREATE VIEW acme.peek AS SELECT * FROM other.secrets")
            duck.execute("CREATE VIEW acme.reads_a_file AS SELECT * FROM read_text('/etc/passwd')")
            duck.execute("CREATE MACRO acme.m() AS TABLE SELECT * FROM other.secrets")
            duck.execute("CREATE MACRO acme.s() AS (SELECT max(word) FROM other.secrets)")
        data = Path(lake.data_path)
        (file,), (foreign,) = (sorted(map(str, data.glob(f"{place}/**/*.parquet"))) for place in ("acme", "other"))
        with Gateway(lake.settings, lake.dsn) as gateway:
            gateway.warm()
            yield Tenants(lake, gateway, file, foreign)
