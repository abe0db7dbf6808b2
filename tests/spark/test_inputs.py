"""Spark reads any snapshot, and any delta, as stock DuckDB saw it when it was committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import lakemill
from lakemill.errors import BadArgument, CatalogInconsistent, DeleteInDoubt, UnsupportedLake, UnsupportedType
from lakemill.lake.scan import Recorded
from lakemill.spark import inputs, positions
from lakemill.spark.paths import reader_path, spark_uri
from tests.conftest import MakeLake, make_lakes
from tests.story import Story

pytestmark = pytest.mark.spark
# ruff: noqa: E501


@pytest.fixture(autouse=True)
def _session(spark: Any) -> None:
    """All of these use the one session."""


@pytest.fixture
def begin(make_lake: MakeLake) -> Iterator[Callable[..., Story]]:
    """Begins a story on a lake made with these options."""
    with ExitStack() as opened:
        yield lambda name="main.t", **options: opened.enter_context(Story(make_lake(**options), name))


@pytest.fixture
def story(begin: Callable[..., Story]) -> Story:
    return begin()


def test_deletes_updates_and_time_travel(story: Story) -> None:
    story.tell(
        "CREATE TABLE t (id INT, v VARCHAR)",
        "INSERT INTO t SELECT i, 'v' || i FROM range(100) r(i)",
        "DELETE FROM t WHERE id < 3",
        "DELETE FROM t WHERE id IN (10, 11)",
        "UPDATE t SET v = 'u' WHERE id BETWEEN 20 AND 30",
        "INSERT INTO t SELECT i, NULL FROM range(50, 60) r(i)",
        "DELETE FROM t",
        "INSERT INTO t VALUES (1, 'again'), (1, 'again')",
    )
    story.check()


@pytest.mark.parametrize("case_files", [1, 32])
@pytest.mark.parametrize("crc_bits", [32, 1])
def test_deletes_in_many_files(story: Story, monkeypatch: pytest.MonkeyPatch, case_files: int, crc_bits: int) -> None:
    """Few files and many find their words in two ways; files with one checksum are read apart."""
    sums = positions.checksum
    for module in (positions, inputs):
        monkeypatch.setattr(module, "CASE_FILES", case_files)
        if crc_bits == 1:
            monkeypatch.setattr(module, "checksum", lambda spark, path: sums(spark, path) & 1)
            monkeypatch.setattr(module, "CHECKSUM_OF_ROW", "crc32(_metadata.file_path) & 1")
    story.tell(
        "CREATE TABLE t (id INT, v INT)",
        *(f"INSERT INTO t SELECT i, {file} FROM range({60 + file * 2}) r(i)" for file in range(3)),
        "DELETE FROM t WHERE (id + v) % 7 = 0",
        "DELETE FROM t WHERE id >= 60 OR (id = 1 AND v < 3)",
    )
    story.check()


@pytest.mark.parametrize("change", ["DELETE FROM t WHERE id IN (3, 4)", "UPDATE t SET v = v + 1 WHERE id IN (3, 4)"])
def test_a_second_delete_that_commits_after_another_commit(story: Story, change: str) -> None:
    """Traps 1: the stamps of the second delete are too small."""
    story.tell(
        "CREATE TABLE t (id INT, v INT)",
        "CREATE TABLE o (id INT)",
        "INSERT INTO t SELECT i, 0 FROM range(10) r(i)",
        "DELETE FROM t WHERE id < 2",
    )
    late = story.lake.duck()
    late.execute("BEGIN")
    late.execute(change)
    story.tell("INSERT INTO o VALUES (1)", "INSERT INTO o VALUES (2)")
    late.execute("COMMIT")
    story.capture()
    story.tell("DELETE FROM t WHERE id = 7", "DELETE FROM t WHERE id = 8")
    story.check()


def test_a_delete_whose_commit_nobody_knows_is_refused_only_where_it_matters(story: Story) -> None:
    """Traps 1: two deletes of the table between a stamp and the next; the labels can't tell which it was."""
    story.tell(
        "CREATE TABLE t (id INT, v INT)",
        "INSERT INTO t SELECT i, 0 FROM range(10) r(i)",
        "INSERT INTO t SELECT i, 0 FROM range(10, 20) r(i)",
        "DELETE FROM t WHERE id = 0",
    )
    late = story.lake.duck()
    late.execute("BEGIN")
    late.execute("DELETE FROM t WHERE id IN (1, 2)")
    between = story.tell("DELETE FROM t WHERE id = 15")
    late.execute("COMMIT")
    story.capture()
    story.tell("DELETE FROM t WHERE id = 9")
    with pytest.raises(DeleteInDoubt):
        story.table.scan(between)
    with pytest.raises(DeleteInDoubt):
        story.table.delta(between, story.head)
    del story.truth[between]
    story.check()


