"""Requests: tokens in order, repetitions that write nothing, policies for what does not fit, letters, tables."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from lakemill.core.bus import Backlog
from lakemill.core.names import parse_name
from lakemill.core.receipts import later, read_token, write_token
from lakemill.errors import (
    Backlogged,
    BadArgument,
    BadRecords,
    BadToken,
    HasDependents,
    IdempotencyConflict,
    NoIngestTable,
    RequestsPending,
    RequestTooLarge,
    Stopped,
    TableExists,
    TokenOfAnotherLake,
    UnknownTable,
    UnsupportedType,
)
from lakemill.lake.tables import Declared, DropColumn, Rename, parse_columns
from lakemill.runtime import ingest_tables
from lakemill.runtime.accept import Gate
from lakemill.runtime.bodies import NDJSON, Given, parse
from lakemill.runtime.ingest import Ingest
from lakemill.settings import IngestSettings
from lakemill.store import db
from lakemill.store import ingest as store
from lakemill.store.bus import PostgresBus
from lakemill.telemetry import metrics
from tests.accept.conftest import MakeTable, number, rows, waiting
from tests.conftest import TestLake


# ---------------------------------------------------------------- tokens and keys
def test_tokens_follow_each_other_and_lines_are_canonical(ingest: Ingest, table: MakeTable) -> None:
    name = (orders := table()).name
    first = ingest.ingest(name, rows({"price": 1.5, "id": 1}, {"id": 2, "note": None}))
    second = ingest.ingest(name, rows({"id": 3}))
    assert (first.accepted, first.duplicate, first.rejected, first.status) == (2, 0, 0, "accepted")
    assert number(ingest, second) == number(ingest, first) + 1
    assert waiting(ingest, orders) == [
        {"id": 1, "price": "1.50", "note": "none"},
        {"id": 2, "note": None},
        {"id": 3, "note": "none"},
    ]


def test_a_wait_for_duplicates_counts_no_letters_of_others(shared: TestLake, ingest: Ingest, table: MakeTable) -> None:
    """What came first may be in the dead letters: the answer counts what is its own, and does not say visible."""
    name = table(policy="dead_letter").name
    good, bad, other = ({"id": 1}, "good"), ({"id": "x"}, "bad"), ({"id": "y"}, "other")
    with Ingest(shared.settings, wait=lambda *_: True) as waits:
        first = waits.ingest(name, rows(good, bad, other, wait_for_visibility=True))
        assert (first.status, first.accepted, first.duplicate, first.rejected) == ("accepted", 1, 0, 2)
        again = waits.ingest(name, rows(bad, wait_for_visibility=True))
        assert (again.status, again.accepted, again.duplicate, again.rejected) == ("partial_duplicate", 0, 1, 0)
        assert again.token == first.token
        more = waits.ingest(name, rows(bad, ({"id": 2}, "more"), wait_for_visibility=True))
        assert (more.status, more.accepted, more.duplicate, more.rejected) == ("partial_duplicate", 1, 1, 0)
        fine = waits.ingest(name, rows(({"id": 2}, "more"), ({"id": 3}, "fine"), wait_for_visibility=True))
        assert (fine.status, fine.accepted, fine.duplicate, fine.rejected) == ("visible", 1, 1, 0)
        keyed = waits.ingest(name, rows(bad, key="k", wait_for_visibility=True))
        repeated = waits.ingest(name, rows(bad, key="k", wait_for_visibility=True))
        assert (repeated.status, repeated.accepted, repeated.token) == ("partial_duplicate", 0, keyed.token)


def test_a_repeated_request_is_told_the_same(ingest: Ingest, table: MakeTable) -> None:
    name = (orders := table()).name
    first = ingest.ingest(name, rows({"id": 1, "price": "2.50"}, {"id": 2}, key="k"))
    ingest.ingest(name, rows({"id": 3}))
    again = ingest.ingest(name, rows({"price": 2.5, "id": 1}, {"id": 2}, key="k"))
    assert (again.token, again.accepted, again.repeated) == (first.token, 2, True)
    with pytest.raises(IdempotencyConflict, match="another request"):
        ingest.ingest(name, rows({"id": 1}, key="k"))
    other = table()
    assert not ingest.ingest(other.name, rows({"id": 1}, key="k")).repeated, "keys belong to a table"
    assert len(waiting(ingest, orders)) == 3


def test_records_have_keys_of_their_own(ingest: Ingest, table: MakeTable) -> None:
    name = (orders := table()).name
    a, b, c = (({"id": n}, f"r{n}") for n in range(3))
    first = ingest.ingest(name, rows(a, b))
    part = ingest.ingest(name, rows(b, c, c))
    assert (part.status, part.accepted, part.duplicate) == ("partial_duplicate", 1, 2)
    assert number(ingest, part) == number(ingest, first) + 1, "the maximum of original and new"
    whole = ingest.ingest(name, rows(b, a))
    assert (whole.token, whole.accepted, whole.duplicate) == (first.token, 0, 2)
    with pytest.raises(IdempotencyConflict) as caught:
        ingest.ingest(name, rows({"id": 9}, ({"id": 7}, "r1")))
    assert caught.value.place == "records[1].idempotency_key"
    assert [row["id"] for row in waiting(ingest, orders)] == [0, 1, 2], "the refused request left nothing"


def test_keys_are_forgotten_after_their_window(ingest: Ingest, table: MakeTable) -> None:
    name = (orders := table(dedupe=timedelta(hours=1))).name
    first = ingest.ingest(name, rows(({"id": 1}, "r"), key="k"))
    for kind in ("request", "record"):
        ingest.lake.conn.execute(f"UPDATE lakemill.{kind}_keys SET accepted_at = now() - interval '2 hours'")
    second = ingest.ingest(name, rows(({"id": 1}, "r"), key="k"))  # before anybody removed the old keys
    assert number(ingest, second) > number(ingest, first)
    assert ingest.ingest(name, rows(({"id": 1}, "r"), key="k")).token == second.token
    ingest.lake.conn.execute("UPDATE lakemill.record_keys SET accepted_at = now() - interval '2 hours'")
    with db.connect(ingest.lake.dsn) as conn:
        PostgresBus(lambda: conn).forget()
    left = ingest.lake.conn.execute(
        "SELECT (SELECT count(*) FROM lakemill.record_keys WHERE table_id = %(t)s),"
        " (SELECT count(*) FROM lakemill.request_keys WHERE table_id = %(t)s)",
        {"t": orders.table_id},
    ).fetchone()
    assert left == (0, 1)


def test_tokens_as_text(ingest: Ingest) -> None:
    token = write_token(ingest.lake_id, 12)
    assert read_token(ingest.lake_id, f" {token} ") == 12
    assert later(None, token) == token == later(write_token(ingest.lake_id, 9), token)
    for wrong in ("", "12", token[:-1] + ("0" if token[-1] != "0" else "1"), token.replace("-12-", "-13-")):
        with pytest.raises(BadToken):
            read_token(ingest.lake_id, wrong)
    other = type(ingest.lake_id)(int=ingest.lake_id.int ^ (1 << 127))
    with pytest.raises(TokenOfAnotherLake):
        read_token(other, token)


# ---------------------------------------------------------------- policies
BAD = {"id": "x"}


def test_reject_refuses_all_and_names_the_bad(ingest: Ingest, table: MakeTable) -> None:
    orders = table()
    with pytest.raises(BadRecords) as caught:
        ingest.ingest(orders.name, rows({"id": 1}, BAD, *[{"id": n, "what": 1} for n in range(30)]))
    assert caught.value.place == "records[1].payload.id"
    assert caught.value.faults[:2] == (
        "records[1].payload.id: expected a BIGINT, got 'x'",
        "records[2].payload.what: the table has no such column",
    )
    assert len(caught.value.faults) == ingest.settings.named_faults
    assert waiting(ingest, orders) == []


def test_dead_letter_keeps_the_bad_aside(ingest: Ingest, table: MakeTable) -> None:
    orders = table(policy="dead_letter")
    answer = ingest.ingest(orders.name, rows({"id": 1}, (BAD, "bad key"), {"id": 2}, key="k"))
    assert (answer.accepted, answer.rejected) == (2, 1)
    assert answer.faults == ("records[1].payload.id: expected a BIGINT, got 'x'",)
    (letter,) = store.letters(ingest.lake.conn, tables=[orders.table_id])
    assert (letter.token, letter.position, letter.place) == (number(ingest, answer), 1, "records[1].payload.id")
    ingest.lake.conn.execute(  # the line at the same place, should it not become a row
        "INSERT INTO lakemill.dead_letters (table_id, token, position, body, code, reason, state)"
        " VALUES (%s, %s, 1, '', '', '', 'dropped')",
        (orders.table_id, letter.token),
    )
    assert json.loads(letter.body) == {"payload": BAD, "idempotency_key": "bad key"}
    assert ingest.ingest(orders.name, rows({"id": 1}, (BAD, "bad key"), {"id": 2}, key="k")).token == answer.token
    once = ingest.ingest(orders.name, rows((BAD, "bad key")))
    assert (once.rejected, once.duplicate, once.token) == (0, 1, answer.token), "no second letter of it"
    only_bad = ingest.ingest(orders.name, rows(BAD))
    assert (only_bad.accepted, only_bad.rejected) == (0, 1)
    assert number(ingest, only_bad) == number(ingest, answer) + 1
    assert len(waiting(ingest, orders)) == 2


def test_drop_field_drops_what_is_unknown_and_refuses_what_is_wrong(ingest: Ingest, table: MakeTable) -> None:
    orders = table(policy="drop_field")
    ingest.ingest(orders.name, rows({"id": 1, "what": [1]}))
    with pytest.raises(BadRecords):
        ingest.ingest(orders.name, rows(BAD))
    assert waiting(ingest, orders) == [{"id": 1, "note": "none"}]


def test_evolve_adds_and_widens(ingest: Ingest, table: MakeTable) -> None:
    orders = table("id BIGINT, n SMALLINT, f FLOAT", policy="evolve")
    sent = rows(
        {"id": 1, "n": 70_000, "a": 1, "b": True, "c": "x", "d": {"k": 1}, "e": 1, "g": None, "big": 2**70},
        {"id": 2, "n": 5, "a": 1.5, "c": 5, "f": 1e300, "e": 2, "A b": "x"},
    )
    assert ingest.ingest(orders.name, sent).accepted == 2
    columns = {c.name: c.type for c in ingest.lake.table(str(orders.name)).describe().columns}
    assert columns == {
        "id": "int64", "n": "int32", "f": "float64", "a": "float64", "b": "boolean", "c": "json", "d": "json",
        "e": "int64", "A b": "varchar", "big": "decimal(38,0)",
    }  # fmt: skip
    first, second = waiting(ingest, orders)
    assert (first["n"], first["c"], first["d"], first["big"]) == (70_000, '"x"', '{"k":1}', str(2**70))
    assert (second["a"], second["c"], second["f"]) == (1.5, "5", 1e300)
    with pytest.raises(BadRecords, match="did you mean id"):
        ingest.ingest(orders.name, rows({"ID": 1}))
    with pytest.raises(BadRecords):
        ingest.ingest(orders.name, rows({"id": 1, "n": "not a number"}))


def test_evolving_at_the_same_time_is_safe(ingest: Ingest, table: MakeTable, shared: TestLake) -> None:
    orders = table("id BIGINT", policy="evolve")
    with Ingest(shared.settings) as other, ThreadPoolExecutor(4) as threads:
        sent = [
            threads.submit(one.ingest, orders.name, rows({"id": n, "same": n, f"own{n}": "x"}))
            for n, one in enumerate((ingest, other, ingest, other))
        ]
        assert sum(future.result().accepted for future in sent) == 4
    columns = [c.name for c in ingest.lake.table(str(orders.name)).describe().columns]
    assert sorted(columns) == ["id", "own0", "own1", "own2", "own3", "same"]
    assert sorted(row["same"] for row in waiting(ingest, orders)) == [0, 1, 2, 3]


def test_a_repetition_is_known_although_the_table_changed(ingest: Ingest, table: MakeTable) -> None:
    orders = table()
    sent = rows({"id": 1, "note": "x"}, key="k")
    first = ingest.ingest(orders.name, sent)
    ingest_tables.alter(ingest.lake, orders.name, [DropColumn("note"), Rename("price", "amount")])
    ingest.codecs.forget(orders.name)
    again = ingest.ingest(orders.name, sent)
    assert (again.token, again.repeated) == (first.token, True)
    with pytest.raises(BadRecords):
        ingest.ingest(orders.name, rows({"id": 1, "note": "x"}, key="another"))
    with pytest.raises(IdempotencyConflict):
        ingest.ingest(orders.name, rows({"id": 1, "note": "y"}, key="k"))


def test_new_columns_are_known_at_once(ingest: Ingest, table: MakeTable) -> None:
    orders = table()
    ingest.ingest(orders.name, rows({"id": 1}))
    ingest.lake.sql(f"ALTER TABLE {orders.name} ADD COLUMN more INTEGER DEFAULT 3")
    ingest.ingest(orders.name, rows({"id": 1, "more": 2}))
    ingest.ingest(orders.name, rows({"id": 1}))
    assert [row.get("more") for row in waiting(ingest, orders)] == [None, 2, 3]


def test_a_request_that_is_refused_makes_no_columns(ingest: Ingest, table: MakeTable) -> None:
    orders = table("id BIGINT NOT NULL, n SMALLINT, at TIMESTAMPTZ NOT NULL DEFAULT now()", policy="evolve")
    good = {"id": 1, "n": 70_000, "new": {"a": 1}, "nothing": None}
    with pytest.raises(BadRecords) as refused:
        ingest.ingest(orders.name, rows(good, {"id": "x", "new": 1}, {"n": 1}))
    assert refused.value.faults == (
        "records[1].payload.id: expected a BIGINT, got 'x'",
        "records[2].payload.id: missing; expected a BIGINT",
    )
    assert [column.type for column in ingest.lake.table(str(orders.name)).describe().columns] == [
        "int64",
        "int16",
        "timestamptz",
    ]
    assert ingest.ingest(orders.name, rows(good)).accepted == 1
    assert [column.type for column in ingest.lake.table(str(orders.name)).describe().columns] == [
        "int64",
        "int32",
        "timestamptz",
        "json",
    ]


def test_deletes_make_no_columns(ingest: Ingest, table: MakeTable) -> None:
    orders = table(policy="evolve", key=["id"])
    with pytest.raises(BadRecords):
        ingest.ingest(orders.name, parse(b'{"id": 1, "why": "x"}\n{"id": "x"}', NDJSON, most=100, op="delete"))
    assert [column.name for column in ingest.codecs.get(orders.name, fresh=True).table.columns] == [
        "id",
        "price",
        "note",
    ]


# ---------------------------------------------------------------- letters
def test_a_replay_is_a_new_write_that_marks_its_letter(ingest: Ingest, table: MakeTable) -> None:
    orders = table(policy="dead_letter")
    answer = ingest.ingest(orders.name, rows(({"id": 1, "extra": 1}, "r"), (BAD, "s")))
    wrong, unknown = store.letters(ingest.lake.conn, tables=[orders.table_id])
    with pytest.raises(BadRecords, match="got 'x'"):
        ingest.replay(wrong.id)
    fixed = ingest.replay(wrong.id, b'{"id": 7}')
    assert (fixed.accepted, number(ingest, fixed)) == (1, number(ingest, answer) + 1)
    assert store.letter(ingest.lake.conn, wrong.id).replayed == number(ingest, fixed)
    with pytest.raises(BadArgument, match="replayed already"):
        ingest.replay(wrong.id, b'{"id": 7}')
    ingest_tables.alter(ingest.lake, orders.name, [Declared("extra", "INTEGER")])
    assert ingest.replay(unknown.id).accepted == 1
    assert [(row["id"], row.get("extra")) for row in waiting(ingest, orders)] == [(7, None), (1, 1)]


@pytest.mark.parametrize("columns", ["id BIGINT, note VARCHAR", "id BIGINT, payload VARCHAR"])
def test_a_letter_knows_what_its_row_was_meant_to_do(ingest: Ingest, table: MakeTable, columns: str) -> None:
    """A row of a request of deletes that is corrected deletes; it inserts nothing."""
    orders = table(columns, policy="dead_letter", key=["id"])
    for op, row in (("delete", b'{"id": "x"}'), ("upsert", b'{"id": []}'), ("delete", b"no JSON"), ("insert", b"{}")):
        assert ingest.ingest(orders.name, parse(row, NDJSON, most=100, op=op)).rejected == 1  # type: ignore[arg-type]
    for number_, letter in enumerate(reversed(store.letters(ingest.lake.conn, tables=[orders.table_id]))):
        ingest.replay(letter.id, b'{"id": %d}' % number_)
    bodies = ingest.lake.conn.execute(
        "SELECT body FROM lakemill.bus WHERE table_id = %s ORDER BY token", (orders.table_id,)
    ).fetchall()
    assert [json.loads(body)["o"] for (body,) in bodies] == ["d", "u", "d", "i"]


def test_a_new_key_that_must_wait_leaves_the_columns(ingest: Ingest, table: MakeTable) -> None:
    orders = table(key=["id"])
    ingest.ingest(orders.name, rows({"id": 1}))
    with pytest.raises(RequestsPending):
        ingest_tables.alter(ingest.lake, orders.name, [Declared("more", "INTEGER")], key=[])
    with pytest.raises(BadRecords, match="no such column"):
        ingest.ingest(orders.name, rows({"id": 1, "more": 1}))


def test_one_of_two_replays_wins(ingest: Ingest, table: MakeTable) -> None:
    orders = table(policy="dead_letter")
    ingest.ingest(orders.name, rows(BAD))
    (letter,) = store.letters(ingest.lake.conn, tables=[orders.table_id])

    def replay() -> bool:
        try:
            return bool(ingest.replay(letter.id, b'{"id": 1}').accepted)
        except BadArgument:
            return False

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(lambda _: replay(), range(4))) == [False, False, False, True]
    assert len(waiting(ingest, orders)) == 1


def test_a_letter_of_the_bus_is_read_back(ingest: Ingest, table: MakeTable) -> None:
    """What failed when it should have become a row was kept as a line of the bus."""
    orders = table("id BIGINT, j JSON, s STRUCT(d JSON), m MAP(VARCHAR, JSON), l JSON[]", key=["id"])
    payload = {"id": 1, "j": {"a": 1}, "s": {"d": [1]}, "m": {"k": "v"}, "l": [{"x": 1}, None]}
    ingest.ingest(orders.name, rows(payload))
    (line,) = ingest.lake.conn.execute(
        "SELECT body FROM lakemill.bus WHERE table_id = %s", (orders.table_id,)
    ).fetchall()
    ingest.lake.conn.execute(
        "INSERT INTO lakemill.dead_letters (table_id, token, position, body, code, reason)"
        " VALUES (%s, 1, 0, %s, '', '')",
        (orders.table_id, line[0]),
    )
    (letter,) = store.letters(ingest.lake.conn, tables=[orders.table_id])
    ingest.replay(letter.id)
    before, after = waiting(ingest, orders)
    assert before == after


# ---------------------------------------------------------------- limits
def test_too_many_records(ingest: Ingest, table: MakeTable) -> None:
    given = Given([b'{"id":1}'] * (ingest.settings.max_records + 1))
    with pytest.raises(RequestTooLarge):
        ingest.ingest(table().name, given)


def test_what_was_sent_is_counted(ingest: Ingest, table: MakeTable) -> None:
    def counted() -> tuple[float, ...]:
        of = metrics.REGISTRY.get_sample_value
        codes = ("BAD_RECORDS", "IDEMPOTENCY_CONFLICT", "REQUEST_TOO_LARGE")
        rejected = (of("lakemill_ingest_rejected_total", {"code": code}) or 0.0 for code in codes)
        return (
            of("lakemill_ingest_accepted_total") or 0.0,
            of("lakemill_ingest_duplicates_total") or 0.0,
            *rejected,
        )

    before = counted()
    name, letters = table().name, table(policy="dead_letter").name
    ingest.ingest(name, rows({"id": 1}, {"id": 2}, key="k"))
    ingest.ingest(name, rows({"id": 1}, {"id": 2}, key="k"))
    ingest.ingest(name, rows(({"id": 3}, "a"), ({"id": 4}, "b")))
    ingest.ingest(name, rows(({"id": 3}, "a"), ({"id": 5}, "c")))
    ingest.ingest(letters, rows({"id": "x"}, {"id": 1}))
    for wrong, payloads in ((BadRecords, [{"id": "x"}, {"id": 1}]), (IdempotencyConflict, [{"id": 9}])):
        with pytest.raises(wrong):
            ingest.ingest(name, rows(*payloads, key="k" if wrong is IdempotencyConflict else None))
    with pytest.raises(RequestTooLarge):
        ingest.ingest(name, Given([b"{}"] * 20_001))
    grown = [now - then for now, then in zip(counted(), before, strict=True)]
    assert grown == [2 + 2 + 1 + 1, 2 + 1, 1 + 2, 1, 20_001]


def test_what_waits_is_told(ingest: Ingest, table: MakeTable) -> None:
    ingest.ingest(table().name, rows({"id": 1}))
    until = time.monotonic() + 30
    while not metrics.REGISTRY.get_sample_value("lakemill_ingest_backlog_records") and time.monotonic() < until:
        time.sleep(0.05)
    of = metrics.REGISTRY.get_sample_value
    assert min(of(f"lakemill_ingest_backlog_{unit}") or 0.0 for unit in ("records", "bytes", "seconds")) > 0


def test_the_gate_shuts_at_its_limits_and_opens_below_them() -> None:
    gate = Gate(IngestSettings(backlog_records=100, backlog_age=timedelta(seconds=10)))
    seen = []
    for backlog in (Backlog(1, 100), Backlog(1, 101), Backlog(1, 90), Backlog(1, 80), Backlog(1, 1, 1, 10.5)):
        gate.look(backlog)
        seen.append(gate.reason is None)
    assert seen == [True, False, False, True, False]


def test_requests_are_turned_away_while_too_much_waits(shared: TestLake, ingest: Ingest, table: MakeTable) -> None:
    orders = table()
    settings = shared.settings.model_copy(update={"ingest": IngestSettings(backlog_records=3)})
    with Ingest(settings) as narrow:
        narrow.ingest(orders.name, rows(*[{"id": n} for n in range(4)]))
        turned_away = None
        for _ in range(100):
            try:
                narrow.ingest(orders.name, rows({"id": 9}))
            except Backlogged as error:
                turned_away = error
                break
            threading.Event().wait(0.05)
        assert turned_away is not None
        assert turned_away.wait > 0
        assert "records" in turned_away.message
    with pytest.raises(Stopped):
        narrow.ingest(orders.name, rows({"id": 9}))


# ---------------------------------------------------------------- tables
def test_what_a_table_must_be(ingest: Ingest, table: MakeTable) -> None:
    lake, orders = ingest.lake, table(key=["ID"])
    assert orders.key == ("id",), "the table's spelling"
    with pytest.raises(TableExists):
        ingest_tables.create(lake, orders.name, parse_columns("id BIGINT"))
    for wrong in ("id INTERVAL", "id UNION(a INTEGER)", "id", "id BIGINT PRIMARY KEY", ""):
        with pytest.raises((UnsupportedType, BadArgument)):
            parse_columns(wrong)
    with pytest.raises(BadArgument, match="compared"):
        ingest_tables.create(lake, parse_name("refused"), parse_columns("id DOUBLE"), key=["id"])
    assert ingest_tables.find_lake_table(lake, parse_name("refused")) is None, "what is refused leaves nothing"
    with pytest.raises(UnknownTable):
        ingest.ingest(parse_name("nothing"), rows({}))


def test_a_table_that_is_there_is_adopted(ingest: Ingest) -> None:
    lake, name = ingest.lake, parse_name("adopted")
    lake.sql("CREATE TABLE adopted AS SELECT 1 AS id UNION ALL SELECT 1")
    with pytest.raises(NoIngestTable, match="--adopt"):
        ingest.ingest(name, rows({"id": 1}))
    with pytest.raises(BadArgument, match="no key"):
        ingest_tables.create(lake, name, adopt=True, key=["id"])
    ingest_tables.create(lake, name, adopt=True)
    assert ingest_tables.create(lake, name, adopt=True).key == (), "once more is no harm"
    lake.sql("DELETE FROM adopted")
    with pytest.raises(TableExists, match="takes requests already"):
        ingest_tables.create(lake, name, adopt=True, key=["id"])
    lake.sql("INSERT INTO adopted VALUES (1), (1)")
    assert ingest.ingest(name, rows({"id": 1})).accepted == 1
    ingest_tables.drop(lake, name, force=True, keep=True)
    assert lake.table("adopted").count() == 2
    with pytest.raises(NoIngestTable):
        ingest.ingest(name, rows({"id": 1}))


def test_altering(ingest: Ingest, table: MakeTable) -> None:
    lake, orders = ingest.lake, table(key=["id"])
    with pytest.raises(BadArgument, match="part of the key"):
        ingest_tables.alter(lake, orders.name, [DropColumn("id")])
    changed = ingest_tables.alter(lake, orders.name, [Rename("id", "ident"), DropColumn("note"), Declared("x", "DATE")])
    assert changed.key == ("ident",)
    ingest.ingest(orders.name, rows({"ident": 1, "x": "2026-01-01"}))
    with pytest.raises(RequestsPending):
        ingest_tables.alter(lake, orders.name, key=["x"])
    lake.conn.execute("UPDATE lakemill.ingest_tables SET cursor = %s", (ingest.head().token,))
    ingest_tables.alter(lake, orders.name, key=["x"])
    with pytest.raises(BadRecords, match="x: missing"):  # at once, although the codec at hand knows the old key
        ingest.ingest(orders.name, rows({"ident": 1}))
    lake.sql(f"DROP TABLE {orders.name}")
    lake.sql(f"CREATE TABLE {orders.name} (other INTEGER)")
    ingest_tables.create(lake, orders.name, adopt=True)
    assert ingest.ingest(orders.name, rows({"other": 1})).accepted == 1


def test_dropping(ingest: Ingest, table: MakeTable) -> None:
    lake, orders = ingest.lake, table()
    answer = ingest.ingest(orders.name, rows(({"id": 1}, "r"), key="k"))
    with pytest.raises(RequestsPending, match="1 requests"):
        ingest_tables.drop(lake, orders.name)
    lake.execute(
        f"CREATE DYNAMIC TABLE reader TARGET_LAG = '1 day' INITIALIZE = ON_SCHEDULE AS SELECT id FROM {orders.name}"
    )
    with pytest.raises(HasDependents, match=r"main\.reader"):
        ingest_tables.drop(lake, orders.name, force=True)
    lake.drop("reader")
    ingest_tables.drop(lake, orders.name, force=True)
    with pytest.raises(UnknownTable):
        ingest_tables.get(lake, orders.name)
    for rest in ("bus", "record_keys", "request_keys"):
        assert (
            lake.conn.execute(f"SELECT FROM lakemill.{rest} WHERE table_id = %s", (orders.table_id,)).fetchall() == []
        )
    with pytest.raises((NoIngestTable, UnknownTable)):
        ingest.ingest(orders.name, rows({"id": 1}))
    assert number(ingest, answer) <= ingest.head().token
