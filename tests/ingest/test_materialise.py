"""One batch of one table, with Spark: appends, writes by key, changed columns, letters, others; DuckDB judges."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.clientserver import ClientServerConnection, JavaParameters, PythonParameters
from py4j.protocol import Py4JError

from lakemill.core.batch import Limits
from lakemill.errors import EngineLost, WrongType
from lakemill.lake.lookup import lookup
from lakemill.runtime import materialise as module
from lakemill.runtime import sifting
from lakemill.runtime.materialise import materialise
from lakemill.spark import bus
from tests.ingest.intake import Intake
from tests.ingest.requests import Record, marks, put, record


def ledger(intake: Intake) -> list[tuple[Any, ...]]:
    return intake.rows("SELECT first, token, snapshot_id, records, letters FROM lakemill.batches ORDER BY token")


def test_requests_become_one_snapshot_with_cursor_ledger_and_watermark(intake: Intake) -> None:
    table_id = intake.table("t", "k INTEGER, s VARCHAR")
    other = intake.table("u", "k INTEGER", by="k")
    assert materialise(intake.lake, table_id) is None
    intake.send("t", record("i", k=1, s="a"), record("i", k=2))
    intake.send("u", record("i", k=1), record("i", k=2), record("i", k=1))
    intake.send("t", record("i", k=3, s="ß"))
    passed = intake.make("t")
    assert (passed.first, passed.upto, passed.requests, passed.inserted) == (1, 3, 2, 3)
    assert intake.stock("FROM t ORDER BY k") == [(1, "a"), (2, None), (3, "ß")]
    assert ledger(intake) == [(1, 3, passed.snapshot_id, 3, 0)]
    assert marks(intake.lake.conn) == (1, 3)
    assert intake.lake.consumer.not_passed(3) == (other,)
    assert intake.lake.consumer.not_passed(1) == ()
    extra = intake.rows("SELECT commit_extra_info FROM ducklake_snapshot_changes ORDER BY snapshot_id DESC LIMIT 1")
    assert '"tokens": [1, 3]' in extra[0][0]
    intake.make("u")  # partitioned
    assert intake.stock("SELECT k, count(*) FROM u GROUP BY k ORDER BY k") == [(1, 2), (2, 1)]
    assert marks(intake.lake.conn) == (3, 3)
    assert materialise(intake.lake, table_id) is None
    assert intake.rows("SELECT holder FROM lakemill.ingest_tables WHERE holder IS NOT NULL") == []


@pytest.mark.parametrize(("kind", "few"), [("MAP(VARCHAR, INTEGER)", False), ("VARCHAR", True), ("VARCHAR", False)])
def test_writes_by_key_are_those_of_a_dictionary(
    intake: Intake, kind: str, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random batches against a model; stock DuckDB changes the table between them, and keeps inlined rows there.

    Few writes are looked up by DuckDB, many, or those of tables with maps, are compared by Spark: it is the same.
    """
    chance = random.Random(7)
    maps, asked = kind.startswith("MAP"), []
    if not few:
        monkeypatch.setattr(sifting, "FEW", 0 if not maps else sifting.FEW)
    monkeypatch.setattr(sifting, "lookup", lambda *given: (asked.append(1), lookup(*given))[1])
    intake.table("t", f"k INTEGER, g VARCHAR, v DOUBLE, m {kind}", key=["k", "g"], by="" if maps else "g")
    intake.lake.sql("CALL lake.set_option('data_inlining_row_limit', 10)")
    model: dict[tuple[int, str], tuple[float | None, str | None]] = {}
    for number in range(4):
        for _ in range(3):
            sent: list[Record] = []
            for _ in range(chance.randrange(1, 8)):
                key = (chance.randrange(6), chance.choice("ab"))
                if chance.random() < 0.3:
                    sent.append(record("d", k=key[0], g=key[1]))
                    model.pop(key, None)
                else:
                    v = chance.choice([None, 0.5, 1.5])
                    m: Any = [{"key": "x", "value": number}] if maps else f"{{x={number}}}"
                    sent.append(record(chance.choice("iu"), k=key[0], g=key[1], v=v, m=m))
                    model[key] = (v, f"{{x={number}}}")
            intake.send("t", *sent)
        intake.make("t")
        assert {(k, g): (v, m) for k, g, v, m in intake.stock("SELECT k, g, v, CAST(m AS VARCHAR) FROM t")} == model
        assert intake.stock("SELECT count(*) - count(DISTINCT (k, g)) FROM t") == [(0,)]
        if number == 1:  # another one of a key that is there, and one that is not
            intake.lake.sql("INSERT INTO t VALUES (0, 'a', 9, NULL), (100, 'a', 9, NULL)")
            model[100, "a"] = (9.0, None)
            intake.send("t", record("u", k=0, g="a", v=3))
            model[0, "a"] = (3.0, None)
    assert len(asked) >= 3 if few else not asked