def test_columns_come_and_go(story: Story) -> None:
    story.tell(
        "CREATE TABLE t (id INT, a INT, f FLOAT, d DECIMAL(4, 2), s STRUCT(x INT, y VARCHAR))",
        "INSERT INTO t SELECT i, i, i / 2, i, {'x': i, 'y': 'y' || i} FROM range(5) r(i)",
    )
    story.tell(
        "ALTER TABLE t ADD COLUMN b VARCHAR DEFAULT 'it''s'",
        "ALTER TABLE t RENAME COLUMN a TO c",
        "INSERT INTO t SELECT i, i, i, i, NULL, 'b' FROM range(5, 8) r(i)",
        "ALTER TABLE t DROP COLUMN c",
        "ALTER TABLE t ADD COLUMN c VARCHAR",
        "ALTER TABLE t ADD COLUMN a BIGINT DEFAULT 7",
        "ALTER TABLE t ALTER COLUMN id TYPE BIGINT",
        "ALTER TABLE t ALTER COLUMN f TYPE DOUBLE",
        "ALTER TABLE t ALTER COLUMN d TYPE DECIMAL(10, 2)",
        "ALTER TABLE t ADD COLUMN s.z INT",
        "ALTER TABLE t RENAME COLUMN s.x TO xx",
        "INSERT INTO t (id, f, d, s) SELECT i * 10000000000, 0.1, 99999.25, {'xx': 1, 'y': 'n', 'z': 3} FROM range(3) r(i)",
        "ALTER TABLE t DROP COLUMN s.y",
        "DELETE FROM t WHERE id = 1",
    )
    story.check_scans()
    # a delta speaks the columns of its end, so only ends with the same columns compare as text
    story.truth = {at: rows for at, rows in story.truth.items() if at >= story.head - 1}
    story.check()


def test_a_nested_field_that_has_the_old_name_of_another(story: Story) -> None:
    story.tell(
        "CREATE TABLE t (id INT, s STRUCT(x INT, y VARCHAR, u UUID), l STRUCT(x INT)[], p STRUCT(q STRUCT(x INT)))",
        "INSERT INTO t SELECT i, {'x': i, 'y': 'y', 'u': uuid()}, [{'x': i}], {'q': {'x': i}} FROM range(5) r(i)",
        "INSERT INTO t VALUES (9, NULL, NULL, NULL)",
    )
    story.tell(
        "ALTER TABLE t RENAME COLUMN s.x TO a",
        "ALTER TABLE t RENAME COLUMN s.y TO x",
        "ALTER TABLE t ADD COLUMN s.y DOUBLE",
        "ALTER TABLE t RENAME COLUMN p.q.x TO y",
        "ALTER TABLE t ADD COLUMN p.q.x VARCHAR",
        "INSERT INTO t SELECT 7, {'a': 1, 'x': 'x', 'u': uuid(), 'y': 0.5}, [], {'q': {'y': 1, 'x': 'x'}}",
    )
    story.check_scans()


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("UINTEGER", "DOUBLE", "4000000000"),
        ("DECIMAL(9, 2)", "DOUBLE", "1.25"),
        ("BOOLEAN", "INTEGER", "true"),
        ("BIGINT", "DOUBLE", "5"),
        ("INTEGER", "FLOAT", "5"),
        ("BIGINT", "HUGEINT", "5"),
        ("DATE", "TIMESTAMP", "DATE '2024-01-01'"),
        ("TIMESTAMP_S", "TIMESTAMP_MS", "'2024-01-01 00:00:00'"),
        ("DATE", "TIMESTAMPTZ", "DATE '2024-01-01'"),
        ("UTINYINT", "INTEGER", "200"),
        ("INTEGER", "DECIMAL(12, 2)", "5"),
    ],
)
def test_a_column_whose_type_was_widened(story: Story, old: str, new: str, value: str, tmp_path: Path) -> None:
    added = tmp_path / "added.parquet"
    story.main.execute(f"COPY (SELECT {{'id': 0}} AS nested, ({value})::{old} AS c, 4 AS id) TO '{added}'")
    story.tell(
        f"CREATE TABLE t (id INT, c {old})",
        f"INSERT INTO t VALUES (1, {value}), (2, NULL)",
        f"CALL ducklake_add_data_files('lake', 't', '{added}', ignore_extra_columns => true)",
    )
    story.truth.clear()
    story.tell(
        f"ALTER TABLE t ALTER COLUMN c TYPE {new}", f"INSERT INTO t VALUES (3, {value})", "DELETE FROM t WHERE id = 2"
    )
    story.check()
    if "TIME" in new:
        assert story.table.scan(where="c = '2024-01-01 00:00:00'").count() == 3


