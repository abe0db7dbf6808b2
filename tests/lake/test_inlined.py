"""Rows in the catalog come out in the columns of the snapshot that is read, whatever became of those since."""

from __future__ import annotations

import lakemill
from lakemill.lake.inlined import inlined_table
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
