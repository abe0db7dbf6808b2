"""Names that a column can't have in a dynamic table: Spark computes with columns of ours beside the user's.

Ours begin with two underscores; others that do are free. And two that differ in the case of ``Ä`` alone are one to
Spark. Asked when a table is declared (``runtime/analyse``), of the columns that its query uses and of those that it
gives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lakemill.core.names import fold

_OURS = re.compile(
    r"__(?:[cfhkmsv]\d*|order\d*|relation\d*|lakemill\w*|among|value|n|nth|old|copy|held|seen|before|total|kept|times|rank|same"
    r"|place|path|file|index|keys|list|bad|word|begin|partial|stamp|checksum|written|operation|weight|position"
    r"|bits_[ab]|cut_[ab]|diff_id|row_id|row_id_start|own_row_id|file_id|last_seen|deleted_at|internal)"
)


def is_reserved(name: str) -> bool:
    return _OURS.fullmatch(fold(name)) is not None


def is_parameter(name: str) -> bool:
    """Whether a column's name reads as a parameter where queries are taken apart, quoted or not."""
    return name.startswith("$")


def alike(names: Iterable[str]) -> str | None:
    """A name that Spark can't tell from another of these, though DuckDB can."""
    seen: dict[str, str] = {}
    for name in names:
        if fold(seen.setdefault(name.lower(), name)) != fold(name):
            return name
    return None
