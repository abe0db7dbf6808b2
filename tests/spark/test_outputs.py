"""Spark writes what stock DuckDB reads: same values, same statistics, same folders; or a clear refusal."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from lakemill.core.commit import AddFiles, DeletePositions, Intent
from lakemill.errors import LakemillError, UnknownColumn, UnsupportedType, WrongType
from lakemill.lake.footer import new_deletes, new_files
from lakemill.spark.casting import is_json
from lakemill.spark.deletes import write_deletes
from lakemill.spark.outputs import write_files
from tests.publishing import Desk, one_desk, one_lake

# type → three values in DuckDB's SQL and in Spark's; NULL is added
VALUES: dict[str, tuple[tuple[str, str], ...]] = {
    "BOOLEAN": (("true", "true"), ("false", "false")),
    "TINYINT": (("-128", "-128Y"), ("127", "127Y")),
    "SMALLINT": (("-3", "-3S"), ("3", "3S")),
    "INTEGER": (("-7", "-7"), ("7", "7")),
    "BIGINT": (("-9223372036854775808", "-9223372036854775808L"), ("5", "5L")),
    "UTINYINT": (("0", "0S"), ("255", "255S")),
    "USMALLINT": (("0", "0"), ("65535", "65535")),
    "UINTEGER": (("0", "0L"), ("4294967295", "4294967295L")),
    "UBIGINT": (("0", "0BD"), ("18446744073709551615", "18446744073709551615BD")),
    "FLOAT": (("-1.5", "-1.5F"), ("0.1", "0.1F")),
    "DOUBLE": (("-1e300", "-1e300D"), ("0.1", "0.1D")),
    "DECIMAL(4,1)": (("-1.5", "-1.5BD"), ("9.9", "9.9BD")),
    "DECIMAL(18,2)": (("-12.30", "-12.30BD"), ("12.3", "12.3BD")),
    "DECIMAL(38,3)": (("-3.125", "-3.125BD"), ("12345678901234567890.5", "12345678901234567890.5BD")),
    "DATE": (("DATE '0001-01-01'", "DATE'0001-01-01'"), ("DATE '2020-02-03'", "DATE'2020-02-03'")),
    "TIME": (("TIME '00:00:00'", "TIME'00:00:00'"), ("TIME '01:02:03.5'", "TIME'01:02:03.5'")),
    "TIMESTAMP": (
        ("TIMESTAMP '1500-01-02 03:04:05'", "TIMESTAMP_NTZ'1500-01-02 03:04:05'"),
        ("TIMESTAMP '2020-01-02 03:04:05.678901'", "TIMESTAMP_NTZ'2020-01-02 03:04:05.678901'"),
    ),
    "TIMESTAMP_MS": (("TIMESTAMP '2020-01-02 03:04:05.678'", "TIMESTAMP_NTZ'2020-01-02 03:04:05.678'"),),
    "TIMESTAMP_S": (("TIMESTAMP '2020-01-02 03:04:05'", "TIMESTAMP_NTZ'2020-01-02 03:04:05'"),),
    "TIMESTAMPTZ": (
        ("TIMESTAMPTZ '1969-01-02 03:04:05+00'", "TIMESTAMP'1969-01-02 03:04:05+00:00'"),
        ("TIMESTAMPTZ '2020-01-02 03:04:05.6+00'", "TIMESTAMP'2020-01-02 03:04:05.6+00:00'"),
    ),
    "VARCHAR": (("'Zürich'", "'Zürich'"), ("''", "''"), ("'a😀'", "'a😀'")),
    "JSON": (("'{\"a\":1}'", "'{\"a\":1}'"),),
    "BLOB": (("'\\x00\\xFFab'::BLOB", "X'00FF6162'"), ("'zz'::BLOB", "X'7A7A'")),
    "UUID": (
        ("'8f14e45f-ceea-467f-a8d3-5d1f3e1a2b3c'", "'8F14E45F-ceea-467f-a8d3-5d1f3e1a2b3c'"),
        ("'00000000-0000-0000-0000-000000000001'", "'00000000-0000-0000-0000-000000000001'"),
    ),
    "STRUCT(a INTEGER, n STRUCT(x DOUBLE, u UUID))": (
        (
            "{'a': 1, 'n': {'x': 0.5, 'u': '8f14e45f-ceea-467f-a8d3-5d1f3e1a2b3c'::UUID}}",
            "named_struct('n', named_struct('u', '8f14e45f-ceea-467f-a8d3-5d1f3e1a2b3c', 'X', 0.5D), 'a', 1)",
        ),
    ),
    "INTEGER[]": (("[3, 1, NULL]", "array(3, 1, NULL)"), ("[]", "cast(array() as array<int>)")),
    # no NULL among the structs: DuckDB counts the values below it wrong
    "STRUCT(p INTEGER, q VARCHAR)[]": (("[{'p': 1, 'q': 'z'}]", "array(named_struct('p', 1, 'q', 'z'))"),),
    "MAP(VARCHAR, INTEGER)": (("MAP {'k': 7}", "map('k', 7)"),),
    "MAP(VARCHAR, STRUCT(a INTEGER)[])": (("MAP {'k': [{'a': 7}]}", "map('k', array(named_struct('a', 7)))"),),
    "INTEGER[][]": (("[[1], [], NULL]", "array(array(1), cast(array() as array<int>), NULL)"),),
}
STATISTICS = (
    "SELECT column_id, value_count, null_count, min_value, max_value, contains_nan FROM ducklake_file_column_stats"
    " WHERE table_id = %s ORDER BY 1"
)
TABLE_STATISTICS = (
    "SELECT column_id, contains_null, contains_nan, min_value, max_value FROM ducklake_table_column_stats"
    " WHERE table_id = %s ORDER BY 1"
)


@pytest.fixture(scope="module")
def desk(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with one_lake(postgres, tmp_path_factory.mktemp("outputs")) as lake, one_desk(lake) as desk:
        yield desk


def append(desk: Desk, frame: Any, name: str = "t", **options: Any) -> int:
    target = desk.target(name)
    files = new_files(desk.duck, write_files(frame, target, desk.storage, **options), target)
    intent = Intent(uuid.uuid4(), (AddFiles(target.table_id, files),), target.requirements)
    return desk.publisher.publish(intent).snapshot_id


def test_every_type_is_as_if_duckdb_had_written_it(desk: Desk, spark: Any) -> None:
    columns = ", ".join(f"c{i} {type_}" for i, type_ in enumerate(VALUES))
    t, twin = (desk.make(columns, name=name) for name in ("t", "twin"))
    height = max(len(values) for values in VALUES.values())
    duck_rows, spark_rows = [], []
    for row in range(height + 1):
        pick = [values[row] if row < len(values) else ("NULL", "NULL") for values in VALUES.values()]
        duck_rows.append("(" + ", ".join(duck for duck, _ in pick) + ")")
        spark_rows.append("SELECT " + ", ".join(f"{value} AS c{i}" for i, (_, value) in enumerate(pick)))
    desk.duck.execute(f"INSERT INTO twin VALUES {', '.join(duck_rows)}")
    append(desk, spark.sql(" UNION ALL ".join(spark_rows)).coalesce(1))
    assert desk.stock("SELECT * FROM t EXCEPT ALL SELECT * FROM twin") == []
    assert desk.stock("SELECT * FROM twin EXCEPT ALL SELECT * FROM t") == []
    assert desk.rows(STATISTICS, t) == desk.rows(STATISTICS, twin)
    assert desk.rows(TABLE_STATISTICS, t) == desk.rows(TABLE_STATISTICS, twin)
    # and stock goes on from there: write, merge, read
    desk.duck.execute("INSERT INTO t SELECT * FROM twin")
    desk.duck.execute("CALL ducklake_merge_adjacent_files('lake')")
    assert desk.stock("SELECT count(*) FROM (SELECT DISTINCT * FROM t)") == [(height + 1,)]
    for i, values in enumerate(VALUES.values()):
        assert desk.stock(f"SELECT count(*) FROM t WHERE c{i} = {values[0][0]}") == [(2,)], list(VALUES)[i]


@pytest.mark.parametrize(
    ("value", "nan"),
    [("1.5D", False), ("double('NaN')", None), ("double('Infinity')", None), ("cast(null as double)", False)],
)
def test_float_bounds_only_without_nan(desk: Desk, spark: Any, value: str, nan: bool | None) -> None:
    t = desk.make("d DOUBLE")
    append(desk, spark.sql(f"SELECT {value} AS d UNION ALL SELECT 0.5D").coalesce(1))
    ((_, _, _, low, _, contains_nan),) = desk.rows(STATISTICS, t)
    assert contains_nan is nan
    assert (low is None) == (nan is None)
    assert (desk.rows(TABLE_STATISTICS, t) == []) == (nan is None)
    desk.duck.execute("INSERT INTO t VALUES (100)")
    expected = {"1.5D": 100.0, "cast(null as double)": 100.0}.get(value)
    found = desk.stock("SELECT max(d), min(d), count(*) FILTER (d > 50) FROM t")[0]
    assert found[1] == 0.5
    assert found[0] == expected if expected else found[0] != 100.0
    assert desk.stock("SELECT count(*) FROM t WHERE d > 50") == [(found[2],)]


@pytest.mark.parametrize(
    ("table", "select", "error"),
    [
        ("a INTEGER", "1L AS a", None),
        ("a INTEGER", "3000000000L AS a", WrongType),
        ("a INTEGER", "1.5D AS a", WrongType),
        ("a INTEGER", "'1' AS a", WrongType),
        ("a UTINYINT", "256 AS a", WrongType),
        ("a UTINYINT", "-1 AS a", WrongType),
        ("a UBIGINT", "18446744073709551616BD AS a", WrongType),
        ("a HUGEINT", "9007199254740992L AS a", None),
        ("a HUGEINT", "9007199254740993L AS a", WrongType),
        ("a DOUBLE", "1L AS a", WrongType),
        ("a FLOAT", "1.5D AS a", WrongType),
        ("a DECIMAL(4,1)", "1.25BD AS a", WrongType),
        ("a DECIMAL(4,1)", "12345.0BD AS a", WrongType),
        ("a DECIMAL(4,1)", "cast(NULL AS decimal(38,1)) AS a", None),
        ("a TIMESTAMP", "TIMESTAMP'2020-01-01 00:00:00' AS a", WrongType),
        ("a TIMESTAMP_S", "TIMESTAMP_NTZ'2020-01-01 00:00:00.5' AS a", WrongType),
        ("a JSON", "'' AS a", WrongType),
        ("a JSON[]", "array('1', '{a: 1}') AS a", WrongType),
        ("a JSON[]", "array('1', '[NaN,]', NULL) AS a", None),
        ("a UUID", "'not a uuid' AS a", WrongType),
        ("a UUID", "X'00' AS a", WrongType),
        ("a VARCHAR", "1 AS a", WrongType),
        ("a VARCHAR", "NULL AS a", None),
        ("a VARCHAR NOT NULL", "cast(NULL AS string) AS a", WrongType),
        ("a VARCHAR NOT NULL", "'x' AS A", None),
        ("a VARCHAR NOT NULL", "repeat('long', 1500) AS a", None),  # its statistics are too long to be written
        ("a VARCHAR NOT NULL", "if(id = 0, NULL, repeat('long', 1500)) AS a FROM range(2)", WrongType),
        ("a STRUCT(x INTEGER)", "named_struct('y', 1) AS a", UnknownColumn),
        ("a INTEGER[]", "array('x') AS a", WrongType),
        ("a INTEGER", "1 AS a, 2 AS b", UnknownColumn),
        ("a INTEGER, b INTEGER", "1 AS a", UnknownColumn),
        ("a INTERVAL", "1 AS a", UnsupportedType),
    ],
)
def test_what_fits(desk: Desk, spark: Any, table: str, select: str, error: type[LakemillError] | None) -> None:
    desk.make(table)
    before = desk.head()
    if error is None:
        append(desk, spark.sql(f"SELECT {select}"))
        assert desk.stock("SELECT count(*) FROM t") == [(1,)]
    else:
        with pytest.raises(error):
            append(desk, spark.sql(f"SELECT {select}"))
        assert desk.head() == before


JSON = r"""
{"a":1,"a":2} ¦ [1,] ¦ {"a":1 , } ¦ {"a":[1,],} ¦ [{},] ¦ [,] ¦ [1,,] ¦ {,} ¦ {"a":,} ¦ 1, ¦ ,1 ¦ {"a,]":",}"}
["\\",] ¦ [1,&vt;] ¦ NaN ¦ [nAn ,-inf] ¦ -Infinity ¦ +INF ¦ [+1] ¦ nan.5 ¦ 5.nan ¦ nan1 ¦ 1nan ¦ nan nan ¦ "\nan"
"\\nan" ¦ {"inf":"-inf,]"} ¦ {nan:1} ¦ {'a':1} ¦ ['a'] ¦ {a:1} ¦ {1:2} ¦ {"a"} ¦ {"a":} ¦ {"":1} ¦ "\'" ¦ "\/"
"\x" ¦ "\u12" ¦ "\u0000" ¦ "a&tab;b" ¦ "a&nl;b" ¦ "é😀" ¦ "\ud800" ¦ "\udc00\ud800" ¦ "\ud83d\ude00"
"\uD83D\uDE00\uDE00" ¦ "\\ud800" ¦ "\\\ud800" ¦ \ud83d\ude00 ¦ \\ ¦ 1e999 ¦ -1e-400 ¦ -0 ¦ 01 ¦ .5 ¦ 5. ¦ 1e
1.0E+2 ¦ 0x10 ¦ - ¦ --1 ¦ &long; ¦ [0.&long;] ¦ &deep; ¦ &empty; ¦ &sp;&sp; ¦ &sp;{"a":1}&sp; ¦ &tab;1&nl; ¦ &nbsp;1
&bom;1 ¦ 1 ¦ "x" ¦ x ¦ null ¦ nul ¦ true ¦ TRUE ¦ " ¦ 1 2 ¦ {} {} ¦ [1],[2] ¦ 1,2 ¦ 1],[2 ¦ 1] ¦ [1 ¦ {"a":1}}
{"a":1}x ¦ "a" "b" ¦ // c&nl;1 ¦ /*c*/1 ¦ [ ¦ 1;
"""
NAMED = {"empty": "", "sp": " ", "tab": "\t", "nl": "\n", "vt": "\v", "nbsp": "\u00a0", "bom": "\ufeff"}
NAMED |= {"long": "9" * 2000, "deep": "[" * 900 + "]" * 900}


def test_json_is_what_duckdb_takes_for_it(desk: Desk, spark: Any) -> None:
    texts = [word for line in JSON.strip().splitlines() for word in line.split(" ¦ ")]
    for name, value in NAMED.items():
        texts = [text.replace(f"&{name};", value) for text in texts]
    valid = {text: desk.duck.execute("SELECT json_valid(?)", [text]).fetchall()[0][0] for text in texts}
    frame = spark.createDataFrame([(text,) for text in texts], "a string")
    assert {row.a: row.fits for row in frame.select("a", is_json(F.col("a")).alias("fits")).collect()} == valid
    assert 30 < sum(valid.values()) < len(valid) - 30
    desk.make("a JSON")
    append(desk, frame.where(F.col("a").isin([text for text in texts if valid[text]])))
    assert desk.stock("SELECT count(*) FROM t WHERE (a->>'a') IS NULL OR true") == [(sum(valid.values()),)]


@pytest.mark.parametrize(("type_", "fits"), [("TIMESTAMP_MS", True), ("TIMESTAMP_S", False)])
def test_a_time_of_day_that_the_sessions_zone_does_not_have(desk: Desk, spark: Any, type_: str, fits: bool) -> None:
    desk.make(f"a {type_}")
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        append(desk, spark.sql("SELECT TIMESTAMP_NTZ'2024-03-31 02:30:00' AS a"))
        with nullcontext() if fits else pytest.raises(WrongType, match=r"02:30:00\.123"):
            append(desk, spark.sql("SELECT TIMESTAMP_NTZ'2024-03-31 02:30:00.123' AS a"))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    times = ["2024-03-31 02:30:00", "2024-03-31 02:30:00.123"]
    assert desk.stock("SELECT a::VARCHAR FROM t ORDER BY a") == [(time,) for time in times[: 1 + fits]]


V = "v INTEGER"
PARTITIONED = [
    ("k", f"k INTEGER, {V}", "cast(id % 3 AS int)"),
    ("k", f"k VARCHAR, {V}", "if(id = 1, '', if(id = 2, NULL, concat('a/b=c ü%', id)))"),
    ("year(k), month(k)", f"k TIMESTAMP, {V}", "TIMESTAMP_NTZ'2020-01-31 01:00:00' + make_dt_interval(30 * id)"),
    ("day(k), hour(k)", f"k TIMESTAMP, {V}", "TIMESTAMP_NTZ'2020-01-31 01:00:00' + make_dt_interval(0, 7 * id)"),
    ('year(k), "year"', 'k DATE, "year" INTEGER', "date_add(DATE'2020-12-25', cast(id AS int))"),
    ("k", f"k TIMESTAMPTZ, {V}", "TIMESTAMP'2020-01-31 01:00:00.5+00:00'"),
    ("k", f"k DECIMAL(9,2), {V}", "cast(id / 4 AS decimal(9,2))"),
    ("k", f"k UUID, {V}", "'8F14E45F-ceea-467f-a8d3-5d1f3e1a2b3c'"),
    *[
        ("bucket(5, k)", f"k {type_}, {V}", value)
        for type_, value in {
            "BIGINT": "id - 3",
            "INTEGER": "cast(id AS int)",
            "BOOLEAN": "id % 2 = 0",
            "DOUBLE": "id / 3 - 1",
            "DATE": "date_add(DATE'1960-12-25', cast(id AS int))",
            "TIMESTAMP": "TIMESTAMP_NTZ'1960-01-31 01:00:00' + make_dt_interval(0, 7 * id)",
            "TIMESTAMP_S": "TIMESTAMP_NTZ'1960-01-31 01:00:00' + make_dt_interval(0, 7 * id)",
            "TIMESTAMPTZ": "TIMESTAMP'1960-01-31 01:00:00+00:00' + make_dt_interval(0, 7 * id)",
            "VARCHAR": "if(id = 3, NULL, repeat('xé', id))",
            "BLOB": "cast(repeat('xyz', id) AS binary)",
            "UUID": "concat('8f14e45f-ceea-467f-a8d3-5d1f3e1a2b3', id)",
            "UINTEGER": "id",
        }.items()
    ],
]


@pytest.mark.parametrize(("by", "columns", "value"), PARTITIONED)
def test_partitions_are_as_if_duckdb_had_written_them(
    desk: Desk, spark: Any, by: str, columns: str, value: str
) -> None:
    t, twin = (desk.make(columns, by=by, name=name) for name in ("t", "twin"))
    second = "year" if '"year"' in columns else "v"
    append(desk, spark.range(8).selectExpr(f"{value} AS k", f"cast(id AS int) AS {second}"))
    desk.duck.execute("INSERT INTO twin SELECT * FROM t")
    for query in (
        "SELECT DISTINCT regexp_replace(path, '[^/]*$', '') FROM ducklake_data_file WHERE table_id = %s ORDER BY 1",
        "SELECT DISTINCT partition_key_index, partition_value FROM ducklake_file_partition_value WHERE table_id = %s"
        " ORDER BY 1, 2",
    ):
        assert desk.rows(query, t) == desk.rows(query, twin)
    desk.duck.execute("INSERT INTO t SELECT * FROM twin")
    desk.duck.execute("CALL ducklake_merge_adjacent_files('lake')")
    assert desk.stock("SELECT count(*) FROM t") == [(16,)]
    assert desk.stock("SELECT * FROM t EXCEPT SELECT * FROM twin") == []


def test_a_partition_key_that_spark_spells_otherwise_is_refused(desk: Desk, spark: Any) -> None:
    desk.make("k DOUBLE", by="k")
    with pytest.raises(UnsupportedType, match="identity of 'k'"):
        append(desk, spark.sql("SELECT 1e20D AS k"))


def test_the_lakes_options_hold(desk: Desk, spark: Any) -> None:
    desk.make("a BIGINT")
    for call in (
        "'parquet_compression', 'zstd'",
        "'parquet_compression', 'gzip', schema => 'main'",
        "'parquet_compression', 'lz4', table_name => 't'",
        "'parquet_row_group_size', 2048",
        "'target_file_size', '2KB'",
    ):
        desk.duck.execute(f"CALL lake.set_option({call})")
    append(desk, spark.range(0, 5000, 1, 1).selectExpr("id AS a"))
    found = desk.duck.execute(
        "SELECT compression, max(row_group_num_rows) FROM parquet_metadata(?) GROUP BY 1", [desk.data_files()[0][1]]
    ).fetchall()
    assert found == [("LZ4_RAW", 2048)]
    append(desk, spark.range(0, 5000, 1, 1).selectExpr("id AS a"))
    assert len(desk.data_files()) > 2, "the second write knows how large a row is"


def test_row_ids_can_be_kept(desk: Desk, spark: Any) -> None:
    desk.make("a BIGINT, s STRUCT(x INTEGER)")
    frame = spark.sql("SELECT 5L AS a, named_struct('x', 1) AS s, 77L AS rid UNION ALL SELECT 6L, NULL, 78L")
    append(desk, frame, row_ids="rid")
    assert desk.stock("SELECT rowid, a, s.x FROM t ORDER BY 1") == [(77, 5, 1), (78, 6, None)]
    desk.duck.execute("CALL ducklake_merge_adjacent_files('lake')")
    assert desk.stock("SELECT rowid FROM t ORDER BY 1") == [(77,), (78,)]


def test_an_empty_frame_leaves_no_file(desk: Desk, spark: Any) -> None:
    desk.make("a BIGINT")
    target = desk.target()
    staged = write_files(spark.range(0).selectExpr("id AS a"), target, desk.storage)
    assert staged.rows == 0
    assert new_files(desk.duck, staged, target) == ()


@pytest.mark.parametrize("by_driver", [True, False])
def test_delete_files(desk: Desk, spark: Any, by_driver: bool) -> None:
    desk.make("a BIGINT")
    for start in (0, 100):
        desk.duck.execute(f"INSERT INTO t SELECT range FROM range({start}, {start + 100})")
    files = {id_: path for id_, path, _ in desk.data_files()}
    before = desk.head()
    taken = [(id_, pos) for id_ in files for pos in (99, 3, 3, 0)]
    positions = spark.createDataFrame(taken, "__file_id bigint, __position bigint")
    staged = write_deletes(positions, desk.target(), files, desk.storage, driver_positions=10_000 if by_driver else 1)
    desk.publish(DeletePositions(desk.table().id, new_deletes(desk.duck, staged, {})))
    kept = [(i,) for i in range(200) if i % 100 not in (0, 3, 99)]
    assert desk.stock("SELECT a FROM t ORDER BY a") == kept
    assert desk.stock(f"SELECT count(*) FROM t AT (VERSION => {before})") == [(200,)]
    desk.duck.execute("DELETE FROM t WHERE a = 5")
    assert desk.stock("SELECT a FROM t ORDER BY a") == [row for row in kept if row != (5,)]


CONNECT = """
import sys, uuid
from pathlib import Path
from lakemill.core.commit import AddFiles, DeletePositions
from lakemill.lake.footer import new_deletes, new_files
from lakemill.settings import Settings
from lakemill.spark import session
from lakemill.spark.deletes import write_deletes
from lakemill.spark.outputs import write_files
from tests.conftest import TestLake
from tests.publishing import one_desk