TYPES = """id INT, bo BOOLEAN, i8 TINYINT, i16 SMALLINT, i64 BIGINT, h HUGEINT, u8 UTINYINT, u16 USMALLINT, u32 UINTEGER,
 u64 UBIGINT, f FLOAT, d DOUBLE, de DECIMAL(38, 3), da DATE, ti TIME, ts TIMESTAMP, tss TIMESTAMP_S, tms TIMESTAMP_MS,
 tz TIMESTAMPTZ, s VARCHAR, j JSON, bl BLOB, u UUID, st STRUCT(a INT, u UUID), l INT[], ll VARCHAR[][], lu UUID[],
 m MAP(VARCHAR, INT), ls STRUCT(a INT, b VARCHAR)[], mh MAP(INT, HUGEINT)"""
VALUES = """(1, true, -128, -32768, -9223372036854775808, 12345678901234567::HUGEINT, 255, 65535, 4294967295,
 18446744073709551615, 1.5, 0.1, 12345.678, DATE '0044-03-15', TIME '23:59:59.999999', TIMESTAMP '1970-01-01 00:00:00.000001',
 TIMESTAMP '2026-01-01 00:00:01', TIMESTAMP '2026-01-01 00:00:01.5', TIMESTAMPTZ '2026-06-01 12:00:00+02', 'näme%"\\', '{"a": 1}',
 '\\x00\\xFFabc'::BLOB, '01234567-89ab-cdef-0123-456789abcdef', {'a': 1, 'u': '01234567-89ab-cdef-0123-456789abcdef'},
 [1, NULL, 3], [['a'], [], NULL], ['01234567-89ab-cdef-0123-456789abcdef', NULL], MAP {'k': 1, 'l': NULL},
 [{'a': 1, 'b': 'x'}, NULL], MAP {1: 5::HUGEINT}),
 (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
 NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
 (3, false, 0, 0, 0, 0, 0, 0, 0, 0, 'nan', 'inf', 0, DATE '9999-12-31', TIME '00:00:00', TIMESTAMP '0001-01-01', TIMESTAMP '1900-01-01',
 TIMESTAMP '1900-01-01', TIMESTAMPTZ '1900-01-01', '', '[]', '', '00000000-0000-0000-0000-000000000000', {'a': NULL, 'u': NULL},
 [], [], [], MAP {}, [], MAP {})"""


@pytest.mark.parametrize("inline", [0, 100])
def test_every_type(begin: Callable[..., Story], inline: int) -> None:
    story = begin(inline=inline)
    # stock DuckDB itself fails to read an inlined UUID inside a struct
    types = TYPES.replace("u UUID), l", "u VARCHAR), l") if inline else TYPES
    story.tell(f"CREATE TABLE t ({types})", f"INSERT INTO t VALUES {VALUES}", "DELETE FROM t WHERE id = 2")
    story.check()


def test_a_hugeint_of_more_digits_than_a_double_prints(story: Story) -> None:
    numbers = [2**53, -(2**63), 2**64, 2**100, -(2**100) - 2**60, 2**126, -764946409127032651, -(2**53) - 2, 3 - 2**63]
    values = ", ".join(f"({i}, {n}::HUGEINT)" for i, n in enumerate(numbers))
    story.tell("CREATE TABLE t (id INT, h HUGEINT)", f"INSERT INTO t VALUES {values}", "DELETE FROM t WHERE id = 0")
    story.check()


