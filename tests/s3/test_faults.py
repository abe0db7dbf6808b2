"""A lake on an S3 that is slow, busy, full, closed or not there: it works, or one clear line and nothing changed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import lakemill
from lakemill.cli.main import run
from lakemill.errors import LakemillError, StorageUnavailable, UnknownBucket, Unwritable
from lakemill.lake import duck
from lakemill.runtime.create import create_lake
from lakemill.runtime.open import Lake
from lakemill.settings import FILE_NAME
from tests.conftest import MakeLake, make_lakes
from tests.s3.conftest import MakeFlags
from tests.s3.proxy import Faults, Proxy
from tests.s3.server import STRANGER, S3Server
from tests.s3.test_lake import files, rows, stock

pytestmark = pytest.mark.s3


@contextmanager
def refused(kind: type[LakemillError], said: str) -> Iterator[None]:
    with pytest.raises(kind, match=said) as told:
        yield
    line = str(told.value)
    assert "\n" not in line
    assert len(line) < 500
    assert told.value.remedy


@contextmanager
def unchanged(lake: Lake) -> Iterator[None]:
    """Neither the catalog nor the files."""
    before = lake.snapshot(), stock(lake, "t"), sorted(file.path for file in files(lake))
    yield
    assert (lake.snapshot(), stock(lake, "t"), sorted(file.path for file in files(lake))) == before


@pytest.fixture(scope="module")
def opened(
    postgres: str, tmp_path_factory: pytest.TempPathFactory, s3_flags: MakeFlags, spark_session: Any
) -> Iterator[Lake]:
    """One lake for all tests here: it must survive them all."""
    folder = tmp_path_factory.mktemp("faults")
    with make_lakes(postgres, folder) as make, lakemill.open(make(flags=s3_flags()).settings) as lake:
        yield lake


@pytest.fixture
def filled(opened: Lake) -> Lake:
    opened.sql("CREATE OR REPLACE TABLE t AS SELECT i AS id FROM range(100) r(i)")
    opened.sql("INSERT INTO t SELECT i FROM range(100, 200) r(i)")
    return opened


@pytest.mark.parametrize(
    "faults", [Faults(delay=0.05), Faults(busy_share=0.15), Faults(cut_share=0.1)], ids=["slow", "503", "cut"]
)
def test_what_passes_is_survived(filled: Lake, proxy: Proxy, faults: Faults) -> None:
    table = filled.table("t")
    with proxy.broken(faults) as met:
        table.append(filled.spark.range(200, 210))
        table.delete("id < 10")
        found = rows(table.scan())
    assert sum(met.values()) > 5
    assert found == stock(filled, "t")
    assert sorted(found) == [(n,) for n in range(10, 210)]


def test_a_full_disk(filled: Lake, proxy: Proxy) -> None:
    table = filled.table("t")
    for write in (lambda: table.append(filled.spark.range(5)), lambda: table.delete("id < 10")):
        with unchanged(filled):
            with proxy.broken(Faults(full=True)) as met, refused(StorageUnavailable, "full"):
                write()
            assert met["full"]
    with unchanged(filled), proxy.broken(Faults(full=True)), refused(StorageUnavailable, "full"):
        filled.sql("INSERT INTO t SELECT 1 FROM range(100)")
    assert table.append(filled.spark.range(5)) is not None  # and there is space again


def test_an_s3_that_never_has_time(filled: Lake, proxy: Proxy) -> None:
    with unchanged(filled), proxy.broken(Faults(busy_share=1)), refused(StorageUnavailable, "busy"):
        filled.table("t").append(filled.spark.range(5))


def test_an_s3_that_says_nothing(make_lake: MakeLake, s3_flags: MakeFlags, proxy: Proxy) -> None:
    made = make_lake(flags=s3_flags(read_timeout="1s", retries=1))
    with made.duck() as stock_duck, duck.explained():
        stock_duck.execute("CREATE TABLE t AS SELECT i AS id FROM range(100) r(i)")
        begun = time.monotonic()
        with proxy.broken(Faults(delay=4)), refused(StorageUnavailable, "(?i)timeout|timed out"), duck.explained():
            stock_duck.execute("INSERT INTO t SELECT 1 FROM range(100)")
        assert time.monotonic() - begun < 15
        assert stock_duck.execute("SELECT count(*) FROM t").fetchone() == (100,)


@pytest.mark.slow
def test_an_s3_that_says_nothing_to_spark(
    make_lake: MakeLake, s3_flags: MakeFlags, spark: Any, new_bucket: Any, proxy: Proxy
) -> None:
    """Hadoop waits 15 s at least, whatever the settings say."""
    with lakemill.open(make_lake(flags=s3_flags(in_bucket=new_bucket(), retries=0)).settings) as lake:
        lake.sql("CREATE TABLE t AS SELECT i AS id FROM range(100) r(i)")
        begun = time.monotonic()
        with unchanged(lake), proxy.broken(Faults(delay=40)), refused(StorageUnavailable, "in time"):
            lake.table("t").append(lake.spark.range(5))
        assert time.monotonic() - begun < 120


def test_a_key_that_may_only_read(
    make_lake: MakeLake, s3_flags: MakeFlags, spark: Any, server: S3Server, new_bucket: Any
) -> None:
    if server.reader is None:
        pytest.skip("the given server has no identity that may only read")
    bucket = new_bucket()
    made = make_lake(flags=s3_flags(in_bucket=bucket))
    with made.duck() as owner:
        owner.execute("CREATE TABLE t AS SELECT i AS id FROM range(100) r(i)")
    changed = {"access_key_id": server.reader.access_key_id, "secret_access_key": server.reader.secret_access_key}
    s3 = type(made.settings.s3)(**(made.settings.s3.model_dump() | changed))
    with lakemill.open(made.settings.model_copy(update={"s3": s3})) as lake:
        assert rows(lake.table("t").scan()) == stock(lake, "t")
        with unchanged(lake), refused(Unwritable, "denies"):
            lake.table("t").append(lake.spark.range(5))
        with unchanged(lake), refused(Unwritable, "denies"):
            lake.sql("INSERT INTO t SELECT 1 FROM range(100)")


def test_changes_with_a_wrong_key(
    make_lake: MakeLake, s3_flags: MakeFlags, spark: Any, new_bucket: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    flags = s3_flags(in_bucket=new_bucket())
    made = make_lake(flags=flags)
    with made.duck() as owner:
        owner.execute("CREATE TABLE t (id INT)")
        owner.execute("INSERT INTO t SELECT * FROM range(100)")
    flags |= {"s3.access_key_id": STRANGER.access_key_id, "s3.secret_access_key": STRANGER.secret_access_key}
    sets = [word for key, value in flags.items() for word in ("--set", f"{key}={value}")]
    capfd.readouterr()
    assert run([*sets, "-C", str(made.settings.root), "changes", "t", "--from", "1"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("error[UNWRITABLE] s3://")
    assert "denies access" in err  # what a HEAD is told, whose answer has no words


@pytest.mark.parametrize(
    ("changed", "kind", "said"),
    [
        ({"in_bucket": "lakemill-test-nowhere"}, UnknownBucket, "bucket does not exist"),
        ({"who": STRANGER}, Unwritable, "does not accept the credentials"),
        ({"endpoint": "http://127.0.0.1:1", "retries": 1}, StorageUnavailable, "can't be reached"),
    ],
    ids=["no bucket", "wrong key", "no server"],
)
def test_no_lake_is_made_where_none_can_be(
    tmp_path: Path, database: str, s3_flags: MakeFlags, changed: Any, kind: type[LakemillError], said: str
) -> None:
    with refused(kind, said):
        create_lake(tmp_path / "lake", {"lake.postgres": database, **s3_flags(**changed)})
    assert not (tmp_path / "lake" / FILE_NAME).exists()
    created = create_lake(tmp_path / "lake", {"lake.postgres": database, **s3_flags()})  # nothing is in the way
    assert created.how == "created"
