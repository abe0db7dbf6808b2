"""The statements about dynamic tables, as values: what ``core/ddl`` reads from text, for whoever carries it out.

Each knows where it began. Names are as they were written; nothing was looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from lakemill.core.definition import Definition
from lakemill.core.names import QualifiedName
from lakemill.core.position import Position
from lakemill.core.properties import change

Places: TypeAlias = tuple[Position, ...]
"""Where the names of a statement stand, in their order; empty where it was not read from text."""


class IfExists(Enum):
    """What CREATE does where there is such a dynamic table already."""

    REFUSE = "refuse"
    KEEP = "IF NOT EXISTS"
    REPLACE = "OR REPLACE"
    ALTER = "OR ALTER"


@dataclass(frozen=True, slots=True)
class Create:
    at: Position
    definition: Definition
    if_exists: IfExists = IfExists.REFUSE
    places: Mapping[str, Position] = field(default_factory=dict)
    """Where things stand: by property, and ``name``, ``columns``, ``PARTITION BY``, ``query``."""


@dataclass(frozen=True, slots=True)
class Suspend:
    at: Position
    names: tuple[QualifiedName, ...]
    missing_ok: bool = False
    places: Places = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Resume:
    at: Position
    names: tuple[QualifiedName, ...]
    missing_ok: bool = False
    places: Places = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Refresh:
    """All of them at one data snapshot."""

    at: Position
    names: tuple[QualifiedName, ...]
    full: bool = False
    missing_ok: bool = False
    places: Places = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Change:
    """SET and UNSET: ``apply`` gives the definition after it."""

    at: Position
    name: QualifiedName
    values: Mapping[str, Any] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    missing_ok: bool = False
    places: Places = field(default=(), compare=False)

    def apply(self, definition: Definition) -> Definition:
        return change(definition, self.values, self.unset)


@dataclass(frozen=True, slots=True)
class Rename:
    at: Position
    name: QualifiedName
    to: QualifiedName
    missing_ok: bool = False
    places: Places = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Drop:
    at: Position
    name: QualifiedName
    missing_ok: bool = False
    cascade: bool = False
    places: Places = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Show:
    at: Position
    like: str | None = None


@dataclass(frozen=True, slots=True)
class Describe:
    at: Position
    name: QualifiedName
    places: Places = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class ExplainRefresh:
    at: Position
    name: QualifiedName
    places: Places = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class PlainSql:
    """Not ours: as it was written, without its semicolon."""

    at: Position
    text: str


Own: TypeAlias = Create | Suspend | Resume | Refresh | Change | Rename | Drop | Show | Describe | ExplainRefresh
Statement: TypeAlias = Own | PlainSql