@pytest.mark.parametrize("type_", ["TIMESTAMP_NS", "TIMETZ", "INTERVAL", "VARIANT"])
def test_a_type_that_spark_cannot_hold_is_refused_by_name(story: Story, type_: str) -> None:
    story.main.execute(f"CREATE TABLE t (id INT, odd {type_})")
    with pytest.raises(UnsupportedType, match="'odd'"):
        story.table.scan()


def test_inlined_rows_and_deletes_before_and_after_a_flush(begin: Callable[..., Story]) -> None:
    story = begin(inline=20)
    story.tell(
        "CREATE TABLE t (id INT, s VARCHAR)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, NULL)",
        "INSERT INTO t SELECT i, 'f' || i FROM range(100, 200) r(i)",
        "DELETE FROM t WHERE id IN (1, 105)",
        "UPDATE t SET s = 'u' WHERE id IN (2, 110)",
        "DELETE FROM t WHERE id BETWEEN 120 AND 160",
        "DELETE FROM t WHERE id = 170",
        "INSERT INTO t VALUES (4, 'late')",
    )
    story.check()
    story.tell("CALL ducklake_flush_inlined_data('lake')")
    story.check()
    story.tell("DELETE FROM t WHERE id = 111", "DELETE FROM t WHERE id BETWEEN 112 AND 119 OR id > 175")
    story.check()


def test_inlined_rows_of_older_columns(begin: Callable[..., Story]) -> None:
    story = begin(inline=20)
    story.tell(
        "CREATE TABLE t (id INT, s STRUCT(a INT, b VARCHAR), gone INT)",
        "INSERT INTO t VALUES (1, {'a': 1, 'b': 'x'}, 1), (2, NULL, 2)",
        "ALTER TABLE t ADD COLUMN n INT DEFAULT 5",
        "ALTER TABLE t DROP COLUMN gone",
        "ALTER TABLE t RENAME COLUMN id TO key",
        "ALTER TABLE t ALTER COLUMN key TYPE BIGINT",
        "INSERT INTO t VALUES (30000000000, {'a': 2, 'b': 'y'}, 6)",
    )
    story.check_scans()


def test_merged_rewritten_and_expired(story: Story) -> None:
    story.tell(
        "CREATE TABLE t (id INT, v INT)",
        *(f"INSERT INTO t SELECT i, {k} FROM range({k * 10}, {k * 10 + 10}) r(i)" for k in range(4)),
        "UPDATE t SET v = -1 WHERE id % 7 = 0",
        "INSERT INTO t VALUES (99, 99)",
        "CALL ducklake_merge_adjacent_files('lake')",
        "DELETE FROM t WHERE id % 5 = 0",
        "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.0)",
        "INSERT INTO t VALUES (100, 100)",
    )
    story.check()
    first, second, *_ = sorted(story.truth)
    story.main.execute(f"CALL ducklake_expire_snapshots('lake', versions => [{first}, {second}])")
    for gone in (first, second):
        del story.truth[gone]
    story.check()


def test_partitions_and_added_files(story: Story, tmp_path: Path) -> None:
    story.tell(
        "CREATE TABLE t (id BIGINT, p BIGINT, s VARCHAR)",
        "ALTER TABLE t SET PARTITIONED BY (p)",
        "INSERT INTO t SELECT i, i % 3, 'x' FROM range(30) r(i)",
        "DELETE FROM t WHERE id IN (0, 1, 2, 3)",
        "ALTER TABLE t RESET PARTITIONED BY",
    )
    out = tmp_path / "ex port%1"
    story.main.execute(
        f"COPY (SELECT i AS id, i % 2 AS p, 'added' AS s FROM range(100, 110) r(i)) TO '{out}' (FORMAT parquet, PARTITION_BY (p))"
    )
    files = sorted(str(file) for file in out.rglob("*.parquet"))
    for file in [*files, files[0]]:  # the same path twice
        story.tell(f"CALL ducklake_add_data_files('lake', 't', '{file}', hive_partitioning => true)")
    story.main.execute("COPY (SELECT 's' AS s, 7::BIGINT AS id) TO '{}'".format(tmp_path / "fewer.parquet"))
    story.tell(
        f"CALL ducklake_add_data_files('lake', 't', '{tmp_path}/fewer.parquet', allow_missing => true)",
        "DELETE FROM t WHERE rowid = (SELECT min(rowid) FROM t WHERE id = 100)",
        "DELETE FROM t WHERE id IN (101, 102)",
        "UPDATE t SET s = 'u' WHERE id = 7 OR id = 5",
    )
    story.check()


