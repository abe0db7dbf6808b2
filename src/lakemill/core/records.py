"""Which columns the records of a request were checked against, as a short text."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from lakemill.core.schema import Column


def columns_version(columns: Iterable[Column]) -> str:
    """A text that changes when the columns do: ids, names, types, defaults."""
    return blake2b(repr(tuple(columns)).encode(), digest_size=8).hexdigest()
