"""Every type of DuckLake from the text of a request to what DuckDB reads, exactly; and what is no value of its type."""

from __future__ import annotations

from typing import Any

from tests.ingest.intake import Intake
from tests.ingest.requests import record

# type → (as a request keeps it, as DuckDB writes it), several of each
VALUES: dict[str, list[tuple[Any, str]]] = {
    "BOOLEAN": [(True, "true"), (False, "false")],
    "TINYINT": [(-128, "-128"), (127, "127")],
    "SMALLINT": [(-32768, "-32768"), (32767, "32767")],
    "INTEGER": [(-(2**31), "-2147483648"), (2**31 - 1, "2147483647")],
    "BIGINT": [(-(2**63), "-9223372036854775808"), (2**63 - 1, "9223372036854775807")],
    "HUGEINT": [(str(-(2**53)), "-9007199254740992"), (str(2**53), "9007199254740992")],
    "UTINYINT": [(0, "0"), (255, "255")],
    "USMALLINT": [(0, "0"), (65535, "65535")],
    "UINTEGER": [(0, "0"), (2**32 - 1, "4294967295")],
    "UBIGINT": [("0", "0"), (str(2**64 - 1), "18446744073709551615")],
    "UHUGEINT": [("0", "0"), (str(2**53), "9007199254740992")],
    "FLOAT": [(0.1, "0.1"), ("NaN", "nan"), ("-Infinity", "-inf"), (3.4028234663852886e38, "3.4028235e+38")],
    "DOUBLE": [(0.1, "0.1"), (5e-324, "5e-324"), (-1.7976931348623157e308, "-1.7976931348623157e+308"),
               ("NaN", "nan"), ("Infinity", "inf"), (-0.0, "-0.0"), (3, "3.0")],
    "DECIMAL(38,10)": [("-9999999999999999999999999999.9999999999", "-9999999999999999999999999999.9999999999"),
                       ("0.0000000001", "0.0000000001")],
    "DECIMAL(4,1)": [("999.9", "999.9"), (-1.5, "-1.5"), (7, "7.0")],
    "DATE": [("0001-01-01", "0001-01-01"), ("1582-10-10", "1582-10-10"), ("9999-12-31", "9999-12-31")],
    "TIME": [("00:00:00", "00:00:00"), ("23:59:59.999999", "23:59:59.999999")],
    "TIMESTAMP": [("0001-01-01T00:00:00", "0001-01-01 00:00:00"),
                  ("2026-03-29T02:30:00.000001", "2026-03-29 02:30:00.000001"),
                  ("9999-12-31T23:59:59.999999", "9999-12-31 23:59:59.999999")],
    "TIMESTAMP_MS": [("2026-01-01T00:00:00.123", "2026-01-01 00:00:00.123")],
    "TIMESTAMP_S": [("2026-01-01T00:00:59", "2026-01-01 00:00:59")],
    "TIMESTAMPTZ": [("2026-01-01T00:00:00.123456Z", "2026-01-01 00:00:00.123456+00"),
                    ("0001-01-01T00:00:00Z", "0001-01-01 00:00:00+00")],
    "VARCHAR": [("", ""), ("ß🦆\n\"\\\t", "ß🦆\n\"\\\t"), ("\u0001 null", "\u0001 null"), ("\u2028", "\u2028")],
    "BLOB": [("", ""), ("AAH/", "\\x00\\x01\\xFF")],
    "UUID": [("ABCDEFAB-0000-4000-8000-00000000000f", "abcdefab-0000-4000-8000-00000000000f")],
    "JSON": [('{"a": [1, 2.50, "ß"]}', '{"a": [1, 2.50, "ß"]}'), ("null", "null"), ('"text"', '"text"')],
    "INTEGER[]": [([1, None, 3], "[1, NULL, 3]"), ([], "[]")],
    "STRUCT(a INTEGER, b VARCHAR[])": [({"a": 1, "b": ["x", None]}, "{'a': 1, 'b': [x, NULL]}"),
                                       ({"a": None, "b": None}, "{'a': NULL, 'b': NULL}")],
    "MAP(VARCHAR, DECIMAL(10,2))": [([{"key": "k", "value": "1.25"}, {"key": "ß", "value": None}], "{k=1.25, ß=NULL}"),
                                    ([], "{}")],
    "STRUCT(m MAP(INTEGER, UUID), t TIMESTAMPTZ)[]": [
        ([{"m": [{"key": 1, "value": "00000000-0000-4000-8000-00000000000f"}], "t": "2026-01-01T00:00:00Z"}, None],
         "[{'m': {1=00000000-0000-4000-8000-00000000000f}, 't': '2026-01-01 00:00:00+00'}, NULL]")],
}  # fmt: skip