def test_values_that_only_folders_hold(story: Story, tmp_path: Path) -> None:
    """DuckDB writes the text NULL as it is and reads it as no value; an empty number is none either."""
    story.tell("CREATE TABLE t (id BIGINT, s VARCHAR, n INT, d DATE)")
    folders = [
        "s=NULL/n=null/d=Null",
        "s=__HIVE_DEFAULT_PARTITION__/n=__HIVE_DEFAULT_PARTITION__/d=__HIVE_DEFAULT_PARTITION__",
        "s=/n=/d=",
        "s=%4EULL/n=7/d=2024-02-29",
        "s=__hive_default_partition__/n=8/d=1582-10-10",
        "s=a=b/S=c/s=d%2F%20%/s=e/n=9/n=10/d=2024-01-01",
        "s=f\\g/n=11/d=2024-01-01",
    ]
    for number, folder in enumerate(folders):
        file = tmp_path / str(number) / folder / "s=x.parquet"
        file.parent.mkdir(parents=True)
        story.main.execute(f"COPY (SELECT {number}::BIGINT AS id) TO '{file}' (FORMAT parquet)")
        story.tell(f"CALL ducklake_add_data_files('lake', 't', '{file}', hive_partitioning => true)")
    story.check()


def test_odd_names(begin: Callable[..., Story]) -> None:
    story = begin("ma in.t%20 *?", flags={"lake.data_path": "da ta%20{x}[1]é"})
    story.main.execute('CREATE SCHEMA "ma in"')
    story.tell(
        'CREATE TABLE "ma in"."t%20 *?" ("a b" INT, "c`d" VARCHAR, "e.f" INT, "_metadata" INT)',
        'INSERT INTO "ma in"."t%20 *?" SELECT i, \'x\', i, i FROM range(10) r(i)',
        'ALTER TABLE "ma in"."t%20 *?" SET PARTITIONED BY ("c`d")',
        'INSERT INTO "ma in"."t%20 *?" SELECT i, \'a/b %=é\', i, i FROM range(10) r(i)',
        'DELETE FROM "ma in"."t%20 *?" WHERE "a b" = 3',
        'DELETE FROM "ma in"."t%20 *?" WHERE "a b" = 4',
    )
    story.check()


