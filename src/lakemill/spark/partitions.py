"""The partition values of a row as Spark expressions, in the text form of the catalog.

Identity, parts of a date, and DuckLake's bucket, which is Iceberg's: Murmur3 (x86, 32 bits, seed 0). Spark's own
``hash`` is Murmur3 with seed 42 and hashes its arguments in a chain, so a first argument whose hash is 0 makes it start
from 0. For bytes Spark's variant differs from the standard, and they are hashed word by word here.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column as Expr
from pyspark.sql import functions as F  # noqa: N812

from lakemill.core.partition import PartitionKey
from lakemill.errors import UnsupportedType

_MASK = 0xFFFFFFFF
_C1, _C2 = 0xCC9E2D51, 0x1B873593
_TEXT_ALIKE = frozenset(
    {"boolean", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "date", "time", "varchar"}
    | {"json", "timestamp", "timestamp_us", "timestamp_ms", "timestamp_s"}
)


def partition_text(key: PartitionKey, value: Expr) -> Expr:
    """The partition value of a column in stored form, as text; NULL stays NULL."""
    if key.transform == "identity":
        return _text(key, value)
    if key.buckets is not None:
        return F.when(value.isNotNull(), (_hash(key, value).bitwiseAND(0x7FFFFFFF) % key.buckets).cast("string"))
    part = {"year": F.year, "month": F.month, "day": F.dayofmonth, "hour": F.hour}[key.transform]
    return part(value).cast("string")


def _text(key: PartitionKey, value: Expr) -> Expr:
    type_ = key.column.type
    if type_ in _TEXT_ALIKE or type_.startswith("decimal"):
        return value.cast("string")
    if type_ == "timestamptz":
        return F.concat(value.cast("string"), F.lit("+00"))
    if type_ == "uuid":
        return _uuid_text(value)
    raise _refusal(key)


def _hash(key: PartitionKey, value: Expr) -> Expr:
    match key.column.type:
        case "boolean" | "int8" | "int16" | "int32" | "int64":
            return _hash_long(
                value.cast("int").cast("bigint") if key.column.type == "boolean" else value.cast("bigint")
            )
        case "float32" | "float64":
            return F.hash(F.lit(_STARTS_AT_ZERO), value.cast("double"))
        case "date":
            return _hash_long(F.unix_date(value).cast("bigint"))
        case "timestamp" | "timestamp_us" | "timestamptz":
            return _hash_long(F.unix_micros(value.cast("timestamp")))
        case "timestamp_ms":
            return _hash_long(F.unix_millis(value.cast("timestamp")))
        case "timestamp_s":
            return _hash_long(F.unix_seconds(value.cast("timestamp")))
        case "varchar" | "json" | "blob":
            return _hash_bytes(value.cast("binary"))
        case "uint8" | "uint16" | "uint32" | "uint64":  # the extension hashes their digits
            return _hash_bytes(value.cast("string").cast("binary"))
        case "uuid":
            return _hash_bytes(_uuid_text(value).cast("binary"))
    raise _refusal(key)


def _uuid_text(value: Expr) -> Expr:
    return F.regexp_replace(F.lower(F.hex(value)), "^(.{8})(.{4})(.{4})(.{4})(.{12})$", "$1-$2-$3-$4-$5")


def _hash_long(value: Expr) -> Expr:
    return F.hash(F.lit(_STARTS_AT_ZERO), value)


def _hash_bytes(value: Expr) -> Expr:
    """Standard Murmur3 over bytes: whole words of four, then the rest. Arithmetic in BIGINT, masked to 32 bits."""
    digits = F.hex(value)
    length = F.length(value).cast("bigint")
    words = F.floor(length / 4).cast("int")
    places = F.when(words > 0, F.sequence(F.lit(0), words - 1)).otherwise(F.array().cast("array<int>"))

    def word(start: Expr, count: int) -> Expr:
        """``count`` bytes from byte ``start``, little-endian."""
        total = F.lit(0).cast("bigint")
        for n in range(count):
            pair = F.substring(digits, (start + n) * 2 + 1, F.lit(2))
            byte = F.coalesce(F.conv(F.nullif(pair, F.lit("")), 16, 10).cast("bigint"), F.lit(0).cast("bigint"))
            total = total + F.shiftleft(byte, 8 * n)
        return total

    def step(state: Expr, place: Expr) -> Expr:
        mixed = state.bitwiseXOR(_mix_word(word(place * 4, 4)))
        return (_times(_rotate(mixed, 13), 5) + 0xE6546B64).bitwiseAND(_MASK)

    state = F.aggregate(places, F.lit(0).cast("bigint"), step)
    # fewer than four bytes are left; none mix to 0, which changes nothing
    state = state.bitwiseXOR(_mix_word(word(words * 4, 3))).bitwiseXOR(length)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = _times(_fold(state, shift), factor)
    return _fold(state, 16)


def _mix_word(word: Expr) -> Expr:
    return _times(_rotate(_times(word, _C1), 15), _C2)


def _let(value: Expr, use: Callable[[Expr], Expr]) -> Expr:
    """``use(value)`` with the value computed once; without it every step would double the expression."""
    return F.element_at(F.transform(F.array(value), use), 1)


def _fold(value: Expr, shift: int) -> Expr:
    return _let(value, lambda x: x.bitwiseXOR(F.shiftrightunsigned(x, shift)))


def _times(value: Expr, factor: int) -> Expr:
    """32-bit product; in halves, because the whole one would not fit into a BIGINT."""
    by = F.lit(factor).cast("bigint")

    def product(x: Expr) -> Expr:
        high = (F.shiftrightunsigned(x, 16) * by).bitwiseAND(0xFFFF)
        return (x.bitwiseAND(0xFFFF) * by + F.shiftleft(high, 16)).bitwiseAND(_MASK)

    return _let(value, product)


def _rotate(value: Expr, by: int) -> Expr:
    return _let(value, lambda x: F.shiftleft(x, by).bitwiseOR(F.shiftrightunsigned(x, 32 - by)).bitwiseAND(_MASK))


def _starts_at_zero() -> int:
    """The INTEGER whose hash with Spark's seed 42 is 0: every step of Murmur3 can be undone."""
    state = ((4 - 0xE6546B64) * pow(5, -1, 1 << 32)) & _MASK
    state = ((state >> 13) | (state << 19)) & _MASK
    word = ((state ^ 42) * pow(_C2, -1, 1 << 32)) & _MASK
    word = ((word >> 15) | (word << 17)) & _MASK
    word = (word * pow(_C1, -1, 1 << 32)) & _MASK
    return word - (1 << 32) if word >= 1 << 31 else word


_STARTS_AT_ZERO = _starts_at_zero()


def _refusal(key: PartitionKey) -> UnsupportedType:
    return UnsupportedType(
        f"the table is partitioned by {key.transform} of {key.column.name!r}, and Spark can't compute that for"
        f" {key.column.type.upper()} as DuckDB does",
        remedy="write this table with DuckDB",
    )
