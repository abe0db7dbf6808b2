"""One step of the demo, as a value: what it was, the code that did it, and its result as rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Shown:
    title: str
    engine: str
    code: str
    language: str
    said: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    seconds: float = 0.0
