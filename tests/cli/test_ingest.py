"""`lakemill table`, `ingest` and `letters`, without a server and over HTTP; a file that is sent twice is there once."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from lakemill.api.probes import serve_in_thread
from lakemill.errors import BadBody
from lakemill.runtime.feed import batches
from lakemill.runtime.ingest import Ingest
from tests.accept.test_http import framed
from tests.cli.conftest import Lakemill
from tests.conftest import TestLake

ORDERS = "id BIGINT NOT NULL, price DECIMAL(10,2)"


def test_the_way_of_a_table(lakemill: Lakemill, lake: TestLake, tmp_path: Path) -> None:
    made = lakemill(lake, "table", "create", "orders", ORDERS, "--key", "id", "--format", "json")
    assert made.json == {
        "table": "main.orders",
        "key": ["id"],
        "policy": "reject",
        "dedupe": "7 days, 0:00:00",
        "retention": None,
    }
    file = tmp_path / "orders.ndjson"
    file.write_text("".join(json.dumps({"id": n, "price": n / 4}) + "\n" for n in range(2500)))
    sent = lakemill(lake, "ingest", "orders", file, "--format", "json").json
    assert {name: sent[name] for name in ("requests", "accepted", "repeated")} == {
        "requests": 3,
        "accepted": 2500,
        "repeated": 0,
    }
    again = lakemill(lake, "ingest", "orders", file, "--format", "json").json
    assert (again["accepted"], again["repeated"], again["token"]) == (0, 2500, sent["token"])
    other = lakemill(lake, "ingest", "MAIN.orders", file, "--format", "json").json
    assert (other["accepted"], other["repeated"]) == (0, 2500), "the same table by another name"

    for name, packed in (("o.gz", gzip.compress), ("o.zst", zstandard.compress)):
        (tmp_path / name).write_bytes(packed(b'[{"id": 1},\n {"id": 2}]'))
        assert lakemill(lake, "ingest", "orders", tmp_path / name, "--op", "upsert", "--format", "json").code == 0

    file.write_text('{"id": 1}\n' * 1004 + '{"id": "x"}\n')
    lakemill(lake, "ingest", "orders", file).failed("BAD_RECORDS", 2, about="row 1005.id: expected a BIGINT, got 'x'")
    lakemill(lake, "ingest", "orders", tmp_path / "nothing").failed("BAD_ARGUMENT", 2, about="can't be read")
    lakemill(lake, "ingest", "nothing", file).failed("UNKNOWN_TABLE", 2)

    assert lakemill(lake, "table", "policy", "orders", "dead_letter").code == 0
    lakemill(lake, "table", "policy", "orders", "hope").failed("BAD_ARGUMENT", 2, remedy="dead_letter")
    sent = lakemill(lake, "ingest", "orders", file, "--format", "json").json
    assert (sent["accepted"], sent["repeated"], sent["rejected"]) == (4, 1000, 1)
    (letter,) = lakemill(lake, "letters", "list", "orders", "--format", "json").json
    assert (letter["place"], letter["state"]) == ("records[4].id", "waiting")
    number = letter["letter"]
    assert lakemill(lake, "letters", "show", number, "--format", "json").json["body"] == '{"id": "x"}'
    lakemill(lake, "letters", "replay", number).failed("BAD_RECORDS", 2, about="got 'x'")
    done = lakemill(lake, "letters", "replay", number, "--payload", '{"id": 9}', "--format", "json").json
    assert done[0]["state"] == "replayed"
    assert lakemill(lake, "letters", "drop", number, "--format", "json").json[0]["state"] == "replayed"
    lakemill(lake, "letters", "drop", "77").failed("UNKNOWN_LETTER", 2)
    assert lakemill(lake, "letters", "list").out == "no letters\n"

    altered = lakemill(lake, "table", "alter", "orders", "--add", "note VARCHAR", "--rename", "price=amount")
    assert altered.code == 0
    (listed,) = lakemill(lake, "table", "list", "--format", "json").json
    assert (listed["table"], listed["waiting_records"]) == ("main.orders", 2500 + 2 + 1004 + 1)
    lakemill(lake, "table", "drop", "orders").failed("REQUESTS_PENDING", 2, remedy="--force")
    assert lakemill(lake, "table", "drop", "orders", "--force").code == 0
    assert lakemill(lake, "table", "list").out == "no table takes requests\n"


def test_over_http(lakemill: Lakemill, lake: TestLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lakemill(lake, "sql", "CREATE TABLE t (id INTEGER)")
    assert lakemill(lake, "table", "create", "t", "--adopt").code == 0
    file = tmp_path / "rows.json"
    file.write_text('[{"id": 1}, {"id": 2}, {"id": 3}]')
    with Ingest(lake.settings) as ingest:
        serving = serve_in_thread(framed(ingest))
        words = ("ingest", "t", file, "--batch", "2", "--url", serving.url, "--format", "json")
        first, second = lakemill(*words), lakemill(*words)
        file.write_text('[{"id": "x"}]')
        lakemill(*words).failed("BAD_RECORDS", 2, about="row 1.id")
        serving.stop()
    assert (first.json["accepted"], second.json["repeated"], second.json["requests"]) == (3, 3, 2)


def rows_of(data: bytes, compression: str) -> list[bytes]:
    return [row for batch in batches(io.BytesIO(data), ("t",), compression) for row in batch.rows]  # type: ignore[arg-type]


@pytest.mark.parametrize(("compression", "pack"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
def test_a_packed_file_that_was_cut_is_not_taken_for_a_shorter_one(compression: str, pack: Any) -> None:
    lines = [b'{"id":%d}' % number for number in range(50_000)]
    whole = b"\n".join(lines)
    assert rows_of(pack(whole[:99_990]) + pack(whole[99_990:]), compression) == lines
    for cut in (1, 9, 1000):
        with pytest.raises(BadBody, match="can't be read"):
            rows_of(pack(whole)[:-cut], compression)


def test_what_an_editor_puts_before_a_file() -> None:
    assert rows_of(b'\xef\xbb\xbf{"id":1}\r\n\r\n{"id":2}\r\n', "none") == [b'{"id":1}', b'{"id":2}']
    assert rows_of(b'\xef\xbb\xbf[{"id":1}]', "none") == [b'{"id":1}']