@pytest.mark.parametrize(
    "name", ["a b", "a%20b", "k=é", "x[1]", "y{2}", "z*?", "q#r", "c:d", "+&=,;'\"", "~^`|", "\\", "　"]
)
def test_paths_as_spark_spells_them(spark: Any, tmp_path: Path, name: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = tmp_path / name / "f.parquet"
    file.parent.mkdir()
    pq.write_table(pa.table({"i": [1]}), file)
    row = spark.read.schema("i long").parquet(reader_path(str(file))).select("_metadata.file_path").first()
    assert row[0] == spark_uri(spark, str(file))


# ---------------------------------------------------------------- refusals
def test_what_cannot_be_read_exactly_is_refused(story: Story) -> None:
    story.tell("CREATE TABLE t (i INT)", "INSERT INTO t SELECT i FROM range(10) r(i)", "DELETE FROM t WHERE i = 1")
    conn = story.opened.conn
    for change, back in [
        ("UPDATE ducklake_data_file SET encryption_key = 'x'", "UPDATE ducklake_data_file SET encryption_key = NULL"),
        ("UPDATE ducklake_delete_file SET format = 'puffin'", "UPDATE ducklake_delete_file SET format = 'parquet'"),
        ("UPDATE ducklake_data_file SET path = '_' || path", "UPDATE ducklake_data_file SET path = substr(path, 2)"),
        (
            "UPDATE ducklake_metadata SET value = '1.1' WHERE key = 'version'",
            "UPDATE ducklake_metadata SET value = '1.0' WHERE key = 'version'",
        ),
    ]:
        conn.execute(change)
        with pytest.raises(UnsupportedLake) as caught:
            story.table.scan()
        assert caught.value.remedy
        conn.execute(back)
    conn.execute(
        "INSERT INTO ducklake_delete_file SELECT delete_file_id + 100, table_id, begin_snapshot, end_snapshot, data_file_id,"
        " path, path_is_relative, format, delete_count, file_size_bytes, footer_size, encryption_key, partial_max FROM ducklake_delete_file"
    )
    with pytest.raises(CatalogInconsistent):
        story.table.scan()


@pytest.mark.parametrize(
    ("code", "statements", "recorded"),
    [
        ("TABLE_REPLACED", ["CREATE OR REPLACE TABLE t (i INT)"], None),
        ("COLUMNS_CHANGED", ["ALTER TABLE t ADD COLUMN n INT"], "columns"),
        ("ROW_COUNT_DIFFERS", ["INSERT INTO t VALUES (5)"], "rows"),
        (
            "SNAPSHOT_GONE",
            ["INSERT INTO t VALUES (5)", "CALL ducklake_expire_snapshots('lake', versions => [{a}])"],
            None,
        ),
    ],
)
def test_a_delta_fails_closed(story: Story, code: str, statements: list[str], recorded: str | None) -> None:
    a = story.tell("CREATE TABLE t (i INT)", "INSERT INTO t SELECT i FROM range(10) r(i)")
    version = story.table.describe().columns_version
    for statement in statements:
        story.main.execute(statement.format(a=a))
    known = {"columns": Recorded(columns_version=version), "rows": Recorded(rows=11)}.get(recorded or "")
    with pytest.raises(lakemill.errors.HistoryError) as caught:
        story.table.delta(a, recorded=known)
    assert caught.value.code == code
    assert caught.value.remedy


def test_a_delta_goes_forward(story: Story) -> None:
    head = story.tell("CREATE TABLE t (i INT)", "INSERT INTO t VALUES (1)")
    with pytest.raises(BadArgument):
        story.table.delta(head, head - 1)


def test_a_delta_opens_only_what_changed(story: Story) -> None:
    story.tell("CREATE TABLE t (id INT)", *(f"INSERT INTO t SELECT i FROM range({k}00, {k}50) r(i)" for k in range(10)))
    a = story.head
    b = story.tell("INSERT INTO t VALUES (-1), (-2)", "DELETE FROM t WHERE id = 301")
    plan = story.table.plan_delta(a, b)
    assert (len(plan.files), plan.rows_to_read, len(plan.deletes)) == (2, 52, 1)
    assert plan.bytes_to_read > 0
    nothing = story.table.plan_delta(b, b)
    assert nothing.empty
    other = story.tell("CREATE TABLE o (id INT)")
    assert story.table.plan_delta(b, other).empty


# ---------------------------------------------------------------- pruning
CONDITIONS = [
    ("id = 305", 1),
    ("id < 100", 1),
    ("id >= 850 AND s = 'x9'", 1),
    ("id BETWEEN 149 AND 200", 2),
    ("id IN (5, 905, 5000)", 2),
    ("s = 'x3'", 1),
    ("s > 'x8'", 1),
    ("day < DATE '2026-01-03'", 2),
    ("x > 8.5", 1),
    ("r > 0.1", 9),
    ("n IS NOT NULL", 5),
    ("n IS NULL", 5),
    ("id + 0 = 305", 10),
    ("id = 305 OR id = 1", 10),
]


@pytest.mark.parametrize(("where", "opened"), CONDITIONS)
def test_pruning_opens_few_files_and_loses_no_row(pruned: Story, where: str, opened: int) -> None:
    plan = pruned.table.plan_scan(where=where)
    assert len(plan.files) == opened
    assert plan.pruned == 10 - opened
    assert pruned.table.frame(plan, where).count() == pruned.table.scan().where(where).count()


@pytest.fixture(scope="module")
def pruned(postgres: str, tmp_path_factory: pytest.TempPathFactory, spark_session: Any) -> Any:
    with ExitStack() as opened:
        make = opened.enter_context(make_lakes(postgres, tmp_path_factory.mktemp("pruned")))
        story = opened.enter_context(Story(make()))
        story.main.execute("CREATE TABLE t (id INT, s VARCHAR, day DATE, x DOUBLE, n INT, r REAL)")
        for k in range(10):
            story.main.execute(
                f"INSERT INTO t SELECT i, 'x{k}', DATE '2026-01-01' + {k}, {k}, CASE WHEN {k} % 2 = 0 THEN i END, {k} / 10.0"
                f" FROM range({k}00, {k}50) r(i)"
            )
        yield story
