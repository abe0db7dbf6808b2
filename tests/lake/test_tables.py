"""Tables made from columns, and generations that wait for their name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakemill.core.commit import AddFiles
from lakemill.core.schema import Column
from lakemill.errors import BadArgument, NameTaken, PublishConflict, TableReplaced, UnknownColumn
from lakemill.lake.catalog import reading
from lakemill.lake.scan import Lakefront, plan_delta
from lakemill.lake.stamps import Stamps
from lakemill.lake.tables import abandon, build_generation, create_table, drop_table
from tests.publishing import Desk, one_desk, one_lake

TYPES = """BOOLEAN, TINYINT, SMALLINT, INTEGER, BIGINT, HUGEINT, UTINYINT, USMALLINT, UINTEGER, UBIGINT, FLOAT, DOUBLE,
DECIMAL(18,3), DATE, TIME, TIMESTAMP, TIMESTAMP_MS, TIMESTAMP_S, TIMESTAMPTZ, VARCHAR, JSON, BLOB, UUID, INTEGER[],
STRUCT(a INTEGER, "B c" VARCHAR[]), MAP(VARCHAR, STRUCT(x DOUBLE))"""


@pytest.fixture(scope="module")
def desk(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with one_lake(postgres, tmp_path_factory.mktemp("tables")) as lake, one_desk(lake) as desk:
        yield desk


def _types() -> list[str]:
    parts, depth = [""], 0
    for char in TYPES.replace("\n", " "):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def test_a_table_has_the_columns_that_another_had(desk: Desk) -> None:
    desk.make(", ".join(f'"c {i}" {type_}' for i, type_ in enumerate(_types())) + ", n INTEGER NOT NULL")
    drop_table(desk.duck, "main", "copy")
    create_table(desk.duck, "main", "copy", desk.table().columns)
    described = (
        "SELECT column_name, data_type, is_nullable FROM duckdb_columns() WHERE table_name = '{}' ORDER BY column_index"
    )
    assert desk.stock(described.format("copy")) == desk.stock(described.format("t"))
    drop_table(desk.duck, "main", "copy")
    drop_table(desk.duck, "main", "copy")


def test_names_are_quoted_and_mistakes_are_told(desk: Desk) -> None:
    create_table(desk.duck, "main", 'odd "name"; x', [Column(0, "select", "int32")], ['bucket(4, "select")'])
    assert desk.target('odd "name"; x').partition is not None
    drop_table(desk.duck, "main", 'odd "name"; x')
    before = desk.head()
    with pytest.raises(BadArgument):
        create_table(desk.duck, "main", "empty", [])
    with pytest.raises(UnknownColumn):
        create_table(desk.duck, "main", "half", [Column(0, "a", "int32")], ["no_such_column"])
    assert desk.head() == before


def test_names_that_differ_in_other_letters_than_ascii_are_two(desk: Desk) -> None:
    """As in DuckDB, also where PostgreSQL's lower() takes Ä for ä."""
    desk.duck.execute('CREATE TABLE "Ärger A" (id INTEGER); CREATE TABLE "ärger a" (id INTEGER)')
    desk.duck.execute('CREATE VIEW "Öl" AS SELECT 1 AS one; CREATE VIEW "öl" AS SELECT 2 AS two')
    assert [desk.table(name).name for name in ("ÄRGER a", "ärger A")] == ["Ärger A", "ärger a"]
    with reading(desk.conn) as catalog:
        views = [catalog.view("main", name, catalog.head().id) for name in ("ÖL", "öL")]
    assert [view.name for view in views if view is not None] == ["Öl", "öl"]
    for name in ("Über", "über"):
        updates, requires = build_generation(desk.duck, desk.conn, "main", name, [Column(0, "id", "int32")]).takes_name(
            None
        )
        desk.publish(*updates, requires=requires)
    assert desk.table("ÜBER").id != desk.table("üBER").id


def test_a_generation_is_filled_and_takes_its_name_at_once(desk: Desk) -> None:
    desk.duck.execute("DROP TABLE IF EXISTS g")
    first = build_generation(desk.duck, desk.conn, "main", "g", [Column(0, "id", "int32"), Column(0, "s", "varchar")])
    assert desk.stock("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'g'") == [(0,)]
    query = "SELECT range::INTEGER AS id, 'a' AS s FROM range(5)"
    updates, requires = first.takes_name(None)
    files = desk.stage(query, first.table.name)
    desk.publish(*updates, AddFiles(first.table.id, files), requires=requires)
    assert desk.stock("SELECT count(*) FROM g") == [(5,)]
    # a second one, which somebody else meddles with
    second = build_generation(desk.duck, desk.conn, "main", "g", [Column(0, "id", "int64")], ["bucket(3, id)"])
    updates, requires = second.takes_name(first.table.id)
    desk.duck.execute(f'INSERT INTO "{second.table.name}" VALUES (1)')
    with pytest.raises(PublishConflict):
        desk.publish(*updates, requires=requires)
    abandon(desk.duck, second)
    # a third one comes too late: somebody took the name away
    third = build_generation(desk.duck, desk.conn, "main", "g", [Column(0, "id", "int64")])
    desk.duck.execute("CREATE OR REPLACE TABLE g (other INTEGER)")
    updates, requires = third.takes_name(first.table.id)
    with pytest.raises(PublishConflict) as caught:
        desk.publish(*updates, requires=requires)
    assert not isinstance(caught.value, NameTaken), "the table that it replaces is gone as well"
    abandon(desk.duck, third)
    left = desk.rows(
        "SELECT count(*) FROM ducklake_table WHERE end_snapshot IS NULL AND table_name LIKE '\\_\\_lakemill%%'"
    )
    assert left == [(0,)]


def test_a_generation_is_nobodys_past(desk: Desk) -> None:
    """Renamed afterwards, it had another name before; but the one that it waited under does not count."""
    waiting = build_generation(desk.duck, desk.conn, "main", "past", [Column(0, "id", "int32")])
    updates, requires = waiting.takes_name(None)
    desk.publish(*updates, requires=requires)
    named = desk.head()
    desk.duck.execute("ALTER TABLE past RENAME TO renamed")
    front = Lakefront(desk.conn, "public", Stamps(desk.duck))
    assert plan_delta(front, "main", "renamed", named).files == ()
    with pytest.raises(TableReplaced):
        plan_delta(front, "main", "renamed", waiting.since)
    drop_table(desk.duck, "main", "renamed")
