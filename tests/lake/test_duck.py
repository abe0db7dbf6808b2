"""DuckDB connections to a lake, and what DuckDB's errors become."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import duckdb
import pytest

import lakemill
from lakemill import errors
from lakemill.core.schema import quote_identifier
from lakemill.lake import duck
from lakemill.settings import Settings


def test_attaches_the_lake_in_utc_and_with_patience(lake: Any) -> None:
    with lake.duck() as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a")
        assert connection.execute("FROM lake.main.t").fetchall() == [(1,)]
        assert connection.execute("SELECT current_setting('TimeZone')").fetchone() == ("UTC",)
        assert connection.execute("SELECT current_setting('ducklake_max_retry_count')").fetchone() == (100,)
        assert connection.execute("SELECT current_setting('threads')").fetchone() == (2,)


def test_a_user_can_not_load_what_nobody_signed(lake: Any) -> None:
    with lake.duck() as connection:
        assert connection.execute("SELECT current_setting('allow_unsigned_extensions')").fetchone() == (False,)
        with pytest.raises(duck.duckdb.Error, match="while database is running"):
            connection.execute("SET allow_unsigned_extensions = true")


def test_whatever_is_attached_finds_the_server_that_can_be_written() -> None:
    """Of several hosts, and not for ever."""
    dsn = "postgresql://u:it's@h1,h2/d"
    for statement in (duck.attach_statement(dsn, "public"), duck.attach_postgres_statement(dsn, "moved", "pg")):
        assert "host=h1,h2" in statement
        assert "target_session_attrs=read-write" in statement
        assert "tcp_user_timeout" in statement
        assert "it's" not in statement, "quoted"


def test_files_are_where_the_settings_say(lake: Any) -> None:
    with lake.duck() as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a")
    assert list(Path(lake.data_path).rglob("*.parquet"))


def test_inlining_is_off_unless_asked_for(make_lake: Callable[..., Any]) -> None:
    def files(inline: int) -> int:
        lake = make_lake(inline=inline)
        with lake.duck() as connection:
            connection.execute("CREATE TABLE t AS SELECT 1 AS a")
            return len(connection.execute("FROM ducklake_list_files('lake', 't')").fetchall())

    assert files(0) == 1
    assert files(10) == 0


def test_a_snapshot_can_be_attached_for_reading(lake: Any) -> None:
    with lake.duck() as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a")
        (before,) = connection.execute("SELECT max(snapshot_id) FROM lake.snapshots()").fetchone()
        connection.execute("INSERT INTO t VALUES (2)")
    with lake.duck(at=before) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (1,)
        with pytest.raises(errors.SqlFailed, match="read-only"), duck.explained():
            connection.execute("INSERT INTO t VALUES (3)")


def test_without_a_lake_it_still_reads_parquet(tmp_path: Path) -> None:
    with duck.connect(Settings.load(tmp_path), "", attach=False) as connection:
        connection.execute(f"COPY (SELECT 7 AS a) TO {duck.literal(str(tmp_path / 'a b.parquet'))}")
        assert connection.execute("FROM read_parquet(?)", [str(tmp_path / "a b.parquet")]).fetchall() == [(7,)]


def test_the_statement_for_other_clients_needs_nothing_else(lake: Any) -> None:
    import duckdb

    with lake.duck() as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a")
    with duckdb.connect() as other:
        for name in ("ducklake", "postgres_scanner"):
            duck.load_extension(other, name)
        other.execute(duck.attach_statement(lake.dsn, "public"))
        assert other.execute("FROM lake.t").fetchall() == [(1,)]


def test_every_extension_is_there() -> None:
    assert {status.name: status.source for status in duck.extension_status()} == dict.fromkeys(duck.EXTENSIONS, "wheel")
    assert all(status.version and not status.problem for status in duck.extension_status())


def test_a_missing_extension_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(duck, "wheel_file", lambda name: None)
    with duck.connect(Settings.load(tmp_path), "", attach=False) as connection:
        connection.execute(f"SET extension_directory = {duck.literal(str(tmp_path))}")
        connection.execute("SET custom_extension_repository = '/nowhere'")
        with pytest.raises(errors.MissingPart, match="extension ducklake is not there") as caught:
            duck.load_extension(connection, "ducklake")
    assert "duckdb-extension-ducklake==" in caught.value.remedy


# ---------------------------------------------------------------- errors
def test_no_lake_in_the_database(database: str, tmp_path: Path) -> None:
    with pytest.raises(errors.NoLake, match="lakemill init"):
        duck.connect(Settings.load(tmp_path), database)


def test_a_silent_postgres(tmp_path: Path) -> None:
    with pytest.raises(errors.StoreUnavailable) as caught:
        duck.connect(Settings.load(tmp_path), "host=127.0.0.1 port=1 user=u password='ge\\'he im' dbname=x")
    assert "he im" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "error"),
    [({"at": 999}, errors.UnknownSnapshot), ({"data_path": "/elsewhere/"}, errors.BadSettings)],
)
def test_an_attach_that_does_not_fit(lake: Any, options: dict[str, Any], error: type[errors.LakemillError]) -> None:
    with pytest.raises(error) as caught:
        lake.duck(**options)
    assert "\n" not in str(caught.value)


def test_a_lake_of_another_version(lake: Any) -> None:
    import psycopg

    with psycopg.connect(lake.dsn) as connection:
        connection.execute("UPDATE ducklake_metadata SET value = '9.9' WHERE key = 'version'")
    with pytest.raises(errors.UnsupportedLake, match=r"9\.9"):
        lake.duck()


@pytest.mark.parametrize(
    ("statement", "error", "told"),
    [
        ("SELECT * FROM nope", errors.UnknownTable, "Table with name nope does not exist"),
        ("SELCT 1", errors.SqlFailed, 'syntax error at or near "SELCT"; LINE 1: SELCT 1'),
        ("SELECT 'a'::INT", errors.WrongType, "Could not convert string 'a'"),
        ("CREATE TABLE t (a INT)", errors.SqlFailed, "already exists"),
        ("SELECT * FROM t AT (VERSION => 999)", errors.UnknownSnapshot, "No snapshot found at version 999"),
    ],
)
def test_wrong_sql_is_one_line(lake: Any, statement: str, error: type[errors.LakemillError], told: str) -> None:
    with lake.duck() as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a")
        with pytest.raises(error) as caught, duck.explained():
            connection.execute(statement)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "^" not in str(caught.value)


def test_a_lake_leaves_a_duckdb_that_is_lost(lake: Any) -> None:
    with lakemill.open(lake.settings) as ours:
        lost = ours.__dict__["duck"] = Mock()
        lost.execute.side_effect = duckdb.FatalException("FATAL Error: database has been invalidated")
        with pytest.raises(errors.EngineLost):
            ours.sql("SELECT 1")
        assert ours.sql("SELECT 1").fetchall() == [(1,)]
        lost.close.assert_not_called()


def test_a_conflict_is_a_conflict(lake: Any) -> None:
    with lake.duck() as one, lake.duck() as two:
        one.execute("CREATE TABLE t AS SELECT 1 AS a")
        for connection in (one, two):
            connection.execute("BEGIN")
            connection.execute("DELETE FROM t")
        one.execute("COMMIT")
        with pytest.raises(errors.PublishConflict), duck.explained():
            two.execute("COMMIT")


@pytest.mark.parametrize("value", ["a'b", "''", "x\\'; DROP"])
def test_texts_and_names_are_quoted(tmp_path: Path, value: str) -> None:
    with duck.connect(Settings.load(tmp_path), "", attach=False) as connection:
        row = connection.execute(f"SELECT {duck.literal(value)} AS {quote_identifier(value + chr(34))}")
        assert row.description[0][0] == value + '"'
        assert row.fetchone() == (value,)


def test_the_s3_secret_says_what_the_settings_say(tmp_path: Path) -> None:
    flags = {
        "lake.data_path": "s3://bucket/x",
        "s3.endpoint": "http://127.0.0.1:9",
        "s3.access_key_id": "key",
        "s3.secret_access_key": "se'cret",
        "s3.kms_key_id": "kms",
    }
    with duck.connect(Settings.load(tmp_path, flags), "", attach=False) as connection:
        (shown,) = connection.execute("SELECT secret_string FROM duckdb_secrets()").fetchone()
    for expected in ("endpoint=127.0.0.1:9", "key_id=key", "kms_key_id=kms", "url_style=path", "use_ssl=false"):
        assert expected in shown
    assert "se'cret" not in shown


@pytest.mark.parametrize("flags", [{"duck.memory_limit": "lots"}])
def test_wrong_limits_are_settings_mistakes(tmp_path: Path, flags: dict[str, object]) -> None:
    with pytest.raises(errors.BadSettings, match="duck"):
        duck.connect(Settings.load(tmp_path, flags), "", attach=False)
