"""`lakemill init`: a new lake, an adopted one, one moved from a file; and that a failure leaves nothing."""

from __future__ import annotations

import itertools
import stat
import tomllib
from pathlib import Path

import pytest

from lakemill.errors import CatalogInconsistent
from lakemill.lake import duck
from lakemill.lake.comparison import OLD
from lakemill.settings import Settings
from lakemill.store import db
from lakemill.store.embedded import EmbeddedPostgres
from tests.cli.conftest import Lakemill
from tests.conftest import TestLake

VALUES = """
    'it''s, "q" {x}' AS v, 'NaN'::DOUBLE AS d, 1.5::FLOAT AS f, TIMESTAMP '2020-01-01 10:00:00.123456' AS ts,
    TIMESTAMPTZ '2020-01-01 10:00:00+02' AS tz, DATE '0044-03-15 (BC)' AS dt, '\\xAA\\x00b'::BLOB AS b,
    170141183460469231731687303715884105727 AS h, {'a': 1, 'b': 'x, y'} AS st, ['a', 'b''c', NULL] AS l,
    MAP {'k': 1} AS m, true AS bo, TIME '10:11:12.5' AS ti, 12.345::DECIMAL(10,3) AS de, -5::TINYINT AS tiny,
    18446744073709551615::UBIGINT AS ub, '{"a": 1}'::JSON AS js, INTERVAL 3 MONTHS AS iv,
    'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::UUID AS u"""
HISTORY = (
    f"CREATE TABLE t AS SELECT i, {VALUES} FROM range(3) r(i)",
    "INSERT INTO t (i) SELECT i FROM range(100, 5000) r(i)",
    "UPDATE t SET v = 'zwei' WHERE i IN (2, 150)",
    "DELETE FROM t WHERE i IN (1, 200)",
    "ALTER TABLE t ADD COLUMN extra INTEGER DEFAULT 7",
    "ALTER TABLE t ADD COLUMN CustId INTEGER DEFAULT 8",
    "INSERT INTO t (i) VALUES (9)",
    "DELETE FROM t WHERE i IN (0, 300)",
    "CREATE SCHEMA s",
    "CREATE VIEW s.w AS SELECT count(*) AS n FROM main.t",
    "CREATE TABLE s.gone (x INTEGER)",
    "DROP TABLE s.gone",
)


# ---------------------------------------------------------------- a new one
def test_a_new_lake(lakemill: Lakemill, tmp_path: Path, database: str) -> None:
    root = tmp_path / "deep" / "lake"
    ran = lakemill("init", root, "--postgres", database, "--format", "json")
    assert ran.json["lake"] == "created"
    assert ran.json["data_path"] == f"{root}/data/"
    file = root / "lakemill.toml"
    assert tomllib.loads(file.read_text()) == {"lake": {"data_path": "data/", "postgres": database}}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600  # a DSN may hold a password
    with duck.connect(Settings.load(root), database) as lake:
        options = dict(lake.execute("SELECT option_name, value FROM lake.options()").fetchall())
    assert options["data_inlining_row_limit"] == "0"
    assert options["write_deletion_vectors"] == "false"
    assert options["parquet_compression"] == "zstd"
    with db.connect(database) as conn:
        assert conn.execute("SELECT count(*) FROM lakemill.migrations").fetchone() != (0,)
    again = lakemill("init", root, "--postgres", database)
    again.failed("LAKE_EXISTS", 2, remedy="another folder")