def test_a_small_batch_by_key_is_three_jobs_at_most(intake: Intake) -> None:
    intake.table("t", "k INTEGER, v INTEGER", key=["k"])
    context = intake.lake.spark.sparkContext
    for number in range(3):
        intake.send("t", *(record("u", k=k, v=number) for k in range(number, number + 5)), record("d", k=number))
        context.setJobGroup(f"batch {number}", "")
        passed = intake.make("t")
        jobs = context.statusTracker().getJobIdsForGroup(f"batch {number}")
        assert len(jobs) <= 3, passed
    assert intake.stock("FROM t ORDER BY k") == [(3, 2), (4, 2), (5, 2), (6, 2)]


TEXTS = [
    "",
    "a",
    "A",
    "it's",
    "a\\b",
    "\\'",
    "%_",
    "é",
    "e\u0301",
    "ß",
    "\U0001f600",
    "n\u0000l",
    "tab\t",
    "\ufeffa",
    "x" * 300,
]


def test_keys_of_any_text_are_found_again(intake: Intake) -> None:
    intake.table("t", "k VARCHAR, v INTEGER", key=["k"])
    for number, texts in enumerate((TEXTS, TEXTS[::-1], TEXTS[3:4], TEXTS[11:12])):
        intake.send("t", *(record("u", k=text, v=number) for text in texts))
        passed = intake.make("t")
        assert (passed.inserted, passed.updated) == ((len(TEXTS), 0) if number == 0 else (0, len(texts)))
    intake.send("t", *(record("d", k=text) for text in TEXTS))
    assert intake.make("t").deleted == len(TEXTS)


def test_rows_that_are_so_already_are_left_alone(intake: Intake) -> None:
    intake.table("t", "k UUID, v VARCHAR", key=["k"])
    k = "00000000-0000-4000-8000-00000000000a"
    intake.send("t", record("u", k=k, v="x"))
    first = intake.make("t")
    ids = intake.stock("SELECT rowid FROM t")
    intake.send("t", record("d", k=k), record("u", k=k.upper(), v="x"))
    intake.send("t", record("d", k="00000000-0000-4000-8000-00000000000b"))
    passed = intake.make("t")
    assert (passed.snapshot_id, passed.inserted, passed.updated, passed.deleted) == (None, 0, 0, 0)
    assert [row[2] for row in ledger(intake)] == [first.snapshot_id, None]
    intake.send("t", record("u", k=k, v="y"))
    assert intake.make("t").updated == 1
    assert intake.stock("SELECT rowid FROM t") == ids