# type → what can't be one of its values, or only by losing something
WRONG: dict[str, list[Any]] = {
    "BOOLEAN": ["yes", 1],
    "TINYINT": [128, "1.5", " 1"],
    "BIGINT": ["9223372036854775808", 1.5],
    "HUGEINT": [str(2**53 + 1)],
    "UTINYINT": [256, -1],
    "UBIGINT": ["-1", str(2**64)],
    "FLOAT": ["1e39", "abc"],
    "DOUBLE": ["1e309", "0x1p3", "1d"],
    "DECIMAL(4,1)": ["0.05", "1000", "1e1"],
    "DATE": ["2026-02-29", "2026-1-1", "today"],
    "TIME": ["24:00:00", "12:00"],
    "TIMESTAMP": ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.1234567", "2026-01-01"],
    "TIMESTAMP_MS": ["2026-01-01T00:00:00.1234"],
    "TIMESTAMP_S": ["2026-01-01T00:00:00.5"],
    "TIMESTAMPTZ": ["2026-01-01T00:00:00"],
    "BLOB": ["A", "****"],
    "UUID": ["abc"],
    "JSON": ["{", "tru"],
    "INTEGER[]": [[1, "x"], 5],
    "STRUCT(a INTEGER, b VARCHAR[])": [{"a": "x"}, [1], "text"],
    "MAP(VARCHAR, DECIMAL(10,2))": [[{"key": None, "value": "1"}], [{"key": "a", "value": "0.001"}],
                                    [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]],
}  # fmt: skip


def test_each_value_arrives_as_it_was(intake: Intake) -> None:
    names = {type_: f"c{number}" for number, type_ in enumerate(VALUES)}
    intake.table("every", ", ".join(["n INTEGER", *(f"{name} {type_}" for type_, name in names.items())]))
    longest = max(map(len, VALUES.values()))
    sent = [
        record("i", n=n, **{names[type_]: values[n % len(values)][0] for type_, values in VALUES.items()})
        for n in range(longest)
    ]
    sent += [record("i", n=longest, **dict.fromkeys(names.values())), record("i", n=longest + 1)]
    intake.send("every", *sent[:3])
    intake.send("every", *sent[3:])
    passed = intake.make("every")
    assert (passed.records, passed.inserted, passed.letters) == (len(sent), len(sent), 0), intake.letters()
    intake.lake.sql("SET TimeZone = 'UTC'")
    for type_, name in names.items():
        found = intake.lake.sql(f"SELECT CAST({name} AS VARCHAR) FROM every ORDER BY n").fetchall()
        values = VALUES[type_]
        assert found == [*((values[n % len(values)][1],) for n in range(longest)), (None,), (None,)], type_


def test_what_is_no_value_is_a_letter_and_never_null(intake: Intake) -> None:
    names = {type_: f"c{number}" for number, type_ in enumerate(WRONG)}
    intake.table("every", ", ".join(["n INTEGER", *(f"{name} {type_}" for type_, name in names.items())]))
    cases = [(type_, value) for type_, values in WRONG.items() for value in values]
    sent = [record("i", n=n, **{names[type_]: value}) for n, (type_, value) in enumerate(cases)]
    token = intake.send("every", record("i", n=-1), *sent, record("i", n=-2))
    passed = intake.make("every")
    assert intake.stock("SELECT n, count(*) FROM every GROUP BY n ORDER BY 1") == [(-2, 1), (-1, 1)]
    assert passed.letters == len(cases)
    found = {position: (code, place) for _, position, code, place, _ in intake.letters()}
    for number, (type_, value) in enumerate(cases):
        code, place = found[number + 1]
        nested = type_.startswith(("STRUCT", "MAP")) or type_.endswith("[]")
        assert code in (("WRONG_TYPE", "BAD_RECORD") if nested else ("WRONG_TYPE",)), (type_, value)
        assert code == "BAD_RECORD" or place.startswith(names[type_]), (type_, value)
    bodies = intake.rows("SELECT body FROM lakemill.dead_letters WHERE token = %s AND position = 1", token)
    assert '"yes"' in bodies[0][0]
