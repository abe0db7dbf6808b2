"""Whether a text is exactly a value of a lake's type, which Spark's own casts don't ask.

Spark's own casts take more than one form (`yes` is true, a zone is ignored by TIMESTAMP) and lose digits in silence
(decimals, microseconds). The forms here are those in which requests keep their values, and no others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.sql import Column as Expr
from pyspark.sql import functions as F  # noqa: N812

from lakemill.core.schema import Column, shown_type
from lakemill.spark import types

_WHOLE = r"^-?[0-9]+\z"
_DAY = r"[+-]?[0-9]{4,7}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[0-9]{2}:[0-9]{2}:[0-9]{2}"
_MICROS = r"(\.[0-9]{1,6}0*)?"
_EXACT = 2**53
"""HUGEINT is a DOUBLE in the files."""
_BOUNDS: Mapping[str, tuple[int, int]] = {
    "uint8": (0, 2**8 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
    "int128": (-_EXACT, _EXACT),
    "uint128": (0, _EXACT),
}
_FORMS: Mapping[str, str] = {
    "boolean": r"^(true|false)\z",
    "float32": r"^(NaN|-?Infinity|-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?)\z",
    "float64": r"^(NaN|-?Infinity|-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?)\z",
    "date": rf"^{_DAY}\z",
    "time": rf"^{_CLOCK}{_MICROS}\z",
    "timestamp": rf"^{_DAY}[T ]{_CLOCK}{_MICROS}\z",
    "timestamp_us": rf"^{_DAY}[T ]{_CLOCK}{_MICROS}\z",
    "timestamp_ms": rf"^{_DAY}[T ]{_CLOCK}(\.[0-9]{{1,3}}0*)?\z",
    "timestamp_s": rf"^{_DAY}[T ]{_CLOCK}(\.0+)?\z",
    "timestamptz": rf"^{_DAY}[T ]{_CLOCK}{_MICROS}(Z|[+-][0-9]{{2}}:[0-9]{{2}})\z",
    "uuid": r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\z",
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def fits(value: Expr, column: Column) -> Expr | None:
    """Whether a text (not NULL) is a value of the scalar type; None where every text is. NULL counts as no."""
    if column.type == "varchar":
        return None
    if column.type == "blob":
        return F.try_to_binary(value, F.lit("base64")).isNotNull()
    if column.type == "uuid":
        return value.rlike(_FORMS["uuid"])
    read = value.try_cast(types.scalar(shown_type(column)))
    if decimal := _DECIMAL.fullmatch(column.type):
        return value.rlike(rf"^-?[0-9]+(\.[0-9]{{0,{decimal[2]}}}0*)?\z") & read.isNotNull()
    if column.type in ("float32", "float64"):  # what is too large for it is infinite to Spark
        written = value.rlike(_FORMS[column.type]) & read.isNotNull()
        return written & (value.contains("Infinity") | (F.abs(read) != float("inf")))
    good = value.rlike(_FORMS.get(column.type, _WHOLE)) & read.isNotNull()
    if column.type in _BOUNDS:
        low, high = (F.lit(str(bound)).cast("decimal(38,0)") for bound in _BOUNDS[column.type])
        good = good & read.cast("decimal(38,0)").between(low, high)
    return good
