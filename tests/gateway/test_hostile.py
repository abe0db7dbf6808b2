"""SQL that means harm. Two layers, tested apart: the allow-list refuses it, and past it nothing can be done either.

Every case is asked of the gateway, as a tenant; then it is given straight to a connection as executors have it, inside
and outside of its transaction (`tests/gateway/straight.py`); those that touch files once more with DuckDB's own guards
left out, against the operating system alone. After all of it the lake is what it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lakemill import errors
from lakemill.core.names import QualifiedName
from lakemill.gateway.excerpt import excerpt
from lakemill.gateway.gate import executor_config
from lakemill.gateway.question import Question
from lakemill.lake.catalog import reading
from lakemill.lake.scan import scan_in
from lakemill.lake.stamps import Stamps
from lakemill.store import db
from tests.conftest import LANDLOCK
from tests.gateway.conftest import SECRET, Tenants

REFUSED, UNKNOWN = errors.QueryRefused, errors.UnknownTable
WRONG = (errors.QueryRefused, errors.BadStatement)

# What is asked, and what the gateway must say. {file}: a data file of the asker's; {foreign}: of another tenant's;
# {data}: the data path. The engine's own words come back only where it is the engine that must be asked.
CASES: dict[str, tuple[str, Any]] = {
    # files
    "read_csv": ("SELECT * FROM read_csv('/etc/passwd')", REFUSED),
    "read_text": ("SELECT content FROM read_text('/etc/passwd')", REFUSED),
    "read_blob": ("SELECT * FROM read_blob('/etc/hostname')", REFUSED),
    "glob": ("SELECT * FROM glob('/etc/*')", REFUSED),
    "glob the data path": ("SELECT * FROM glob('{data}**')", REFUSED),
    "own file by path": ("SELECT * FROM read_parquet('{file}')", REFUSED),
    "foreign file by path": ("SELECT * FROM read_parquet('{foreign}')", REFUSED),
    "foreign files by pattern": ("SELECT * FROM parquet_scan('{data}other/**/*.parquet')", REFUSED),
    "foreign metadata": ("SELECT * FROM parquet_metadata('{foreign}')", REFUSED),
    "file-path table": ("SELECT * FROM '{foreign}'", UNKNOWN),
    "file-path table in quotes": ('SELECT * FROM "/etc/passwd.csv"', UNKNOWN),
    "file-path table of a csv": ("SELECT * FROM 'x.csv'", UNKNOWN),
    "url table": ("SELECT * FROM 'http://127.0.0.1:1/x.parquet'", UNKNOWN),
    "environment": ("SELECT content FROM read_text('/proc/self/environ')", REFUSED),
    "parent's environment": ("SELECT content FROM read_text('/proc/{ppid}/environ')", REFUSED),
    "memory": ("SELECT * FROM read_blob('/proc/self/maps')", REFUSED),
    "getenv": ("SELECT getenv('LAKEMILL_TEST_CANARY')", REFUSED),
    "sniff_csv": ("FROM sniff_csv('/etc/passwd')", REFUSED),
    # writing
    "copy outside": ("COPY (SELECT 1) TO '/tmp/lakemill-hostile.csv'", REFUSED),
    "copy over a live file": ("COPY (SELECT 1) TO '{file}' (FORMAT parquet)", REFUSED),
    "copy over a foreign file": ("COPY (SELECT 1) TO '{foreign}' (FORMAT parquet)", REFUSED),
    "copy beside": ("COPY (SELECT 1) TO '{data}acme/new.parquet' (FORMAT parquet)", REFUSED),
    "copy from": ("COPY acme.t FROM '/etc/passwd'", REFUSED),
    "export": ("EXPORT DATABASE '{data}export'", REFUSED),
    "import": ("IMPORT DATABASE '{data}'", REFUSED),
    "insert": ("INSERT INTO acme.t VALUES (1, 'x')", REFUSED),
    "update": ("UPDATE acme.t SET id = 1", REFUSED),
    "delete": ("DELETE FROM acme.t", REFUSED),
    "merge": ("MERGE INTO acme.t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE", REFUSED),
    "truncate": ("TRUNCATE acme.t", REFUSED),
    "drop": ("DROP TABLE acme.t", REFUSED),
    "alter": ("ALTER TABLE acme.t RENAME TO u", REFUSED),
    "create table": ("CREATE TABLE acme.u AS SELECT 1", REFUSED),
    "create temp table": ("CREATE TEMP TABLE u AS SELECT 1", REFUSED),
    "create in memory": ("CREATE TABLE memory.x AS SELECT 1", REFUSED),
    "create macro": ("CREATE MACRO acme.f() AS 1", REFUSED),
    "create view": ("CREATE VIEW acme.w AS SELECT 1", REFUSED),
    "create secret": ("CREATE SECRET s (TYPE s3, KEY_ID 'x', SECRET 'y')", REFUSED),
    "create type": ("CREATE TYPE x AS ENUM ('a')", REFUSED),
    "dml in a CTE": ("WITH c AS (DELETE FROM acme.t RETURNING *) SELECT * FROM c", WRONG),
    "insert in a CTE": ("WITH c AS (INSERT INTO acme.t VALUES (1, 'x') RETURNING *) FROM c", WRONG),
    "with insert": ("WITH c AS (SELECT 1) INSERT INTO acme.t SELECT 1, 'x' FROM c", REFUSED),
    "explain analyze insert": ("EXPLAIN ANALYZE INSERT INTO acme.t VALUES (1, 'x')", REFUSED),
    "select into": ("SELECT * INTO acme.u FROM acme.t", WRONG),
    "pivot": ("PIVOT acme.t ON id USING count(*)", REFUSED),
    "prepare": ("PREPARE p AS DELETE FROM acme.t", REFUSED),
    "execute": ("EXECUTE p", REFUSED),
    # other doors
    "attach file": ("ATTACH '/tmp/lakemill-hostile.db' AS x", REFUSED),
    "attach memory": ("ATTACH ':memory:' AS x", REFUSED),
    "attach postgres": ("ATTACH 'dbname=postgres' AS x (TYPE postgres)", REFUSED),
    "detach": ("DETACH lake", REFUSED),
    "install": ("INSTALL httpfs", REFUSED),
    "load": ("LOAD postgres_scanner", REFUSED),
    "set": ("SET enable_external_access = true", REFUSED),
    "set memory": ("SET memory_limit = '100GB'", REFUSED),
    "reset": ("RESET lock_configuration", REFUSED),
    "pragma": ("PRAGMA database_list", REFUSED),
    "pragma as a function": ("SELECT * FROM pragma_database_size()", REFUSED),
    "pragma key": ("PRAGMA add_parquet_key('k', '0123456789112345')", REFUSED),
    "call": ("CALL duckdb_databases()", REFUSED),
    "call expire": ("CALL ducklake_expire_snapshots('lake', older_than => now())", REFUSED),
    "call set_option": ("CALL lake.set_option('data_inlining_row_limit', 10)", REFUSED),
    "use": ("USE memory", REFUSED),
    "begin": ("BEGIN TRANSACTION", REFUSED),
    "commit": ("COMMIT", REFUSED),
    "checkpoint": ("CHECKPOINT", REFUSED),
    "vacuum": ("VACUUM", REFUSED),
    "set variable": ("SET VARIABLE x = 1", REFUSED),
    "cleanup": ("SELECT * FROM ducklake_cleanup_old_files('lake', cleanup_all => true)", REFUSED),
    "orphans": ("SELECT * FROM ducklake_delete_orphaned_files('lake', cleanup_all => true)", REFUSED),
    "expire": ("SELECT * FROM ducklake_expire_snapshots('lake', older_than => now()::TIMESTAMP)", REFUSED),
    "rewrite": ("SELECT * FROM ducklake_rewrite_data_files('lake')", REFUSED),
    "list files": ("SELECT * FROM ducklake_list_files('lake', 't', schema => 'acme')", REFUSED),
    "snapshots": ("SELECT * FROM lake.snapshots()", REFUSED),
    "postgres_query": ("SELECT * FROM postgres_query('__ducklake_metadata_lake', 'SELECT 1')", REFUSED),
    "postgres_scan": ("SELECT * FROM postgres_scan('dbname=postgres', 'public', 'x')", REFUSED),
    "query": ("SELECT * FROM query('DELETE FROM acme.t')", REFUSED),
    "query_table": ("SELECT * FROM query_table('other.secrets')", REFUSED),
    "serialized": ("SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))", REFUSED),
    # what is not the asker's to know
    "databases": ("SELECT path FROM duckdb_databases()", REFUSED),
    "secrets": ("SELECT * FROM duckdb_secrets()", REFUSED),
    "which_secret": ("SELECT * FROM which_secret('s3://x', 's3')", REFUSED),
    "settings": ("SELECT * FROM duckdb_settings()", REFUSED),
    "current_setting": ("SELECT current_setting('temp_directory')", REFUSED),
    "current_query": ("SELECT current_query()", REFUSED),
    "logs": ("SELECT * FROM duckdb_logs()", REFUSED),
    "tables of the engine": ("SELECT * FROM duckdb_tables", UNKNOWN),
    "sqlite_master": ("SELECT * FROM sqlite_master", UNKNOWN),
    "information_schema": ("SELECT * FROM information_schema.tables", REFUSED),
    "pg_catalog": ("SELECT * FROM pg_catalog.pg_class", REFUSED),
    "pg_class": ("SELECT * FROM pg_class", UNKNOWN),
    "the catalog itself": ("SELECT * FROM __ducklake_metadata_lake.ducklake_snapshot", (UNKNOWN, REFUSED)),
    "the catalog itself, in full": ("SELECT * FROM __ducklake_metadata_lake.main.ducklake_table", REFUSED),
    "other tenant": ("SELECT * FROM other.secrets", UNKNOWN),
    "other tenant in quotes": ('SELECT * FROM "OTHER"."Secrets"', UNKNOWN),
    "other tenant with catalog": ("SELECT * FROM lake.other.secrets", UNKNOWN),
    "other tenant in a subquery": ("SELECT (SELECT max(word) FROM other.secrets) FROM acme.t", UNKNOWN),
    "other tenant in a CTE": ("WITH t AS (FROM other.secrets) FROM t", UNKNOWN),
    "other tenant in a lambda": ("SELECT apply([1], lambda x: (SELECT max(word) FROM other.secrets))", UNKNOWN),
    "other tenant behind a CTE's name": ("WITH secrets AS (SELECT 1) SELECT * FROM other.secrets", UNKNOWN),
    "other tenant in the past": ("SELECT * FROM other.secrets AT (VERSION => 4)", REFUSED),
    "other tenant by DESCRIBE": ("DESCRIBE other.secrets", UNKNOWN),
    "other tenant by SUMMARIZE": ("SUMMARIZE other.secrets", UNKNOWN),
    "other tenant through a view": ("SELECT * FROM acme.peek", UNKNOWN),
    "a file through a view": ("SELECT * FROM acme.reads_a_file", REFUSED),
    "table macro": ("SELECT * FROM acme.m()", REFUSED),
    "scalar macro": ("SELECT acme.s()", REFUSED),
    "hidden states": ("SELECT * FROM _lakemill.s1", UNKNOWN),
    "generations": ("SELECT * FROM main.__lakemill_x", UNKNOWN),
    "show": ("SHOW ALL TABLES", REFUSED),
    "show databases": ("SHOW DATABASES", REFUSED),
    # tricks of text
    "two statements": ("SELECT 1; DROP TABLE acme.t", REFUSED),
    "two statements after a comment": ("SELECT 1 --\n; DROP TABLE acme.t", REFUSED),
    "a statement behind a comment": ("/* SELECT 1 */ DROP TABLE acme.t", REFUSED),
    "between comments": ("SELECT 1 /* */ ; /* */ DROP TABLE acme.t --", REFUSED),
    "a dollar quote": ("SELECT $$ $$; DROP TABLE acme.t; SELECT $$ $$", REFUSED),
    "full-width semicolon": ("SELECT 1\uff1b DROP TABLE acme.t", errors.LakemillError),
    "zero width": ("SELECT 1;\u200bDROP TABLE acme.t", REFUSED),
    "right to left": ("SELECT 1 /* \u202e */", REFUSED),
    "no-break space": ("DROP\u00a0TABLE\u00a0acme.t", REFUSED),
    "NUL": ("SELECT 1\x00; DROP TABLE acme.t", REFUSED),
    "quoted function": ("SELECT \"getenv\"('HOME')", REFUSED),
    "a function by its full name": ("SELECT system.main.current_setting('temp_directory')", REFUSED),
    "a function by dots": ("SELECT ('temp_directory').current_setting()", REFUSED),
    "a function in ORDER BY": ("SELECT id FROM acme.t ORDER BY write_log('x')", REFUSED),
    "a function in a window": ("SELECT sum(id) OVER (PARTITION BY current_setting('threads')) FROM acme.t", REFUSED),
    "a function as an aggregate of a list": ("SELECT list_aggregate([1], 'getenv')", errors.LakemillError),
    "depth": ("SELECT " + "(" * 5000 + "1" + ")" * 5000, REFUSED),
    "length": ("SELECT '" + "x" * 300_000 + "'", REFUSED),
    "write_log": ("SELECT write_log('x')", REFUSED),
    "sleep": ("SELECT sleep_ms(100)", REFUSED),
}  # fmt: skip
# Given straight to the connection, these are answered: by what the executor holds anyway, which is nobody's secret.
ANSWERED = {
    "own file by path", "create temp table", "pivot", "prepare", "attach memory", "pragma", "pragma as a function",
    "pragma key", "call", "call expire", "call set_option", "use", "commit", "checkpoint", "vacuum", "set variable",
    "cleanup", "orphans", "expire", "rewrite", "list files", "snapshots", "serialized", "databases", "secrets",
    "which_secret", "settings", "current_setting", "current_query", "logs", "tables of the engine", "sqlite_master",
    "information_schema", "pg_catalog", "pg_class", "the catalog itself", "the catalog itself, in full", "show",
    "show databases", "right to left", "NUL", "a function by its full name", "a function by dots",
    "a function in ORDER BY", "a function in a window", "depth", "length", "write_log", "sleep",
}  # fmt: skip
# These are denied by the transaction, which is read-only; whoever gets out of it writes into a lake in memory that
# ends with the process.
INTO_ITS_OWN_MEMORY = {
    "insert", "update", "delete", "merge", "truncate", "drop", "alter", "create table", "create in memory",
    "create macro", "create view", "with insert", "explain analyze insert", "begin", "two statements",
    "two statements after a comment", "a statement behind a comment", "between comments", "a dollar quote",
    "zero width", "no-break space",
}  # fmt: skip
FILES = [
    "read_csv", "read_text", "read_blob", "foreign file by path", "foreign files by pattern", "foreign metadata",
    "file-path table", "environment", "parent's environment", "memory", "copy outside", "copy over a live file",
    "copy over a foreign file", "copy beside", "export", "attach file", "glob", "sniff_csv",
]  # fmt: skip


@pytest.fixture(scope="module")
def words(tenants: Tenants) -> dict[str, str]:
    return {
        "file": tenants.file,
        "foreign": tenants.foreign,
        "data": tenants.lake.data_path,
        "ppid": str(os.getpid()),
    }


def text_of(case: str, words: dict[str, str]) -> str:
    text = CASES[case][0]
    for word, value in words.items():
        text = text.replace("{" + word + "}", value)
    return text


@pytest.fixture(scope="module", autouse=True)
def unharmed(tenants: Tenants) -> Iterator[None]:
    """Before and after everything: the same files, the same catalog."""
    before = fingerprint(tenants)
    yield
    assert fingerprint(tenants) == before
    assert not Path("/tmp/lakemill-hostile.csv").exists()
    assert not Path("/tmp/lakemill-hostile.db").exists()


def fingerprint(tenants: Tenants) -> dict[str, str]:
    data = Path(tenants.lake.data_path)
    found = {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(data.rglob("*")) if p.is_file()}
    with db.connect(tenants.lake.dsn) as conn:
        names = conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1").fetchall()
        for (name,) in names:
            rows = conn.execute(f'SELECT x::text FROM "{name}" x ORDER BY 1').fetchall()
            found[name] = hashlib.sha256(repr(rows).encode()).hexdigest()
    return found


def private(tenants: Tenants) -> list[str]:
    """Words that must never be seen."""
    password = "correct-horse"
    return [SECRET, tenants.lake.dsn, str(db.parse(tenants.lake.dsn)["dbname"]), password, "root:x:0", "canary-4711"]


@pytest.mark.parametrize("case", CASES)
def test_the_gateway_refuses(case: str, tenants: Tenants, words: dict[str, str]) -> None:
    with pytest.raises(errors.LakemillError) as refused:
        tenants.ask(text_of(case, words))
    assert isinstance(refused.value, CASES[case][1]), refused.value
    assert refused.value.message
    told = str(refused.value)
    assert "\n" not in told
    given = text_of(case, words)
    for word in private(tenants):
        assert word not in told or word in given
    assert not isinstance(refused.value, errors.InternalError | errors.EngineLost)


def test_unknown_and_invisible_are_told_in_the_same_words(tenants: Tenants) -> None:
    told = []
    for name in ("other.secrets", "other.nothing"):
        with pytest.raises(UNKNOWN) as unknown:
            tenants.ask(f"SELECT * FROM {name}")
        told.append(str(unknown.value).replace(name, "x"))
    assert told[0] == told[1]
    # and whoever may, does see it
    with tenants.gateway.query(Question("SELECT DISTINCT word FROM other.secrets")) as answer:
        assert answer.table().to_pylist() == [{"word": SECRET}]


# ---------------------------------------------------------------- past the allow-list
def straight(tenants: Tenants, tmp_path: Path, statements: list[str], *, engine: bool) -> list[dict[str, Any]]:
    """What each statement gets on a connection that reads `acme.t` and nothing else."""
    lake, temp = tenants.lake, tmp_path / "temp"
    temp.mkdir()
    with db.connect(lake.dsn) as conn, lake.duck(attach=False) as duck, reading(conn) as catalog:
        head = catalog.head()
        plan = scan_in(catalog, Stamps(duck), catalog.table("acme", "t", head.id), head)
    extract = excerpt(head, [plan], [])
    with lake.duck(attach=False) as duck:
        config = {**executor_config(lake.settings, duck), "temp": str(temp)}
    job = {"excerpt": extract.message, "files": extract.files, "without": ""}
    given = {"config": config, "job": job, "statements": statements, "engine": engine}
    done = subprocess.run(
        [sys.executable, "-m", "tests.gateway.straight"],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": os.environ.get("PYTHONPATH", "."), "PATH": os.environ["PATH"], "CANARY": "canary-4711"},
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(statements), done.stderr[-2000:]
    return answers


@pytest.fixture(scope="module")
def past(tenants: Tenants, words: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    texts = [text_of(case, words) for case in CASES]
    answers = straight(tenants, tmp_path_factory.mktemp("straight"), texts, engine=True)
    return dict(zip(CASES, answers, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_past_the_allow_list_it_does_no_harm(case: str, past: dict[str, Any], tenants: Tenants) -> None:
    """Denied, or without effect; `unharmed` looks at the lake itself."""
    for word in private(tenants):
        assert word not in json.dumps(past[case])
    assert "error" in past[case]["inside"] or case in ANSWERED
    assert "error" in past[case]["after"] or case in ANSWERED | INTO_ITS_OWN_MEMORY


@pytest.fixture(scope="module")
def past_the_engine(
    tenants: Tenants, words: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    texts = [text_of(case, words) for case in FILES]
    answers = straight(tenants, tmp_path_factory.mktemp("bare"), texts, engine=False)
    return dict(zip(FILES, answers, strict=True))


@pytest.mark.skipif(LANDLOCK < 3, reason="this kernel's Landlock can't confine a query")
@pytest.mark.parametrize("case", FILES)
def test_the_operating_system_denies_what_the_engine_would_allow(case: str, past_the_engine: dict[str, Any]) -> None:
    for answer in past_the_engine[case].values():
        if case != "glob":  # finds nothing rather than failing
            assert "error" in answer, answer
        else:
            assert "passwd" not in json.dumps(answer)


def test_the_connection_reads_its_table_while_all_that_is_denied(tenants: Tenants, tmp_path: Path) -> None:
    (answer,) = straight(tenants, tmp_path, ["SELECT count(*), max(name) FROM acme.t"], engine=True)
    assert answer["inside"] == {"rows": "[(1000, 'n999')]"}


# ---------------------------------------------------------------- too much of what is allowed
@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL FROM r) SELECT count(*) FROM r", errors.QueryTimedOut),
        ("SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a > b", errors.QueryTimedOut),
        ("SELECT sum(length(repeat('x', i::INT))) FROM range(100000000) r(i)", errors.QueryTimedOut),
        ("SELECT list(i || repeat('x', 100)) FROM range(100000000) r(i)", errors.QueryTooLarge),
        ("SELECT count(*) FROM (SELECT DISTINCT sha256(i || 'a') FROM range(9000000) r(i))", errors.QueryTooLarge),
        ("SELECT i FROM range(100000000) r(i)", errors.ResultTooLarge),
        ("SELECT repeat('x', 1000000) FROM range(100000)", errors.QueryTooLarge),
        ("SELECT repeat('x', 2000) FROM range(1000000)", errors.ResultTooLarge),
    ],
)  # fmt: skip
def test_too_much_is_an_error_of_that_query_only(tenants: Tenants, sql: str, error: type[errors.LakemillError]) -> None:
    timeout = timedelta(seconds=0.5 if error is errors.QueryTimedOut else 60)
    with pytest.raises(error) as told:
        tenants.ask(sql, timeout=timeout, byte_limit=50_000_000)
    assert told.value.remedy
    assert tenants.ask("SELECT count(*) FROM acme.t") == [(1000,)]


def test_a_parameter_is_a_value_whatever_is_in_it(tenants: Tenants) -> None:
    evil = "'; DROP TABLE acme.t; --"
    assert tenants.ask("SELECT $1 AS x", params=[evil]) == [(evil,)]
    assert tenants.ask("SELECT count(*) FROM acme.t WHERE name = $name", params={"name": evil}) == [(0,)]
    with pytest.raises(errors.LakemillError):
        tenants.ask("SELECT * FROM $1", params=["other.secrets"])


def test_names_are_seen_through_the_askers_eyes_everywhere(tenants: Tenants) -> None:
    """Not even by a name that only some part of the way folds otherwise."""
    seen: list[QualifiedName] = []

    def visible(name: QualifiedName) -> bool:
        seen.append(name)
        return name.key[0] == "acme"

    with tenants.gateway.query(Question("SELECT count(*) FROM ACME.V", visible=visible)) as answer:
        assert answer.table().to_pylist() == [{"count_star()": 10}]
    assert {name.key for name in seen} == {("acme", "v"), ("acme", "t")}