settings = Settings.load(Path(sys.argv[1]), {"lake.postgres": sys.argv[2], "spark.remote": "local[2]"})
spark = session.start(settings)
assert "connect" in type(spark).__module__
with one_desk(TestLake(settings, sys.argv[2], settings.data_path)) as desk:
    table_id = desk.make("id BIGINT, u UUID, s STRUCT(a INTEGER, b VARCHAR), l INTEGER[], k VARCHAR", by="k")
    frame = spark.sql("SELECT id, '8f14e45f-ceea-467f-a8d3-5d1f3e1a2b3c' AS u, array(1, NULL) AS l,"
                      " named_struct('b', 'x', 'a', cast(id AS int)) AS s, if(id % 2 = 0, 'e', 'o') AS k"
                      " FROM range(10)")
    target = desk.target()
    staged = write_files(frame, target, desk.storage)
    desk.publish(AddFiles(table_id, new_files(desk.duck, staged, target)), requires=target.requirements)
    files = {id_: path for id_, path, _ in desk.data_files()}
    positions = spark.createDataFrame([(id_, 0) for id_ in files], "__file_id bigint, __position bigint")
    for limit in (10, 0):
        staged = write_deletes(positions, target, files, desk.storage, driver_positions=limit)
    desk.publish(DeletePositions(table_id, new_deletes(desk.duck, staged, {})))
    print(desk.stock("SELECT count(*), sum(s.a), min(l), count(u) FROM t"))
session.stop()
"""


@pytest.mark.slow
def test_the_same_through_spark_connect(postgres: str, tmp_path: Path) -> None:
    """In a process of its own: one has only one session."""
    with one_lake(postgres, tmp_path / "connect") as lake:
        told = subprocess.run(
            [sys.executable, "-c", CONNECT, str(lake.settings.root), lake.dsn],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        )
    assert told.stdout.splitlines()[-1].startswith("[(8, ")
    assert told.stdout.splitlines()[-1].endswith("[1, None], 8)]")
