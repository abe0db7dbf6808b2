"""Small footers of local Parquet files, read without asking an engine: 0.1 ms for what takes DuckDB 1 to 2 ms.

One of the two sources of ``lake/footer``. It answers only what it knows for certain, for all files or for none: what is
remote, big, encrypted, broken or unusual is left to DuckDB, which also has the words for what is wrong. Bounds that the
writer cut off are none (Arrow, which could read footers too, does not tell them from whole ones).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lakemill.core.schema import Column
from lakemill.lake.bounds import Decoder, Unknown, decoder
from lakemill.lake.thrift import Struct, decode

BIG = 16 * 1024
"""Bytes of footers, in all, from which on DuckDB is faster."""
_TAIL = 4096
_MAGIC = b"PAR1"
# whatever bytes can do to a reader that takes them for a footer
_ODD = (Unknown, OSError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)


class Chunk(NamedTuple):
    """A column in one row group; bounds are texts of the catalog."""

    values: int
    nulls: int | None
    size_bytes: int
    min: str | None
    max: str | None


@dataclass(frozen=True, slots=True)
class Contents:
    """What a footer says."""

    rows: int
    size_bytes: int
    footer_size: int
    places: tuple[str, ...]
    """The names of the leaves, with ", " between those of one."""
    chunks: tuple[tuple[Chunk, ...], ...]
    """Of each leaf that was asked for."""
    field_ids: frozenset[int]


def read_local(paths: Sequence[str], leaves: Sequence[Column]) -> list[Contents] | None:
    """The footers of these files; None when they are not for us."""
    found, total = [], 0
    for path in paths:
        if "://" in path:
            return None
        try:
            size, footer = _footer(path)
            total += len(footer)
            if total > BIG:
                return None
            found.append(_contents(decode(footer), size, len(footer), leaves))
        except _ODD:
            return None
    return found


def _footer(path: str) -> tuple[int, bytes]:
    """The file's size and its footer."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  (unbuffered: one read)
        size = os.fstat(file.fileno()).st_size
        tail = os.pread(file.fileno(), _TAIL, max(0, size - _TAIL))
        length = int.from_bytes(tail[-8:-4], "little")
        if tail[-4:] != _MAGIC or length > min(BIG, size - 12):
            raise ValueError("no footer, or a big one")
        if length + 8 > len(tail):
            tail = os.pread(file.fileno(), length + 8, size - length - 8)
        return size, tail[-8 - length : -8]


# ---------------------------------------------------------------- numbers of parquet.thrift
def _contents(footer: Struct, size: int, length: int, columns: Sequence[Column]) -> Contents:
    elements = footer[2]
    leaves = [element for element in elements if not element.get(5)]
    decoders = [decoder(column.type, element) for column, element in zip(columns, leaves, strict=False)]
    if any(1 not in order for order in footer[7][: len(decoders)]):
        raise Unknown("bounds in another order than the type's")
    groups = footer[4]
    places = tuple(", ".join(name.decode() for name in chunk[3][3]) for chunk in groups[0][1]) if groups else ()
    return Contents(
        sum(group[3] for group in groups),
        size,
        length,
        places,
        tuple(tuple(_chunk(group[1][index][3], decoders[index]) for group in groups) for index in range(len(decoders))),
        frozenset(element[9] for element in elements if 9 in element),
    )


def _chunk(meta: Struct, bound: Decoder) -> Chunk:
    statistics = meta.get(12, {})
    low, high = statistics.get(6), statistics.get(5)
    return Chunk(
        meta[5],
        statistics.get(3),
        meta[7],
        bound(low) if low is not None and statistics.get(8, True) else None,
        bound(high) if high is not None and statistics.get(7, True) else None,
    )
