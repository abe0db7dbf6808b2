"""The gateway answers as DuckDB does in process, at the newest snapshot and at old ones; and rightly where it does not.

Random queries of the fuzzers over a lake that stock DuckDB and our own publishes have written in turn; then the cases
that a random query does not meet: views, points, times, merged files, deletes that carry the wrong snapshot.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest

from lakemill import errors
from lakemill.core.names import QualifiedName, parse_name
from lakemill.gateway.gate import Gateway
from lakemill.gateway.question import At, Question
from tests.conftest import TestLake, make_lakes
from tests.publishing import Desk, one_desk
from tests.refresh.generate import query
from tests.refresh.generate_data import Schema, changes, created, filled, inserted, schema

QUERIES = int(os.environ.get("LAKEMILL_TEST_GATEWAY_QUERIES", "16"))
SEED = int(os.environ.get("LAKEMILL_TEST_GATEWAY_SEED", "1"))
# what stock DuckDB gets wrong in the past, and below a LIMIT
SOUND = "SET disabled_optimizers = 'statistics_propagation,join_filter_pushdown'"


@dataclass(frozen=True, slots=True)
class Place:
    lake: TestLake
    desk: Desk
    gateway: Gateway

    def ask(self, sql: str, at: At | int | None = None, **options: Any) -> list[str]:
        when = at if isinstance(at, At) else At(snapshot=at)
        with self.gateway.query(Question(sql, at=when, **options)) as answer:
            table = answer.table()
            assert answer.statistics is not None
            assert answer.statistics.rows == table.num_rows
            return bag(table)

    def stock(self, sql: str, at: int | None = None) -> list[str]:
        with self.lake.duck(at=at) as connection:
            connection.execute(SOUND)
            return bag(connection.execute(sql).to_arrow_table())

    def tell(self, *statements: str) -> int:
        """Stock DuckDB does it; the snapshot after."""
        for statement in statements:
            self.desk.duck.execute(statement)
        return self.desk.head()


def bag(table: Any) -> list[str]:
    return sorted(map(repr, (list(row.values()) for row in table.rename_columns(names(table)).to_pylist())))


def names(table: Any) -> list[str]:
    return [f"c{number}" for number in range(table.num_columns)]


@pytest.fixture(scope="module")
def place(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with make_lakes(postgres, tmp_path_factory.mktemp("queries")) as make:
        lake = make(inline=5, flags={"query.executors": 2})
        with one_desk(lake) as desk, Gateway(lake.settings, lake.dsn) as gateway:
            gateway.warm()
            yield Place(lake, desk, gateway)


def write(place: Place, tables: Schema, rng: Random) -> list[int]:
    """A history of the tables: the snapshots after each step."""
    place.tell(*created(tables, "main."), *filled(rng, tables, "main."))
    snapshots = []
    for _ in range(4):
        snapshots.append(place.tell(*changes(rng, tables, "main.")))
        name, columns = rng.choice(list(tables.items()))
        plain = {column: type_ for column, type_ in columns.items() if type_ != "BIGINT[]"}
        if len(plain) == len(columns):  # our own publish, as a refresh makes it
            values = inserted(rng, "t", columns, 6).partition(" VALUES ")[2]
            typed = ", ".join(f"c{i}::{type_}" for i, type_ in enumerate(columns.values()))
            places = ", ".join(f"c{i}" for i in range(len(columns)))
            place.desk.append(f"SELECT {typed} FROM (VALUES {values}) v({places})", name)
        snapshots.append(place.desk.head())
    # renamed twice, so that the name means another column in the past
    place.tell("ALTER TABLE main.r RENAME k TO old_k", "ALTER TABLE main.r ADD COLUMN k INTEGER DEFAULT 3")
    place.tell("ALTER TABLE main.r DROP COLUMN k", "ALTER TABLE main.r RENAME old_k TO k")
    place.tell("CALL ducklake_merge_adjacent_files('lake')", *changes(rng, tables, "main."))
    return [*snapshots, place.desk.head()]


def test_random_queries_are_answered_as_in_process(place: Place) -> None:
    rng = Random(SEED)
    tables = schema(rng)
    snapshots = write(place, tables, rng)
    answered = 0
    for _ in range(QUERIES):
        text = query(rng, tables)
        for at in (None, rng.choice(snapshots)):
            try:
                wanted = place.stock(text, at)
            except duckdb.Error:
                continue  # an error of the query's own; of which kind is DuckDB's business
            assert place.ask(text, at) == wanted, f"at {at}: {text}"
            answered += 1
    assert answered > QUERIES


def test_views_see_the_tables_of_their_snapshot(place: Place) -> None:
    place.tell("CREATE SCHEMA vs", "CREATE TABLE vs.t AS SELECT 1 AS x", "CREATE TABLE main.vt AS SELECT 2 AS x")
    place.tell("USE lake.vs", "CREATE VIEW vs.own AS SELECT x + 10 AS y FROM t", "USE lake.main")
    before = place.tell('CREATE VIEW vs.nested ("a b") AS SELECT y FROM vs.own UNION ALL SELECT x FROM main.vt')
    place.tell("INSERT INTO vs.t VALUES (5)")
    for at in (before, None):
        for text in ("FROM vs.own", 'SELECT "a b" FROM vs.nested ORDER BY 1', "SELECT * FROM main.vt, vs.nested"):
            assert place.ask(text, at) == place.stock(text, at)
    assert place.ask("FROM vs.nested", before) == ["[11]", "[2]"]


def test_a_view_may_name_the_catalog_that_its_maker_attached(place: Place) -> None:
    place.tell(
        "CREATE TABLE of_catalog AS SELECT 1 AS id", "CREATE VIEW by_catalog AS SELECT id FROM lake.main.of_catalog"
    )
    assert place.ask("FROM by_catalog") == place.stock("FROM by_catalog") == ["[1]"]


def test_types_that_spark_does_not_have_are_read(place: Place) -> None:
    """In files and in the catalog."""
    columns = "a TIMETZ, b TIMESTAMP_NS, c INTERVAL, d TIMETZ[], e UHUGEINT"
    row = "'12:00:00+05:30', '2026-01-02 03:04:05.678901234', INTERVAL '1 month', ['12:00:00+01'], 7"
    place.tell(f"CREATE TABLE alone ({columns})", f"INSERT INTO alone SELECT {row} FROM range(20)")
    place.tell(f"INSERT INTO alone VALUES ({row})")
    text = "SELECT a::VARCHAR, b, c, d::VARCHAR, e::VARCHAR FROM alone"
    assert place.ask(text) == place.stock(text)
    assert len(place.ask("FROM alone")) == 21


def test_a_view_means_the_same_to_everybody(place: Place) -> None:
    """A name in a view is not that of another table because its reader may see only that one."""
    place.tell(
        "CREATE SCHEMA seen_by",
        "CREATE TABLE seen_by.twice AS SELECT 'seen_by' AS whose",
        "CREATE TABLE main.twice AS SELECT 'main' AS whose",
        "CREATE VIEW seen_by.of_twice AS SELECT whose FROM twice",
        "CREATE TABLE main.once AS SELECT 'main' AS whose",
        "CREATE VIEW seen_by.of_once AS SELECT whose FROM once",
    )

    def asked(view: str, hidden: str) -> list[str]:
        return place.ask(f"FROM seen_by.{view}", visible=lambda name: name != parse_name(hidden))

    assert asked("of_twice", "main.twice") == place.stock("FROM seen_by.of_twice") == ["['seen_by']"]
    with pytest.raises(errors.UnknownTable, match="which the view of_twice reads"):
        asked("of_twice", "seen_by.twice")
    assert asked("of_once", "seen_by.once") == ["['main']"], "what is not there hides nothing"


def test_a_table_is_found_by_name_whatever_its_letters(place: Place) -> None:
    place.tell('CREATE SCHEMA "Odd Place"', 'CREATE TABLE "Odd Place"."T.1" AS SELECT 1 AS "Äb", 2 AS "select"')
    text = 'SELECT "Odd Place"."T.1"."Äb", "SELECT" FROM "odd place"."t.1"'
    assert place.ask(text) == place.stock(text) == ["[1, 2]"]
    assert place.ask('SELECT count(*) FROM lake."odd place"."T.1"') == ["[1]"]


def test_deletes_that_carry_the_wrong_snapshot_are_counted_from_their_commit(place: Place) -> None:
    """Traps 1: stock DuckDB answers 95 where 97 rows were seen."""
    place.tell("CALL lake.set_option('data_inlining_row_limit', 0)")
    place.tell(
        "CREATE TABLE late AS SELECT i::INTEGER AS id FROM range(100) r(i)", "CREATE TABLE meanwhile (x INTEGER)"
    )
    place.tell("DELETE FROM late WHERE id < 3")
    with place.lake.duck() as slow:
        slow.execute("BEGIN")
        slow.execute("DELETE FROM late WHERE id BETWEEN 10 AND 11")
        between = place.tell("INSERT INTO meanwhile VALUES (1)")
        assert place.ask("SELECT count(*) FROM late", between) == ["[97]"]
        slow.execute("COMMIT")
    assert place.stock("SELECT count(*) FROM late", between) == ["[95]"], "stock DuckDB was cured: simplify"
    assert place.ask("SELECT count(*), sum(id) FROM late", between) == ["[97, Decimal('4947')]"]
    assert place.ask("SELECT count(id) FROM late WHERE id IN (2, 10, 11, 12)", between) == ["[3]"]
    assert place.ask("SELECT count(*) FROM late") == ["[95]"]


def test_merged_and_rewritten_files_keep_the_past(place: Place) -> None:
    place.tell("CALL lake.set_option('data_inlining_row_limit', 0)", "CREATE TABLE merged (id INTEGER, v INTEGER)")
    seen = []
    for n in range(4):
        at = place.tell(f"INSERT INTO merged SELECT i, {n} FROM range({n * 10}, {n * 10 + 10}) r(i)")
        seen.append((at, place.ask("FROM merged")))
    at = place.tell("DELETE FROM merged WHERE id % 3 = 0")
    seen.append((at, place.ask("FROM merged")))
    place.tell("CALL ducklake_merge_adjacent_files('lake')")
    place.tell("CALL ducklake_rewrite_data_files('lake', 'merged', delete_threshold => 0)")
    for at, rows in seen:
        assert place.ask("FROM merged", at) == rows
        assert place.ask("SELECT count(*) FROM merged", at) == [f"[{len(rows)}]"]
        assert place.ask("SELECT * FROM merged WHERE id >= 0", at) == rows


def test_at_a_point_each_table_is_at_its_own_version(place: Place) -> None:
    place.tell("CALL lake.set_option('data_inlining_row_limit', 0)")
    place.tell(
        "CREATE TABLE base (id INTEGER)", "CREATE TABLE derived (id INTEGER)", "CREATE TABLE elsewhere (id INTEGER)"
    )
    first = place.tell("INSERT INTO base SELECT i FROM range(5) r(i)")
    place.tell("INSERT INTO derived SELECT i FROM range(5) r(i)")
    last = place.tell("INSERT INTO base SELECT i FROM range(5, 9) r(i)", "INSERT INTO derived VALUES (7)")
    place.tell("CALL ducklake_merge_adjacent_files('lake')")
    point = {parse_name("main.base"): first, parse_name("derived"): last}
    text = "SELECT (SELECT count(*) FROM base), (SELECT count(*) FROM derived), (SELECT sum(id) FROM base)"
    assert place.ask(text, At(point=point)) == ["[5, 6, Decimal('10')]"]
    with pytest.raises(errors.BadArgument, match=r"point does not hold main\.elsewhere"):
        place.ask("FROM elsewhere", At(point=point))
    with pytest.raises(errors.UnknownTable):
        place.ask("FROM base", At(point={parse_name("main.nothing"): last}), visible=lambda name: False)


def test_a_snapshot_is_chosen_by_id_or_by_time(place: Place) -> None:
    first = place.tell("CREATE TABLE timed AS SELECT 1 AS x")
    place.tell("INSERT INTO timed VALUES (2)")
    ((time,),) = place.desk.rows("SELECT snapshot_time FROM ducklake_snapshot WHERE snapshot_id = %s", first)
    with place.gateway.query(Question("FROM timed", at=At(time=time))) as answer:
        assert answer.snapshot.id == first
        assert answer.table().num_rows == 1
        assert [(column.name, column.type) for column in answer.columns] == [("x", "INTEGER")]
    with pytest.raises(errors.UnknownTable):
        place.ask("FROM timed", first - 1)
    with pytest.raises(errors.UnknownSnapshot):
        place.ask("FROM timed", 10**6)
    with pytest.raises(errors.BadArgument):
        place.ask("FROM timed", At(snapshot=first, time=time))


def test_files_are_spared_by_what_a_query_compares(place: Place) -> None:
    """The catalog's bounds go along, so that DuckDB need not open every file."""
    place.tell("CALL lake.set_option('data_inlining_row_limit', 0)", "CREATE TABLE pruned (id INTEGER, v VARCHAR)")
    for n in range(5):
        place.tell(f"INSERT INTO pruned SELECT i, 'x' FROM range({n * 10}, {n * 10 + 10}) r(i)")
    files = [path for _, path, _ in place.desk.data_files("pruned")]
    for path in files[1:]:
        Path(path).unlink()  # whoever opens one fails
    assert place.ask("SELECT count(v) FROM pruned WHERE id < 5") == ["[5]"]
    with pytest.raises(errors.FileGone):
        place.ask("SELECT count(v) FROM pruned WHERE id < 15")
    place.tell("DROP TABLE pruned")


