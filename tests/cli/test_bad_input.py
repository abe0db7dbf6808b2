"""Bad input, one row a mistake: one clear line, a code, a remedy, an exit code by class, and nothing changed."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakemill.store import db
from lakemill.store.embedded import EmbeddedPostgres
from tests.cli.conftest import Lakemill
from tests.conftest import TestLake, make_lakes, new_database


@pytest.fixture(scope="module")
def filled(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestLake]:
    with make_lakes(postgres, tmp_path_factory.mktemp("bad")) as make:
        lake = make()
        with lake.duck() as duck:
            duck.execute("CREATE TABLE t (id INTEGER, name VARCHAR)")
            duck.execute("INSERT INTO t VALUES (1, 'one'), (2, 'two')")
            duck.execute("CREATE TABLE gone (x INTEGER)")
            duck.execute("DROP TABLE gone")
            duck.execute("CALL ducklake_expire_snapshots('lake', versions => [2])")
        yield lake


def state(lake: TestLake) -> tuple[object, ...]:
    """Everything that a command could have changed: the catalog's rows and the files."""
    with db.connect(lake.dsn) as conn:
        names = conn.execute(
            "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables"
            " WHERE tablename LIKE 'ducklake%' ORDER BY 1"
        ).fetchall()
        sums = "SELECT count(*), md5(string_agg(x::text, '' ORDER BY x::text)) FROM {} x"
        rows = [(name, conn.execute(sums.format(name)).fetchone()) for (name,) in names]
    files = sorted(str(file) for file in lake.settings.root.rglob("*") if file.is_file())
    return rows, files


@pytest.mark.parametrize(
    ("words", "code", "exit_code", "about", "remedy"),
    [
        # tables
        (("sql", "FROM nix"), "UNKNOWN_TABLE", 2, "line 1, column 6", "lakemill tables"),
        (("changes", "nix", "--from", "3"), "UNKNOWN_TABLE", 2, "main.nix", "lakemill tables"),
        (("changes", "gone", "--from", "3"), "UNKNOWN_TABLE", 2, "main.gone", "lakemill tables"),
        (("changes", "a.b.c", "--from", "3"), "BAD_ARGUMENT", 2, "a.b.c", "schema.table"),
        (("upkeep", "compact", "nix"), "UNKNOWN_TABLE", 2, "main.nix", "lakemill tables"),
        # columns and types
        (("sql", "SELECT nix FROM t"), "UNKNOWN_COLUMN", 2, "nix", "nothing was changed"),
        (("sql", "INSERT INTO t (nix) VALUES (1)"), "UNKNOWN_COLUMN", 2, "nix", "nothing was changed"),
        (("sql", "INSERT INTO t VALUES ('a', 'b')"), "WRONG_TYPE", 2, "'a'", "nothing was changed"),
        # snapshots
        (("sql", "--at", "99", "FROM t"), "UNKNOWN_SNAPSHOT", 2, "99", "lakemill snapshots"),
        (("sql", "--at", "2", "FROM t"), "SNAPSHOT_GONE", 3, "2", "lakemill snapshots"),
        (("tables", "--at", "99"), "UNKNOWN_SNAPSHOT", 2, "the newest is 4", "lakemill snapshots"),
        (("attach", "--at", "-1"), "UNKNOWN_SNAPSHOT", 2, "-1", "lakemill snapshots"),
        (("changes", "t", "--from", "2"), "SNAPSHOT_GONE", 3, "2", "lakemill snapshots"),
        (("changes", "t", "--from", "99"), "UNKNOWN_SNAPSHOT", 2, "there is no snapshot 99", "lakemill snapshots"),
        (("changes", "t", "--from", "99", "--to", "3"), "BAD_ARGUMENT", 2, "before --from", "swap"),
        (("changes", "t", "--from", "0", "--plan"), "TABLE_REPLACED", 3, "did not exist", "newest snapshot"),
        (("changes", "t", "--from", "4", "--to", "3"), "BAD_ARGUMENT", 2, "before --from", "swap"),
        # words
        (("sql",), "BAD_ARGUMENT", 2, "either", "--help"),
        (("sql", ""), "BAD_ARGUMENT", 2, "no statement", "--help"),
        (("sql", "SELEC 1"), "SQL_FAILED", 2, "line 1, column 1", "nothing was changed"),
        (("sql", "-f", "/nix/nix.sql"), "BAD_ARGUMENT", 2, "/nix/nix.sql", "text file"),
        (("nix",), "BAD_ARGUMENT", 2, "nix", "--help"),
        (("tables", "--nix"), "BAD_ARGUMENT", 2, "--nix", "lakemill tables --help"),
        (("snapshots", "--limit", "many"), "BAD_ARGUMENT", 2, "--limit", "--help"),
        (("--format", "xml", "tables"), "BAD_ARGUMENT", 2, "xml", "--help"),
        (("upkeep", "expire", "--older-than", "soon"), "BAD_ARGUMENT", 2, "soon", "7 days"),
        # settings
        (("--set", "spark", "tables"), "BAD_ARGUMENT", 2, "group.key=value", "--set"),
        (("--set", "foo=1", "tables"), "BAD_SETTINGS", 2, "--set foo: no such setting", "settings.md"),
        (("--set", "spark.master=blah", "changes", "t", "--from", "3"), "BAD_SETTINGS", 2, "'blah'", "settings.md"),
        (("--set", "lake.data_pth=x", "tables"), "BAD_SETTINGS", 2, "did you mean lake.data_path", "settings.md"),
        (("--set", "publish.retries=many", "tables"), "BAD_SETTINGS", 2, "integer", "settings.md"),
        (("--set", "lake.postgres=nonsense", "tables"), "BAD_SETTINGS", 2, "not a DSN", "settings.md"),
    ],
)  # fmt: skip
def test_commands(
    lakemill: Lakemill, filled: TestLake, words: tuple[str, ...], code: str, exit_code: int, about: str, remedy: str
) -> None:
    before = state(filled)
    lakemill(filled, *words).failed(code, exit_code, about=about, remedy=remedy)
    assert state(filled) == before


