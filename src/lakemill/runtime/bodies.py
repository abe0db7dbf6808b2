"""Bodies of requests: compressed or not, JSON, a row a line, or Arrow; each becomes a list of records in JSON.

The first step of a request, before its table is known to fit. Sizes are checked while it is unpacked, so that a small
body can't become a large one unseen. What the records hold is not looked at here.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import zstandard
from msgspec import Raw

from lakemill.core.records import LONGEST_KEY, Op, read_body, read_lines
from lakemill.errors import BadArgument, BadBody, RequestTooLarge

JSON, NDJSON, ARROW = "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"
_LINES = (NDJSON, "application/ndjson", "application/jsonl", "application/json-lines")
_PIECE = 1 << 10


@dataclass(frozen=True, slots=True)
class Given:
    """What was asked: records in JSON, each in an envelope or a bare row, and how."""

    records: Sequence[bytes | Raw]
    enveloped: bool = False
    op: Op = "insert"
    key: str | None = None
    wait: bool = False
    timeout: float | None = None
    """Seconds."""
    arrow: Any = None
    """A table of Arrow instead of the records; its texts may be documents of JSON columns."""

    @property
    def count(self) -> int:
        return len(self.records) if self.arrow is None else int(self.arrow.num_rows)

    def under(self, key: str | None) -> Given:
        if key is not None and not (0 < len(key) <= LONGEST_KEY and key.isprintable()):
            raise BadArgument(
                f"a key has 1 to {LONGEST_KEY} printable characters", place="Idempotency-Key", remedy="such as a UUID"
            )
        return replace(self, key=key)


def parse(
    body: bytes, media: str = JSON, encoding: str = "", *, most: int, op: Op = "insert", enveloped: bool = False
) -> Given:
    """By its media type and encoding; ``enveloped``: lines are records with ``payload``, not rows."""
    body = unpacked(body, encoding, most)
    kind = media.partition(";")[0].strip().lower() or JSON
    if kind == JSON:
        if op != "insert" or enveloped:
            raise BadArgument("records in JSON say by themselves what they are", remedy="leave op and envelope out")
        read = read_body(body)
        timeout = None if read.visibility_timeout_ms is None else read.visibility_timeout_ms / 1000
        return Given(read.records, True, wait=read.wait_for_visibility, timeout=timeout)
    if kind in _LINES:
        return Given(read_lines(body), enveloped, op)
    if kind == ARROW:
        from lakemill.runtime.arrow import read_arrow

        return Given((), False, op, arrow=read_arrow(body, most))
    raise BadBody(f"a body can't be {media}", remedy=f"send {JSON}, {NDJSON} or {ARROW}")


def unpacked(body: bytes, encoding: str, most: int) -> bytes:
    """Refuses what is, or would become, larger than ``most``."""
    for one in reversed([word.strip().lower() for word in encoding.split(",") if word.strip()]):
        if one == "identity":
            continue
        if one not in ("gzip", "zstd"):
            raise BadBody(f"a body can't be compressed by {one}", remedy="use gzip or zstd")
        body = b"".join(_bounded(_gunzip(body, most) if one == "gzip" else _unzstd(body), most))
    if len(body) > most:
        raise too_large(most)
    return body


def too_large(most: int) -> RequestTooLarge:
    return RequestTooLarge(f"the body has more than {most:,} bytes")


def _bounded(chunks: Iterable[bytes], most: int) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > most:
            raise too_large(most)
        yield chunk


def _gunzip(body: bytes, most: int) -> Iterator[bytes]:
    try:
        while body:  # members, one after the other
            stream = zlib.decompressobj(wbits=31)
            yield stream.decompress(body, most + 1)
            if stream.unconsumed_tail:
                raise too_large(most)
            if not stream.eof:
                raise BadBody("the body is not gzip: it ends too early")
            body = stream.unused_data
    except zlib.error as error:
        raise BadBody(f"the body is not gzip: {error}") from error


def _unzstd(body: bytes) -> Iterator[bytes]:
    """Little by little, since a kilobyte can hold 32 MB; a stream reader would not say that the end is missing."""
    try:
        rest = memoryview(body)
        while rest:  # frames, one after the other
            frame = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
            while rest and not frame.eof:
                piece, rest = rest[:_PIECE], rest[_PIECE:]
                yield frame.decompress(piece)
            if not frame.eof:
                raise BadBody("the body is not zstd: it ends too early")
            if unused := len(frame.unused_data):
                rest = memoryview(body)[len(body) - len(rest) - unused :]
    except zstandard.ZstdError as error:
        raise BadBody(f"the body is not zstd: {error}") from error