def test_records_that_were_accepted_for_other_columns(intake: Intake) -> None:
    intake.table("t", "k INTEGER, gone VARCHAR, old VARCHAR, n TINYINT, s STRUCT(a INTEGER, b INTEGER)")
    intake.table("d", "k INTEGER, gone VARCHAR", policy="drop_field")
    before, dropping = intake.columns("t"), intake.columns("d")
    for change in (
        "ALTER TABLE t DROP COLUMN gone",
        "ALTER TABLE t RENAME COLUMN old TO new",
        "ALTER TABLE t ALTER n TYPE INTEGER",
        "ALTER TABLE t ADD COLUMN x INTEGER DEFAULT 5",
        "ALTER TABLE t DROP COLUMN s.b",
        "ALTER TABLE d DROP COLUMN gone",
    ):
        intake.lake.sql(change)
    token = intake.send(
        "t",
        record("i", k=1, old="kept", n=127, s={"a": 1}),
        record("i", k=2, gone="x"),
        record("i", k=3, s={"a": 1, "b": 2}),
        record("i", k=4, new="n", x=None),
        columns=before,
    )
    intake.send("d", record("i", k=1, gone="x"), columns=dropping)
    assert intake.make("t").letters == 2
    assert intake.stock("SELECT k, new, n, x, s.a FROM t ORDER BY k") == [
        (1, "kept", 127, 5, 1),
        (4, "n", None, None, None),
    ]
    assert [letter[:4] for letter in intake.letters()] == [
        (token, 1, "UNKNOWN_COLUMN", "gone"),
        (token, 2, "UNKNOWN_COLUMN", "s.b"),
    ]
    intake.make("d")
    assert intake.stock("FROM d") == [(1,)]


def test_a_name_that_is_another_columns_by_now(intake: Intake) -> None:
    """A column is its id: what was accepted for one that is gone is no value of another that has its name."""
    intake.table("t", "k INTEGER, v VARCHAR, s STRUCT(a INTEGER, b INTEGER)")
    intake.table("d", "k INTEGER, v VARCHAR", policy="drop_field")
    before, dropping = intake.columns("t"), intake.columns("d")
    first = intake.send("t", record("i", k=1, v="5"), record("i", k=2), record("i", k=3, s={"a": 1}))
    intake.send("d", record("i", k=1, v="5"))
    for change in (
        "ALTER TABLE t DROP COLUMN v",
        "ALTER TABLE t ADD COLUMN v INTEGER DEFAULT 7",
        "ALTER TABLE t DROP COLUMN s.a",
        "ALTER TABLE t ADD COLUMN s.a VARCHAR",
        "ALTER TABLE d DROP COLUMN v",
        "ALTER TABLE d ADD COLUMN v INTEGER DEFAULT 7",
    ):
        intake.lake.sql(change)
    late = intake.send("t", record("i", k=4, v="6"), columns=before)  # by a process that did not know yet
    new = intake.send("t", record("i", k=5, v=50), record("i", k=6, s={"a": "x"}))
    intake.send("d", record("i", k=2, v="6"), columns=dropping)
    intake.send("d", record("i", k=3, v=50))
    old = intake.make("t")
    assert (old.upto, old.inserted, old.letters) == (late, 1, 3)
    newer = intake.make("t")
    assert (newer.first, newer.inserted, newer.letters) == (new, 2, 0)
    assert intake.stock("SELECT k, v, s.a FROM t ORDER BY k") == [(2, 7, None), (5, 50, None), (6, None, "x")]
    assert [letter[:4] for letter in intake.letters()] == [
        (first, 0, "UNKNOWN_COLUMN", "v"),
        (first, 2, "UNKNOWN_COLUMN", "s"),
        (late, 0, "UNKNOWN_COLUMN", "v"),
    ]
    intake.make("d")
    intake.make("d")
    assert intake.stock("FROM d ORDER BY k") == [(1, 7), (2, 7), (3, 50)]


def test_names_that_were_exchanged(intake: Intake) -> None:
    intake.table("t", "k INTEGER, a VARCHAR, b VARCHAR, s STRUCT(x INTEGER)")
    intake.send("t", record("i", k=1, a="of a", b="of b", s={"x": 1}), record("i", k=2, b="only b"))
    for change in ("a TO c", "b TO a", "c TO b", "s TO r"):
        intake.lake.sql(f"ALTER TABLE t RENAME COLUMN {change}")
    assert intake.make("t").letters == 0
    assert intake.stock("SELECT k, a, b, r.x FROM t ORDER BY k") == [(1, "of b", "of a", 1), (2, "only b", None, None)]