# ---------------------------------------------------------------- making a lake
@pytest.fixture
def silent() -> Iterator[int]:
    """A port whose server takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as server:
        yield server.getsockname()[1]


def test_a_dsn_that_answers_nothing(lakemill: Lakemill, tmp_path: Path, silent: int) -> None:
    dsn = f"host=127.0.0.1 port={silent} dbname=x user=x password=hush"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"postgresql://x:hush@127.0.0.1:{free.getsockname()[1]}/x"
        for given, reason in ((dsn, "timeout"), (closed, "refused")):
            ran = lakemill("--set", "lake.connect_timeout=2s", "init", tmp_path / "lake", "--postgres", given)
            ran.failed("STORE_UNAVAILABLE", 5, about=reason, remedy="PostgreSQL runs")
            assert "hush" not in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_dsn_may_have_a_timeout_of_its_own(lakemill: Lakemill, tmp_path: Path, silent: int) -> None:
    dsn = f"host=127.0.0.1 port={silent} dbname=x user=x connect_timeout=2"
    begun = time.monotonic()
    lakemill("init", tmp_path / "lake", "--postgres", dsn).failed("STORE_UNAVAILABLE", 5, about="timeout")
    assert time.monotonic() - begun < 6


@pytest.mark.parametrize("path", ["s3://", "s3:///x", "s3:/bucket/x", "s3:bucket"])
def test_an_address_without_a_bucket(lakemill: Lakemill, tmp_path: Path, database: str, path: str) -> None:
    ran = lakemill("init", tmp_path / "lake", "--data-path", path, "--postgres", database)
    ran.failed("BAD_SETTINGS", 2, about=f"--data-path: '{path}' names no bucket; write s3://bucket/prefix")
    assert list(tmp_path.iterdir()) == []
    with db.connect(database) as conn:
        assert conn.execute("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'ducklake%'").fetchone() == (0,)


def test_a_database_that_is_not_there(lakemill: Lakemill, tmp_path: Path, postgres: str) -> None:
    ran = lakemill("init", tmp_path / "lake", "--postgres", f"{postgres} dbname=nix_da")
    ran.failed("STORE_UNAVAILABLE", 5, about='database "nix_da" does not exist', remedy="create the database")
    assert list(tmp_path.iterdir()) == []


def test_an_old_postgresql(lakemill: Lakemill, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakemill.store.db.OLDEST_SERVER", 990000)
    ran = lakemill("init", tmp_path / "lake", "--postgres", database)
    ran.failed("UNSUPPORTED_VERSION", 2, about="not 99 or newer", remedy="newer server")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("version", "cure"), [("0.3", "migrates it to 1.0"), ("2.0", "a Lakemill that knows")])
def test_another_version_of_the_lake(
    lakemill: Lakemill, lake: TestLake, tmp_path: Path, version: str, cure: str
) -> None:
    with db.connect(lake.dsn) as conn:
        conn.execute("UPDATE ducklake_metadata SET value = %s WHERE key = 'version'", (version,))
        before = conn.execute("SELECT nspname FROM pg_namespace ORDER BY 1").fetchall()
        for words in ((lake, "tables"), (lake, "sql", "SELECT 1"), ("init", tmp_path / "new", "--postgres", lake.dsn)):
            lakemill(*words).failed("UNSUPPORTED_LAKE", 2, about=version, remedy=cure)
        assert conn.execute("SELECT nspname FROM pg_namespace ORDER BY 1").fetchall() == before
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("words", [("tables",), ("snapshots",), ("changes", "t", "--from", "1", "--plan")])
def test_a_catalog_that_lacks_a_table(lakemill: Lakemill, lake: TestLake, words: tuple[str, ...]) -> None:
    lakemill(lake, "sql", "CREATE TABLE t (a INT)")
    with db.connect(lake.dsn) as conn:
        for name in ("ducklake_data_file", "ducklake_snapshot_changes", "ducklake_column"):
            conn.execute(f"DROP TABLE {name} CASCADE")  # ours, in a test
    lakemill(lake, *words).failed("CATALOG_INCONSISTENT", 3, about="does not exist", remedy="backup")


def test_a_database_of_a_newer_lakemill(lakemill: Lakemill, lake: TestLake) -> None:
    assert lakemill(lake, "tables").code == 0
    with db.connect(lake.dsn) as conn:
        conn.execute("INSERT INTO lakemill.migrations (number, name) VALUES (9999, 'from the future')")
    lakemill(lake, "tables").failed("UNSUPPORTED_VERSION", 2, about="newer Lakemill", remedy="at least as new")


def test_a_user_without_rights(lakemill: Lakemill, postgres: str, tmp_path: Path) -> None:
    if os.environ.get("LAKEMILL_TEST_POSTGRES"):
        pytest.skip("makes a role on the server")
    with new_database(postgres) as dsn, db.connect(dsn) as conn:
        conn.execute("DROP ROLE IF EXISTS nobody_much")
        conn.execute("CREATE ROLE nobody_much LOGIN")
        ran = lakemill("init", tmp_path / "lake", "--postgres", f"{dsn} user=nobody_much")
        assert ran.code in (2, 5)
        assert len(ran.err.splitlines()) == 1
        assert "permission denied" in ran.err
        conn.execute("DROP ROLE nobody_much")
    assert list(tmp_path.iterdir()) == []


def _file(place: Path) -> Path:
    place.write_text("in the way")
    return place


def _unwritable(place: Path) -> Path:
    return Path("/proc/lakemill") if os.geteuid() == 0 else _closed(place)


def _closed(place: Path) -> Path:
    place.mkdir(mode=0o500)
    return place / "below"


@pytest.mark.parametrize("make", [_file, _unwritable])
def test_an_unwritable_place(lakemill: Lakemill, tmp_path: Path, database: str, make: Callable[[Path], Path]) -> None:
    place = make(tmp_path / "place")
    there = sorted(tmp_path.rglob("*"))
    lakemill("init", place, "--postgres", database).failed("UNWRITABLE", 2, remedy="choose another")
    lakemill("init", tmp_path / "lake", "--data-path", place, "--postgres", database).failed("UNWRITABLE", 2)
    assert sorted(tmp_path.rglob("*")) == there
    with db.connect(database) as conn:
        assert conn.execute("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'ducklake%'").fetchone() == (0,)


def test_a_data_path_that_belongs_to_somebody(lakemill: Lakemill, tmp_path: Path, database: str) -> None:
    (tmp_path / "data").mkdir()
    _file(tmp_path / "data" / "theirs.parquet")
    ran = lakemill("init", tmp_path / "lake", "--data-path", tmp_path / "data", "--postgres", database)
    ran.failed("LAKE_EXISTS", 2, about="theirs.parquet", remedy="empty")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["data", "theirs.parquet"]
    ran = lakemill("init", tmp_path / "lake", "--data-path", "gs://bucket/x", "--postgres", database)
    ran.failed("BAD_SETTINGS", 2, about="gs://bucket/x", remedy="S3 address")


def test_a_foreign_lock(lakemill: Lakemill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process that starts or stops this lake's server, for longer than we wait."""
    monkeypatch.setattr("lakemill.store.embedded.LOCK_SECONDS", 0.3)
    folder = tmp_path / ".lakemill" / "postgres"
    folder.mkdir(parents=True)
    with EmbeddedPostgres(folder)._lock():
        lakemill("-C", tmp_path, "tables").failed("FOREIGN_LOCK", 5, about=str(folder), remedy="wait")
    assert not (folder / "cluster").exists()


