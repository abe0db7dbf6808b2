"""Queries of a lake on S3: by a key that may only read, and nothing in the bucket but their own files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lakemill import errors
from lakemill.gateway.excerpt import excerpt
from lakemill.gateway.gate import Gateway, executor_config
from lakemill.gateway.question import Question
from lakemill.lake.catalog import reading
from lakemill.lake.scan import scan_in
from lakemill.lake.stamps import Stamps
from lakemill.store import db
from tests.conftest import MakeLake, TestLake
from tests.s3.conftest import MakeFlags
from tests.s3.server import S3Server

pytestmark = pytest.mark.s3


@pytest.fixture
def queried(make_lake: MakeLake, s3_flags: MakeFlags, server: S3Server) -> TestLake:
    reader = server.reader
    if reader is None:
        pytest.skip("this server has no key that may only read")
    keys = {"query.s3_access_key_id": reader.access_key_id, "query.s3_secret_access_key": reader.secret_access_key}
    lake = make_lake(flags=s3_flags() | keys | {"query.executors": 1})
    with lake.duck() as duck:
        duck.execute("CREATE TABLE t AS SELECT i AS id FROM range(1000) r(i)")
        duck.execute("DELETE FROM t WHERE id < 10")
        duck.execute("CREATE TABLE other AS SELECT 'kingfisher' AS word")
    return lake


def test_queries_read_what_is_in_the_bucket(queried: TestLake) -> None:
    with Gateway(queried.settings, queried.dsn) as gateway:
        with gateway.query(Question("SELECT count(*) AS n, min(id) AS m FROM t")) as answer:
            assert answer.table().to_pylist() == [{"n": 990, "m": 10}]
        with pytest.raises(errors.UnknownTable):
            gateway.query(Question(f"FROM '{queried.data_path}main/other/x.parquet'"))


def test_past_the_allow_list_the_bucket_is_closed(queried: TestLake, tmp_path: Path) -> None:
    """The key may only read, and DuckDB opens nothing but the query's own files; the secret is not shown."""
    with db.connect(queried.dsn) as conn, queried.duck(attach=False) as duck, reading(conn) as catalog:
        head = catalog.head()
        mine, other = (
            scan_in(catalog, Stamps(duck), catalog.table("main", name, head.id), head) for name in ("t", "other")
        )
        config = {**executor_config(queried.settings, duck), "temp": str(tmp_path)}
    extract = excerpt(head, [mine], [])
    foreign, own = other.files[0].file.path, mine.files[0].file.path
    statements = [
        "SELECT count(*) FROM t",
        f"SELECT * FROM read_parquet('{foreign}')",
        f"SELECT * FROM glob('{queried.data_path}**')",
        f"COPY (SELECT 1) TO '{queried.data_path}new.parquet'",
        f"COPY (SELECT 1) TO '{own}'",
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM read_text('/etc/passwd')",
    ]
    job = {"excerpt": extract.message, "files": extract.files, "without": ""}
    done = subprocess.run(
        [sys.executable, "-m", "tests.gateway.straight"],
        input=json.dumps({"config": config, "job": job, "statements": statements, "engine": True}),
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": os.environ.get("PYTHONPATH", "."), "PATH": os.environ["PATH"]},
    )
    answers: list[dict[str, Any]] = [json.loads(line)["inside"] for line in done.stdout.splitlines()]
    assert answers[0] == {"rows": "[(990,)]"}
    for statement, answer in zip(statements[1:], answers[1:], strict=True):
        if "duckdb_secrets" not in statement:
            assert "error" in answer, statement
        assert queried.settings.query.s3_secret_access_key.get_secret_value() not in json.dumps(answer)
        assert queried.settings.s3.secret_access_key.get_secret_value() not in json.dumps(answer)