def test_files_outside_of_the_data_path_are_read(place: Place, tmp_path: Path) -> None:
    """As `ducklake_add_data_files` leaves them; executors are not born with a right to read there."""
    file = tmp_path / "given" / "a.parquet"
    file.parent.mkdir()
    place.tell("CREATE TABLE given (a INTEGER, b VARCHAR)", f"COPY (SELECT 7 AS a, 'x' AS b) TO '{file}'")
    place.tell(f"CALL ducklake_add_data_files('lake', 'given', '{file}')", "INSERT INTO given VALUES (8, 'y')")
    for _ in range(4):  # with executors that were born before, and after
        assert place.ask("FROM given") == ["[7, 'x']", "[8, 'y']"]


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        ("SELECT nope FROM timed", errors.UnknownColumn, "line 1, column 8"),
        ("SELECT x,\n  nope\nFROM timed", errors.UnknownColumn, "line 2, column 3"),
        ("SELECT x FROM timed WHERE", errors.BadStatement, "syntax error"),
        ("SELECT 'a'::INTEGER", errors.WrongType, "Could not convert"),
        ("SELECT error('mine')", errors.SqlFailed, "mine"),
        ("SELECT $1", errors.BadArgument, "parameter"),
        ("FROM timed, nothing", errors.UnknownTable, "line 1, column 13"),
    ],
)
def test_errors_of_a_query_say_what_and_where(place: Place, text: str, error: Any, told: str) -> None:
    with pytest.raises(error) as wrong:
        place.ask(text)
    assert told in str(wrong.value)