def test_a_value_that_must_be_there(intake: Intake) -> None:
    intake.table("t", "k INTEGER, v INTEGER NOT NULL", key=["k"])
    token = intake.send(
        "t",
        record("u", k=1, v=1),
        record("u", k=2, v=None),
        record("u", v=3),
        record("d", k=1),
        record("x", k=5, v=5),
        record("d"),
    )
    intake.make("t")
    assert intake.stock("FROM t") == []
    assert [letter[:4] for letter in intake.letters()] == [
        (token, 1, "NO_VALUE", "v"),
        (token, 2, "NO_VALUE", "k"),
        (token, 4, "BAD_RECORD", "o"),
        (token, 5, "NO_VALUE", "k"),
    ]


def test_what_nobody_foresaw_is_found_by_halves(intake: Intake) -> None:
    """Keys of a map that are the same only as numbers: tried a few times, then looked for."""
    table_id = intake.table("t", "k INTEGER, m MAP(INTEGER, INTEGER)")
    bad = [{"key": "1", "value": 1}, {"key": "01", "value": 2}]
    for number in range(2):
        intake.send("t", *(record("i", k=10 * number + i, m=bad if (number, i) == (1, 1) else []) for i in range(3)))
    for attempt in (1, 2):
        assert materialise(intake.lake, table_id) is None
        found = intake.rows("SELECT attempts, cursor, reason FROM lakemill.ingest_tables")[0]
        assert found[:2] == (attempt, 0)
        assert "DUPLICATED_MAP_KEY" in found[2] or "WRONG_TYPE" in found[2]
        assert marks(intake.lake.conn)[0] == 0
        intake.over()
    passed = intake.make("t")
    assert (passed.inserted, passed.letters) == (5, 1)
    assert [letter[:3] for letter in intake.letters()] == [(2, 1, "WRONG_TYPE")]
    assert intake.rows("SELECT attempts, reason FROM lakemill.ingest_tables") == [(0, "")]


def test_a_table_that_is_gone_leaves_letters(intake: Intake) -> None:
    table_id = intake.table("t", "k INTEGER")
    intake.send("t", record("i", k=1), record("i", k=2))
    intake.lake.sql("DROP TABLE t")
    intake.lake.sql("CREATE TABLE t (k INTEGER)")
    passed = materialise(intake.lake, table_id)
    assert passed is not None
    assert passed.letters == 2
    assert [letter[:3] for letter in intake.letters()] == [(1, 0, "TABLE_GONE"), (1, 1, "TABLE_GONE")]
    assert marks(intake.lake.conn) == (1, 1)


