"""Random requests against the API, by its own description (schemathesis): none may be answered with a 500.

Requests that fit the description and requests that don't, of a caller who may do everything; every answer must be one
that the description has, in the form that it says. `make fuzz-api MINUTES=10`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from lakemill.api.app import make
from lakemill.api.desk import Desk
from lakemill.settings import Settings
from tests.conftest import TestLake

LOCAL = "127.0.0.1"
CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
WORDS = ("main.orders", "orders", "main.d", "acme.orders", "nothing")


STATEMENTS = (
    "CREATE OR REPLACE DYNAMIC TABLE d TARGET_LAG = '1 hour' AS SELECT k, count(*) AS n FROM orders GROUP BY k",
    "CREATE DYNAMIC TABLE IF NOT EXISTS acme.e TARGET_LAG = DOWNSTREAM AS SELECT * FROM acme.orders",
    "CREATE DYNAMIC TABLE e TARGET_LAG = '1 hour' AS SELECT * FROM",
)


@schemathesis.serializer("application/sql")
def _as_sql(context: Any, value: Any) -> bytes:
    """What was made up, as it is; every other time a statement, or a part of one."""
    made = value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
    statement = STATEMENTS[len(made) % len(STATEMENTS)].encode()
    return made if len(made) % 2 else statement[: len(statement) - len(made) % 7]


class Found(AssertionError):
    """An answer that should not be."""


def fuzz(lake: TestLake, examples: int, number: int = 1, until: float = float("inf")) -> int:
    """So many requests of each kind to each endpoint, while there is time; how many were made."""
    desk = Desk(Settings.load(lake.settings.root, {"api.auth": "off", "duck.threads": 2}), LOCAL)
    desk.start()
    made = 0
    try:
        schema = schemathesis.openapi.from_asgi("/openapi.json", make(desk))
        for result in schema.get_all_operations():
            operation = result.ok()
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                if time.monotonic() < until:
                    made += _ask(operation, mode, examples, number)
    finally:
        desk.close()
    return made


def _ask(operation: Any, mode: GenerationMode, examples: int, number: int) -> int:
    made = 0

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        nonlocal made
        made += 1
        if "table" in case.path_parameters and made % 2:  # one that there is, every other time
            case.path_parameters["table"] = WORDS[made % len(WORDS)]
        answer = case.call()
        if answer.status_code == 503 and b"MISSING_PART" in answer.content:
            return  # without Spark
        case.validate_response(answer, checks=CHECKS)
        if answer.headers.get("x-trace-id") is None:
            raise Found(f"{case.as_curl_command()}: no trace id")

    ask()
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    given_ = parser.parse_args()
    from lakemill.store.embedded import EmbeddedPostgres
    from tests.api.conftest import TABLES
    from tests.conftest import make_lakes

    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedPostgres(Path(folder) / "postgres", fast=True)
        try:
            with make_lakes(server.start(), Path(folder)) as make_lake:
                lake = make_lake()
                with lake.duck() as duck:
                    duck.execute(TABLES)
                until, made, number = time.monotonic() + given_.minutes * 60, 0, given_.seed
                while time.monotonic() < until:
                    made += fuzz(lake, 30, number, until)
                    print(f"seed {number}: {made} requests so far, none of them answered wrongly", flush=True)
                    number += 1
        finally:
            server.remove()


if __name__ == "__main__":
    sys.exit(main())
