"""Bodies as clients send them: those that end too early, that stand for more than they are, or point elsewhere."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pytest
import zstandard

from lakemill.errors import BadBody, LakemillError, RequestTooLarge
from lakemill.runtime.arrow import arrow_rows, read_arrow
from lakemill.runtime.bodies import ARROW, NDJSON, parse

MOST = 16 * 10**6
LINES = b"".join(b'{"k":%d}\n' % number for number in range(100_000))


def stream(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def rows(table: pa.Table, **options: Any) -> list[Any]:
    found = parse(stream(table, **options), ARROW, most=MOST)
    assert found.count == table.num_rows
    return [json.loads(row) for row in arrow_rows(found.arrow, ())]


# ---------------------------------------------------------------- lines
@pytest.mark.parametrize("cut", [1, 3, 100, 30_000])
def test_a_zstd_body_that_ends_too_early_is_refused(cut: int) -> None:
    with pytest.raises(BadBody, match="it ends too early"):
        parse(zstandard.compress(LINES)[:-cut], NDJSON, "zstd", most=MOST)


def test_zstd_frames_follow_each_other_and_are_bounded() -> None:
    two = zstandard.compress(LINES[: len(LINES) // 2]) + zstandard.compress(LINES[len(LINES) // 2 :])
    assert parse(two, NDJSON, "zstd", most=MOST).count == 100_000
    with pytest.raises(BadBody):
        parse(two + b"more", NDJSON, "zstd", most=MOST)
    with pytest.raises(RequestTooLarge):
        parse(zstandard.compress(b"0" * 10**9), NDJSON, "zstd", most=MOST)


def test_what_an_editor_puts_before_a_text_is_ignored() -> None:
    assert parse(b'\xef\xbb\xbf{"k":1}\r\n\r\n{"k":2}', NDJSON, most=MOST).records == [b'{"k":1}\r', b'{"k":2}']
    assert parse(b'\xef\xbb\xbf{"records":[{"payload":{}}]}', most=MOST).count == 1


# ---------------------------------------------------------------- Arrow
KINDS: list[tuple[pa.Array, list[Any]]] = [
    (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
    (pa.array([1, 2, 1]).dictionary_encode(), [1, 2, 1]),
    (pa.array(["a", "b", None], pa.large_string()), ["a", "b", None]),
    (pa.array([[1], None, []], pa.large_list(pa.int8())), [[1], None, []]),
    (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)), [[1, 2], None, [3, 4]]),
    (pa.array([[("x", 1)], None, []], pa.map_(pa.string(), pa.int8())), [[{"key": "x", "value": 1}], None, []]),
    (pa.array([{"a": 1}, None, {"a": None}]), [{"a": 1}, None, {"a": None}]),
    (pa.nulls(3), [None, None, None]),
    (pa.array([b"ab", None, b""], pa.binary()), ["YWI=", None, ""]),
    (pa.array([True, None, False]), [True, None, False]),
]


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_kinds_of_arrow(compression: str | None) -> None:
    for array, values in KINDS:
        assert rows(pa.table({"c": array}), compression=compression) == [{"c": value} for value in values], array.type


BOMBS: list[tuple[str, pa.Table, dict[str, Any], type[LakemillError]]] = [
    ("no bytes at all", pa.table({"c": pa.nulls(2**31 - 1)}), {}, RequestTooLarge),
    ("lists of nothing", pa.table({"c": pa.ListArray.from_arrays([0, 2**31 - 1], pa.nulls(2**31 - 1))}), {},
     RequestTooLarge),
    ("buffers that unpack", pa.table({"c": pa.array([0] * 10**7, pa.int64())}), {"compression": "zstd"},
     RequestTooLarge),
    ("one value for all", pa.table({"c": pa.DictionaryArray.from_arrays([0] * 20_000, ["x" * 10**6])}), {},
     RequestTooLarge),
    ("runs", pa.table({"c": pa.RunEndEncodedArray.from_arrays([2**31 - 1], [1])}), {}, BadBody),
    ("lists of a dictionary's", pa.table({"c": pa.DictionaryArray.from_arrays([0], pa.array([[1]]))}), {}, BadBody),
]  # fmt: skip


@pytest.mark.parametrize(("table", "options", "error"), [one[1:] for one in BOMBS], ids=[one[0] for one in BOMBS])
def test_a_small_body_that_stands_for_a_large_one(
    table: pa.Table, options: dict[str, Any], error: type[LakemillError]
) -> None:
    body = stream(table, **options)
    assert len(body) < 2 * 10**6
    with pytest.raises(error):
        read_arrow(body, MOST)


def test_offsets_that_point_elsewhere_are_refused() -> None:
    """Else the answer to a request, or its rows, would hold whatever the process has in its memory."""
    body = bytearray(stream(pa.table({"c": ["abc", "def"]})))
    place = body.find(b"\3\0\0\0\6\0\0\0")
    for wrong in (b"\1\1\0\0\2\2\0\0", b"\3\0\0\0\6\6\0\0", b"\6\0\0\0\3\0\0\0"):
        body[place : place + 8] = wrong
        with pytest.raises(BadBody):
            read_arrow(bytes(body), MOST)


def test_an_arrow_body_that_was_cut() -> None:
    body = stream(pa.table({"c": list(range(1000))}), compression="zstd")
    for length in range(0, len(body) - 8, 7):
        try:
            assert read_arrow(body[:length], MOST).num_rows == 0, "a stream may end before its first batch"
        except BadBody:
            continue


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(BadBody, match="two columns k"):
        read_arrow(stream(pa.table([[1], [2]], names=["k", "k"])), MOST)
