"""Footers that we read ourselves say what DuckDB says, word for word, or leave it to DuckDB."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lakemill.core.schema import Column
from lakemill.lake import duck, parquet
from lakemill.lake.footer import Footer, parquet_leaves, read_footers
from lakemill.lake.thrift import decode
from lakemill.settings import Settings

# DuckLake type, Arrow type (as Spark stores it), values
TYPES: list[tuple[str, pa.DataType, st.SearchStrategy[Any]]] = [
    ("boolean", pa.bool_(), st.booleans()),
    ("int8", pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    ("int16", pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    ("int32", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    ("int64", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    ("uint64", pa.decimal128(20, 0), st.integers(0, 2**64 - 1).map(Decimal)),
    ("float32", pa.float32(), st.floats(width=32)),
    ("float64", pa.float64(), st.floats()),
    ("int128", pa.float64(), st.integers(-(2**53), 2**53).map(float)),
    ("decimal(7,3)", pa.decimal128(7, 3), st.decimals(-9999, 9999, places=3)),
    ("decimal(18,2)", pa.decimal128(18, 2), st.decimals(-(10**15), 10**15, places=2)),
    ("decimal(38,10)", pa.decimal128(38, 10), st.decimals(-(10**9), 10**9, places=10)),
    ("date", pa.date32(), st.dates()),
    ("time", pa.time64("us"), st.times()),
    ("timestamp", pa.timestamp("us"), st.datetimes()),
    ("timestamp_s", pa.timestamp("us"), st.datetimes().map(lambda t: t.replace(microsecond=0))),
    ("timestamptz", pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    ("varchar", pa.string(), st.text(max_size=300)),
    ("json", pa.string(), st.sampled_from(["{}", '{"ä": [1, null]}', "\\x41", "'"])),
    ("blob", pa.binary(), st.binary(max_size=300)),
    ("uuid", pa.binary(), st.binary(min_size=16, max_size=16)),
]
COLUMNS = tuple(Column(index, f"c{index}, {type_}", type_) for index, (type_, _, _) in enumerate(TYPES, 1))
ROW = st.tuples(*(st.none() | values for _, _, values in TYPES))
EARLY, LATE = datetime(1969, 12, 31, 23, 0, 0, 500000), datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duck.Connection]:
    with duck.connect(Settings(root=tmp_path_factory.mktemp("parquet")), "", attach=False) as found:
        yield found


def through_duckdb(connection: duck.Connection, paths: list[str], columns: tuple[Column, ...]) -> list[Footer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "BIG", 0)
        assert parquet.read_local(paths, columns) is None
        return read_footers(connection, paths, columns, check_ids=True)


def by_ourselves(connection: duck.Connection, paths: list[str], columns: tuple[Column, ...]) -> list[Footer]:
    leaves = [leaf for column in columns for _, leaf in parquet_leaves(column)]
    assert parquet.read_local(paths, leaves) is not None, "DuckDB is not asked"
    return read_footers(connection, paths, columns, check_ids=True)


def write(path: Path, columns: tuple[Column, ...], types: list[pa.DataType], rows: Any, **options: Any) -> str:
    fields = [
        pa.field(column.name, type_, metadata={"PARQUET:field_id": str(column.id)})
        for column, type_ in zip(columns, types, strict=True)
    ]
    values = list(zip(*rows, strict=True)) or [()] * len(fields)
    arrays = [pa.array(found, field.type) for found, field in zip(values, fields, strict=True)]
    pq.write_table(pa.table(arrays, schema=pa.schema(fields)), path, store_decimal_as_integer=True, **options)
    return str(path)


# ---------------------------------------------------------------- the same as DuckDB
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(rows=st.lists(ROW, max_size=6), groups=st.integers(1, 3))
def test_every_type_word_for_word(connection: duck.Connection, tmp_path: Path, rows: Any, groups: int) -> None:
    path = write(
        tmp_path / f"{uuid4()}.parquet", COLUMNS, [type_ for _, type_, _ in TYPES], rows, row_group_size=groups
    )
    assert by_ourselves(connection, [path], COLUMNS) == through_duckdb(connection, [path], COLUMNS)


@pytest.mark.parametrize(
    ("type_", "arrow", "values", "low", "high"),
    [
        ("float64", pa.float64(), [1e16, -0.0, 5e-324], "-0.0", "1e+16"),
        ("float64", pa.float64(), [math.inf, 1.0], None, None),
        ("float32", pa.float32(), [0.1, 16777216.0], "0.1", "16777216.0"),
        ("float32", pa.float32(), [-2.66e-44, 3.4025e38], "-2.7e-44", "3.4025e+38"),
        ("decimal(7,3)", pa.decimal128(7, 3), [Decimal("-0.005"), Decimal("12.5")], "-0.005", "12.500"),
        ("date", pa.date32(), [date(1, 1, 1), date(9999, 12, 31)], "0001-01-01", "9999-12-31"),
        ("time", pa.time64("us"), [time(), time(23, 59, 59, 999999)], "00:00:00", "23:59:59.999999"),
        ("timestamp", pa.timestamp("us"), [EARLY, EARLY], "1969-12-31 23:00:00.5", "1969-12-31 23:00:00.5"),
        ("timestamptz", pa.timestamp("us", "UTC"), [LATE, LATE], "2026-01-01 00:00:00+00", "2026-01-01 00:00:00+00"),
        ("varchar", pa.string(), ["", "ä"], "", "ä"),
        ("varchar", pa.string(), ["a\x00", "b"], None, None),
        ("blob", pa.binary(), [b"\x00\xff", b"a"], "00FF", "61"),
    ],
)  # fmt: skip
def test_forms(
    connection: duck.Connection, tmp_path: Path, type_: str, arrow: pa.DataType, values: Any, low: str, high: str
) -> None:
    columns = (Column(1, "c", type_),)
    path = write(tmp_path / "a.parquet", columns, [arrow], [(value,) for value in values])
    (footer,) = by_ourselves(connection, [path], columns)
    assert (footer.columns[0].min, footer.columns[0].max) == (low, high)
    assert [footer] == through_duckdb(connection, [path], columns)


def test_nested_columns_and_several_files(connection: duck.Connection, tmp_path: Path) -> None:
    inner = Column(3, "a", "int32"), Column(4, "b", "varchar")
    columns = (
        Column(1, "id", "int64"),
        Column(2, "s", "struct", inner),
        Column(5, "l", "list", (Column(6, "element", "date"),)),
        Column(7, "m", "map", (Column(8, "key", "varchar"), Column(9, "value", "float64"))),
    )
    types = [
        pa.int64(),
        pa.struct([("a", pa.int32()), ("b", pa.string())]),
        pa.list_(pa.date32()),
        pa.map_(pa.string(), pa.float64()),
    ]
    rows = [
        [(1, {"a": 1, "b": "x"}, [date(2020, 1, 1), None], [("k", 0.5)]), (2, None, [], None), (3, {}, None, [])],
        [(4, {"a": -7, "b": None}, None, None)],
        [],
    ]  # fmt: skip
    paths = [write(tmp_path / f"{i}.parquet", columns, types, found, row_group_size=2) for i, found in enumerate(rows)]
    ours = by_ourselves(connection, paths, columns)
    assert ours == through_duckdb(connection, paths, columns)
    assert [footer.rows for footer in ours] == [3, 1, 0]
    assert [column.column_id for column in ours[0].columns] == [1, 3, 4, 6, 8, 9]


def test_bounds_that_duckdb_cuts_off_are_none(connection: duck.Connection, tmp_path: Path) -> None:
    path, columns = str(tmp_path / "long.parquet"), (Column(1, "s", "varchar"), Column(2, "t", "varchar"))
    connection.execute(
        f"COPY (SELECT repeat('x', 300) AS s, 'y' AS t) TO '{path}' (FORMAT parquet, FIELD_IDS {{s: 1, t: 2}})"
    )
    (footer,) = by_ourselves(connection, [path], columns)
    assert [(column.min, column.max) for column in footer.columns] == [(None, None), ("y", "y")]
    assert [footer] == through_duckdb(connection, [path], columns)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_maximum_that_is_no_number_hides_both_bounds(connection: duck.Connection, tmp_path: Path, bad: float) -> None:
    """Spark's writer makes NaN the maximum as soon as there is one; Arrow's leaves it out."""
    columns = (Column(1, "x", "float64"),)
    path = Path(write(tmp_path / "a.parquet", columns, [pa.float64()], [(1.25,), (77.5,)], use_dictionary=False))
    content = path.read_bytes()
    footer = content[-8 - int.from_bytes(content[-8:-4], "little") :]
    path.write_bytes(content[: -len(footer)] + footer.replace(struct.pack("<d", 77.5), struct.pack("<d", bad)))
    (found,) = by_ourselves(connection, [str(path)], columns)
    assert (found.columns[0].min, found.columns[0].max, found.columns[0].contains_nan) == (None, None, None)
    assert [found] == through_duckdb(connection, [str(path)], columns)


# ---------------------------------------------------------------- what is left to DuckDB
@pytest.mark.parametrize(
    ("type_", "query"),
    [
        ("uint32", "SELECT 4000000000::UINTEGER AS c"),
        ("timestamp_ms", "SELECT TIMESTAMP_MS '2020-01-01 00:00:00.5' AS c"),
        ("timestamp_ns", "SELECT TIMESTAMP_NS '2020-01-01 00:00:00.5' AS c"),
        ("date", "SELECT DATE '0044-03-15 (BC)' AS c"),
        ("date", "SELECT DATE '12000-01-01' AS c"),
        ("date", "SELECT DATE 'infinity' AS c"),
        ("timestamp", "SELECT TIMESTAMP '0044-03-15 (BC) 00:00:00' AS c"),
        ("timestamptz", "SELECT TIMESTAMPTZ 'infinity' AS c"),
        ("uuid", "SELECT uuid() AS c"),
        ("varchar", "SELECT 'x'::BLOB AS c"),
        ("boolean", "SELECT 1 AS c"),
    ],
)
def test_what_is_unusual_is_asked_of_duckdb(
    connection: duck.Connection, tmp_path: Path, type_: str, query: str
) -> None:
    path, columns = str(tmp_path / "a.parquet"), (Column(1, "c", type_),)
    connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet, FIELD_IDS {{c: 1}})")
    assert parquet.read_local([path], columns) is None
    assert read_footers(connection, [path], columns) == through_duckdb(connection, [path], columns)


def test_big_remote_and_broken_files_are_not_for_us(tmp_path: Path) -> None:
    columns = (Column(1, "c", "int32"),)
    path = Path(write(tmp_path / "a.parquet", columns, [pa.int32()], [(n,) for n in range(5)]))
    assert parquet.read_local([str(path)], columns) is not None
    assert parquet.read_local([str(path)] * 100, columns) is None
    assert parquet.read_local(["s3://bucket/a.parquet"], columns) is None
    assert parquet.read_local([str(tmp_path / "none.parquet")], columns) is None
    many = write(tmp_path / "many.parquet", columns, [pa.int32()], [(n,) for n in range(500)], row_group_size=1)
    assert parquet.read_local([many], columns) is None
    whole = path.read_bytes()
    length = int.from_bytes(whole[-8:-4], "little")
    for at in range(len(whole) - 8 - length, len(whole)):  # cut anywhere in the footer
        path.write_bytes(whole[:at])
        assert parquet.read_local([str(path)], columns) is None
        path.write_bytes(whole[:at] + whole[at + 1 :])
        assert parquet.read_local([str(path)], columns) is None


@settings(max_examples=200)
@given(st.binary(max_size=60))
@example(bytes([0x19, 0xF7, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F]))  # a list of billions of doubles
def test_anything_ends(data: bytes) -> None:
    with suppress(ValueError, IndexError):
        decode(data)