def test_an_embedded_server(lakemill: Lakemill, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    try:
        assert "embedded" in lakemill("init", root, "--format", "json").json["postgres"]
        assert lakemill("-C", root, "sql", "CREATE TABLE t AS SELECT 1 AS id").code == 0
        assert lakemill("-C", root, "stop", "--format", "json").json["was_running"] is True
        assert lakemill("-C", root, "stop", "--format", "json").json["was_running"] is False
        assert lakemill("-C", root, "tables", "--format", "json").json[0]["rows"] == 1  # started again by itself
    finally:
        EmbeddedPostgres(root / ".lakemill" / "postgres").remove()


def test_a_lake_around_it_lends_no_settings(lakemill: Lakemill, lake: TestLake, database: str) -> None:
    inner = lake.settings.root / "inner"
    assert lakemill("init", inner, "--postgres", database).code == 0
    assert Settings.load(inner).lake.postgres == database


# ---------------------------------------------------------------- one that is there
def test_adopts_the_lake_of_a_database(lakemill: Lakemill, lake: TestLake, tmp_path: Path) -> None:
    with lake.duck() as writer:
        writer.execute("CREATE TABLE t AS SELECT 1 AS id")
    ran = lakemill("init", tmp_path / "other", "--postgres", lake.dsn, "--format", "json")
    assert (ran.json["lake"], ran.json["data_path"]) == ("adopted", lake.data_path)
    assert lakemill("-C", tmp_path / "other", "tables", "--format", "json").json[0]["table"] == "main.t"
    told = lakemill("init", tmp_path / "again", "--postgres", lake.dsn).err
    assert told == f"next: lakemill -C {tmp_path / 'again'} tables\n"
    refused = lakemill("init", tmp_path / "third", "--postgres", lake.dsn, "--data-path", tmp_path / "elsewhere")
    refused.failed("LAKE_EXISTS", 2, about=lake.data_path, remedy="--data-path")
    assert not (tmp_path / "third").exists()


# ---------------------------------------------------------------- one in a file
@pytest.fixture
def catalog_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    file = tmp_path / f"catalog.{request.param}"
    write_catalog(file, request.param, tmp_path / "files")
    return file


def write_catalog(file: Path, kind: str, data: Path) -> None:
    with duck.connect(Settings.load("/"), "", attach=False) as old:
        for name in ("ducklake", "sqlite_scanner"):
            duck.load_extension(old, name)
        prefix = "ducklake:sqlite:" if kind == "sqlite" else "ducklake:"
        old.execute(f"ATTACH '{prefix}{file}' AS {OLD} (DATA_PATH '{data}', DATA_INLINING_ROW_LIMIT 10)")
        old.execute(f"USE {OLD}")
        for statement in HISTORY:
            old.execute(statement)
        old.execute(f"USE memory; DETACH {OLD}")


@pytest.mark.parametrize("catalog_file", ["duckdb", "sqlite"], indirect=True)
def test_moves_a_lake_with_its_history(lakemill: Lakemill, catalog_file: Path, tmp_path: Path, database: str) -> None:
    before = catalog_file.read_bytes()
    root = tmp_path / "lake"
    ran = lakemill("init", root, "--from", catalog_file, "--postgres", database, "--format", "json")
    assert ran.code == 0, ran.err
    assert (ran.json["lake"], ran.json["snapshots"], ran.json["tables"]) == ("moved", len(HISTORY) + 1, 1)
    compared, reads = ran.json["reads_compared"].split(",")[0].split(" of ")
    assert compared == reads != "0"
    assert catalog_file.read_bytes() == before
    assert truth(catalog_file) == snapshots_of(Settings.load(root), database)
    with db.connect(database) as conn:
        left = conn.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'lakemill_move%'").fetchall()
    assert left == []
    # it is a lake like any other: written on top, read by Lakemill
    assert lakemill("-C", root, "sql", "INSERT INTO t (i, v) VALUES (77, 'new'); DELETE FROM t WHERE i = 9").code == 0
    rows = lakemill("-C", root, "sql", "SELECT i, v, extra FROM t WHERE i IN (2, 9, 77) ORDER BY i", "--format", "json")
    assert rows.json == [{"i": 2, "v": "zwei", "extra": 7}, {"i": 77, "v": "new", "extra": 7}]
    assert lakemill("-C", root, "sql", "FROM s.w", "--format", "csv").code == 0


def truth(file: Path) -> list[list[tuple[object, ...]]]:
    """What the source reads at each snapshot, by the extension itself."""
    with duck.connect(Settings.load("/"), "", attach=False) as old:
        for name in ("ducklake", "sqlite_scanner"):
            duck.load_extension(old, name)
        prefix = "ducklake:sqlite:" if file.suffix == ".sqlite" else "ducklake:"
        old.execute(f"ATTACH '{prefix}{file}' AS lake (READ_ONLY); USE lake")
        return _reads(old)


def snapshots_of(settings: Settings, dsn: str) -> list[list[tuple[object, ...]]]:
    with duck.connect(settings, dsn) as new:
        return _reads(new)


def _reads(connection: duck.Connection) -> list[list[tuple[object, ...]]]:
    connection.execute("SET disabled_optimizers = 'statistics_propagation'")
    found = []
    for snapshot in itertools.count(1):
        try:
            rows = connection.execute(f"FROM main.t AT (VERSION => {snapshot}) ORDER BY i").fetchall()
        except duck.DuckError:
            return found
        found.append([tuple(str(value) for value in row) for row in rows])
    return found


def _differs(*_: object) -> None:
    raise CatalogInconsistent("the copy is not the same")


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("catalog_file", ["duckdb"], indirect=True)
@pytest.mark.parametrize(
    ("broken", "by", "code"),
    [
        ("transfer.POSTGRES_TYPES", {"BIGINT": "smallint"}, 2),  # a value does not fit: the copy fails
        ("transfer._stored", _interrupted, 130),  # inside the copy's transaction
        ("transfer.require_equal_rows", _differs, 3),  # the comparison says no
        ("transfer._give_place", _interrupted, 130),  # at the very end
    ],
)
def test_a_move_that_fails_leaves_nothing(
    lakemill: Lakemill,
    catalog_file: Path,
    tmp_path: Path,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
    by: object,
    code: int,
) -> None:
    monkeypatch.setattr(f"lakemill.lake.{broken}", by)
    root = tmp_path / "lake"
    ran = lakemill("init", root, "--from", catalog_file, "--postgres", database)
    assert ran.code == code, ran.err
    assert not root.exists()
    with db.connect(database) as conn:
        query = "SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        assert conn.execute(query).fetchone() == (0,)