def test_every_kind_of_value_crosses(place: Place) -> None:
    text = """SELECT 1::HUGEINT, 1.50::DECIMAL(10, 2), DATE '2026-01-01', TIMESTAMP '2026-01-01 10:00:00.000001',
        TIMESTAMPTZ '2026-01-01 10:00:00+02', INTERVAL '1 month 2 days', 'x'::BLOB, uuid_extract_version(uuid()),
        {'a': [1, NULL]}, MAP {'k': 1}, 'b'::ENUM('a', 'b'), NULL, TRUE, '{"a": 1}'::JSON, TIME '10:00',
        ['b'::ENUM('a', 'b')], [[1], []], 'NaN'::DOUBLE, 255::UTINYINT"""
    assert place.ask(text) == place.stock(text)
    with place.gateway.query(Question("SELECT * FROM range(0)")) as answer:
        assert answer.table().num_rows == 0
        assert answer.schema.names == ["range"]


def test_parameters_keep_their_types(place: Place) -> None:
    from datetime import UTC, date, datetime, timedelta
    from decimal import Decimal
    from uuid import UUID

    values = [1, 2**70, 1.5, "ä'", True, None, date(2026, 1, 1), datetime(2026, 1, 1, 3, tzinfo=UTC), b"\x00\xff"]
    values += [timedelta(days=1), Decimal("1.25"), UUID(int=7), [1, 2], {"a": 1}]
    text = ", ".join(f"typeof(${n}), ${n}" for n in range(1, len(values) + 1))
    with place.lake.duck() as connection:
        wanted = connection.execute(f"SELECT {text}", values).to_arrow_table()
    assert place.ask(f"SELECT {text}", params=values) == bag(wanted)
    with pytest.raises(errors.BadArgument, match="parameter"):
        place.ask("SELECT $1", params=[object()])


def test_names_are_asked_once_for_what_is_read(place: Place) -> None:
    asked: list[QualifiedName] = []
    place.ask("WITH timed AS (SELECT 1) FROM timed", visible=lambda name: bool(asked.append(name)) or True)
    assert not asked
