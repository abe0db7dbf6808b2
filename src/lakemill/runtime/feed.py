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
from typing import IO, Any, Literal

import msgspec
import zstandard

from lakemill.core.records import BOM
from lakemill.errors import BadBody

BATCH = 1000
Compression = Literal["none", "gzip", "zstd"]
_PIECE = 1 << 14
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
    return io.BufferedReader(_Zstd(stream)) if compression == "zstd" else stream


class _Zstd(io.RawIOBase):
    """Frames, one after the other; zstandard's own reader takes a file that was cut for one that ends there."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._ready, self._rest = memoryview(b""), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            piece = self._rest or self._stream.read(_PIECE)
            if not piece:
                if self._frame is not None:
                    raise EOFError("it ends too early")
                return 0
            frame = self._frame or zstandard.ZstdDecompressor().decompressobj()
            self._ready, self._rest = memoryview(frame.decompress(piece)), b""
            self._frame = None if frame.eof else frame
            if frame.eof:
                self._rest = frame.unused_data
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


def _rows(lines: Iterable[bytes]) -> Iterator[bytes]:
    try:
        opened = iter(lines)
        head = next((line for line in opened if not line.isspace()), b"").removeprefix(BOM)
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