@pytest.mark.parametrize(
    ("content", "code", "about"),
    [
        (None, "BAD_ARGUMENT", "can't be read"),
        (b"not a database at all, by any means", "BAD_ARGUMENT", "neither"),
        (b"SQLite format 3\x00" + bytes(84), "SQL_FAILED", ""),
    ],
)
def test_a_file_that_is_no_catalog(
    lakemill: Lakemill, tmp_path: Path, database: str, content: bytes | None, code: str, about: str
) -> None:
    file = tmp_path / "catalog.db"
    if content is not None:
        file.write_bytes(content)
    ran = lakemill("init", tmp_path / "lake", "--from", file, "--postgres", database)
    if code == "SQL_FAILED":  # DuckDB's own words for a broken SQLite file vary
        assert ran.code in (2, 5)
        assert len(ran.err.splitlines()) == 1
    else:
        ran.failed(code, 2, about=about, remedy="file of the catalog")
    assert not (tmp_path / "lake").exists()


def test_a_target_that_has_a_lake(lakemill: Lakemill, lake: TestLake, tmp_path: Path) -> None:
    file = tmp_path / "catalog.db"
    file.write_bytes(bytes(8) + b"DUCK")
    ran = lakemill("init", tmp_path / "new", "--from", file, "--postgres", lake.dsn)
    ran.failed("LAKE_EXISTS", 2, about="holds a lake already", remedy="empty database")
    assert not (tmp_path / "new").exists()


def test_a_mistake_of_our_own_is_one_line_too(
    lakemill: Lakemill, filled: TestLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("lakemill.runtime.open.Lake.snapshot", broken)
    lakemill(filled, "tables").failed("INTERNAL_ERROR", 70, about="RuntimeError: two", remedy="report")
    monkeypatch.setenv("LAKEMILL_DEBUG", "1")
    assert "Traceback" in lakemill(filled, "tables").err
