"""Rows that have the keys of a few staged writes: DuckDB's own view of the table tells what must be found."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from lakemill.core.schema import duck_type
from lakemill.lake import lookup as module
from lakemill.lake.lookup import lookup, simple
from lakemill.runtime.open import Lake
from tests.conftest import MakeLake

COLUMNS = {
    "INTEGER": ["1", "2", "-3", "2147483647"],
    "UBIGINT": ["0", "18446744073709551615", "7"],
    "HUGEINT": ["0", "9007199254740992", "-1"],
    "DECIMAL(20,3)": ["1.500", "-0.001", "12345678901234567.890"],
    "VARCHAR": ["''", "'a'", "'A'", "'it''s'", "'e\u0301'", "'\u00e9'", "'a\\nb'"],
    "UUID": ["'00000000-0000-0000-0000-000000000001'", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"],
    "BLOB": ["'\\x00\\xFF'::BLOB", "''::BLOB"],
    "DATE": ["'0001-01-01'", "'2026-11-16'"],
    "TIME": ["'00:00:00'", "'23:59:59.999999'"],
    "TIMESTAMP": ["'2026-01-01 00:00:00.000001'", "'1969-12-31 23:59:59'"],
    "TIMESTAMP_S": ["'2026-01-01 00:00:00'", "'1969-12-31 23:59:59'"],
    "TIMESTAMPTZ": ["'2026-01-01 00:00:00+02'", "'2025-12-31 22:00:01Z'"],
    "BOOLEAN": ["true", "false"],
    "DOUBLE": ["'nan'::DOUBLE", "0.0", "-0.0", "1e300", "'-inf'::DOUBLE"],
    "FLOAT": ["'nan'::FLOAT", "0.5"],
}


def staged(lake: Lake, folder: Path, rows: list[str], kinds: list[tuple[str, str]]) -> str:
    """As Spark stages writes: n0, n1 … in the form that it shows, and whether each is a delete."""
    path = str(folder / f"{random.random()}.parquet")
    values = " UNION ALL ".join(f"SELECT {row}" for row in rows)
    with lake.duck.cursor() as cursor:
        names = ", ".join(f"n{i}" for i in range(len(kinds)))
        shown = ", ".join(f"CAST(CAST(n{i} AS {kind[0]}) AS {kind[1]}) AS n{i}" for i, kind in enumerate(kinds))
        cursor.execute(f"COPY (SELECT {shown}, gone FROM ({values}) v ({names}, gone)) TO '{path}' (FORMAT parquet)")
    return path


def kinds_of(lake: Lake, name: str) -> list[tuple[str, str]]:
    columns = lake.table(name).describe().columns
    return [(duck_type(column), duck_type(column, shown=True)) for column in columns]


@pytest.mark.parametrize("kind", [kind for kind in COLUMNS if kind not in ("DOUBLE", "FLOAT")])
def test_keys_of_every_type(make_lake: MakeLake, tmp_path: Path, kind: str) -> None:
    values = COLUMNS[kind]
    with Lake(make_lake().settings) as lake:
        lake.sql(f"CREATE TABLE t (k {kind}, v INTEGER)")
        for value in values:
            lake.sql(f"INSERT INTO t VALUES ({value}, 1), (NULL, 1)")
        lake.sql("UPDATE t SET v = 2 WHERE k = (SELECT max(k) FROM t)")
        plan = lake.table("t").plan_scan()
        assert simple(plan)
        rows = [f"{value}, 1, false" for value in values]
        found = lookup(lake.duck, plan, staged(lake, tmp_path, rows, kinds_of(lake, "t")), ["K"], "gone")
        truth = [
            lake.sql(f"SELECT rowid, v = 1 FROM t WHERE k = CAST({value} AS {kind})").fetchall() for value in values
        ]
        assert [[(kept.row_id, kept.same) for kept in write.kept] for write in found] == truth


def test_values_that_are_the_same(make_lake: MakeLake, tmp_path: Path) -> None:
    """NaN is NaN, NULL is NULL, and nothing else is either."""
    with Lake(make_lake().settings) as lake:
        names = ", ".join(f"c{i} {kind}" for i, kind in enumerate(COLUMNS))
        lake.sql(f"CREATE TABLE t (k INTEGER, {names})")
        rows = [[random.Random(n).choice([*values, "NULL"]) for values in COLUMNS.values()] for n in range(30)]
        for number, row in enumerate(rows):
            lake.sql(f"INSERT INTO t VALUES ({number}, {', '.join(row)})")
        plan = lake.table("t").plan_scan()
        kinds = kinds_of(lake, "t")
        same = [f"{number}, {', '.join(row)}, false" for number, row in enumerate(rows)]
        found = lookup(lake.duck, plan, staged(lake, tmp_path, same, kinds), ["k"], "gone")
        assert [[kept.same for kept in write.kept] for write in found] == [[True]] * 30
        for place, values in enumerate(COLUMNS.values()):
            others = [[*row[:place], "NULL" if row[place] != "NULL" else values[0], *row[place + 1 :]] for row in rows]
            changed = [f"{number}, {', '.join(row)}, true" for number, row in enumerate(others)]
            found = lookup(lake.duck, plan, staged(lake, tmp_path, changed, kinds), ["k"], "gone")
            assert [(write.gone, [kept.same for kept in write.kept]) for write in found] == [(True, [False])] * 30


@pytest.mark.parametrize("seed", range(4))
def test_histories_of_stock_duckdb(make_lake: MakeLake, tmp_path: Path, seed: int) -> None:
    """Rows that were deleted and updated, several files and deletes; two parts of a key, columns that came and went."""
    chance = random.Random(seed)
    with Lake(make_lake().settings) as lake:
        lake.sql("CREATE TABLE t (a INTEGER, b VARCHAR, gone_soon INTEGER, v INTEGER)")
        number, letter = "a", "b"
        for step in range(12):
            match chance.randrange(4):
                case 0 | 1:
                    some = f"(random() * 9)::INTEGER AS {number}, chr(97 + (random() * 3)::INTEGER) AS {letter}"
                    lake.sql(f"INSERT INTO t BY NAME SELECT {some}, {step} AS v FROM range(40)")
                case 2:
                    lake.sql(f"DELETE FROM t WHERE {number} = {chance.randrange(10)}")
                case 3:
                    lake.sql(f"UPDATE t SET v = v + 1 WHERE {letter} = '{chance.choice('abc')}'")
            if step == 5:
                lake.sql("ALTER TABLE t DROP COLUMN gone_soon")
                lake.sql("ALTER TABLE t ADD COLUMN late VARCHAR")
                for old, new in (("b", "c"), ("a", "b"), ("c", "a")):
                    lake.sql(f"ALTER TABLE t RENAME COLUMN {old} TO {new}")
                number, letter = letter, number
        plan = lake.table("t").plan_scan()
        assert simple(plan)
        keys = [(one, other) for one in range(11) for other in "abcd"]
        rows = [f"{one}, '{other}', 3, NULL, false" for one, other in keys]
        kinds = kinds_of(lake, "t")
        found = lookup(lake.duck, plan, staged(lake, tmp_path, rows, kinds), ["a", "b"], "gone")
        for (one, other), write in zip(keys, found, strict=True):
            truth = lake.sql(
                "SELECT rowid, v = 3 AND late IS NULL FROM t WHERE b = ? AND a = ? ORDER BY rowid", [one, other]
            ).fetchall()
            assert sorted((kept.row_id, kept.same) for kept in write.kept) == truth


def test_what_is_left_to_spark(make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    with Lake(make_lake().settings) as lake:
        for name, columns in (("n", "k INTEGER, l INTEGER[]"), ("d", "k INTEGER")):
            lake.sql(f"CREATE TABLE {name} ({columns})")
            lake.sql(f"INSERT INTO {name} (k) VALUES (1)")
        assert not simple(lake.table("n").plan_scan()), "nested"
        assert simple(lake.table("d").plan_scan())
        lake.sql("ALTER TABLE d ADD COLUMN e INTEGER DEFAULT 3")
        assert not simple(lake.table("d").plan_scan()), "a default for rows that were there"
        lake.sql("CREATE TABLE f AS SELECT 1 AS k")
        lake.sql("INSERT INTO f VALUES (2)")
        monkeypatch.setattr(module, "MOST_FILES", 1)
        assert not simple(lake.table("f").plan_scan()), "many files"
