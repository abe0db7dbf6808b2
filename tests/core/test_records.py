"""Records against columns: what DuckDB can hold is accepted and means the same, the rest is refused by its path."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakemill.core.records import Records, canonical, columns_version, read_body, read_lines
from lakemill.core.schema import Column, duck_type
from lakemill.errors import BadBody, UnsupportedType
from lakemill.lake import duck
from lakemill.settings import Settings

INTS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint8": (0, 2**8 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
    "int128": (-(2**53), 2**53),
    "uint128": (0, 2**53),
}


def decimals(width: int, scale: int) -> st.SearchStrategy[str]:
    most = 10**width - 1
    return st.integers(-most, most).map(
        lambda n: f"{'-' * (n < 0)}{abs(n) // 10**scale}.{abs(n) % 10**scale:0{scale}d}"
    )


def as_float(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
TIMES = st.datetimes(allow_imaginary=False)
# type → (what DuckDB casts to it, how the value is written as JSON; None: as DuckDB writes it)
SCALARS: dict[str, tuple[st.SearchStrategy[Any], Any]] = {
    **{type_: (st.integers(*ends), None) for type_, ends in INTS.items()},
    "boolean": (st.booleans(), None),
    "decimal(10,2)": (decimals(10, 2), None),
    "decimal(38,10)": (decimals(38, 10), lambda text: json.dumps(text)),
    "decimal(4,4)": (decimals(4, 4), None),
    "varchar": (TEXTS, None),
    "json": (st.recursive(st.none() | st.integers() | TEXTS, lambda x: st.lists(x, max_size=2)).map(json.dumps), str),
    "date": (st.dates(), None),
    "time": (st.times(), None),
    "timestamp": (TIMES, None),
    "timestamp_s": (TIMES.map(lambda t: t.replace(microsecond=0)), None),
    "timestamp_ms": (TIMES.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)), None),
    "timestamptz": (TIMES.map(lambda t: f"{t.isoformat()}+00"), None),
    "uuid": (st.uuids(), None),
}


@pytest.fixture(scope="module")
def engine() -> Iterator[duck.Connection]:
    with duck.connect(Settings(), "", attach=False) as connection:
        yield connection


def one(type_: str, *children: Column, **options: Any) -> Records:
    return Records([Column(1, "v", type_, tuple(children), **options)])


def value_of(records: Records, text: str) -> Any:
    """The canonical value of a column that was sent as this JSON."""
    checked = records.check([b'{"v":' + text.encode() + b"}"], enveloped=False)
    assert not checked.bad, f"{text}: {checked.bad[0]}"
    return msgspec.json.decode(checked.lines[0])["p"]["v"]


@pytest.mark.parametrize("type_", SCALARS)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_duckdb_holds_is_accepted_and_means_the_same(
    engine: duck.Connection, type_: str, data: st.DataObject
) -> None:
    made, written = SCALARS[type_]
    given_ = [str(value) for value in data.draw(st.lists(made, min_size=1, max_size=20))]
    records, name = one(type_), duck_type(Column(1, "v", type_))
    shown = engine.execute(
        f"SELECT to_json(CAST(x AS {name}))::VARCHAR FROM (SELECT unnest(?::VARCHAR[]) AS x)", [given_]
    )
    texts = [written(text) for text in given_] if written else [row[0] for row in shown.fetchall()]
    if type_ == "json":
        pairs = [(text, sent) for text, sent in zip(given_, texts, strict=True) if text != "null"]
        assert [json.loads(value_of(records, sent)) for _, sent in pairs] == [json.loads(text) for text, _ in pairs]
        return
    found = [str(value_of(records, text)) for text in texts]
    same = engine.execute(
        f"SELECT bool_and(CAST(a AS {name}) = CAST(b AS {name}))"
        " FROM (SELECT unnest(?::VARCHAR[]) AS a, unnest(?::VARCHAR[]) AS b)",
        [given_, found],
    ).fetchone()
    assert same == (True,), list(zip(given_, found, strict=True))


@settings(max_examples=150, deadline=None)
@given(number=st.floats(), bits=st.integers(0, 2**32 - 1))
def test_floats(number: float, bits: int) -> None:
    for type_, value in (("float64", number), ("float32", as_float(bits))):
        text = (
            json.dumps(value)
            if math.isfinite(value)
            else json.dumps({"nan": "NaN", "inf": "Infinity"}.get(str(value), "-Infinity"))
        )
        found = float(value_of(one(type_), text))
        assert found == value or (math.isnan(found) and math.isnan(value))


@settings(max_examples=100, deadline=None)
@given(value=st.binary(max_size=40))
def test_blobs(value: bytes) -> None:
    assert base64.b64decode(value_of(one("blob"), json.dumps(base64.b64encode(value).decode()))) == value


NESTED = [
    Column(1, "v", "list", (Column(2, "element", "int32"),)),
    Column(1, "v", "struct", (Column(2, "a", "decimal(10,2)"), Column(3, "b c", "timestamptz"))),
    Column(1, "v", "map", (Column(2, "key", "varchar"), Column(3, "value", "list", (Column(4, "element", "date"),)))),
    Column(
        1, "v", "list", (Column(2, "element", "struct", (Column(3, "x", "list", (Column(4, "element", "uuid"),)),)),)
    ),
]
LITERALS = [
    "[1, NULL, -5]",
    "{'a': 1.5, 'b c': TIMESTAMPTZ '2026-01-01 00:00:00.25+00'}",
    "MAP {'k': [DATE '2026-01-31', NULL], '': []}",
    "[{'x': [uuid()]}, NULL, {'x': NULL}]",
]


@pytest.mark.parametrize(
    ("column", "literal"), list(zip(NESTED, LITERALS, strict=True)), ids=lambda c: getattr(c, "type", "")
)
def test_nested_values_mean_the_same(engine: duck.Connection, column: Column, literal: str) -> None:
    name = duck_type(column)
    query = f"SELECT v::VARCHAR, to_json(v)::VARCHAR FROM (SELECT CAST({literal} AS {name}) AS v)"
    row = engine.execute(query).fetchone()
    assert row is not None
    found = value_of(Records([column]), row[1])
    if column.type == "map":
        found = {entry["key"]: entry["value"] for entry in found}
    again = engine.execute(f"SELECT CAST(?::JSON AS {name})::VARCHAR", [json.dumps(found)]).fetchone()
    assert again == (row[0],)


REFUSED = {
    "boolean": ["1", '"true"'],
    "varchar": ["5", "true", "{}", r'"\ud800"'],
    "date": ['"2026-02-30"', '"20260101"', '"2026-01-01T00:00:00"', "5"],
    "time": ['"24:00:00"', '"12:00:00Z"', '"12:00:00.1234567"', "5"],
    "timestamp": [
        '"2026-01-01T00:00:00Z"',
        '"2026-01-01"',
        '"2026-13-01T00:00:00"',
        '"2026-01-01T00:00:00.1234567"',
        "0",
    ],
    "timestamp_s": ['"2026-01-01T00:00:00.5"'],
    "timestamp_ms": ['"2026-01-01T00:00:00.0005"'],
    "timestamptz": ['"2026-01-01T00:00:00"', '"infinity"', '"0001-01-01T00:00:00+01:00"', '"２026-01-01T00:00:00Z"'],
    "uuid": ['"x"', "5"],
    "blob": ['"a"', '"*"', "[1]"],
    "decimal(10,2)": ["1.234", '"1.234"', "100000000", '"NaN"', '"Infinity"', "true", '""', '"1 "', "1e400", '"١"'],
    "float32": ["1e39", '"nan"', "true"],
    "float64": ["1e400", '"1"'],
    "json": [],
} | {
    type_: [str(low - 1), str(high + 1), "1.5", "1e3", '"x"', '"٣"', "true", "[]"]
    for type_, (low, high) in INTS.items()
}


@pytest.mark.parametrize("type_", REFUSED)
def test_what_it_can_not_hold_is_refused(type_: str) -> None:
    records = one(type_, nulls_allowed=False)
    for text in [*REFUSED[type_], "null"]:
        checked = records.check([f'{{"v":{text}}}'.encode()], enveloped=False)
        assert len(checked.bad) == 1, f"{text} was taken for a {type_}: {checked.lines}"
        assert checked.bad[0].place in ("records[0].v", "records[0]")


COLUMNS = [
    Column(1, "id", "int64"),
    Column(2, "price", "decimal(10,2)"),
    Column(3, "tags", "list", (Column(4, "element", "struct", (Column(5, "n", "int8"), Column(6, "a.b", "varchar"))),)),
    Column(7, "attributes", "map", (Column(8, "key", "varchar"), Column(9, "value", "int32"))),
    Column(10, "must", "varchar", nulls_allowed=False),
]
FAULTS = {
    '{"id":1,"must":"","price":"1.234"}': ".price: expected a DECIMAL(10,2), got '1.234'"
    " (more than 2 digits behind the point)",
    '{"id":"1","must":""}': ".id: expected a BIGINT, got '1'",
    '{"must":""}': ".id: missing; expected a BIGINT",
    '{"id":1}': ".must: missing; expected a VARCHAR",
    '{"id":1,"must":null}': ".must: expected a VARCHAR, got null",
    '{"id":1,"must":"","tags":[{"n":1},{"n":300}]}': ".tags[1].n: expected a TINYINT, got 300",
    '{"id":1,"must":"","tags":[{"z":1}]}': '.tags[0]: expected a STRUCT("n" TINYINT, "a.b" VARCHAR), got {"z":1}'
    " (Object contains unknown field `z`)",
    '{"id":1,"must":"","attributes":{"a":1.5}}': '.attributes[0].value: expected an INTEGER, got {"a":1.5}',
    '{"id":1,"must":"","zz":1}': ".zz: the table has no such column",
    '{"ID":1,"must":""}': ".ID: the table has no such column; did you mean id?",
    "[1]": ": expected an object, got [1]",
}


@pytest.mark.parametrize("payload", FAULTS)
def test_a_fault_is_told_with_its_path(payload: str) -> None:
    records = Records(COLUMNS, ["id"])
    checked = records.check([f'{{"payload":{payload}}}'.encode()], enveloped=True)
    assert [str(bad) for bad in checked.bad] == [f"records[0].payload{FAULTS[payload]}"]


def test_a_bad_record_does_not_spoil_its_neighbours() -> None:
    lines = [b'{"v":1}', b'{"v":"x"}', b"nonsense", b'{"v":2}']
    checked = one("int32").check(lines, enveloped=False)
    assert [json.loads(line)["p"]["v"] for line in checked.lines] == [1, 2]
    assert checked.positions == [0, 3]
    assert [(bad.position, bad.body) for bad in checked.bad] == [(1, lines[1]), (2, lines[2])]


def test_a_key_that_nobody_can_keep_is_no_key() -> None:
    sent = json.dumps({"payload": {"v": 1}, "idempotency_key": "a\0b"}).encode()
    (bad,) = one("int32").check([sent], enveloped=True).bad
    assert (bad.place, bad.key) == ("records[0].idempotency_key", None)


def test_operations_need_a_key_and_deletes_only_that() -> None:
    columns = [Column(1, "id", "int64"), Column(2, "n", "int32", nulls_allowed=False)]
    send = [b'{"op":"delete","payload":{"id":1,"n":"whatever"}}', b'{"op":"upsert","payload":{"id":1,"n":2}}']
    assert [bad.place for bad in Records(columns).check(send, enveloped=True).bad] == ["records[0].op", "records[1].op"]
    checked = Records(columns, ["id"]).check([*send, b'{"op":"delete","payload":{"n":1}}'], enveloped=True)
    assert checked.lines == [b'{"o":"d","p":{"id":1}}', b'{"o":"u","p":{"id":1,"n":2}}']
    assert [str(bad) for bad in checked.bad] == ["records[2].payload.id: missing; expected a BIGINT"]


def test_defaults_are_filled_in_after_the_digest_is_taken() -> None:
    columns = [Column(1, "id", "int64"), Column(2, "n", "int32"), Column(3, "u", "varchar"), Column(4, "z", "int32")]
    before = Records(columns[:1]).check([b'{"payload":{"id":1},"idempotency_key":"k"}'], enveloped=True, digest=True)
    records = Records(columns, defaults={"n": b"7"}, volatile=["u"])
    after = records.check(
        [b'{"idempotency_key":"k","payload":{"id":1}}', b'{"payload":{"id":2,"n":null,"u":"given"}}'],
        enveloped=True,
        volatile=lambda name, count: [f'"{name}{n}"'.encode() for n in range(count)],
    )
    assert after.lines == [b'{"o":"i","p":{"id":1,"n":7,"u":"u0"}}', b'{"o":"i","p":{"id":2,"n":null,"u":"given"}}']
    assert after.digests[0] == before.digests[0]


@pytest.mark.parametrize("type_", ["int32", "json"])
def test_neither_spaces_nor_the_order_of_keys_make_it_another_request(type_: str) -> None:
    records = Records([Column(1, "a", "int32"), Column(2, "b", type_)])
    inner = b'{"x":1,"y":2}' if type_ == "json" else b"5"
    other = b'{ "y":2, "x" :1}' if type_ == "json" else b"5"
    one_, two, three = (
        records.check([body], enveloped=False, digest=True).digest
        for body in (b'{"a":1,"b":' + inner + b"}", b' {"b": ' + other + b', "a":1 }', b'{"a":2,"b":' + inner + b"}")
    )
    assert one_ == two != three
    keyed = Records([Column(1, "a", "int32"), Column(2, "b", type_)], ["a"])
    insert, upsert = (keyed.check([b'{"a":1}'], enveloped=False, op=op, digest=True) for op in ("insert", "upsert"))
    assert insert.digest != upsert.digest


def test_dropping_unknown_fields_is_a_choice() -> None:
    columns = [Column(1, "s", "struct", (Column(2, "a", "int32"),))]
    checked = Records(columns, drop_unknown=True).check([b'{"s":{"a":1,"b":2},"z":1}'], enveloped=False)
    assert checked.lines == [b'{"o":"i","p":{"s":{"a":1}}}']


def test_columns_have_a_version() -> None:
    assert columns_version(COLUMNS) == columns_version(list(COLUMNS))
    assert columns_version(COLUMNS) != columns_version(COLUMNS[:-1])
    with pytest.raises(UnsupportedType, match="interval"):
        one("interval")


@pytest.mark.parametrize(
    ("body", "place"),
    [(b"{", None), (b"[]", None), (b'{"records":5}', "records"), (b'{"records":[],"x":1}', None), (b"\xff", None)],
)
def test_bodies_that_are_none(body: bytes, place: str | None) -> None:
    with pytest.raises(BadBody) as caught:
        read_body(body)
    assert caught.value.place == place


def test_lines() -> None:
    assert read_lines(b'{"a":1}\r\n\n  \n{"a":2}') == [b'{"a":1}\r', b'{"a":2}']
    assert canonical(b'{"b": 1.10, "a": [1]}') == b'{"a":[1],"b":"1.10"}'


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.decimals().map(str),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "n", "a.b", "key", "value"]), inner)
    ),
    max_leaves=6,
)
EVERY = [Column(n, name, name) for n, name in enumerate([*SCALARS, "float32", "float64", "blob"], 1)] + COLUMNS[1:4]
STRICT, GENEROUS = Records(EVERY), Records(EVERY, drop_unknown=True)


@settings(max_examples=100, deadline=None)
@given(
    payload=st.dictionaries(st.sampled_from([column.name for column in EVERY]), ANY, max_size=4),
    drops=st.booleans(),
    raw=st.binary(max_size=10),
)
def test_whatever_comes_is_accepted_or_explained(payload: dict[str, Any], drops: bool, raw: bytes) -> None:
    records = STRICT if not drops else GENEROUS
    sent = [json.dumps(payload).encode(), raw, b'{"id":1e99999999999999999999}', b"[" * 5000, b"9" * 5000]
    checked = records.check([*sent, json.dumps({"payload": payload}).encode()], enveloped=False, digest=True)
    assert len(checked.lines) + len(checked.bad) == len(sent) + 1
    assert all(str(bad).startswith("records[") for bad in checked.bad)
    for line in checked.lines:
        assert set(json.loads(line)) == {"o", "p"}
        assert b"\n" not in line