@pytest.mark.parametrize("key", [(), ("k",)])
def test_others_write_and_alter_meanwhile(
    intake: Intake, key: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between Spark's work and the publish: an append stands, what was compared with the table is planned again."""
    intake.table("t", "k INTEGER, v INTEGER", key=key)
    intake.lake.sql("INSERT INTO t VALUES (1, 1)")
    intake.send("t", record("i", k=1, v=10), record("i", k=2, v=20))
    publish, met = module._publish, []

    def disturbed(*words: Any) -> Any:
        if not met:
            met.append(True)
            intake.lake.sql("UPDATE t SET v = 5")
            if not key:
                intake.lake.sql("ALTER TABLE t ADD COLUMN w INTEGER")
        return publish(*words)

    monkeypatch.setattr(module, "_publish", disturbed)
    intake.make("t")
    found = intake.stock("SELECT k, v FROM t ORDER BY k, v")
    assert found == ([(1, 10), (2, 20)] if key else [(1, 5), (1, 10), (2, 20)])


def test_large_batches_are_cut_and_read_by_several_tasks(intake: Intake) -> None:
    table_id = intake.table("t", "k INTEGER, s VARCHAR")
    lines = [[f'{{"o":"i","p":{{"k":{100 * r + i},"s":"{"x" * 50}"}}}}' for i in range(100)] for r in range(30)]
    put(intake.lake.conn, table_id, lines)
    held = intake.lake.consumer.claim(table_id, "me", intake.lake.settings.ingest.claim_expiry)
    assert held is not None
    batch = intake.lake.consumer.read(held, Limits(25, 10**6, 10**6, 40_000))
    assert batch is not None
    assert (batch.upto, batch.records) == (25, 2500)
    assert len(batch.parts) > 3
    layout = bus.Layout(intake.columns("t"), checked=True)
    frame = bus.requests(intake.lake.spark, intake.lake.consumer, table_id, batch.parts)
    assert bus.sound(bus.judged(frame, layout), layout).selectExpr("sum(k)").collect()[0][0] == sum(range(2500))
    assert not isinstance(bus.refusal(bus.sound(bus.judged(frame, layout), layout), layout, 1, 25, 0, 99), WrongType)


def test_many_letters_are_written_by_several_batches(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (module, sifting):
        monkeypatch.setattr(place, "LETTERS", 3)
    table_id = intake.table("t", "k INTEGER")
    for number in range(3):
        intake.send("t", record("i", k="x"), record("i", k="y"), record("i", k=number))
    first = intake.make("t")
    assert (first.requests, first.letters) == (1, 2)
    while materialise(intake.lake, table_id):
        pass
    assert len(intake.letters()) == 6
    assert intake.stock("FROM t ORDER BY k") == [(0,), (1,), (2,)]


def test_a_key_column_that_was_renamed(intake: Intake) -> None:
    intake.table("t", "k INTEGER, v INTEGER", key=["k"])
    before = intake.columns("t")
    intake.lake.sql("ALTER TABLE t RENAME COLUMN k TO id")
    intake.send("t", record("u", k=1, v=1), record("u", k=1, v=2), columns=before)
    intake.send("t", record("u", id=2, v=3), record("d", id=1))
    intake.make("t")
    assert intake.stock("FROM t") == [(2, 3)]


def test_an_executor_without_postgresql_is_no_reason_to_start_spark_anew(intake: Intake) -> None:
    table_id = intake.table("t", "k INTEGER")
    intake.send("t", record("i", k=1))
    right, intake.lake.dsn = intake.lake.dsn, "host=/nowhere dbname=lakemill"
    assert materialise(intake.lake, table_id) is None
    ((reason,),) = intake.rows("SELECT reason FROM lakemill.ingest_tables")
    assert reason.startswith("STORE_UNAVAILABLE: an executor has no PostgreSQL: connection")
    intake.lake.dsn = right
    intake.over()
    assert intake.make("t").inserted == 1


def _no_class(*_: object) -> None:
    """As Py4J says it of the numbers that a job counted, when the JVM was killed right after the job."""
    raise Py4JError("org.apache.spark.sql.api.python.PythonSQLUtils does not exist in the JVM")


def _no_answer(*_: object) -> None:
    """As it says it of anything, where it needs another connection."""
    ClientServerConnection(
        JavaParameters(port=1), PythonParameters(), SimpleNamespace(pool=None), None
    ).connect_to_java_server()


@pytest.mark.parametrize("gone", [_no_class, _no_answer])
def test_a_jvm_that_is_gone_in_other_words(intake: Intake, gone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table_id = intake.table("t", "k INTEGER")
    intake.send("t", record("i", k=1))
    monkeypatch.setattr(sifting.Sifting, "appended", gone)
    with pytest.raises(EngineLost):
        materialise(intake.lake, table_id)
    ((reason, holder),) = intake.rows("SELECT reason, holder FROM lakemill.ingest_tables")
    assert (reason.partition(":")[0], holder) == ("ENGINE_LOST", None)
