"""Lakemill keeps derived tables in a DuckLake fresh."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakemill.client import Client
    from lakemill.lake.scan import Recorded
    from lakemill.runtime.open import Lake, Table, open
    from lakemill.settings import Settings

__all__ = ["Client", "Lake", "Recorded", "Settings", "Table", "__version__", "open"]
__version__ = metadata.version("lakemill")

_HOMES = {
    "Client": "lakemill.client",
    "open": "lakemill.runtime.open",
    "Lake": "lakemill.runtime.open",
    "Table": "lakemill.runtime.open",
    "Recorded": "lakemill.lake.scan",
    "Settings": "lakemill.settings",
}


def __getattr__(name: str) -> Any:
    # Spark, DuckDB and PostgreSQL drivers take a second to import: the command's --help must not wait for them.
    if name not in _HOMES:
        raise AttributeError(f"module 'lakemill' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
