"""Rows in the catalog come out in the columns of the snapshot that is read, whatever became of those since."""

from __future__ import annotations

import pytest

import lakemill
from lakemill.core.schema import quote_identifier
from lakemill.errors import UnsupportedType
from lakemill.lake.inlined import ROW_ID, WEIGHT, inlined_table
from tests.conftest import MakeLake


def test_a_struct_inside_lists_and_maps_changed_after_its_rows_were_inlined(make_lake: MakeLake) -> None:
    lake = make_lake(inline=100)
    with lake.duck() as stock, lakemill.open(lake.settings) as ours:
        for statement in (
            "CREATE TABLE t (id INT, l STRUCT(a INT, b INT)[], m MAP(VARCHAR, STRUCT(a INT, b INT)[]))",
            "INSERT INTO t VALUES (1, [{a: 1, b: 2}, NULL], MAP {'k': [{a: 3, b: 4}], 'n': NULL})",
            "INSERT INTO t VALUES (2, NULL, NULL), (3, [], MAP {})",
            "ALTER TABLE t RENAME COLUMN l.element.a TO c",
            "ALTER TABLE t ADD COLUMN l.element.a VARCHAR",
            "ALTER TABLE t ADD COLUMN m.value.element.c INT",
            "ALTER TABLE t DROP COLUMN m.value.element.a",
            "INSERT INTO t VALUES (4, [{c: 5, b: 6, a: 'x'}], MAP {'k': [{b: 7, c: 8}]})",
        ):
            stock.execute(statement)
        plan = ours.table("t").plan_scan()
        rows = [
            row
            for inlined in plan.inlined_rows
            for row in inlined_table(ours.duck, inlined, plan.table.columns, plan.b)
            .select(["id", "l", "m"])
            .to_pylist()
        ]
        assert len(plan.inlined_rows) > 1
        assert (
            sorted(rows, key=lambda row: int(row["id"]))
            == stock.execute("FROM t ORDER BY id").to_arrow_table().to_pylist()
        )


@pytest.mark.parametrize(
    "changes",
    [
        ["RENAME COLUMN m.key.a TO z"],
        ["RENAME COLUMN m.key.a TO x", "RENAME COLUMN m.key.b TO a", "RENAME COLUMN m.key.x TO b"],
        ["ADD COLUMN m.key.c INTEGER DEFAULT 7"],
        ["DROP COLUMN m.key.a", "ADD COLUMN m.key.a INTEGER"],
        ["RENAME COLUMN m.key.a TO y", "RENAME COLUMN m.key.b TO z"],
    ],
    ids=["renamed", "crosswise", "added", "dropped and added", "both renamed"],
)
def test_the_key_of_a_map_changed_after_its_rows_were_inlined(make_lake: MakeLake, changes: list[str]) -> None:
    lake = make_lake(inline=100)
    with lake.duck() as stock, lakemill.open(lake.settings) as ours:
        stock.execute("CREATE TABLE t (id INT, m MAP(STRUCT(a INTEGER, b INTEGER), INTEGER))")
        stock.execute("INSERT INTO t VALUES (1, MAP {{a: 1, b: 2}: 3, {a: 4, b: 5}: NULL}), (2, NULL), (3, MAP {})")
        for change in changes:
            stock.execute(f"ALTER TABLE t {change}")
        plan = ours.table("t").plan_scan()
        (inlined,) = plan.inlined_rows
        rows = inlined_table(ours.duck, inlined, plan.table.columns, plan.b).select(["id", "m"]).to_pylist()
        assert rows == stock.execute("FROM t ORDER BY id").to_arrow_table().to_pylist()


def test_inlining_switched_on_after_the_table_was_made(make_lake: MakeLake) -> None:
    """The version of its rows' columns is then not among those of the table."""
    lake = make_lake(inline=0)
    with lake.duck() as stock, lakemill.open(lake.settings) as ours:
        stock.execute("CREATE TABLE t (id INT, m MAP(VARCHAR, INT))")
        stock.execute("CALL lake.set_option('data_inlining_row_limit', 10)")
        stock.execute("INSERT INTO t VALUES (1, NULL)")
        plan = ours.table("t").plan_scan()
        assert [[row[3] for row in inlined.rows] for inlined in plan.inlined_rows] == [["1"]]


NAMES = [
    "CustId", "UPPER", "_A1", "with space", 'qu"ote',
    "SELECT", "Order", "user", "ÄÖ", "äö", "$now", "a.b", "at_a", "at_b", "%s{n}", "x" * 63,
]  # fmt: skip


def test_the_names_that_columns_have_in_the_catalog(make_lake: MakeLake) -> None:
    """The extension writes some of them without quotes, and PostgreSQL then keeps them in lower case."""
    lake = make_lake(inline=100)
    with lake.duck() as stock, lakemill.open(lake.settings) as ours:
        columns = ", ".join(f"{quote_identifier(name)} VARCHAR" for name in NAMES)
        values = ", ".join(f"'{place}'" for place in range(len(NAMES)))
        stock.execute(f"CREATE TABLE t (id INT, {columns})")
        stock.execute(f"INSERT INTO t VALUES (1, {values})")
        first = stock.execute("FROM ducklake_snapshots('lake')").fetchall()[-1][0]
        for change in (
            'RENAME COLUMN "CustId" TO cUSTiD',
            "RENAME COLUMN cUSTiD TO upper2",
            'RENAME COLUMN "UPPER" TO "CustId"',
            "ADD COLUMN New INTEGER DEFAULT 7",
            "DROP COLUMN _A1",
        ):
            stock.execute(f"ALTER TABLE t {change}")
            stock.execute("INSERT INTO t (id) SELECT max(id) + 1 FROM t")
        stock.execute("DELETE FROM t WHERE id = 1")
        for plan in (ours.table("t").plan_scan(), ours.table("t").plan_scan(first)):
            rows = [
                row
                for inlined in plan.inlined_rows
                for row in inlined_table(ours.duck, inlined, plan.table.columns, plan.b).to_pylist()
            ]
            shown = [{name: row[name] for name in row if name not in (WEIGHT, ROW_ID)} for row in rows]
            expected = stock.execute(f"FROM t AT (VERSION => {plan.b}) ORDER BY id").to_arrow_table().to_pylist()
            assert sorted(shown, key=lambda row: int(row["id"])) == expected
        delta = ours.table("t").plan_delta(first)
        moved = [
            row[WEIGHT]
            for inlined in delta.inlined_rows
            for row in inlined_table(ours.duck, inlined, delta.table.columns, delta.b).to_pylist()
        ]
        assert sorted(moved) == [-1, 1, 1, 1, 1, 1]


def test_a_number_that_spark_has_no_type_for(make_lake: MakeLake) -> None:
    lake = make_lake(inline=10)
    with lake.duck() as stock, lakemill.open(lake.settings) as ours:
        stock.execute("CREATE TABLE t (h HUGEINT)")
        stock.execute(f"INSERT INTO t VALUES ({10**38 - 1})")
        plan = ours.table("t").plan_scan()
        (rows,) = (inlined_table(ours.duck, found, plan.table.columns, plan.b) for found in plan.inlined_rows)
        assert rows.column("h").to_pylist() == [10**38 - 1]
        stock.execute(f"INSERT INTO t VALUES ({10**38})")
        plan = ours.table("t").plan_scan()
        with pytest.raises(UnsupportedType, match="a row that the catalog holds"):
            inlined_table(ours.duck, plan.inlined_rows[0], plan.table.columns, plan.b)
