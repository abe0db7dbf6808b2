"""A file becomes requests: rows in batches, each under a key that only these rows at this place have.

For `lakemill ingest`. The key of a batch is the digest of everything up to its end, and of the table: whoever sends the
same file again sends the same keys, and nothing is written twice. Reads a stream once and holds one batch at a time.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import IO, Literal

import msgspec
import zstandard

from lakemill.errors import BadBody

BATCH = 1000
Compression = Literal["none", "gzip", "zstd"]
_SUFFIXES: dict[str, Compression] = {"gz": "gzip", "gzip": "gzip", "zst": "zstd", "zstd": "zstd"}


@dataclass(frozen=True, slots=True)
class Batch:
    key: str
    rows: list[bytes]
    first: int
    """The number of its first row in the file, from 1."""


def compression_of(name: str) -> Compression:
    """By the end of a file's name."""
    return _SUFFIXES.get(name.rpartition(".")[2].lower(), "none")


def batches(
    stream: IO[bytes], target: tuple[str, ...], compression: Compression = "none", size: int = BATCH
) -> Iterator[Batch]:
    """All rows of a stream of lines, or of one JSON array; ``target`` says what is done with them, and where."""
    digest = blake2b("\0".join((*target, str(size), "")).encode(), digest_size=20)
    rows: list[bytes] = []
    first = 1
    for row in _rows(_opened(stream, compression)):
        digest.update(row + b"\n")
        rows.append(row)
        if len(rows) == size:
            yield Batch(f"file-{digest.hexdigest()}", rows, first)
            first, rows = first + size, []
    if rows:
        yield Batch(f"file-{digest.hexdigest()}", rows, first)


def _opened(stream: IO[bytes], compression: Compression) -> Iterable[bytes]:
    if compression == "gzip":
        return gzip.GzipFile(fileobj=stream)
    if compression == "zstd":
        reader = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
        return io.BufferedReader(reader)
    return stream


def _rows(lines: Iterable[bytes]) -> Iterator[bytes]:
    try:
        opened = iter(lines)
        head = next((line for line in opened if not line.isspace()), b"")
        if head.lstrip().startswith(b"["):
            whole = msgspec.json.decode(head + b"".join(opened), type=list[msgspec.Raw])
            yield from (msgspec.json.format(bytes(row), indent=-1) for row in whole)
            return
        if head:
            yield head.strip()
        yield from (line.strip() for line in opened if not line.isspace())
    except msgspec.MsgspecError as error:
        raise BadBody(f"the file is no JSON array: {error}", remedy="write a row a line, or one array") from error
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise BadBody(f"the file can't be read: {error}", remedy="name how it is compressed: --compression") from error
