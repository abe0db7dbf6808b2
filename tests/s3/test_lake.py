"""The lake suite's core on a real S3 server: what stock DuckDB and Lakemill write there, each reads of the other."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import lakemill
from lakemill.lake.storage import StoredFile, open_storage
from lakemill.runtime import upkeep
from lakemill.runtime.open import Lake
from tests.conftest import MakeLake
from tests.s3.conftest import MakeFlags
from tests.s3.server import S3Server

pytestmark = pytest.mark.s3

Bag = Counter[tuple[Any, ...]]


def rows(frame: Any) -> Bag:
    return Counter(tuple(row.values()) for row in frame.toArrow().to_pylist())


def weights(frame: Any) -> dict[tuple[Any, ...], int]:
    return {tuple(row.values())[:-1]: row["__weight"] for row in frame.toArrow().to_pylist()}


def stock(lake: Lake, table: str, at: int | None = None) -> Bag:
    """What DuckDB answers; history without the optimizer that misreads it."""
    lake.sql("SET disabled_optimizers = 'statistics_propagation'")
    when = "" if at is None else f" AT (VERSION => {at})"
    return Counter(lake.sql(f"SELECT * FROM {table}{when}").fetchall())


def files(lake: Lake) -> list[StoredFile]:
    return list(open_storage(lake.settings.data_path, lake.settings.s3).list())


def named(lake: Lake) -> set[str]:
    """The whole paths of all files that the catalog names."""
    query = """
        SELECT s.path || t.path || f.path
        FROM (SELECT table_id, path FROM {data} UNION ALL SELECT table_id, path FROM {deletes}) f
        JOIN {tables} t USING (table_id) JOIN {schemas} s USING (schema_id)"""
    words = ("data_file", "delete_file", "table", "schema")
    meta = [f"__ducklake_metadata_lake.ducklake_{word}" for word in words]
    found = lake.sql(query.format(data=meta[0], deletes=meta[1], tables=meta[2], schemas=meta[3])).fetchall()
    return {lake.settings.data_path + path for (path,) in found}


def test_what_stock_duckdb_writes_is_read_at_every_snapshot(opened: Lake) -> None:
    opened.sql("CREATE TABLE t AS SELECT i AS id, 'v' || i AS name FROM range(1000) r(i)")
    first = opened.snapshot().id
    opened.sql("DELETE FROM t WHERE id % 10 = 0")
    opened.sql("UPDATE t SET name = 'changed' WHERE id < 20")
    opened.sql("INSERT INTO t SELECT i, 'new' FROM range(2000, 2010) r(i)")
    table = opened.table("t")
    before, after = stock(opened, "t", first), stock(opened, "t")
    assert rows(table.scan(first)) == before
    assert rows(table.scan()) == after
    assert weights(table.delta(first)) == {r: after[r] - before[r] for r in before | after if after[r] != before[r]}


def test_what_lakemill_writes_stock_duckdb_reads(opened: Lake) -> None:
    spark, table = opened.spark, opened.table("t")
    opened.sql("CREATE TABLE t (id BIGINT, kind VARCHAR)")
    opened.sql("ALTER TABLE t SET PARTITIONED BY (kind)")
    frame = spark.range(100).selectExpr("id", "concat('k ', id % 3, '%') AS kind")
    kept: dict[int, Bag] = {}
    for write in (
        lambda: table.append(frame),
        lambda: table.delete("id < 10"),
        lambda: table.merge(spark.sql("SELECT 50L AS id, 'new' AS kind UNION ALL SELECT 1000L, 'k 1%'"), on=["id"]),
        lambda: table.replace(frame.where("id < 5")),
    ):
        published = write()
        assert published is not None
        kept[published.snapshot_id] = rows(table.scan())
    assert [sum(bag.values()) for bag in kept.values()] == [100, 90, 91, 5]
    for snapshot, bag in kept.items():
        assert stock(opened, "t", snapshot) == bag == rows(table.scan(snapshot))
    assert {file.path for file in files(opened)} == named(opened)  # nothing of the jobs is left behind


def test_upkeep(make_lake: MakeLake, s3_flags: MakeFlags, spark: Any) -> None:
    ages = {"upkeep.retention": "0s", "upkeep.orphan_age": "0s"}
    with lakemill.open(make_lake(flags=s3_flags() | ages).settings) as lake:
        table = lake.table("t")
        lake.sql("CREATE TABLE t AS SELECT i AS id FROM range(100) r(i)")
        for start in (100, 200):
            lake.sql(f"INSERT INTO t SELECT i FROM range({start}, {start + 100}) r(i)")
        lake.sql("DELETE FROM t WHERE id % 2 = 0")
        expected = stock(lake, "t")

        assert upkeep.compact(lake, "t").snapshots
        assert rows(table.scan()) == stock(lake, "t") == expected
        head = lake.snapshot().id
        assert upkeep.expire(lake).snapshots
        assert lake.snapshot().id == head

        before = len(files(lake))
        assert upkeep.cleanup(lake).files_removed > 0
        assert len(files(lake)) < before
        assert {file.path for file in files(lake)} == named(lake)
        assert rows(table.scan()) == stock(lake, "t") == expected

        storage = upkeep.storage_of(lake)
        orphan = storage.root + "main/t/lakemill-left-behind/part.parquet"
        storage.put_bytes(orphan, b"PAR1")
        assert [item.what for item in upkeep.orphans(lake, dry_run=True).done] == [orphan]
        assert upkeep.orphans(lake).files_removed == 1
        assert {file.path for file in files(lake)} == named(lake)


def test_every_file_is_encrypted_with_the_key_of_the_settings(
    make_lake: MakeLake, s3_flags: MakeFlags, spark: Any, server: S3Server, new_bucket: Any
) -> None:
    bucket = new_bucket()
    flags = s3_flags(in_bucket=bucket, kms_key_id="lakemill-key")
    with lakemill.open(make_lake(flags=flags).settings) as lake:
        lake.sql("CREATE TABLE t AS SELECT 1::BIGINT AS id")
        lake.table("t").append(lake.spark.range(10))
        lake.table("t").delete("id < 5")
        assert stock(lake, "t") == Counter((n,) for n in range(5, 10))
        keys = {server.key_of(bucket, file.path.removeprefix(f"s3://{bucket}/")) for file in files(lake)}
        assert keys == {"lakemill-key"}
        assert len(files(lake)) >= 3  # DuckDB's, Spark's, and one with deletes
