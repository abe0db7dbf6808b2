"""Statements given straight to an executor's connection, past the allow-list: a program of its own.

Reads one JSON object (config, job, statements, engine) and writes one line a statement. Each runs in a process that was
forked, filled and locked as the executor does it; with `engine` false DuckDB's own guards are left out, so that only
the operating system is in the way. After the statement the transaction is left and it is tried again.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import duckdb

from lakemill.gateway import confine, executor


def tried(connection: duckdb.DuckDBPyConnection, statement: str) -> dict[str, Any]:
    try:
        return {"rows": repr(connection.execute(statement).fetchmany(200))[:20_000]}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def child(given: dict[str, Any], statement: str) -> None:
    signal.alarm(20)
    confine.limit(given["config"]["memory"] * 2, 4096, given["config"]["temp_bytes"])
    connection = executor.prepare(given["config"])
    if given["engine"]:
        confine.confine(given["config"]["roots"], [given["config"]["temp"]], network=given["config"]["network"])
    executor.fill(connection, given["job"]["excerpt"])
    if given["engine"]:
        executor.lock(connection, given["config"], given["job"])
    else:
        lacking = confine.confine(given["job"]["files"], [given["config"]["temp"]], network=False)
        assert not lacking, lacking
        connection.execute("BEGIN")
    first = tried(connection, statement)
    tried(connection, "ROLLBACK")
    print(json.dumps({"inside": first, "after": tried(connection, statement)}), flush=True)


def main() -> None:
    given = json.load(sys.stdin)
    for statement in given["statements"]:
        pid = os.fork()
        if not pid:
            try:
                child(given, statement)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
